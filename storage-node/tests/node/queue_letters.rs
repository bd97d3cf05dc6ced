//! Dead letters that cannot be delivered.
#![expect(clippy::disallowed_methods, reason = "the objects lie in a folder, not on the journal's disk")]

use std::path::Path;
use std::time::Duration;

use weir_protocol::error::ErrorCode;
use weir_protocol::rpc::{
    At, ConfirmState, ConfirmStateRequest, DeleteTopicRequest, Level, Method, PartRef, PullRequest,
    SettleAction, SubscriptionConfig, SubscriptionName, TopicConfig, TopicDescription,
};
use weir_storage_node::Surroundings;
use weir_transport::Link;

use crate::client::{WAIT, batch, call, config, create, name, publish, read, start, start_in};
use crate::cold::{cold_settings, packs};
use crate::queue::{
    ack, ask, item, part, pull, queue_config, settle, stats, subscribe_as, subscription_name,
};
use crate::room::publish_large;

/// A queue of `orders` whose dead letters go to `to`.
async fn queue(link: &Link, life: u64, called: &str, to: &str) -> PartRef {
    let name = SubscriptionName { subscription: called.into(), ..subscription_name() };
    let config = SubscriptionConfig { dead_letter_topic: Some(to.into()), ..queue_config("orders") };
    part(&subscribe_as(link, life, name, config, &[1]).await, 0)
}

/// Pulls one message and gives it up.
async fn give_up(link: &Link, work: PartRef) {
    let (grants, _) = pull(link, &ask(work, 1)).await;
    settle(link, work, vec![item(&grants[0], SettleAction::Dead)]).await;
}

