#![expect(clippy::disallowed_methods, reason = "golden files and seeds are read in tests")]
mod holes;

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::ids::{Epoch, Offset, PartitionId, ProducerKey, Seq, TimestampMs};

const CODECS: [Compression; 4] = [Compression::None, Compression::Auto, Compression::Lz4, Compression::Zstd];

type Parts = (Option<Vec<u8>>, Vec<(String, Vec<u8>)>, Vec<u8>);

fn build(records: &[Parts], compression: Compression) -> Batch {
    let mut batch = BatchBuilder::new(ProducerKey(7), Epoch(3), Seq(100));
    let mut headers = HeadersBuilder::default();
    for (key, pairs, value) in records {
        headers.reserved(Reserved::ContentType, b"text/plain");
        for (name, value) in pairs {
            headers.user(name, value).unwrap();
        }
        batch.push(RecordParts { key: key.as_deref(), headers: &headers.finish(), value }).unwrap();
    }
    batch.build(compression).unwrap()
}

fn sample() -> Vec<Parts> {
    vec![
        (
            Some(b"cust-42".to_vec()),
            vec![("region".into(), b"eu".to_vec())],
            b"{\"total\":9007199254740993}".repeat(40),
        ),
        (None, vec![], vec![]),
        (Some(vec![]), vec![], b"second".to_vec()),
    ]
}

fn any_parts() -> impl Strategy<Value = Parts> {
    let bytes = |n| proptest::collection::vec(any::<u8>(), 0..n);
    let headers = proptest::collection::btree_map("[a-z]{1,5}", bytes(9), 0..4)
        .prop_map(|pairs| pairs.into_iter().collect::<Vec<_>>());
    (proptest::option::of(bytes(20)), headers, bytes(300))
}

proptest! {
    #[test]
    fn records_round_trip_under_every_codec(records in proptest::collection::vec(any_parts(), 1..8), codec in 0usize..4) {
        let batch = build(&records, CODECS[codec]);
        let parsed = Batch::parse(batch.bytes().clone()).unwrap();
        prop_assert_eq!(&parsed, &batch);
        parsed.validate_records().unwrap();
        let mut sizes = 0;
        for (i, (read, (key, headers, value))) in parsed.records().unwrap().zip(&records).enumerate() {
            let read = read.unwrap();
            prop_assert_eq!((read.offset, read.seq), (Offset(i as u64), Seq(100 + i as u64)));
            prop_assert_eq!(read.key.as_deref(), key.as_deref());
            prop_assert_eq!(&read.value[..], &value[..]);
            prop_assert_eq!(read.headers.content_type(), Some("text/plain"));
            let user: Vec<_> = read.headers.user().map(|(n, v)| (n.to_owned(), v.to_vec())).collect();
            prop_assert_eq!(&user, headers);
            sizes += read.size;
        }
        prop_assert_eq!(sizes, parsed.header().raw_bytes as usize);
    }

    #[test]
    fn arbitrary_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), fix_crc: bool) {
        if fix_crc && bytes.len() >= HEADER_BYTES {
            let len = (bytes.len() - 4) as u32;
            bytes[0..4].copy_from_slice(&len.to_le_bytes());
            bytes[4..8].copy_from_slice(&[1, 0, 0, 0]);
            bytes[32..36].copy_from_slice(&[0; 4]);
            bytes[36..40].copy_from_slice(&[3, 0, 0, 0]);
            let raw = (bytes.len() - HEADER_BYTES) as u32;
            bytes[60..64].copy_from_slice(&raw.to_le_bytes());
            let crc = crate::checksum::crc32c(&bytes[32..]);
            bytes[28..32].copy_from_slice(&crc.to_le_bytes());
        }
        if let Ok(batch) = Batch::parse(bytes.into()) {
            let _ = batch.validate_records();
        }
    }
}

#[test]
fn every_truncation_and_every_flipped_bit_is_refused() {
    for compression in CODECS {
        let batch = build(&sample(), compression);
        let whole = batch.bytes().clone();
        for cut in 0..whole.len() {
            assert!(Batch::parse(whole.slice(..cut)).is_err(), "{compression:?} cut at {cut}");
        }
        for bit in 0..whole.len() * 8 {
            let mut bytes = whole.to_vec();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let stamped = (8..28).contains(&(bit / 8)); // outside the checksum: stamped when serving
            assert_eq!(Batch::parse(bytes.into()).is_ok(), stamped, "{compression:?} bit {bit}");
        }
    }
}

