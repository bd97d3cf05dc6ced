/** A request as the API sees it, to be written as a command line. */
export interface Request {
  readonly method?: 'GET' | 'PUT' | 'POST' | 'PATCH' | 'DELETE';
  readonly url: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
  /** Do not wait for the end of the answer before showing it. */
  readonly streaming?: boolean;
}

/** `text` as one word of a POSIX shell. At the beginning `~` is a home directory, and to zsh `=` the path of a program. */
export function quoted(text: string): string {
  if (/^(?![~=])[A-Za-z0-9_@%+=:,./~-]+$/.test(text)) return text;
  return `'${text.replaceAll("'", `'\\''`)}'`;
}

/** The request as a curl command that can be pasted into a POSIX shell, one option per line if it has several. */
export function curl({ method = 'GET', url, headers = {}, body, streaming = false }: Request): string {
  const options: string[] = [];
  if (method !== 'GET' && !(method === 'POST' && body !== undefined)) options.push(`-X ${method}`);
  // With nothing behind the colon a header would be left out: curl sends an empty one for a semicolon.
  for (const [name, value] of Object.entries(headers))
    options.push(`-H ${quoted(value === '' ? `${name};` : `${name}: ${value}`)}`);
  // --data-binary keeps line breaks; a leading @ would name a file, so such a body goes in by --data-raw.
  if (body !== undefined)
    options.push(`${body.startsWith('@') ? '--data-raw' : '--data-binary'} ${quoted(body)}`);
  const start = `curl -${streaming ? 'sSN' : 'sS'}`;
  if (options.length === 0) return `${start} ${quoted(url)}`;
  return [`${start} ${quoted(url)}`, ...options].join(' \\\n  ');
}
