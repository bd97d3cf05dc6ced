//! Which partitions retention must visit, and which entry is the oldest still needed, without asking every partition.

use std::collections::BTreeSet;

use weir_protocol::ids::{LogIndex, TimestampMs};

use super::dedupe::PartitionKey;
use super::partition::Marks;

/// The marks of all partitions, ordered. Follows from the partitions alone, so checkpoints do not hold it.
///
/// A publish to a partition that has records and stays within its limits changes no mark and costs nothing here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Floors {
    due: BTreeSet<(TimestampMs, PartitionKey)>,
    pins: BTreeSet<(LogIndex, PartitionKey)>,
    /// Bytes of the batches of all partitions.
    pub(super) bytes: u64,
    /// Of these, the bytes that no pack holds.
    pub(super) unsealed_bytes: u64,
}

impl Floors {
    /// A partition's marks changed, or it came (`before` is empty) or went (`after` is).
    pub(super) fn moved(&mut self, key: PartitionKey, before: Marks, after: Marks) {
        self.bytes = self.bytes - before.bytes + after.bytes;
        self.unsealed_bytes = self.unsealed_bytes - before.unsealed_bytes + after.unsealed_bytes;
        if before.due != after.due {
            before.due.map(|due| self.due.remove(&(due, key)));
            after.due.map(|due| self.due.insert((due, key)));
        }
        if before.pin != after.pin {
            before.pin.map(|pin| self.pins.remove(&(pin, key)));
            after.pin.map(|pin| self.pins.insert((pin, key)));
        }
    }

    /// Partitions with something to trim at `now`, longest due first.
    pub(super) fn due(&self, now: TimestampMs) -> impl Iterator<Item = PartitionKey> {
        self.due.iter().take_while(move |(due, _)| *due <= now).map(|(_, key)| *key)
    }

    /// Partitions with live records by their oldest entry, oldest first.
    pub(super) fn pins(&self) -> impl Iterator<Item = (LogIndex, PartitionKey)> {
        self.pins.iter().copied()
    }
}
