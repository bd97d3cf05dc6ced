import { renderToStaticMarkup } from 'react-dom/server';
import { expect, test } from 'vitest';
import { TakeBack } from './takeBack';

const command = (ns: string) =>
  renderToStaticMarkup(
    <TakeBack what="It" ns={ns} name="billing" undo="snap_00c0ffee00c0ffee">
      {null}
    </TakeBack>,
  ).replace(/.*<code>(.*)<\/code>.*/, '$1');

test('the command takes back what was done where it was done', () => {
  expect(command('default')).toBe('weir subscription undo billing snap_00c0ffee00c0ffee');
  expect(command('shop')).toBe('weir subscription undo billing snap_00c0ffee00c0ffee --ns shop');
});
