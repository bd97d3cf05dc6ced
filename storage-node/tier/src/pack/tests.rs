//! Packs are written and read back, cut short and flipped; the layout is pinned by a golden file.
#![expect(clippy::disallowed_methods, reason = "golden files are read in tests")]

use bytes::Bytes;
use proptest::prelude::*;
use weir_protocol::batch::{Batch, BatchBuilder, Compression, Headers, RecordParts};
use weir_protocol::ids::{ClusterId, Incarnation, Offset, PartitionId, ShardId, Term, TimestampMs};

use super::*;

fn identity() -> PackIdentity {
    PackIdentity { cluster: ClusterId(0x0123_4567_89ab_cdef), shard: ShardId(3), term: Term(7) }
}

fn key(life: u64, partition: u32) -> PackedPartition {
    (Incarnation(life), PartitionId(partition))
}

fn batch(values: &[Vec<u8>]) -> Batch {
    let mut batch = BatchBuilder::anonymous();
    for value in values {
        batch.push(RecordParts { key: None, headers: &Headers::default(), value }).unwrap();
    }
    batch.build(Compression::None).unwrap()
}

/// What a pack was made of: partition, first offset, time, batch.
type Row = (PackedPartition, Offset, TimestampMs, Batch);

fn write(rows: &[Row], codec: BlockCodec) -> (Bytes, PackSummary) {
    let mut writer = PackWriter::new(identity(), codec, &PieceMemory::default());
    let mut bytes = Vec::new();
    for (partition, first, ts, batch) in rows {
        writer.push(*partition, *first, *ts, batch).unwrap();
        bytes.extend(writer.take_ready().concat());
    }
    let (rest, summary) = writer.finish();
    bytes.extend(rest.concat());
    assert_eq!(summary.pack_bytes, bytes.len() as u64);
    assert_eq!(summary.crc32c, weir_protocol::checksum::crc32c(&bytes));
    (bytes.into(), summary)
}

fn footer(pack: &Bytes) -> Result<(Trailer, Footer), PackError> {
    let trailer = Trailer::decode(pack, pack.len() as u64)?;
    Ok((trailer, Footer::decode(pack, &trailer)?))
}

fn block(pack: &Bytes, row: &BlockRow, partition: PackedPartition) -> Result<Vec<Batch>, PackError> {
    let range = row.range();
    let bytes = pack.slice(range.start as usize..range.end as usize);
    batches(read_block(&bytes, row, partition)?, row, partition).collect()
}

/// Everything in a pack; an error if any of it is damaged.
fn read(pack: &Bytes) -> Result<Vec<Row>, PackError> {
    Trailer::check_header(pack)?;
    let (_, footer) = footer(pack)?;
    let mut rows = Vec::new();
    for partition in footer.partitions() {
        let mut end = partition.start;
        for row in footer.blocks(partition) {
            for batch in block(pack, row, partition.partition)? {
                let header = batch.header();
                end = header.base_offset.plus(u64::from(header.count));
                rows.push((partition.partition, header.base_offset, header.base_ts, batch.unplaced()));
            }
        }
        assert_eq!(end, partition.end);
    }
    Ok(rows)
}

fn any_rows() -> impl Strategy<Value = Vec<Row>> {
    let values = proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..60), 1..5);
    let batches = proptest::collection::vec((values, 0u64..5), 1..12);
    let partitions = proptest::collection::btree_map((1u64..4, 0u32..4), (0u64..1_000, batches), 0..6);
    partitions.prop_map(|partitions| {
        let mut rows = Vec::new();
        for ((life, partition), (start, batches)) in partitions {
            let (mut offset, mut ts) = (Offset(start), TimestampMs(1_700_000_000_000));
            for (values, later) in batches {
                ts.0 += later;
                rows.push((key(life, partition), offset, ts, batch(&values)));
                offset = offset.plus(values.len() as u64);
            }
        }
        rows
    })
}

fn any_codec() -> impl Strategy<Value = BlockCodec> {
    prop_oneof![Just(BlockCodec::Raw), Just(BlockCodec::Lz4), Just(BlockCodec::Zstd)]
}

/// Two partitions; the first has several blocks.
fn large() -> Vec<Row> {
    let mut rows = Vec::new();
    for i in 0..40u64 {
        let value: Vec<u8> = (0..100_000u64).map(|n| ((n * n * (i + 1)) >> 7) as u8).collect();
        rows.push((key(1, 0), Offset(10 + 2 * i), TimestampMs(1_000 + 10 * i), batch(&[value, vec![7; 9]])));
    }
    rows.push((key(1, 2), Offset(0), TimestampMs(1_005), batch(&[b"other".to_vec()])));
    rows
}

