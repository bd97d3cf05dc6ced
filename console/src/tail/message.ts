import { elements, members, type Slice } from '../json/slices';

/** A message as the list shows it. Its body stays on the gateway: only a preview is kept. */
export interface Message {
  readonly kind: 'message';
  readonly partition: number;
  readonly offset: number;
  /** Milliseconds since the epoch. */
  readonly ts: number;
  readonly key: string | null;
  readonly headers: readonly (readonly [string, string])[];
  readonly contentType: string | null;
  /** How the body is encoded as it is stored; `null`: not at all. */
  readonly encoding: string | null;
  readonly preview: string;
  /** Length of the body in bytes; of a JSON body as it travelled here. */
  readonly size: number;
}

export const PREVIEW_CHARS = 320;

/** Identity of a message within its topic: `partition:offset`. */
export const idOf = (message: { partition: number; offset: number }) =>
  `${message.partition}:${message.offset}`;

const encoder = new TextEncoder();
/** Bytes of `text` in UTF-8. */
export function utf8Length(text: string): number {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: ASCII is exactly this range
  return /^[\x00-\x7f]*$/.test(text) ? text.length : encoder.encode(text).length;
}

/** Names of the same fields on the WebSocket and in a read. */
const WEBSOCKET = { partition: 'p', offset: 'o', headers: 'h', headersBase64: 'h_b64', base64: 'b64' };
const READ = {
  partition: 'partition',
  offset: 'offset',
  headers: 'headers',
  headersBase64: 'headers_base64',
  base64: 'data_base64',
};

function messageIn(text: string, at: number, names: typeof READ): Message {
  const found = members(text, at);
  const slice = (name: string) => found.get(name);
  const value = (name: string): unknown => {
    const place = slice(name);
    return place ? JSON.parse(text.slice(place.start, place.end)) : undefined;
  };
  const base64 = value(names.base64);
  const contentType = (value('content_type') ?? value('ct') ?? null) as string | null;
  const body = typeof base64 === 'string' ? binaryBody(base64) : textBody(text, slice('data'), contentType);
  const key = value('key') ?? value('key_base64') ?? value('key_b64') ?? null;
  return {
    kind: 'message',
    partition: Number(value(names.partition)),
    offset: Number(value(names.offset)),
    ts: Number(value('ts')),
    key: key === null ? null : String(key),
    headers: [names.headers, names.headersBase64].flatMap((name) =>
      Object.entries((value(name) ?? {}) as Record<string, string>),
    ),
    contentType,
    encoding: (value('content_encoding') ?? value('ce') ?? null) as string | null,
    ...body,
  };
}

/** Base64 of as many bytes as are shown in hex; and of as many as may be the characters of a text. */
const HEX_BASE64 = 128;
const TEXT_BASE64 = Math.ceil((PREVIEW_CHARS * 4) / 3 / 4) * 4;

function binaryBody(base64: string): { preview: string; size: number } {
  const size = Math.floor((base64.replace(/=+$/, '').length * 3) / 4);
  const text = textIn(base64.slice(0, TEXT_BASE64), base64.length > TEXT_BASE64);
  if (text !== null) return { preview: text, size };
  const start = atob(base64.slice(0, HEX_BASE64));
  const hex = [...start].map((char) => char.charCodeAt(0).toString(16).padStart(2, '0'));
  return { preview: hex.join(' ') + (size > start.length ? ' …' : ''), size };
}

/** What is text, whatever its publisher called it (`curl -d` says it is a form); `null` if it is none. */
function textIn(base64: string, isCut: boolean): string | null {
  const start = Uint8Array.from(atob(base64), (char) => char.charCodeAt(0));
  try {
    // Then the last character may be as well.
    const text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(start, { stream: isCut });
    // biome-ignore lint/suspicious/noControlCharactersInRegex: these are what bytes have and texts have not
    return /[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]/.test(text) ? null : text;
  } catch {
    return null;
  }
}

/** Of JSON, which a WebSocket does not name, `data` is the payload as it is; of any other type it is a string of its text. */
export const isJson = (contentType: string | null): boolean =>
  contentType === null || /^\s*(application\/json|[^;]*\+json)\s*(;|$)/i.test(contentType);

function textBody(text: string, place: Slice | undefined, contentType: string | null) {
  if (!place) return { preview: '', size: 0 };
  const raw = text.slice(place.start, place.end);
  const body = !isJson(contentType) && raw.startsWith('"') ? (JSON.parse(raw) as string) : raw;
  return { preview: body.slice(0, PREVIEW_CHARS), size: utf8Length(body) };
}

/** The messages of an answer to `GET …/messages` of one partition, and the offset to read on from. */
export function readPage(text: string): { messages: Message[]; next: number; upToDate: boolean } {
  const found = members(text);
  const messages = found.get('messages');
  const next = found.get('next');
  const upToDate = found.get('up_to_date');
  if (!messages || !next) throw new SyntaxError('a page has no messages or no next');
  return {
    messages: elements(text, messages.start).map(({ start }) => readMessage(text, start)),
    next: Number(text.slice(next.start, next.end)),
    upToDate: upToDate ? text.slice(upToDate.start, upToDate.end) === 'true' : false,
  };
}

/** A message as a read shows it, also within an answer to `:pull`. */
export const readMessage = (text: string, at: number): Message => messageIn(text, at, READ);

/** A message of a WebSocket `msg` frame, or of one element of `msgs`. */
export const deliveredMessage = (text: string, at = 0): Message => messageIn(text, at, WEBSOCKET);
