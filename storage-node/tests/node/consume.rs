//! A part consumed as a stream: credit, leases that come and go with their holder, settles in runs.

use std::time::Duration;

use bytes::Bytes;
use prost::Message;
use weir_protocol::error::ErrorCode;
use weir_protocol::rpc::{
    ConsumeEvent, ConsumeRequest, Credit, DeleteSubscriptionRequest, DescribeSubscriptionRequest, LeaseList,
    LeaveRequest, Left, ListLeasesRequest, Method, NotDone, Packet, PartRef, SettleAction, SettleOutcome,
    SettleRun, SettleRunsAnswer, SettleRunsRequest, SubscriptionConfig, SubscriptionDescription,
    UpdateSubscriptionRequest,
};
use weir_storage_node::RunningNode;
use weir_transport::{Answers, CallError, Link};

use crate::client::{SHARD, WAIT, batch, call, config, create, publish, start, until, values};
use crate::queue::{part, queue_config, stats, subscribe, subscription_name};

const PLENTY: Credit = Credit { records: 1 << 20, bytes: 1 << 30 };
const NOTHING: Credit = Credit { records: 0, bytes: 0 };
/// Longer than this nothing that is expected takes; shorter than this nothing that is not expected is waited for.
const MOMENT: Duration = Duration::from_millis(300);

/// A topic of one partition with a subscription.
struct Play {
    node: RunningNode,
    link: Link,
    life: u64,
    part: PartRef,
    _dir: tempfile::TempDir,
}

impl Play {
    async fn start(config_of: impl FnOnce(SubscriptionConfig) -> SubscriptionConfig) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (node, link) = start(dir.path()).await;
        let life = create(&link, "orders", config()).await;
        let made = subscribe(&link, life, config_of(queue_config("orders")), &[1]).await;
        Self { node, link, life, part: part(&made, 0), _dir: dir }
    }

    async fn publish(&self, values: &[&str]) {
        publish(&self.link, self.life, &batch(0, 0, values)).await.unwrap();
    }

    fn ask(&self, holder: &str, limit: Credit) -> ConsumeRequest {
        ConsumeRequest {
            part: self.part,
            limit,
            keeps_credit: true,
            holder: holder.into(),
            ..ConsumeRequest::default()
        }
    }

    async fn consume(&self, request: &ConsumeRequest) -> Consumer {
        let body = vec![Bytes::from(request.encode_to_vec())];
        Consumer { answers: self.link.open(Method::Consume, SHARD, body).await.unwrap() }
    }

    async fn settle(&self, runs: Vec<SettleRun>) -> Vec<NotDone> {
        let request = SettleRunsRequest { part: self.part, runs };
        let answer: SettleRunsAnswer = call(&self.link, Method::SettleRuns, &request).await.unwrap();
        answer.not_done
    }

    async fn stop(self) {
        self.node.shutdown(Duration::from_secs(5)).await;
    }
}

struct Consumer {
    answers: Answers,
}

impl Consumer {
    async fn next(&mut self) -> (ConsumeEvent, Vec<String>) {
        let answer = tokio::time::timeout(WAIT, self.answers.next()).await.unwrap().unwrap().unwrap();
        let packet = Packet::<ConsumeEvent>::decode(answer).unwrap();
        let found = values(&packet.message.slices, packet.payload);
        (packet.message, found)
    }

    async fn is_quiet(&mut self) -> bool {
        tokio::time::timeout(MOMENT, self.next()).await.is_err()
    }
}

/// All leases of an event, to be settled.
fn all(event: &ConsumeEvent, action: SettleAction) -> Vec<SettleRun> {
    let run = |run: &weir_protocol::rpc::GrantRun| SettleRun {
        offset: run.offset,
        fence: run.fence,
        count: run.count,
        action: action as i32,
        ..SettleRun::default()
    };
    event.runs.iter().map(run).collect()
}

