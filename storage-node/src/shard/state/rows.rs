//! Where every accepted batch of a partition lies in the shard's log, packed.

use std::collections::VecDeque;
use std::sync::Arc;

use prost::encoding::{decode_varint, encode_varint};
use weir_protocol::ids::{LogIndex, Offset, TimestampMs};

/// Rows of a full chunk: what a lookup decodes at most.
const CHUNK_ROWS: u32 = 64;

/// A record batch that was accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchRow {
    /// Offset of its first record.
    pub base_offset: Offset,
    /// Records in it.
    pub count: u32,
    /// Bytes of the batch.
    pub len: u32,
    /// When it was accepted.
    pub ts: TimestampMs,
    /// The entry that carries it.
    pub index: LogIndex,
    /// Where it starts in the entry's payload.
    pub pos: u32,
}

impl BatchRow {
    /// One past its last record.
    #[must_use]
    pub fn end(&self) -> Offset {
        self.base_offset.plus(u64::from(self.count))
    }
}

/// The rows of a partition in offset order: exact, one per accepted batch, 7 to 12 bytes each.
///
/// Exact, because the log also holds batches that were refused or duplicates: a reader that walked from a sparse row
/// would have to know each verdict again, and would scan other partitions' bytes to get to the next batch.
///
/// Rows are packed in chunks of [`CHUNK_ROWS`]. A chunk starts from the offset, time and index of its first row; each
/// row is five varints: record count, then time and entry index as distances from the row before, then position and
/// length. Full chunks are shared with copies of the partition.
#[derive(Debug, Clone, Default)]
pub(super) struct Rows {
    full: VecDeque<Arc<Chunk>>,
    last: Option<Box<Chunk>>,
}

/// Consecutive rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Chunk {
    /// The first row's offset, time and entry.
    pub(super) first: (Offset, TimestampMs, LogIndex),
    /// One past the last row's records.
    pub(super) end: Offset,
    /// Number of rows.
    pub(super) rows: u32,
    /// Bytes of the batches, summed.
    pub(super) batch_bytes: u64,
    /// The last row's time and entry, from which the next one counts.
    last: (TimestampMs, LogIndex),
    pub(super) packed: Vec<u8>,
}

impl Rows {
    /// No row.
    pub(super) const NONE: Self = Self { full: VecDeque::new(), last: None };

    /// True if there is no row.
    pub(super) fn is_empty(&self) -> bool {
        self.full.is_empty() && self.last.is_none()
    }

    /// Adds the row that follows the last one.
    pub(super) fn push(&mut self, row: &BatchRow) {
        let chunk = self.last.get_or_insert_with(|| Box::new(Chunk::new(row)));
        chunk.push(row);
        if chunk.rows == CHUNK_ROWS {
            let mut chunk = self.last.take().expect("pushed to just now");
            chunk.packed.shrink_to_fit();
            self.full.push_back(Arc::from(chunk));
        }
    }

    /// Drops leading chunks that lie wholly below `start` and returns the bytes of their batches.
    pub(super) fn drop_below(&mut self, start: Offset) -> u64 {
        let mut dropped = 0;
        while let Some(chunk) = self.full.pop_front_if(|chunk| chunk.end <= start) {
            dropped += chunk.batch_bytes;
        }
        if self.full.is_empty()
            && let Some(chunk) = self.last.take_if(|chunk| chunk.end <= start)
        {
            dropped += chunk.batch_bytes;
        }
        dropped
    }

    /// The rows that reach beyond `offset`, in order. Decodes less than one chunk to get to the first.
    pub(super) fn from(&self, offset: Offset) -> impl Iterator<Item = BatchRow> {
        let skip = self.full.partition_point(|chunk| chunk.end <= offset);
        self.chunks_from(skip).flat_map(Chunk::iter).skip_while(move |row| row.end() <= offset)
    }

    /// Bytes of the batches that end beyond `from` and at or before `to`. Decodes at most two chunks.
    pub(super) fn bytes_between(&self, from: Offset, to: Offset) -> u64 {
        let skip = self.full.partition_point(|chunk| chunk.end <= from);
        let chunks = self.chunks_from(skip).take_while(|chunk| chunk.first.0 < to);
        let bytes = chunks.map(|chunk| {
            if chunk.first.0 >= from && chunk.end <= to {
                return chunk.batch_bytes;
            }
            let within = chunk.iter().filter(|row| row.end() > from && row.end() <= to);
            within.map(|row| u64::from(row.len)).sum()
        });
        bytes.sum()
    }

    /// The first row of the entry `index` or a later one.
    pub(super) fn at_entry(&self, index: LogIndex) -> Option<BatchRow> {
        self.since_entry(index).next()
    }

