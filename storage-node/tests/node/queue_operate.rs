//! What operators do with a queue: ask why, undo a seek, deliver dead letters once more.

use std::time::Duration;

use weir_journal::disk::sim::SimDisk;
use weir_protocol::error::{ErrorCode, Outcome};
use weir_protocol::rpc::{
    At, ExplainRequest, Explanation, Hindrance, LeaseList, ListLeasesRequest, Method, PartRef, PullRequest,
    PurgeAnswer, PurgeRequest, RedriveAnswer, RedriveRequest, SeekAnswer, SeekRequest, SettleAction,
    SettleAnswer, SettleItem, SettleRequest, Standing, SubscriptionConfig, SubscriptionName,
};
use weir_transport::{CallError, Link};

use crate::client::{SHARD, WAIT, batch, call, config, create, publish, publish_refused, start};
use crate::failures::start_on;
use crate::queue::{
    ack, ask, item, part, pull, queue_config, settle, stats, subscribe, subscribe_as, subscription_name,
};

async fn explanation(link: &Link, part: PartRef, offset: u64) -> Explanation {
    call(link, Method::Explain, &ExplainRequest { part, offset }).await.unwrap()
}

pub(crate) async fn explain(link: &Link, part: PartRef, offset: u64) -> (Standing, Vec<Hindrance>) {
    let told = explanation(link, part, offset).await;
    let again = explanation(link, part, offset).await;
    assert_eq!(told.record.standing, again.record.standing, "looking changes nothing");
    let hindrances = told.hindrances.iter().map(|number| Hindrance::try_from(*number).unwrap());
    (told.record.standing(), hindrances.collect())
}

