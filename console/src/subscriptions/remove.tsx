import { useQueryClient } from '@tanstack/react-query';
import { useNavigate } from '@tanstack/react-router';
import { subscriptionUrl } from '../api/client';
import {
  type DescribedSubscription,
  deleteSubscription,
  subscriptionKey,
  versionOf,
} from '../api/subscriptions';
import { listChanged } from '../api/topics';
import { RemoveSheet } from '../edit/remove';
import { counted } from '../format/number';
import { unknownParts } from './verdict';

interface DeleteProps {
  readonly described: DescribedSubscription;
  readonly open: boolean;
  readonly onClose: () => void;
}

export function DeleteSubscription({ described, open, onClose }: DeleteProps) {
  const client = useQueryClient();
  const navigate = useNavigate();
  const { subscription } = described;
  const { ns, name, id, totals, config } = subscription;
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
      latest={{ ...versionOf(described), life: id }}
      open={open}
      onClose={onClose}
      remove={(etag) => deleteSubscription(ns, name, etag)}
      onStale={() => void client.invalidateQueries({ queryKey: subscriptionKey(ns, name) })}
      onRemoved={removed}
    >
      What it knows of its messages will be gone: {unknownParts(subscription) > 0 && 'at least '}
      {counted(totals.unsettled, 'message')} not settled, {counted(totals.leased, 'lease')}. This cannot be
      undone. The messages themselves stay in <code>{config.topics.join(', ')}</code>.
    </RemoveSheet>
  );
}
