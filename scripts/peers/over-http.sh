# Sourced by scripts/bench-peers: servers that take a message per POST. All get the same load from the same generator: wrk with
# 64 connections, one request under way on each, 1 KiB of noise, 64 streams in turn.
# shellcheck shell=bash
senders=64

# posts PATH FORM HEADER…: one second that warms up, then what counts. `{n}` in the path is the number of a stream.
posts() {
  local before after load=(wrk -t1 -c"$senders" --latency -s "$ROOT/scripts/peers/post.lua")
  "${load[@]}" -d1s "http://127.0.0.1:$port" -- "$senders" "$@" >"$dir/warm" || { cat "$dir/warm" >&2; die "the warm-up failed"; }
  before=$(server_cpu_us)
  "${load[@]}" -d"${each}s" "http://127.0.0.1:$port" -- "$senders" "$@" >"$dir/wrk" || { cat "$dir/wrk" >&2; die "wrk failed"; }
  after=$(server_cpu_us)
  printf 'server_cpu_us %d\n' $((after - before)) >>"$dir/wrk"
  cat "$dir/wrk"
}

# create PATH HEADER…: a PUT for each stream.
create() {
  local n headers=()
  for header in "${@:2}"; do headers+=(-H "$header"); done
  for n in $(seq 0 $((senders - 1))); do
    # A server that elects leaders first answers 503 for a moment.
    curl -sS -f -m 60 -o "$dir/created" --retry 20 --retry-delay 1 --retry-all-errors -X PUT "${headers[@]}" "http://127.0.0.1:$port${1//\{n\}/$n}" || { cat "$dir/log" >&2; die "a stream could not be created"; }
  done
}

weir_over_http() {
  fresh
  serve "$WEIR" dev --data-dir "$dir/data" --listen "127.0.0.1:$port" --journal-max 64GiB
  reachable "$port"
  create "/v1/topics/peers-{n}" "content-type: application/json"
  posts "/v1/topics/peers-{n}/messages" raw | keep wrk "$http_shape" Weir "$(weir_version)" "synced before the confirm"
}
weir_version() { "$WEIR" --version | cut -d' ' -f2; }
weir_beside_nginx() { weir_over_http; }
weir_beside_s2_lite() { weir_over_http; }
weir_beside_durable_streams() { weir_over_http; }
weir_beside_ursula() { weir_over_http; }

peer_nginx() {
  fresh
  cat >"$dir/nginx.conf" <<CONF
daemon off; worker_processes 2; pid $dir/nginx.pid; error_log $dir/nginx.log;
events { worker_connections 2048; }
http { access_log off; client_body_temp_path $dir/data; keepalive_requests 1000000000;
  server { listen 127.0.0.1:$port; location / { return 204; } } }
CONF
  serve nginx -c "$dir/nginx.conf" -e "$dir/nginx.log"
  reachable "$port"
  posts "/{n}" raw | keep wrk "$http_shape" "nginx, empty 204" "$(nginx -v 2>&1 | sed 's|.*/||; s| .*||')" "keeps nothing: the ceiling of HTTP and the generator"
}

peer_s2_lite() {
  fresh
  local streams
  streams=$(seq -s, 0 $((senders - 1)) | sed -E 's/([0-9]+)/{"name":"peers-\1"}/g')
  printf '{"basins":[{"name":"peers-bench","streams":[%s]}]}' "$streams" >"$dir/s2.json"
  RUST_LOG=error serve "$TOOLS/bin/s2" lite --port "$port" --local-root "$dir/data" --init-file "$dir/s2.json"
  reachable "$port"
  posts "/v1/streams/peers-{n}/records" s2 "content-type: application/json" "s2-basin: peers-bench" "s2-format: base64" |
    keep wrk "$http_shape" "S2 Lite" "$S2_VERSION" "synced every 5 ms, before the confirm"
}

peer_durable_streams() {
  fresh
  DS_SERVER__BIND_ADDRESS="127.0.0.1:$port" DS_STORAGE__MODE=file-durable DS_STORAGE__DATA_DIR="$dir/data" RUST_LOG=error \
    DS_LIMITS__MAX_MEMORY_BYTES=17179869184 DS_LIMITS__MAX_STREAM_BYTES=4294967296 serve "$TOOLS/bin/durable-streams-server"
  reachable "$port"
  create "/v1/stream/peers-{n}" "content-type: application/octet-stream"
  posts "/v1/stream/peers-{n}" raw "content-type: application/octet-stream" |
    keep wrk "$http_shape" durable-streams-server "$DURABLE_STREAMS_VERSION" "file-durable: synced before the confirm"
}

peer_ursula() {
  fresh
  cat >"$dir/ursula.toml" <<CONF
[server]
listen = "127.0.0.1:$port"
admin_listen = "127.0.0.1:$((port + 1))"
cluster_id = "peers"
[raft]
node_id = 1
group_count = 4
[[raft.peers]]
node_id = 1
url = "http://127.0.0.1:$port"
[raft.wal]
path = "$dir/data"
fsync = "always"
CONF
  RUST_LOG=error serve "$TOOLS/bin/ursula" server --config "$dir/ursula.toml"
  reachable "$port"
  curl -sS -f -m 60 -o "$dir/created" --retry 20 --retry-delay 1 --retry-all-errors -X PUT "http://127.0.0.1:$port/peers" || { cat "$dir/log" >&2; die "the bucket could not be created"; }
  create "/peers/s{n}" "content-type: application/octet-stream"
  posts "/peers/s{n}" raw "content-type: application/octet-stream" |
    keep wrk "$http_shape" Ursula "$URSULA_VERSION" "one node, fsync = always: synced before the confirm"
}
