import { useSyncExternalStore } from 'react';

/** True while the window is at most `width` CSS pixels wide. */
export function useNarrow(width: number): boolean {
  const query = `(max-width: ${width}px)`;
  return useSyncExternalStore(
    (listener) => {
      const list = matchMedia(query);
      list.addEventListener('change', listener);
      return () => list.removeEventListener('change', listener);
    },
    () => matchMedia(query).matches,
  );
}
