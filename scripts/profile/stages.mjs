// Which stage a sampled stack belongs to: of what it was doing innermost that says so.

/** Frames of the kernel, innermost first; the first that matches says it. */
const KERNEL = [
  ["waking and waiting", /futex|eventfd|__schedule|try_to_wake_up|sched_yield|exit_to_user_mode|nanosleep/],
  ["polling", /epoll/],
  ["memory from the kernel", /page_fault|clear_page|madvise|mmap|munmap|brk/],
  ["disk", /__x64_sys_(pwrite|pwritev|pread|preadv|fdatasync|fsync|fallocate|sync_file_range|ftruncate|openat|unlink|rename)|blk_|submit_bio|ext4_|xfs_/],
  ["sockets, writing", /__x64_sys_(write|writev|sendto|sendmsg)|tcp_sendmsg|unix_stream_sendmsg|vfs_writev|sock_write_iter/],
  ["sockets, reading", /__x64_sys_(read|readv|recvfrom|recvmsg)|tcp_recvmsg|unix_stream_read|sock_read_iter/],
  ["the clock", /vdso_clock_gettime/],
];

/** Functions of the program, innermost first: by the crate that a name begins with. */
const PROGRAM = [
  // Where the kernel returns to, which is as far as a look gets into what may not be interrupted.
  ["sockets, reading", /__libc_recv|asynccancel/],
  ["sockets, writing", /__libc_send|__GI___writev/],
  ["the clock", /clock_gettime/],
  ["allocating", /\b_?mi_|\bmalloc|\bfree$|\brealloc|\bcalloc|__rust_alloc|__rdl_|__rg_/],
  ["copying", /memcpy|memmove|memset|memcmp|bcmp/],
  ["checksums and compressing", /crc_fast|\bcrc|zstd|ZSTD|lz4/i],
  ["journal", /\bweir_journal\b/],
  ["consensus", /\bopenraft\b/],
  ["work queues", /\bweir_storage_node::(subscription|server::queue)/],
  ["storage node", /\bweir_storage_node\b|\bweir_tier\b/],
  ["frames between gateway and node", /\bweir_transport\b/],
  ["batches and frames", /\bweir_protocol\b/],
  ["WebSocket", /\btungstenite\b|\btokio_tungstenite\b|\bweir_gateway::(ws|socket)/],
  ["gateway", /\bweir_gateway\b/],
  ["HTTP", /\bhyper|\baxum|\btower|\bhttp::|\bhttparse|\bmatchit|\bh2::/],
  ["runtime", /\btokio\b|\bmio\b|\bfutures_|\bparking_lot|\bmpsc|\bstd::(thread|sync|sys)/],
];

export const STAGES = [...new Set([...KERNEL, ...PROGRAM].map(([name]) => name)), "kernel, other", "other"];

/** The stage of a stack as inferno-collapse-perf writes it: outermost frame first, those of the kernel end with `_[k]`. */
export function stageOf(stack) {
  const frames = stack.split(";").reverse();
  const kernel = frames.filter((frame) => frame.endsWith("_[k]"));
  if (kernel.length > 0) return first(kernel, KERNEL) ?? "kernel, other";
  return first(frames, PROGRAM) ?? "other";
}

function first(frames, rules) {
  for (const frame of frames) {
    const rule = rules.find(([, pattern]) => pattern.test(frame));
    if (rule) return rule[0];
  }
}

/** Samples by stage and by thread, and how many there are. */
export function sums(folded) {
  const stages = new Map();
  const threads = new Map();
  let all = 0;
  for (const line of folded.split("\n").filter(Boolean)) {
    const end = line.lastIndexOf(" ");
    const count = Number(line.slice(end + 1));
    const stack = line.slice(0, end);
    const thread = stack.slice(0, stack.indexOf(";"));
    all += count;
    stages.set(stageOf(stack), (stages.get(stageOf(stack)) ?? 0) + count);
    threads.set(thread, (threads.get(thread) ?? 0) + count);
  }
  return { all, stages, threads };
}
