# Sourced: a `weir dev` of one's own on a free loopback port, for as long as the script runs.
# shellcheck shell=bash

# start_weir PROGRAM DIRECTORY [OPTION…]: `weir_url` and `weir_pid` are its. Data and what it says are below DIRECTORY.
start_weir() {
  local program=$1 below=$2
  shift 2
  rm -f "$below/ready"
  "$program" dev --data-dir "$below/data" --listen 127.0.0.1:0 --ready-file "$below/ready" "$@" >"$below/log" 2>&1 </dev/null &
  weir_pid=$!
  await_start "weir dev" "$weir_pid" "$below/log" test -s "$below/ready"
  # shellcheck disable=SC2034 # for whoever sources this
  weir_url=$(cat "$below/ready")
}

# Ended as an operator ends it; whether it ended well is what this returns.
stop_weir() {
  [ -n "${weir_pid:-}" ] || return 0
  local pid=$weir_pid
  weir_pid=
  kill "$pid" 2>/dev/null || true
  wait "$pid"
}
