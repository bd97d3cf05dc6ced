//! Reads of many partitions, against a node played over memory that keeps every answer for a while.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicUsize, Ordering};

use weir_protocol::batch::{BatchBuilder, Compression, Headers, RecordParts};
use weir_protocol::ids::{Name, TimestampMs};
use weir_protocol::rpc::{DescribeTopicRequest, Slice, TopicConfig, TopicDescription, encode_packet};
use weir_transport::{Peer, Request, Service};

use super::*;
use crate::answers::Answers;
use crate::service::read::played::{OverMemory, cluster_map};
use crate::service::{ServiceConfig, Services};
use crate::storage::StorageConfig;

const PARTITIONS: u32 = 100;

/// A topic of a hundred partitions, with one record each.
#[derive(Default)]
struct Node {
    asked: AtomicUsize,
    at_once: AtomicUsize,
    most_at_once: AtomicUsize,
}

#[derive(Clone)]
struct Playing(Arc<Node>);

/// The one record of a partition, which says where it lies.
fn answer(partition: u32, with_record: bool) -> Vec<bytes::Bytes> {
    let mut builder = BatchBuilder::anonymous();
    let value = format!("of {partition}");
    builder.push(RecordParts { key: None, headers: &Headers::default(), value: value.as_bytes() }).unwrap();
    let batch = builder.build(Compression::None).unwrap();
    // Times the other way round than partitions: a page is in the order of time.
    let batch =
        batch.placed(Offset(0), TimestampMs(u64::from(1_000 - partition)), PartitionId(partition)).concat();
    let slice = Slice { first: 0, take: 1, batch_bytes: u32::try_from(batch.len()).unwrap() };
    let answer = ReadAnswer {
        slices: vec![slice; usize::from(with_record)],
        next: u64::from(with_record),
        committed_end: 1,
        up_to_date: true,
        term: 1,
        ..ReadAnswer::default()
    };
    encode_packet(&answer, with_record.then(|| batch.into()))
}

impl Service for Playing {
    fn call(&self, _: &Peer, request: Request) {
        let body = match request.method {
            Method::ClusterMap => cluster_map(2).encode_to_vec(),
            Method::DescribeTopic => TopicDescription {
                name: DescribeTopicRequest::decode(request.body).unwrap().name,
                incarnation: 7,
                version: 1,
                config: Some(TopicConfig { partitions: PARTITIONS, ..TopicConfig::default() }),
                shards: (0..PARTITIONS).map(|partition| 1 + partition % 2).collect(),
                created_ms: 1,
                first_incarnation: 0,
            }
            .encode_to_vec(),
            Method::Read => {
                let read = ReadRequest::decode(request.body).unwrap();
                let node = Arc::clone(&self.0);
                node.asked.fetch_add(1, Ordering::Relaxed);
                let now = 1 + node.at_once.fetch_add(1, Ordering::Relaxed);
                node.most_at_once.fetch_max(now, Ordering::Relaxed);
                tokio::spawn(async move {
                    // Virtual time: it passes once everybody waits, so all that is asked at once has been asked.
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    node.at_once.fetch_sub(1, Ordering::Relaxed);
                    let from_start = Position::from(At::Earliest(true));
                    request.reply.finish(answer(read.partition, read.from == from_start));
                });
                return;
            }
            other => panic!("{other:?}"),
        };
        request.reply.finish(vec![body.into()]);
    }
}

