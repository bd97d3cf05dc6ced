import AxeBuilder from '@axe-core/playwright';
import { test as base, expect, type Page } from '@playwright/test';
import { Product } from './product';

interface Own {
  /** Opens a path below the console's prefix. */
  readonly open: (path?: string) => Promise<void>;
  /** Complaints of the page that a test provokes on purpose. */
  readonly tolerate: RegExp[];
  readonly clean: undefined;
}

interface Shared {
  readonly product: Product;
}

export const test = base.extend<Own, Shared>({
  product: [
    async ({ browserName: _ }, use, info) => {
      const product = await Product.start(info.project.metadata.prefix as string);
      await use(product);
      await product.remove();
    },
    { scope: 'worker' },
  ],
  clean: [
    async ({ product }, use) => {
      await product.clear();
      await use(undefined);
    },
    // What a test before has left is not this test's time.
    { auto: true, timeout: 60_000 },
  ],
  // biome-ignore lint/correctness/noEmptyPattern: Playwright reads the names of what a fixture needs from here
  tolerate: async ({}, use) => use([]),
  page: async ({ page, tolerate }, use) => {
    const complaints: string[] = [];
    page.on('pageerror', (error) => complaints.push(`uncaught: ${error}`));
    page.on('console', (message) => {
      if (message.type() === 'error' || message.type() === 'warning')
        complaints.push(`${message.type()}: ${message.text()}`);
    });
    await page.addInitScript(() => {
      document.addEventListener('securitypolicyviolation', (event) => {
        // biome-ignore lint/suspicious/noConsole: told to the test
        console.error(`CSP: ${event.violatedDirective} ${event.blockedURI}`);
      });
    });
    await use(page);
    expect(complaints.filter((text) => !tolerate.some((known) => known.test(text)))).toEqual([]);
  },
  open: async ({ page, product }, use) => {
    await use(async (path = '') => void (await page.goto(product.url + product.prefix + path)));
  },
});

/** For tests that delete what the page reads every two seconds: it is answered 404 until the page knows. */
export const deleting = test.extend({
  // biome-ignore lint/correctness/noEmptyPattern: Playwright reads the names of what a fixture needs from here
  tolerate: async ({}, use) => use([/404/]),
});

export { expect };

/** Added to the time of a test for each two scans: 1 s where nothing else runs, 19 s were seen of a long page at a load of 19. */
const SCANS_MS = 20_000;

/** No serious or critical finding, in both themes. */
export async function expectAccessible(page: Page): Promise<void> {
  test.setTimeout(test.info().timeout + SCANS_MS);
  for (const colorScheme of ['light', 'dark'] as const) {
    await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
    const { violations } = await new AxeBuilder({ page })
      .withTags(['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa'])
      .analyze();
    const grave = violations.filter(({ impact }) => impact === 'serious' || impact === 'critical');
    const told = grave.map(
      ({ id, nodes }) => `${colorScheme} ${id}: ${nodes.map((node) => node.html.slice(0, 160)).join('\n  ')}`,
    );
    expect(told).toEqual([]);
  }
  await page.emulateMedia({ colorScheme: null, reducedMotion: null });
}

/** The focus is on something: it was not lost by what just happened. */
export async function expectFocusKept(page: Page): Promise<void> {
  await expect.poll(() => page.evaluate(() => document.activeElement?.tagName)).not.toBe('BODY');
}
