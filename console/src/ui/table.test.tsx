import { renderToStaticMarkup } from 'react-dom/server';
import { expect, test } from 'vitest';
import { numeric, ScrollTable } from './table';

const wide = { text: 'Share', className: 'wide' } as const;
const table = (
  <ScrollTable label="Letters" heads={[<td key="pick">all</td>, 'Why', numeric('Attempts'), wide]}>
    <tr>
      <td>row</td>
    </tr>
  </ScrollTable>
);

test('a table is a named region that the keyboard reaches, and each head says what it is', () => {
  expect(renderToStaticMarkup(table)).toBe(
    '<section class="table-scroll" aria-label="Letters" tabindex="0"><table class="table"><thead><tr>' +
      '<td>all</td><th scope="col">Why</th><th scope="col" class="numeric">Attempts</th>' +
      '<th scope="col" class="wide">Share</th></tr></thead><tbody><tr><td>row</td></tr></tbody></table></section>',
  );
});
