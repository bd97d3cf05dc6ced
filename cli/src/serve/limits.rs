//! What a process holds at most, in one line of its log: who reads it knows where each refusal begins.

use weir_gateway::GatewayConfig;
use weir_storage_node::Limits;

use crate::limit::size;

/// Logs a node's limits.
pub(super) fn log_node(limits: &Limits) {
    tracing::info!(
        journal = %journal(limits.journal_bytes),
        journal_admitted = %size(limits.admitted_bytes),
        journal_queue = %size(limits.queue_bytes),
        journal_memory = %size(limits.memory_bytes),
        journal_index = %size(limits.index_bytes),
        tail_ring = %size(limits.tail_ring_bytes as u64),
        staged = %size(limits.staged_bytes as u64),
        outbox_rows_per_shard = limits.outbox_rows,
        outputs_per_shard = limits.output_rows,
        output_bytes_per_shard = %size(limits.output_bytes),
        dead_letters_per_shard = limits.dead_letters,
        dedupe_rows_per_shard = limits.dedupe_rows,
        "limits of the storage node"
    );
}

/// Logs a gateway's limits.
pub(super) fn log_gateway(config: &GatewayConfig) {
    tracing::info!(
        connections = config.connections_max,
        record = %size(config.record_bytes_max as u64),
        requests = %size(config.request_bytes_max as u64),
        answers = %size(config.answer_bytes_max),
        publishes = %size(config.publish_bytes_max as u64),
        read_credit = %size(config.read_credit_bytes_max),
        feeds = %size(config.feed_bytes_max),
        topics = config.topics_max,
        handshake_ms = %config.limits.handshake_time_max.as_millis(),
        "limits of the gateway"
    );
}

fn journal(bytes: u64) -> String {
    if bytes >= u64::MAX / 2 { "unlimited".to_owned() } else { size(bytes) }
}
