//! Settles that publish: together or not at all, once, whatever happens to the node meanwhile.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use prost::Message as _;
use weir_journal::disk::sim::SimDisk;
use weir_protocol::batch::{BatchBuilder, Compression, Headers, RecordParts};
use weir_protocol::error::{ErrorCode, Outcome};
use weir_protocol::ids::ShardId;
use weir_protocol::rpc::{
    At, ConfirmState, ConfirmStateRequest, CreateTopicRequest, DeleteTopicRequest, Grant, Level, Method,
    Output, Packet, PartRef, ReadAnswer, ReadRequest, Refusal, SettleAction, SettleAndPublishAnswer,
    SettleAndPublishRequest, SettleItem, SettleOutcome, TopicConfig, TopicCreated, TopicDescription,
    encode_packet,
};
use weir_transport::{CallError, Link};

use crate::client::{SHARD, WAIT, batch, call, config, create, name, publish, start, values};
use crate::failures::start_on;
use crate::queue::{ack, ask, item, part, pull, pull_at, queue_config, settle, stats, subscribe};
use crate::room::publish_large;

/// A topic with a partition in each of the two data shards.
pub(crate) async fn wide(link: &Link, topic: &str) -> TopicDescription {
    let config = TopicConfig { partitions: 2, ..config() };
    let request =
        CreateTopicRequest { name: Some(name(topic)), config: Some(config), accept_existing: false };
    let made: TopicCreated = call(link, Method::CreateTopic, &request).await.unwrap();
    made.topic.unwrap()
}

/// What is to be published: partition and value.
pub(crate) fn request(
    (work, to): (PartRef, &TopicDescription),
    items: Vec<SettleItem>,
    outputs: &[(u32, String)],
) -> (SettleAndPublishRequest, Vec<Bytes>) {
    let body = |value: &str| {
        let mut builder = BatchBuilder::anonymous();
        builder
            .push(RecordParts { key: None, headers: &Headers::default(), value: value.as_bytes() })
            .unwrap();
        builder.build(Compression::None).unwrap().bytes().clone()
    };
    let bodies: Vec<_> = outputs.iter().map(|(_, value)| body(value)).collect();
    let output = |((partition, _), body): (&(u32, String), &Bytes)| Output {
        shard: to.shards[*partition as usize],
        incarnation: to.incarnation,
        partition: *partition,
        batch_bytes: u32::try_from(body.len()).unwrap(),
    };
    let outputs = outputs.iter().zip(&bodies).map(output).collect();
    (SettleAndPublishRequest { part: work, items, outputs, wait_ms: 10_000 }, bodies)
}

pub(crate) async fn send(
    link: &Link,
    (request, bodies): (SettleAndPublishRequest, Vec<Bytes>),
) -> Result<SettleAndPublishAnswer, Refusal> {
    match link.call(Method::SettleAndPublish, SHARD, encode_packet(&request, bodies), WAIT).await {
        Ok(answer) => Ok(SettleAndPublishAnswer::decode(answer).unwrap()),
        Err(CallError::Refused(refusal)) => Err(refusal),
        Err(other) => Err(Refusal::new(ErrorCode::OutcomeUnknown, other.to_string())),
    }
}

fn acks(grants: &[Grant]) -> Vec<SettleItem> {
    grants.iter().map(|grant| item(grant, SettleAction::Ack)).collect()
}