#[test]
fn placing_stamps_the_header_and_shares_the_body() {
    let batch = build(&sample(), Compression::Auto);
    let [header, body] = batch.placed(Offset(76_531), TimestampMs(1_787_654_321_123), PartitionId(4));
    assert_eq!(body.as_ptr(), batch.bytes()[HEADER_BYTES..].as_ptr(), "no payload byte is copied");
    let placed = Batch::parse([header, body].concat().into()).unwrap();
    assert_eq!(placed.header().partition, PartitionId(4));
    let first = placed.records().unwrap().next().unwrap().unwrap();
    assert_eq!((first.offset, first.ts), (Offset(76_531), TimestampMs(1_787_654_321_123)));
    assert_eq!(placed.unplaced(), batch);
}

#[test]
fn a_concatenation_is_taken_apart_in_order() {
    let (a, b) = (build(&sample(), Compression::None), build(&sample()[1..], Compression::Zstd));
    let mut bytes = Bytes::from([&a.bytes()[..], b.bytes()].concat());
    assert_eq!(Batch::parse(bytes.clone()), Err(BatchError::Trailing(b.bytes().len())));
    assert_eq!(Batch::take_from(&mut bytes).unwrap(), a);
    assert_eq!(Batch::take_from(&mut bytes).unwrap(), b);
    assert!(bytes.is_empty());
}

#[test]
fn limits_are_refused_by_name_and_leave_the_builder_as_it_was() {
    let mut builder = BatchBuilder::anonymous();
    let none = Headers::default();
    assert_eq!(BatchBuilder::anonymous().build(Compression::None), Err(BatchError::Count(0)));
    let key = vec![0; crate::limits::KEY_BYTES_MAX + 1];
    let long_key = builder.push(RecordParts { key: Some(&key), headers: &none, value: b"" });
    assert_eq!(long_key, Err(BatchError::Record { index: 0, why: "key is too long" }));
    let value = vec![0; crate::limits::RECORD_BYTES_MAX];
    let large = builder.push(RecordParts { key: None, headers: &none, value: &value });
    assert_eq!(large, Err(BatchError::Record { index: 0, why: "larger than the limit" }));
    assert_eq!((builder.count(), builder.size()), (0, 0));
    assert!(HeadersBuilder::default().user("\u{1}", b"").is_err(), "reserved names cannot be set");
}

#[test]
fn the_layout_is_pinned_by_golden_files() {
    for (name, compression) in
        [("none", Compression::None), ("lz4", Compression::Lz4), ("zstd", Compression::Zstd)]
    {
        let path = format!("{}/tests/golden/batch-{name}.bin", env!("CARGO_MANIFEST_DIR"));
        let batch = build(&sample(), compression);
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(&path, batch.bytes()).unwrap();
        }
        let golden = Bytes::from(std::fs::read(&path).unwrap());
        // What was written once must be readable forever; what is written today may be compressed otherwise.
        let read = Batch::parse(golden.clone()).unwrap();
        assert!(read.records().unwrap().eq(batch.records().unwrap()), "{path}");
        if compression == Compression::None {
            assert_eq!(batch.bytes(), &golden, "the uncompressed layout is exact");
        }
    }
}

/// The one-record batch of `value`, with bytes of its record section changed by `edit`, checksum made right.
fn forged(headers: &Headers, edit: impl FnOnce(&mut Vec<u8>)) -> Batch {
    let mut builder = BatchBuilder::anonymous();
    builder.push(RecordParts { key: None, headers, value: b"v" }).unwrap();
    let mut bytes = builder.build(Compression::None).unwrap().bytes().to_vec();
    edit(&mut bytes);
    let raw = (bytes.len() - HEADER_BYTES) as u32;
    bytes[0..4].copy_from_slice(&(raw + HEADER_BYTES as u32 - 4).to_le_bytes());
    bytes[60..64].copy_from_slice(&raw.to_le_bytes());
    let crc = crate::checksum::crc32c(&bytes[32..]);
    bytes[28..32].copy_from_slice(&crc.to_le_bytes());
    Batch::parse(bytes.into()).unwrap()
}

