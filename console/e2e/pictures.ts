import { mkdir } from 'node:fs/promises';
import type { Page } from '@playwright/test';
import { expect, expectAccessible, test } from './fixtures';

// Pictures to be looked at: `WEIR_PICTURES=dir npm run e2e -- looks`. axe does not see overlapping rows.
const DIR = process.env.WEIR_PICTURES ?? 'test-results/pictures';

const SIZES = { wide: { width: 1280, height: 800 }, phone: { width: 375, height: 740 } };

/** Added to the time of a test for each, beside that of the scans: 1 s where nothing else runs, 8 s were seen at a load of 19. */
const TAKE_MS = 10_000;

/** A picture per theme and size; no page scrolls sideways, no parts of its head lie on each other, axe is content. */
export async function take(page: Page, name: string) {
  test.setTimeout(test.info().timeout + TAKE_MS);
  const dir = `${DIR}/${test.info().project.name}`;
  await mkdir(dir, { recursive: true });
  for (const colorScheme of ['light', 'dark'] as const) {
    await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
    for (const [size, viewport] of Object.entries(SIZES)) {
      await page.setViewportSize(viewport);
      await page.waitForTimeout(150);
      // What is left out where it is narrow goes with the next rendering, which may be later than that.
      const overflow = () => page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      await expect.poll(overflow, `pixels that ${name} scrolls sideways at ${size}`).toBeLessThanOrEqual(0);
      const covering = () => page.evaluate(isHeadCovered);
      await expect.poll(covering, `parts of the head of ${name} lie on each other at ${size}`).toBe(false);
      await page.screenshot({ path: `${dir}/${name}-${colorScheme}-${size}.png` });
    }
  }
  await page.setViewportSize(SIZES.wide);
  await expectAccessible(page);
}

/** In the page: whether parts of its head lie on each other. */
function isHeadCovered(): boolean {
  const parts = [...document.querySelectorAll('.page-head > *, .page > .tabs')];
  const boxes = parts.map((part) => part.getBoundingClientRect()).filter(({ width }) => width > 0);
  return boxes.some((a, i) =>
    boxes
      .slice(i + 1)
      .some((b) => a.left < b.right && b.left < a.right && a.top < b.bottom - 1 && b.top < a.bottom - 1),
  );
}
