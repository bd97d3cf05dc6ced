# Sourced by scripts/bench-peers: servers with protocols of their own, each under its own load generator. Weir: binary WebSocket.
# Two shapes, 1 KiB of noise each: "alone", 64 under way, each message confirmed before its sender sends the next; and
# "pipelined", one connection with up to 1,024 under way (Kafka: as many as its producer likes).
# shellcheck shell=bash

# Weir's generator has a reader too, which gets every message at the same time and proves that none is lost.
weir_steady() {
  "$WEIR" --json bench steady --dir "$dir" --rate max --topics 1 --readers 1 --seconds "$each" --warmup 1 "$@" 2>"$dir/log" ||
    { tail -n 20 "$dir/log" >&2; die "weir bench failed"; }
}
weir_alone() { fresh; weir_steady --writers 64 --window 1 --batch 1 | keep weir "$alone" Weir "$(weir_version)" "synced before the confirm"; }
weir_pipelined() { fresh; weir_steady --writers 1 --window 1024 | keep weir "$pipelined" Weir "$(weir_version)" "synced before the confirm"; }
weir_beside_nats() { weir_alone; weir_pipelined; }
weir_beside_nats_default() { weir_alone; weir_pipelined; }
weir_beside_kafka() { weir_pipelined; }
weir_beside_kafka_default() { weir_pipelined; }
weir_beside_rabbitmq() { weir_alone; weir_pipelined; }

# nats NAME SETTING DURABILITY
nats() {
  fresh
  printf 'listen: "127.0.0.1:%s"\njetstream { store_dir: "%s", %s }\n' "$port" "$dir/data" "$2" >"$dir/nats.conf"
  serve "$TOOLS/bin/nats-server" -c "$dir/nats.conf"
  reachable "$port"
  local load=("$TOOLS/bin/bench-nats" -url "nats://127.0.0.1:$port" -pid "$pid" -seconds "$each")
  "${load[@]}" -outstanding 64 | keep weir "$alone" "$1" "$NATS_VERSION" "$3" command="bench-nats -outstanding 64"
  "${load[@]}" -outstanding 1024 | keep weir "$pipelined" "$1" "$NATS_VERSION" "$3" command="bench-nats -outstanding 1024"
}
peer_nats() { nats "NATS JetStream" "sync_interval: always" "sync_interval: always, synced before the confirm"; }
peer_nats_default() { nats "NATS JetStream, default" "max_file_store: 100GB" "its default: synced every 2 minutes, confirmed before"; }

# kafka NAME FLUSH-SETTING RECORDS DURABILITY
kafka() {
  fresh
  local java=(java -Xmx1g -cp "$PEERS/kafka/jars/*") version load before after
  version=$(kafka_version)
  cat >"$dir/kafka.properties" <<CONF
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:$((port + 1))
listeners=PLAINTEXT://127.0.0.1:$port,CONTROLLER://127.0.0.1:$((port + 1))
advertised.listeners=PLAINTEXT://127.0.0.1:$port
controller.listener.names=CONTROLLER
log.dirs=$dir/data
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
num.partitions=1
$2
CONF
  "${java[@]}" kafka.tools.StorageTool format -t MkU3OEVBNTcwNTJENDM2Qg -c "$dir/kafka.properties" >"$dir/log" 2>&1 || { cat "$dir/log" >&2; die "its storage could not be formatted"; }
  serve "${java[@]}" kafka.Kafka "$dir/kafka.properties"
  reachable "$port"
  load=("${java[@]}" org.apache.kafka.tools.ProducerPerformance --topic bench --record-size 1024 --throughput -1 --producer-props "bootstrap.servers=127.0.0.1:$port" acks=all)
  # The first also creates the topic.
  "${load[@]}" --num-records $(($3 / 5)) >"$dir/warm" 2>&1 || { cat "$dir/warm" >&2; die "the warm-up failed"; }
  before=$(server_cpu_us)
  "${load[@]}" --num-records "$3" >"$dir/out"
  after=$(server_cpu_us)
  keep kafka "$pipelined" "$1" "$version" "$4" cpu_us=$((after - before)) command="ProducerPerformance --record-size 1024 --throughput -1 acks=all" <"$dir/out"
}
peer_kafka() { kafka Kafka log.flush.interval.messages=1 $((each * 30000)) "log.flush.interval.messages=1, synced before the confirm"; }
peer_kafka_default() { kafka "Kafka, default" "" $((each * 60000)) "its default: the system writes when it likes, confirmed before"; }

peer_rabbitmq() {
  fresh
  : >"$dir/plugins"
  epmd_port=$((port + 1))
  serve env HOME="$dir" ERL_EPMD_PORT=$epmd_port RABBITMQ_NODENAME="peers$port@localhost" RABBITMQ_NODE_IP_ADDRESS=127.0.0.1 \
    RABBITMQ_NODE_PORT=$port RABBITMQ_DIST_PORT=$((port + 2)) RABBITMQ_MNESIA_BASE="$dir/data" RABBITMQ_LOG_BASE="$dir" \
    RABBITMQ_ENABLED_PLUGINS_FILE="$dir/plugins" RABBITMQ_CONFIG_FILE="$dir/none" RABBITMQ_PID_FILE="$dir/pid" \
    /usr/lib/rabbitmq/bin/rabbitmq-server
  reachable "$port"
  local version load durability="quorum queue, synced before the confirm"
  version="$(rabbitmq_version) (old: Debian's)"
  load=(java -cp "$PEERS/rabbitmq/jars/*" com.rabbitmq.perf.PerfTest -h "amqp://guest:guest@127.0.0.1:$port" --quorum-queue -s 1024 -y 0 -z "$each")
  "${load[@]}" -u alone -x 64 -c 1 2>&1 | keep rabbitmq "$alone" RabbitMQ "$version" "$durability" seconds="$each" command="PerfTest --quorum-queue -s 1024 -y 0 -x 64 -c 1"
  "${load[@]}" -u pipelined -x 1 -c 1024 2>&1 | keep rabbitmq "$pipelined" RabbitMQ "$version" "$durability" seconds="$each" command="PerfTest --quorum-queue -s 1024 -y 0 -x 1 -c 1024"
}
