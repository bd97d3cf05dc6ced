import { useMutation, useQueryClient } from '@tanstack/react-query';
import { useNavigate } from '@tanstack/react-router';
import { type FormEvent, useState } from 'react';
import { topicUrl } from '../api/client';
import { createTopic, listChanged, useService } from '../api/topics';
import { curl } from '../curl/curl';
import { changes, patchOf } from '../edit/changes';
import { nameError } from '../edit/name';
import { grouped } from '../format/number';
import { CopyButton } from '../ui/copy';
import { Sheet } from '../ui/dialog';
import { Field } from '../ui/field';
import { ProblemBox } from '../ui/problem';
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
      <CreateForm ns={ns} onClose={onClose} />
    </Sheet>
  );
}

function CreateForm({ ns, onClose }: Omit<CreateProps, 'open'>) {
  const client = useQueryClient();
  const navigate = useNavigate();
  const [name, setName] = useState('');
  const [partitions, setPartitions] = useState('1');
  const [draft, setDraft] = useState(() => draftOf(DEFAULTS));
  const [tried, setTried] = useState(false);
  const most = useService().data?.limits.partitions ?? 1024;

  const { config, errors } = readDraft(draft, DEFAULTS);
  const badName = nameError(name);
  const count = /^\d{1,5}$/.test(partitions.trim()) ? Number(partitions) : 0;
  const badCount = count >= 1 && count <= most ? null : `A number from 1 to ${grouped(most)}.`;
  const body = patchOf(changes(DEFAULTS, { ...config, partitions: count }));
  const wrong = badName !== null || badCount !== null || Object.keys(errors).length > 0;

  const create = useMutation({
    mutationFn: () => createTopic(ns, name, body),
    onSuccess: async () => {
      await navigate({ to: '/ns/$ns/topics/$topic', params: { ns, topic: name } });
      await listChanged(client, ns);
    },
  });
  const submit = (event: FormEvent) => {
    event.preventDefault();
    setTried(true);
    if (!wrong) create.mutate();
  };
  const command = () =>
    curl({
      method: 'PUT',
      url: topicUrl(ns, name || 'NAME'),
      headers: { 'Content-Type': 'application/json' },
      body: JSON.stringify(body),
    });

  return (
    <form onSubmit={submit} noValidate>
      <div className="fields">
        <Field
          label="Name"
          mono
          autoFocus
          required
          value={name}
          error={tried || name !== '' ? badName : null}
          hint="Letters, digits and . _ ~ -"
          onChange={setName}
        />
        <Field
          label="Partitions"
          mono
          inputMode="numeric"
          value={partitions}
          error={badCount}
          hint="Order is kept within one. Cannot be changed later."
          onChange={setPartitions}
        />
      </div>
      <details className="more" open={Object.keys(errors).length > 0 || undefined}>
        <summary>Safety, retention and more</summary>
        <h3>Safety</h3>
        <SafetyFields draft={draft} errors={errors} onChange={setDraft} />
        <h3>Retention</h3>
        <RetentionFields draft={draft} errors={errors} onChange={setDraft} />
        <h3>Messages</h3>
        <OtherFields draft={draft} errors={errors} onChange={setDraft} />
      </details>
      {create.error && <ProblemBox error={create.error} title="The topic was not created" />}
      <div className="actions">
        <CopyButton text={command} label="Copy as curl" />
        <span className="spacer" />
        <button type="button" onClick={onClose}>
          Cancel
        </button>
        <button type="submit" className="primary" disabled={create.isPending}>
          {create.isPending ? 'Creating …' : 'Create topic'}
        </button>
      </div>
    </form>
  );
}
