//! Which part of a stream each consumer reads: the home shard says, the parts' shards see to it.

use std::time::Duration;

use bytes::Bytes;
use prost::Message;
use tokio::time::timeout;
use weir_protocol::error::ErrorCode;
use weir_protocol::ids::ShardId;
use weir_protocol::rpc::{
    ConsumeEvent, ConsumeRequest, Credit, DeleteSubscriptionRequest, GivenPart, Level, Method, Packet,
    PartRef, PartsOf, PublishAnswer, PublishItem, PublishRequest, SettleAction, SettleRun, SettleRunsAnswer,
    SettleRunsRequest, ShareAnswer, ShareRequest, SubscriptionConfig, SubscriptionDescription, TopicConfig,
    encode_packet,
};
use weir_transport::{Answers, CallError, Link};

use crate::client::{WAIT, batch, call, config, create, start, values};
use crate::queue::{queue_config, subscribe, subscription_name};

const PARTITIONS: u32 = 4;

fn shard_of(partition: u32) -> ShardId {
    ShardId(1 + partition % 2)
}

/// A stream of four partitions in two shards.
async fn stream(link: &Link) -> SubscriptionDescription {
    let life = create(link, "orders", TopicConfig { partitions: PARTITIONS, ..config() }).await;
    let config = SubscriptionConfig { is_stream: true, ..queue_config("orders") };
    subscribe(link, life, config, &[1, 2, 1, 2]).await
}

async fn publish(link: &Link, life: u64, partition: u32, values: &[&str]) {
    let batch = batch(0, 0, values);
    let batch_bytes = u32::try_from(batch.bytes().len()).unwrap();
    let item = PublishItem { incarnation: life, partition, batch_bytes, ..PublishItem::default() };
    let request = PublishRequest { levels: Level::Quorum.bit(), items: vec![item] };
    let body = encode_packet(&request, [batch.bytes().clone()]);
    let answer = link.call(Method::Publish, shard_of(partition), body, WAIT).await.unwrap();
    assert!(PublishAnswer::decode(answer).unwrap().results[0].placed.is_some());
}

fn ask(of: &SubscriptionDescription, holder: &str, knows: &ShareAnswer) -> ShareRequest {
    let topics = vec![PartsOf { incarnation: of.topic_incarnation, partitions: (0..PARTITIONS).collect() }];
    ShareRequest {
        subscription: of.id,
        holder: holder.into(),
        topics,
        version: knows.version,
        wait_ms: 15_000,
        patience_ms: 30_000,
        ..ShareRequest::default()
    }
}

async fn share(link: &Link, request: &ShareRequest) -> ShareAnswer {
    call(link, Method::Share, request).await.unwrap()
}

fn partitions(share: &ShareAnswer) -> Vec<u32> {
    share.parts.iter().map(|part| part.partition).collect()
}

struct Reader {
    answers: Answers,
    part: PartRef,
}

impl Reader {
    async fn open(link: &Link, of: &SubscriptionDescription, holder: &str, part: GivenPart) -> Self {
        let GivenPart { incarnation, partition, lot } = part;
        let part = PartRef { subscription: of.id, incarnation, partition };
        let limit = Credit { records: 1 << 20, bytes: 1 << 30 };
        let request = ConsumeRequest {
            part,
            limit,
            keeps_credit: true,
            holder: holder.into(),
            grace_ms: 30_000,
            lot,
            ..ConsumeRequest::default()
        };
        let body = vec![Bytes::from(request.encode_to_vec())];
        Self { answers: link.open(Method::Consume, shard_of(partition), body).await.unwrap(), part }
    }

    async fn next(&mut self) -> (ConsumeEvent, Vec<String>) {
        let answer = tokio::time::timeout(WAIT, self.answers.next()).await.unwrap().unwrap().unwrap();
        let packet = Packet::<ConsumeEvent>::decode(answer).unwrap();
        let found = values(&packet.message.slices, packet.payload);
        (packet.message, found)
    }

