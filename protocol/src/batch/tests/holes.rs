//! Batches with holes: what compaction leaves of a batch.

use std::collections::BTreeSet;

use super::*;

type Told = (Offset, Seq, TimestampMs, Option<Bytes>, Headers, Bytes);

fn told(record: Result<Record, BatchError>) -> Told {
    let it = record.unwrap();
    (it.offset, it.seq, it.ts, it.key, it.headers, it.value)
}

fn placed(batch: &Batch) -> Batch {
    Batch::parse(batch.placed(Offset(1_000), TimestampMs(9), PartitionId(4)).concat().into()).unwrap()
}

fn without_the_first_and_the_third() -> Batch {
    let mut records = sample();
    records.push((None, vec![], b"kept".to_vec()));
    build(&records, Compression::None).retain(|place| place == 1 || place == 3).unwrap()
}

/// The same bytes with a header that says something else, checksum made right.
fn said(batch: &Batch, edit: impl FnOnce(&mut Vec<u8>)) -> Result<Batch, BatchError> {
    let mut bytes = batch.bytes().to_vec();
    edit(&mut bytes);
    let crc = crate::checksum::crc32c(&bytes[32..]);
    bytes[28..32].copy_from_slice(&crc.to_le_bytes());
    Batch::parse(bytes.into())
}

proptest! {
    #[test]
    fn what_is_kept_keeps_its_place_and_everything_else(
        records in proptest::collection::vec(any_parts(), 1..60), codec in 0usize..4, mask: u64,
        first in 990u64..1_070, take in 0u32..70,
    ) {
        let batch = placed(&build(&records, CODECS[codec]));
        let is_kept = |place: u64| mask & (1 << (place % 64)) != 0;
        let left = batch.retain(|place| is_kept(place.into())).unwrap();
        let expected: Vec<_> = batch.records().unwrap().map(told)
            .filter(|record| is_kept(record.0.0 - 1_000)).collect();
        let read = Batch::parse(left.bytes().clone()).unwrap();
        prop_assert_eq!(&read, &left);
        prop_assert_eq!(read.records().unwrap().map(told).collect::<Vec<_>>(), expected.clone());
        let sizes: usize = read.records().unwrap().map(|record| record.unwrap().size).sum();
        prop_assert_eq!(sizes, read.header().raw_bytes as usize);
        prop_assert_eq!((read.header().count, read.header().records()), (batch.header().count, expected.len() as u32));
        prop_assert_eq!(read.header().left.is_some(), expected.len() < records.len());
        prop_assert_eq!(placed(&read.unplaced()), left.clone());
        // Nobody may publish it.
        if read.header().left.is_some() {
            prop_assert_eq!(read.validate_records(), why(0, "a published batch has no holes"));
        }
        // Twice is once, and what is gone stays so.
        prop_assert_eq!(left.retain(|_| true).unwrap(), left.clone());
        let less = left.retain(|place| place % 2 == 0).unwrap();
        let fewer: Vec<_> = expected.iter().filter(|record| record.0.0 % 2 == 0).cloned().collect();
        prop_assert_eq!(less.records().unwrap().map(told).collect::<Vec<_>>(), fewer);
        // A part of it has holes where it has.
        let end = first + u64::from(take);
        let meant: Vec<_> = expected.iter().filter(|record| (first..end).contains(&record.0.0)).cloned().collect();
        match left.slice_of(Offset(first), take) {
            Err(error) => {
                prop_assert_eq!(error, BatchError::Count(0));
                prop_assert!(meant.is_empty());
            }
            Ok(part) => {
                let part = Batch::parse(part.bytes().clone()).unwrap();
                prop_assert_eq!(part.records().unwrap().map(told).collect::<Vec<_>>(), meant);
            }
        }
    }

    #[test]
    fn runs_of_what_is_kept_are_batches_without_holes(
        records in proptest::collection::vec(any_parts(), 1..60), codec in 0usize..4, mask: u64,
    ) {
        let places: BTreeSet<u32> = (0..records.len() as u32).filter(|place| mask & (1 << place) != 0).collect();
        prop_assume!(!places.is_empty());
        let left = build(&records, CODECS[codec]).retain(|place| places.contains(&place)).unwrap();
        let mut runs: Vec<std::ops::Range<u32>> = Vec::new();
        for place in places {
            match runs.last_mut().filter(|run| run.end == place) {
                Some(run) => run.end += 1,
                None => runs.push(place..place + 1),
            }
        }
        let mut all = Vec::new();
        for (part, run) in left.parts_of(&runs).unwrap().iter().zip(&runs) {
            prop_assert_eq!((part.header().left, part.header().count), (None, run.end - run.start));
            part.validate_records().unwrap();
            all.extend(part.records().unwrap().map(told));
        }
        prop_assert_eq!(all, left.records().unwrap().map(told).collect::<Vec<_>>());
    }
}

