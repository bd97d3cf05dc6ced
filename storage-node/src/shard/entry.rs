//! The payload of a Raft entry: batches of many partitions and the commands of the same moment.
//!
//! | offset | size | meaning (little-endian) |
//! |-------:|-----:|-------------------------|
//! | 0      | 2    | state version: which rules apply it |
//! | 2      | 2    | zero |
//! | 4      | 4    | number of sub-batches |
//! | 8      | 8    | time: milliseconds since the epoch, stamped by the proposer |
//! | 16     |      | sub-batches |
//!
//! A sub-batch:
//!
//! | offset | size | meaning |
//! |-------:|-----:|---------|
//! | 0      | 4    | bytes after this field |
//! | 4      | 8    | incarnation; 0 for the shard itself |
//! | 12     | 4    | partition |
//! | 16     | 1    | [`Kind`] |
//! | 17     | 1    | flags: 1 expected end, 2 idempotency key, 4 across (from state version 4 on) |
//! | 18     | 2    | zero |
//! | 20     | 8    | with flag 1: expected end |
//! |        | 32   | with flag 2: key, fingerprint |
//! |        | 12   | with flag 4: shard u32, number u64 |
//! |        |      | body: a record batch (publish, output) or a [`super::command`] message |

use bytes::{Buf, BufMut, Bytes, BytesMut};
use weir_protocol::ids::{Incarnation, Offset, PartitionId, ShardId, TimestampMs};
use weir_protocol::limits::ENTRY_BYTES_MAX;

/// Rules that this build writes. Apply dispatches on it; older ones stay readable.
///
/// - 1: topics lie in their home shard whole.
/// - 2: commands between shards, placement over shards, slots. A build that knows only 1 must not read them.
/// - 3: subscriptions, their parts, dead letters.
/// - 4: subscriptions with an order, a filter, fairness; outputs of settles, and their arrival; packs;
///   seeks that can be undone, dead letters that can be revived.
/// - 5: subscriptions to several topics and to all whose names begin alike; packs that take the place of others, and
///   count their batches.
/// - 6: dead letters of one topic keep those of no other waiting, and lie in the pack that takes their record.
/// - 7: leases that were replaced, or ended with a redrive, settle nothing with whatever leader.
pub const STATE_VERSION: u16 = 7;
const STATE_VERSION_MIN: u16 = 1;
/// Bytes before the first sub-batch.
pub const ENTRY_HEADER_BYTES: usize = 16;
/// Most bytes of sub-batches that one entry carries, as [`SubBatch::encoded_bytes`] counts them.
pub const SUB_BATCHES_BYTES_MAX: usize = ENTRY_BYTES_MAX - ENTRY_HEADER_BYTES;
/// What a permit asks for besides sub-batches: an entry's header, the journal's, and padding to a block.
pub const ENTRY_OVERHEAD_BYTES: usize = 4 << 10;
const SUB_HEADER_BYTES: usize = 20;
const FLAG_EXPECTED_END: u8 = 1;
const FLAG_IDEMPOTENCY: u8 = 2;
const FLAG_ACROSS: u8 = 4;

/// What a sub-batch does. Numbers are never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Appends a record batch to a partition.
    Publish = 1,
    /// Removes records below an offset.
    Trim = 7,
    /// Changes a topic, a namespace or the shard.
    Command = 10,
    /// A record batch that goes to another shard if the part's change before it is accepted.
    Output = 11,
}

/// An idempotency key and what it was used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Idempotency {
    /// Hash of the client's key.
    pub key: u128,
    /// Hash of what was published under it.
    pub fingerprint: u128,
}

/// The other shard of a record batch that goes from one shard to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Across {
    /// Of an output: where it goes. Of a publish: where it comes from.
    pub shard: ShardId,
    /// Of an output: what the leader that settles knows it by. Of a publish: its number among all that come from there.
    pub number: u64,
}

/// A sub-batch. The body shares the entry's memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubBatch {
    /// The topic's life, or [`Incarnation::SHARD`].
    pub incarnation: Incarnation,
    /// Partition.
    pub partition: PartitionId,
    /// What it does.
    pub kind: Kind,
    /// Only if the partition ends here.
    pub expected_end: Option<Offset>,
    /// Only once per key.
    pub idempotency: Option<Idempotency>,
    /// It goes from one shard to another.
    pub across: Option<Across>,
    /// A record batch or a command.
    pub body: Bytes,
}

impl SubBatch {
    /// A command for the shard itself.
    #[must_use]
    pub fn command(body: Bytes) -> Self {
        Self {
            incarnation: Incarnation::SHARD,
            partition: PartitionId(0),
            kind: Kind::Command,
            expected_end: None,
            idempotency: None,
            across: None,
            body,
        }
    }

