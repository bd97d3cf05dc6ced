#!/usr/bin/env bash
# What is waited for at 50,000/s without a store and while there is sealing, in turns, two rounds: p99 of confirms, and what
# waits.mjs says of 2 s in the middle. A minute and a half; needs root, tracing, and what scripts/release builds.
. "$(dirname "$0")/../../../scripts/setup.sh"
. "$ROOT/scripts/minio.sh"
need_minio
weir="$TARGET_DIR/shipped/weir" trace=/sys/kernel/tracing
[ -x "$weir" ] || die "there is no $weir: scripts/release builds it"
[ -w "$trace/trace" ] || die "$trace cannot be written: this needs root, and tracefs mounted there"
buffer=$(awk '{ print $1 }' "$trace/buffer_size_kb")
objects=$(mktemp -d /dev/shm/weir-minio-XXXXXX)
trap 'echo 0 >"$trace/events/enable"; echo "$buffer" >"$trace/buffer_size_kb"; stop_minio; rm -rf "$objects"' EXIT
move_minio_apart 2500mbit
start_minio "$objects" weir-bench

# look FOLDER [OPTION…]
look() {
  "$weir" bench steady --rate 50k --seconds 8 --warmup 4 "${@:2}" >"$1/bench" 2>&1 &
  local bench=$! event
  echo 0 >"$trace/tracing_on"; echo mono >"$trace/trace_clock"; echo 60000 >"$trace/buffer_size_kb"; echo >"$trace/trace"
  for event in sched/sched_wakeup sched/sched_switch block/block_rq_issue block/block_rq_complete; do
    echo 1 >"$trace/events/$event/enable"
  done
  sleep 8; echo 1 >"$trace/tracing_on"; sleep 2; echo 0 >"$trace/tracing_on"
  wait "$bench"
  cat "$trace/trace" >"$1/trace"; echo 0 >"$trace/events/enable"
  grep "^confirm " "$1/bench"
  node "$(dirname "$0")/waits.mjs" "$1/trace" tokio-rt-worker
}

for _ in 1 2; do
  say "without a store"; look "$objects"
  say "with one"; look "$objects" --object-store s3://weir-bench
done
