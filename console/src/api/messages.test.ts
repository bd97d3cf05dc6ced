import { afterEach, expect, test, vi } from 'vitest';

vi.hoisted(() => vi.stubGlobal('location', { origin: 'http://weir.test' }));
const { publish, publishRequest } = await import('./messages');

afterEach(() => vi.restoreAllMocks());

const out = { body: '{}', contentType: 'application/json', key: 'Zoë 😀', headers: [], confirm: '' };

test('a key that is not ASCII is sent in UTF-8, as a terminal does', async () => {
  const asked = vi
    .spyOn(globalThis, 'fetch')
    .mockImplementation(async () => Response.json({ level: 'quorum', final: true }));
  await publish('default', 'orders', out);
  const sent = asked.mock.lastCall?.[0] as Request | undefined;
  const key = sent?.headers.get('Message-Key') ?? '';
  expect(Buffer.from(key, 'latin1').toString('utf8')).toBe('Zoë 😀');
  expect(publishRequest('default', 'orders', out).headers['Message-Key']).toBe('Zoë 😀');
});