    /// Bytes it takes in an entry.
    #[must_use]
    pub fn encoded_bytes(&self) -> usize {
        let optional = self.expected_end.map_or(0, |_| 8) + self.idempotency.map_or(0, |_| 32);
        let optional = optional + self.across.map_or(0, |_| 12);
        SUB_HEADER_BYTES + optional + self.body.len()
    }
}

/// Why bytes are not an entry. A committed entry that does not parse stops the shard: nothing is ever skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EntryError {
    /// Cut short.
    #[error("entry is cut short")]
    Truncated,
    /// Written by a newer build.
    #[error("entry has state version {0}; this build reads up to {STATE_VERSION}: use a newer Weir")]
    Version(u16),
    /// A kind, flag or reserved field that this build does not know.
    #[error("entry has an unknown {0}")]
    Unknown(&'static str),
}

/// Collects sub-batches into one buffer.
#[derive(Debug)]
pub struct EntryBuilder {
    bytes: BytesMut,
    count: u32,
}

impl EntryBuilder {
    /// An empty entry of time `ts`.
    #[must_use]
    pub fn new(ts: TimestampMs, capacity: usize) -> Self {
        let mut bytes = BytesMut::with_capacity(ENTRY_HEADER_BYTES + capacity);
        bytes.put_u16_le(STATE_VERSION);
        bytes.put_u16_le(0);
        bytes.put_u32_le(0);
        bytes.put_u64_le(ts.0);
        Self { bytes, count: 0 }
    }

    /// Adds a sub-batch; its body is copied once, here.
    pub fn push(&mut self, sub: &SubBatch) {
        let mut flags = 0;
        flags |= if sub.expected_end.is_some() { FLAG_EXPECTED_END } else { 0 };
        flags |= if sub.idempotency.is_some() { FLAG_IDEMPOTENCY } else { 0 };
        flags |= if sub.across.is_some() { FLAG_ACROSS } else { 0 };
        let len = u32::try_from(sub.encoded_bytes() - 4).expect("the proposer limits an entry");
        self.bytes.put_u32_le(len);
        self.bytes.put_u64_le(sub.incarnation.0);
        self.bytes.put_u32_le(sub.partition.0);
        self.bytes.put_u8(sub.kind as u8);
        self.bytes.put_u8(flags);
        self.bytes.put_u16_le(0);
        if let Some(end) = sub.expected_end {
            self.bytes.put_u64_le(end.0);
        }
        if let Some(idempotency) = sub.idempotency {
            self.bytes.put_u128_le(idempotency.key);
            self.bytes.put_u128_le(idempotency.fingerprint);
        }
        if let Some(across) = sub.across {
            self.bytes.put_u32_le(across.shard.0);
            self.bytes.put_u64_le(across.number);
        }
        self.bytes.extend_from_slice(&sub.body);
        self.count += 1;
    }

    /// The entry's payload.
    #[must_use]
    pub fn build(mut self) -> Bytes {
        self.bytes[4..8].copy_from_slice(&self.count.to_le_bytes());
        self.bytes.freeze()
    }
}

/// A parsed entry: its time, and its sub-batches with where their bodies start in the payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Rules that apply it.
    pub version: u16,
    /// Time of all its effects.
    pub ts: TimestampMs,
    /// What it does, in order.
    pub subs: Vec<(u32, SubBatch)>,
}

impl Entry {
    /// Takes a payload apart without copying bodies.
    ///
    /// # Errors
    /// [`EntryError`].
    pub fn parse(payload: &Bytes) -> Result<Self, EntryError> {
        let mut rest = payload.clone();
        if rest.len() < ENTRY_HEADER_BYTES {
            return Err(EntryError::Truncated);
        }
        let version = rest.get_u16_le();
        if !(STATE_VERSION_MIN..=STATE_VERSION).contains(&version) {
            return Err(EntryError::Version(version));
        }
        if rest.get_u16_le() != 0 {
            return Err(EntryError::Unknown("flag"));
        }
        let count = rest.get_u32_le();
        let ts = TimestampMs(rest.get_u64_le());
        let mut subs = Vec::with_capacity((count as usize).min(rest.len() / SUB_HEADER_BYTES));
        for _ in 0..count {
            let sub = take_sub(&mut rest)?;
            let at = payload.len() - rest.len() - sub.body.len();
            subs.push((u32::try_from(at).map_err(|_| EntryError::Truncated)?, sub));
        }
        if rest.is_empty() {
            Ok(Self { version, ts, subs })
        } else {
            Err(EntryError::Unknown("trailing bytes"))
        }
    }
}

