import { Link, useRouterState } from '@tanstack/react-router';
import { type ReactNode, useEffect, useRef } from 'react';
import { Refused } from '../api/client';
import { Loading, ProblemBox } from './problem';

interface EntityProps {
  readonly noun: 'topic' | 'subscription';
  readonly name: string;
  /** What was read of it. */
  readonly query: { readonly error: Error | null; readonly refetch: () => Promise<unknown> };
  /** The way back to the list. */
  readonly up: ReactNode;
  /** Beside the name. */
  readonly about: ReactNode;
  readonly actions: ReactNode;
  readonly tabs: ReactNode;
  readonly dialogs: ReactNode;
  /** The tab that is shown. */
  readonly children: ReactNode;
  /** It was read once; nothing of it is shown before. */
  readonly found: boolean;
}

/** It was there, and is not any more; or never was. */
export const isGone = (error: Error | null) => error instanceof Refused && error.problem.status === 404;

/** One topic or subscription: its name, what can be done with it, its tabs. */
export function EntityPage({ noun, name, query, found, ...parts }: EntityProps) {
  const gone = isGone(query.error);
  const there = found && !gone;
  return (
    <div className="page fill">
      <div className="page-head">
        <h1 className="crumbs">
          {parts.up}
          <span aria-hidden="true">/</span>
          <span className="mono crumb-name">{name}</span>
        </h1>
        {there && <span className="count">{parts.about}</span>}
        <span className="spacer" />
        {there && parts.actions}
      </div>
      {gone ? (
        <>
          <ProblemBox error={query.error} title={`There is no ${noun} ${name}`} />
          <p>It was deleted, or has another name. What there is: {parts.up}</p>
        </>
      ) : (
        <>
          {parts.tabs}
          {query.error && <ProblemBox error={query.error} onRetry={() => void query.refetch()} />}
          {found ? parts.children : !query.error && <Loading what={name} />}
        </>
      )}
      {there && parts.dialogs}
    </div>
  );
}

interface TabsProps {
  readonly label: string;
  readonly tabs: readonly { readonly to: string; readonly label: string; readonly exact: boolean }[];
  readonly params: Record<string, string>;
}

export function Tabs({ label, tabs, params }: TabsProps) {
  const nav = useRef<HTMLElement>(null);
  const path = useRouterState({ select: ({ location }) => location.pathname });
  // Where they are wider than the screen.
  // biome-ignore lint/correctness/useExhaustiveDependencies: another tab is active after each change of the path
  useEffect(() => {
    // It may answer a promise, which is nothing to be cleaned up.
    void nav.current?.querySelector('.active')?.scrollIntoView({ block: 'nearest', inline: 'nearest' });
  }, [path]);
  return (
    <nav className="tabs" aria-label={label} ref={nav}>
      {tabs.map((tab) => (
        <Link
          key={tab.to}
          to={tab.to}
          params={params}
          activeOptions={{ exact: tab.exact, includeSearch: false }}
          className="tab"
        >
          {tab.label}
        </Link>
      ))}
    </nav>
  );
}
