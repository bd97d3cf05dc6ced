//! Which packs of the object store hold records of this shard: decided by the log, like everything here.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::sync::Arc;

use weir_protocol::error::ErrorCode;
use weir_protocol::ids::{Incarnation, LogIndex, Offset, PartitionId, Term};
use weir_protocol::rpc::Refusal;

use super::super::command::{Rewrite, Seal, SealedPart};
use super::apply::{Applied, ShardState, Verdict};
use super::cow_map::CowMap;
use super::dedupe::PartitionKey;
use super::partition::Partition;
use super::rows::BatchRow;

/// Number of a pack in its shard, from 1, in the order in which they were committed.
pub type PackNo = u64;

/// A pack that was committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pack {
    /// First entry that it has batches of.
    pub first: LogIndex,
    /// Last one.
    pub last: LogIndex,
    /// Term of the leader that made it.
    pub term: Term,
    /// The rest of its name.
    pub attempt: u128,
    /// Its bytes.
    pub bytes: u64,
    /// Bytes at its end that hold its footer.
    pub tail_bytes: u64,
    /// CRC-32C of all of them.
    pub crc32c: u32,
    /// Bytes of the batches in it, as the log held them; 0 if it was committed by a build that did not count them.
    pub batch_bytes: u64,
    /// It was written under lives that are lower by this: restores give new ones, and packs stay as they are.
    pub life_shift: u64,
    /// Of the batches' bytes, those that partitions still refer to; follows from them.
    pub living_bytes: u64,
    /// Runs of partitions, and dead letters, that refer to it; follows from them.
    pub(super) references: u64,
}

/// Something refers to less of a pack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Released {
    pub(super) pack: PackNo,
    /// Bytes of batches that it referred to.
    pub(super) bytes: u64,
    /// It does not refer to the pack any more.
    pub(super) is_whole: bool,
}

impl Pack {
    /// Less than `share`, in thousandths, of its batches' bytes are referred to, but some are.
    #[must_use]
    pub fn is_mostly_dead(&self, share_permille: u64) -> bool {
        // Where the batches were not counted the object's own bytes stand for them.
        let all = if self.batch_bytes == 0 { self.bytes } else { self.batch_bytes };
        let (living, all) = (u128::from(self.living_bytes), u128::from(all));
        living > 0 && living * 1_000 < all * u128::from(share_permille)
    }

    fn committed(seal: &Seal) -> Self {
        Self {
            first: LogIndex(seal.first),
            last: LogIndex(seal.last),
            term: Term(seal.term),
            attempt: seal.attempt.into(),
            bytes: seal.bytes,
            tail_bytes: seal.tail_bytes,
            crc32c: seal.crc32c,
            batch_bytes: seal.batch_bytes,
            life_shift: 0,
            living_bytes: 0,
            references: 0,
        }
    }
}

/// The packs of a shard.
///
/// A pack is *live* while a partition or a dead letter refers to it, then *unneeded* until its object is known to be
/// deleted. No number is given twice.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Packs {
    /// Number of the newest; 0 before the first.
    pub(super) newest: PackNo,
    pub(super) live: BTreeMap<PackNo, Pack>,
    pub(super) unneeded: BTreeMap<PackNo, Pack>,
}

impl Packs {
    /// A pack that something refers to.
    #[must_use]
    pub fn get(&self, no: PackNo) -> Option<&Pack> {
        self.live.get(&no)
    }

    /// Number of the newest; 0 before the first.
    #[must_use]
    pub fn newest(&self) -> PackNo {
        self.newest
    }

    /// Packs in use, by number.
    pub fn live(&self) -> impl Iterator<Item = (PackNo, &Pack)> {
        self.live.iter().map(|(no, pack)| (*no, pack))
    }

    /// Packs whose objects may be deleted, by number.
    pub fn unneeded(&self) -> impl Iterator<Item = (PackNo, &Pack)> {
        self.unneeded.iter().map(|(no, pack)| (*no, pack))
    }

    /// True if the object of this name belongs to a pack, in use or not.
    #[must_use]
    pub fn has_attempt(&self, attempt: u128) -> bool {
        self.live.values().chain(self.unneeded.values()).any(|pack| pack.attempt == attempt)
    }

    /// A new pack, to which somebody is about to refer.
    fn add(&mut self, pack: Pack) -> PackNo {
        self.newest += 1;
        self.live.insert(self.newest, pack);
        self.newest
    }

    /// Something more refers to a pack in use.
    pub(super) fn refer(&mut self, no: PackNo, bytes: u64) {
        let pack = self.live.get_mut(&no).expect("whoever refers to a pack found it in use");
        pack.references += 1;
        pack.living_bytes += bytes;
    }