    /// The rows of the entry `index` and of all later ones, in order.
    pub(super) fn since_entry(&self, index: LogIndex) -> impl Iterator<Item = BatchRow> {
        let skip = self.full.partition_point(|chunk| chunk.last.1 < index);
        self.chunks_from(skip).flat_map(Chunk::iter).skip_while(move |row| row.index < index)
    }

    /// The first row at or after `ts`.
    pub(super) fn at_time(&self, ts: TimestampMs) -> Option<BatchRow> {
        // Times never decrease, so all rows before the last chunk that starts earlier are earlier too.
        let skip = self.full.partition_point(|chunk| chunk.last.0 < ts);
        self.chunks_from(skip).flat_map(Chunk::iter).find(|row| row.ts >= ts)
    }

    /// All chunks in order.
    pub(super) fn chunks(&self) -> impl Iterator<Item = &Chunk> {
        self.chunks_from(0)
    }

    fn chunks_from(&self, skip: usize) -> impl Iterator<Item = &Chunk> {
        self.full.range(skip..).map(|chunk| &**chunk).chain(self.last.as_deref())
    }

    /// The rows that these chunks, in order, were made of; `None` if they are not such chunks.
    pub(super) fn from_chunks(chunks: impl IntoIterator<Item = StoredChunk>) -> Option<Self> {
        let mut rows = Self::default();
        let mut end = None;
        for stored in chunks {
            let chunk = Chunk::load(stored)?;
            // Only the last chunk may have room, and chunks follow one another.
            if rows.last.is_some() || end.is_some_and(|end| end != chunk.first.0) {
                return None;
            }
            end = Some(chunk.end);
            match chunk.rows {
                CHUNK_ROWS => rows.full.push_back(Arc::new(chunk)),
                _ => rows.last = Some(Box::new(chunk)),
            }
        }
        Some(rows)
    }
}

/// A chunk as a checkpoint holds it.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct StoredChunk {
    /// Offset of the first row.
    #[prost(uint64, tag = "1")]
    pub(super) offset: u64,
    /// Its time.
    #[prost(uint64, tag = "2")]
    pub(super) ts: u64,
    /// Its entry.
    #[prost(uint64, tag = "3")]
    pub(super) index: u64,
    /// The packed rows.
    #[prost(bytes = "vec", tag = "4")]
    pub(super) packed: Vec<u8>,
}

impl Chunk {
    fn new(row: &BatchRow) -> Self {
        Self {
            first: (row.base_offset, row.ts, row.index),
            end: row.base_offset,
            rows: 0,
            batch_bytes: 0,
            last: (row.ts, row.index),
            packed: Vec::new(),
        }
    }

    fn push(&mut self, row: &BatchRow) {
        assert_eq!(row.base_offset, self.end, "offsets of a partition are dense");
        let (ts, index) = self.last;
        let distance = |to: u64, from: u64| to.checked_sub(from).expect("times and entries never decrease");
        encode_varint(u64::from(row.count), &mut self.packed);
        encode_varint(distance(row.ts.0, ts.0), &mut self.packed);
        encode_varint(distance(row.index.0, index.0), &mut self.packed);
        encode_varint(u64::from(row.pos), &mut self.packed);
        encode_varint(u64::from(row.len), &mut self.packed);
        self.end = row.end();
        self.last = (row.ts, row.index);
        self.rows += 1;
        self.batch_bytes += u64::from(row.len);
    }

    /// The rows.
    pub(super) fn iter(&self) -> ChunkRows<'_> {
        let (offset, ts, index) = self.first;
        ChunkRows { packed: &self.packed, offset, ts, index }
    }

    fn load(stored: StoredChunk) -> Option<Self> {
        let first = (Offset(stored.offset), TimestampMs(stored.ts), LogIndex(stored.index));
        let start = ChunkRows { packed: &stored.packed, offset: first.0, ts: first.1, index: first.2 };
        let (mut rows, mut batch_bytes, mut end, mut last) = (0, 0, first.0, (first.1, first.2));
        let mut walk = start;
        while !walk.packed.is_empty() {
            let row = walk.decode()?;
            rows += 1;
            batch_bytes += u64::from(row.len);
            end = row.end();
            last = (row.ts, row.index);
        }
        let is_chunk = (1..=CHUNK_ROWS).contains(&rows);
        is_chunk.then_some(Self { first, end, rows, batch_bytes, last, packed: stored.packed })
    }
}

/// Walks a chunk.
pub(super) struct ChunkRows<'a> {
    packed: &'a [u8],
    offset: Offset,
    ts: TimestampMs,
    index: LogIndex,
}

