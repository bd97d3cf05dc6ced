import { describe, expect, it } from 'vitest';
import type { Explained } from '../api/client';
import { idError, reasonText, standing } from './reasons';

const explained = (more: Partial<Explained>): Explained =>
  ({
    id: '0:7',
    partition: 0,
    offset: 7,
    attempts: 2,
    state: 'ready',
    reasons: [],
    ahead: 1200,
    start: 3,
    end: 90,
    ...more,
  }) as Explained;

describe('explanations', () => {
  it('says of each state what it means for this message', () => {
    expect(standing(explained({}))).toBe('It could be leased; 1,200 unsettled messages before it.');
    expect(standing(explained({ state: 'leased', holder: 'w-7', lease_expires_in_ms: 61_000 }))).toBe(
      'w-7 has it, for 1 min 1 s more; attempt 2.',
    );
    const delayed = { state: 'delayed', delayed_ms: 5_000 } as const;
    expect(standing(explained(delayed))).toBe('It comes again in 5 s.');
    expect(standing(explained({ ...delayed, reasons: ['exhausted'] }))).toContain('given up in 5 s');
    expect(standing(explained({ state: 'blocked', blocked_by: '0:5' }))).toContain('not settled: 0:5');
    expect(standing(explained({ state: 'trimmed' }))).toContain('oldest message is 3');
    expect(standing(explained({ state: 'absent' }))).toContain('newest is below 90');
    expect(standing(explained({ state: 'absent', end: 0 }))).toContain('its partition has had none');
    expect(standing(explained({ state: 'dead', attempts: 0 }))).toBe(
      'It was given up; redriving delivers it again.',
    );
  });

  it('says what a newer gateway knows as it is', () => {
    expect(standing(explained({ state: 'frozen' as Explained['state'] }))).toBe('It is frozen.');
    expect(reasonText('moon')).toBe('moon');
    expect(reasonText('paused')).toContain('resume');
  });

  it('takes a partition and an offset for an id, with a topic or without, and nothing else', () => {
    expect(idError('12:76531')).toBeNull();
    expect(idError('orders.eu:0:7')).toBeNull();
    for (const bad of ['', '7', '0:', ':7', 'a b:7:1', 'a:0:7:1', '0:x', '-1:7', '0:12345678901234567'])
      expect(idError(bad), bad).not.toBeNull();
  });
});