#[test]
fn numbers_that_overflow_are_refused_instead_of_panicking() {
    // Positions have exclusive ends, so the last one that exists is 2^64 - 2.
    for (field, expected) in [(8, "offset exceeds 64 bits"), (64, "sequence number exceeds 64 bits")] {
        for (first, good) in [(u64::MAX - 2, true), (u64::MAX - 1, false), (u64::MAX, false)] {
            let two = [(None, vec![], vec![]), (None, vec![], vec![])];
            let mut bytes = build(&two, Compression::None).bytes().to_vec();
            bytes[field..field + 8].copy_from_slice(&first.to_le_bytes());
            let crc = crate::checksum::crc32c(&bytes[32..]);
            bytes[28..32].copy_from_slice(&crc.to_le_bytes());
            let batch = Batch::parse(bytes.into()).unwrap();
            assert_eq!(batch.validate_records(), if good { Ok(()) } else { why(1, expected) }, "{first}");
            if field == 8 {
                let last = batch.slice_of(Offset(first.saturating_add(1)), 1).map(|part| part.header().count);
                assert_eq!(last.ok(), good.then_some(1), "{first}: never a part without its last record");
            }
        }
    }
}

fn why(index: u32, why: &'static str) -> Result<(), BatchError> {
    Err(BatchError::Record { index, why })
}

#[test]
fn a_publisher_cannot_set_times_or_unknown_reserved_headers() {
    let none = Headers::default();
    // Layout of the only record: len, offset, seq, ts, attr, key length, header count, value length, value.
    let timed = forged(&none, |bytes| bytes[HEADER_BYTES + 3] = 2);
    assert_eq!(timed.validate_records(), why(0, "a published record has no time of its own"));
    assert!(timed.records().unwrap().all(|record| record.unwrap().ts == TimestampMs(1)), "readers see it");

    let header = |name: u8, value: &[u8]| {
        let mut builder = HeadersBuilder::default();
        builder.content_type("a").user("n", value).unwrap();
        let headers = builder.finish();
        forged(&headers, |bytes| {
            let at = bytes.windows(2).rposition(|pair| pair == [1, b'n']).unwrap();
            bytes[at + 1] = name;
        })
        .validate_records()
    };
    assert_eq!(header(b'n', b"x"), Ok(()));
    assert_eq!(header(0x08, b"x"), why(0, "unknown reserved header"));
    assert_eq!(header(0x01, b"x"), why(0, "a header name occurs twice"));
    assert_eq!(header(0x05, b"1234567"), why(0, "a reserved header does not have its encoding"));
    assert_eq!(header(0x05, b"12345678"), Ok(()));
    assert_eq!(header(0x07, &[0xff]), why(0, "a reserved header does not have its encoding"));
    assert_eq!(header(0xff, b"x"), why(0, "header name is not UTF-8"));
}

#[test]
fn bytes_after_the_last_record_are_refused() {
    let batch = forged(&Headers::default(), |bytes| bytes.extend_from_slice(&[0; 3]));
    assert_eq!(batch.validate_records(), Err(BatchError::Trailing(3)));
}

#[test]
fn reserved_headers_do_not_count_against_the_users() {
    let mut headers = HeadersBuilder::default();
    let users = crate::limits::RECORD_HEADERS_MAX;
    let mut push = |count: usize| {
        headers.content_type("text/plain").ttl_ms(5_000).deliver_at(TimestampMs(7));
        for n in 0..count {
            headers.user(&format!("h{n}"), b"").unwrap();
        }
        let headers = headers.finish();
        assert_eq!((headers.ttl_ms(), headers.deliver_at()), (Some(5_000), Some(TimestampMs(7))));
        BatchBuilder::anonymous().push(RecordParts { key: None, headers: &headers, value: b"" }).map(|_| ())
    };
    assert_eq!(push(users), Ok(()));
    assert_eq!(push(users + 1), why(0, "too many headers"));
}

/// A record of exactly the largest size, pushed into an empty batch.
#[test]
fn the_largest_record_fits_a_batch_and_one_byte_more_does_not() {
    let none = Headers::default();
    let value = vec![7; crate::limits::RECORD_BYTES_MAX];
    // len (4 bytes), offset, seq, ts, attr, key length, header count, value length (4 bytes).
    let fits = value.len() - 14;
    let mut builder = BatchBuilder::anonymous();
    let mut push = |len: usize| builder.push(RecordParts { key: None, headers: &none, value: &value[..len] });
    assert_eq!(push(fits + 1), Err(BatchError::Record { index: 0, why: "larger than the limit" }));
    assert_eq!(push(fits), Ok(value.len()));
    assert!(matches!(push(fits), Err(BatchError::TooLarge(_))));
    let batch = builder.build(Compression::None).unwrap();
    Batch::parse(batch.bytes().clone()).unwrap().validate_records().unwrap();
}

