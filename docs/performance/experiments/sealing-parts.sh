#!/usr/bin/env bash
# Which part of sealing p99 of confirms at 50,000/s waits for: without a store, with what takes as much of the processors and reads
# as much from the disk but is not sealing, with turns of 300 us for every thread, with a folder in memory as the store and with one
# that is apart, all in turns. Prints p99 of each in us, sorted. A minute and a half a round.
#   sealing-parts.sh [ROUNDS]      needs root, 2 GiB on the disk, and what scripts/release builds
. "$(dirname "$0")/../../../scripts/setup.sh"
. "$ROOT/scripts/minio.sh"
need_minio
weir="$TARGET_DIR/shipped/weir"
[ -x "$weir" ] || die "there is no $weir: scripts/release builds it"
dir=$(mktemp -d "$ROOT/.cache/parts-XXXXXX") objects=$(mktemp -d /dev/shm/weir-minio-XXXXXX)
trap 'stop_minio; rm -rf "$dir" "$objects"' EXIT
beside="$dir/beside"
cc -O2 -o "$beside" "$ROOT/docs/performance/experiments/beside.c"
dd if=/dev/urandom of="$dir/read" bs=1M count=2048 oflag=direct status=none
move_minio_apart 2500mbit
start_minio "$objects" weir-bench

# run WHAT [OPTION…]: a bench, and its p99 behind WHAT.
run() {
  "$weir" bench steady --rate 50k --seconds 8 --warmup 4 --dir "$dir" "${@:2}" >"$dir/bench" 2>&1
  awk -v what="$1" '$1 == "confirm" { print what "," $3 }' "$dir/bench" | tee -a "$dir/p99"
}

# burn LONG: 30 % of a processor at nice 10 and 17 % at idle priority, that many times 0.2 ms at once.
burn() {
  "$beside" burn 10 $((200 * $1)) $((470 * $1)) 13 &
  "$beside" burn idle $((100 * $1)) $((500 * $1)) 13
  wait $!
}

short_turns() {
  local load
  sleep 3
  load=$(pgrep -f -- "steady .*--dir $dir")
  "$beside" turns "$load" 300
  "$beside" turns "$(pgrep -P "$load" -x weir)" 300
}

# with WHAT COMMAND…: a bench while COMMAND runs.
with() {
  "${@:2}" &
  local other=$!
  run "$1"
  wait "$other"
}

for _ in $(seq "${1:-6}"); do
  run "without a store"
  with "turns of 0.3 ms" short_turns
  with "processors for 20 ms at a time" burn 100
  with "processors for 0.2 ms at a time" burn 1
  with "reads of 12 KiB" "$beside" read "$dir/read" 12288 6500 13
  mkdir "$objects/folder"
  run "a folder" --object-store "file://$objects/folder"
  rm -rf "$objects/folder"
  run "a store that is apart" --object-store s3://weir-bench
done
say "p99 of confirms, us"
sort -t, -k1,1 -k2,2n "$dir/p99" | awk -F, '$1 != what { if (what) print ""; what = $1; printf "%s:", what } { printf " %d", $2 } END { print "" }'
