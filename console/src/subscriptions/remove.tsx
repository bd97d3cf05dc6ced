import { useQueryClient } from '@tanstack/react-query';
import { useNavigate } from '@tanstack/react-router';
import { type Subscription, subscriptionUrl } from '../api/client';
import { deleteSubscription, subscriptionKey } from '../api/subscriptions';
import { listChanged } from '../api/topics';
import { RemoveSheet } from '../edit/remove';
import { counted } from '../format/number';
import { unknownParts } from './verdict';

interface DeleteProps {
  readonly subscription: Subscription;
  readonly open: boolean;
  readonly onClose: () => void;
}

export function DeleteSubscription({ subscription, open, onClose }: DeleteProps) {
  const client = useQueryClient();
  const navigate = useNavigate();
  const { ns, name, totals, config } = subscription;
  const removed = async () => {
    await navigate({ to: '/ns/$ns/subscriptions', params: { ns } });
    client.removeQueries({ queryKey: subscriptionKey(ns, name) });
    await listChanged(client, ns, 'subscriptions');
  };
  return (
    <RemoveSheet
      noun="subscription"
      name={name}
      url={subscriptionUrl(ns, name)}
      open={open}
      onClose={onClose}
      remove={() => deleteSubscription(ns, name)}
      onRemoved={removed}
    >
      What it knows of its messages will be gone: {unknownParts(subscription) > 0 && 'at least '}
      {counted(totals.unsettled, 'message')} not settled, {counted(totals.leased, 'lease')}. This cannot be
      undone. The messages themselves stay in <code>{config.topics.join(', ')}</code>.
    </RemoveSheet>
  );
}
