import { useMutation, useQueryClient } from '@tanstack/react-query';
import { useNavigate } from '@tanstack/react-router';
import { type FormEvent, useState } from 'react';
import { type Subscription, subscriptionUrl } from '../api/client';
import { deleteSubscription, subscriptionKey } from '../api/subscriptions';
import { listChanged } from '../api/topics';
import { curl } from '../curl/curl';
import { counted } from '../format/number';
import { CopyButton } from '../ui/copy';
import { Sheet } from '../ui/dialog';
import { Field } from '../ui/field';
import { ProblemBox } from '../ui/problem';
import { unknownParts } from './verdict';

interface DeleteProps {
  readonly subscription: Subscription;
  readonly open: boolean;
  readonly onClose: () => void;
}

/** Says what will be lost, and acts only after the name was typed. */
export function DeleteSubscription({ subscription, open, onClose }: DeleteProps) {
  return (
    <Sheet title={`Delete ${subscription.name}?`} open={open} onClose={onClose} alert>
      <DeleteForm subscription={subscription} onClose={onClose} />
    </Sheet>
  );
}

function DeleteForm({ subscription, onClose }: Omit<DeleteProps, 'open'>) {
  const client = useQueryClient();
  const navigate = useNavigate();
  const [typed, setTyped] = useState('');
  const { ns, name, totals, config } = subscription;
  const remove = useMutation({
    mutationFn: () => deleteSubscription(ns, name),
    onSuccess: async () => {
      await navigate({ to: '/ns/$ns/subscriptions', params: { ns } });
      client.removeQueries({ queryKey: subscriptionKey(ns, name) });
      await listChanged(client, ns, 'subscriptions');
    },
  });
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (typed === name) remove.mutate();
  };
  return (
    <form onSubmit={submit}>
      <p>
        What it knows of its messages will be gone: {unknownParts(subscription) > 0 && 'at least '}
        {counted(totals.unsettled, 'message')} not settled, {counted(totals.leased, 'lease')}. This cannot be
        undone. The messages themselves stay in <code>{config.topics.join(', ')}</code>.
      </p>
      <Field
        label="Type the subscription’s name to confirm"
        mono
        autoFocus
        value={typed}
        hint={name}
        onChange={setTyped}
      />
      {remove.error && <ProblemBox error={remove.error} title="The subscription was not deleted" />}
      <div className="actions">
        <CopyButton text={curl({ method: 'DELETE', url: subscriptionUrl(ns, name) })} label="Copy as curl" />
        <span className="spacer" />
        <button type="button" onClick={onClose}>
          Cancel
        </button>
        <button type="submit" className="danger" disabled={typed !== name || remove.isPending}>
          Delete subscription
        </button>
      </div>
    </form>
  );
}
