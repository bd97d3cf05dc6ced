import { useQueryClient } from '@tanstack/react-query';
import { useNavigate } from '@tanstack/react-router';
import { topicUrl } from '../api/client';
import { type Described, deleteTopic, listChanged, topicKey, totals, versionOf } from '../api/topics';
import { RemoveSheet } from '../edit/remove';
import { bytes, counted } from '../format/number';

interface DeleteProps {
  readonly described: Described;
  readonly open: boolean;
  readonly onClose: () => void;
}

export function DeleteTopic({ described, open, onClose }: DeleteProps) {
  const client = useQueryClient();
  const navigate = useNavigate();
  const { topic } = described;
  const { ns, name, config, incarnation } = topic;
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
      latest={{ ...versionOf(described), life: incarnation }}
      open={open}
      onClose={onClose}
      remove={(etag) => deleteTopic(ns, name, etag)}
      onStale={() => void client.invalidateQueries({ queryKey: topicKey(ns, name) })}
      onRemoved={removed}
    >
      {records === null || size === null
        ? 'How much it holds is not known now: a shard cannot be reached.'
        : `${counted(records, 'message')} (${bytes(size)}) in ${counted(config.partitions, 'partition')} will be gone for everyone. This cannot be undone.`}
    </RemoveSheet>
  );
}
