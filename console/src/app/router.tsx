import {
  createRootRoute,
  createRoute,
  createRouter,
  lazyRouteComponent,
  redirect,
} from '@tanstack/react-router';
import * as z from 'zod/mini';
import { TopicsPage } from '../topics/list';
import { QuickStartPage } from '../topics/quickstart';
import { chunk } from './chunk';
import { Lost, Shell, Trouble } from './shell';

/** A text of digits alone, as somebody writes it by hand, is read as a number; the console itself puts it in quotes. */
const digits = z.pipe(
  z.number(),
  z.transform((value: number) => String(value)),
);
const text = z.catch(z.optional(z.union([z.string(), digits])), undefined);
const flag = z.catch(z.optional(z.boolean()), undefined);

const root = createRootRoute({ component: Shell, errorComponent: Trouble, notFoundComponent: Lost });

const home = createRoute({
  getParentRoute: () => root,
  path: '/',
  beforeLoad: () => {
    throw redirect({ to: '/ns/$ns/topics', params: { ns: 'default' } });
  },
});

const topics = createRoute({
  getParentRoute: () => root,
  path: '/ns/$ns/topics',
  staticData: { title: () => 'topics' },
  validateSearch: z.object({ q: text, sort: text, create: flag }),
  component: TopicsPage,
});

const subscriptions = createRoute({
  getParentRoute: () => root,
  path: '/ns/$ns/subscriptions',
  staticData: { title: () => 'subscriptions' },
  validateSearch: z.object({ q: text, sort: text, topic: text, create: flag }),
  component: lazyRouteComponent(
    chunk(() => import('../subscriptions/list')),
    'SubscriptionsPage',
  ),
});

const start = createRoute({
  getParentRoute: () => root,
  path: '/ns/$ns/start',
  staticData: { title: () => 'quick start' },
  component: QuickStartPage,
});

const topic = createRoute({
  getParentRoute: () => root,
  path: '/ns/$ns/topics/$topic',
  staticData: { title: ({ topic }) => `${topic} · topics` },
  validateSearch: z.object({ publish: flag, trim: flag, delete: flag }),
  component: lazyRouteComponent(
    chunk(() => import('../topic/page')),
    'TopicPage',
  ),
});

const overview = createRoute({
  getParentRoute: () => topic,
  path: '/',
  component: lazyRouteComponent(
    chunk(() => import('../topic/overview')),
    'OverviewTab',
  ),
});

const messages = createRoute({
  getParentRoute: () => topic,
  path: 'messages',
  staticData: { title: () => 'messages' },
  validateSearch: z.object({
    publish: flag,
    trim: flag,
    delete: flag,
    from: text,
    partition: z.catch(z.optional(z.number().check(z.nonnegative())), undefined),
    live: flag,
    open: text,
  }),
  component: lazyRouteComponent(
    chunk(() => import('../topic/messages')),
    'MessagesTab',
  ),
});

const consumers = createRoute({
  getParentRoute: () => topic,
  path: 'subscriptions',
  staticData: { title: () => 'subscriptions' },
  component: lazyRouteComponent(
    chunk(() => import('../topic/subscriptions')),
    'SubscriptionsTab',
  ),
});

const config = createRoute({
  getParentRoute: () => topic,
  path: 'config',
  staticData: { title: () => 'config' },
  component: lazyRouteComponent(
    chunk(() => import('../topic/config')),
    'ConfigTab',
  ),
});

const subscription = createRoute({
  getParentRoute: () => root,
  path: '/ns/$ns/subscriptions/$subscription',
  staticData: { title: ({ subscription }) => `${subscription} · subscriptions` },
  validateSearch: z.object({ seek: flag, purge: flag, fork: flag, delete: flag, explain: text }),
  component: lazyRouteComponent(
    chunk(() => import('../subscription/page')),
    'SubscriptionPage',
  ),
});

const queueOverview = createRoute({
  getParentRoute: () => subscription,
  path: '/',
  component: lazyRouteComponent(
    chunk(() => import('../subscription/overview')),
    'OverviewTab',
  ),
});

const leases = createRoute({
  getParentRoute: () => subscription,
  path: 'leases',
  staticData: { title: () => 'leases' },
  validateSearch: z.object({
    seek: flag,
    purge: flag,
    fork: flag,
    delete: flag,
    explain: text,
    cursor: text,
  }),
  component: lazyRouteComponent(
    chunk(() => import('../subscription/leases')),
    'LeasesTab',
  ),
});

const dead = createRoute({
  getParentRoute: () => subscription,
  path: 'dead',
  staticData: { title: () => 'dead letters' },
  validateSearch: z.object({
    seek: flag,
    purge: flag,
    fork: flag,
    delete: flag,
    explain: text,
    reason: text,
    deep: flag,
  }),
  component: lazyRouteComponent(
    chunk(() => import('../subscription/dead')),
    'DeadTab',
  ),
});

const trial = createRoute({
  getParentRoute: () => subscription,
  path: 'try',
  staticData: { title: () => 'try it' },
  component: lazyRouteComponent(
    chunk(() => import('../subscription/try')),
    'TryTab',
  ),
});

const queueConfig = createRoute({
  getParentRoute: () => subscription,
  path: 'config',
  staticData: { title: () => 'config' },
  component: lazyRouteComponent(
    chunk(() => import('../subscription/config')),
    'ConfigTab',
  ),
});

/** The prefix that the gateway wrote into `<base href>`. */
const basepath = new URL(document.baseURI).pathname.replace(/\/$/, '') || '/';

export const router = createRouter({
  routeTree: root.addChildren([
    home,
    topics,
    subscriptions,
    start,
    topic.addChildren([overview, messages, consumers, config]),
    subscription.addChildren([queueOverview, leases, dead, trial, queueConfig]),
  ]),
  basepath,
  defaultErrorComponent: Trouble,
  defaultNotFoundComponent: Lost,
  scrollRestoration: false,
});

declare module '@tanstack/react-router' {
  interface Register {
    router: typeof router;
  }
}
