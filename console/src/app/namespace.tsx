import { useQuery } from '@tanstack/react-query';
import { Link, useRouterState } from '@tanstack/react-router';
import { type FocusEvent, type KeyboardEvent, useId, useRef, useState } from 'react';
import { api, bodyOf } from '../api/client';
import { ChevronIcon } from '../ui/icons';

/** Namespaces that are listed at once. */
const NAMES_MAX = 200;

function useNamespaces() {
  return useQuery({
    queryKey: ['namespaces'],
    queryFn: async ({ signal }) => {
      const { items, next } = bodyOf(
        await api.GET('/v1/ns', { params: { query: { limit: NAMES_MAX } }, signal }),
      );
      return { names: items.map(({ name }) => name), hasMore: next != null };
    },
    // Whoever makes one does so elsewhere, and comes back to the page then.
    staleTime: 5_000,
  });
}

/** The namespace that is looked at and, if there are others, the way to them: to the same screen of each. */
export function NamespaceSwitch({ ns }: { ns: string }) {
  const { data } = useNamespaces();
  const [isOpen, setOpen] = useState(false);
  const button = useRef<HTMLButtonElement>(null);
  const id = useId();
  const screen = useScreen();
  if (!data?.names.some((name) => name !== ns)) {
    return (
      <span className="bar-ns" title="Namespace">
        {ns}
      </span>
    );
  }
  const close = (event: KeyboardEvent) => {
    if (event.key !== 'Escape' || !isOpen) return;
    setOpen(false);
    button.current?.focus();
  };
  const left = ({ currentTarget, relatedTarget }: FocusEvent) => {
    if (!currentTarget.contains(relatedTarget)) setOpen(false);
  };
  return (
    // biome-ignore lint/a11y/noStaticElementInteractions: what is within it is what is used
    <div className="bar-ns" onKeyDown={close} onBlur={left}>
      <button
        type="button"
        className="quiet mono"
        ref={button}
        aria-expanded={isOpen}
        aria-controls={isOpen ? id : undefined}
        onClick={() => setOpen(!isOpen)}
      >
        <span className="visually-hidden">Namespace: </span>
        <span className="bar-ns-name">{ns}</span> <ChevronIcon />
      </button>
      {isOpen && (
        // It takes the focus of a click between the links, which must not close it.
        <ul id={id} className="popover options bar-ns-list" aria-label="Namespaces" tabIndex={-1}>
          {data.names.map((name) => (
            <li key={name}>
              <Link
                to={screen}
                params={{ ns: name }}
                className="option mono"
                aria-current={name === ns ? 'true' : undefined}
                onClick={() => setOpen(false)}
              >
                {name}
              </Link>
            </li>
          ))}
          {data.hasMore && <li className="note">There are more: the address of this page names one.</li>}
        </ul>
      )}
    </div>
  );
}

const SCREENS = ['/ns/$ns/subscriptions', '/ns/$ns/start'] as const;

/** The list that a page belongs to: what it is about may not exist elsewhere. */
function useScreen() {
  const ids = useRouterState({ select: ({ matches }) => matches.map(({ fullPath }) => fullPath).join(' ') });
  return SCREENS.find((path) => ids.includes(path)) ?? '/ns/$ns/topics';
}
