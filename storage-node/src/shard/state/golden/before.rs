//! What builds of earlier versions wrote: its meaning is fixed.

use bytes::Bytes;

use super::super::ShardState;
use super::{SHARD, apply};

/// Written by builds whose parts did not know which leases had ended; otherwise as [`V5`].
const V6: [(&[u8], &[u8]); 3] = [
    (include_bytes!("v6.log"), include_bytes!("v6.checkpoint")),
    (include_bytes!("v6-compacted.log"), include_bytes!("v6-compacted.checkpoint")),
    (include_bytes!("v6-purged.log"), include_bytes!("v6-purged.checkpoint")),
];
/// Written by builds whose dead letters all went in one order: without compaction and purges, with the one,
/// and with the other.
const V5: [(&[u8], &[u8]); 3] = [
    (include_bytes!("v5.log"), include_bytes!("v5.checkpoint")),
    (include_bytes!("v5-compacted.log"), include_bytes!("v5-compacted.checkpoint")),
    (include_bytes!("v5-purged.log"), include_bytes!("v5-purged.checkpoint")),
];
/// Written by a build whose subscriptions had one topic, and that did not rewrite packs.
const LOG_V4: &[u8] = include_bytes!("v4.log");
const CHECKPOINT_V4: &[u8] = include_bytes!("v4.checkpoint");
/// Written by a build that leased records as they came, and knew nothing of outputs and packs.
const LOG_V3: &[u8] = include_bytes!("v3.log");
const CHECKPOINT_V3: &[u8] = include_bytes!("v3.checkpoint");
/// Written by a build that knew nothing of subscriptions.
const LOG_V2: &[u8] = include_bytes!("v2.log");
const CHECKPOINT_V2: &[u8] = include_bytes!("v2.checkpoint");
/// Written by a build that knew nothing of other shards.
const LOG_V1: &[u8] = include_bytes!("v1.log");
const CHECKPOINT_V1: &[u8] = include_bytes!("v1.checkpoint");

#[test]
fn the_predecessors_logs_and_checkpoints_still_mean_the_same() {
    let before =
        [(LOG_V1, CHECKPOINT_V1), (LOG_V2, CHECKPOINT_V2), (LOG_V3, CHECKPOINT_V3), (LOG_V4, CHECKPOINT_V4)];
    for (log, checkpoint) in before.into_iter().chain(V5).chain(V6) {
        let (from_log, _) = apply(log);
        let from_checkpoint = ShardState::decode(SHARD, &Bytes::from_static(checkpoint)).unwrap();
        from_checkpoint.check();
        assert_eq!(from_log.encode(), from_checkpoint.encode());
    }
}
