//! The bytes of a state, made in pieces: whoever writes a checkpoint holds a chunk of it beside the state, however
//! large that is.

use std::io;

use bytes::{BufMut as _, Bytes, BytesMut};
use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint, key_len};

use super::{
    Frozen, StoredLane, StoredPartition, StoredSource, row_of_lane, stored_chunk, stored_key, stored_producer,
};
use crate::shard::state::stored_outputs::{self, StoredArrivals, StoredOutputLane};
use crate::shard::state::stored_packs::{self, StoredSealed};
use crate::shard::state::stored_subscriptions;

/// Bytes of an encoded state that are written at once, and the memory that writing takes; beside it only the message
/// that is being encoded, of which a part of a subscription with all its snapshots is the largest.
pub const CHUNK_BYTES: usize = 1 << 20;

/// What follows the rows in a [`StoredPartition`].
#[derive(Clone, PartialEq, Message)]
struct PartitionTail {
    #[prost(message, repeated, tag = "10")]
    sealed: Vec<StoredSealed>,
    #[prost(uint64, tag = "11")]
    compacted_to: u64,
}

impl Frozen {
    /// The bytes, in one buffer.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        // Not counted first: that takes as long as the rest.
        let mut bytes = BytesMut::new().writer();
        self.encode_to(&mut bytes).expect("writing to memory does not fail");
        bytes.into_inner().freeze()
    }

    /// How many bytes [`Frozen::encode_to`] writes. Takes about as long.
    #[must_use]
    pub fn encoded_len(&self) -> u64 {
        let mut counted = Counted(0);
        self.each(&mut counted).expect("counting does not fail");
        counted.0
    }

    /// Writes the bytes in order, at most [`CHUNK_BYTES`] at once, and says how many there were.
    ///
    /// # Errors
    /// Those of `to`, at once; some bytes may have been written.
    pub fn encode_to(&self, to: &mut dyn io::Write) -> io::Result<u64> {
        self.encode_in(CHUNK_BYTES, to)
    }

    fn encode_in(&self, chunk_bytes: usize, to: &mut dyn io::Write) -> io::Result<u64> {
        let mut chunked =
            Chunked { chunk_bytes, buffer: BytesMut::with_capacity(chunk_bytes), written: 0, to };
        self.each(&mut chunked)?;
        chunked.flush()?;
        Ok(chunked.written)
    }

    /// All fields of [`super::Stored`] in order. What has many rows is taken apart: a partition or lane may be large by
    /// itself.
    fn each(&self, to: &mut impl Fields) -> io::Result<()> {
        to.message(1, &self.head)?;
        self.topics.ordered().try_for_each(|(life, topic)| to.message(2, &topic.describe(*life)))?;
        self.namespaces.values().try_for_each(|namespace| to.message(3, namespace))?;
        for (key, partition) in self.partitions.ordered() {
            let (start, end) = (partition.start.0, partition.end.0);
            let head = StoredPartition { key: (*key).into(), start, end, ..StoredPartition::default() };
            let rows = || partition.rows().chunks().map(stored_chunk);
            let sealed = stored_packs::stored_sealed(partition);
            let tail = PartitionTail { sealed, compacted_to: partition.compacted_to().0 };
            to.rows((4, &head), 4, rows, &tail)?;
        }
        let producers = self.dedupe.producers.ordered();
        producers.map(|(key, row)| stored_producer(*key, row)).try_for_each(|row| to.message(5, &row))?;
        let keys = self.dedupe.keys.ordered();
        keys.map(|(key, used)| stored_key(*key, used)).try_for_each(|row| to.message(6, &row))?;
        self.guests.ordered().try_for_each(|(_, topic)| to.message(7, &**topic))?;
        for (target, lane) in &self.outbox.lanes {
            let head = StoredLane { target: target.0, next: lane.next, rows: Vec::new() };
            to.rows((8, &head), 3, || lane.rows.iter().map(row_of_lane), &())?;
        }
        for (shard, source) in &self.inbox.sources {
            to.message(9, &StoredSource { source: shard.0, next: source.next, newest: source.newest.0 })?;
        }
        self.slots.runs.iter().try_for_each(|run| to.message(10, run))?;
        let subscriptions = self.subscriptions.lives.ordered();
        subscriptions.map(|(_, subscription)| subscription).try_for_each(|row| to.message(11, &**row))?;
        let parts = self.parts.held.ordered();
        parts
            .map(|(key, held)| stored_subscriptions::part(*key, held))
            .try_for_each(|row| to.message(12, &row))?;
        let mut letters = self.dead_letters.iter().map(stored_subscriptions::dead_letter);
        letters.try_for_each(|row| to.message(13, &row))?;
        for (target, lane) in &self.outputs.lanes {
            let head = StoredOutputLane { target: target.0, next: lane.next, rows: Vec::new() };
            to.rows((14, &head), 3, || lane.rows.iter().map(stored_outputs::stored), &())?;
        }
        for (source, next) in &self.arrivals.next {
            to.message(15, &StoredArrivals { source: source.0, next: *next })?;
        }
        let mut patterns = self.patterns.lives.values().map(stored_subscriptions::pattern);
        patterns.try_for_each(|row| to.message(20, &row))?;
        stored_packs::stored_packs(&self.packs).try_for_each(|row| to.message(30, &row))
    }
}