async fn dead(link: &Link, part: PartRef) -> Vec<u64> {
    let request = ListLeasesRequest {
        part,
        from: 0,
        limit: 100,
        standing: Standing::Dead.into(),
        as_of: 0,
        as_of_ms: None,
    };
    let list: LeaseList = call(link, Method::ListLeases, &request).await.unwrap();
    list.leases.iter().map(|lease| lease.offset).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_is_told_why_a_record_is_where_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let (node, link) = start(dir.path()).await;
    let life = create(&link, "orders", config()).await;
    publish(&link, life, &batch(0, 0, &["a", "b", "c", "d"])).await.unwrap();
    let config = SubscriptionConfig { max_unacked: 2, ..queue_config("orders") };
    let work = part(&subscribe(&link, life, config, &[1]).await, 0);
    assert_eq!(explain(&link, work, 0).await, (Standing::Ready, vec![Hindrance::NoConsumer]));
    assert_eq!(explain(&link, work, 4).await, (Standing::Absent, vec![]));
    let (held, _) = pull(&link, &ask(work, 2)).await;
    assert_eq!(explain(&link, work, 1).await, (Standing::Leased, vec![]));
    assert_eq!(explain(&link, work, 2).await, (Standing::Ready, vec![Hindrance::WindowFull]));
    ack(&link, work, &held[..1]).await;
    assert_eq!(explain(&link, work, 0).await, (Standing::Settled, vec![]));
    assert_eq!(explain(&link, work, 3).await, (Standing::Ready, vec![Hindrance::InLine]));
    settle(&link, work, vec![item(&held[1], SettleAction::Dead)]).await;
    assert_eq!(explain(&link, work, 1).await, (Standing::Dead, vec![]));
    assert_eq!(stats(&link, work).await.ready, 2, "nothing was taken");
    node.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_settled_behind_a_record_makes_no_less_of_what_is_before_it() {
    let dir = tempfile::tempdir().unwrap();
    let (node, link) = start(dir.path()).await;
    let life = create(&link, "orders", config()).await;
    publish(&link, life, &batch(0, 0, &["a", "b", "c", "d", "e", "f"])).await.unwrap();
    let work = part(&subscribe(&link, life, queue_config("orders"), &[1]).await, 0);
    let (held, _) = pull(&link, &ask(work, 6)).await;
    ack(&link, work, &held[3..]).await;
    settle(&link, work, vec![item(&held[2], SettleAction::Nack)]).await;
    let told = explanation(&link, work, 2).await;
    assert_eq!(told.ahead, 2, "{told:?}");
    ack(&link, work, &held[1..2]).await;
    let ahead = async |offset| explanation(&link, work, offset).await.ahead;
    assert_eq!([ahead(0).await, ahead(2).await, ahead(5).await, ahead(99).await], [0, 1, 2, 2]);
    node.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_worker_held_that_went_away_is_shown_as_ready_though_nobody_pulls() {
    let dir = tempfile::tempdir().unwrap();
    let (node, link) = start(dir.path()).await;
    let life = create(&link, "orders", config()).await;
    publish(&link, life, &batch(0, 0, &["a", "b", "c"])).await.unwrap();
    let config = SubscriptionConfig { max_unacked: 2, ..queue_config("orders") };
    let work = part(&subscribe(&link, life, config, &[1]).await, 0);
    let (held, _) = pull(&link, &PullRequest { lease_ms: 1_000, ..ask(work, 2) }).await;
    assert_eq!(held.len(), 2);
    let over = async {
        while stats(&link, work).await.leased > 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(WAIT, over).await.expect("a lease ends by itself");
    assert_eq!(stats(&link, work).await.ready, 3);
    let asked = ListLeasesRequest { part: work, limit: 10, ..ListLeasesRequest::default() };
    let list: LeaseList = call(&link, Method::ListLeases, &asked).await.unwrap();
    assert_eq!(list.leases, []);
    assert_eq!(explain(&link, work, 2).await, (Standing::Ready, vec![Hindrance::InLine]), "there is room");
    node.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_seek_can_be_undone_and_what_was_settled_since_stays_settled() {
    let dir = tempfile::tempdir().unwrap();
    let (node, link) = start(dir.path()).await;
    let life = create(&link, "orders", config()).await;
    publish(&link, life, &batch(0, 0, &["a", "b", "c", "d"])).await.unwrap();
    let work = part(&subscribe(&link, life, queue_config("orders"), &[1]).await, 0);
    let (held, _) = pull(&link, &ask(work, 2)).await;
    ack(&link, work, &held).await;
    let seek = |to: At, keep_as, back_to| SeekRequest {
        part: work,
        to: to.into(),
        keep_as,
        back_to,
        is_dry_run: false,
    };
    // Everything is skipped by mistake.
    let skipped: SeekAnswer = call(&link, Method::Seek, &seek(At::Latest(true), 5, 0)).await.unwrap();
    assert_eq!((skipped.floor, skipped.skipped), (4, 2));
    publish(&link, life, &batch(0, 0, &["e"])).await.unwrap();
    let (last, found) = pull(&link, &ask(work, 9)).await;
    assert_eq!(found, ["e"]);
    ack(&link, work, &last).await;
    drop(link);
    node.shutdown(Duration::from_secs(5)).await;

    let (node, link) = start(dir.path()).await;
    let then = |as_of, standing: Standing| {
        let (link, standing) = (link.clone(), standing.into());
        let request = ListLeasesRequest { part: work, from: 0, limit: 9, standing, as_of, as_of_ms: None };
        async move { call::<LeaseList>(&link, Method::ListLeases, &request).await }
    };
    let offsets = |list: LeaseList| list.leases.iter().map(|lease| lease.offset).collect::<Vec<_>>();
    // What came since was not settled then.
    assert_eq!(offsets(then(5, Standing::Ready).await.unwrap()), [2, 3, 4]);
    assert_eq!(offsets(then(0, Standing::Ready).await.unwrap()), [0; 0]);
    match then(7, Standing::Ready).await {
        Err(CallError::Refused(refusal)) => {
            assert_eq!(refusal.error_code(), ErrorCode::SnapshotGone);
            assert!(refusal.detail.contains("snap_0000000000000005"), "{}", refusal.detail);
        }
        other => panic!("{other:?}"),
    }
    match then(5, Standing::Leased).await {
        Err(CallError::Refused(refusal)) => assert_eq!(refusal.error_code(), ErrorCode::InvalidParameter),
        other => panic!("{other:?}"),
    }
    let undo = seek(At::Earliest(true), 6, 5);
    let would: SeekAnswer =
        call(&link, Method::Seek, &SeekRequest { is_dry_run: true, ..undo.clone() }).await.unwrap();
    let undone: SeekAnswer = call(&link, Method::Seek, &undo).await.unwrap();
    assert_eq!(undone, would);
    assert_eq!((undone.floor, undone.redelivered, undone.skipped), (2, 2, 0));
    assert_eq!(pull(&link, &ask(work, 9)).await.1, ["c", "d"]);
    let gone = seek(At::Earliest(true), 0, 77);
    match link.call(Method::Seek, SHARD, vec![prost::Message::encode_to_vec(&gone).into()], WAIT).await {
        Err(CallError::Refused(refusal)) => assert_eq!(refusal.error_code(), ErrorCode::SnapshotGone),
        other => panic!("{other:?}"),
    }
    node.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_letters_are_redriven_once_and_not_for_ever() {
    let dir = tempfile::tempdir().unwrap();
    let (node, link) = start(dir.path()).await;
    let life = create(&link, "orders", config()).await;
    publish(&link, life, &batch(0, 0, &["a", "b", "c", "d", "e"])).await.unwrap();
    let work = part(&subscribe(&link, life, queue_config("orders"), &[1]).await, 0);
    let (held, _) = pull(&link, &ask(work, 5)).await;
    let items = held.iter().map(|grant| {
        let is_dead = grant.offset != 2;
        item(grant, if is_dead { SettleAction::Dead } else { SettleAction::Ack })
    });
    settle(&link, work, items.collect()).await;
    assert_eq!(dead(&link, work).await, [0, 1, 3, 4]);
    drop(link);
    node.shutdown(Duration::from_secs(5)).await;

    let (node, link) = start(dir.path()).await;
    let redrive = RedriveRequest { part: work, limit: 10, ..RedriveRequest::default() };
    let dry = RedriveRequest { is_dry_run: true, limit: 3, ..redrive.clone() };
    for _ in 0..2 {
        let would: RedriveAnswer = call(&link, Method::Redrive, &dry).await.unwrap();
        assert_eq!((would.redriven, would.next), (vec![0, 1, 3], Some(4)), "it only says so");
    }
    let some = RedriveRequest { offsets: vec![2, 3, 99], ..redrive.clone() };
    // Whoever waits gets what is redriven.
    let waiting = PullRequest { wait_ms: 20_000, ..ask(work, 9) };
    let (found, answer) =
        tokio::join!(pull(&link, &waiting), call::<RedriveAnswer>(&link, Method::Redrive, &some));
    assert_eq!((found.1, answer.unwrap().redriven), (vec!["d".to_owned()], vec![3]));
    assert_eq!(found.0[0].attempt, 1, "attempts begin anew");
    settle(&link, work, vec![item(&found.0[0], SettleAction::Dead)]).await;
    // It failed again: nothing more is done.
    let watched = RedriveRequest { watched: vec![3], give_up_at: 1, ..redrive.clone() };
    let stopped: RedriveAnswer = call(&link, Method::Redrive, &watched).await.unwrap();
    assert_eq!((stopped.redriven.len(), stopped.dead_again, stopped.next), (0, 1, Some(0)));
    let two: RedriveAnswer =
        call(&link, Method::Redrive, &RedriveRequest { limit: 2, ..redrive.clone() }).await.unwrap();
    assert_eq!((two.redriven, two.next), (vec![0, 1], Some(3)));
    let none = RedriveRequest { filter: Some("header.x == '1'".to_owned()), ..redrive };
    let none: RedriveAnswer = call(&link, Method::Redrive, &none).await.unwrap();
    assert_eq!((none.redriven.len(), none.next), (0, None));
    assert_eq!((dead(&link, work).await, pull(&link, &ask(work, 9)).await.1.len()), (vec![3, 4], 2));
    node.shutdown(Duration::from_secs(5)).await;
}

/// A settle is decided on the leases of its time and logged a moment later: a seek that gets between the two
/// must undo it as it undoes those before it, or what it delivers again would be missing a message.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_seek_undoes_every_settle_before_it_however_close_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let (node, link) = start(dir.path()).await;
    let life = create(&link, "orders", config()).await;
    publish(&link, life, &batch(0, 0, &["x"; 4_000])).await.unwrap();
    let config = SubscriptionConfig { max_unacked: 10_000, max_attempts: 0, ..queue_config("orders") };
    let work = part(&subscribe(&link, life, config, &[1]).await, 0);
    let seek = SeekRequest { part: work, to: At::Earliest(true).into(), ..SeekRequest::default() };
    for round in 0..12 {
        let (held, _) = pull(&link, &ask(work, 4_000)).await;
        assert_eq!(held.len(), 4_000);
        // Every second one: they make a long entry.
        let settling = held.chunks(1_000).map(|held| {
            let items = held.iter().step_by(2).map(|grant| item(grant, SettleAction::Ack)).collect();
            let link = link.clone();
            tokio::spawn(async move { settle(&link, work, items).await })
        });
        let settling: Vec<_> = settling.collect();
        let moved: SeekAnswer = call(&link, Method::Seek, &seek).await.unwrap();
        assert_eq!(moved.floor, 0);
        for settled in settling {
            settled.await.unwrap();
        }
        let stats = stats(&link, work).await;
        assert_eq!((stats.floor, stats.settled_above_floor), (0, 0), "in round {round}");
    }
    node.shutdown(Duration::from_secs(5)).await;
}

/// Fills a disk until not even a change of a part finds room.
async fn fill(link: &Link, disk: &SimDisk, life: u64, other: PartRef) {
    disk.fill();
    let fill = async {
        for bytes in [900_000, 50_000, 1_000] {
            let value = "x".repeat(bytes);
            loop {
                match publish_refused(link, life, &batch(0, 0, &[&value])).await {
                    Ok(_) => {}
                    Err(refusal) if refusal.error_code() == ErrorCode::JournalFull => break,
                    // It is still tried to prepare the next file: that ends by itself.
                    Err(refusal) => assert_eq!(refusal.error_code(), ErrorCode::Busy),
                }
            }
        }
        // A purge finds room for longer than any other change.
        let purge = PurgeRequest { part: other, ..PurgeRequest::default() };
        while call::<PurgeAnswer>(link, Method::Purge, &purge).await.is_ok() {}
    };
    tokio::time::timeout(WAIT, fill).await.expect("a disk has an end");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_seek_or_purge_that_is_refused_ends_nobodys_lease() {
    let disk = SimDisk::new();
    let (node, link) = start_on(&disk).await;
    let life = create(&link, "orders", config()).await;
    publish(&link, life, &batch(0, 0, &["a", "b", "c"])).await.unwrap();
    let config = SubscriptionConfig { max_unacked: 2, ..queue_config("orders") };
    let work = part(&subscribe(&link, life, config.clone(), &[1]).await, 0);
    let other = SubscriptionName { subscription: "other".into(), ..subscription_name() };
    let other = part(&subscribe_as(&link, life, other, config, &[1]).await, 0);
    let (held, _) = pull(&link, &ask(work, 2)).await;
    fill(&link, &disk, life, other).await;
    let seek = SeekRequest { part: work, to: At::Latest(true).into(), ..SeekRequest::default() };
    let purge = PurgeRequest { part: work, ..PurgeRequest::default() };
    let refused = [
        call::<SeekAnswer>(&link, Method::Seek, &seek).await.map(drop),
        call::<PurgeAnswer>(&link, Method::Purge, &purge).await.map(drop),
    ];
    for refused in refused {
        let Err(CallError::Refused(refusal)) = refused else { panic!("{refused:?}") };
        assert_eq!((refusal.error_code(), refusal.effect()), (ErrorCode::JournalFull, Outcome::None));
    }
    let now = stats(&link, work).await;
    assert_eq!((now.floor, now.leased), (0, 2), "nothing happened");
    assert_eq!(pull(&link, &ask(work, 9)).await.0, [], "nobody else is given what is leased");
    // A lease is held longer without the log: a refusal of what goes with it is not without effect.
    let longer = SettleItem { ms: Some(600_000), ..item(&held[0], SettleAction::Extend) };
    let items = vec![longer, item(&held[1], SettleAction::Ack)];
    let refused = call::<SettleAnswer>(&link, Method::Settle, &SettleRequest { part: work, items }).await;
    let Err(CallError::Refused(refusal)) = refused else { panic!("{refused:?}") };
    assert_eq!((refusal.error_code(), refusal.effect()), (ErrorCode::JournalFull, Outcome::Unknown));
    let items = vec![item(&held[1], SettleAction::Ack)];
    let refused = call::<SettleAnswer>(&link, Method::Settle, &SettleRequest { part: work, items }).await;
    let Err(CallError::Refused(refusal)) = refused else { panic!("{refused:?}") };
    assert_eq!((refusal.error_code(), refusal.effect()), (ErrorCode::JournalFull, Outcome::None));
    disk.make_room();
    let acked = async {
        let items = held.iter().map(|grant| item(grant, SettleAction::Ack)).collect();
        let request = SettleRequest { part: work, items };
        while call::<SettleAnswer>(&link, Method::Settle, &request).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(WAIT, acked).await.expect("there is room again");
    assert_eq!(stats(&link, work).await.floor, 2);
    let (_, next) = pull(&link, &ask(work, 1)).await;
    assert_eq!(next, ["c"]);
    node.shutdown(Duration::from_secs(5)).await;
}
