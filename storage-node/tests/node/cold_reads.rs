//! What reading from the object store asks of it, and whom a slow one holds up.

use std::path::Path;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use prometheus::Registry;
use prost::Message as _;
use weir_protocol::error::ErrorCode;
use weir_protocol::rpc::{
    At, ConsumeEvent, ConsumeRequest, Credit, Event, LeaveRequest, Left, Method, Packet, PartRef, Placed,
    PullRequest, ReadAnswer, ReadRequest, SubscribeRequest, SubscriptionConfig,
};
use weir_storage_node::{RunningNode, Surroundings};
use weir_tier::faults::{Fault, Faults, Op, store_in_memory};
use weir_transport::Link;

use crate::client::{Follower, SHARD, WAIT, batch, call, config, create, publish, read, start_in, values};
use crate::cold::{BYTES, PATIENCE, cold_settings, publish_all, value};
use crate::queue::{ack, ask, part, pull, queue_config, stats, subscribe};

/// Messages from the first on that have left the journal by the time all are published, at least; each has a block of its own.
const COLD: u64 = 50;

/// A node that has just started, with a topic whose first messages are in the store alone.
struct Play {
    node: RunningNode,
    link: Link,
    life: u64,
    placed: Vec<Placed>,
    faults: Faults,
    registry: Registry,
    dir: tempfile::TempDir,
}

impl Play {
    /// Over a store that is given up after `patience`.
    async fn start(patience: Duration) -> Self {
        let (dir, faults) = (tempfile::tempdir().unwrap(), Faults::default());
        let store = store_in_memory(faults.clone(), patience);
        let start = async |dir: &Path, registry: Registry| {
            let object_store = Some(store.clone());
            start_in(cold_settings(dir), Surroundings { object_store, registry, ..Surroundings::default() })
                .await
        };
        let (node, link) = start(dir.path(), Registry::new()).await;
        let life = create(&link, "t", config()).await;
        let placed = publish_all(&link, life).await;
        node.shutdown(Duration::from_secs(5)).await;
        // Nothing is in its cache.
        let registry = Registry::new();
        let (node, link) = start(dir.path(), registry.clone()).await;
        let play = Self { node, link, life, placed, faults, registry, dir };
        play.quiet().await;
        play
    }

    /// Waits until nobody asks the store for anything.
    async fn quiet(&self) {
        let (mut before, mut since) = (0, Instant::now());
        let quiet = async {
            while since.elapsed() < Duration::from_secs(1) {
                tokio::time::sleep(Duration::from_millis(20)).await;
                let now = self.faults.requests(Op::Get);
                if std::mem::replace(&mut before, now) != now {
                    since = Instant::now();
                }
            }
        };
        tokio::time::timeout(PATIENCE, quiet).await.expect("what there is to seal is sealed");
    }

    /// Blocks that were fetched, whoever wanted them.
    fn fetched(&self) -> u64 {
        let families = self.registry.gather();
        let blocks = families.iter().find(|family| family.name() == "weir_tier_blocks_total").unwrap();
        let is_fetched = |metric: &&prometheus::proto::Metric| {
            metric.get_label().iter().any(|label| label.value() == "fetched")
        };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count")]
        let count = blocks.get_metric().iter().find(is_fetched).unwrap().get_counter().get_value() as u64;
        count
    }

    /// Reads one record.
    async fn read_one(&self, from: At) -> String {
        let request = ReadRequest {
            incarnation: self.life,
            from: from.into(),
            max_records: 1,
            max_bytes: 1 << 20,
            ..ReadRequest::default()
        };
        let body = vec![request.encode_to_vec().into()];
        let answer = self.link.call(Method::Read, SHARD, body, WAIT).await.unwrap();
        let packet = Packet::<ReadAnswer>::decode(answer).unwrap();
        values(&packet.message.slices, packet.payload).remove(0)
    }

    async fn follow(
        &self,
        from: u64,
        limit: Credit,
        (reach_records, reach_bytes): (Option<u64>, Option<u64>),
    ) -> Follower {
        let from = At::Offset(from).into();
        let request = SubscribeRequest {
            incarnation: self.life,
            from,
            limit,
            reach_bytes,
            reach_records,
            ..SubscribeRequest::default()
        };
        let mut follower = Follower::open_with(&self.link, request).await;
        assert!(matches!(follower.next().await.0, Event::Started(_)));
        follower
    }

