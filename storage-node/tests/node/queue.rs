//! A topic as a work queue: leases, settles, retries, dead letters, seeks, restarts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use prost::Message;
use weir_journal::disk::sim::SimDisk;
use weir_protocol::batch::{Batch, BatchBuilder, Compression, Headers, HeadersBuilder, RecordParts};
use weir_protocol::error::ErrorCode;
use weir_protocol::ids::{Epoch, Incarnation, ProducerKey, Seq, ShardId, TimestampMs};
use weir_protocol::rpc::{
    At, CreateSubscriptionRequest, DeleteSubscriptionRequest, Grant, LeaseList, ListLeasesRequest, Method,
    Packet, PartRef, PartStats, PartStatsList, PartStatsRequest, PullAnswer, PullRequest, SeekAnswer,
    SeekRequest, SettleAction, SettleAnswer, SettleItem, SettleOutcome, SettleRequest, SubscriptionConfig,
    SubscriptionCreated, SubscriptionDescription, SubscriptionName, TopicConfig, U128,
    UpdateSubscriptionRequest,
};
use weir_storage_node::clock;
use weir_transport::{CallError, Link};

use crate::client::{SHARD, WAIT, batch, call, config, create, publish, start, values};
use crate::failures::start_on;

pub(crate) fn queue_config(topic: &str) -> SubscriptionConfig {
    SubscriptionConfig {
        topic: topic.into(),
        lease_ms: 30_000,
        max_attempts: 3,
        backoff_ms: vec![0],
        dead_letter_topic: None,
        start: At::Earliest(true).into(),
        max_unacked: 100,
        paused: false,
        is_by_key: false,
        filter: None,
        fair_by: None,
        more_topics: Vec::new(),
        is_stream: false,
    }
}

pub(crate) fn subscription_name() -> SubscriptionName {
    SubscriptionName { tenant: "default".into(), namespace: "default".into(), subscription: "work".into() }
}

pub(crate) async fn subscribe(
    link: &Link,
    life: u64,
    config: SubscriptionConfig,
    shards: &[u32],
) -> SubscriptionDescription {
    subscribe_as(link, life, subscription_name(), config, shards).await
}

pub(crate) async fn subscribe_as(
    link: &Link,
    life: u64,
    name: SubscriptionName,
    config: SubscriptionConfig,
    shards: &[u32],
) -> SubscriptionDescription {
    let request = CreateSubscriptionRequest {
        name,
        config,
        topic_incarnation: life,
        shards: shards.to_vec(),
        more: Vec::new(),
        fork: None,
    };
    let made: SubscriptionCreated = call(link, Method::CreateSubscription, &request).await.unwrap();
    assert!(made.created);
    made.subscription
}

pub(crate) fn part(subscription: &SubscriptionDescription, partition: u32) -> PartRef {
    let (subscription, incarnation) = (subscription.id, subscription.topic_incarnation);
    PartRef { subscription, incarnation, partition }
}

pub(crate) async fn pull_at(
    link: &Link,
    shard: ShardId,
    request: &PullRequest,
) -> Result<(PullAnswer, Bytes), ErrorCode> {
    match link.call(Method::Pull, shard, vec![request.encode_to_vec().into()], WAIT).await {
        Ok(answer) => {
            let packet = Packet::<PullAnswer>::decode(answer).unwrap();
            Ok((packet.message, packet.payload.into_bytes()))
        }
        Err(CallError::Refused(refusal)) => Err(refusal.error_code()),
        Err(other) => panic!("{other}"),
    }
}

pub(crate) fn ask(part: PartRef, max_records: u32) -> PullRequest {
    PullRequest { part, max_records, max_bytes: 1 << 20, ..PullRequest::default() }
}

