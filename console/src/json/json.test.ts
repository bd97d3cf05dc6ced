import { describe, expect, test } from 'vitest';
import { pretty } from './pretty';
import { elements, members } from './slices';

const joined = (text: string) =>
  pretty(text)
    ?.map((token) => token.text)
    .join('');

describe('slices', () => {
  test('a value is cut out with every digit it had', () => {
    const text = '{"o":7,"data":{"id":18446744073709551615,"x":1.10e+2},"k":"a\\"}"}';
    const slice = members(text).get('data');
    expect(text.slice(slice?.start, slice?.end)).toBe('{"id":18446744073709551615,"x":1.10e+2}');
  });
  test('brackets and escapes inside strings do not end a value', () => {
    const text = ' [ "]\\\\" , {"a":"}{"} ,[[]], null ] ';
    expect(elements(text).map(({ start, end }) => text.slice(start, end))).toEqual([
      '"]\\\\"',
      '{"a":"}{"}',
      '[[]]',
      'null',
    ]);
  });
  test.each(['{"a":1', '{"a" 1}', '{"a":}', '{"a":"x}', '[]'])('%s is refused', (text) => {
    expect(() => members(text)).toThrow(SyntaxError);
  });
});

describe('pretty', () => {
  test('a text of brackets alone does not grow with the square of its length', () => {
    const depth = 32 * 1024;
    const text = '['.repeat(depth) + ']'.repeat(depth);
    const written = pretty(text)?.reduce((sum, token) => sum + token.text.length, 0);
    expect(written).toBeLessThan(200 * text.length);
  });
  test('indents without converting numbers or escapes', () => {
    expect(joined('{"a":[9223372036854775807,-0.10],"b":{},"c":[ ],"d":"\\u003c"}')).toBe(
      '{\n  "a": [\n    9223372036854775807,\n    -0.10\n  ],\n  "b": {},\n  "c": [],\n  "d": "\\u003c"\n}',
    );
  });
  test('tells names from strings', () => {
    expect(pretty('{"a" :"b"}')?.map((token) => token.kind)).toEqual([
      'mark',
      'name',
      'mark',
      'string',
      'mark',
    ]);
  });
  test('answers null for what is not JSON', () => {
    expect(pretty('{"a":')).toBeNull();
    expect(pretty('')).toBeNull();
  });
});
