import { deleting, expect, expectFocusKept } from './fixtures';
import { reach } from './keys';

deleting('a topic is created, changed and deleted by keyboard', async ({ page, open, product }) => {
  await open();
  await expect(page.getByRole('heading', { name: 'Welcome to Weir' })).toBeVisible();
  await page.keyboard.press('n');
  await expect(page.getByRole('dialog').getByRole('textbox', { name: 'Name' })).toBeFocused();
  await page.keyboard.type('orders');
  await page.keyboard.press('Enter');
  await expect(page).toHaveURL(/\/ns\/default\/topics\/orders$/);

  await reach(page, page.getByRole('link', { name: 'Config' }));
  await page.keyboard.press('Enter');
  const review = page.getByRole('complementary', { name: 'Changes' });
  await expect(review).toContainText('None. This is version 1.');
  // Refused while a field cannot be read, and told where.
  const age = page.getByLabel('Remove after');
  await reach(page, age);
  await page.keyboard.type('soon');
  await expect(age).toHaveAttribute('aria-invalid', 'true');
  await page.keyboard.press('Enter');
  await expect(review).toContainText('Correct the marked fields first.');
  await page.keyboard.press('Control+a');
  await page.keyboard.type('2d');
  await reach(page, page.getByLabel('Closed'));
  await page.keyboard.press('Space');
  await expect(review).toContainText('retention.age_ms');
  await expect(review).toContainText('172800000');
  await reach(page, review.getByRole('button', { name: 'Apply 2 changes' }));
  await page.keyboard.press('Enter');
  await expect(review).toContainText('Applied. This is version 2.');
  await expect(review).toBeFocused();
  const { config } = JSON.parse((await product.call('GET', '/topics/orders')).text);
  expect([config.retention.age_ms, config.closed]).toEqual([172_800_000, true]);

  // Enter in a field applies too.
  await reach(page, age, 'Shift+Tab');
  await page.keyboard.press('Control+a');
  await page.keyboard.press('Delete');
  await page.keyboard.press('Enter');
  await expect(review).toContainText('Applied. This is version 3.');
  const again = JSON.parse((await product.call('GET', '/topics/orders')).text);
  expect([again.config.retention.age_ms, again.config.closed]).toEqual([null, true]);
  await expect(age).toBeFocused();
  await page.keyboard.type('9d');
  await reach(page, review.getByRole('button', { name: 'Reset' }));
  await page.keyboard.press('Enter');
  await expect(age).toHaveValue('');
  await expect(review).toBeFocused();

  await reach(page, page.getByRole('button', { name: 'Delete' }), 'Shift+Tab');
  await page.keyboard.press('Enter');
  const remove = page.getByRole('alertdialog');
  await expect(remove.getByRole('button', { name: 'Delete topic' })).toBeDisabled();
  // A dialog that is left changes nothing and gives the focus back.
  await page.keyboard.press('Escape');
  await expect(remove).toBeHidden();
  await expect(page.getByRole('button', { name: 'Delete' })).toBeFocused();
  await page.keyboard.press('Enter');
  await page.keyboard.type('orders');
  await page.keyboard.press('Enter');
  await expect(page.getByRole('heading', { name: 'Welcome to Weir' })).toBeVisible();
  await expectFocusKept(page);
});
