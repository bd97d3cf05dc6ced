import { afterEach, beforeEach, expect, test, vi } from 'vitest';

/** What tabs of one browser have together. */
class Locks {
  private readonly held = new Set<string>();

  /** What one tab has of it. */
  readonly forTab = {
    request: async (name: string, { signal }: LockOptions, hold: () => Promise<unknown>) => {
      if (this.held.has(name)) {
        await new Promise((_, reject) => signal?.addEventListener('abort', () => reject(signal.reason)));
      }
      this.held.add(name);
      return hold();
    },
  } as unknown as LockManager;
}

let locks: Locks;

beforeEach(() => {
  locks = new Locks();
  vi.stubGlobal('navigator', {});
});
afterEach(() => vi.unstubAllGlobals());

/** A tab that begins with this storage: its name, and what the storage is then. */
async function tab(storage: Map<string, string>) {
  vi.stubGlobal('sessionStorage', {
    getItem: (key: string) => storage.get(key) ?? null,
    setItem: (key: string, value: string) => storage.set(key, value),
  });
  vi.resetModules();
  const { claim, holder } = await import('./holder');
  const before = holder();
  await claim(locks.forTab);
  return { before, name: holder(), storage };
}

test('a tab that was duplicated takes another name, and the first keeps its own', async () => {
  const first = await tab(new Map());
  const copy = await tab(new Map(first.storage));
  expect(copy.before).toBe(first.name);
  expect(copy.name).toMatch(/^console-[0-9a-f]{8}$/);
  expect(copy.name).not.toBe(first.name);
  expect([...copy.storage.values()]).toEqual([copy.name]);
});

test('a tab that is loaded anew has the name that it had', async () => {
  const { name, storage } = await tab(new Map());
  locks = new Locks();
  expect((await tab(storage)).name).toBe(name);
});

test('a tab that is refused locks keeps its name, and asks once', async () => {
  const { name, storage } = await tab(new Map());
  const request = vi.fn(() => Promise.reject(new DOMException('no origin', 'SecurityError')));
  const { claim, holder } = await import('./holder');
  expect(await claim({ request } as unknown as LockManager)).toBe(false);
  expect(holder()).toBe(name);
  expect(request).toHaveBeenCalledOnce();
  expect([...storage.values()]).toEqual([name]);
});
