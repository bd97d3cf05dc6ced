use std::time::Duration;

use proptest::prelude::*;
use weir_protocol::batch::{Batch, BatchBuilder, Compression, Headers, RecordParts};
use weir_protocol::ids::{Offset, PartitionId, Term, TimestampMs};

use super::*;
use crate::service::read::played::{Played, told};
use crate::service::read::records::RecordSlice;
use crate::service::read::{ReadConfig, StartAt};

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

#[tokio::test(start_paused = true)]
async fn each_partition_has_a_window_and_is_told_what_credit_there_is_behind_it() {
    const RECORD: usize = 600 << 10;
    let mut node = Played::new(ReadConfig::default());
    let limit = |records, mib: u64| Credit { records, bytes: mib << 20 };
    let mut reader = node.follow(&["t", "u"], StartAt::Earliest, limit(3, 5)).await;
    let mut calls = Vec::new();
    for _ in 0..2 {
        let call = node.call(&mut [&mut reader]).await;
        assert_eq!((call.request.limit.records, call.allowed_bytes()), (u64::MAX, 1 << 20));
        let reach = (call.request.reach_records, call.request.reach_bytes);
        assert_eq!(reach, (Some(3), Some(5 << 20)), "any of them may have all of it");
        call.started(0);
        calls.push(call);
    }
    assert_eq!(told(&mut reader).await, "from 0");
    reader.raise_limit(limit(10, 9));
    // What one partition is given, the other is not.
    let reaches = |place: usize| {
        let (asked, told) = (&calls[place].request, calls[place].reply.credit().latest());
        let records = told.reach_records.max(asked.reach_records);
        (records.unwrap(), told.reach_bytes.max(asked.reach_bytes).unwrap())
    };
    for (place, reach_records) in [(0, 10), (1, 9)] {
        calls[place].record(0, RECORD);
        assert_eq!(told(&mut reader).await, "0..1");
        assert_eq!(told(&mut reader).await, "end 1");
        let others = place * RECORD;
        let is_told = async {
            while reaches(place).0 != reach_records {
                assert!(futures_util::FutureExt::now_or_never(reader.next()).is_none());
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), is_told).await.expect("another window");
        let less = (9 << 20) - reaches(place).1;
        assert!((others as u64..others as u64 + 1_000).contains(&less), "{less} bytes went to the other");
    }
}
