import { afterEach, expect, test, vi } from 'vitest';
import { chunk } from './chunk';

afterEach(() => vi.unstubAllGlobals());

/** Code that fails to load so many times, from a gateway that answers whoever asks whether it is there. */
function code(failures: number) {
  vi.stubGlobal('document', { baseURI: 'http://weir.test/console/' });
  vi.stubGlobal('fetch', async () => new Response());
  let asked = 0;
  return async () => {
    asked += 1;
    if (asked <= failures) throw new TypeError('Failed to fetch dynamically imported module');
    return `loaded at the ${asked}. attempt`;
  };
}

test('a gateway that came back right after an attempt is asked once more', async () => {
  await expect(chunk(code(1))()).resolves.toBe('loaded at the 2. attempt');
});

test('one that is there and does not have the code is of another version', async () => {
  await expect(chunk(code(9))()).rejects.toThrow('Failed to fetch');
});
