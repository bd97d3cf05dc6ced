import { useMutation, useQueryClient } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { type FormEvent, type KeyboardEvent, useId, useRef, useState } from 'react';
import type { TopicConfig } from '../api/client';
import { type Outgoing, publish, publishRequest, type Receipt } from '../api/messages';
import { topicKey } from '../api/topics';
import { curl } from '../curl/curl';
import { grouped } from '../format/number';
import { confirmStages, parseServerTiming } from '../timing/serverTiming';
import { StageStrip } from '../timing/stages';
import { useLevels } from '../topics/levels';
import { CopyButton } from '../ui/copy';
import { Choice, Field } from '../ui/field';
import { ProblemBox } from '../ui/problem';
import { headerLines, keyError } from './outgoing';

const TYPES = ['application/json', 'text/plain', 'application/octet-stream'].map((id) => ({ id, label: id }));

interface PublishProps {
  readonly ns: string;
  readonly topic: string;
  readonly config: TopicConfig;
}

export function PublishForm({ ns, topic, config }: PublishProps) {
  const [body, setBody] = useState('{"hello":"weir"}');
  const [contentType, setContentType] = useState('application/json');
  const [key, setKey] = useState('');
  const [headers, setHeaders] = useState('');
  const [confirm, setConfirm] = useState('');
  const { pairs, error: badHeaders } = headerLines(headers);
  const badKey = keyError(key);
  const wrong = badHeaders !== null || badKey !== null;
  const out: Outgoing = { body, contentType, key, headers: pairs, confirm };
  const { send, sendOnce } = useSend(ns, topic, out);
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (!wrong) sendOnce();
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key !== 'Enter' || !(event.ctrlKey || event.metaKey)) return;
    if (event.repeat) event.preventDefault();
    else submit(event);
  };
  const levels: { id: string; label: string }[] = [
    { id: '', label: `topic’s default (${config.default_confirm})` },
    ...useLevels(config.default_confirm),
  ];
  return (
    <form onSubmit={submit} onKeyDown={onKeyDown} noValidate>
      <BodyField
        value={body}
        notJson={contentType === 'application/json' && !isJson(body)}
        onChange={setBody}
      />
      <div className="fields two">
        <Choice label="Content type" value={contentType} options={TYPES} onChange={setContentType} />
        <Choice label="Wait for" value={confirm} options={levels} onChange={setConfirm} />
        <Field
          label="Key"
          mono
          value={key}
          error={badKey}
          hint="Same key, same partition, in order."
          onChange={setKey}
        />
        <Field
          label="Headers"
          mono
          placeholder="region: eu; tenant: acme"
          value={headers}
          error={badHeaders}
          onChange={setHeaders}
        />
      </div>
      <div className="actions">
        <CopyButton
          text={() => curl(publishRequest(ns, topic, out)).replace('-sS', '-sSi')}
          label="Copy as curl"
        />
        <span className="spacer" />
        <button
          type="submit"
          className="primary"
          disabled={wrong}
          // Not disabled while it is under way: it would lose the focus.
          aria-disabled={send.isPending}
        >
          {send.isPending ? 'Publishing …' : 'Publish'} <kbd>Ctrl ↵</kbd>
        </button>
      </div>
      <div aria-live="polite">
        {send.error && <ProblemBox error={send.error} title="The message was not confirmed" />}
        {send.data && <Confirmed ns={ns} topic={topic} receipt={send.data} />}
      </div>
    </form>
  );
}

function useSend(ns: string, topic: string, out: Outgoing) {
  const client = useQueryClient();
  const send = useMutation({
    mutationFn: () => publish(ns, topic, out),
    onSuccess: () => void client.invalidateQueries({ queryKey: topicKey(ns, topic) }),
  });
  // Two keys may come before the next render, which alone knows of `isPending`.
  const underWay = useRef(false);
  const sendOnce = () => {
    if (underWay.current) return;
    underWay.current = true;
    send.mutate(undefined, {
      onSettled: () => {
        underWay.current = false;
      },
    });
  };
  return { send, sendOnce };
}

interface BodyFieldProps {
  readonly value: string;
  /** It should be JSON and is not. */
  readonly notJson: boolean;
  readonly onChange: (value: string) => void;
}

function BodyField({ value, notJson, onChange }: BodyFieldProps) {
  const id = useId();
  return (
    <div className="field">
      <label htmlFor={id}>Body</label>
      <textarea
        id={id}
        className="mono"
        rows={7}
        spellCheck={false}
        value={value}
        onChange={(event) => onChange(event.target.value)}
        aria-describedby={notJson ? `${id}-note` : undefined}
      />
      {notJson && (
        <p id={`${id}-note`} className="note warn">
          This is not valid JSON. It can be sent all the same, byte for byte.
        </p>
      )}
    </div>
  );
}

function Confirmed({ ns, topic, receipt }: { ns: string; topic: string; receipt: Receipt }) {
  const { published, serverTiming, roundTrip } = receipt;
  const { stages, total, batch } = confirmStages(parseServerTiming(serverTiming));
  const { partition, offset } = published;
  return (
    <section className="confirmed" aria-label="Confirm">
      <h3>
        Confirmed at <code>{published.level}</code>
        {published.duplicate && ' (it had been stored before)'}
        {!published.final && ' · not final yet'}
      </h3>
      <p>
        {offset === undefined ? (
          'At this level no offset is known yet.'
        ) : (
          <>
            Partition {partition}, offset{' '}
            <Link
              to="/ns/$ns/topics/$topic/messages"
              params={{ ns, topic }}
              search={{ open: `${partition}:${offset}` }}
              className="mono"
            >
              {grouped(offset)}
            </Link>
          </>
        )}
      </p>
      <StageStrip stages={stages} total={total} />
      <p className="note">
        {batch && `Shared group commit: ${batch}. `}
        This browser waited {roundTrip.toFixed(1)} ms in all.
      </p>
    </section>
  );
}

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}
