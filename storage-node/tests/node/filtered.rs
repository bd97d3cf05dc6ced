//! Reads and followers with a filter: what does not match is looked at where it is, and goes nowhere.

use std::time::Duration;

use bytes::Bytes;
use prost::Message;
use weir_journal::disk::sim::SimDisk;
use weir_protocol::batch::{Batch, BatchBuilder, Compression, HeadersBuilder, RecordParts};
use weir_protocol::error::ErrorCode;
use weir_protocol::rpc::{
    At, Credit, Event, Level, Method, Packet, ReadAnswer, ReadRequest, SubscribeRequest,
};
use weir_transport::{CallError, Link};

use crate::client::{Follower, SHARD, WAIT, config, create, publish, start, values};
use crate::failures::start_on;

const PLENTY: Credit = Credit { records: 1 << 20, bytes: 1 << 30 };

/// Records with a header `h` of the value before the colon.
fn headed(values: &[String], compression: Compression) -> Batch {
    let mut builder = BatchBuilder::anonymous();
    for value in values {
        let mut headers = HeadersBuilder::default();
        headers.user("h", value.split_once(':').unwrap().0.as_bytes()).unwrap();
        let parts = RecordParts { key: None, headers: &headers.finish(), value: value.as_bytes() };
        builder.push(parts).unwrap();
    }
    builder.build(compression).unwrap()
}

/// Publishes `count` records in batches of 500; every `nth` one has the header `b`, others `a`.
async fn publish_every(link: &Link, life: u64, count: usize, nth: usize) -> Vec<String> {
    let value = |n: usize| format!("{}:{n}", if n.is_multiple_of(nth) { "b" } else { "a" });
    let all: Vec<String> = (0..count).map(value).collect();
    for (n, some) in all.chunks(500).enumerate() {
        let codec = [Compression::None, Compression::Lz4, Compression::Zstd][n % 3];
        publish(link, life, &headed(some, codec)).await.unwrap();
    }
    all.into_iter().filter(|value| value.starts_with('b')).collect()
}

fn wanted(life: u64, filter: &str) -> ReadRequest {
    ReadRequest {
        incarnation: life,
        from: At::Earliest(true).into(),
        max_records: 1_000,
        max_bytes: 1 << 20,
        filter: Some(filter.to_owned()),
        ..ReadRequest::default()
    }
}

/// An answer, its values and the bytes that it took to carry them.
async fn read(link: &Link, request: &ReadRequest) -> Result<(ReadAnswer, Vec<String>, usize), ErrorCode> {
    let body = vec![Bytes::from(request.encode_to_vec())];
    match link.call(Method::Read, SHARD, body, WAIT).await {
        Ok(answer) => {
            let bytes = answer.len();
            let packet = Packet::<ReadAnswer>::decode(answer).unwrap();
            let values = values(&packet.message.slices, packet.payload);
            Ok((packet.message, values, bytes))
        }
        Err(CallError::Refused(refusal)) => Err(refusal.error_code()),
        Err(other) => panic!("{other}"),
    }
}