impl ChunkRows<'_> {
    fn decode(&mut self) -> Option<BatchRow> {
        let mut number = || decode_varint(&mut self.packed).ok();
        let (count, ts, index, pos, len) = (number()?, number()?, number()?, number()?, number()?);
        self.ts = TimestampMs(self.ts.0.checked_add(ts)?);
        self.index = LogIndex(self.index.0.checked_add(index)?);
        let row = BatchRow {
            base_offset: self.offset,
            count: u32::try_from(count).ok()?,
            len: u32::try_from(len).ok()?,
            ts: self.ts,
            index: self.index,
            pos: u32::try_from(pos).ok()?,
        };
        self.offset = Offset(self.offset.0.checked_add(count)?);
        Some(row)
    }
}

impl Iterator for ChunkRows<'_> {
    type Item = BatchRow;

    fn next(&mut self) -> Option<BatchRow> {
        if self.packed.is_empty() {
            return None;
        }
        Some(self.decode().expect("chunks are checked when they are loaded"))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_rows() -> impl Strategy<Value = Vec<BatchRow>> {
        let steps = (1u32..2_000, 0u64..3, 0u64..3, any::<u32>(), 1u32..4_000_000);
        proptest::collection::vec(steps, 0..300).prop_map(|steps| {
            let (mut offset, mut at_ts, mut at_index) = (7, 1_700_000_000_000, 40);
            let mut rows = Vec::new();
            for (count, ts, index, pos, len) in steps {
                at_ts += ts;
                at_index += index;
                rows.push(BatchRow {
                    base_offset: Offset(offset),
                    count,
                    len,
                    ts: TimestampMs(at_ts),
                    index: LogIndex(at_index),
                    pos,
                });
                offset += u64::from(count);
            }
            rows
        })
    }

    fn stored(rows: &Rows) -> Vec<StoredChunk> {
        rows.chunks()
            .map(|chunk| StoredChunk {
                offset: chunk.first.0.0,
                ts: chunk.first.1.0,
                index: chunk.first.2.0,
                packed: chunk.packed.clone(),
            })
            .collect()
    }

    proptest! {
        #[test]
        fn packed_rows_answer_like_a_plain_list(plain in any_rows(), at in 0u64..300_000, ago in 0u64..700) {
            let mut rows = Rows::default();
            plain.iter().for_each(|row| rows.push(row));
            let again = Rows::from_chunks(stored(&rows)).unwrap();
            prop_assert_eq!(stored(&again), stored(&rows));
            let ts = TimestampMs(1_700_000_000_000 + ago);
            for rows in [&rows, &again] {
                let expected: Vec<_> = plain.iter().filter(|row| row.end().0 > at).copied().collect();
                prop_assert_eq!(rows.from(Offset(at)).collect::<Vec<_>>(), expected);
                prop_assert_eq!(rows.at_time(ts), plain.iter().find(|row| row.ts >= ts).copied());
                let index = LogIndex(40 + ago / 2);
                prop_assert_eq!(
                    rows.at_entry(index), plain.iter().find(|row| row.index >= index).copied());
                let (from, to) = (Offset(at / 2), Offset(at));
                let within = plain.iter().filter(|row| row.end() > from && row.end() <= to);
                let expected: u64 = within.map(|row| u64::from(row.len)).sum();
                prop_assert_eq!(rows.bytes_between(from, to), expected);
            }
            let mut rest = rows.clone();
            let dropped = rest.drop_below(Offset(at));
            let all: u64 = plain.iter().map(|row| u64::from(row.len)).sum();
            let kept: u64 = rest.chunks().map(|chunk| chunk.batch_bytes).sum();
            prop_assert_eq!(dropped + kept, all);
            prop_assert_eq!(
                rest.from(Offset(at)).collect::<Vec<_>>(), rows.from(Offset(at)).collect::<Vec<_>>());
        }

        #[test]
        fn damaged_chunks_are_refused_or_read_but_never_panic(
            packed in proptest::collection::vec(any::<u8>(), 0..60), offset: u64, ts: u64, index: u64,
        ) {
            if let Some(rows) = Rows::from_chunks([StoredChunk { offset, ts, index, packed }]) {
                rows.from(Offset(0)).for_each(drop);
            }
        }
    }

    #[test]
    fn a_row_of_an_ordinary_publish_takes_nine_bytes() {
        let mut rows = Rows::default();
        for i in 0..64_000u64 {
            rows.push(&BatchRow {
                base_offset: Offset(i),
                count: 1,
                len: 1_100,
                ts: TimestampMs(1_700_000_000_000 + i / 10),
                index: LogIndex(100 + i / 20),
                pos: 16 + (i % 20) as u32 * 1_100,
            });
        }
        let per_chunk: usize =
            rows.full.iter().map(|chunk| size_of::<Chunk>() + 16 + chunk.packed.capacity()).sum();
        let per_row = (per_chunk + rows.full.capacity() * 8) / 64_000;
        assert!(per_row <= 11, "{per_row} bytes per row");
    }
}
