#!/usr/bin/env bash
# What a server reaches that only passes bytes on from MinIO to a client on the same machine: nginx, beside getting the same objects
# from MinIO itself, four at a time, in turns. Half a minute; prints MiB/s of both and their ratio, and the processors' share.
. "$(dirname "$0")/../../../scripts/setup.sh"
. "$ROOT/scripts/minio.sh"
need_packages curl:curl nginx:nginx-light
need_minio
dir=$(mktemp -d "$ROOT/.cache/proxy-XXXXXX")
trap 'stop_minio; [ -z "${proxy:-}" ] || kill "$proxy"; rm -rf "$dir"' EXIT
start_minio "$dir" open
auth=(--aws-sigv4 aws:amz:us-east-1:s3 --user "$AWS_ACCESS_KEY_ID:$AWS_SECRET_ACCESS_KEY")
policy='{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::open/*"}]}'
digest=$(printf %s "$policy" | sha256sum | cut -d' ' -f1)
curl -sf "${auth[@]}" -H "x-amz-content-sha256: $digest" -X PUT -d "$policy" "$AWS_ENDPOINT/open?policy="
head -c 64M /dev/urandom >"$dir/object"
for n in 1 2 3 4; do curl -sf "${auth[@]}" -T "$dir/object" "$AWS_ENDPOINT/open/$n"; done
through=http://127.0.0.1:$((30000 + RANDOM % 10000))
cat >"$dir/nginx.conf" <<CONF
daemon off; worker_processes 2; pid $dir/nginx.pid; error_log $dir/nginx.log;
events { worker_connections 64; }
http {
  access_log off;
  upstream store { server ${AWS_ENDPOINT#http://}; keepalive 8; }
  server {
    listen ${through#http://};
    location / {
      proxy_pass http://store; proxy_http_version 1.1; proxy_set_header Connection "";
      proxy_buffers 16 128k; proxy_buffer_size 128k; proxy_busy_buffers_size 256k; proxy_max_temp_file_size 0;
    }
  }
}
CONF
nginx -c "$dir/nginx.conf" -e "$dir/nginx.log" & proxy=$!
await_start nginx "$proxy" "$dir/nginx.log" curl -sf -o /dev/null -r 0-0 "$through/open/1"

# get URL: MiB/s of 32 objects, four at a time, and how busy both processors were.
get() {
  local began busy total
  read -r _ user nice system idle iowait irq softirq steal _ </proc/stat
  busy=$((user + nice + system + irq + softirq + steal)) total=$((busy + idle + iowait)) began=$(date +%s%N)
  curl -sf --no-progress-meter --parallel --parallel-max 4 -o /dev/null "$1/open/[1-4]" -o /dev/null "$1/open/[1-4]?2" \
    -o /dev/null "$1/open/[1-4]?3" -o /dev/null "$1/open/[1-4]?4" -o /dev/null "$1/open/[1-4]?5" -o /dev/null "$1/open/[1-4]?6" \
    -o /dev/null "$1/open/[1-4]?7" -o /dev/null "$1/open/[1-4]?8"
  rate=$((32 * 64 * 1000000000 / ($(date +%s%N) - began)))
  read -r _ user nice system idle iowait irq softirq steal _ </proc/stat
  share=$((100 * (user + nice + system + irq + softirq + steal - busy) / (user + nice + system + irq + softirq + steal + idle + iowait - total)))
}

for _ in 1 2 3 4; do
  get "$AWS_ENDPOINT"; bare=$rate bare_share=$share
  get "$through"
  echo "from MinIO $bare MiB/s ($bare_share % of the processors), through nginx $rate MiB/s ($share %): $((100 * rate / bare)) %"
done