/// Whether the node has ended all streams but so many.
fn has_streams(node: &RunningNode, count: usize) -> bool {
    let text = prometheus::TextEncoder::new().encode_to_string(&node.registry().gather()).unwrap();
    text.contains(&format!("\nweir_node_subscriptions {count}\n"))
}

fn credit(records: u64) -> Credit {
    Credit { records, ..PLENTY }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_come_as_they_are_published_within_credit_and_a_run_settles_them() {
    let play = Play::start(|config| config).await;
    let mut worker = play.consume(&play.ask("w", NOTHING)).await;
    play.publish(&["a", "b", "c"]).await;
    assert!(worker.is_quiet().await, "no credit, nothing");
    worker.answers.grant(credit(2));
    let (first, found) = worker.next().await;
    assert_eq!(found, ["a", "b"]);
    assert_eq!((first.runs.len(), first.runs[0].count, first.runs[0].attempt), (1, 2, 1), "{first:?}");
    assert_eq!(first.gone.records, 2);
    assert!(worker.is_quiet().await, "settling is not credit, and credit is not settling");
    assert_eq!(play.settle(all(&first, SettleAction::Ack)).await, []);
    assert!(worker.is_quiet().await);
    worker.answers.grant(credit(10));
    assert_eq!(worker.next().await.1, ["c"]);
    play.publish(&["d"]).await;
    assert_eq!(worker.next().await.1, ["d"]);
    let counts = stats(&play.link, play.part).await;
    assert_eq!((counts.floor, counts.leased), (2, 2), "{counts:?}");
    play.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn places_are_free_when_a_settle_is_accepted() {
    let play = Play::start(|config| SubscriptionConfig { max_unacked: 2, ..config }).await;
    play.publish(&["a", "b", "c", "d"]).await;
    let mut worker = play.consume(&play.ask("w", PLENTY)).await;
    let (first, found) = worker.next().await;
    assert_eq!(found, ["a", "b"]);
    assert!(worker.is_quiet().await, "credit is there, places are not");
    let run = SettleRun { count: 1, ..all(&first, SettleAction::Ack).remove(0) };
    assert_eq!(play.settle(vec![run]).await, []);
    assert_eq!(worker.next().await.1, ["c"]);
    play.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_worker_leaves_is_anothers_at_once_and_the_late_settle_learns_of_it() {
    let play = Play::start(|config| config).await;
    play.publish(&["a", "b"]).await;
    let mut lost = play.consume(&play.ask("lost", PLENTY)).await;
    let (held, _) = lost.next().await;
    let mut other = play.consume(&play.ask("other", PLENTY)).await;
    assert!(other.is_quiet().await);
    drop(lost);
    let (again, found) = other.next().await;
    assert_eq!(found, ["a", "b"]);
    assert_eq!(again.runs[0].attempt, 2);
    let not_done = play.settle(all(&held, SettleAction::Ack)).await;
    let seen: Vec<_> = not_done
        .iter()
        .map(|item| (item.place, item.outcome(), item.current.unwrap().attempt, item.current.unwrap().fence))
        .collect();
    let fence = again.runs[0].fence;
    assert_eq!(seen, [(0, SettleOutcome::LeaseLost, 2, fence), (1, SettleOutcome::LeaseLost, 2, fence + 1)]);
    assert_eq!(play.settle(all(&again, SettleAction::Ack)).await, []);
    play.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_comes_back_within_the_grace_takes_its_leases_over() {
    let play = Play::start(|config| config).await;
    play.publish(&["a", "b"]).await;
    let grace = ConsumeRequest { grace_ms: 60_000, ..play.ask("first", credit(1)) };
    let mut first = play.consume(&grace).await;
    let (held, _) = first.next().await;
    drop(first);
    let mut other = play.consume(&play.ask("other", PLENTY)).await;
    assert_eq!(other.next().await.1, ["b"], "what is kept for the first is not the other's");
    let back =
        ConsumeRequest { takes_over: Some("first".into()), grace_ms: 60_000, ..play.ask("second", PLENTY) };
    let mut back = play.consume(&back).await;
    assert!(back.is_quiet().await, "it has what it had");
    let longer = SettleRun { ms: Some(60_000), ..all(&held, SettleAction::Extend).remove(0) };
    assert_eq!(play.settle(vec![longer]).await, []);
    // It is gone before its lease ends, and the node knows: else either of the two could be next.
    drop(back);
    until("the second is gone", || has_streams(&play.node, 1)).await;
    assert!(other.is_quiet().await, "kept for the second now");
    // The old name holds nothing any more, the new one does.
    for (holder, ended) in [("first", 0), ("second", 1), ("second", 0)] {
        let request = LeaveRequest { part: play.part, holder: holder.into() };
        let left: Left = call(&play.link, Method::Leave, &request).await.unwrap();
        assert_eq!(left.ended, ended, "{holder}");
    }
    let (again, found) = other.next().await;
    assert_eq!((found, again.runs[0].attempt), (vec!["a".to_owned()], 2));
    play.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_takes_leases_over_and_loses_its_way_to_the_node_still_has_them_when_it_is_back() {
    const LONG: Duration = Duration::from_secs(10);
    let play = Play::start(|config| config).await;
    play.publish(&["a"]).await;
    let mut first = play.consume(&ConsumeRequest { grace_ms: 60_000, ..play.ask("first", PLENTY) }).await;
    first.next().await;
    drop(first);
    let back =
        ConsumeRequest { takes_over: Some("first".into()), grace_ms: 2_000, ..play.ask("second", PLENTY) };
    for _ in 0..2 {
        until("the one before is gone", || has_streams(&play.node, 0)).await;
        let mut again = play.consume(&back).await;
        assert!(again.is_quiet().await, "it has what it had");
        let listed = ListLeasesRequest { part: play.part, limit: 1, ..ListLeasesRequest::default() };
        let listed: LeaseList = call(&play.link, Method::ListLeases, &listed).await.unwrap();
        let (held, until_ms) = (&listed.leases[0], listed.leases[0].grant.unwrap().expires_in_ms);
        assert!(u128::from(until_ms) > LONG.as_millis(), "{held:?} ends with the grace of a call that broke");
        assert_eq!(held.holder, "second");
    }
    play.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn credit_that_is_shared_comes_back_when_there_is_nothing_for_it() {
    let play = Play::start(|config| config).await;
    let shared = ConsumeRequest { keeps_credit: false, ..play.ask("w", credit(5)) };
    let mut worker = play.consume(&shared).await;
    let (idle, _) = worker.next().await;
    assert_eq!((idle.gone, idle.is_ready, idle.runs.len()), (credit(5), false, 0));
    play.publish(&["a", "b", "c"]).await;
    let (ready, _) = worker.next().await;
    assert!(ready.is_ready && ready.runs.is_empty(), "{ready:?}");
    play.publish(&["d"]).await;
    assert!(worker.is_quiet().await, "told once");
    worker.answers.grant(Credit { records: 7, bytes: 2 << 30 });
    let (given, found) = worker.next().await;
    assert_eq!(found, ["a", "b"]);
    assert_eq!(given.gone, Credit { records: 7, bytes: 2 << 30 }, "bytes without records are of no use");
    assert!(worker.next().await.0.is_ready);
    play.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_apart_from_each_other_bring_their_batch_once() {
    let play = Play::start(|config| SubscriptionConfig { backoff_ms: vec![], ..config }).await;
    let value = "x".repeat(1_000);
    let many: Vec<&str> = (0..60).map(|_| &*value).collect();
    play.publish(&many).await;
    let mut worker = play.consume(&play.ask("w", credit(60))).await;
    let (given, _) = worker.next().await;
    let run = &given.runs[0];
    let one = |place: u64, action: SettleAction| SettleRun {
        offset: run.offset + place,
        fence: run.fence + place,
        count: 1,
        action: action as i32,
        ..SettleRun::default()
    };
    let half =
        |place: u64| one(place, if place.is_multiple_of(2) { SettleAction::Ack } else { SettleAction::Nack });
    assert_eq!(play.settle((0..60).map(half).collect()).await, []);
    worker.answers.grant(PLENTY);
    let (again, _) = worker.next().await;
    assert_eq!((again.runs.len(), again.slices.len()), (30, 1), "{again:?}");
    assert_eq!((again.slices[0].first, again.slices[0].take), (1, 59));
    play.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pause_stops_a_stream_and_a_resume_wakes_it() {
    let play = Play::start(|config| SubscriptionConfig { paused: true, ..config }).await;
    play.publish(&["a"]).await;
    let mut worker = play.consume(&play.ask("w", PLENTY)).await;
    assert!(worker.is_quiet().await);
    let name = subscription_name();
    let ask = DescribeSubscriptionRequest { name: name.clone() };
    let now: SubscriptionDescription = call(&play.link, Method::DescribeSubscription, &ask).await.unwrap();
    let config = SubscriptionConfig { paused: false, ..now.config };
    let update = UpdateSubscriptionRequest { name, config, id: now.id, expected_version: now.version };
    let _: SubscriptionDescription = call(&play.link, Method::UpdateSubscription, &update).await.unwrap();
    assert_eq!(worker.next().await.1, ["a"]);
    play.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_makes_no_sense_is_refused() {
    let play = Play::start(|config| config).await;
    let gone = PartRef { subscription: 77, ..play.part };
    for (request, code) in [
        (play.ask("", PLENTY), ErrorCode::InvalidParameter),
        (play.ask(&"h".repeat(256), PLENTY), ErrorCode::InvalidParameter),
        (ConsumeRequest { lease_ms: 1, ..play.ask("w", PLENTY) }, ErrorCode::InvalidParameter),
        (ConsumeRequest { part: gone, ..play.ask("w", PLENTY) }, ErrorCode::SubscriptionNotFound),
    ] {
        let mut refused = play.consume(&request).await;
        match refused.answers.next().await {
            Some(Err(CallError::Refused(refusal))) => assert_eq!(refusal.error_code(), code),
            other => panic!("{other:?}"),
        }
    }
    let run = SettleRun { count: u32::MAX, action: SettleAction::Ack as i32, ..SettleRun::default() };
    let request = SettleRunsRequest { part: play.part, runs: vec![run.clone(), run] };
    let refused = call::<SettleRunsAnswer>(&play.link, Method::SettleRuns, &request).await.unwrap_err();
    assert!(matches!(refused, CallError::Refused(refusal) if refusal.error_code() == ErrorCode::TooLarge));
    play.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_reasons_than_an_entry_carries_go_into_several() {
    let play = Play::start(|config| SubscriptionConfig { max_unacked: 10_000, ..config }).await;
    let values = vec!["x"; 4_000];
    play.publish(&values).await;
    let mut worker = play.consume(&play.ask("w", PLENTY)).await;
    let mut runs = Vec::new();
    while runs.iter().map(|run: &SettleRun| run.count).sum::<u32>() < 4_000 {
        runs.extend(all(&worker.next().await.0, SettleAction::Dead));
    }
    // Four megabytes of reasons, asked for in a few bytes.
    let why = "y".repeat(weir_protocol::limits::SETTLE_REASON_BYTES_MAX);
    runs.iter_mut().for_each(|run| run.reason.clone_from(&why));
    assert_eq!(play.settle(runs).await, []);
    assert_eq!(stats(&play.link, play.part).await.dead, 4_000);
    play.publish(&["the shard goes on"]).await;
    assert_eq!(worker.next().await.1, ["the shard goes on"]);
    play.stop().await;
}

/// Takes what comes next to any of them; whose it is.
async fn any(workers: &mut [Consumer]) -> (usize, Vec<String>) {
    let next = workers.iter_mut().map(|worker| Box::pin(worker.next()));
    let ((_, found), place, _) = futures_util::future::select_all(next).await;
    (place, found)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_takes_turns_and_who_goes_passes_its_turn_on() {
    let play = Play::start(|config| config).await;
    let mut workers = Vec::new();
    for holder in ["a", "b", "c"] {
        workers.push(play.consume(&play.ask(holder, PLENTY)).await);
        until("it is served", || has_streams(&play.node, workers.len())).await;
        assert!(workers.last_mut().unwrap().is_quiet().await);
    }
    let mut order = Vec::new();
    for value in ["1", "2", "3", "4"] {
        play.publish(&[value]).await;
        let (place, found) = any(&mut workers).await;
        assert_eq!(found, [value]);
        order.push(place);
    }
    assert_eq!(order, [0, 1, 2, 0], "in the order in which they stood in line");
    // Whoever listens now goes away, and another does instead.
    drop(workers.remove(1));
    until("it is gone", || has_streams(&play.node, 2)).await;
    play.publish(&["5"]).await;
    // What it had not settled comes again, before or behind that.
    let mut found = any(&mut workers).await.1;
    while !found.contains(&"5".to_owned()) {
        assert_eq!(found, ["2"]);
        found = any(&mut workers).await.1;
    }
    play.stop().await;
}

/// Of the clock that stands while this lives: time would go on where all wait for a disk, but not beside a
/// thread that is busy.
struct StandingClock {
    _busy: std::sync::mpsc::Sender<()>,
}

impl StandingClock {
    /// Stops it, for [`WAIT`] at most.
    fn stop() -> Self {
        let (busy, ends) = std::sync::mpsc::channel::<()>();
        tokio::task::spawn_blocking(move || ends.recv_timeout(WAIT));
        tokio::time::pause();
        Self { _busy: busy }
    }
}

impl Drop for StandingClock {
    fn drop(&mut self) {
        tokio::time::resume();
    }
}

#[tokio::test]
async fn credit_that_is_kept_is_there_for_a_record_and_is_given_back_after_a_while_without() {
    let play = Play::start(|config| config).await;
    // However long a publish takes.
    let clock = StandingClock::stop();
    let limit = Credit { records: 5, bytes: 5_000 };
    let keeps = Some(Credit { records: 2, bytes: 2_000 });
    let request = ConsumeRequest { keeps_credit: false, keeps, ..play.ask("w", limit) };
    let mut worker = play.consume(&request).await;
    let (idle, _) = worker.next().await;
    assert_eq!((idle.gone, idle.is_ready), (Credit { records: 3, bytes: 3_000 }, false));
    play.publish(&["a"]).await;
    let (given, found) = worker.next().await;
    assert_eq!((found, given.gone.records), (vec!["a".to_owned()], 4), "no talk before it");
    drop(clock);
    let (late, _) = worker.next().await;
    assert_eq!((late.gone, late.is_ready), (limit, false));
    play.publish(&["b"]).await;
    assert!(worker.next().await.0.is_ready);
    play.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_has_no_credit_hears_that_the_subscription_is_gone() {
    let play = Play::start(|config| config).await;
    let mut workers = Vec::new();
    for holder in ["a", "b", "c"] {
        workers.push(play.consume(&play.ask(holder, NOTHING)).await);
    }
    play.publish(&["x"]).await;
    assert!(workers[0].is_quiet().await);
    let delete = DeleteSubscriptionRequest { name: subscription_name(), ..Default::default() };
    let body = vec![Bytes::from(delete.encode_to_vec())];
    play.link.call(Method::DeleteSubscription, SHARD, body, WAIT).await.unwrap();
    for worker in &mut workers {
        match tokio::time::timeout(WAIT, worker.answers.next()).await.unwrap() {
            Some(Err(CallError::Refused(refusal))) => {
                assert_eq!(refusal.error_code(), ErrorCode::SubscriptionNotFound);
            }
            other => panic!("{other:?}"),
        }
    }
    play.stop().await;
}
