//! What reading from the object store asks of it, and whom a slow one holds up.

use std::time::{Duration, Instant};

use prometheus::Registry;
use prost::Message as _;
use weir_protocol::error::ErrorCode;
use weir_protocol::rpc::{
    At, ConsumeEvent, ConsumeRequest, Credit, Event, ExplainRequest, Explanation, LeaveRequest, Left, Method,
    Packet, PartRef, Placed, PullRequest, ReadAnswer, ReadRequest, SubscribeRequest, SubscriptionConfig,
    U128,
};
use weir_storage_node::{NodeConfig, RunningNode, Surroundings};
use weir_tier::faults::{Fault, Faults, Objects, Op, store_of};
use weir_transport::Link;

use crate::client::{
    Follower, SHARD, WAIT, batch, call, config, connect, create, publish, read, start_in, values,
};
use crate::cold::{BYTES, MESSAGES, PATIENCE, cold_settings, publish_all, stats, value};
use crate::queue::{self, ack, ask, part, pull, pull_at, queue_config, subscribe};

/// Messages from the first on that are in the store alone, at least; each has a block of its own.
const COLD: u64 = 50;
/// What should not be fetched is not by then.
const MOMENT: Duration = Duration::from_millis(300);
/// What should be fetched is by then, unless there is nothing to fetch.
const LONG: Duration = Duration::from_secs(5);

/// A node that has just started, with a topic whose first messages are in the store alone.
struct Play {
    node: RunningNode,
    link: Link,
    life: u64,
    placed: Vec<Placed>,
    objects: Objects,
    faults: Faults,
    registry: Registry,
    dir: tempfile::TempDir,
}

impl Play {
    async fn start() -> Self {
        let (dir, objects, faults) = (tempfile::tempdir().unwrap(), Objects::default(), Faults::default());
        // Packs are full, however long it takes: where they begin and end is the same each time.
        let settings = NodeConfig { seal_after_ms: 3_600_000, ..cold_settings(dir.path()) };
        let object_store = Some(store_of(&objects, faults.clone(), PATIENCE));
        let (node, link) = start_in(settings, Surroundings { object_store, ..Surroundings::default() }).await;
        let life = create(&link, "t", config()).await;
        let placed = publish_all(&link, life).await;
        Self { node, link, life, placed, objects, faults, registry: Registry::new(), dir }
            .again(PATIENCE)
            .await
    }

    /// Starts anew, with nothing in its cache, over the store, which is given up after `patience`.
    async fn again(self, patience: Duration) -> Self {
        let Self { node, life, placed, objects, faults, dir, .. } = self;
        node.shutdown(Duration::from_secs(5)).await;
        let (object_store, registry) = (Some(store_of(&objects, faults.clone(), patience)), Registry::new());
        let around = Surroundings { object_store, registry: registry.clone(), ..Surroundings::default() };
        let (node, link) = start_in(cold_settings(dir.path()), around).await;
        let play = Self { node, link, life, placed, objects, faults, registry, dir };
        play.quiet().await;
        play
    }

