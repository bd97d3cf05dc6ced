# Sourced by scripts/bench-peers: installs what Weir is compared with, once, into .cache/. Versions: scripts/versions.env, and of
# what comes as jars scripts/peers/*.pom.xml. Each need_PEER ends its shell with the reason if the peer is not to be had.
# shellcheck shell=bash
PEERS="$ROOT/.cache/peers"

need_nats() {
  local have="$NATS_VERSION $(cat "$ROOT"/scripts/peers/nats/* | cksum)"
  [ "$(cat "$TOOLS/nats.version" 2>/dev/null)" = "$have" ] && return 0
  GO_MIN=1.26 need_go "NATS and its load generator"
  say "building NATS $NATS_VERSION and its load generator (once, about a minute)"
  mkdir -p "$TOOLS/bin"
  GOBIN="$TOOLS/bin" GOFLAGS=-modcacherw go install "github.com/nats-io/nats-server/v2@v$NATS_VERSION" || die "NATS could not be built."
  (cd "$ROOT/scripts/peers/nats" && GOFLAGS=-modcacherw go build -o "$TOOLS/bin/bench-nats" .) || die "its load generator could not be built."
  echo "$have" >"$TOOLS/nats.version"
}
need_nats_default() { need_nats; }

# jars NAME: the jars that scripts/peers/NAME.pom.xml names.
jars() {
  need_packages java:default-jre-headless
  [ "$PEERS/$1/complete" -nt "$ROOT/scripts/peers/$1.pom.xml" ] && return 0
  need_packages mvn:maven
  say "downloading $1 (once)"
  mvn -q -B -f "$ROOT/scripts/peers/$1.pom.xml" dependency:copy-dependencies -DoutputDirectory="$PEERS/$1/jars" || die "$1 could not be downloaded; what Maven says stands above."
  touch "$PEERS/$1/complete"
}

need_kafka() { jars kafka; }
need_kafka_default() { need_kafka; }
kafka_version() { sed -n 's|.*<kafka.version>\(.*\)</kafka.version>.*|\1|p' "$ROOT/scripts/peers/kafka.pom.xml"; }

need_rabbitmq() {
  [ -x /usr/lib/rabbitmq/bin/rabbitmq-server ] || need_packages rabbitmq-server:rabbitmq-server
  jars rabbitmq
}
rabbitmq_version() { dpkg-query -W -f '${Version}' rabbitmq-server | cut -d- -f1; }

# crate NAME VERSION: its programs. What was compiled before an interruption is kept until all of it is.
crate() {
  [ "$(cat "$TOOLS/$1.version" 2>/dev/null)" = "$2" ] && return 0
  need_rust
  say "building $1 $2 (once, a quarter of an hour on two processors)"
  cargo install --quiet --locked --root "$TOOLS" --target-dir "$PEERS/target" "$1@$2" || die "$1 $2 could not be built."
  echo "$2" >"$TOOLS/$1.version"
}

need_http_load() { need_packages wrk:wrk curl:curl; }
need_nginx() { need_http_load; need_packages nginx:nginx-light; }
need_s2_lite() { need_http_load; crate s2-cli "$S2_VERSION"; }
need_durable_streams() { need_http_load; crate durable-streams-server "$DURABLE_STREAMS_VERSION"; }
need_ursula() { need_http_load; crate ursula "$URSULA_VERSION"; }