    /// Something refers to less of it.
    pub(super) fn release(&mut self, released: &Released) {
        let no = released.pack;
        let pack = self.live.get_mut(&no).expect("a pack that is referred to is in use");
        pack.living_bytes -= released.bytes;
        pack.references -= u64::from(released.is_whole);
        if pack.references == 0 {
            let pack = self.live.remove(&no).expect("looked up just now");
            self.unneeded.insert(no, pack);
        }
    }

    /// What refers to those in use was counted anew.
    pub(super) fn recount(&mut self, references: &BTreeMap<PackNo, (u64, u64)>) {
        for (no, pack) in &mut self.live {
            (pack.references, pack.living_bytes) = references.get(no).copied().unwrap_or_default();
            assert!(pack.references > 0, "pack {no} is in use and nothing refers to it");
        }
    }

    /// Their objects are gone.
    pub(super) fn forget(&mut self, numbers: &[PackNo]) {
        self.unneeded.retain(|no, _| !numbers.contains(no));
    }
}

impl ShardState {
    /// A pack is in the store and verified: from here on its records may leave the log.
    ///
    /// # Errors
    /// `tail_mismatch` if it does not continue what is sealed, or nothing in it is needed; nothing is changed then, and
    /// the object is nobody's.
    pub(super) fn seal(&mut self, seal: &Seal, applied: &mut Applied) -> Result<Verdict, Refusal> {
        let refused = |detail: &str| Refusal::new(ErrorCode::TailMismatch, detail);
        let mut sealed = Vec::new();
        for part in &seal.parts {
            let key = key_of(part);
            // A topic that was deleted meanwhile needs nothing.
            let Some(partition) = self.partitions.get(&key) else { continue };
            let from = partition.unsealed_from();
            if part.start > from.0 || part.end > partition.end.0 || part.start > part.end {
                return Err(refused("the pack does not continue what is sealed"));
            }
            if part.end > from.0 {
                sealed.push((key, Offset(part.end)));
            }
        }
        if sealed.is_empty() {
            return Err(refused("nothing in the pack is needed"));
        }
        let no = Arc::make_mut(&mut self.packs).add(Pack::committed(seal));
        for (key, end) in sealed {
            let (mut bytes, mut from) = (0, end);
            self.change(key, |partition| {
                from = partition.unsealed_from();
                bytes = partition.seal(no, end);
                Vec::new()
            });
            Arc::make_mut(&mut self.packs).refer(no, bytes);
            self.pack_letters(key, from..end, no, applied);
        }
        Ok(Verdict::Done)
    }

    /// A pack that holds what is needed of older ones takes their place, where they are still what its maker saw.
    ///
    /// # Errors
    /// `tail_mismatch` if a partition has its records elsewhere than in the packs that are replaced, or would
    /// have some of a run there and some here, or would be compacted behind what is not or though its topic
    /// is not to be, or if nothing in it is needed; nothing is changed then, and the object is nobody's.
    pub(super) fn rewrite(&mut self, rewrite: &Rewrite) -> Result<Verdict, Refusal> {
        let refused = |detail: &str| Refusal::new(ErrorCode::TailMismatch, detail);
        let replaced: BTreeSet<PackNo> = rewrite.replaced.iter().copied().collect();
        let mut swaps = BTreeMap::new();
        for part in &rewrite.pack.parts {
            let key = key_of(part);
            let Some(partition) = self.partitions.get(&key) else { continue };
            if part.end <= partition.start.0 {
                continue;
            }
            let runs = partition.runs_within(Offset(part.start)..Offset(part.end), &replaced);
            let runs =
                runs.ok_or_else(|| refused("records lie elsewhere than in the packs that are replaced"))?;
            if swaps.insert(key, runs).is_some() {
                return Err(refused("the pack names a partition twice"));
            }
        }
        if swaps.is_empty() {
            return Err(refused("nothing in the pack is needed"));
        }
        let compacted = self.compacted(rewrite)?;
        let no = Arc::make_mut(&mut self.packs).add(Pack::committed(&rewrite.pack));
        for (key, runs) in swaps {
            let (mut moved, mut bytes) = (Vec::new(), 0);
            self.change(key, |partition| {
                (moved, bytes) = partition.swap(runs, no);
                if let Some(upto) = compacted.get(&key) {
                    partition.compacted(*upto);
                }
                Vec::new()
            });
            Arc::make_mut(&mut self.packs).refer(no, bytes);
            self.release_packs(&moved);
        }
        Ok(Verdict::Done)
    }

    /// How far a rewrite compacts partitions. Each from the front: whoever says that a partition is compacted
    /// up to somewhere says it of everything before.
    fn compacted(&self, rewrite: &Rewrite) -> Result<BTreeMap<PartitionKey, Offset>, Refusal> {
        let refused = |detail: &str| Refusal::new(ErrorCode::TailMismatch, detail);
        let mut compacted = BTreeMap::new();
        for said in &rewrite.compacted {
            let key = (Incarnation(said.incarnation), PartitionId(said.partition));
            let part = rewrite.pack.parts.iter().find(|part| key_of(part) == key);
            let part = part.filter(|part| said.upto <= part.end);
            let part = part.ok_or_else(|| refused("what is compacted is not in the pack"))?;
            if let Some(partition) = self.partitions.get(&key) {
                // Turned off while the copy was made.
                if !partition.config.compact_by_key {
                    return Err(refused("it is not to be compacted"));
                }
                if !partition.may_compact_from(Offset(part.start)) {
                    return Err(refused("what lies before it is not compacted"));
                }
            }
            compacted.insert(key, Offset(said.upto));
        }
        Ok(compacted)
    }