/// Takes the fields of a message one by one.
trait Fields {
    /// Field `tag`.
    fn message(&mut self, tag: u32, message: &impl Message) -> io::Result<()>;

    /// Field `head.0`: the fields of `head.1`, then rows as fields `row_tag`, then the fields of `tail`.
    /// `rows` is called more than once and gives the same each time.
    fn rows<M: Message, I: Iterator<Item = M>>(
        &mut self,
        head: (u32, &impl Message),
        row_tag: u32,
        rows: impl Fn() -> I,
        tail: &impl Message,
    ) -> io::Result<()>;
}

/// Bytes of field `tag` with a content of `len`.
fn field_len(tag: u32, len: usize) -> usize {
    key_len(tag) + encoded_len_varint(len as u64) + len
}

fn rows_len<M: Message>(tag: u32, rows: impl Iterator<Item = M>) -> usize {
    rows.map(|row| field_len(tag, row.encoded_len())).sum()
}

struct Counted(u64);

impl Fields for Counted {
    fn message(&mut self, tag: u32, message: &impl Message) -> io::Result<()> {
        self.0 += field_len(tag, message.encoded_len()) as u64;
        Ok(())
    }

    fn rows<M: Message, I: Iterator<Item = M>>(
        &mut self,
        (tag, head): (u32, &impl Message),
        row_tag: u32,
        rows: impl Fn() -> I,
        tail: &impl Message,
    ) -> io::Result<()> {
        let len = head.encoded_len() + rows_len(row_tag, rows()) + tail.encoded_len();
        self.0 += field_len(tag, len) as u64;
        Ok(())
    }
}

struct Chunked<'a> {
    chunk_bytes: usize,
    /// At most a chunk, but for one message that is longer.
    buffer: BytesMut,
    written: u64,
    to: &'a mut dyn io::Write,
}

impl Chunked<'_> {
    /// Makes room for `len` bytes that are to stay together.
    fn room_for(&mut self, len: usize) -> io::Result<()> {
        if self.buffer.len() + len > self.chunk_bytes {
            self.flush()?;
        }
        self.buffer.reserve(len);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.buffer.chunks(self.chunk_bytes).try_for_each(|chunk| self.to.write_all(chunk))?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        if self.buffer.capacity() > self.chunk_bytes {
            self.buffer = BytesMut::with_capacity(self.chunk_bytes);
        }
        Ok(())
    }

    fn begin(&mut self, tag: u32, len: usize) -> io::Result<()> {
        self.room_for(key_len(tag) + encoded_len_varint(len as u64))?;
        encode_key(tag, WireType::LengthDelimited, &mut self.buffer);
        encode_varint(len as u64, &mut self.buffer);
        Ok(())
    }

    fn content(&mut self, message: &impl Message, len: usize) -> io::Result<()> {
        self.room_for(len)?;
        message.encode_raw(&mut self.buffer);
        Ok(())
    }
}

