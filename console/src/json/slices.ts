/**
 * Finds the values of a JSON text without converting them, so that numbers of a payload keep every digit.
 * The text must be valid JSON (the gateway wrote it); anything else throws `SyntaxError`.
 */
export interface Slice {
  readonly start: number;
  readonly end: number;
}

const SPACE = 32;
const QUOTE = 34;
const BACKSLASH = 92;

function skipSpace(text: string, at: number): number {
  let i = at;
  while (i < text.length && text.charCodeAt(i) <= SPACE) i += 1;
  return i;
}

function skipString(text: string, at: number): number {
  for (let i = at + 1; i < text.length; i += 1) {
    const code = text.charCodeAt(i);
    if (code === BACKSLASH) i += 1;
    else if (code === QUOTE) return i + 1;
  }
  throw new SyntaxError(`string that starts at ${at} does not end`);
}

/** End (exclusive) of the value that starts at `at`. */
export function skipValue(text: string, at: number): number {
  const first = text[at];
  if (first === '"') return skipString(text, at);
  if (first !== '{' && first !== '[') {
    let i = at;
    while (i < text.length && !',]} \t\n\r'.includes(text[i] as string)) i += 1;
    if (i === at) throw new SyntaxError(`no value at ${at}`);
    return i;
  }
  let depth = 0;
  for (let i = at; i < text.length; i += 1) {
    const char = text[i];
    if (char === '"') i = skipString(text, i) - 1;
    else if (char === '{' || char === '[') depth += 1;
    else if (char === '}' || char === ']') {
      depth -= 1;
      if (depth === 0) return i + 1;
    }
  }
  throw new SyntaxError(`value that starts at ${at} does not end`);
}

function expect(text: string, at: number, char: string): number {
  if (text[at] !== char) throw new SyntaxError(`expected ${char} at ${at}`);
  return skipSpace(text, at + 1);
}

/** Members of the object that starts at or after `from`. Of a repeated name the last counts, as in JSON.parse. */
export function members(text: string, from = 0): Map<string, Slice> {
  const found = new Map<string, Slice>();
  let i = expect(text, skipSpace(text, from), '{');
  while (text[i] !== '}') {
    const nameEnd = skipString(text, i);
    const name = JSON.parse(text.slice(i, nameEnd)) as string;
    const start = expect(text, skipSpace(text, nameEnd), ':');
    const end = skipValue(text, start);
    found.set(name, { start, end });
    i = skipSpace(text, end);
    if (text[i] === ',') i = skipSpace(text, i + 1);
    else if (text[i] !== '}') throw new SyntaxError(`expected , or } at ${i}`);
  }
  return found;
}

/** Elements of the array that starts at or after `from`. */
export function elements(text: string, from = 0): Slice[] {
  const found: Slice[] = [];
  let i = expect(text, skipSpace(text, from), '[');
  while (text[i] !== ']') {
    const end = skipValue(text, i);
    found.push({ start: i, end });
    i = skipSpace(text, end);
    if (text[i] === ',') i = skipSpace(text, i + 1);
    else if (text[i] !== ']') throw new SyntaxError(`expected , or ] at ${i}`);
  }
  return found;
}