proptest! {
    #[test]
    fn packs_round_trip_and_every_truncation_is_refused(rows in any_rows(), codec in any_codec(), cut in any::<prop::sample::Index>()) {
        let (pack, summary) = write(&rows, codec);
        prop_assert_eq!(read(&pack).unwrap(), rows);
        let (trailer, footer) = footer(&pack).unwrap();
        prop_assert_eq!(trailer.identity, identity());
        prop_assert_eq!(footer.partitions(), &summary.partitions[..]);
        prop_assert_eq!(trailer.tail_bytes(), summary.tail_bytes);
        let cut = cut.index(pack.len());
        prop_assert!(read(&pack.slice(..cut)).is_err());
        prop_assert!(read(&pack.slice(pack.len() - cut..)).is_err());
    }

    #[test]
    fn every_flipped_bit_is_found(rows in any_rows(), codec in any_codec(), at in any::<prop::sample::Index>(), bit in 0u8..8) {
        let (pack, _) = write(&rows, codec);
        let mut bytes = pack.to_vec();
        let at = at.index(bytes.len());
        bytes[at] ^= 1u8 << bit;
        prop_assert!(read(&bytes.into()).is_err(), "a flipped bit at {at} of {}", pack.len());
    }

    #[test]
    fn arbitrary_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 72..400), partitions in 0u32..3, blocks in 0u32..4) {
        // An honest trailer around whatever lies before it: rows and blocks are reached.
        let footer_bytes = partitions as usize * PARTITION_ROW_BYTES + blocks as usize * BLOCK_ROW_BYTES;
        let end = bytes.len();
        if end > footer_bytes + HEADER_BYTES {
            let trailer = Trailer {
                identity: identity(),
                footer_pos: (end - footer_bytes) as u64,
                partitions,
                blocks,
                pack_bytes: (end + TRAILER_BYTES) as u64,
                footer_crc: weir_protocol::checksum::crc32c(&bytes[end - footer_bytes..]),
            };
            bytes.extend(trailer.encode());
        }
        let _ = read(&bytes.into());
    }
}

#[test]
fn any_offset_is_found_with_one_block() {
    let rows = large();
    let (pack, _) = write(&rows, BlockCodec::Zstd);
    let (_, footer) = footer(&pack).unwrap();
    let row = footer.partition(key(1, 0)).unwrap();
    assert!(row.blocks > 3, "{} blocks", row.blocks);
    assert_eq!((row.start, row.end), (Offset(10), Offset(90)));
    for offset in 10..90 {
        let at = footer.block_at(row, Offset(offset)).unwrap();
        let batches = block(&pack, &footer.blocks(row)[at], row.partition).unwrap();
        let holds = |batch: &Batch| (batch.header().base_offset.0..).take(2).any(|held| held == offset);
        assert_eq!(batches.iter().filter(|batch| holds(batch)).count(), 1, "offset {offset}");
    }
    assert_eq!((footer.block_at(row, Offset(9)), footer.block_at(row, Offset(90))), (None, None));
    assert_eq!(footer.partition(key(1, 1)), None);
}

#[test]
fn batches_out_of_order_are_refused_and_change_nothing() {
    let mut writer = PackWriter::new(identity(), BlockCodec::Raw, &PieceMemory::default());
    let one = batch(&[b"a".to_vec(), b"b".to_vec()]);
    writer.push(key(1, 1), Offset(4), TimestampMs(9), &one).unwrap();
    for (partition, first, ts) in [
        (key(1, 1), 5, 9),  // overlaps
        (key(1, 1), 7, 9),  // leaves a hole
        (key(1, 1), 6, 8),  // goes back in time
        (key(1, 0), 0, 10), // goes back to an earlier partition
    ] {
        let refused = writer.push(partition, Offset(first), TimestampMs(ts), &one);
        assert_eq!(refused, Err(PushError::OutOfOrder(Offset(first))));
    }
    writer.push(key(1, 1), Offset(6), TimestampMs(9), &one).unwrap();
    let (_, summary) = writer.finish();
    assert_eq!((summary.partitions[0].start, summary.partitions[0].end), (Offset(4), Offset(8)));
}

#[test]
fn a_pack_of_nothing_is_a_pack() {
    let (pack, summary) = write(&[], BlockCodec::Zstd);
    assert_eq!(read(&pack), Ok(vec![]));
    assert_eq!(summary.partitions, []);
}