fn following(life: u64, filter: &str, limit: Credit) -> SubscribeRequest {
    SubscribeRequest {
        incarnation: life,
        from: At::Earliest(true).into(),
        limit,
        filter: Some(filter.to_owned()),
        ..SubscribeRequest::default()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_has_what_matches_says_how_far_it_looked_and_carries_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let (node, link) = start(dir.path()).await;
    let life = create(&link, "orders", config()).await;
    let matching = publish_every(&link, life, 3_000, 100).await;

    let (answer, found, bytes) = read(&link, &wanted(life, "header.h == 'b'")).await.unwrap();
    assert_eq!(found, matching);
    assert_eq!((answer.from, answer.next, answer.up_to_date), (0, 3_000, true));
    assert!(bytes < 30 * 150, "{bytes} bytes for 30 records of 3,000");

    // A page that is full ends right behind what it has.
    let few = ReadRequest { max_records: 7, ..wanted(life, "header.h == 'b'") };
    let (answer, found, _) = read(&link, &few).await.unwrap();
    assert_eq!((found.as_slice(), answer.next, answer.up_to_date), (&matching[..7], 601, false));
    let rest = ReadRequest { from: At::Offset(answer.next).into(), ..wanted(life, "header.h == 'b'") };
    assert_eq!(read(&link, &rest).await.unwrap().1, matching[7..]);
    let until = ReadRequest { until: Some(At::Offset(950).into()), ..wanted(life, "header.h == 'b'") };
    let (answer, found, _) = read(&link, &until).await.unwrap();
    assert_eq!((found.as_slice(), answer.next), (&matching[..10], 950));

    let (answer, found, _) = read(&link, &wanted(life, "header.h == 'c'")).await.unwrap();
    assert_eq!((found.len(), answer.next, answer.up_to_date), (0, 3_000, true));
    let everything = read(&link, &wanted(life, "header.h == '*'")).await.unwrap();
    assert_eq!((everything.1.len(), everything.0.next), (1_000, 1_000));
    let refused = read(&link, &wanted(life, "header.h")).await.unwrap_err();
    assert_eq!(refused, ErrorCode::InvalidParameter);
    node.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_answer_looks_at_so_much_and_the_next_goes_on_behind_it() {
    let dir = tempfile::tempdir().unwrap();
    let (node, link) = start(dir.path()).await;
    let life = create(&link, "orders", config()).await;
    publish_every(&link, life, 40_000, 50_000).await;
    publish(&link, life, &headed(&["c:last".to_owned()], Compression::None)).await.unwrap();

    let request = wanted(life, "header.h == 'c'");
    let (answer, found, _) = read(&link, &request).await.unwrap();
    assert_eq!((found.len(), answer.up_to_date), (0, false), "more is there than one answer looks at");
    assert!((32_768..40_000).contains(&answer.next), "{}", answer.next);
    let rest = ReadRequest { from: At::Offset(answer.next).into(), ..request.clone() };
    let (answer, found, _) = read(&link, &rest).await.unwrap();
    assert_eq!((found, answer.next, answer.up_to_date), (vec!["c:last".to_owned()], 40_001, true));
    // Of several reads for one request each looks at its share.
    let shared = ReadRequest { filter_share: 8, ..request };
    let (answer, ..) = read(&link, &shared).await.unwrap();
    assert!((4_096..6_000).contains(&answer.next), "{}", answer.next);
    node.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_for_a_match_is_not_woken_up_by_anything_else() {
    let dir = tempfile::tempdir().unwrap();
    let (node, link) = start(dir.path()).await;
    let life = create(&link, "orders", config()).await;
    let request = ReadRequest { wait_ms: 20_000, ..wanted(life, "header.h == 'b'") };
    let waiting = {
        let (link, request) = (link.clone(), request.clone());
        tokio::spawn(async move { read(&link, &request).await.unwrap() })
    };
    publish(&link, life, &headed(&["a:0".to_owned()], Compression::None)).await.unwrap();
    publish(&link, life, &headed(&["b:1".to_owned()], Compression::None)).await.unwrap();
    let (answer, found, _) = tokio::time::timeout(WAIT, waiting).await.unwrap().unwrap();
    assert_eq!((found, answer.from, answer.next), (vec!["b:1".to_owned()], 0, 2));
    let in_vain = ReadRequest { wait_ms: 50, from: At::Offset(2).into(), ..request };
    publish(&link, life, &headed(&["a:2".to_owned()], Compression::None)).await.unwrap();
    let (answer, found, _) = read(&link, &in_vain).await.unwrap();
    assert_eq!((found.len(), answer.next), (0, 3), "it was looked at meanwhile");
    node.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_filter_keeps_back_costs_a_follower_no_credit_and_it_hears_how_far_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let (node, link) = start(dir.path()).await;
    let life = create(&link, "orders", config()).await;
    let matching = publish_every(&link, life, 12_000, 5_000).await;
    assert_eq!(matching, ["b:0", "b:5000", "b:10000"]);

    let one = Credit { records: 1, bytes: 1 << 20 };
    let mut follower = Follower::open_with(&link, following(life, "header.h == 'b'", one)).await;
    assert!(matches!(follower.next().await.0, Event::Started(started) if started.from == 0));
    assert_eq!(follower.next().await.1, ["b:0"]);
    // Without credit nothing is looked at.
    assert!(follower.drain(0).await.is_empty());
    follower.grant(Credit { records: 3, bytes: 1 << 20 });
    let (mut found, mut looked, mut end) = (Vec::new(), Vec::new(), None);
    while end.is_none() {
        match follower.next().await {
            (Event::Records(_), values) => found.extend(values),
            (Event::Looked(told), _) => looked.push(told.upto),
            (Event::CaughtUp(caught_up), _) => end = Some(caught_up.end),
            (other, _) => panic!("{other:?}"),
        }
        if found.len() == 2 {
            follower.grant(Credit { records: 4, bytes: 1 << 20 });
        }
    }
    assert_eq!((found.as_slice(), end), (&matching[1..], Some(12_000)));
    assert!(!looked.is_empty() && looked.iter().all(|upto| (4_097..10_000).contains(upto)), "{looked:?}");

    // What comes and does not match is not even told; what matches is.
    publish(&link, life, &headed(&["a:x".to_owned(), "a:y".to_owned()], Compression::None)).await.unwrap();
    publish(&link, life, &headed(&["b:z".to_owned()], Compression::None)).await.unwrap();
    assert_eq!(follower.next().await.1, ["b:z"]);
    assert!(matches!(follower.next().await.0, Event::CaughtUp(caught_up) if caught_up.end == 12_003));
    node.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_filter_holds_for_what_is_not_committed_too() {
    let disk = SimDisk::new();
    let (node, link) = start_on(&disk).await;
    let life = create(&link, "orders", config()).await;
    let request =
        SubscribeRequest { min_level: Level::Memory as i32, ..following(life, "header.h == 'b'", PLENTY) };
    let mut follower = Follower::open_with(&link, request).await;
    assert!(matches!(follower.next().await.0, Event::Started(_)));
    assert!(matches!(follower.next().await.0, Event::CaughtUp(_)));
    disk.stall_syncs();
    let batch = headed(&["a:0".to_owned(), "b:1".to_owned(), "a:2".to_owned()], Compression::None);
    let published = {
        let link = link.clone();
        tokio::spawn(async move { publish(&link, life, &batch).await.unwrap() })
    };
    let (event, values) = follower.next().await;
    let Event::Records(records) = event else { panic!("{event:?}") };
    assert_eq!((values, records.committed_end), (vec!["b:1".to_owned()], 0), "before its sync");
    disk.go_on();
    published.await.unwrap();
    let mut firm = 0;
    while firm < 2 {
        match follower.next().await.0 {
            Event::Firm(told) => firm = told.upto,
            other => panic!("{other:?}"),
        }
    }
    node.shutdown(Duration::from_secs(5)).await;
}