#[test]
fn a_small_input_cannot_make_a_decoder_hold_more_than_the_largest_batch() {
    let bomb = lz4_flex::block::compress(&vec![0; 64 << 20]);
    let mut batch = build(&sample(), Compression::Lz4).bytes()[..HEADER_BYTES].to_vec();
    batch.extend_from_slice(&bomb);
    let len = batch.len() as u32 - 4;
    batch[0..4].copy_from_slice(&len.to_le_bytes());
    for (raw_bytes, refused_at_parse) in [(64 << 20, true), (1 << 20, false)] {
        batch[60..64].copy_from_slice(&u32::to_le_bytes(raw_bytes));
        let crc = crate::checksum::crc32c(&batch[32..]);
        batch[28..32].copy_from_slice(&crc.to_le_bytes());
        match Batch::parse(batch.clone().into()) {
            Err(error) => assert_eq!((error, refused_at_parse), (BatchError::TooLarge(64 << 20), true)),
            Ok(batch) => {
                assert!(!refused_at_parse);
                assert_eq!(batch.validate_records(), Err(BatchError::Decompress(raw_bytes)));
            }
        }
    }
}

proptest! {
    #[test]
    fn a_part_holds_the_same_records_at_the_same_places(
        records in proptest::collection::vec(any_parts(), 1..200), codec in 0usize..4,
        base in 0u64..1000, first in 0u64..1200, take in 0u32..250,
    ) {
        let batch = build(&records, CODECS[codec]);
        let placed = batch.placed(Offset(base), TimestampMs(9), PartitionId(4)).concat();
        let placed = Batch::parse(placed.into()).unwrap();
        let wanted: Vec<_> = placed.records().unwrap().within(Offset(first), take)
            .map(|record| { let it = record.unwrap(); (it.offset, it.seq, it.ts, it.key, it.headers, it.value) })
            .collect();
        match placed.slice_of(Offset(first), take) {
            Err(error) => {
                prop_assert_eq!(error, BatchError::Count(0));
                prop_assert!(wanted.is_empty());
            }
            Ok(part) => {
                let part = Batch::parse(part.bytes().clone()).unwrap();
                part.validate_records().unwrap();
                let got: Vec<_> = part.records().unwrap()
                    .map(|record| { let it = record.unwrap(); (it.offset, it.seq, it.ts, it.key, it.headers, it.value) })
                    .collect();
                prop_assert_eq!(got, wanted);
                prop_assert_eq!(part.header().partition, PartitionId(4));
            }
        }
    }
}

proptest! {
    #[test]
    fn several_parts_are_the_slices_that_they_name(
        records in proptest::collection::vec(any_parts(), 1..120), codec in 0usize..4,
        steps in proptest::collection::vec((0u32..20, 1u32..20), 1..12),
    ) {
        let batch = build(&records, CODECS[codec]);
        let (mut ranges, mut at) = (Vec::new(), 0);
        for (skip, take) in steps {
            let range = at + skip..(at + skip + take).min(batch.header().count);
            if range.is_empty() {
                break;
            }
            at = range.end + 1;
            ranges.push(range);
        }
        prop_assume!(!ranges.is_empty());
        let parts = batch.parts_of(&ranges).unwrap();
        prop_assert_eq!(parts.len(), ranges.len());
        for (range, part) in ranges.iter().zip(parts) {
            let alone = batch.slice_of(Offset(range.start.into()), range.end - range.start).unwrap();
            prop_assert_eq!(part.bytes(), alone.bytes());
        }
    }
}

#[test]
fn ranges_that_meet_turn_back_or_end_beyond_the_batch_are_no_parts() {
    let records: Vec<Parts> = vec![(None, Vec::new(), vec![1]); 4];
    let batch = build(&records, Compression::None);
    for (first, second) in [(2..2, None), (0..5, None), (2..3, Some(1..2)), (0..2, Some(1..3))] {
        let ranges: Vec<_> = std::iter::once(first).chain(second).collect();
        assert_eq!(batch.parts_of(&ranges), Err(BatchError::Count(0)), "{ranges:?}");
    }
}

#[test]
fn the_size_of_a_record_alone_is_what_the_builder_makes_of_it() {
    let mut headers = HeadersBuilder::default();
    headers.content_type("text/plain").user("x", b"y").unwrap();
    let headers = headers.finish();
    for (key, value) in [(None, 0), (Some(&b"k"[..]), 1), (Some(&[7; 200][..]), 300), (None, 70_000)] {
        let value = vec![1; value];
        for headers in [&headers, &Headers::default()] {
            let parts = RecordParts { key, headers, value: &value };
            assert_eq!(BatchBuilder::anonymous().push(parts), Ok(parts.size()));
        }
    }
}
