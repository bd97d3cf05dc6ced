//! Purges: what a build that forgets dead letters adds to a log.

use bytes::Bytes;
use weir_protocol::ids::{Incarnation, Offset, PartitionId, TimestampMs};
use weir_protocol::rpc::PartRef;

use super::super::super::command::{Change, ChangePart};
use super::super::super::entry::{EntryBuilder, SubBatch};
use super::super::ShardState;
use super::{SHARD, apply, command, joined, life, log};
use crate::subscription::{Dead, Fence, Forgotten, Moment, Part, PartEvent, Seek};

const LOG: &[u8] = include_bytes!("v7-purged.log");
const CHECKPOINT: &[u8] = include_bytes!("v7-purged.checkpoint");
/// Two parts, with the names of what stood before their last purges.
const PURGED: [(u64, u32, u64); 2] = [(6, 1, 32), (7, 0, 35)];

fn change((subscription, partition): (u64, u32), event: &PartEvent) -> SubBatch {
    let part = PartRef { subscription: life(subscription), incarnation: life(2), partition };
    let event = event.encode().into();
    command(Change::ChangePart(ChangePart { part, event, keeps_past: true, ..ChangePart::default() }))
}

fn moved(to: u64, keep_as: u64, back_to: u64, forgotten: Option<Forgotten>) -> PartEvent {
    let seek = Some(Seek { to: Offset(to), fence: Fence(5 << 32), keep_as, back_to });
    PartEvent { seek, forgotten, ..PartEvent::default() }
}

fn dead(offsets: &[u64]) -> PartEvent {
    let dead = |offset: &u64| Dead { offset: Offset(*offset), attempts: 1, reason: "no".into() };
    PartEvent { dead: offsets.iter().map(dead).collect(), ..PartEvent::default() }
}

/// The log of this version, and what comes after it.
fn written() -> Vec<u8> {
    let mut entries = log();
    let mut entry = EntryBuilder::new(TimestampMs(122_000), 0);
    let all = Some(Forgotten { keep_as: 0 });
    let of_dead = |keep_as| PartEvent { forgotten: Some(Forgotten { keep_as }), ..PartEvent::default() };
    let (one, two) = ((6, 1), (7, 0));
    for sub in [
        change(one, &of_dead(29)),
        change(one, &moved(0, 30, 0, None)),
        change(one, &dead(&[12, 14])),
        change(one, &moved(30, 31, 0, all)),
        change(one, &moved(0, 0, 99, all)), // goes back to nothing, and forgets all the same
        change(one, &moved(0, 32, 31, None)),
        change(one, &moved(0, 36, 29, None)), // takes back a purge of dead letters, but it was moved since
        change(two, &moved(0, 33, 0, None)),
        change(two, &dead(&[9, 10])),
        change(two, &of_dead(34)),
        change(two, &dead(&[11])),
        change(two, &moved(0, 35, 34, None)),
    ] {
        entry.push(&sub);
    }
    entries.push(entry.build());
    joined(&entries)
}

fn part(state: &ShardState, subscription: u64, partition: u32) -> &Part {
    let key = (Incarnation(life(2)), PartitionId(partition));
    &state.parts().get(&(Incarnation(life(subscription)), key)).unwrap().part
}

#[test]
fn a_log_with_purges_leads_to_its_checkpoint() {
    let written = written();
    let (state, verdicts) = apply(&written);
    if let Ok(dir) = std::env::var("WEIR_GOLDEN_DIR") {
        std::fs::write(format!("{dir}/v7-purged.log"), &written).unwrap();
        std::fs::write(format!("{dir}/v7-purged.checkpoint"), state.encode()).unwrap();
        return;
    }
    assert!(written == LOG, "this build writes another log");
    assert!(state.encode() == CHECKPOINT, "this build applies the log differently");
    let again = ShardState::decode(SHARD, &Bytes::from_static(CHECKPOINT)).unwrap();
    for state in [state, again] {
        state.check();
        let dead = PURGED.map(|(subscription, partition, name)| {
            let part = part(&state, subscription, partition);
            let before = part.stood(Moment::Before(name), Offset(0), state.last_ts()).unwrap().part;
            assert!(part.can_go_back(name) && !part.can_go_back(29));
            (part.given_up_from(Offset(0)).collect::<Vec<_>>(), before.given_up())
        });
        let offsets = |offsets: &[u64]| offsets.iter().copied().map(Offset).collect::<Vec<_>>();
        assert_eq!(dead, [(offsets(&[12, 14]), 0), (offsets(&[9, 10, 11]), 1)], "{verdicts:?}");
    }
}

#[test]
fn a_checkpoint_that_knows_dead_letters_beyond_the_partition_is_refused() {
    let mut stored = CHECKPOINT.to_vec();
    // What was dead right after the last purge was undone: a bitmap of 9, 10 and 11, in one container.
    let bitmap = [9, 0, 10, 0, 11, 0];
    let at = stored.windows(bitmap.len()).rposition(|bytes| bytes == bitmap).unwrap();
    stored[at + 5] = 0x70;
    let refused = ShardState::decode(SHARD, &stored.into()).unwrap_err().to_string();
    assert!(refused.contains("what stood before"), "{refused}");
}