    async fn stop(self) {
        let Self { node, dir: _dir, .. } = self;
        node.shutdown(Duration::from_secs(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_by_time_or_by_offset_takes_a_footer_and_one_block() {
    let play = Play::start(PATIENCE).await;
    let is_later = |n: &usize| play.placed[*n].ts_ms > play.placed[n - 1].ts_ms;
    let later: Vec<usize> = (1..COLD as usize).filter(is_later).collect();
    assert!(later.len() >= 3, "{later:?}");
    // Of another pack each, perhaps, and the last of the one that is known by then.
    let (first, last) = (later[0], later[later.len() - 1]);
    for (n, from) in [(first, At::TimestampMs(play.placed[first].ts_ms)), (last, At::Offset(last as u64))] {
        let (gets, blocks) = (play.faults.requests(Op::Get), play.fetched());
        assert_eq!(play.read_one(from).await, value(n as u64));
        assert_eq!((play.faults.requests(Op::Get) - gets, play.fetched() - blocks), (2, 1), "message {n}");
    }
    let near = At::TimestampMs(play.placed[later[1]].ts_ms);
    let gets = play.faults.requests(Op::Get);
    assert_eq!(play.read_one(near).await, value(later[1] as u64));
    assert_eq!(play.faults.requests(Op::Get) - gets, 1, "the footer is known");
    play.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_read_ahead_beyond_the_credit_that_was_granted() {
    let play = Play::start(PATIENCE).await;
    // One at a time, by records and by bytes, and time enough to read ahead.
    let (one, bytes) = (Credit { records: 1, bytes: u64::MAX }, BYTES as u64 / 2);
    let mut taken = 0;
    for (limit, reach_bytes) in [(one, None), (Credit { records: u64::MAX, bytes }, Some(bytes))] {
        let before = play.fetched();
        let mut follower = play.follow(taken, limit, (None, reach_bytes)).await;
        for n in 1..=6 {
            assert_eq!(follower.next().await.1, [value(taken)], "{limit:?}");
            taken += 1;
            tokio::time::sleep(Duration::from_millis(100)).await;
            assert_eq!(play.fetched() - before, n, "{limit:?}");
            if n < 6 {
                // A record is its value, and a little more. None behind the last: it might be fetched before or after the next
                // follower begins to count.
                let bytes = limit.bytes.saturating_add(n * (value(0).len() as u64 + 64));
                follower.grant(Credit { records: limit.records.saturating_mul(n + 1), bytes });
            }
        }
    }

    // By a window of three, which is all there is, or all that records allow, or behind which more follows.
    let window = Credit { records: u64::MAX, bytes: 5 * BYTES as u64 / 2 };
    let (all, more) = (Some(window.bytes), Some(100 * BYTES as u64));
    for reach in [(None, all), (Some(3), more), (Some(100), more), (None, None)] {
        let ends_there = reach.0 == Some(3) || reach.1 == all;
        let mut ahead = 0;
        // Not each of them can end where an object does, beyond which nothing is read ahead either.
        for _ in 0..2 {
            let before = play.fetched();
            let mut follower = play.follow(taken, window, reach).await;
            let mut found = Vec::new();
            while found.len() < 3 {
                found.extend(follower.next().await.1);
            }
            assert_eq!(found, [0, 1, 2].map(|n| value(taken + n)));
            tokio::time::sleep(Duration::from_millis(300)).await;
            ahead += play.fetched() - before - 3;
            // Beyond what that has read ahead.
            taken += if ends_there { 3 } else { 8 };
        }
        let is_right = if ends_there { ahead == 0 } else { ahead >= 2 };
        assert!(is_right, "{ahead} blocks ahead with {reach:?} of credit in all");
    }
    play.stop().await;
}

/// Takes so many messages of a queue as they come, and grants one more for each if told to. Gives how many blocks were fetched a
/// moment after each of them.
async fn consume(
    play: &Play,
    work: PartRef,
    from: u64,
    limit: u64,
    reach: Option<u64>,
    count: u64,
) -> Vec<u64> {
    let credit = |records| Credit { records, bytes: u64::MAX };
    let request = ConsumeRequest {
        part: work,
        limit: credit(limit),
        keeps_credit: true,
        holder: format!("from {from}"),
        // What it holds is nobody else's.
        grace_ms: 60_000,
        reach: reach.map(credit),
        ..ConsumeRequest::default()
    };
    let (before, body) = (play.fetched(), vec![request.encode_to_vec().into()]);
    let mut answers = play.link.open(Method::Consume, SHARD, body).await.unwrap();
    let mut fetched = Vec::new();
    for n in 0..count {
        let answer = tokio::time::timeout(WAIT, answers.next()).await.unwrap().unwrap().unwrap();
        let packet = Packet::<ConsumeEvent>::decode(answer).unwrap();
        assert_eq!(values(&packet.message.slices, packet.payload), [value(from + n)]);
        tokio::time::sleep(Duration::from_millis(100)).await;
        fetched.push(play.fetched() - before);
        if n + limit < count {
            answers.grant_towards(credit(limit + n + 1), reach.map(|reach| credit(reach + n + 1)));
        }
    }
    fetched
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_is_read_ahead_no_further_than_who_consumes_it_has_credit() {
    let play = Play::start(PATIENCE).await;
    let work = part(&subscribe(&play.link, play.life, queue_config("t"), &[1]).await, 0);
    let one_by_one: Vec<u64> = (1..=6).collect();
    assert_eq!(consume(&play, work, 0, 1, Some(1), 6).await, one_by_one);
    // A window, behind which nothing follows, or more.
    assert_eq!(consume(&play, work, 6, 3, Some(3), 3).await.last(), Some(&3));
    let ahead = consume(&play, work, 9, 6, Some(100), 6).await;
    assert!(ahead[5] >= 6 + 2, "{ahead:?}: it is as fast as it was");
    let before = ahead[5] - 6;
    let unknown = consume(&play, work, 15, 6, None, 6).await;
    assert!(unknown[5] + before >= 6 + 2, "{unknown:?}: a gateway of before says nothing of it");
    play.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_store_holds_up_who_reads_from_it_and_nobody_else() {
    const PAUSE: Duration = Duration::from_secs(1);
    let play = Play::start(2 * PAUSE).await;
    let (link, cold) = (&play.link, play.life);
    let hot = create(link, "hot", config()).await;
    let limit = Credit { records: u64::MAX, bytes: u64::MAX };
    let mut follower = Follower::open(link, hot, At::Earliest(true), limit).await;
    let mut n = 0;
    // Of the slow one more at once than is fetched at once. One that does not answer is asked three times before a reader is told:
    // a few, or the last ones wait for longer than their callers do. They begin
    // behind what the slow ones brought: of that a reader would be given what there is.
    for (fault, code, offsets) in
        [(Fault::Slow(PAUSE), None, 0..30), (Fault::Hang, Some(ErrorCode::Unavailable), 40..44)]
    {
        play.faults.always(Some((Op::Get, fault)));
        let (began, reader) = (Instant::now(), link.clone());
        let reads =
            tokio::spawn(
                async move { join_all(offsets.map(|at| read(&reader, cold, At::Offset(at), 0))).await },
            );
        let (mut trips, mut slowest) = (0, Duration::ZERO);
        while !reads.is_finished() {
            let (began, value) = (Instant::now(), n.to_string());
            assert_eq!(publish(link, hot, &batch(0, 0, &[&value])).await.unwrap().base_offset, n);
            assert_eq!(read(link, hot, At::Offset(n), 0).await.unwrap().1, [value.as_str()]);
            while follower.next().await.1 != [value.as_str()] {}
            (n, trips, slowest) = (n + 1, trips + 1, slowest.max(began.elapsed()));
        }
        assert!(began.elapsed() >= PAUSE, "{:?}: they were not in the store alone", began.elapsed());
        assert!(trips >= 5 && slowest < PAUSE, "{fault:?}: {trips} round trips, one of {slowest:?}");
        let codes: Vec<_> = reads.await.unwrap().into_iter().map(Result::err).collect();
        assert!(codes.iter().all(|told| *told == code), "{fault:?}: {codes:?}");
    }
    play.faults.always(None);
    assert_eq!(read(link, cold, At::Offset(30), 0).await.unwrap().1[0], value(30));
    play.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_store_takes_longer_for_than_a_lease_lasts_is_delivered_all_the_same_and_once() {
    let play = Play::start(PATIENCE).await;
    let link = &play.link;
    let config = SubscriptionConfig { max_attempts: 1, ..queue_config("t") };
    let work = part(&subscribe(link, play.life, config, &[1]).await, 0);
    // A footer and a block: longer than a lease and a look for those that are over.
    play.faults.always(Some((Op::Get, Fault::Slow(Duration::from_millis(1_500)))));
    let began = Instant::now();
    let (grants, values) = pull(link, &PullRequest { lease_ms: 1_000, ..ask(work, 1) }).await;
    assert!(began.elapsed() >= Duration::from_millis(2_500), "{:?}: it was not cold", began.elapsed());
    assert_eq!(stats(link, work).await.dead, 0, "nobody was ever given it");
    let told: Vec<_> = grants.iter().map(|grant| (grant.offset, grant.attempt)).collect();
    assert_eq!((told, values), (vec![(0, 1)], vec![value(0)]));
    ack(link, work, &grants).await;
    play.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_being_read_for_a_consumer_that_leaves_is_for_others_at_once_and_was_not_delivered() {
    let play = Play::start(PATIENCE).await;
    let link = &play.link;
    let config = SubscriptionConfig { max_attempts: 1, ..queue_config("t") };
    let work = part(&subscribe(link, play.life, config, &[1]).await, 0);
    play.faults.always(Some((Op::Get, Fault::Slow(Duration::from_secs(5)))));
    let (caller, holder) = (link.clone(), "gone".to_owned());
    let request = PullRequest { holder: holder.clone(), ..ask(work, 1) };
    let pulls = tokio::spawn(async move { pull(&caller, &request).await });
    let is_leased = async |leased| {
        let until = async {
            while stats(link, work).await.leased != leased {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(3), until).await.expect("long before it is read");
    };
    is_leased(1).await;
    pulls.abort();
    let leave = LeaveRequest { part: work, holder };
    let _: Left = call(link, Method::Leave, &leave).await.unwrap();
    is_leased(0).await;
    play.faults.always(None);
    // A look for leases that are over, and more.
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    let (grants, _) = pull(link, &ask(work, 1)).await;
    let told: Vec<_> = grants.iter().map(|grant| (grant.offset, grant.attempt)).collect();
    assert_eq!((told, stats(link, work).await.dead), (vec![(0, 1)], 0));
    play.stop().await;
}
