import { useSyncExternalStore } from 'react';

/** True while the window is at most `width` CSS pixels wide. */
export const useNarrow = (width: number) => useMedia(`(max-width: ${width}px)`);

/** True while the media query holds. */
export function useMedia(query: string): boolean {
  return useSyncExternalStore(
    (listener) => {
      const list = matchMedia(query);
      list.addEventListener('change', listener);
      return () => list.removeEventListener('change', listener);
    },
    () => matchMedia(query).matches,
  );
}
