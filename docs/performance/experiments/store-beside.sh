#!/usr/bin/env bash
# What a store that works on the same two processors does to p99, whoever asks it: confirms without a store; without one while another
# program asks MinIO for what sealing would (store-beside.mjs); and while there is sealing to it. In turns, three rounds at 10,000/s and
# 50,000/s each; p99 in ms, sorted. Four minutes. Needs what scripts/release builds; with APART=1 MinIO is as far as in the set `apart`,
# which needs root.
. "$(dirname "$0")/../../../scripts/setup.sh"
. "$ROOT/scripts/minio.sh"
need_packages curl:curl
need_minio
weir="$TARGET_DIR/shipped/weir"
[ -x "$weir" ] || die "there is no $weir: scripts/release builds it"
dir=$(mktemp -d "$ROOT/.cache/beside-XXXXXX") objects=$dir
[ -z "${APART:-}" ] || objects=$(mktemp -d /dev/shm/weir-minio-XXXXXX)
trap 'stop_minio; [ -z "${other:-}" ] || kill "$other"; rm -rf "$dir" "$objects"' EXIT
[ -z "${APART:-}" ] || move_minio_apart 2500mbit
start_minio "$objects" weir-bench
mkdir -p "$objects/data/open"
policy='{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":"*","Action":["s3:GetObject","s3:PutObject"],"Resource":"arn:aws:s3:::open/*"}]}'
digest=$(printf %s "$policy" | sha256sum | cut -d' ' -f1)
curl -sf --aws-sigv4 aws:amz:us-east-1:s3 --user "$AWS_ACCESS_KEY_ID:$AWS_SECRET_ACCESS_KEY" -H "x-amz-content-sha256: $digest" \
  -X PUT -d "$policy" "$AWS_ENDPOINT/open?policy="

# p99 FILE RATE [OPTION…]: adds a line to FILE.
p99() {
  "$weir" bench steady --rate "$2" --seconds 8 --warmup 4 --dir "$dir" "${@:3}" | awk '$1 == "confirm" { print $3 / 1000 }' >>"$1"
}

for rate in 10 50; do
  for _ in 1 2 3; do
    p99 "$dir/without-$rate" "${rate}k"
    node "$(dirname "$0")/store-beside.mjs" "$AWS_ENDPOINT/open" "$((rate << 20))" & other=$!
    p99 "$dir/other-$rate" "${rate}k"
    kill "$other" || die "nobody asked the store"
    wait "$other" || true
    other=
    p99 "$dir/sealing-$rate" "${rate}k" --object-store s3://weir-bench
  done
  for which in without other sealing; do
    echo "$rate,000/s, $which: $(sort -n "$dir/$which-$rate" | tr '\n' ' ')"
  done
done