fn take_sub(rest: &mut Bytes) -> Result<SubBatch, EntryError> {
    if rest.len() < SUB_HEADER_BYTES {
        return Err(EntryError::Truncated);
    }
    let len = rest.get_u32_le() as usize;
    if rest.len() < len || len < SUB_HEADER_BYTES - 4 {
        return Err(EntryError::Truncated);
    }
    let mut sub = rest.split_to(len);
    let (incarnation, partition) = (Incarnation(sub.get_u64_le()), PartitionId(sub.get_u32_le()));
    let (kind, flags, zero) = (sub.get_u8(), sub.get_u8(), sub.get_u16_le());
    let kind = match kind {
        1 => Kind::Publish,
        7 => Kind::Trim,
        10 => Kind::Command,
        11 => Kind::Output,
        _ => return Err(EntryError::Unknown("kind")),
    };
    if flags & !(FLAG_EXPECTED_END | FLAG_IDEMPOTENCY | FLAG_ACROSS) != 0 || zero != 0 {
        return Err(EntryError::Unknown("flag"));
    }
    let optional = usize::from(flags & FLAG_EXPECTED_END) * 8 + usize::from(flags & FLAG_IDEMPOTENCY) * 16;
    let optional = optional + usize::from(flags & FLAG_ACROSS) * 3;
    if sub.len() < optional {
        return Err(EntryError::Truncated);
    }
    let expected_end = (flags & FLAG_EXPECTED_END != 0).then(|| Offset(sub.get_u64_le()));
    let idempotency = (flags & FLAG_IDEMPOTENCY != 0)
        .then(|| Idempotency { key: sub.get_u128_le(), fingerprint: sub.get_u128_le() });
    let across = (flags & FLAG_ACROSS != 0)
        .then(|| Across { shard: ShardId(sub.get_u32_le()), number: sub.get_u64_le() });
    Ok(SubBatch { incarnation, partition, kind, expected_end, idempotency, across, body: sub })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_sub() -> impl Strategy<Value = SubBatch> {
        let kind =
            prop_oneof![Just(Kind::Publish), Just(Kind::Trim), Just(Kind::Command), Just(Kind::Output)];
        let optional = (any::<Option<u64>>(), any::<Option<(u128, u128)>>(), any::<Option<(u32, u64)>>());
        (any::<u64>(), any::<u32>(), kind, optional, proptest::collection::vec(any::<u8>(), 0..50)).prop_map(
            |(incarnation, partition, kind, (end, key, across), body)| SubBatch {
                incarnation: Incarnation(incarnation),
                partition: PartitionId(partition),
                kind,
                expected_end: end.map(Offset),
                idempotency: key.map(|(key, fingerprint)| Idempotency { key, fingerprint }),
                across: across.map(|(shard, number)| Across { shard: ShardId(shard), number }),
                body: body.into(),
            },
        )
    }

    proptest! {
        #[test]
        fn entries_round_trip_and_every_truncation_is_refused(subs in proptest::collection::vec(any_sub(), 0..5)) {
            let mut builder = EntryBuilder::new(TimestampMs(77), 0);
            subs.iter().for_each(|sub| builder.push(sub));
            let payload = builder.build();
            let entry = Entry::parse(&payload).unwrap();
            prop_assert_eq!(entry.ts, TimestampMs(77));
            for (at, sub) in &entry.subs {
                let at = *at as usize;
                prop_assert_eq!(&payload[at..at + sub.body.len()], &sub.body[..]);
            }
            let read: Vec<_> = entry.subs.into_iter().map(|(_, sub)| sub).collect();
            prop_assert_eq!(read, subs);
            for cut in 0..payload.len() {
                prop_assert!(Entry::parse(&payload.slice(..cut)).is_err());
            }
        }

        #[test]
        fn arbitrary_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..120), honest: bool) {
            if honest && bytes.len() >= 8 {
                bytes[..8].copy_from_slice(&[1, 0, 0, 0, 2, 0, 0, 0]);
            }
            let _ = Entry::parse(&bytes.into());
        }
    }

    #[test]
    fn the_layout_is_pinned() {
        let mut builder = EntryBuilder::new(TimestampMs(1), 0);
        builder.push(&SubBatch {
            incarnation: Incarnation(2),
            partition: PartitionId(3),
            kind: Kind::Publish,
            expected_end: Some(Offset(4)),
            idempotency: None,
            across: None,
            body: Bytes::from_static(b"x"),
        });
        let expected: Vec<u8> = [
            &[7, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0][..],
            &[25, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 1, 1, 0, 0],
            &[4, 0, 0, 0, 0, 0, 0, 0, b'x'],
        ]
        .concat();
        assert_eq!(builder.build(), expected);
    }
}
