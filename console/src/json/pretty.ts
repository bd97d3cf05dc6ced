import { skipValue } from './slices';

export type TokenKind = 'name' | 'string' | 'number' | 'word' | 'mark';
export interface Token {
  readonly kind: TokenKind;
  readonly text: string;
}

/** Levels that are indented; what lies deeper stands below these, or brackets alone would cost memory by their square. */
const INDENTED_MAX = 40;

/**
 * `text` with line breaks and indentation, as tokens to be coloured. Every token is a piece of the input:
 * numbers and escapes are never converted. `null` if it is not JSON.
 */
export function pretty(text: string): Token[] | null {
  try {
    JSON.parse(text);
  } catch {
    return null;
  }
  const tokens: Token[] = [];
  const nested: string[] = [];
  const line = () => `\n${'  '.repeat(Math.min(nested.length, INDENTED_MAX))}`;
  const mark = (value: string) => tokens.push({ kind: 'mark', text: value });
  for (let i = 0; i < text.length; ) {
    const char = text[i] as string;
    if (char <= ' ') i += 1;
    else if (char === '{' || char === '[') {
      const close = char === '{' ? '}' : ']';
      let next = i + 1;
      while ((text[next] as string) <= ' ') next += 1;
      if (text[next] === close) {
        mark(char + close);
        i = next + 1;
      } else {
        nested.push(close);
        mark(char + line());
        i += 1;
      }
    } else if (char === '}' || char === ']') {
      nested.pop();
      mark(line() + char);
      i += 1;
    } else if (char === ',') {
      mark(`,${line()}`);
      i += 1;
    } else if (char === ':') {
      mark(': ');
      i += 1;
    } else {
      const end = skipValue(text, i);
      tokens.push({ kind: kindOf(text, i, end), text: text.slice(i, end) });
      i = end;
    }
  }
  return tokens;
}

function kindOf(text: string, start: number, end: number): TokenKind {
  const first = text[start] as string;
  if (first === '"') return /^\s*:/.test(text.slice(end, end + 32)) ? 'name' : 'string';
  return first === '-' || (first >= '0' && first <= '9') ? 'number' : 'word';
}
