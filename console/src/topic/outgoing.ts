/** What HTTP can carry as a header's value, in UTF-8; spaces around it are not part of it. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: these are what it cannot carry
const LINE = /^\s*([!#$%&'*+.^_`|~0-9A-Za-z-]+)\s*:\s*([^\x00-\x1f\x7f]*?)\s*$/;

/** `region: eu; tenant: acme` as pairs. Values may hold anything but a semicolon. */
export function headerLines(text: string): { pairs: [string, string][]; error: string | null } {
  const pairs: [string, string][] = [];
  const seen = new Set<string>();
  for (const piece of text.split(';')) {
    if (piece.trim() === '') continue;
    const match = LINE.exec(piece);
    if (!match) return { pairs, error: 'Write them like region: eu; tenant: acme.' };
    const [, name = '', value = ''] = match;
    if (seen.has(name.toLowerCase())) return { pairs, error: `There is one ${name.toLowerCase()} already.` };
    seen.add(name.toLowerCase());
    pairs.push([name, value]);
  }
  return { pairs, error: null };
}

/** A key travels as a header, which would lose them. */
export const keyError = (key: string) =>
  /^[ \t]|[ \t]$/.test(key) ? 'Spaces around a key cannot be sent from here.' : null;
