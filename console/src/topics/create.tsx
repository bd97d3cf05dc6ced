import { useQueryClient } from '@tanstack/react-query';
import { Link, useNavigate } from '@tanstack/react-router';
import { useState } from 'react';
import { topicUrl } from '../api/client';
import { createTopic, listChanged, useService } from '../api/topics';
import { changes, patchOf } from '../edit/changes';
import { CreateForm } from '../edit/create';
import { grouped } from '../format/number';
import { Sheet } from '../ui/dialog';
import { Field } from '../ui/field';
import { DEFAULTS, draftOf, readDraft } from './config';
import { OtherFields, RetentionFields, SafetyFields } from './fields';

interface CreateProps {
  readonly ns: string;
  readonly open: boolean;
  readonly onClose: () => void;
}

export function CreateTopic({ ns, open, onClose }: CreateProps) {
  return (
    <Sheet title="Create a topic" open={open} onClose={onClose}>
      <TopicForm ns={ns} onClose={onClose} />
    </Sheet>
  );
}

function TopicForm({ ns, onClose }: Omit<CreateProps, 'open'>) {
  const client = useQueryClient();
  const navigate = useNavigate();
  const [partitions, setPartitions] = useState('1');
  const [draft, setDraft] = useState(() => draftOf(DEFAULTS));
  const most = useService().data?.limits.partitions ?? 1024;

  const { config, errors } = readDraft(draft, DEFAULTS);
  const count = /^\d{1,5}$/.test(partitions.trim()) ? Number(partitions) : 0;
  const badCount = count >= 1 && count <= most ? null : `A number from 1 to ${grouped(most)}.`;
  const body = patchOf(changes(DEFAULTS, { ...config, partitions: count }));
  const badFields = Object.keys(errors).length > 0;
  const fields = { draft, errors, onChange: setDraft };
  return (
    <CreateForm
      noun="topic"
      body={body}
      wrong={badCount !== null || badFields}
      url={(name) => topicUrl(ns, name)}
      create={(name) => createTopic(ns, name, body)}
      onCreated={async (topic) => {
        await navigate({ to: '/ns/$ns/topics/$topic', params: { ns, topic } });
        await listChanged(client, ns);
      }}
      onClose={onClose}
      linkTo={(topic) => (
        <Link to="/ns/$ns/topics/$topic" params={{ ns, topic }} className="mono">
          {topic}
        </Link>
      )}
      fields={() => (
        <Field
          label="Partitions"
          mono
          inputMode="numeric"
          value={partitions}
          error={badCount}
          hint="Order is kept within one. Cannot be changed later."
          onChange={setPartitions}
        />
      )}
      moreLabel="Safety, retention and more"
      moreOpen={badFields}
      more={
        <>
          <h3>Safety</h3>
          <SafetyFields {...fields} />
          <h3>Retention</h3>
          <RetentionFields {...fields} />
          <h3>Messages</h3>
          <OtherFields {...fields} />
        </>
      }
    />
  );
}
