import { useMutation, useQueryClient } from '@tanstack/react-query';
import { useNavigate } from '@tanstack/react-router';
import { type FormEvent, useState } from 'react';
import { type Topic, topicUrl } from '../api/client';
import { deleteTopic, listChanged, topicKey, totals } from '../api/topics';
import { curl } from '../curl/curl';
import { bytes, counted } from '../format/number';
import { CopyButton } from '../ui/copy';
import { Sheet } from '../ui/dialog';
import { Field } from '../ui/field';
import { ProblemBox } from '../ui/problem';

interface DeleteProps {
  readonly topic: Topic;
  readonly open: boolean;
  readonly onClose: () => void;
}

/** Says what will be lost, and acts only after the name was typed. */
export function DeleteTopic({ topic, open, onClose }: DeleteProps) {
  return (
    <Sheet title={`Delete ${topic.name}?`} open={open} onClose={onClose} alert>
      <DeleteForm topic={topic} onClose={onClose} />
    </Sheet>
  );
}

function DeleteForm({ topic, onClose }: Omit<DeleteProps, 'open'>) {
  const client = useQueryClient();
  const navigate = useNavigate();
  const [typed, setTyped] = useState('');
  const { ns, name } = topic;
  const { records, bytes: size } = totals(topic);
  const remove = useMutation({
    mutationFn: () => deleteTopic(ns, name),
    onSuccess: async () => {
      await navigate({ to: '/ns/$ns/topics', params: { ns } });
      client.removeQueries({ queryKey: topicKey(ns, name) });
      await listChanged(client, ns);
    },
  });
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (typed === name) remove.mutate();
  };
  return (
    <form onSubmit={submit}>
      <p>
        {records === null || size === null
          ? 'How much it holds is not known now: a shard cannot be reached.'
          : `${counted(records, 'message')} (${bytes(size)}) in ${counted(topic.config.partitions, 'partition')} will be gone for everyone. This cannot be undone.`}
      </p>
      <Field
        label="Type the topic’s name to confirm"
        mono
        autoFocus
        value={typed}
        hint={name}
        onChange={setTyped}
      />
      {remove.error && <ProblemBox error={remove.error} title="The topic was not deleted" />}
      <div className="actions">
        <CopyButton text={curl({ method: 'DELETE', url: topicUrl(ns, name) })} label="Copy as curl" />
        <span className="spacer" />
        <button type="button" onClick={onClose}>
          Cancel
        </button>
        <button type="submit" className="danger" disabled={typed !== name || remove.isPending}>
          Delete topic
        </button>
      </div>
    </form>
  );
}