#[test]
fn a_footer_with_a_block_larger_than_blocks_get_is_refused() {
    let pos = Trailer::header().len() as u64;
    let decoded = |stored_bytes: usize, raw_bytes: usize| {
        let (ts, narrow) = (TimestampMs(1), |bytes: usize| u32::try_from(bytes).unwrap());
        let (start, end) = (Offset(0), Offset(1));
        let partition = key(1, 0);
        let row = PartitionRow {
            partition,
            first_block: 0,
            blocks: 1,
            start,
            end,
            first_ts: ts,
            last_ts: ts,
            bytes: 1,
        };
        let (stored_bytes, raw_bytes) = (narrow(stored_bytes), narrow(raw_bytes));
        let block = BlockRow { pos, first: start, first_ts: ts, last_ts: ts, stored_bytes, raw_bytes };
        let bytes = Footer::new(vec![row], vec![block]).encode();
        let footer_pos = pos + u64::from(stored_bytes);
        let (partitions, blocks, footer_crc) = (1, 1, weir_protocol::checksum::crc32c(&bytes));
        let identity = identity();
        let mut trailer = Trailer { identity, footer_pos, partitions, blocks, pack_bytes: 0, footer_crc };
        trailer.pack_bytes = footer_pos + trailer.tail_bytes();
        Footer::decode(&[&bytes[..], &trailer.encode()[..]].concat(), &trailer)
    };
    let most = BLOCK_RAW_BYTES_MAX;
    decoded(BLOCK_HEADER_BYTES + most, most).unwrap();
    for (stored, raw) in [(BLOCK_HEADER_BYTES + most + 1, most), (BLOCK_HEADER_BYTES + most, most + 1)] {
        assert!(matches!(decoded(stored, raw), Err(PackError::Contradiction(_))), "{stored} {raw}");
    }
}

#[test]
fn a_block_that_does_not_get_smaller_is_stored_as_it_is() {
    let noise: Vec<u8> =
        (0u32..9_000).flat_map(|n| weir_protocol::checksum::crc32c(&n.to_le_bytes()).to_le_bytes()).collect();
    let rows = vec![(key(1, 0), Offset(0), TimestampMs(1), batch(&[noise]))];
    assert_eq!(write(&rows, BlockCodec::Zstd).0, write(&rows, BlockCodec::Raw).0);
}

#[test]
fn what_one_partition_has_in_vain_tries_is_nothing_to_the_next() {
    let noise: Vec<u8> = (0u32..200_000)
        .flat_map(|n| weir_protocol::checksum::crc32c(&n.to_le_bytes()).to_le_bytes())
        .collect();
    let (noise, text) = (batch(&[noise]), batch(&[vec![b'x'; 800_000]]));
    // A block each.
    let rows: Vec<Row> = [(0, 0, &noise), (0, 1, &text), (1, 0, &text)]
        .map(|(partition, first, batch)| (key(1, partition), Offset(first), TimestampMs(1), batch.clone()))
        .into();
    let (pack, _) = write(&rows, BlockCodec::Zstd);
    let (_, footer) = footer(&pack).unwrap();
    let stored = footer.partitions().iter().flat_map(|partition| footer.blocks(partition));
    let is_smaller: Vec<_> = stored.map(|row| row.stored_bytes < row.raw_bytes).collect();
    assert_eq!(is_smaller, [false, false, true]);
    assert_eq!(read(&pack).unwrap(), rows);
}

#[test]
fn the_layout_is_pinned_by_a_golden_file() {
    let rows = vec![
        (
            key(5 << 40, 0),
            Offset(76_531),
            TimestampMs(1_787_654_321_123),
            batch(&[b"first".to_vec(), vec![b'x'; 300]]),
        ),
        (key(5 << 40, 0), Offset(76_533), TimestampMs(1_787_654_321_124), batch(&[b"second".to_vec()])),
        (key(5 << 40, 3), Offset(0), TimestampMs(1_787_654_321_124), batch(&[vec![b'y'; 400]])),
    ];
    for (codec, name) in [(BlockCodec::Raw, "raw"), (BlockCodec::Lz4, "lz4"), (BlockCodec::Zstd, "zstd")] {
        let path = format!("{}/tests/golden/pack-{name}.bin", env!("CARGO_MANIFEST_DIR"));
        let (pack, _) = write(&rows, codec);
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(&path, &pack).unwrap();
        }
        let golden = Bytes::from(std::fs::read(&path).unwrap());
        assert_eq!(read(&golden).unwrap(), rows, "{path}: what was written once is read for ever");
        assert!(golden == pack, "{path} differs: packs are read by other builds");
    }
}
