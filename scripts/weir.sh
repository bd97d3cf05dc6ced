# Sourced: a `weir dev` of one's own on a free loopback port, for as long as the script runs.
# shellcheck shell=bash

# start_weir PROGRAM DIRECTORY [OPTION…]: `weir_url` and `weir_pid` are its. Data and what it says are below DIRECTORY.
start_weir() {
  local program=$1 below=$2 _
  shift 2
  rm -f "$below/ready"
  "$program" dev --data-dir "$below/data" --listen 127.0.0.1:0 --ready-file "$below/ready" "$@" >"$below/log" 2>&1 </dev/null &
  weir_pid=$!
  for _ in $(seq 300); do
    # shellcheck disable=SC2034 # for whoever sources this
    [ ! -s "$below/ready" ] || { weir_url=$(cat "$below/ready"); return 0; }
    kill -0 "$weir_pid" 2>/dev/null || break
    sleep 0.1
  done
  tail -n 20 "$below/log" >&2
  die "weir dev did not get ready; what it says stands above."
}

# Ended as an operator ends it; whether it ended well is what this returns.
stop_weir() {
  [ -n "${weir_pid:-}" ] || return 0
  local pid=$weir_pid
  weir_pid=
  kill "$pid" 2>/dev/null || true
  wait "$pid"
}
