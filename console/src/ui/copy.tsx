import { useEffect, useState } from 'react';
import { CheckIcon, CopyIcon } from './icons';

/** Puts `text` on the clipboard, also on pages without a secure context, where the clipboard API is missing. */
async function copyText(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = document.createElement('textarea');
    area.value = text;
    area.className = 'visually-hidden';
    const focused = document.activeElement;
    document.body.append(area);
    area.select();
    const done = document.execCommand('copy');
    area.remove();
    if (focused instanceof HTMLElement) focused.focus();
    return done;
  }
}

interface CopyProps {
  readonly text: string | (() => string);
  readonly label: string;
  readonly iconOnly?: boolean;
}

export function CopyButton({ text, label, iconOnly = false }: CopyProps) {
  const [state, setState] = useState<'idle' | 'done' | 'failed'>('idle');
  useEffect(() => {
    if (state === 'idle') return;
    const timer = setTimeout(() => setState('idle'), 1800);
    return () => clearTimeout(timer);
  }, [state]);
  const copy = async () =>
    setState((await copyText(typeof text === 'string' ? text : text())) ? 'done' : 'failed');
  const word = state === 'done' ? 'Copied' : state === 'failed' ? 'Not allowed by the browser' : label;
  return (
    <button
      type="button"
      className={iconOnly ? 'quiet icon-only' : 'quiet'}
      onClick={copy}
      aria-label={iconOnly ? word : undefined}
      title={iconOnly ? word : undefined}
    >
      {state === 'done' ? <CheckIcon /> : <CopyIcon />}
      {iconOnly ? null : <span aria-live="polite">{word}</span>}
    </button>
  );
}

/** A command with a button that copies it. */
export function Snippet({ text, label = 'Copy' }: { text: string; label?: string }) {
  return (
    <div className="snippet">
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must be reachable by keyboard */}
      <pre tabIndex={0}>{text}</pre>
      <CopyButton text={text} label={label} iconOnly />
    </div>
  );
}
