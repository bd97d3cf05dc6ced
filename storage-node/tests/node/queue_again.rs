//! What clients do again: settles that were refused, and pulls whose answer was lost.

use std::time::Duration;

use weir_journal::disk::sim::SimDisk;
use weir_protocol::error::{ErrorCode, Outcome};
use weir_protocol::limits::SETTLE_REASON_BYTES_MAX;
use weir_protocol::rpc::{
    Grant, Method, PartRef, PullRequest, SettleAction, SettleAnswer, SettleItem, SettleOutcome,
    SettleRequest, SubscriptionConfig, U128,
};
use weir_transport::{CallError, Link};

use crate::client::{batch, call, config, create, publish, start};
use crate::failures::{news_is_taken, start_on};
use crate::queue::{ask, item, part, pull, queue_config, settle, stats, subscribe};

/// Pulls so many records and gives them up.
async fn give_up(link: &Link, work: PartRef, count: u32) {
    let mut left = count;
    while left > 0 {
        let (grants, _) = pull(link, &ask(work, left.min(10_000))).await;
        settle(link, work, grants.iter().map(|grant| item(grant, SettleAction::Dead)).collect()).await;
        left -= u32::try_from(grants.len()).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_refused_of_a_settle_stays_with_its_worker_who_hears_that_the_rest_may_be_done() {
    let dir = tempfile::tempdir().unwrap();
    let (node, link) = start(dir.path()).await;
    let life = create(&link, "orders", config()).await;
    let (full, rest) = (48_500, 2_000);
    for _ in 0..5 {
        publish(&link, life, &batch(0, 0, &["m"; 10_000])).await.unwrap();
    }
    publish(&link, life, &batch(0, 0, &["m"; 500])).await.unwrap();
    let queue = SubscriptionConfig {
        dead_letter_topic: Some("missing".into()),
        max_unacked: 100_000,
        ..queue_config("orders")
    };
    let work = part(&subscribe(&link, life, queue, &[1]).await, 0);
    // Of 100,000 letters no topic gets more than it leaves free: there is room for 1,500 more.
    give_up(&link, work, full).await;
    let (grants, _) = pull(&link, &ask(work, rest)).await;
    assert_eq!(grants.len(), rest as usize);
    let reason = "r".repeat(SETTLE_REASON_BYTES_MAX);
    let dead = |grant: &Grant| SettleItem { reason: reason.clone(), ..item(grant, SettleAction::Dead) };
    let request = SettleRequest { part: work, items: grants.iter().map(dead).collect() };
    let refused = match call::<SettleAnswer>(&link, Method::Settle, &request).await {
        Err(CallError::Refused(refusal)) => refusal,
        other => panic!("there is no room for all of them: {other:?}"),
    };
    // As many as have a MiB of reasons together went before.
    assert_eq!((refused.error_code(), refused.effect()), (ErrorCode::Busy, Outcome::Unknown));
    let now = stats(&link, work).await;
    assert_eq!((now.dead, now.leased), (u64::from(full) + 1_024, 976));
    assert_eq!(pull(&link, &ask(work, 9)).await.0, [], "nobody else gets what may be settled again");
    // Nothing of this one is done.
    let again = SettleRequest { items: request.items[1_024..].to_vec(), ..request };
    match call::<SettleAnswer>(&link, Method::Settle, &again).await {
        Err(CallError::Refused(refusal)) => assert_eq!(refusal.effect(), Outcome::None),
        other => panic!("there is no room still: {other:?}"),
    }
    let acks = grants.iter().map(|grant| item(grant, SettleAction::Ack)).collect();
    let outcomes: Vec<_> = settle(&link, work, acks).await.into_iter().map(|(outcome, _)| outcome).collect();
    let (first, second) = outcomes.split_at(1_024);
    assert!(first.iter().all(|outcome| *outcome == SettleOutcome::AlreadySettled));
    assert!(second.iter().all(|outcome| *outcome == SettleOutcome::Done));
    assert_eq!(stats(&link, work).await.leased, 0);
    node.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_repeated_pull_sends_no_second_delivery_before_it_is_in_the_log() {
    let disk = SimDisk::new();
    let (node, link) = start_on(&disk).await;
    let life = create(&link, "orders", config()).await;
    publish(&link, life, &batch(0, 0, &["a"])).await.unwrap();
    let queue = SubscriptionConfig { max_attempts: 9, ..queue_config("orders") };
    let work = part(&subscribe(&link, life, queue, &[1]).await, 0);
    news_is_taken(&node).await;
    let (grants, _) = pull(&link, &ask(work, 1)).await;
    settle(&link, work, vec![item(&grants[0], SettleAction::Nack)]).await;

    disk.stall_syncs();
    let request = PullRequest { key: Some(U128 { high: 1, low: 2 }), ..ask(work, 1) };
    let pulled = |request: PullRequest| {
        let link = link.clone();
        tokio::spawn(async move { pull(&link, &request).await })
    };
    let lost = pulled(request.clone());
    while stats(&link, work).await.leased == 0 {
        tokio::task::yield_now().await;
    }
    // Its log entry waits. So does the repetition, or else the power fails when it is answered.
    let mut repeated = pulled(PullRequest { only_repeat: true, ..request });
    let mut after = None;
    if let Ok(early) = tokio::time::timeout(Duration::from_millis(500), &mut repeated).await {
        assert_eq!(early.unwrap().0[0].attempt, 2);
        after = Some(disk.after_crash(1));
    }
    disk.go_on();
    if after.is_none() {
        assert_eq!(repeated.await.unwrap().0[0].attempt, 2);
    }
    let after = after.unwrap_or_else(|| disk.after_crash(1));
    assert_eq!(lost.await.unwrap().0[0].attempt, 2);
    node.shutdown(Duration::from_secs(2)).await;

    let (node, link) = start_on(&after).await;
    assert_eq!(pull(&link, &ask(work, 1)).await.0[0].attempt, 3, "two deliveries were sent");
    node.shutdown(Duration::from_secs(2)).await;
}
