import { useMemo, useState } from 'react';
import { bytes } from '../format/number';
import { pretty } from '../json/pretty';

/** Beyond this many characters text is shown without colours. */
const COLOUR_CHARS = 24 * 1024;
const HEX_BYTES = 4096;

/** The text of UTF-8 bytes; `null` if they are not UTF-8. */
export function textOf(data: Uint8Array): string | null {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(data);
  } catch {
    return null;
  }
}

/** Text as text: React escapes it, and numbers are never converted. */
export function BodyView({ text, formatted }: { text: string; formatted: boolean }) {
  const tokens = useMemo(() => (formatted ? pretty(text) : null), [text, formatted]);
  const coloured = tokens !== null && text.length <= COLOUR_CHARS;
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must be reachable by keyboard
    <pre className="body-text" tabIndex={0}>
      {text === '' && <span className="faint">empty</span>}
      {coloured
        ? tokens.map((token, index) => (
            // biome-ignore lint/suspicious/noArrayIndexKey: tokens of one text never change places
            <span key={index} className={`t-${token.kind}`}>
              {token.text}
            </span>
          ))
        : (tokens?.map((token) => token.text).join('') ?? text)}
    </pre>
  );
}

/** Offset, sixteen bytes, and their ASCII. */
export function HexView({ data }: { data: Uint8Array }) {
  const [limit, setLimit] = useState(HEX_BYTES);
  const lines = useMemo(() => hexLines(data.subarray(0, limit)), [data, limit]);
  return (
    <>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must be reachable by keyboard */}
      <pre className="body-text hex" tabIndex={0}>
        {lines}
      </pre>
      {data.length > limit && (
        <button type="button" onClick={() => setLimit(limit * 4)}>
          Show more ({bytes(data.length - limit)} left)
        </button>
      )}
    </>
  );
}

function hexLines(data: Uint8Array): string {
  const lines: string[] = [];
  for (let at = 0; at < data.length; at += 16) {
    const row = [...data.subarray(at, at + 16)];
    const hex = row.map((byte) => byte.toString(16).padStart(2, '0'));
    const left = hex.slice(0, 8).join(' ').padEnd(23);
    const right = hex.slice(8).join(' ').padEnd(23);
    const ascii = row.map((byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : '·')).join('');
    lines.push(`${at.toString(16).padStart(6, '0')}  ${left}  ${right}  ${ascii}`);
  }
  return lines.join('\n');
}
