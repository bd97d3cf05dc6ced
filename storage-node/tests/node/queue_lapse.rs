//! Last deliveries that end while nobody pulls.

use std::path::Path;
use std::time::Duration;

use futures_util::future::join_all;
use weir_protocol::rpc::{
    At, Hindrance, Method, PartRef, PullRequest, SettleAction, SettleItem, SettleOutcome, SettleRun,
    SettleRunsAnswer, SettleRunsRequest, Standing, SubscriptionConfig, SubscriptionName,
};
use weir_storage_node::RunningNode;
use weir_transport::Link;

use crate::client::{WAIT, batch, call, config, create, publish, start};
use crate::failures::news_is_taken;
use crate::queue::{
    ack, ask, item, part, pull, queue_config, settle, stats, subscribe, subscribe_as, subscription_name,
};
use crate::queue_operate::explain;

/// Waits, without pulling, until so many were given up.
async fn until_dead(link: &Link, work: PartRef, count: u64) {
    let given_up = async {
        while stats(link, work).await.dead < count {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(WAIT, given_up).await.expect("nobody has to pull");
    assert_eq!(stats(link, work).await.dead, count);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_last_delivery_that_ends_is_a_dead_letter_though_nobody_pulls() {
    let dir = tempfile::tempdir().unwrap();
    let (node, link) = start(dir.path()).await;
    let (life, dead) = (create(&link, "orders", config()).await, create(&link, "dead", config()).await);
    publish(&link, life, &batch(0, 0, &["a", "b", "c", "d"])).await.unwrap();
    let dead_letter_topic = Some("dead".into());
    let config = SubscriptionConfig { dead_letter_topic, max_attempts: 1, ..queue_config("orders") };
    let work = part(&subscribe(&link, life, config, &[1]).await, 0);
    let (short, _) = pull(&link, &PullRequest { lease_ms: 1_000, ..ask(work, 2) }).await;
    let (long, _) = pull(&link, &ask(work, 1)).await;
    until_dead(&link, work, 2).await;
    let letters = async {
        while stats(&link, work).await.dead_pending > 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(WAIT, letters).await.expect("a letter arrives");
    let letters = crate::client::read(&link, dead, At::Earliest(true), 0).await.unwrap().1;
    assert_eq!(letters, ["a", "b"]);
    let late = settle(&link, work, vec![item(&short[0], SettleAction::Ack)]).await;
    assert_eq!(late, [(SettleOutcome::AlreadySettled, None)], "it was given up");
    // Whoever works still is left alone, and so is what was never leased.
    ack(&link, work, &long).await;
    let now = stats(&link, work).await;
    assert_eq!((now.dead, now.ready, now.leased, now.floor), (2, 1, 0, 3));
    node.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_is_not_the_last_ends_without_a_pull_and_nothing_is_given_up() {
    let dir = tempfile::tempdir().unwrap();
    let (node, link) = start(dir.path()).await;
    let life = create(&link, "orders", config()).await;
    publish(&link, life, &batch(0, 0, &["a", "b"])).await.unwrap();
    let config = SubscriptionConfig { max_attempts: 2, ..queue_config("orders") };
    let work = part(&subscribe(&link, life, config, &[1]).await, 0);
    let (first, _) = pull(&link, &ask(work, 1)).await;
    let (second, _) = pull(&link, &ask(work, 1)).await;
    let nack = SettleItem { ms: Some(0), ..item(&second[0], SettleAction::Nack) };
    settle(&link, work, vec![nack]).await;
    let (last, _) = pull(&link, &ask(work, 1)).await;
    assert_eq!((last[0].offset, last[0].attempt), (1, 2));
    // In this order both end, and not before the pull: it would have got the first again.
    let brief = |grant| SettleItem { ms: Some(1_000), ..item(grant, SettleAction::Extend) };
    settle(&link, work, vec![brief(&first[0]), brief(&last[0])]).await;
    until_dead(&link, work, 1).await;
    let (standing, _) = explain(&link, work, 0).await;
    assert_eq!(standing, Standing::Ready, "it has a delivery left");
    // Late, and nobody else has it.
    ack(&link, work, &first).await;
    assert_eq!(stats(&link, work).await.floor, 2);
    node.shutdown(Duration::from_secs(5)).await;
}

/// Two deliveries, the second the last, and a crash of the worker and of the node.
async fn restarted_in_the_last_delivery(
    dir: &Path,
    config: SubscriptionConfig,
) -> (RunningNode, Link, PartRef) {
    let (node, link) = start(dir).await;
    let life = create(&link, "orders", crate::client::config()).await;
    publish(&link, life, &batch(0, 0, &["a", "b"])).await.unwrap();
    let config = SubscriptionConfig { max_attempts: 2, ..config };
    let work = part(&subscribe(&link, life, config, &[1]).await, 0);
    let (first, _) = pull(&link, &ask(work, 1)).await;
    settle(&link, work, vec![item(&first[0], SettleAction::Nack)]).await;
    let (last, _) = pull(&link, &ask(work, 1)).await;
    assert_eq!((last[0].offset, last[0].attempt), (0, 2));
    drop(link);
    node.shutdown(Duration::from_secs(5)).await;
    let (node, link) = start(dir).await;
    (node, link, work)
}

async fn is_given_up_after_a_restart(config: SubscriptionConfig) {
    let dir = tempfile::tempdir().unwrap();
    let config = SubscriptionConfig { lease_ms: 1_000, ..config };
    let (node, link, work) = restarted_in_the_last_delivery(dir.path(), config).await;
    until_dead(&link, work, 1).await;
    let now = stats(&link, work).await;
    assert_eq!((now.floor, now.ready), (1, 1));
    node.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_to_be_given_up_is_not_said_to_come_again() {
    let dir = tempfile::tempdir().unwrap();
    let config = SubscriptionConfig { lease_ms: 3_600_000, ..queue_config("orders") };
    let (node, link, work) = restarted_in_the_last_delivery(dir.path(), config).await;
    assert_eq!(explain(&link, work, 0).await, (Standing::Delayed, vec![Hindrance::Exhausted]));
    assert_eq!(explain(&link, work, 1).await, (Standing::Ready, vec![Hindrance::NoConsumer]));
    node.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_in_its_last_delivery_at_a_restart_is_given_up_though_nobody_pulls() {
    is_given_up_after_a_restart(queue_config("orders")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn so_is_what_would_have_to_be_looked_at_first() {
    is_given_up_after_a_restart(SubscriptionConfig { is_by_key: true, ..queue_config("orders") }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_lapses_together_is_given_up_in_one_entry_and_what_is_idle_writes_nothing() {
    const RECORDS: usize = 300;
    let dir = tempfile::tempdir().unwrap();
    let (node, link) = start(dir.path()).await;
    let life = create(&link, "orders", config()).await;
    let values: Vec<String> = (0..RECORDS).map(|n| n.to_string()).collect();
    publish(&link, life, &batch(0, 0, &values.iter().map(String::as_str).collect::<Vec<_>>())).await.unwrap();
    let config = SubscriptionConfig { max_attempts: 1, max_unacked: 1_000, ..queue_config("orders") };
    let mut works = Vec::new();
    for name in ["one", "two", "three", "idle"] {
        let name = SubscriptionName { subscription: name.into(), ..subscription_name() };
        works.push(part(&subscribe_as(&link, life, name, config.clone(), &[1]).await, 0));
    }
    // Nothing is at home in the other shard, and nobody writes but who gives up.
    news_is_taken(&node).await;
    let before = node.journal_metrics();
    let mut brief = Vec::new();
    for work in &works[..3] {
        let (grants, _) = pull(&link, &ask(*work, 1_000)).await;
        assert_eq!(grants.len(), RECORDS);
        let (count, action) = (u32::try_from(RECORDS).unwrap(), SettleAction::Extend.into());
        let (offset, fence, ms) = (grants[0].offset, grants[0].fence, Some(1_000));
        let run = SettleRun { offset, fence, count, action, ms, ..SettleRun::default() };
        brief.push(SettleRunsRequest { part: *work, runs: vec![run] });
    }
    assert_eq!(node.journal_metrics().blocks, before.blocks, "a first delivery writes nothing");
    // All at once they get a second each.
    for told in join_all(brief.iter().map(|brief| call(&link, Method::SettleRuns, brief))).await {
        let told: SettleRunsAnswer = told.unwrap();
        assert_eq!(told.not_done, []);
    }
    for work in &works[..3] {
        until_dead(&link, *work, RECORDS as u64).await;
    }
    let after = node.journal_metrics();
    // Leases that began within a moment of each other may end on both sides of a look.
    let written = after.blocks - before.blocks;
    assert!((1..=2).contains(&written), "{written} blocks for 900 records of three subscriptions");
    // Two looks and more.
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    assert_eq!(node.journal_metrics().blocks, after.blocks, "nothing is over, and nothing is written");
    assert_eq!(stats(&link, works[3]).await.ready, RECORDS as u64);
    node.shutdown(Duration::from_secs(5)).await;
}
