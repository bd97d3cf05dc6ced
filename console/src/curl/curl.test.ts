import { execFileSync } from 'node:child_process';
import { expect, test } from 'vitest';
import { curl, quoted } from './curl';

test('a read is one line', () => {
  expect(curl({ url: 'http://127.0.0.1:8080/v1/ns/default/topics' })).toBe(
    'curl -sS http://127.0.0.1:8080/v1/ns/default/topics',
  );
});

test('a publish carries headers and body', () => {
  expect(
    curl({
      method: 'POST',
      url: 'http://h/m',
      headers: { 'Content-Type': 'application/json' },
      body: '{"a":1}',
    }),
  ).toBe(`curl -sS http://h/m \\\n  -H 'Content-Type: application/json' \\\n  --data-binary '{"a":1}'`);
});

test('a body that starts with @ is not taken for a file', () => {
  expect(curl({ method: 'PUT', url: 'http://h/m', body: '@x' })).toContain('--data-raw @x');
});

test('a header without a value is sent, not taken for one to be left out', () => {
  expect(curl({ url: 'http://h/m', headers: { 'Message-Header-a': '' } })).toContain(
    "-H 'Message-Header-a;'",
  );
});

test.each([
  "it's",
  '$(touch x)',
  '`id`',
  'a\nb',
  '"',
  '',
  '!!',
  '\\',
  '{"id":18446744073709551615}',
  '~',
  '~root',
  'a=~',
  '-n',
  'Zoë → \u202eabc',
])('a shell gives %j back unchanged', (text) => {
  expect(execFileSync('sh', ['-c', `printf %s ${quoted(text)}`], { encoding: 'utf8' })).toBe(text);
});

test('what zsh would look for among programs is quoted', () => expect(quoted('=ls')).toBe("'=ls'"));