/// Everything in a partition.
async fn read(link: &Link, topic: &TopicDescription, partition: u32) -> Vec<String> {
    let request = ReadRequest {
        incarnation: topic.incarnation,
        partition,
        from: At::Earliest(true).into(),
        max_records: 10_000,
        max_bytes: 3 << 20,
        ..ReadRequest::default()
    };
    let shard = ShardId(topic.shards[partition as usize]);
    let answer = link.call(Method::Read, shard, vec![request.encode_to_vec().into()], WAIT).await.unwrap();
    let packet = Packet::<ReadAnswer>::decode(answer).unwrap();
    values(&packet.message.slices, packet.payload)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_and_outputs_are_settled_and_published_together_or_not_at_all() {
    let dir = tempfile::tempdir().unwrap();
    let (node, link) = start(dir.path()).await;
    let life = create(&link, "orders", config()).await;
    let out = wide(&link, "invoices").await;
    publish(&link, life, &batch(0, 0, &["a", "b", "c", "d"])).await.unwrap();
    let work = part(&subscribe(&link, life, queue_config("orders"), &[1]).await, 0);
    let (grants, _) = pull(&link, &ask(work, 9)).await;
    let to = (work, &out);
    let outputs = [(0, "A0".to_owned()), (1, "A1".to_owned()), (0, "A2".to_owned())];
    let done = send(&link, request(to, acks(&grants[..2]), &outputs)).await.unwrap();
    let offsets: Vec<_> = done.outputs.iter().map(|output| output.placed.unwrap().base_offset).collect();
    assert_eq!(offsets, [0, 0, 1]);
    assert_eq!(read(&link, &out, 0).await, ["A0", "A2"]);
    assert_eq!(read(&link, &out, 1).await, ["A1"]);
    assert_eq!(stats(&link, work).await.floor, 2);

    // One of them is settled already: the other one stays leased, and nothing is published.
    let code = |refused: Result<SettleAndPublishAnswer, Refusal>| refused.unwrap_err().error_code();
    let one = [(1, "B".to_owned())];
    let again = send(&link, request(to, acks(&grants[1..3]), &one)).await;
    assert_eq!(code(again), ErrorCode::LeaseLost);
    let foreign = SettleItem { fence: grants[3].fence + 9, ..item(&grants[3], SettleAction::Ack) };
    assert_eq!(code(send(&link, request(to, vec![foreign], &one)).await), ErrorCode::LeaseLost);
    // What cannot be carried out is refused before anything is done.
    let twice = vec![item(&grants[2], SettleAction::Ack), item(&grants[2], SettleAction::Dead)];
    assert_eq!(code(send(&link, request(to, twice, &one)).await), ErrorCode::InvalidParameter);
    assert_eq!(code(send(&link, request(to, Vec::new(), &one)).await), ErrorCode::InvalidParameter);
    let longer = SettleItem { ms: Some(9_000), ..item(&grants[2], SettleAction::Extend) };
    assert_eq!(code(send(&link, request(to, vec![longer], &one)).await), ErrorCode::InvalidParameter);
    assert_eq!(code(send(&link, request(to, acks(&grants[2..3]), &[])).await), ErrorCode::Malformed);
    let (mut torn, bodies) = request(to, acks(&grants[2..3]), &one);
    torn.outputs[0].batch_bytes -= 1;
    assert_eq!(code(send(&link, (torn, bodies)).await), ErrorCode::InvalidBatch);
    let mut produced = request(to, acks(&grants[2..3]), &one);
    produced.1[0] = batch(7, 0, &["b"]).bytes().clone();
    produced.0.outputs[0].batch_bytes = u32::try_from(produced.1[0].len()).unwrap();
    assert_eq!(code(send(&link, produced).await), ErrorCode::InvalidBatch);
    let many: Vec<_> = (0..4).map(|_| (0, "x".repeat(900 << 10))).collect();
    assert_eq!(code(send(&link, request(to, acks(&grants[2..3]), &many)).await), ErrorCode::TooLarge);
    let deleted = TopicDescription { incarnation: out.incarnation + 7, ..out.clone() };
    let gone = send(&link, request((work, &deleted), acks(&grants[2..3]), &one)).await;
    assert!(matches!(code(gone), ErrorCode::ConfigStale | ErrorCode::ConfigBehind));
    let standing = stats(&link, work).await;
    assert_eq!((standing.floor, standing.leased), (2, 2), "nothing was settled");

    let mixed = vec![item(&grants[2], SettleAction::Dead), item(&grants[3], SettleAction::Nack)];
    send(&link, request(to, mixed, &one)).await.unwrap();
    let (last, _) = pull(&link, &ask(work, 9)).await;
    assert_eq!((last[0].offset, last[0].attempt), (3, 2));
    assert_eq!(read(&link, &out, 1).await, ["A1", "B"]);
    node.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_output_is_known_by_its_name_and_goes_with_its_topic() {
    let dir = tempfile::tempdir().unwrap();
    let (node, link) = start(dir.path()).await;
    let life = create(&link, "orders", config()).await;
    let out = wide(&link, "invoices").await;
    publish(&link, life, &batch(0, 0, &["a", "b"])).await.unwrap();
    let work = part(&subscribe(&link, life, queue_config("orders"), &[1]).await, 0);
    let (grants, _) = pull(&link, &ask(work, 9)).await;
    let (mut at_once, bodies) = request((work, &out), acks(&grants[..1]), &[(1, "A".to_owned())]);
    at_once.wait_ms = 0;
    let sent = send(&link, (at_once, bodies)).await.unwrap();
    let name_of_it = sent.outputs[0].name;
    let state = |wait_ms, output| ConfirmStateRequest {
        incarnation: out.incarnation,
        partition: 1,
        level: Level::Quorum as i32,
        wait_ms,
        output: Some(output),
        ..ConfirmStateRequest::default()
    };
    let there = ShardId(out.shards[1]);
    let ask_there = async |request: ConfirmStateRequest| {
        let answer = link.call(Method::ConfirmState, there, vec![request.encode_to_vec().into()], WAIT).await;
        ConfirmState::decode(answer.unwrap()).unwrap().level()
    };
    assert_eq!(ask_there(state(10_000, name_of_it)).await, Level::Quorum);
    let next = weir_protocol::rpc::OutputName { number: name_of_it.number + 1, ..name_of_it };
    assert_eq!(ask_there(state(0, next)).await, Level::None, "not sent yet");
    let delete = DeleteTopicRequest { name: Some(name("invoices")), ..DeleteTopicRequest::default() };
    link.call(Method::DeleteTopic, SHARD, vec![delete.encode_to_vec().into()], WAIT).await.unwrap();
    let late = send(&link, request((work, &out), acks(&grants[1..]), &[(1, "B".to_owned())])).await;
    assert_eq!(late.unwrap_err().error_code(), ErrorCode::ConfigStale);
    node.shutdown(Duration::from_secs(5)).await;
}

/// Consume, transform, produce, until a call fails or nothing comes any more.
async fn transform(link: &Link, work: PartRef, out: &TopicDescription, wait_ms: u64) -> Result<(), ()> {
    loop {
        let asked = weir_protocol::rpc::PullRequest { wait_ms, ..ask(work, 2) };
        let (answer, payload) = pull_at(link, SHARD, &asked).await.map_err(|_| ())?;
        if answer.grants.is_empty() {
            return Ok(());
        }
        let found = values(&answer.slices, payload);
        let outputs: Vec<_> = found
            .iter()
            .flat_map(|input| [(0, format!("{input} to 0")), (1, format!("{input} to 1"))])
            .collect();
        send(link, request((work, out), acks(&answer.grants), &outputs)).await.map_err(|_| ())?;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_full_journal_refuses_to_settle_and_publish_stays_with_its_worker() {
    let dir = tempfile::tempdir().unwrap();
    let (node, link) = start(dir.path()).await;
    let life = create(&link, "orders", config()).await;
    let out = wide(&link, "invoices").await;
    publish(&link, life, &batch(0, 0, &["a"])).await.unwrap();
    let work = part(&subscribe(&link, life, queue_config("orders"), &[1]).await, 0);
    let (grants, _) = pull(&link, &ask(work, 1)).await;
    let filler = batch(0, 0, &["x".repeat(500 << 10).as_str()]);
    let full = loop {
        if let Err(refusal) = publish_large(&link, life, &filler).await {
            break refusal;
        }
    };
    assert_eq!(full.error_code(), ErrorCode::JournalFull);
    let outputs = [(0, "y".repeat(900 << 10))];
    let refused = send(&link, request((work, &out), acks(&grants), &outputs)).await.unwrap_err();
    assert_eq!((refused.error_code(), refused.effect()), (ErrorCode::JournalFull, Outcome::None));
    assert_eq!(stats(&link, work).await.leased, 1, "its lease goes on");
    let (others, _) = pull(&link, &ask(work, 1)).await;
    assert_eq!((others[0].offset, others[0].attempt), (1, 1));
    let renewed = SettleItem { ms: Some(60_000), ..item(&grants[0], SettleAction::Extend) };
    assert_eq!(settle(&link, work, vec![renewed]).await, [(SettleOutcome::Done, None)]);
    ack(&link, work, &grants).await;
    node.shutdown(Duration::from_secs(5)).await;
}

/// The power fails after every single write of a loop that consumes, transforms and produces; afterwards it goes on.
/// Every input has its outputs, once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_input_has_its_outputs_once_wherever_the_power_fails() {
    let inputs: Vec<String> = (0..6).map(|n| format!("input {n}")).collect();
    let wanted = |partition: u32| -> BTreeMap<String, u32> {
        inputs.iter().map(|input| (format!("{input} to {partition}"), 1)).collect()
    };
    let (mut cut, mut cuts) = (0, 0);
    loop {
        let disk = SimDisk::new();
        let (node, link) = start_on(&disk).await;
        let life = create(&link, "orders", config()).await;
        let out = wide(&link, "invoices").await;
        let said: Vec<&str> = inputs.iter().map(String::as_str).collect();
        publish(&link, life, &batch(0, 0, &said)).await.unwrap();
        let work = part(&subscribe(&link, life, queue_config("orders"), &[1]).await, 0);
        disk.fail_after(cut);
        let is_whole = transform(&link, work, &out, 0).await.is_ok();
        let after = disk.after_crash(cut);
        drop(link);
        node.shutdown(Duration::from_millis(100)).await;

        let (node, link) = start_on(&after).await;
        transform(&link, work, &out, 0).await.unwrap();
        let deadline = Instant::now() + WAIT;
        for partition in 0..2 {
            let counted = loop {
                let mut counted = BTreeMap::new();
                for value in read(&link, &out, partition).await {
                    *counted.entry(value).or_insert(0u32) += 1;
                }
                // Those on their way arrive by themselves.
                if counted.len() >= inputs.len() || Instant::now() > deadline {
                    break counted;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            };
            assert_eq!(counted, wanted(partition), "the power failed after {cut} writes");
        }
        assert_eq!(stats(&link, work).await.ready, 0);
        drop(link);
        node.shutdown(Duration::from_millis(100)).await;
        if is_whole {
            break;
        }
        cuts += 1;
        cut += 1;
        assert!(cut < 200, "it never gets through");
    }
    assert!(cuts >= 6, "{cuts} cuts prove nothing");
}