#[tokio::test(start_paused = true)]
async fn many_partitions_are_read_right_and_only_some_are_asked_at_once() {
    let node = Arc::<Node>::default();
    let storage = Storage::new(
        StorageConfig::new(vec!["memory".into()]),
        Arc::new(OverMemory(Playing(Arc::clone(&node)))),
    );
    let reader = Services::new(storage, ServiceConfig::default()).reader;
    let name = |text: &str| Name::new(text).unwrap();
    let read = Read {
        topic: TopicPath { tenant: name("default"), namespace: name("default"), topic: name("wide") },
        incarnation: None,
        partition: None,
        from: StartAt::Earliest,
        until: None,
        limit: 1_000,
        max_bytes: 1 << 20,
        wait: Duration::ZERO,
        min_level: Level::Unset,
        clamp: false,
        filter: None,
    };
    let mut room = Answers::new(1 << 20).client(Ipv4Addr::LOCALHOST.into()).nothing();
    let page = reader.read(&read, &mut room).await.unwrap();
    assert!(room.bytes() > 0, "it is counted");
    assert_eq!(node.asked.load(Ordering::Relaxed), PARTITIONS as usize, "each partition once");
    assert_eq!(node.most_at_once.load(Ordering::Relaxed), ASKED_AT_ONCE);
    let edges: Vec<_> = page.partitions.iter().map(|edge| (edge.partition.0, edge.next.0)).collect();
    assert_eq!(edges, (0..PARTITIONS).map(|partition| (partition, 1)).collect::<Vec<_>>());
    let found: Vec<_> = page
        .slices
        .iter()
        .map(|slice| {
            let record = slice.records().unwrap().next().unwrap().unwrap();
            assert_eq!(record.value, format!("of {}", slice.partition.0));
            slice.partition.0
        })
        .collect();
    assert_eq!(found, (0..PARTITIONS).rev().collect::<Vec<_>>(), "in the order of time");
    assert!(page.up_to_date);

    // Its cursor goes on everywhere.
    let rest = Read { from: StartAt::Cursor(page.cursor), ..read };
    let page = reader.read(&rest, &mut room).await.unwrap();
    assert_eq!((page.partitions.len(), page.slices.len()), (PARTITIONS as usize, 0));
    assert_eq!(room.bytes(), 0);
}

#[tokio::test(start_paused = true)]
async fn what_does_not_fit_the_page_is_cut_as_answers_come_and_the_page_is_the_same() {
    let slice = |partition: u32, ts: u64| {
        let headers = Headers::default();
        let mut builder = BatchBuilder::anonymous();
        builder.push(RecordParts { key: None, headers: &headers, value: &[0; 1_000] }).unwrap();
        let place = (Offset(0), TimestampMs(ts), PartitionId(partition));
        let placed = builder.build(Compression::None).unwrap().placed(place.0, place.1, place.2);
        let batch = weir_protocol::batch::Batch::parse(placed.concat().into()).unwrap();
        let (partition, first, committed_end) = (PartitionId(partition), Offset(0), Offset(1));
        RecordSlice { partition, batch, first, take: 1, committed_end, term: Term(1) }
    };
    let answers = || -> Vec<_> {
        let answer = |(partition, ts)| {
            let offset = Offset(0);
            let edge = PartitionEdge {
                partition: PartitionId(partition),
                from: offset,
                next: Offset(1),
                start: offset,
                committed_end: Offset(1),
                compacted_to: offset,
            };
            PartitionRead { slices: vec![slice(partition, ts)], edge, up_to_date: true, closed: false }
        };
        [(0, 7), (1, 3), (2, 9), (3, 1), (4, 5)].map(answer).into()
    };
    let limit = Credit { records: 100, bytes: 2_500 };
    let found = |answers: &[PartitionRead], kept: &[(usize, RecordSlice)]| {
        let ends: Vec<_> = answers.iter().map(|answer| (answer.edge.next, answer.up_to_date)).collect();
        (ends, kept.iter().map(|(_, slice)| slice.partition.0).collect::<Vec<_>>())
    };
    let mut whole = answers();
    let kept = merged(&mut whole, limit).unwrap();
    let expected = found(&whole, &kept);
    assert_eq!(expected.1, [3, 1, 4]);
    let mut coming = Vec::new();
    for answer in answers() {
        coming.push(answer);
        assert!(cut(&mut coming, limit).unwrap() <= 4_000, "no more than the page and a record");
    }
    let kept = merged(&mut coming, limit).unwrap();
    assert_eq!(found(&coming, &kept), expected);
}