/// What was leased: grants, and the values of their records. A slice may hold records between them.
pub(crate) async fn pull(link: &Link, request: &PullRequest) -> (Vec<Grant>, Vec<String>) {
    let (answer, payload) = pull_at(link, SHARD, request).await.unwrap();
    let offsets = answer.slices.iter().flat_map(|slice| slice.first..slice.first + u64::from(slice.take));
    let is_granted = |offset| answer.grants.iter().any(|grant| grant.offset == offset);
    let all = offsets.zip(values(&answer.slices, payload));
    let found = all.filter(|(offset, _)| is_granted(*offset)).map(|(_, value)| value).collect();
    (answer.grants, found)
}

pub(crate) fn item(grant: &Grant, action: SettleAction) -> SettleItem {
    let (offset, fence) = (grant.offset, grant.fence);
    SettleItem { offset, fence, action: action as i32, ..SettleItem::default() }
}

pub(crate) async fn settle(
    link: &Link,
    part: PartRef,
    items: Vec<SettleItem>,
) -> Vec<(SettleOutcome, Option<Grant>)> {
    let answer: SettleAnswer = call(link, Method::Settle, &SettleRequest { part, items }).await.unwrap();
    answer.results.iter().map(|result| (result.outcome(), result.current)).collect()
}

pub(crate) async fn ack(link: &Link, part: PartRef, grants: &[Grant]) {
    let items = grants.iter().map(|grant| item(grant, SettleAction::Ack)).collect();
    let results = settle(link, part, items).await;
    assert!(results.iter().all(|(outcome, _)| *outcome == SettleOutcome::Done), "{results:?}");
}

pub(crate) async fn stats(link: &Link, part: PartRef) -> PartStats {
    let answer: PartStatsList =
        call(link, Method::PartStats, &PartStatsRequest { parts: vec![part] }).await.unwrap();
    answer.parts.into_iter().next().unwrap()
}

