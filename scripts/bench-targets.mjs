// The table of targets: what is aimed at, and what the summaries of scripts/bench-results say of it.

const median = (values) => [...values].sort((a, b) => a - b)[Math.floor((values.length - 1) / 2)];

/** Rows of what, target, measured, reached, by. A later set goes before an earlier one: `full` is measured for longer. */
export function targets(sets, spread) {
  // `apart` has the cases of `cold`, on another store.
  const cases = sets.filter(({ set }) => set !== "apart").toReversed().flatMap((set) => set.cases);
  const find = (workload, pattern) => cases.find((it) => it.workload === workload && pattern.test(it.case) && it.runs > 0);
  const figure = (workload, pattern, name) => find(workload, pattern)?.figures[name] ?? [];
  const latency = (workload, pattern, name, percentile) => find(workload, pattern)?.latencies[name]?.[percentile] ?? [];
  // Of two cases of one set, run by run as they took turns.
  const ratios = (mine, others, factor = 1) => mine.slice(0, others.length).map((value, at) => (factor * value) / others[at]);

  const row = (what, target, values, unit, holds, by) => {
    if (values.length === 0) return [what, target, "not measured", "–", by];
    const verdict = holds ? (holds(median(values)) ? "yes" : "**no**") : "–";
    return [what, target, `${spread(values)} ${unit}`, verdict, by];
  };
  const open = (what, target, why, by = "–") => [what, target, why, "–", by];
  const peers = (name, shape = "pipelined, one connection") => figure(shape, name, "weir_rate_per_its_rate");
  const overHttp = (name) => peers(name, "HTTP, 64 under way");
  const disk = (rate) => figure("lone", new RegExp(`^${rate}/s`), "confirm_p50_per_disk_p50");
  const frozen = (name, percentile) => [/\b0 of them frozen/, / readers, [1-9]\d* of them frozen/].map((of) => latency("frozen", of, name, percentile));
  const [free, half] = frozen("deliver", "p99");
  const posts = (connections) => figure("http", new RegExp(`^HTTP/1.1, ${connections} `), "post_per_empty_pct");
  const queue = (which) => figure("queue-lifecycle", which, "server_cpu_us_per_message");
  const topics = (count) => figure("many-topics", new RegExp(`^${count} `), "server_cpu_us_per_message");
  // At 150,000 a second, in the usual way or in another.
  const cost = (name, way = "") => figure("steady", new RegExp(`^150k/s, 10 writers, 10 readers, 1024 B${way}$`), name);
  const beside = (name, way) => ratios(cost(name, way), cost(name));
  // Of one set alone, with a store on the same processors or apart: both sides took turns there.
  const stored = (name) => (sets.find(({ set }) => set === name)?.cases ?? []).filter((it) => it.runs > 0);
  const pair = (set, rate, of, store = ", object store") =>
    [store, ""].map((way) => of(stored(set).find((it) => it.workload === "steady" && it.case === `${rate}, 10 writers, 10 readers, 1024 B${way}`)) ?? []);
  const sealing = (set, rate, name, factor) => ratios(...pair(set, rate, (it) => it?.figures[name]), factor);
  const sealed = (set, rate, store) => ratios(...pair(set, rate, (it) => it?.latencies.confirm?.p99, store));
  const apart = stored("apart").find((it) => it.workload === "catch-up" && /× 1 readers,.*cold$/.test(it.case))?.figures.read_per_bare_gets_pct ?? [];
  const commits = (width) =>
    row(`journal group commit, ${width.toLocaleString("en-US")} outstanding`, "≥ 90 % of a bare write-and-sync loop", figure("journal commit", new RegExp(`^${width} outstanding`), "of_bare_loop_pct"), "%", (it) => it >= 90, "`--set benches`");
  const [many] = [100_000, 10_000].map((count) => find("idle", new RegExp(`^${count} topics`))).filter(Boolean);
  const each = many?.figures.grown_rss_bytes_per_topic ?? [];

  return [
    ...[1, 16, 256, 1024].map(commits),
    row("confirm p50 at 50/s over HTTP, beside the disk's own write and sync", "≤ 1.5 times (must: 2)", disk("50"), "times", (it) => it <= 1.5, "`lone`"),
    row("the same at 1,000/s", "≤ 1.5 times (must: 2)", disk("1k"), "times", (it) => it <= 1.5, "`lone`"),
    row("server CPU, publish 1 KiB in batches of 64, binary WebSocket, confirmed", "≤ 1.5 µs per message", figure("steady", /^max, 10 writers, 0 readers/, "server_cpu_us_per_message"), "µs", (it) => it <= 1.5, "`steady --rate max --readers 0 --batch 64`"),
    row("server CPU, queue publish, deliver and ack in batches of 64, at 250k/s, binary WebSocket, prefetch 16,384", "≤ 4 µs per message", queue(/^250k\/s, WebSocket binary, prefetch 16384,.*, all acknowledged, 64 together$/), "µs", (it) => it <= 4, "`queue-lifecycle --rate 250k --together 64 --nack-one-in 0 --dead-one-in 0`"),
    row("the same in batches of 256", "≤ 4 µs per message", queue(/^250k\/s, WebSocket binary, prefetch 16384,.*, all acknowledged, 256 together$/), "µs", (it) => it <= 4, "`queue-lifecycle --rate 250k --together 256 --nack-one-in 0 --dead-one-in 0`"),
    row("the same with 5 % nacked and 1 % dead", "–", queue(/^250k\/s, WebSocket binary, prefetch 16384,.* 1 KiB, 256 together$/), "µs", null, "`queue-lifecycle --rate 250k --together 256`"),
    row("the same with 5 % nacked and 1 % dead, in batches of 64", "–", queue(/^250k\/s, WebSocket binary, prefetch 16384,.* 1 KiB, 64 together$/), "µs", null, "`queue-lifecycle --rate 250k --together 64`"),
    row("the same at 50k/s, each sent when it is due: a dozen in a batch", "–", queue(/^50k\/s, WebSocket binary, prefetch 16384,.* 1 KiB$/), "µs", null, "`queue-lifecycle`"),
    row("the same at 5k/s, prefetch 64: every sync is shared by few", "–", queue(/^5k\/s, WebSocket binary, prefetch 64/), "µs", null, "`queue-lifecycle`"),
    row("the same over HTTP", "–", queue(/^5k\/s, HTTP, prefetch 64/), "µs", null, "`queue-lifecycle`"),
    row("server CPU, fan-out of 100k/s to 8 readers, per delivered 1 KiB", "≤ 0.7 µs", figure("fan-out", /^100k\/s × 8 readers, 1 KiB$/, "server_cpu_us_per_delivery"), "µs, publishing included", (it) => it <= 0.7, "`fan-out --rate 100k`"),
    row("the same, of 100k/s to 16", "≤ 0.7 µs", figure("fan-out", /^100k\/s × 16 readers, 1 KiB$/, "server_cpu_us_per_delivery"), "µs, publishing included", (it) => it <= 0.7, "`fan-out --rate 100k`"),
    row("the same, of 10k/s to 32: ten messages in a frame", "–", figure("fan-out", /^10k\/s × 32 readers, 1 KiB$/, "server_cpu_us_per_delivery"), "µs, publishing included", null, "`fan-out --rate 10k`"),
    row("one message per POST, HTTP/1.1, 64 connections", "≥ 40 % of the server's empty 204", posts(64), "%", (it) => it >= 40, "`http`"),
    row("the same, 1,024 connections", "≥ 40 %", posts(1024), "%", (it) => it >= 40, "`http`"),
    row("server CPU at 150k/s of the storage node alone, beside both with the gateway", "–", beside("server_cpu_us_per_message", ", past the gateway"), "times", null, "`steady --rate 150k`, `--transport internal`"),
    row("server CPU at 150k/s with the load from two processes, beside one", "–", beside("server_cpu_us_per_message", ", 2 clients"), "times", null, "`steady --rate 150k`, `--clients 2`"),
    row("and the CPU of the load", "–", beside("client_cpu_us_per_message", ", 2 clients"), "times", null, "`steady --rate 150k`, `--clients 2`"),
    row("pipelined, beside NATS JetStream with a sync per ack", "≥ 40 times", peers(/sync_interval: always/), "times", (it) => it >= 40, "`scripts/bench-peers`"),
    row("pipelined, beside Kafka, flush per message", "≥ 6 times", peers(/Kafka.*flush/), "times", (it) => it >= 6, "`scripts/bench-peers`"),
    row("pipelined, beside a RabbitMQ quorum queue", "≥ 20 times", peers(/RabbitMQ/), "times", (it) => it >= 20, "`scripts/bench-peers`"),
    row("many topics: server CPU per POST at 10,000 beside 64", "≤ 1.2 times", ratios(topics(10_000), topics(64)), "times", (it) => it <= 1.2, "`many-topics`"),
    row("idle topics, resident memory", "≤ 1 KiB each", each, `B each of ${many?.case.split(" ")[0] ?? "–"}`, (it) => it <= 1024, "`idle`"),
    row("idle topics, processor", "≤ 0.5 % of a core", many?.figures.core_pct ?? [], "%", (it) => it <= 0.5, "`idle`"),
    row("idle WebSockets, resident memory", "≤ 20 KiB each", figure("idle", /^\d+ WebSockets/, "grown_rss_bytes_per_socket").map((it) => it / 1024), "KiB each", (it) => it <= 20, "`idle`"),
    row("half of many readers frozen: deliver p99 of the others, beside nobody frozen", "≤ 1.1 times", ratios(half, free), "times", (it) => it <= 1.1, "`frozen`"),
    row("and the server's memory", "flat", figure("frozen", / readers, [1-9]\d* of them frozen/, "server_rss_grown_mib"), "MiB grown", null, "`frozen`"),
    row("recovery after kill -9, from the start of the process to the first confirm", "–", figure("recovery", /./, "first_confirm_s"), "s", null, "`recovery`"),
    row("recovery scan with checksums and index, from the page cache", "≥ 6 GiB/s", figure("journal recovery", /from the page cache$/, "scan_gib_per_s"), "GiB/s", (it) => it >= 6, "`--set benches`"),
    row("64 closed-loop HTTP writers, beside S2 Lite", "≥ 4 times", overHttp(/^S2/), "times", (it) => it >= 4, "`scripts/bench-peers`"),
    row("the same, beside durable-streams-server", "≥ 7 times", overHttp(/^durable-streams/), "times", (it) => it >= 7, "`scripts/bench-peers`"),
    row("64 streams, beside Ursula (wrk instead of ursula-bench)", "≥ 3 times", overHttp(/^Ursula/), "times", (it) => it >= 3, "`scripts/bench-peers`"),
    open("3 nodes, quorum confirm", "≥ 0.35 of one node", "not measured: there is one node in this version"),
    row("cold read by one subscriber, from MinIO on the same machine", "≥ 80 % of bare GETs", figure("catch-up", /× 1 readers,.*cold$/, "read_per_bare_gets_pct"), "%", (it) => it >= 80, "`--set cold`"),
    row("the same over a link of 2.5 Gbit/s, from a store that takes no processor from anybody", "≥ 80 % of bare GETs", apart, "%", (it) => it >= 80, "`--set apart`"),
    row("the first that is read by a process that has just begun", "–", figure("catch-up", /× 1 readers,.*cold, first$/, "read_per_bare_gets_pct"), "% of bare GETs", null, "`--set cold`"),
    row("what was read before once more, from memory", "≥ 1 GiB/s", figure("catch-up", /× 1 readers,.*warm$/, "read_mib_per_s").map((it) => it / 1024), "GiB/s", (it) => it >= 1, "`--set cold`"),
    row("1,000 readers of what is cold: bytes got from the store", "each once", figure("catch-up", /× 1000 readers,.*cold$/, "get_bytes_per_object_byte"), "times the objects' bytes", (it) => it <= 1.1, "`--set cold`"),
    row("publishing as fast as it goes while sealing, beside without", "≥ 85 %", sealing("cold", "max", "confirmed_per_s", 100), "%", (it) => it >= 85, "`--set cold`"),
    row("the same with the store over that link", "≥ 85 %", sealing("apart", "max", "confirmed_per_s", 100), "%", (it) => it >= 85, "`--set apart`"),
    ...["10k/s", "50k/s"].flatMap((rate) => [
      row(`p99 of confirms at ${rate} while sealing to a folder on the same disk, beside without`, "≤ 1.1 times", sealed("cold", rate, ", local object store"), "times", (it) => it <= 1.1, "`--set cold`"),
      row("the same with the store over that link", "≤ 1.1 times", sealed("apart", rate), "times", (it) => it <= 1.1, "`--set apart`"),
      row("the same with MinIO on the same two processors, whose own work is in it", "≤ 1.1 times", sealed("cold", rate), "times", (it) => it <= 1.1, "`--set cold`"),
    ]),
  ];
}
