import { useMatches } from '@tanstack/react-router';
import { useEffect } from 'react';

type Params = Readonly<Record<string, string>>;

declare module '@tanstack/react-router' {
  interface StaticDataRouteOption {
    /** What a route adds to the title of the page. */
    readonly title?: (params: Params) => string;
  }
}

interface Match {
  readonly staticData: { readonly title?: (params: Params) => string };
  readonly params: Params;
}

/** `messages · orders · topics · Weir`: what tells pages apart comes first. An address of none adds nothing. */
export function titleOf(matches: readonly Match[]): string {
  const parts = matches.flatMap(({ staticData, params }) => staticData.title?.(params) ?? []);
  return [...(parts.length > 0 ? parts.reverse() : ['not found']), 'Weir'].join(' · ');
}

/** Gives the document the title of the page that is shown. */
export function useTitle(): string {
  const title = useMatches({ select: (matches) => titleOf(matches as unknown as readonly Match[]) });
  useEffect(() => {
    document.title = title;
  }, [title]);
  return title;
}
