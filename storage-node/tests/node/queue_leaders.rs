//! Leases that ended stay ended, with whatever leader: nobody settles under who works.

use std::path::Path;
use std::time::Duration;

use weir_protocol::error::ErrorCode;
use weir_protocol::rpc::{
    Grant, Method, PartRef, PullRequest, RedriveAnswer, RedriveRequest, SettleAction, SettleItem,
    SettleOutcome, SubscriptionConfig,
};
use weir_storage_node::RunningNode;
use weir_transport::Link;

use crate::client::{batch, call, config, create, publish, start};
use crate::outputs::{request, send, wide};
use crate::queue::{ack, ask, item, part, pull, queue_config, settle, subscribe};

async fn again(node: RunningNode, dir: &Path) -> (RunningNode, Link) {
    node.shutdown(Duration::from_secs(5)).await;
    start(dir).await
}

async fn outcome(link: &Link, work: PartRef, grant: &Grant, action: SettleAction) -> SettleOutcome {
    let ms = (action == SettleAction::Extend).then_some(30_000);
    settle(link, work, vec![SettleItem { ms, ..item(grant, action) }]).await[0].0
}

async fn is_lost(link: &Link, work: PartRef, grant: &Grant) {
    for action in [SettleAction::Ack, SettleAction::Nack, SettleAction::Dead, SettleAction::Extend] {
        assert_eq!(outcome(link, work, grant, action).await, SettleOutcome::LeaseLost, "{action:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_was_lost_settles_nothing_after_any_number_of_restarts() {
    let dir = tempfile::tempdir().unwrap();
    let (mut node, mut link) = start(dir.path()).await;
    let life = create(&link, "orders", config()).await;
    let to = wide(&link, "done").await;
    publish(&link, life, &batch(0, 0, &["a", "b", "c"])).await.unwrap();
    let config = SubscriptionConfig { max_attempts: 9, ..queue_config("orders") };
    let work = part(&subscribe(&link, life, config, &[1]).await, 0);
    let (first, _) = pull(&link, &ask(work, 3)).await;
    (node, link) = again(node, dir.path()).await;
    // What nobody has been given since still settles.
    ack(&link, work, &first[2..]).await;
    let (second, _) = pull(&link, &ask(work, 3)).await;
    assert_eq!(second.len(), 2);
    is_lost(&link, work, &first[0]).await;
    for _ in 0..2 {
        (node, link) = again(node, dir.path()).await;
        is_lost(&link, work, &first[0]).await;
        is_lost(&link, work, &first[1]).await;
        let stale = vec![item(&first[1], SettleAction::Ack)];
        let refused = send(&link, request((work, &to), stale, &[(0, "twice".into())])).await;
        assert_eq!(refused.unwrap_err().error_code(), ErrorCode::LeaseLost);
    }
    ack(&link, work, &second[..1]).await;
    let held = vec![item(&second[1], SettleAction::Ack)];
    send(&link, request((work, &to), held, &[(0, "once".into())])).await.unwrap();
    node.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_from_before_a_redrive_settles_nothing_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let (mut node, mut link) = start(dir.path()).await;
    let life = create(&link, "orders", config()).await;
    publish(&link, life, &batch(0, 0, &["a"])).await.unwrap();
    let work = part(&subscribe(&link, life, queue_config("orders"), &[1]).await, 0);
    let (old, _) = pull(&link, &ask(work, 1)).await;
    settle(&link, work, vec![item(&old[0], SettleAction::Dead)]).await;
    let redrive = RedriveRequest { part: work, limit: 9, ..RedriveRequest::default() };
    let redriven: RedriveAnswer = call(&link, Method::Redrive, &redrive).await.unwrap();
    assert_eq!(redriven.redriven, [0]);
    is_lost(&link, work, &old[0]).await;
    (node, link) = again(node, dir.path()).await;
    is_lost(&link, work, &old[0]).await;
    let (new, values) = pull(&link, &ask(work, 1)).await;
    assert_eq!((new[0].attempt, values), (1, vec!["a".to_owned()]), "it is not settled undelivered");
    (node, link) = again(node, dir.path()).await;
    is_lost(&link, work, &old[0]).await;
    ack(&link, work, &new).await;
    node.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_of_a_stream_that_was_replaced_acknowledges_nothing_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let (mut node, mut link) = start(dir.path()).await;
    let life = create(&link, "orders", config()).await;
    publish(&link, life, &batch(0, 0, &["a", "b"])).await.unwrap();
    let config = SubscriptionConfig { is_stream: true, lease_ms: 1_000, ..queue_config("orders") };
    let work = part(&subscribe(&link, life, config, &[1]).await, 0);
    let reads = |holder: &str, lease_ms| PullRequest {
        holder: holder.into(),
        lease_ms,
        wait_ms: 20_000,
        ..ask(work, 2)
    };
    let (first, _) = pull(&link, &reads("first", 1_000)).await;
    // It is silent, and another takes its place.
    let (second, _) = pull(&link, &reads("second", 1_000)).await;
    assert_eq!(second.len(), 2);
    let acked = |grant: Grant| {
        let link = link.clone();
        async move { outcome(&link, work, &grant, SettleAction::Ack).await }
    };
    assert_eq!(acked(first[0]).await, SettleOutcome::LeaseLost);
    (node, link) = again(node, dir.path()).await;
    assert_eq!(outcome(&link, work, &first[1], SettleAction::Ack).await, SettleOutcome::LeaseLost);
    assert_eq!(outcome(&link, work, &second[0], SettleAction::Ack).await, SettleOutcome::Done);
    // So does one that begins under another leader.
    let (third, _) = pull(&link, &reads("third", 1_000)).await;
    assert_eq!(third.len(), 1);
    (node, link) = again(node, dir.path()).await;
    assert_eq!(outcome(&link, work, &second[1], SettleAction::Ack).await, SettleOutcome::LeaseLost);
    assert_eq!(outcome(&link, work, &third[0], SettleAction::Ack).await, SettleOutcome::Done);
    node.shutdown(Duration::from_secs(5)).await;
}
