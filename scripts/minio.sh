# Sourced: an S3 of one's own, for as long as the script runs. need_minio comes first.
# shellcheck shell=bash

# start_minio DIRECTORY BUCKET: its data goes below the directory; clients find it by the environment. What it says: DIRECTORY/log.
start_minio() {
  local port=$((20000 + RANDOM % 10000))
  mkdir -p "$1/data/$2"
  export AWS_ACCESS_KEY_ID=weir-bench AWS_SECRET_ACCESS_KEY=weir-bench-secret AWS_REGION=us-east-1
  export AWS_ENDPOINT="http://127.0.0.1:$port" AWS_ALLOW_HTTP=true
  MINIO_ROOT_USER=$AWS_ACCESS_KEY_ID MINIO_ROOT_PASSWORD=$AWS_SECRET_ACCESS_KEY MINIO_UPDATE=off \
    "${MINIO:-$TOOLS/bin/minio}" server --quiet --address "127.0.0.1:$port" "$1/data" >"$1/log" 2>&1 </dev/null &
  minio_pid=$!
  await_start MinIO "$minio_pid" "$1/log" curl -sf -o /dev/null "$AWS_ENDPOINT/minio/health/ready"
}

stop_minio() {
  [ -n "${minio_pid:-}" ] || return 0
  kill "$minio_pid" 2>/dev/null || true
  wait "$minio_pid" 2>/dev/null || true
  minio_pid=
}
