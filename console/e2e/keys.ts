import type { Locator, Page } from '@playwright/test';

/** Goes on with the key until `goal` has the focus: nothing else brings it there. */
export async function reach(page: Page, goal: Locator, key: 'Tab' | 'Shift+Tab' = 'Tab'): Promise<void> {
  await goal.waitFor();
  for (let presses = 0; presses < 60; presses += 1) {
    if (await goal.evaluate((element) => element === document.activeElement)) return;
    await page.keyboard.press(key);
  }
  throw new Error(`60 times ${key} do not lead to ${goal}`);
}
