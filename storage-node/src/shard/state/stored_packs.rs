//! Packs of a checkpoint.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use prost::Message;
use weir_protocol::ids::{LogIndex, Offset, Term};
use weir_protocol::rpc::U128;

use super::apply::ShardState;
use super::packs::{Pack, PackNo, Packs};
use super::partition::{Partition, Sealed};
use super::snapshot::SnapshotError;

/// In use or not: that follows from what refers to it.
#[derive(Clone, PartialEq, Message)]
pub(super) struct StoredPack {
    #[prost(uint64, tag = "1")]
    no: u64,
    #[prost(uint64, tag = "2")]
    first: u64,
    #[prost(uint64, tag = "3")]
    last: u64,
    #[prost(uint64, tag = "4")]
    term: u64,
    #[prost(message, required, tag = "5")]
    attempt: U128,
    #[prost(uint64, tag = "6")]
    bytes: u64,
    #[prost(uint64, tag = "7")]
    tail_bytes: u64,
    #[prost(fixed32, tag = "8")]
    crc32c: u32,
    #[prost(uint64, tag = "9")]
    batch_bytes: u64,
    #[prost(uint64, tag = "10")]
    pub(super) life_shift: u64,
}

/// Records of a partition in a pack.
#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct StoredSealed {
    #[prost(uint64, tag = "1")]
    pack: u64,
    #[prost(uint64, tag = "2")]
    end: u64,
}

impl ShardState {
    /// After its partitions and dead letters.
    pub(super) fn restore_packs(
        &mut self,
        newest: PackNo,
        stored: Vec<StoredPack>,
    ) -> Result<(), SnapshotError> {
        let wrong = |what: &str| SnapshotError::Contradiction(what.to_owned());
        let mut references = self.count_references();
        let mut packs = Packs { newest, live: BTreeMap::new(), unneeded: BTreeMap::new() };
        for stored in stored {
            let no = stored.no;
            let references = references.remove(&no).unwrap_or_default();
            let of = if references.0 > 0 { &mut packs.live } else { &mut packs.unneeded };
            if no > newest || of.insert(no, pack(stored, references)).is_some() {
                return Err(wrong("its packs are not numbered in order"));
            }
        }
        if !references.is_empty() {
            return Err(wrong("records are in a pack that it does not name"));
        }
        self.packs = Arc::new(packs);
        Ok(())
    }
}

/// All packs by number.
pub(super) fn stored_packs(packs: &Packs) -> impl Iterator<Item = StoredPack> {
    let all: BTreeMap<_, _> = packs.live.iter().chain(&packs.unneeded).collect();
    all.into_iter().map(|(no, pack)| StoredPack {
        no: *no,
        first: pack.first.0,
        last: pack.last.0,
        term: pack.term.0,
        attempt: pack.attempt.into(),
        bytes: pack.bytes,
        tail_bytes: pack.tail_bytes,
        crc32c: pack.crc32c,
        batch_bytes: pack.batch_bytes,
        life_shift: pack.life_shift,
    })
}

fn pack(stored: StoredPack, (references, living_bytes): (u64, u64)) -> Pack {
    Pack {
        first: LogIndex(stored.first),
        last: LogIndex(stored.last),
        term: Term(stored.term),
        attempt: stored.attempt.into(),
        bytes: stored.bytes,
        tail_bytes: stored.tail_bytes,
        crc32c: stored.crc32c,
        batch_bytes: stored.batch_bytes,
        life_shift: stored.life_shift,
        living_bytes,
        references,
    }
}

pub(super) fn stored_sealed(partition: &Partition) -> Vec<StoredSealed> {
    partition.sealed().iter().map(|sealed| StoredSealed { pack: sealed.pack, end: sealed.end.0 }).collect()
}

/// Their bytes are counted by whoever has the rows.
pub(super) fn sealed(stored: &[StoredSealed]) -> VecDeque<Sealed> {
    stored.iter().map(|stored| Sealed { pack: stored.pack, end: Offset(stored.end), bytes: 0 }).collect()
}
