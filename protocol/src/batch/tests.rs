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
    (proptest::option::of(bytes(20)), proptest::collection::vec(("[a-z]{1,5}", bytes(9)), 0..4), bytes(300))
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
