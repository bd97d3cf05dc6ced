const KEY = 'weir.console.holder';
/** A tab that is loaded anew has to wait so long at most until what it was before has let go of its name. */
const RELOADED_MS = 500;

let own = kept() ?? renamed();

/** Who this tab says it is when it takes messages: the same after it was loaded anew, and no other tab's. */
export const holder = () => own;

/**
 * A tab that was duplicated begins with a copy of the storage. Whoever has the lock of the name keeps it, for as long
 * as the tab lives, and the copy takes another. True once this tab has one; false where browsers have no locks.
 */
export async function claim(locks: LockManager | undefined): Promise<boolean> {
  if (!locks) return false;
  for (;;) {
    const lock = await asked(locks, `${KEY}:${own}`);
    if (lock !== 'taken') return lock === 'own';
    own = renamed();
  }
}

/** Only what came over HTTPS, or from this machine, is given locks. */
const locks = (): LockManager | undefined => globalThis.navigator?.locks;
void claim(locks());

function asked(locks: LockManager, name: string): Promise<'own' | 'taken' | 'none'> {
  return new Promise((resolve) => {
    const forLife = () => {
      resolve('own');
      return new Promise<never>(() => undefined);
    };
    const signal = AbortSignal.timeout(RELOADED_MS);
    // A page without an origin of its own is refused all locks, whatever they are called.
    locks.request(name, { signal }, forLife).catch(() => resolve(signal.aborted ? 'taken' : 'none'));
  });
}

function kept(): string | null {
  try {
    return sessionStorage.getItem(KEY);
  } catch {
    return null;
  }
}

function renamed(): string {
  const [random = 0] = crypto.getRandomValues(new Uint32Array(1));
  const name = `console-${random.toString(16).padStart(8, '0')}`;
  try {
    sessionStorage.setItem(KEY, name);
  } catch {
    // Without storage it is somebody else after it was loaded anew.
  }
  return name;
}
