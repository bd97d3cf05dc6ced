//! Where topics are at home: the meta group's table of slots.

use weir_protocol::error::ErrorCode;
use weir_protocol::ids::ShardId;
use weir_protocol::rpc::{Refusal, SlotRun};
use weir_protocol::slots::SLOTS;

use super::super::command::PutSlots;

/// The home shard of every slot.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SlotTable {
    /// Counts its changes; 0: nothing is placed yet.
    pub version: u32,
    /// Sorted runs that cover all slots.
    pub runs: Vec<SlotRun>,
}

impl SlotTable {
    /// Slots divided evenly over `shards`, in order.
    #[must_use]
    pub fn even(shards: &[ShardId]) -> Vec<SlotRun> {
        let count = u32::try_from(shards.len()).expect("shards are numbered in 32 bits");
        let share = |i: u32| u32::from(SLOTS) * i / count;
        let run =
            |(i, shard): (u32, &ShardId)| SlotRun { start: share(i), end: share(i + 1), shard: shard.0 };
        (0..count).zip(shards).map(run).collect()
    }

    /// Shards that are home to something, ascending.
    #[must_use]
    pub fn shards(&self) -> Vec<u32> {
        let mut shards: Vec<u32> = self.runs.iter().map(|run| run.shard).collect();
        shards.sort_unstable();
        shards.dedup();
        shards
    }

    /// Replaces the table.
    pub(super) fn put(&mut self, put: &PutSlots) -> Result<(), Refusal> {
        if put.expected_version != self.version {
            let refusal = Refusal::new(ErrorCode::VersionMismatch, "somebody else placed the slots");
            return Err(Refusal { config_version: Some(self.version), ..refusal });
        }
        if !is_complete(&put.runs) {
            return Err(Refusal::new(ErrorCode::InvalidConfig, "every slot has exactly one data shard"));
        }
        *self = Self { version: self.version + 1, runs: put.runs.clone() };
        Ok(())
    }

    /// A table from a checkpoint.
    pub(super) fn restored(version: u32, runs: Vec<SlotRun>) -> Option<Self> {
        let is_sound = if version == 0 { runs.is_empty() } else { is_complete(&runs) };
        is_sound.then_some(Self { version, runs })
    }
}

fn is_complete(runs: &[SlotRun]) -> bool {
    let mut covered = 0;
    for run in runs {
        if run.start != covered || run.end <= run.start || ShardId(run.shard) == ShardId::META {
            return false;
        }
        covered = run.end;
    }
    covered == u32::from(SLOTS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_placed_once_per_version_and_never_in_part() {
        let mut table = SlotTable::default();
        let shards = [1, 2, 3].map(ShardId);
        let put = |runs, expected_version| PutSlots { runs, expected_version };
        let mut holed = SlotTable::even(&shards);
        holed.remove(1);
        let meta = SlotTable::even(&[ShardId::META]);
        for wrong in [Vec::new(), holed, meta] {
            let refusal = table.put(&put(wrong, 0)).unwrap_err();
            assert_eq!(refusal.error_code(), ErrorCode::InvalidConfig);
        }
        table.put(&put(SlotTable::even(&shards), 0)).unwrap();
        assert_eq!((table.version, table.shards()), (1, vec![1, 2, 3]));
        let late = table.put(&put(SlotTable::even(&shards[..1]), 0)).unwrap_err();
        assert_eq!((late.error_code(), late.config_version), (ErrorCode::VersionMismatch, Some(1)));
    }
}
