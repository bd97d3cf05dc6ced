//! Readers that do not wait for the commit: what they are sent before the sync, and what they are told after it.

use std::time::Duration;

use weir_journal::disk::sim::SimDisk;
use weir_protocol::batch::Batch;
use weir_protocol::rpc::{At, Credit, Event, Level, Records, Retract, SubscribeRequest};
use weir_transport::Link;

use crate::client::{Follower, WAIT, batch, config, create, publish, publish_refused, read};
use crate::failures::start_on;

const PLENTY: Credit = Credit { records: 1 << 20, bytes: 1 << 30 };

fn early(life: u64, from: u64) -> SubscribeRequest {
    SubscribeRequest {
        incarnation: life,
        from: At::Offset(from).into(),
        min_level: Level::Memory as i32,
        limit: PLENTY,
        ..SubscribeRequest::default()
    }
}

fn publishing(link: &Link, life: u64, batch: Batch) -> tokio::task::JoinHandle<Option<u64>> {
    let link = link.clone();
    tokio::spawn(
        async move { publish_refused(&link, life, &batch).await.ok().map(|placed| placed.base_offset) },
    )
}

/// The next records; what comes before them must be neither `firm` nor `retract`.
async fn records(follower: &mut Follower) -> (Records, Vec<String>) {
    loop {
        match follower.next().await {
            (Event::Records(records), values) => return (records, values),
            (Event::Started(_) | Event::CaughtUp(_), _) => {}
            (other, _) => panic!("{other:?}"),
        }
    }
}

async fn started(follower: &mut Follower) -> u64 {
    let (Event::Started(started), _) = follower.next().await else { panic!("the start comes first") };
    started.from
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_below_quorum_has_a_record_before_its_sync_returns_and_then_hears_that_it_is_firm() {
    let disk = SimDisk::new();
    let (node, link) = start_on(&disk).await;
    let life = create(&link, "orders", config()).await;
    publish(&link, life, &batch(0, 0, &["before"])).await.unwrap();
    let mut ahead = Follower::open_with(&link, early(life, 0)).await;
    let mut behind = Follower::open(&link, life, At::Offset(0), PLENTY).await;
    assert_eq!(records(&mut ahead).await.1, ["before"]);
    assert_eq!(behind.drain(1).await, ["before"]);

    disk.stall_syncs();
    let published = publishing(&link, life, batch(7, 0, &["a", "b"]));
    let (sent, values) = records(&mut ahead).await;
    assert_eq!((values, sent.committed_end), (vec!["a".into(), "b".into()], 1), "nothing is synced yet");
    assert!(sent.term > 0);
    // Behind it in the same term, and in another entry.
    let second = publishing(&link, life, batch(7, 2, &["c"]));
    assert_eq!(records(&mut ahead).await.1, ["c"]);
    assert!(behind.drain(0).await.is_empty(), "who waits for the commit sees nothing that is not");
    assert!(!published.is_finished(), "and nobody is told that it is safe");
    let (answer, found) = read(&link, life, At::Earliest(true), 0).await.unwrap();
    assert_eq!((answer.committed_end, found), (1, vec!["before".to_owned()]));

    disk.go_on();
    let mut firm = 1;
    while firm < 4 {
        let (Event::Firm(told), _) = ahead.next().await else { panic!("nothing else is left to tell") };
        assert!(told.upto > firm && told.upto <= 4);
        firm = told.upto;
    }
    assert_eq!((published.await.unwrap(), second.await.unwrap()), (Some(1), Some(3)));
    assert_eq!(behind.drain(3).await, ["a", "b", "c"]);
    let text = prometheus::TextEncoder::new().encode_to_string(&node.registry().gather()).unwrap();
    for line in ["weir_node_early_records_total 3", "weir_node_staged_bytes 0", "weir_node_retracted_total 0"]
    {
        assert!(text.contains(line), "{line} in {text}");
    }
    node.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_failed_sync_may_have_lost_is_taken_back_from_who_was_sent_it() {
    let disk = SimDisk::new();
    let (node, link) = start_on(&disk).await;
    let life = create(&link, "orders", config()).await;
    publish(&link, life, &batch(0, 0, &["kept"])).await.unwrap();
    let mut ahead = Follower::open_with(&link, early(life, 0)).await;
    let mut behind = Follower::open(&link, life, At::Offset(1), PLENTY).await;
    assert_eq!(records(&mut ahead).await.1, ["kept"]);
    disk.stall_syncs();
    let unlucky = publishing(&link, life, batch(0, 0, &["x", "y"]));
    let (sent, values) = records(&mut ahead).await;
    assert_eq!(values, ["x", "y"]);
    disk.fail_syncs();
    disk.go_on();
    let (told, _) = ahead.next().await;
    assert_eq!(told, Event::Retract(Retract { from: 1, to: 3, term: sent.term }));
    assert_eq!(unlucky.await.unwrap(), None);
    assert!(ahead.drain(0).await.is_empty(), "nothing has these offsets");
    assert!(behind.drain(0).await.is_empty());
    tokio::time::timeout(WAIT, node.shutdown(Duration::from_secs(2))).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_comes_back_goes_on_in_the_same_term_and_is_told_to_forget_after_a_restart() {
    let disk = SimDisk::new();
    let (node, link) = start_on(&disk).await;
    let life = create(&link, "orders", config()).await;
    publish(&link, life, &batch(0, 0, &["before"])).await.unwrap();
    let mut ahead = Follower::open_with(&link, early(life, 1)).await;
    assert!(matches!(ahead.next().await.0, Event::Started(_)));
    disk.stall_syncs();
    let published = publishing(&link, life, batch(0, 0, &["a", "b"]));
    let (sent, _) = records(&mut ahead).await;
    drop(ahead);
    let resumed = |from, term| SubscribeRequest { seen_term: Some(term), firm_end: 1, ..early(life, from) };
    let mut again = Follower::open_with(&link, resumed(3, sent.term)).await;
    assert_eq!(started(&mut again).await, 3, "what it saw is still on its way");
    // Who waits for the commit has no use for it; and of another term nothing is known.
    for mut other in [
        Follower::open_with(&link, SubscribeRequest { min_level: 0, ..resumed(3, sent.term) }).await,
        Follower::open_with(&link, resumed(3, sent.term + 1)).await,
        Follower::open_with(&link, resumed(9, sent.term)).await,
    ] {
        assert_eq!(started(&mut other).await, 1);
        assert!(matches!(other.next().await.0, Event::Retract(Retract { from: 1, .. })));
    }
    let crashed = disk.after_crash(3);
    disk.go_on();
    assert!(matches!(again.next().await.0, Event::Firm(firm) if firm.upto == 3));
    assert_eq!(published.await.unwrap(), Some(1));
    node.shutdown(Duration::from_secs(5)).await;

    let (node, link) = start_on(&crashed).await;
    let (answer, found) = read(&link, life, At::Offset(1), 0).await.unwrap();
    let mut again = Follower::open_with(&link, resumed(3, sent.term)).await;
    assert_eq!(started(&mut again).await, 1);
    let retract = Retract { from: 1, to: 3, term: sent.term };
    assert_eq!(again.next().await.0, Event::Retract(retract), "whatever has become of it: {answer:?}");
    assert_eq!(again.drain(found.len()).await, found);
    node.shutdown(Duration::from_secs(5)).await;
}