/// Waits until so many letters are still on their way.
async fn until_pending(link: &Link, work: PartRef, count: u64) {
    let arrived = async {
        while stats(link, work).await.dead_pending != count {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(WAIT, arrived).await.expect("letters arrive");
}

async fn all(link: &Link, life: u64) -> Vec<String> {
    read(link, life, At::Earliest(true), 0).await.unwrap().1
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn letters_to_a_topic_that_is_gone_keep_those_to_others_not_waiting() {
    let dir = tempfile::tempdir().unwrap();
    let (node, link) = start(dir.path()).await;
    let orders = create(&link, "orders", config()).await;
    create(&link, "gone", config()).await;
    let delete = DeleteTopicRequest { name: Some(name("gone")), ..DeleteTopicRequest::default() };
    let _: TopicDescription = call(&link, Method::DeleteTopic, &delete).await.unwrap();
    let dead = create(&link, "dead", config()).await;
    let (stuck, works) =
        (queue(&link, orders, "stuck", "gone").await, queue(&link, orders, "works", "dead").await);
    for value in ["a", "b", "c"] {
        publish(&link, orders, &batch(0, 0, &[value])).await.unwrap();
        give_up(&link, stuck).await;
        give_up(&link, works).await;
    }
    until_pending(&link, works, 0).await;
    assert_eq!(all(&link, dead).await, ["a", "b", "c"]);
    assert_eq!(stats(&link, stuck).await.dead_pending, 3, "nobody has given them up");
    drop(link);
    node.shutdown(Duration::from_secs(5)).await;

    let (node, link) = start(dir.path()).await;
    publish(&link, orders, &batch(0, 0, &["d"])).await.unwrap();
    give_up(&link, works).await;
    until_pending(&link, works, 0).await;
    let again = create(&link, "gone", config()).await;
    until_pending(&link, stuck, 0).await;
    assert_eq!(all(&link, again).await, ["a", "b", "c"]);
    assert_eq!(all(&link, dead).await, ["a", "b", "c", "d"], "each once");
    node.shutdown(Duration::from_secs(5)).await;
}

/// Until what is published by now is in packs.
async fn until_archived(link: &Link, life: u64, offset: u64, term: u64) {
    let (level, wait_ms) = (Level::Archived as i32, 60_000);
    let asked = ConfirmStateRequest { incarnation: life, offset, term, level, wait_ms, ..Default::default() };
    let told: ConfirmState = call(link, Method::ConfirmState, &asked).await.unwrap();
    assert_eq!(told.level(), Level::Archived);
}

fn only_pack(dir: &Path) -> std::path::PathBuf {
    let packs = packs(dir);
    assert_eq!(packs.len(), 1, "{packs:?}");
    packs.into_iter().next().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_letter_that_cannot_be_read_goes_behind_the_others_and_arrives_once_it_can() {
    let dir = tempfile::tempdir().unwrap();
    let (node, link) = start_in(cold_settings(dir.path()), Surroundings::default()).await;
    let orders = create(&link, "orders", config()).await;
    let work = queue(&link, orders, "work", "dead").await;
    let placed = publish(&link, orders, &batch(0, 0, &["damaged"])).await.unwrap();
    // On its way before the pack takes it, which is where it is read from then.
    give_up(&link, work).await;
    until_archived(&link, orders, placed.base_offset, placed.term).await;
    let object = only_pack(dir.path());
    let bytes = std::fs::read(&object).unwrap();
    std::fs::write(&object, vec![0; bytes.len()]).unwrap();

    for value in ["well", "better"] {
        publish(&link, orders, &batch(0, 0, &[value])).await.unwrap();
        give_up(&link, work).await;
    }
    let dead = create(&link, "dead", config()).await;
    until_pending(&link, work, 1).await;
    assert_eq!(all(&link, dead).await, ["well", "better"]);

    std::fs::write(&object, bytes).unwrap();
    until_pending(&link, work, 0).await;
    assert_eq!(all(&link, dead).await, ["well", "better", "damaged"]);
    node.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_journal_that_letters_keep_full_says_what_they_wait_for() {
    let dir = tempfile::tempdir().unwrap();
    let (node, link) = start(dir.path()).await;
    let config = || TopicConfig { retention_records: Some(1), ..config() };
    let orders = create(&link, "orders", config()).await;
    let work = queue(&link, orders, "work", "dead").await;
    publish(&link, orders, &batch(0, 0, &["bad"])).await.unwrap();
    give_up(&link, work).await;
    let large = batch(0, 0, &["x".repeat(1 << 20).as_str()]);
    let refused = loop {
        match publish_large(&link, orders, &large).await {
            Ok(_) => {}
            Err(refusal) if refusal.detail.contains("default/dead") => break refusal,
            // Retention has not let go of all that it may.
            Err(refusal) => assert_eq!(refusal.error_code(), ErrorCode::JournalFull, "{}", refusal.detail),
        }
    };
    assert_eq!(refused.error_code(), ErrorCode::JournalFull);
    let dead = create(&link, "dead", config()).await;
    until_pending(&link, work, 0).await;
    assert_eq!(all(&link, dead).await, ["bad"]);
    let freed = async { while publish_large(&link, orders, &large).await.is_err() {} };
    tokio::time::timeout(WAIT, freed).await.expect("there is room once they have left");
    node.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn letters_that_find_no_room_keep_nobody_from_other_messages() {
    /// A topic may have half of the letters of a shard.
    const ROOM: usize = 50_000;
    let dir = tempfile::tempdir().unwrap();
    let (node, link) = start(dir.path()).await;
    let orders = create(&link, "orders", config()).await;
    let config = SubscriptionConfig {
        dead_letter_topic: Some("gone".into()),
        max_attempts: 1,
        max_unacked: 10_000,
        ..queue_config("orders")
    };
    let work = part(&subscribe_as(&link, orders, subscription_name(), config, &[1]).await, 0);
    for _ in 0..ROOM / 10_000 {
        publish(&link, orders, &batch(0, 0, &["x"; 10_000])).await.unwrap();
        let (grants, _) = pull(&link, &ask(work, 10_000)).await;
        assert_eq!(grants.len(), 10_000);
        settle(&link, work, grants.iter().map(|grant| item(grant, SettleAction::Dead)).collect()).await;
    }
    publish(&link, orders, &batch(0, 0, &["bad"])).await.unwrap();
    let brief = PullRequest { lease_ms: 1_000, ..ask(work, 1) };
    assert_eq!(pull(&link, &brief).await.1, ["bad"]);
    // It has had its only delivery, and cannot be given up: whoever pulls meets it now and then.
    for n in 0..30 {
        let value = format!("well {n}");
        publish(&link, orders, &batch(0, 0, &[&value])).await.unwrap();
        let (grants, found) = pull(&link, &ask(work, 9)).await;
        assert_eq!(found, [value]);
        ack(&link, work, &grants).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let now = stats(&link, work).await;
    assert_eq!((now.dead, now.ready + now.delayed + now.leased), (ROOM as u64, 1), "it is still there");
    node.shutdown(Duration::from_secs(5)).await;
}
