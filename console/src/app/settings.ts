import { useSyncExternalStore } from 'react';
import type { Zone } from '../format/time';

export type Theme = 'auto' | 'light' | 'dark';

export interface Settings {
  readonly theme: Theme;
  readonly zone: Zone;
}

const KEY = 'weir.console.settings';
const listeners = new Set<() => void>();
let current: Settings = stored();

function stored(): Settings {
  let found: Partial<Settings> = {};
  try {
    found = JSON.parse(localStorage.getItem(KEY) ?? '{}') as Partial<Settings>;
  } catch {
    // Storage may be blocked or hold something else: the defaults are fine.
  }
  return {
    theme: found.theme === 'light' || found.theme === 'dark' ? found.theme : 'auto',
    zone: found.zone === 'local' ? 'local' : 'utc',
  };
}

export function change(next: Partial<Settings>): void {
  current = { ...current, ...next };
  try {
    localStorage.setItem(KEY, JSON.stringify(current));
  } catch {
    // Without storage the choice lasts until the page is closed.
  }
  applyTheme();
  for (const listener of listeners) listener();
}

/** `light-dark()` in the style sheets follows `color-scheme`, which follows this attribute. */
export function applyTheme(): void {
  document.documentElement.dataset.theme = current.theme;
}

export function useSettings(): Settings {
  return useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    () => current,
  );
}
