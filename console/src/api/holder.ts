const KEY = 'weir.console.holder';

/** Who this tab says it is when it takes messages: the same after it was loaded anew, and no other tab's. */
export const HOLDER = holder();

function holder(): string {
  const [random = 0] = crypto.getRandomValues(new Uint32Array(1));
  const own = `console-${random.toString(16).padStart(8, '0')}`;
  try {
    const kept = sessionStorage.getItem(KEY);
    if (kept) return kept;
    sessionStorage.setItem(KEY, own);
  } catch {
    // Without storage it is somebody else after it was loaded anew.
  }
  return own;
}