impl Fields for Chunked<'_> {
    fn message(&mut self, tag: u32, message: &impl Message) -> io::Result<()> {
        let len = message.encoded_len();
        self.begin(tag, len)?;
        self.content(message, len)
    }

    fn rows<M: Message, I: Iterator<Item = M>>(
        &mut self,
        (tag, head): (u32, &impl Message),
        row_tag: u32,
        rows: impl Fn() -> I,
        tail: &impl Message,
    ) -> io::Result<()> {
        let (before, behind) = (head.encoded_len(), tail.encoded_len());
        self.begin(tag, before + rows_len(row_tag, rows()) + behind)?;
        self.content(head, before)?;
        rows().try_for_each(|row| self.message(row_tag, &row))?;
        self.content(tail, behind)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;
    use weir_protocol::ids::{Incarnation, PartitionId, ShardId, TimestampMs};

    use super::super::{ShardState, Stored};
    use super::*;
    use crate::shard::state::dedupe::{Placement, UsedKey};
    use crate::shard::state::tests::any_log;

    /// Keeps what is written, and the longest write.
    #[derive(Default)]
    struct Writes {
        bytes: Vec<u8>,
        longest: usize,
    }

    impl io::Write for Writes {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.longest = self.longest.max(bytes.len());
            self.bytes.extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Of shard 1, and more than three chunks.
    pub(crate) fn large_state() -> ShardState {
        let mut state = ShardState::new(ShardId(1));
        let placement =
            Placement { base_offset: weir_protocol::ids::Offset(7), count: 1, ts: TimestampMs(1 << 40) };
        for key in 0..60_000 {
            let used = UsedKey { fingerprint: u128::MAX - key, placement, until: TimestampMs(1 << 41) };
            state.dedupe.keys.insert(((Incarnation(1 << 40), PartitionId(1)), u128::MAX / 3 + key), used);
        }
        state
    }

    /// `state` in chunks of these sizes has the bytes that prost makes of the whole message.
    fn assert_same_bytes(state: &ShardState, sizes: impl IntoIterator<Item = usize>) {
        let frozen = state.freeze();
        let whole = Stored::decode(frozen.encode()).unwrap().encode_to_vec();
        assert_eq!(frozen.encoded_len(), whole.len() as u64);
        for size in sizes {
            let mut writes = Writes::default();
            frozen.encode_in(size, &mut writes).unwrap();
            assert!(writes.longest <= size, "{} bytes at once, of {size}", writes.longest);
            assert!(writes.bytes == whole, "other bytes in chunks of {size}");
        }
    }

    #[test]
    fn a_state_with_all_there_can_be_has_the_same_bytes_in_chunks_of_any_size() {
        for golden in [
            &include_bytes!("../golden/v5.checkpoint")[..],
            include_bytes!("../golden/v5-compacted.checkpoint"),
            include_bytes!("../golden/v5-purged.checkpoint"),
        ] {
            let bytes = Bytes::from_static(golden);
            let whole = bytes.len() - 1..bytes.len() + 2;
            assert_same_bytes(&ShardState::decode(ShardId(5), &bytes).unwrap(), (1..150).chain(whole));
        }
    }

    #[test]
    fn a_large_state_is_written_in_full_chunks_and_comes_back() {
        let state = large_state();
        let mut writes = Writes::default();
        state.freeze().encode_to(&mut writes).unwrap();
        assert!(writes.bytes.len() > 3 * CHUNK_BYTES, "{} bytes", writes.bytes.len());
        assert!((CHUNK_BYTES * 9 / 10..=CHUNK_BYTES).contains(&writes.longest), "{} bytes", writes.longest);
        let again = ShardState::decode(ShardId(1), &Bytes::from(writes.bytes)).unwrap();
        assert!(again.encode() == state.encode());
    }

    #[test]
    fn a_write_that_fails_ends_the_encoding_at_once() {
        struct Full(usize);
        impl io::Write for Full {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                self.0 += 1;
                Err(io::ErrorKind::StorageFull.into())
            }

            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let mut full = Full(0);
        let error = large_state().freeze().encode_to(&mut full).unwrap_err();
        assert_eq!((error.kind(), full.0), (io::ErrorKind::StorageFull, 1));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn any_state_has_the_same_bytes_in_chunks_of_any_size(log in any_log(), size in 1usize..400) {
            assert_same_bytes(&log, [size]);
        }
    }
}
