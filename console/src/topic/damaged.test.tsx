import { renderToStaticMarkup } from 'react-dom/server';
import { expect, test } from 'vitest';
import { DamagedNotice } from './damaged';

const object = '01J/data/5f/1/00000000000000000007-00000000000000000009-00000000000000000001-01J.pack';
const one = {
  object,
  why: `object ${object} is damaged: checksum of the pack's block is 0x00000001, it says 0x00000002`,
  partition: 3,
  from: 1200,
  to: 1345,
  times: 2,
  first_ms: 1_700_000_000_000,
  last_ms: 1_700_000_060_000,
};

const shown = (damaged: readonly (typeof one)[]) =>
  renderToStaticMarkup(<DamagedNotice damaged={damaged} zone="utc" now={1_700_000_062_000} />);
const text = (html: string) =>
  html
    .replaceAll(/<[^>]*>/g, ' ')
    .replaceAll('&#x27;', "'")
    .replaceAll(/\s+/g, ' ');

test('a damaged object is named, with the messages that cannot be read, why, since when and what to do', () => {
  const html = shown([one]);
  expect(html).toContain('<strong role="alert">1 object in the object store cannot be read</strong>');
  expect(html).toContain(`<code>${object}</code>`);
  const told = text(html);
  expect(told).toContain('Partition 3, 145 messages from offset 1,200 up to, not including, 1,345:');
  expect(told).toContain("the object is damaged: checksum of the pack's block is 0x00000001");
  expect(told).toContain('2 reads failed, the last 2 s ago, at 2023-11-14 22:14:20.000 UTC');
  expect(told).toContain('“Damaged objects” in docs/operations.md');
  expect(told).not.toContain('more place');
});

test('one object of several partitions is one object, and of many places the newest are shown', () => {
  const html = shown([0, 1, 2, 3, 4, 5, 6].map((partition) => ({ ...one, partition })));
  expect(html).toContain('>1 object in the object store');
  expect(text(html)).toContain('Partition 4,');
  expect(text(html)).not.toContain('Partition 5,');
  expect(text(html)).toContain('2 more places: storage.damaged in the topic’s description has them.');
});
