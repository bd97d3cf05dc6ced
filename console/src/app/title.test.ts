import { expect, test } from 'vitest';
import { titleOf } from './title';

const match = (title?: (params: Readonly<Record<string, string>>) => string, params = {}) => ({
  staticData: title ? { title } : {},
  params,
});

test('a title begins with what tells the page apart', () => {
  const topic = match(({ topic }) => `${topic} · topics`, { topic: 'orders' });
  expect(titleOf([match(), topic, match()])).toBe('orders · topics · Weir');
  expect(titleOf([match(), topic, match(() => 'messages')])).toBe('messages · orders · topics · Weir');
});

test('an address that is no page says so', () => {
  expect(titleOf([match()])).toBe('not found · Weir');
});
