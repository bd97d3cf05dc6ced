# Sourced by scripts/bench-peers: a directory and a server at a time, and what a run of it is kept as.
# shellcheck shell=bash
WEIR="${WEIR_BIN:-$TARGET_DIR/release/weir}"
alone="alone, 64 under way"
pipelined="pipelined, one connection"
http_shape="HTTP, 64 under way"
pid= epmd_port=

# A directory of its own on the disk to measure, and the first port that is tried.
workspace() {
  dir=$(mktemp -d "$ROOT/.cache/peers-XXXXXX")
  mkdir -p "$dir/results"
  port=$((20000 + RANDOM % 10000))
  trap 'stop; rm -rf "$dir"' EXIT
}

# What has not ended within half a minute, and what a server left behind, is killed.
stop() {
  [ -n "$pid" ] || return 0
  local _
  kill "$pid" 2>/dev/null || true
  for _ in $(seq 300); do kill -0 "$pid" 2>/dev/null || break; sleep 0.1; done
  kill -KILL -- "-$pid" 2>/dev/null || true
  wait "$pid" 2>/dev/null || true
  pid=
  # Erlang leaves its name server behind.
  [ -z "$epmd_port" ] || ERL_EPMD_PORT=$epmd_port epmd -kill >/dev/null 2>&1 || true
  epmd_port=
}

# The server before is ended, its data removed, and the next gets ports of its own: a stranger who listens there would be measured.
fresh() {
  stop
  rm -rf "${dir:?}/data"
  mkdir -p "$dir/data"
  port=$((port + 10))
  while listens "$port" || listens $((port + 1)) || listens $((port + 2)); do port=$((port + 10)); done
}

# serve COMMAND…: starts a server in a group of its own; `pid` is its process.
serve() { setsid "$@" >"$dir/log" 2>&1 </dev/null & pid=$!; }

# reachable PORT: waits until somebody listens there.
reachable() { await_start "the server on port $1" "$pid" "$dir/log" listens "$1"; }
listens() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# Processor time in microseconds that the server has used, the processes that it started included.
server_cpu_us() {
  { cat /proc/[0-9]*/stat 2>/dev/null || true; } | awk -v root="$pid" -v tick="$((1000000 / $(getconf CLK_TCK)))" '
    { id = $1; sub(/^.*\) /, ""); parent[id] = $2; used[id] = $12 + $13 }
    END { for (id in used) { for (at = id; at > 1 && at != root; at = parent[at]); if (at == root) sum += used[id] } printf "%d\n", sum * tick }'
}

# keep FORM SHAPE NAME VERSION DURABILITY [KEY=VALUE…]: what a load generator printed, as a result of this round.
keep() {
  node scripts/peers/result.mjs "$1" "$dir/results" beside="$beside" round="$round" shape="$2" name="$3" version="$4" durability="$5" "${@:6}"
}
