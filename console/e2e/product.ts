import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, join, resolve } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';

const BIN = process.env.WEIR_BIN ?? resolve(process.env.CARGO_TARGET_DIR ?? '../target', 'debug/weir');
const START_MS = 20_000;

/** `weir dev` on data of its own. */
export class Product {
  private child: ChildProcess | null = null;
  private log = '';
  /** `http://127.0.0.1:PORT`. */
  url = '';

  private constructor(
    private readonly home: string,
    readonly prefix: string,
    private readonly more: readonly string[],
  ) {}

  /** With the options `more` beside those of every test. */
  static async start(prefix: string, more: readonly string[] = []): Promise<Product> {
    const product = new Product(await mkdtemp(join(tmpdir(), 'weir-console-')), prefix, more);
    await product.run('127.0.0.1:0');
    return product;
  }

  /** Ends the process without warning. */
  async kill(): Promise<void> {
    const child = this.child;
    if (!child || child.exitCode !== null || child.signalCode !== null) return;
    child.kill('SIGKILL');
    await once(child, 'exit');
  }

  /** Starts it again, on the same data and port. */
  async restart(): Promise<void> {
    await this.run(new URL(this.url).host);
  }

  /** Paths of what is in its own object store, the oldest first. */
  async objects(): Promise<string[]> {
    const folder = join(this.home, 'data', 'objects');
    const names = await readdir(folder, { recursive: true });
    const packs = names.filter((name) => name.endsWith('.pack'));
    return packs.sort((a, b) => (basename(a) < basename(b) ? -1 : 1)).map((name) => join(folder, name));
  }

  async remove(): Promise<void> {
    await this.kill();
    await rm(this.home, { recursive: true, force: true });
  }

  private async run(listen: string): Promise<void> {
    const ready = join(this.home, 'ready');
    await rm(ready, { force: true });
    const data = join(this.home, 'data');
    const options = [
      '--data-dir',
      data,
      '--listen',
      listen,
      '--ready-file',
      ready,
      '--console-prefix',
      this.prefix,
      ...this.more,
    ];
    const child = spawn(BIN, ['dev', ...options], { stdio: ['ignore', 'pipe', 'pipe'] });
    this.child = child;
    this.log = '';
    for (const stream of [child.stdout, child.stderr]) stream?.on('data', (text) => (this.log += text));
    let failed: Error | null = null;
    child.on('error', (error) => (failed = error));
    for (const deadline = Date.now() + START_MS; Date.now() < deadline; await pause(20)) {
      if (failed || child.exitCode !== null) break;
      const url = await readFile(ready, 'utf8').catch(() => '');
      if (url !== '' && (await fetch(`${url}/readyz`).catch(() => null))?.ok) {
        this.url = url;
        return;
      }
    }
    throw new Error(`${BIN} did not start: ${failed ?? ''}\n${this.log}`);
  }

  /** A call of the API; anything but success is an error. */
  async call(
    method: string,
    path: string,
    body?: string | Uint8Array<ArrayBuffer>,
    headers: Record<string, string> = {},
  ) {
    const response = await fetch(`${this.url}/v1${path}`, { method, body: body ?? null, headers });
    const text = await response.text();
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`);
    return { text, headers: response.headers };
  }

  create(topic: string, config: object = {}, ns = 'default') {
    return this.call('PUT', `/ns/${ns}/topics/${topic}`, JSON.stringify(config), {
      'Content-Type': 'application/json',
    });
  }

  publish(topic: string, body: string | Uint8Array<ArrayBuffer>, headers: Record<string, string> = {}) {
    return this.call('POST', `/topics/${topic}/messages`, body, {
      'Content-Type': 'application/json',
      ...headers,
    });
  }

  /** Publishes `count` messages, each with a key and a number, as one batch. */
  async publishMany(topic: string, count: number) {
    const lines = Array.from({ length: count }, (_, n) => JSON.stringify({ key: `k${n}`, data: { n } }));
    await this.call('POST', `/topics/${topic}/messages:batch`, lines.join('\n'), {
      'Content-Type': 'application/x-ndjson',
    });
  }

  subscribe(name: string, config: object, ns = 'default') {
    return this.call('PUT', `/ns/${ns}/subscriptions/${name}`, JSON.stringify(config), {
      'Content-Type': 'application/json',
    });
  }

  /** A verb of a subscription, e.g. `pull`. */
  async queue(name: string, verb: string, body: object = {}) {
    const { text } = await this.call('POST', `/subscriptions/${name}:${verb}`, JSON.stringify(body), {
      'Content-Type': 'application/json',
    });
    return JSON.parse(text);
  }

  /** Leases of up to `max` messages. */
  async pull(name: string, max: number, more: object = {}): Promise<string[]> {
    const { messages } = await this.queue(name, 'pull', { max, wait_ms: 5000, ...more });
    return messages.map(({ lease }: { lease: string }) => lease);
  }

  /** How many messages of a subscription are in which state. */
  async totals(name: string) {
    return JSON.parse((await this.call('GET', `/subscriptions/${name}`)).text).totals;
  }

  /** Removes every subscription and topic, so that tests do not see each other's. */
  async clear(): Promise<void> {
    for (const kind of ['subscriptions', 'topics']) {
      for (;;) {
        const { items } = JSON.parse((await this.call('GET', `/${kind}?limit=1000`)).text) as {
          items: { name: string }[];
        };
        if (items.length === 0) break;
        // Many at once share a write; one after the other, thousands take longer than a test has.
        for (let from = 0; from < items.length; from += 50) {
          const some = items.slice(from, from + 50);
          await Promise.all(some.map(({ name }) => this.call('DELETE', `/${kind}/${name}`)));
        }
      }
    }
  }
}
