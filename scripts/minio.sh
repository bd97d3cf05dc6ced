# Sourced: an S3 of one's own, for as long as the script runs. need_minio comes first.
# shellcheck shell=bash
minio_host='' minio_on=() minio_net=''

# move_minio_apart RATE: what is started from now on is as on a machine of its own, as far as one machine can have that: behind a
# link of that rate each way (as tc writes it: 2500mbit), and with a processor only while nobody else wants it. Needs root, ip and tc.
move_minio_apart() {
  local here="weir$$" shape=(tbf rate "$1" burst 1mb latency 20ms)
  minio_net="weir-store-$$"
  ip netns add "$minio_net" || die "no network of its own for the store: this needs root, and a kernel with network namespaces."
  ip link add "$here" type veth peer name store netns "$minio_net"
  ip address add 198.18.231.1/30 dev "$here"
  ip link set "$here" up
  ip -n "$minio_net" address add 198.18.231.2/30 dev store
  ip -n "$minio_net" link set lo up
  ip -n "$minio_net" link set store up
  tc qdisc add dev "$here" root "${shape[@]}"
  tc -n "$minio_net" qdisc add dev store root "${shape[@]}"
  minio_host=198.18.231.2 minio_on=(ip netns exec "$minio_net" chrt --idle 0)
}

# start_minio DIRECTORY BUCKET: its data goes below the directory; clients find it by the environment. What it says: DIRECTORY/log.
start_minio() {
  local port=$((20000 + RANDOM % 10000)) host=${minio_host:-127.0.0.1}
  mkdir -p "$1/data/$2"
  export AWS_ACCESS_KEY_ID=weir-bench AWS_SECRET_ACCESS_KEY=weir-bench-secret AWS_REGION=us-east-1
  export AWS_ENDPOINT="http://$host:$port" AWS_ALLOW_HTTP=true
  MINIO_ROOT_USER=$AWS_ACCESS_KEY_ID MINIO_ROOT_PASSWORD=$AWS_SECRET_ACCESS_KEY MINIO_UPDATE=off \
    "${minio_on[@]}" "${MINIO:-$TOOLS/bin/minio}" server --quiet --address "$host:$port" "$1/data" >"$1/log" 2>&1 </dev/null &
  minio_pid=$!
  await_start MinIO "$minio_pid" "$1/log" curl -sf -o /dev/null "$AWS_ENDPOINT/minio/health/ready"
}

stop_minio() {
  [ -n "${minio_pid:-}" ] || return 0
  kill "$minio_pid" 2>/dev/null || true
  wait "$minio_pid" 2>/dev/null || true
  minio_pid=
  # The link ends with it.
  [ -z "$minio_net" ] || ip netns delete "$minio_net"
  minio_net=
}