    /// Waits until all is sealed, and has left the journal as far as it will: nobody asks for packs by
    /// himself from then on.
    async fn quiet(&self) {
        let metric = |name: &str| {
            let families = self.registry.gather();
            let family = families.iter().find(|family| family.name() == name);
            family.unwrap().get_metric()[0].get_gauge().get_value()
        };
        let has_left = || metric("weir_journal_used_bytes") <= 0.6 * metric("weir_journal_used_bytes_max");
        let quiet = async {
            while stats(&self.link, self.life).await.storage.unwrap().archived_to < MESSAGES || !has_left() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(PATIENCE, quiet).await.expect("what there is to seal is sealed");
    }

    /// A queue of the topic, each of whose messages is delivered once at most.
    async fn work(&self) -> PartRef {
        let config = SubscriptionConfig { max_attempts: 1, ..queue_config("t") };
        part(&subscribe(&self.link, self.life, config, &[1]).await, 0)
    }

    /// Reads of packs.
    fn gets(&self) -> usize {
        self.faults.requests_for(Op::Get, ".pack")
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

    /// Waits until `enough` were fetched, but no longer than `within`. Gives how many were.
    async fn fetched_within(&self, enough: u64, within: Duration) -> u64 {
        let fetched = async {
            while self.fetched() < enough {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let _ = tokio::time::timeout(within, fetched).await;
        self.fetched()
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
    let play = Play::start().await;
    let is_later = |n: &usize| play.placed[*n].ts_ms > play.placed[n - 1].ts_ms;
    let later: Vec<usize> = (1..COLD as usize).filter(is_later).collect();
    assert!(later.len() >= 3, "{later:?}");
    // Of another pack each, perhaps, and the last of the one that is known by then.
    let (first, last) = (later[0], later[later.len() - 1]);
    for (n, from) in [(first, At::TimestampMs(play.placed[first].ts_ms)), (last, At::Offset(last as u64))] {
        let (gets, blocks) = (play.gets(), play.fetched());
        assert_eq!(play.read_one(from).await, value(n as u64));
        assert_eq!((play.gets() - gets, play.fetched() - blocks), (2, 1), "message {n}");
    }
    let near = At::TimestampMs(play.placed[later[1]].ts_ms);
    let gets = play.gets();
    assert_eq!(play.read_one(near).await, value(later[1] as u64));
    assert_eq!(play.gets() - gets, 1, "the footer is known");
    play.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_read_ahead_beyond_the_credit_that_was_granted() {
    let play = Play::start().await;
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
                // A record is its value, and a little more. None behind the last: it might be fetched before
                // or after the next follower begins to count.
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
            // A moment for what should not be, and as long as it takes for what should.
            let (enough, within) =
                if ends_there { (u64::MAX, MOMENT) } else { (before + 3 + 2 - ahead, LONG) };
            ahead += play.fetched_within(enough, within).await - before - 3;
            // Beyond what that has read ahead.
            taken += if ends_there { 3 } else { 8 };
            if !ends_there && ahead >= 2 {
                break;
            }
        }
        let is_right = if ends_there { ahead == 0 } else { ahead >= 2 };
        assert!(is_right, "{ahead} blocks ahead with {reach:?} of credit in all");
    }
    play.stop().await;
}

/// Takes so many messages of a queue as they come, and grants one more for each if told to. Gives how many
/// blocks were fetched a moment after each of them.
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
    let play = Play::start().await;
    let work = part(&subscribe(&play.link, play.life, queue_config("t"), &[1]).await, 0);
    let one_by_one: Vec<u64> = (1..=6).collect();
    assert_eq!(consume(&play, work, 0, 1, Some(1), 6).await, one_by_one);
    // A window, behind which nothing follows, or more.
    assert_eq!(consume(&play, work, 6, 3, Some(3), 3).await.last(), Some(&3));
    let before = play.fetched();
    let ahead = consume(&play, work, 9, 6, Some(100), 6).await;
    let fetched = play.fetched_within(before + 6 + 2, LONG).await - before;
    assert!(fetched >= 6 + 2, "{ahead:?}, {fetched}: it is as fast as it was");
    let unknown = consume(&play, work, 15, 6, None, 6).await;
    let fetched = play.fetched_within(before + 12 + 2, LONG).await - before;
    assert!(fetched >= 12 + 2, "{unknown:?}, {fetched}: a gateway of before says nothing of it");
    play.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_given_up_that_a_store_kept_for_longer_than_its_lease() {
    // Asked three times, so that a last lease is over, and that is seen, before whoever pulls is told.
    let play = Play::start().await.again(Duration::from_secs(1)).await;
    let work = play.work().await;
    let request = PullRequest { lease_ms: 1_000, ..ask(work, 1) };
    play.faults.always(Some((Op::Get, Fault::Hang)));
    let refused = pull_at(&play.link, SHARD, &request).await.err();
    assert_eq!(refused, Some(ErrorCode::Unavailable));
    play.faults.always(None);
    let now = queue::stats(&play.link, work).await;
    assert_eq!((now.dead, now.leased, now.floor), (0, 0, 0));
    let (grants, values) = pull(&play.link, &request).await;
    assert_eq!((grants[0].offset, grants[0].attempt), (0, 1));
    assert_eq!(values, [value(0)]);
    play.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_store_holds_up_who_reads_from_it_and_nobody_else() {
    let play = Play::start().await;
    let (link, cold) = (&play.link, play.life);
    let hot = create(link, "hot", config()).await;
    let limit = Credit { records: u64::MAX, bytes: u64::MAX };
    let mut follower = Follower::open(link, hot, At::Earliest(true), limit).await;
    // More at once than is fetched at once.
    play.faults.always(Some((Op::Get, Fault::Stalled)));
    let reads: Vec<_> = (0..30).map(|at| reading(link, cold, at)).collect();
    tokio::time::timeout(WAIT, play.faults.stalled(1)).await.expect("they are in the store alone");
    for n in 0..10 {
        round_trip(link, hot, n, &mut follower).await;
    }
    assert!(reads.iter().all(|read| !read.is_finished()), "they are in the store alone");
    play.faults.go_on();
    play.faults.always(None);
    for read in reads {
        read.await.unwrap().unwrap();
    }

    // One that does not answer is asked three times before a reader is told: a few, or the last ones wait for
    // longer than their callers do. And behind what was fetched: of that a reader would be given what there
    // is.
    let play = play.again(Duration::from_secs(2)).await;
    play.faults.always(Some((Op::Get, Fault::Hang)));
    let reads: Vec<_> = (40..44).map(|at| reading(&play.link, play.life, at)).collect();
    for read in reads {
        assert_eq!(read.await.unwrap(), Err(ErrorCode::Unavailable));
    }
    play.faults.always(None);
    assert_eq!(read(&play.link, play.life, At::Offset(30), 0).await.unwrap().1[0], value(30));
    play.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_store_takes_longer_for_than_a_lease_lasts_is_delivered_all_the_same_and_once() {
    let play = Play::start().await;
    let link = &play.link;
    let work = play.work().await;
    // A footer and a block: longer than a lease and a look for those that are over.
    play.faults.always(Some((Op::Get, Fault::Slow(Duration::from_millis(1_500)))));
    let began = Instant::now();
    let (grants, values) = pull(link, &PullRequest { lease_ms: 1_000, ..ask(work, 1) }).await;
    assert!(began.elapsed() >= Duration::from_millis(2_500), "{:?}: it was not cold", began.elapsed());
    assert_eq!(queue::stats(link, work).await.dead, 0, "nobody was ever given it");
    let told: Vec<_> = grants.iter().map(|grant| (grant.offset, grant.attempt)).collect();
    assert_eq!((told, values), (vec![(0, 1)], vec![value(0)]));
    ack(link, work, &grants).await;
    play.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_being_read_for_a_consumer_that_leaves_is_for_others_at_once_and_was_not_delivered() {
    let play = Play::start().await;
    let link = &play.link;
    let work = play.work().await;
    play.faults.always(Some((Op::Get, Fault::Stalled)));
    let (caller, holder) = (link.clone(), "gone".to_owned());
    let request = PullRequest { holder: holder.clone(), ..ask(work, 1) };
    let pulls = tokio::spawn(async move { pull(&caller, &request).await });
    let is_leased = async |leased| {
        let until = async {
            while queue::stats(link, work).await.leased != leased {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(PATIENCE, until).await.expect("before it is read, which it is not");
    };
    is_leased(1).await;
    pulls.abort();
    let _ = pulls.await;
    // Behind it on its connection: the node knows that nobody waits for it any more, and it does not begin again.
    let leave = LeaveRequest { part: work, holder };
    let _: Left = call(link, Method::Leave, &leave).await.unwrap();
    is_leased(0).await;
    play.faults.always(None);
    play.faults.go_on();
    // A look for leases that are over, and more.
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    let (grants, _) = pull(link, &ask(work, 1)).await;
    let told: Vec<_> = grants.iter().map(|grant| (grant.offset, grant.attempt)).collect();
    assert_eq!((told, queue::stats(link, work).await.dead), (vec![(0, 1)], 0));
    play.stop().await;
}

/// When somebody looked for something to lease last: not before the first, nor after the second.
async fn looked_at(link: &Link, part: PartRef) -> Option<(Instant, Instant)> {
    let (asked, began) = (ExplainRequest { part, offset: 0 }, Instant::now());
    let told: Explanation = call(link, Method::Explain, &asked).await.unwrap();
    let ago = Duration::from_millis(told.pulled_ms_ago?);
    Some((began.checked_sub(ago)?, Instant::now().checked_sub(ago)?))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_goes_gives_nothing_back_that_its_repetition_is_given() {
    let play = Play::start().await;
    let (link, first) = (&play.link, connect(&play.node));
    let work = play.work().await;
    play.faults.always(Some((Op::Get, Fault::Stalled)));
    let key = Some(U128 { low: 7, high: 7 });
    let (caller, request) = (first.clone(), PullRequest { key, ..ask(work, 1) });
    let gone = tokio::spawn(async move { pull(&caller, &request).await });
    let is_old = async {
        // What is leased is explained without being read.
        while queue::stats(link, work).await.leased == 0 {}
        let (_, latest) = looked_at(link, work).await.expect("it has looked");
        // The next look is told from it.
        tokio::time::sleep(MOMENT).await;
        latest
    };
    let before = tokio::time::timeout(PATIENCE, is_old).await.expect("the first is under way");
    let (caller, request) = (link.clone(), PullRequest { key, only_repeat: true, ..ask(work, 1) });
    let again = tokio::spawn(async move { pull(&caller, &request).await });
    let is_new =
        async { while looked_at(link, work).await.is_none_or(|(earliest, _)| earliest <= before) {} };
    tokio::time::timeout(PATIENCE, is_new).await.expect("both are under way");
    gone.abort();
    let _ = gone.await;
    // Behind it on its connection: the node knows that it is gone.
    queue::stats(&first, work).await;
    play.faults.always(None);
    play.faults.go_on();
    let (grants, _) = again.await.unwrap();
    ack(link, work, &grants).await;
    let (next, _) = pull(link, &ask(work, 1)).await;
    let told = next.iter().map(|grant| (grant.offset, grant.attempt)).collect::<Vec<_>>();
    assert_eq!((told, queue::stats(link, work).await.dead), (vec![(grants.len() as u64, 1)], 0));
    play.stop().await;
}

fn reading(link: &Link, life: u64, at: u64) -> tokio::task::JoinHandle<Result<(), ErrorCode>> {
    let link = link.clone();
    tokio::spawn(async move { read(&link, life, At::Offset(at), 0).await.map(drop) })
}

/// Publishes, reads, and is sent the topic's record `n`.
async fn round_trip(link: &Link, life: u64, n: u64, follower: &mut Follower) {
    let value = n.to_string();
    assert_eq!(publish(link, life, &batch(0, 0, &[&value])).await.unwrap().base_offset, n);
    assert_eq!(read(link, life, At::Offset(n), 0).await.unwrap().1, [value.as_str()]);
    while follower.next().await.1 != [value.as_str()] {}
}
