use proptest::prelude::*;
use weir_protocol::batch::{Batch, BatchBuilder, Compression, Headers, RecordParts};
use weir_protocol::ids::{Offset, PartitionId, Term, TimestampMs};

use super::*;
use crate::service::read::records::RecordSlice;

fn slice(base: u64, sizes: &[usize]) -> RecordSlice {
    let mut builder = BatchBuilder::anonymous();
    for size in sizes {
        let value = vec![1; *size];
        builder.push(RecordParts { key: None, headers: &Headers::default(), value: &value }).unwrap();
    }
    let placed =
        builder.build(Compression::None).unwrap().placed(Offset(base), TimestampMs(1), PartitionId(0));
    RecordSlice {
        partition: PartitionId(0),
        batch: Batch::parse(placed.concat().into()).unwrap(),
        first: Offset(base),
        take: u32::try_from(sizes.len()).unwrap(),
        committed_end: Offset(u64::MAX),
        term: Term(1),
    }
}

fn sizes_of(slices: &[RecordSlice]) -> Vec<(u64, u64)> {
    let records = slices.iter().flat_map(|slice| slice.records().unwrap());
    records.map(|record| record.unwrap()).map(|record| (record.offset.0, record.size as u64)).collect()
}

proptest! {
    #[test]
    fn as_many_records_go_as_credit_allows_and_the_last_may_overshoot(
        batches in proptest::collection::vec(proptest::collection::vec(0usize..200, 1..6), 1..6),
        records in 0u64..20, bytes in 0u64..1_500,
    ) {
        let mut slices = Vec::new();
        for sizes in &batches {
            let base = slices.last().map_or(0, |slice: &RecordSlice| slice.end().0);
            slices.push(slice(base, sizes));
        }
        let all = sizes_of(&slices);
        let split = Parcel::Own(slices).split(Credit { records, bytes }).unwrap();
        // The rule, record by record.
        let (mut sent, mut expected) = (0, 0);
        while expected < all.len() && (expected as u64) < records && sent < bytes {
            sent += all[expected].1;
            expected += 1;
        }
        prop_assert_eq!(sizes_of(split.now.slices()), &all[..expected]);
        prop_assert_eq!(sizes_of(&split.rest), &all[expected..]);
        prop_assert_eq!(split.used, Credit { records: expected as u64, bytes: sent });
    }
}
