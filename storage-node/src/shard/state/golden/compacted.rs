//! Packs that leave records out: what a build that compacts adds to a log.

use std::ops::Range;

use bytes::Bytes;
use weir_protocol::ids::{Incarnation, Offset, PartitionId, TimestampMs};
use weir_protocol::rpc::TopicConfig;

use super::super::super::command::{Change, CompactedPart, Rewrite, UpdateTopic};
use super::super::super::entry::{EntryBuilder, SubBatch};
use super::super::ShardState;
use super::super::tests::{config, name};
use super::{SHARD, apply, command, joined, life, log, pack};

const LOG: &[u8] = include_bytes!("v7-compacted.log");
const CHECKPOINT: &[u8] = include_bytes!("v7-compacted.checkpoint");

fn compact(
    attempt: u128,
    parts: &[(u64, u32, Range<u64>)],
    replaced: &[u64],
    upto: (u64, u32, u64),
) -> SubBatch {
    let (counter, partition, upto) = upto;
    let compacted = vec![CompactedPart { incarnation: life(counter), partition, upto }];
    command(Change::Rewrite(Rewrite { pack: pack(attempt, parts), replaced: replaced.to_vec(), compacted }))
}

/// The log of this version, and what comes after it.
fn written() -> Vec<u8> {
    let mut entries = log();
    let mut entry = EntryBuilder::new(TimestampMs(62_000), 0);
    let config = TopicConfig { compact_by_key: true, ..config(2) };
    let update = UpdateTopic { name: name("clicks"), config, incarnation: life(2), expected_version: 1 };
    for sub in [
        compact(29, &[(2, 1, 9..20)], &[6], (2, 1, 17)), // it is not to be
        command(Change::UpdateTopic(update)),
        compact(30, &[(2, 1, 9..20)], &[6], (2, 1, 17)),
        compact(31, &[(2, 0, 8..12)], &[4], (2, 0, 13)), // beyond what is in the pack
        compact(32, &[(2, 0, 8..12)], &[4], (2, 1, 20)), // another partition
    ] {
        entry.push(&sub);
    }
    entries.push(entry.build());
    joined(&entries)
}

fn compacted_to(state: &ShardState, partition: u32) -> Offset {
    state.partition((Incarnation(life(2)), PartitionId(partition))).unwrap().compacted_to()
}

#[test]
fn a_log_with_compacted_packs_leads_to_its_checkpoint() {
    let written = written();
    let (state, verdicts) = apply(&written);
    if let Ok(dir) = std::env::var("WEIR_GOLDEN_DIR") {
        std::fs::write(format!("{dir}/v7-compacted.log"), &written).unwrap();
        std::fs::write(format!("{dir}/v7-compacted.checkpoint"), state.encode()).unwrap();
        return;
    }
    assert!(written == LOG, "this build writes another log");
    assert!(state.encode() == CHECKPOINT, "this build applies the log differently");
    let again = ShardState::decode(SHARD, &Bytes::from_static(CHECKPOINT)).unwrap();
    for state in [state, again] {
        state.check();
        assert_eq!(
            [0, 1].map(|partition| compacted_to(&state, partition)),
            [Offset(0), Offset(17)],
            "{verdicts:?}"
        );
    }
}

#[test]
fn a_checkpoint_that_is_compacted_beyond_its_packs_is_refused() {
    let mut stored = CHECKPOINT.to_vec();
    // Field 11 of a partition, compacted to 17.
    let at = stored.windows(2).rposition(|bytes| bytes == [11 << 3, 17]).unwrap();
    stored[at + 1] = 127;
    assert!(ShardState::decode(SHARD, &stored.into()).is_err());
}
