import { useIsFetching, useQueryClient } from '@tanstack/react-query';
import { type ErrorComponentProps, Link, Outlet, useParams, useRouterState } from '@tanstack/react-router';
import { useEffect, useState } from 'react';
import { Refused, Unreachable } from '../api/client';
import { useReady, useService } from '../api/topics';
import { localZone, zoneName } from '../format/time';
import { MoonIcon, QueuesIcon, StartIcon, SunIcon, TopicsIcon, WeirMark } from '../ui/icons';
import { useMedia } from '../ui/narrow';
import { ProblemBox } from '../ui/problem';
import { NamespaceSwitch } from './namespace';
import { change, useSettings } from './settings';
import { useTitle } from './title';

export function Shell() {
  const ns = useNamespace();
  const title = useTitle();
  useFocusKept();
  return (
    <div className="shell">
      <button type="button" className="skip" onClick={focusMain}>
        Skip to content
      </button>
      <header className="bar">
        <Link to="/ns/$ns/topics" params={{ ns }} className="brand" aria-label="Weir console, topics">
          <WeirMark />
          <span className="brand-name">Weir</span>
        </Link>
        <NamespaceSwitch ns={ns} />
        <Connection />
        <ZoneSwitch />
        <ThemeSwitch />
      </header>
      <nav className="rail" aria-label="Screens">
        <Link to="/ns/$ns/topics" params={{ ns }} className="rail-item">
          <TopicsIcon /> Topics
        </Link>
        <Link to="/ns/$ns/subscriptions" params={{ ns }} className="rail-item">
          <QueuesIcon /> Subscriptions
        </Link>
        <Link to="/ns/$ns/start" params={{ ns }} className="rail-item">
          <StartIcon /> Quick start
        </Link>
        <ServiceNote />
      </nav>
      <main id="main" className="main" tabIndex={-1}>
        <Outlet />
      </main>
      {/* A page that is loaded says its title; one that comes in its place is told here. */}
      <p className="visually-hidden" aria-live="polite">
        {title}
      </p>
    </div>
  );
}

/** By hand: a fragment link would resolve against <base href>. */
function focusMain() {
  document.getElementById('main')?.focus();
}

/** A view or dialog that goes away may take the focused element with it: the content then gets the focus. */
function useFocusKept() {
  const href = useRouterState({ select: ({ location }) => location.href });
  // biome-ignore lint/correctness/useExhaustiveDependencies: runs after every change of the address
  useEffect(() => {
    // Dialogs give the focus back a few frames after they closed.
    const timer = setTimeout(() => {
      if (document.activeElement === document.body) focusMain();
    }, 250);
    return () => clearTimeout(timer);
  }, [href]);
}

export function useNamespace(): string {
  return useParams({ strict: false }).ns ?? 'default';
}

function ServiceNote() {
  const { data } = useService();
  if (!data) return null;
  return (
    <p className="rail-note">
      {data.service} {data.version}
    </p>
  );
}

const CONNECTION = {
  ok: 'Connected',
  away: 'Storage unavailable, retrying',
  lost: 'Gateway unreachable, retrying',
} as const;

/** Says whether the gateway answers, and reaches storage: derived from every request the page makes. */
function Connection() {
  const client = useQueryClient();
  const [lost, setLost] = useState(false);
  const fetching = useIsFetching({ predicate: ({ queryKey }) => queryKey[0] !== 'ready' }) > 0;
  const { error } = useReady();
  useEffect(
    () =>
      client.getQueryCache().subscribe(() => {
        const states = client.getQueryCache().findAll({ type: 'active' });
        setLost(states.some(({ state }) => (state.error ?? state.fetchFailureReason) instanceof Unreachable));
      }),
    [client],
  );
  const isAway = error instanceof Refused && error.problem.code === 'unavailable';
  const state = lost ? 'lost' : isAway ? 'away' : 'ok';
  return (
    <span className="connection" data-state={state} role="status">
      <span className="dot" data-busy={fetching || undefined} />
      {CONNECTION[state]}
    </span>
  );
}

function ZoneSwitch() {
  const { zone } = useSettings();
  const other = zone === 'utc' ? 'local' : 'utc';
  return (
    <button
      type="button"
      className="quiet"
      onClick={() => change({ zone: other })}
      title={`All times are in ${zoneName(zone)}. Switch to ${other === 'utc' ? 'UTC' : localZone()}.`}
    >
      <span className="visually-hidden">Time zone: </span>
      {zoneName(zone)}
    </button>
  );
}

function ThemeSwitch() {
  const { theme } = useSettings();
  const systemDark = useMedia('(prefers-color-scheme: dark)');
  const dark = theme === 'dark' || (theme === 'auto' && systemDark);
  return (
    <button
      type="button"
      className="quiet icon-only"
      aria-label={dark ? 'Use the light theme' : 'Use the dark theme'}
      onClick={() => change({ theme: dark ? 'light' : 'dark' })}
    >
      {dark ? <SunIcon /> : <MoonIcon />}
    </button>
  );
}

export function Trouble({ error, reset }: ErrorComponentProps) {
  return (
    <div className="page">
      <ProblemBox error={error} onRetry={reset} />
    </div>
  );
}

export function Lost() {
  const ns = useNamespace();
  return (
    <div className="page narrow">
      <h1>There is nothing here</h1>
      <p>This address is not a page of the console.</p>
      <p>
        <Link to="/ns/$ns/topics" params={{ ns }}>
          Go to topics
        </Link>
      </p>
    </div>
  );
}