#[test]
fn every_truncation_and_every_flipped_bit_of_one_is_refused() {
    for compression in CODECS {
        let whole = build(&sample(), compression).retain(|place| place != 1).unwrap().bytes().clone();
        for cut in 0..whole.len() {
            assert!(Batch::parse(whole.slice(..cut)).is_err(), "{compression:?} cut at {cut}");
        }
        for bit in 0..whole.len() * 8 {
            let mut bytes = whole.to_vec();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let stamped = (8..28).contains(&(bit / 8));
            assert_eq!(Batch::parse(bytes.into()).is_ok(), stamped, "{compression:?} bit {bit}");
        }
    }
}

#[test]
fn one_of_which_nothing_is_left_is_a_header() {
    for compression in CODECS {
        let batch = build(&sample(), compression);
        let none = batch.retain(|_| false).unwrap();
        assert_eq!(none.bytes().len(), HEADER_BYTES);
        let header = none.header();
        assert_eq!((header.count, header.left, header.codec), (3, Some(0), Codec::None));
        assert_eq!(Batch::parse(none.bytes().clone()).unwrap().records().unwrap().count(), 0);
        assert_eq!(none.slice_of(Offset(0), 3), Err(BatchError::Count(0)));
        assert_eq!(none.parts_of(std::slice::from_ref(&(1..2))), Err(BatchError::Count(0)));
    }
}

#[test]
fn a_header_that_contradicts_itself_about_holes_is_refused() {
    let batch = without_the_first_and_the_third();
    let flag = Err(BatchError::Unknown("flag"));
    assert_eq!(said(&batch, |bytes| bytes[33] = 3), flag);
    assert_eq!(said(&batch, |bytes| bytes[33] = 0), flag, "a number of records without holes");
    assert_eq!(
        said(&batch, |bytes| bytes[34] = 4),
        Err(BatchError::Count(4)),
        "as many as there are offsets"
    );
    assert_eq!(said(&batch, |bytes| bytes[35] = 1), Err(BatchError::Count(0x102)));
    assert_eq!(
        said(&batch, |bytes| bytes[34] = 0),
        Err(BatchError::Count(0)),
        "none, and yet there are bytes"
    );
    let more = said(&batch, |bytes| bytes[34] = 3).unwrap();
    assert!(more.records().unwrap().any(|record| record.is_err()), "a record more than there is");
}

#[test]
fn records_behind_a_hole_are_in_order_and_within_the_batch() {
    let batch = without_the_first_and_the_third();
    let wrong = BatchError::Record { index: 1, why: "not at its place in the batch" };
    // The second record begins behind the first, which has an empty key and two bytes of length prefixes
    // before its deltas.
    let second = HEADER_BYTES + batch.records().unwrap().next().unwrap().unwrap().size;
    let read = |place: u8, seq: u8| {
        let said =
            said(&batch, |bytes| bytes[second + 1..second + 3].copy_from_slice(&[place, seq])).unwrap();
        said.records().unwrap().last().unwrap().map(|record| record.offset)
    };
    assert_eq!((read(3, 3), read(2, 2)), (Ok(Offset(3)), Ok(Offset(2))));
    for (place, seq) in [(1, 1), (0, 0), (4, 4), (3, 2)] {
        assert_eq!(read(place, seq), Err(wrong.clone()), "{place} {seq}");
    }
}

#[test]
fn the_layout_with_holes_is_pinned_by_a_golden_file() {
    let path = format!("{}/tests/golden/batch-holes.bin", env!("CARGO_MANIFEST_DIR"));
    let batch = without_the_first_and_the_third();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, batch.bytes()).unwrap();
    }
    assert_eq!(batch.bytes(), &Bytes::from(std::fs::read(&path).unwrap()));
}
