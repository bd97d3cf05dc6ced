import { useQueryClient } from '@tanstack/react-query';
import { useNavigate } from '@tanstack/react-router';
import { type Topic, topicUrl } from '../api/client';
import { deleteTopic, listChanged, topicKey, totals } from '../api/topics';
import { RemoveSheet } from '../edit/remove';
import { bytes, counted } from '../format/number';

interface DeleteProps {
  readonly topic: Topic;
  readonly open: boolean;
  readonly onClose: () => void;
}

export function DeleteTopic({ topic, open, onClose }: DeleteProps) {
  const client = useQueryClient();
  const navigate = useNavigate();
  const { ns, name, config } = topic;
  const { records, bytes: size } = totals(topic);
  const removed = async () => {
    await navigate({ to: '/ns/$ns/topics', params: { ns } });
    client.removeQueries({ queryKey: topicKey(ns, name) });
    await listChanged(client, ns);
  };
  return (
    <RemoveSheet
      noun="topic"
      name={name}
      url={topicUrl(ns, name)}
      open={open}
      onClose={onClose}
      remove={() => deleteTopic(ns, name)}
      onRemoved={removed}
    >
      {records === null || size === null
        ? 'How much it holds is not known now: a shard cannot be reached.'
        : `${counted(records, 'message')} (${bytes(size)}) in ${counted(config.partitions, 'partition')} will be gone for everyone. This cannot be undone.`}
    </RemoveSheet>
  );
}
