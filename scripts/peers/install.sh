# Sourced by scripts/bench-peers: installs what Weir is compared with, once, into .cache/.
# shellcheck shell=bash
PEERS="$ROOT/.cache/peers"

need_nats() {
  local have="$NATS_VERSION $(cksum <"$ROOT/scripts/peers/nats/main.go")"
  [ "$(cat "$TOOLS/nats.version" 2>/dev/null)" = "$have" ] && return 0
  GO_MIN=1.26 need_go
  say "building NATS $NATS_VERSION and its load generator (once, about a minute)"
  mkdir -p "$TOOLS/bin"
  GOBIN="$TOOLS/bin" GOFLAGS=-modcacherw go install "github.com/nats-io/nats-server/v2@v$NATS_VERSION" || die "NATS could not be built."
  (cd "$ROOT/scripts/peers/nats" && GOFLAGS=-modcacherw go build -o "$TOOLS/bin/bench-nats" .) || die "its load generator could not be built."
  echo "$have" >"$TOOLS/nats.version"
}

# jars NAME: the jars that scripts/peers/NAME.pom.xml names.
jars() {
  [ "$PEERS/$1/complete" -nt "$ROOT/scripts/peers/$1.pom.xml" ] && return 0
  need_packages mvn:maven java:default-jre-headless
  say "downloading $1 (once)"
  mvn -q -B -f "$ROOT/scripts/peers/$1.pom.xml" dependency:copy-dependencies -DoutputDirectory="$PEERS/$1/jars" || die "$1 could not be downloaded; what Maven says stands above."
  touch "$PEERS/$1/complete"
}

need_kafka() {
  KAFKA_VERSION=$(sed -n 's|.*<kafka.version>\(.*\)</kafka.version>.*|\1|p' "$ROOT/scripts/peers/kafka.pom.xml")
  jars kafka
}

need_rabbitmq() {
  [ -x /usr/lib/rabbitmq/bin/rabbitmq-server ] || need_packages rabbitmq-server:rabbitmq-server
  jars rabbitmq
}