pub(crate) fn with(deliver_at: Option<u64>, ttl_ms: Option<u64>, value: &str) -> Batch {
    let mut headers = HeadersBuilder::default();
    if let Some(at) = deliver_at {
        headers.deliver_at(TimestampMs(at));
    }
    if let Some(ttl_ms) = ttl_ms {
        headers.ttl_ms(ttl_ms);
    }
    let mut builder = BatchBuilder::anonymous();
    builder.push(RecordParts { key: None, headers: &headers.finish(), value: value.as_bytes() }).unwrap();
    builder.build(Compression::None).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_workers_share_the_records_and_what_they_settled_stays_settled_over_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let (node, link) = start(dir.path()).await;
    let life = create(&link, "orders", config()).await;
    publish(&link, life, &batch(0, 0, &["a", "b", "c", "d"])).await.unwrap();
    let work = part(&subscribe(&link, life, queue_config("orders"), &[1]).await, 0);
    let (first, found) = pull(&link, &ask(work, 3)).await;
    assert_eq!(found, ["a", "b", "c"]);
    let (second, found) = pull(&link, &ask(work, 3)).await;
    assert_eq!((second.len(), found), (1, vec!["d".to_owned()]), "nobody gets what another holds");
    assert!(second[0].fence > first[2].fence);
    assert_eq!(pull(&link, &ask(work, 3)).await.0, []);
    // Out of order: the floor cannot follow yet.
    ack(&link, work, &[first[0], first[2]]).await;
    let now = stats(&link, work).await;
    assert_eq!((now.floor, now.settled_above_floor, now.leased, now.ready), (1, 1, 2, 0));
    let again = settle(&link, work, vec![item(&first[0], SettleAction::Ack)]).await;
    assert_eq!(again, [(SettleOutcome::AlreadySettled, None)]);
    let foreign = SettleItem { fence: second[0].fence + 7, ..item(&second[0], SettleAction::Ack) };
    assert_eq!(settle(&link, work, vec![foreign]).await, [(SettleOutcome::Unknown, None)]);
    drop(link);
    node.shutdown(Duration::from_secs(5)).await;

    let (node, link) = start(dir.path()).await;
    // A token of before the restart settles while nobody else holds the record.
    ack(&link, work, &second).await;
    let (grants, found) = pull(&link, &ask(work, 9)).await;
    assert_eq!(found, ["b"], "what was settled is never delivered again, and nothing else is lost");
    assert!(grants[0].fence > second[0].fence, "fences grow over a restart");
    let late = settle(&link, work, vec![item(&first[1], SettleAction::Ack)]).await;
    assert_eq!(late[0].0, SettleOutcome::LeaseLost);
    assert_eq!(late[0].1.map(|grant| grant.fence), Some(grants[0].fence));
    ack(&link, work, &grants).await;
    let now = stats(&link, work).await;
    assert_eq!((now.floor, now.settled_above_floor, now.leased, now.ready), (4, 0, 0, 0));
    node.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failures_are_tried_again_and_given_up_as_dead_letters_once() {
    let dir = tempfile::tempdir().unwrap();
    let (node, link) = start(dir.path()).await;
    let life = create(&link, "orders", config()).await;
    publish(&link, life, &batch(0, 0, &["bad"])).await.unwrap();
    let config = SubscriptionConfig { dead_letter_topic: Some("dead".into()), ..queue_config("orders") };
    let work = part(&subscribe(&link, life, config, &[1]).await, 0);
    for attempt in 1..=3 {
        let (grants, _) = pull(&link, &ask(work, 1)).await;
        assert_eq!((grants[0].offset, grants[0].attempt), (0, attempt));
        let nack = SettleItem { reason: "no such customer".into(), ..item(&grants[0], SettleAction::Nack) };
        assert_eq!(settle(&link, work, vec![nack]).await, [(SettleOutcome::Done, None)]);
    }
    publish(&link, life, &batch(0, 0, &["worse"])).await.unwrap();
    let (grants, found) = pull(&link, &ask(work, 9)).await;
    assert_eq!(found, ["worse"]);
    settle(&link, work, vec![item(&grants[0], SettleAction::Dead)]).await;
    let now = stats(&link, work).await;
    assert_eq!((now.dead, now.dead_pending, now.floor), (2, 2, 2), "their topic does not exist yet");
    drop(link);
    node.shutdown(Duration::from_secs(5)).await;

    let (node, link) = start(dir.path()).await;
    let dead = create(&link, "dead", crate::client::config()).await;
    let letters = loop {
        let read = crate::client::read(&link, dead, At::Earliest(true), 1_000).await.unwrap();
        if read.1.len() == 2 {
            break read.1;
        }
    };
    assert_eq!(letters, ["bad", "worse"]);
    let pending = async {
        while stats(&link, work).await.dead_pending > 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(WAIT, pending).await.unwrap();
    assert_eq!(crate::client::read(&link, dead, At::Earliest(true), 0).await.unwrap().1.len(), 2);
    node.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_given_back_comes_with_the_rest_of_its_batch() {
    let dir = tempfile::tempdir().unwrap();
    let (node, link) = start(dir.path()).await;
    let life = create(&link, "orders", config()).await;
    publish(&link, life, &batch(0, 0, &["a", "b", "c", "d", "e", "f", "g", "h"])).await.unwrap();
    let work = part(&subscribe(&link, life, queue_config("orders"), &[1]).await, 0);
    // Kept in memory apart from its batch, whose first record it is.
    let (grants, _) = pull(&link, &ask(work, 2)).await;
    let items = vec![item(&grants[0], SettleAction::Nack), item(&grants[1], SettleAction::Ack)];
    settle(&link, work, items).await;
    let (grants, found) = pull(&link, &ask(work, 3)).await;
    assert_eq!(found, ["a", "c", "d"]);
    // And one from the middle of it.
    let items = vec![
        item(&grants[0], SettleAction::Ack),
        item(&grants[1], SettleAction::Nack),
        item(&grants[2], SettleAction::Ack),
    ];
    settle(&link, work, items).await;
    assert_eq!(pull(&link, &ask(work, 9)).await.1, ["c", "e", "f", "g", "h"]);
    node.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_letters_that_go_together_arrive_in_order_and_once() {
    let dir = tempfile::tempdir().unwrap();
    let (node, link) = start(dir.path()).await;
    let life = create(&link, "orders", config()).await;
    // More than go together, and large ones, of which few do.
    let values: Vec<String> = (0..150).map(|n| format!("{n:0>width$}", width = 1 + n % 5 * 15_000)).collect();
    for part in values.chunks(10) {
        publish(&link, life, &batch(0, 0, &part.iter().map(String::as_str).collect::<Vec<_>>()))
            .await
            .unwrap();
    }
    let config = SubscriptionConfig {
        dead_letter_topic: Some("dead".into()),
        max_unacked: 1_000,
        ..queue_config("orders")
    };
    let work = part(&subscribe(&link, life, config, &[1]).await, 0);
    let mut given_up = 0;
    while given_up < values.len() {
        let (grants, _) = pull(&link, &ask(work, 50)).await;
        let items = grants.iter().map(|grant| item(grant, SettleAction::Dead)).collect();
        given_up += settle(&link, work, items).await.len();
    }
    assert_eq!(stats(&link, work).await.dead_pending, 150, "their topic does not exist yet");
    let dead = create(&link, "dead", crate::client::config()).await;
    let arrived = async {
        while stats(&link, work).await.dead_pending > 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(WAIT, arrived).await.unwrap();
    let mut found = Vec::new();
    while found.len() < values.len() {
        let next = At::Offset(found.len() as u64);
        found.append(&mut crate::client::read(&link, dead, next, 0).await.unwrap().1);
    }
    assert!(found == values, "in their order, each once");
    node.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_producer_of_whatever_name_fences_no_dead_letters() {
    let dir = tempfile::tempdir().unwrap();
    let (node, link) = start(dir.path()).await;
    let (life, dead) = (create(&link, "orders", config()).await, create(&link, "dead", config()).await);
    let producer = ProducerKey::of(Incarnation(dead), "weir-dead-1");
    let mut builder = BatchBuilder::new(producer, Epoch(u32::MAX), Seq(0));
    builder.push(RecordParts { key: None, headers: &Headers::default(), value: b"fence" }).unwrap();
    publish(&link, dead, &builder.build(Compression::None).unwrap()).await.unwrap();
    publish(&link, life, &batch(0, 0, &["bad"])).await.unwrap();
    let config = SubscriptionConfig { dead_letter_topic: Some("dead".into()), ..queue_config("orders") };
    let work = part(&subscribe(&link, life, config, &[1]).await, 0);
    let (grants, _) = pull(&link, &ask(work, 1)).await;
    settle(&link, work, vec![item(&grants[0], SettleAction::Dead)]).await;
    let arrived = async { while stats(&link, work).await.dead_pending > 0 {} };
    tokio::time::timeout(WAIT, arrived).await.unwrap();
    let found = crate::client::read(&link, dead, At::Earliest(true), 0).await.unwrap().1;
    assert_eq!(found, ["fence", "bad"]);
    node.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_ends_goes_to_another_and_the_late_worker_is_told_so() {
    let dir = tempfile::tempdir().unwrap();
    let (node, link) = start(dir.path()).await;
    let life = create(&link, "orders", config()).await;
    publish(&link, life, &batch(0, 0, &["a"])).await.unwrap();
    let work = part(&subscribe(&link, life, queue_config("orders"), &[1]).await, 0);
    let (slow, _) = pull(&link, &PullRequest { lease_ms: 1_000, ..ask(work, 1) }).await;
    // Waits for the lease to end: nothing else can wake it.
    let (quick, found) = pull(&link, &PullRequest { wait_ms: 20_000, ..ask(work, 1) }).await;
    assert_eq!((found, quick[0].attempt), (vec!["a".to_owned()], 2));
    let late = settle(&link, work, vec![item(&slow[0], SettleAction::Ack)]).await;
    assert_eq!((late[0].0, late[0].1.unwrap().attempt), (SettleOutcome::LeaseLost, 2));
    let longer = SettleItem { ms: Some(60_000), ..item(&quick[0], SettleAction::Extend) };
    assert_eq!(settle(&link, work, vec![longer]).await, [(SettleOutcome::Done, None)]);
    let list: LeaseList = call(
        &link,
        Method::ListLeases,
        &ListLeasesRequest { part: work, from: 0, limit: 10, standing: 0, as_of: 0, as_of_ms: None },
    )
    .await
    .unwrap();
    assert!(list.leases[0].grant.unwrap().expires_in_ms > 50_000);
    ack(&link, work, &quick).await;
    assert_eq!(stats(&link, work).await.floor, 1);
    node.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeated_pull_gets_the_same_leases_and_the_window_bounds_what_is_held() {
    let dir = tempfile::tempdir().unwrap();
    let (node, link) = start(dir.path()).await;
    let life = create(&link, "orders", config()).await;
    publish(&link, life, &batch(0, 0, &["a", "b", "c", "d"])).await.unwrap();
    let config = SubscriptionConfig { max_unacked: 2, ..queue_config("orders") };
    let made = subscribe(&link, life, config.clone(), &[1]).await;
    let work = part(&made, 0);
    let key = Some(U128 { high: 1, low: 2 });
    let (first, found) = pull(&link, &PullRequest { key, ..ask(work, 9) }).await;
    assert_eq!(found, ["a", "b"], "no more than two are held");
    let (again, found) = pull(&link, &PullRequest { key, only_repeat: true, ..ask(work, 9) }).await;
    let plain = |grants: &[Grant]| grants.iter().map(|g| (g.offset, g.fence, g.attempt)).collect::<Vec<_>>();
    assert_eq!((plain(&again), found.len()), (plain(&first), 2));
    assert_eq!(pull(&link, &ask(work, 9)).await.0, []);
    // A place is free as soon as a settle was accepted.
    let waiting = PullRequest { wait_ms: 20_000, ..ask(work, 9) };
    let (next, ()) = tokio::join!(pull(&link, &waiting), ack(&link, work, &first[..1]));
    assert_eq!(next.1, ["c"]);
    let pause = UpdateSubscriptionRequest {
        name: subscription_name(),
        config: SubscriptionConfig { paused: true, max_unacked: 9, ..config },
        id: made.id,
        expected_version: 1,
    };
    let paused: SubscriptionDescription = call(&link, Method::UpdateSubscription, &pause).await.unwrap();
    assert_eq!(paused.version, 2);
    assert_eq!(pull(&link, &ask(work, 9)).await.0, [], "a paused subscription gives nothing");
    ack(&link, work, &next.0).await;
    let earlier = DeleteSubscriptionRequest {
        name: subscription_name(),
        expected_version: Some(2),
        id: Some(made.id - 1),
    };
    match call::<SubscriptionDescription>(&link, Method::DeleteSubscription, &earlier).await {
        Err(CallError::Refused(refusal)) => assert_eq!(refusal.error_code(), ErrorCode::IncarnationGone),
        other => panic!("another life was deleted: {other:?}"),
    }
    let delete = DeleteSubscriptionRequest { id: Some(made.id), ..earlier };
    link.call(Method::DeleteSubscription, SHARD, vec![delete.encode_to_vec().into()], WAIT).await.unwrap();
    assert_eq!(pull_at(&link, SHARD, &ask(work, 1)).await.unwrap_err(), ErrorCode::SubscriptionNotFound);
    node.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_wait_for_their_time_and_expire_without_being_delivered() {
    let dir = tempfile::tempdir().unwrap();
    let (node, link) = start(dir.path()).await;
    let life = create(&link, "orders", config()).await;
    let due = clock::now().0 + 6_000;
    publish(&link, life, &with(Some(due), None, "later")).await.unwrap();
    publish(&link, life, &with(None, Some(1), "too late")).await.unwrap();
    let answer = publish(&link, life, &with(None, Some(600_000), "now")).await.unwrap();
    assert!(answer.ts_ms < due, "published in time");
    let work = part(&subscribe(&link, life, queue_config("orders"), &[1]).await, 0);
    let (now, found) = pull(&link, &PullRequest { wait_ms: 20_000, ..ask(work, 9) }).await;
    assert_eq!((now.len(), found.contains(&"now".to_owned())), (1, true));
    let standing = stats(&link, work).await;
    assert_eq!((standing.delayed, standing.settled_above_floor), (1, 1), "one waits, one has expired");
    let (later, _) = pull(&link, &PullRequest { wait_ms: 20_000, ..ask(work, 9) }).await;
    assert_eq!((later[0].offset, later[0].attempt), (0, 1), "waiting is no delivery");
    assert!(clock::now().0 >= due);
    node.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parts_in_other_shards_are_told_and_a_seek_delivers_again() {
    let dir = tempfile::tempdir().unwrap();
    let (node, link) = start(dir.path()).await;
    let life = create(&link, "orders", TopicConfig { partitions: 2, ..config() }).await;
    publish(&link, life, &batch(0, 0, &["a", "b"])).await.unwrap();
    let made = subscribe(&link, life, queue_config("orders"), &[1, 2]).await;
    let (here, there) = (part(&made, 0), part(&made, 1));
    let empty = pull_at(&link, ShardId(2), &ask(there, 9)).await.unwrap();
    assert_eq!(empty.0.grants, [], "the part is there");
    let (grants, _) = pull(&link, &ask(here, 9)).await;
    ack(&link, here, &grants[..1]).await;
    let seek = |is_dry_run| SeekRequest {
        part: here,
        to: At::Earliest(true).into(),
        is_dry_run,
        ..SeekRequest::default()
    };
    let dry: SeekAnswer = call(&link, Method::Seek, &seek(true)).await.unwrap();
    assert_eq!((dry.floor, dry.redelivered, dry.skipped), (0, 2, 0));
    assert_eq!(stats(&link, here).await.floor, 1, "nothing was done");
    let done: SeekAnswer = call(&link, Method::Seek, &seek(false)).await.unwrap();
    assert_eq!(done, dry);
    let (again, found) = pull(&link, &ask(here, 9)).await;
    assert_eq!(found, ["a", "b"]);
    assert!(again.iter().all(|grant| grant.attempt == 1), "attempts begin anew");
    let old = settle(&link, here, vec![item(&grants[1], SettleAction::Ack)]).await;
    assert_eq!(old[0].0, SettleOutcome::LeaseLost);
    node.shutdown(Duration::from_secs(5)).await;
}

/// Workers settle while others publish, until the power fails. What was answered holds: a record whose ack was answered
/// never comes again, a dead letter is there once, every other record is delivered in the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_settled_survives_a_power_cut_at_any_moment_and_nothing_else_is_lost() {
    for seed in 0..10 {
        let disk = SimDisk::new();
        let (node, link) = start_on(&disk).await;
        let life = create(&link, "orders", config()).await;
        let dead = create(&link, "dead", config()).await;
        let queue = SubscriptionConfig { dead_letter_topic: Some("dead".into()), ..queue_config("orders") };
        let work = part(&subscribe(&link, life, queue, &[1]).await, 0);
        let publisher = tokio::spawn({
            let link = link.clone();
            async move {
                let mut confirmed = Vec::new();
                for n in 0.. {
                    let value = format!("m{n}");
                    match publish(&link, life, &batch(0, 0, &[&value])).await {
                        Ok(placed) => confirmed.push((placed.base_offset, value)),
                        Err(_) => break,
                    }
                }
                confirmed
            }
        });
        let stop = Arc::new(AtomicBool::new(false));
        let worker = |_| tokio::spawn(work_until_refused(link.clone(), work, Arc::clone(&stop)));
        let workers: Vec<_> = (0..2).map(worker).collect();
        let some = async { while stats(&link, work).await.floor == 0 {} };
        tokio::time::timeout(WAIT, some).await.expect("something is settled before the power fails");
        tokio::time::sleep(Duration::from_millis(30 + 9 * seed)).await;
        disk.fail_after(seed);
        let confirmed = publisher.await.unwrap();
        stop.store(true, Ordering::Relaxed);
        let (mut settled, mut asked) = (BTreeSet::new(), BTreeSet::new());
        for worker in workers {
            let (answered, unanswered) = worker.await.unwrap();
            settled.extend(answered);
            asked.extend(unanswered);
        }
        let after = disk.after_crash(seed);
        node.shutdown(Duration::from_millis(200)).await;

        let (node, link) = start_on(&after).await;
        let mut delivered = BTreeMap::new();
        loop {
            let (grants, found) = pull(&link, &PullRequest { wait_ms: 50, ..ask(work, 100) }).await;
            if grants.is_empty() {
                break;
            }
            ack(&link, work, &grants).await;
            delivered.extend(grants.iter().map(|grant| grant.offset).zip(found));
        }
        assert!(!settled.is_empty(), "seed {seed} cut too early to tell anything");
        let again: Vec<_> = delivered.keys().filter(|offset| settled.contains(offset)).collect();
        assert!(again.is_empty(), "seed {seed}: settled and delivered again: {again:?}");
        let arrived = async {
            while stats(&link, work).await.dead_pending > 0 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(WAIT, arrived)
            .await
            .unwrap_or_else(|_| panic!("seed {seed}: letters are stuck"));
        let letters = crate::client::read(&link, dead, At::Earliest(true), 0).await.unwrap().1;
        let once: BTreeSet<_> = letters.iter().collect();
        assert_eq!(once.len(), letters.len(), "seed {seed}: a dead letter is there twice");
        for (offset, value) in &confirmed {
            // A settle that was not answered may be in the log.
            let is_settled = settled.contains(offset) || asked.contains(offset);
            let is_delivered = delivered.get(offset) == Some(value);
            assert!(is_settled || is_delivered, "seed {seed}: {value} at {offset} is lost");
        }
        assert_eq!(stats(&link, work).await.ready, 0, "seed {seed}");
        node.shutdown(Duration::from_secs(2)).await;
    }
}

/// Acks most, gives up every seventh, until refused or told to stop. Returns what was answered, and what was
/// asked last.
async fn work_until_refused(link: Link, work: PartRef, stop: Arc<AtomicBool>) -> (Vec<u64>, Vec<u64>) {
    let mut settled = Vec::new();
    loop {
        let request = PullRequest { wait_ms: 20, ..ask(work, 4) };
        let Ok((answer, _)) = pull_at(&link, SHARD, &request).await else { return (settled, Vec::new()) };
        if answer.grants.is_empty() && stop.load(Ordering::Relaxed) {
            return (settled, Vec::new());
        }
        let action = |grant: &Grant| match grant.offset % 7 {
            3 => SettleAction::Dead,
            _ => SettleAction::Ack,
        };
        let items: Vec<_> = answer.grants.iter().map(|grant| item(grant, action(grant))).collect();
        let request = SettleRequest { part: work, items };
        match call::<SettleAnswer>(&link, Method::Settle, &request).await {
            Ok(_) => settled.extend(answer.grants.iter().map(|grant| grant.offset)),
            Err(_) => return (settled, answer.grants.iter().map(|grant| grant.offset).collect()),
        }
    }
}