    /// Acknowledges up to the last record of an event; whether it was done.
    async fn ack(&self, link: &Link, event: &ConsumeEvent) -> bool {
        let run = event.runs.last().unwrap();
        let last = u64::from(run.count) - 1;
        let run = SettleRun {
            offset: run.offset + last,
            fence: run.fence + last,
            count: 1,
            action: SettleAction::Ack as i32,
            ..SettleRun::default()
        };
        let request = SettleRunsRequest { part: self.part, runs: vec![run] };
        let body = vec![Bytes::from(request.encode_to_vec())];
        let shard = shard_of(self.part.partition);
        let answer = link.call(Method::SettleRuns, shard, body, WAIT).await.unwrap();
        SettleRunsAnswer::decode(answer).unwrap().not_done.is_empty()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shares_are_told_as_they_change_and_a_part_changes_hands_when_all_of_it_is_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let (node, link) = start(dir.path()).await;
    let stream = stream(&link).await;
    let life = stream.topic_incarnation;
    let alone = share(&link, &ask(&stream, "a", &ShareAnswer::default())).await;
    assert_eq!(partitions(&alone), [0, 1, 2, 3]);
    let mut readers = Vec::new();
    for part in &alone.parts {
        publish(&link, life, part.partition, &["x", "y"]).await;
        readers.push(Reader::open(&link, &stream, "a", *part).await);
    }
    let mut shown = Vec::new();
    for reader in &mut readers {
        let (event, found) = reader.next().await;
        assert_eq!(found, ["x", "y"]);
        shown.push(event);
    }
    // It is told as soon as another comes.
    let (waits, comes) = (ask(&stream, "a", &alone), ask(&stream, "b", &ShareAnswer::default()));
    let (now, other) = tokio::join!(share(&link, &waits), share(&link, &comes));
    assert_eq!((now.parts.len(), other.parts.len()), (2, 2));
    assert!(now.parts.iter().all(|part| alone.parts.contains(part)), "what it keeps it keeps under its lot");
    let given = other.parts[0];
    let place = given.partition as usize;
    let mut next = Reader::open(&link, &stream, "b", given).await;
    let (event, _) = readers[place].next().await;
    assert!(event.is_displaced, "{event:?}");
    publish(&link, life, given.partition, &["z"]).await;
    assert!(readers[place].ack(&link, &shown[place]).await, "what it was shown counts");
    assert_eq!(next.next().await.1, ["z"], "and does not come again");
    // Of the other it acknowledges nothing: it is shown again, and then it is too late.
    let given = other.parts[1];
    let place = given.partition as usize;
    let mut next = Reader::open(&link, &stream, "b", given).await;
    let (event, found) = next.next().await;
    assert_eq!(found, ["x", "y"]);
    assert!(!readers[place].ack(&link, &shown[place]).await);
    assert!(next.ack(&link, &event).await);
    // Who comes late with an old lot is displaced at once.
    let mut late = Reader::open(&link, &stream, "a", alone.parts[place]).await;
    assert!(late.next().await.0.is_displaced);
    let text = prometheus::TextEncoder::new().encode_to_string(&node.registry().gather()).unwrap();
    assert!(text.contains("weir_node_stream_partitions_moved_total 2\n"), "{text}");
    node.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_one_leaves_or_is_not_heard_of_for_is_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let (node, link) = start(dir.path()).await;
    let stream = stream(&link).await;
    let nothing = ShareAnswer::default();
    let b = share(&link, &ask(&stream, "b", &nothing)).await;
    let a = share(&link, &ask(&stream, "a", &nothing)).await;
    assert_eq!((a.parts.len(), b.parts.len()), (2, 4));
    let leaves = ShareRequest { leaves: true, ..ask(&stream, "b", &b) };
    let waits = ask(&stream, "a", &a);
    let (a, _) = tokio::join!(share(&link, &waits), share(&link, &leaves));
    assert_eq!(partitions(&a), [0, 1, 2, 3], "who leaves is not waited for");
    // One that says it will be heard of again soon, and is not. Who waits hears of it first.
    let soon = ShareRequest { wait_ms: 0, patience_ms: 700, ..ask(&stream, "c", &nothing) };
    let waits = ask(&stream, "a", &a);
    let (a, c) = tokio::join!(share(&link, &waits), share(&link, &soon));
    assert_eq!((a.parts.len(), c.parts.len()), (2, 2));
    assert_eq!(share(&link, &ask(&stream, "a", &a)).await.parts.len(), 4);
    let a = share(&link, &ask(&stream, "a", &nothing)).await;
    // Who waits is told before its 15 s are over.
    let (name, waits) = (subscription_name(), ask(&stream, "a", &a));
    let delete = DeleteSubscriptionRequest { name, ..Default::default() };
    let (refused, deleted) = tokio::join!(
        timeout(Duration::from_secs(10), call::<ShareAnswer>(&link, Method::Share, &waits)),
        call::<()>(&link, Method::DeleteSubscription, &delete)
    );
    deleted.unwrap();
    let refused = refused.unwrap();
    let Err(CallError::Refused(refusal)) = refused else { panic!("{refused:?}") };
    assert_eq!(refusal.error_code(), ErrorCode::SubscriptionNotFound);
    node.shutdown(Duration::from_secs(5)).await;
}