    /// All partitions, as of now, shared: whoever looks through them keeps nobody waiting.
    #[must_use]
    pub fn shared_partitions(&self) -> SharedPartitions {
        SharedPartitions(self.partitions.clone())
    }

    /// Packs that hold records of this shard.
    #[must_use]
    pub fn packs(&self) -> &Packs {
        &self.packs
    }

    /// The same, as of now, for whoever looks through them.
    #[must_use]
    pub fn shared_packs(&self) -> Arc<Packs> {
        Arc::clone(&self.packs)
    }

    /// The partitions with batches that no pack holds, oldest entry first, at most `most`: shared, so that
    /// whoever looks through them keeps apply waiting no longer than it takes to count them.
    #[must_use]
    pub fn unsealed(&self, most: usize) -> Vec<(PartitionKey, Arc<Partition>)> {
        let partition = |(_, key)| Some((key, Arc::clone(self.partitions.get(&key)?)));
        self.floors.pins().take(most).filter_map(partition).collect()
    }

    /// The oldest batch that no pack holds.
    #[must_use]
    pub fn oldest_unsealed(&self) -> Option<BatchRow> {
        self.oldest_unsealed_but(|_| false)
    }

    /// The same without these partitions.
    #[must_use]
    pub fn oldest_unsealed_but(&self, is_left_out: impl Fn(PartitionKey) -> bool) -> Option<BatchRow> {
        let (_, key) = self.floors.pins().find(|(_, key)| !is_left_out(*key))?;
        self.partitions.get(&key)?.oldest_unsealed()
    }

    /// References, and bytes referred to, that follow from partitions and dead letters.
    pub(super) fn count_references(&self) -> BTreeMap<PackNo, (u64, u64)> {
        let mut references: BTreeMap<PackNo, (u64, u64)> = BTreeMap::new();
        let runs = self.partitions.iter().flat_map(|(_, partition)| partition.sealed());
        let of_partitions = runs.map(|run| (run.pack, run.bytes));
        let of_letters = self.dead_letters.iter().filter_map(|letter| Some((letter.pack?, 0)));
        for (no, bytes) in of_partitions.chain(of_letters) {
            let counted = references.entry(no).or_default();
            *counted = (counted.0 + 1, counted.1 + bytes);
        }
        references
    }
}

/// The partitions of a shard as they were at one moment.
pub struct SharedPartitions(CowMap<PartitionKey, Arc<Partition>>);

impl SharedPartitions {
    /// All of them, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (PartitionKey, &Partition)> {
        self.0.iter().map(|(key, partition)| (*key, &**partition))
    }

    /// One of them.
    #[must_use]
    pub fn get(&self, key: PartitionKey) -> Option<&Partition> {
        self.0.get(&key).map(|partition| &**partition)
    }
}

/// Batches of one pack: 56 bytes of each are in memory while it is made.
const ROWS_MAX: usize = 1 << 20;

/// The oldest batches of `partitions` that no pack holds, in the order of the log, until their bytes reach
/// `bytes_max` or there are 1,048,576 of them; then sorted by partition and offset.
#[must_use]
pub fn oldest_batches(
    partitions: &[(PartitionKey, Arc<Partition>)],
    bytes_max: u64,
) -> Vec<(PartitionKey, BatchRow)> {
    let mut walks: Vec<_> =
        partitions.iter().map(|(key, of)| (*key, of.batches_from(of.unsealed_from()).peekable())).collect();
    let mut heads = BinaryHeap::new();
    for (at, (_, walk)) in walks.iter_mut().enumerate() {
        heads.extend(walk.peek().map(|row| Reverse((row.index, at))));
    }
    let (mut rows, mut bytes) = (Vec::new(), 0);
    while bytes < bytes_max
        && rows.len() < ROWS_MAX
        && let Some(Reverse((_, at))) = heads.pop()
    {
        let (key, walk) = &mut walks[at];
        let row = walk.next().expect("a head was seen");
        bytes += u64::from(row.len);
        rows.push((*key, row));
        heads.extend(walk.peek().map(|next| Reverse((next.index, at))));
    }
    rows.sort_unstable_by_key(|(key, row)| (*key, row.base_offset));
    rows
}

fn key_of(part: &SealedPart) -> PartitionKey {
    (Incarnation(part.incarnation), PartitionId(part.partition))
}
