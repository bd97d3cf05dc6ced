use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use weir_protocol::rpc::{At, Credit};

use crate::service::read::played::{Call, PLENTY, Played, told};
use crate::service::read::{ReadConfig, Share, StartAt, Subscription};

const NOTHING: Credit = Credit { records: 0, bytes: 0 };

/// Two readers with a feed at offset 0, which is the end.
async fn shared(node: &mut Played, limit: Credit) -> (Subscription, Subscription, Call) {
    let mut readers = Vec::new();
    for _ in 0..2 {
        let mut reader = node.follow(&["t"], StartAt::Latest, limit).await;
        node.call(&mut [&mut reader]).await.at_end(0);
        assert_eq!(told(&mut reader).await, "from 0");
        assert_eq!(told(&mut reader).await, "end 0");
        readers.push(reader);
    }
    let (mut b, mut a) = (readers.pop().unwrap(), readers.pop().unwrap());
    let call = node.call(&mut [&mut a, &mut b]).await;
    assert_eq!(call.from(), At::Offset(0));
    call.at_end(0);
    assert!(a.next().now_or_never().is_none() && b.next().now_or_never().is_none());
    assert_eq!(node.reader.feed_metrics().readers, 2);
    (a, b, call)
}

#[tokio::test(start_paused = true)]
async fn a_feed_that_is_over_holds_nothing_for_readers_who_have_not_seen_it() {
    let mut node = Played::new(ReadConfig::default());
    let (mut taking, mut stalled, feed) = shared(&mut node, PLENTY).await;
    feed.record(0, 100);
    assert_eq!(told(&mut taking).await, "0..1");
    assert!(node.reader.feed_metrics().bytes > 0);
    feed.gap(1, 5);
    let own = node.call(&mut [&mut taking]).await;
    let now = node.reader.feed_metrics();
    assert_eq!((now.feeds, now.bytes, now.readers), (0, 0, 1), "the other one still has its place");

    own.started(5);
    own.gap(1, 5);
    assert_eq!(told(&mut taking).await, "gap 1..5");
    let own = node.call(&mut [&mut stalled]).await;
    assert_eq!(own.from(), At::Offset(0));
    own.started(5);
    own.gap(0, 5);
    assert_eq!(told(&mut stalled).await, "gap 0..5");
    drop((taking, stalled));
    let now = node.reader.feed_metrics();
    assert_eq!((now.feeds, now.bytes, now.readers), (0, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_hole_at_the_end_ends_a_feed_and_its_readers_share_again_behind_it() {
    let mut node = Played::new(ReadConfig::default());
    let (mut a, mut b, feed) = shared(&mut node, PLENTY).await;
    feed.caught_up(7);
    for reader in [&mut a, &mut b] {
        let own = node.call(&mut [&mut *reader]).await;
        assert_eq!(own.from(), At::Offset(0));
        own.started(0);
        own.caught_up(7);
        assert_eq!(told(reader).await, "end 7");
        assert!(reader.next().now_or_never().is_none());
    }
    let feed = node.call(&mut [&mut a, &mut b]).await;
    assert_eq!(feed.from(), At::Offset(7));
    feed.at_end(7);
    feed.record(7, 10);
    for reader in [&mut a, &mut b] {
        assert_eq!(told(reader).await, "7..8");
    }
}

#[tokio::test(start_paused = true)]
async fn readers_of_a_feed_are_each_told_once_that_their_topic_is_closed_and_that_it_is_open() {
    let mut node = Played::new(ReadConfig::default());
    let (mut a, mut b, feed) = shared(&mut node, PLENTY).await;
    feed.closed(0);
    for reader in [&mut a, &mut b] {
        assert_eq!(told(reader).await, "closed 0");
        assert!(reader.next().now_or_never().is_none(), "and waits");
    }
    // Who comes now knows of it before it shares.
    let mut late = node.follow(&["t"], StartAt::Latest, PLENTY).await;
    let own = node.call(&mut [&mut late]).await;
    own.started(0);
    own.closed(0);
    assert_eq!([told(&mut late).await, told(&mut late).await], ["from 0", "closed 0"]);
    assert!(late.next().now_or_never().is_none());
    assert_eq!(node.reader.feed_metrics().readers, 3);

    feed.caught_up(0);
    for reader in [&mut a, &mut b, &mut late] {
        assert_eq!(told(reader).await, "end 0");
    }
    feed.record(0, 10);
    for reader in [&mut a, &mut b, &mut late] {
        assert_eq!(told(reader).await, "0..1");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_taken_long_after_it_came_is_let_go_too() {
    let mut node = Played::new(ReadConfig::default());
    let (mut a, mut b, feed) = shared(&mut node, NOTHING).await;
    feed.record(0, 100);
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(node.reader.feed_metrics().bytes > 0, "nobody has it");
    for reader in [&mut a, &mut b] {
        reader.raise_limit(PLENTY);
        assert_eq!(told(reader).await, "0..1");
        assert!(reader.next().now_or_never().is_none());
    }
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(node.reader.feed_metrics().bytes, 0);
}

#[tokio::test(start_paused = true)]
async fn small_batches_count_with_what_describes_them() {
    let mut node = Played::new(ReadConfig { ring_bytes_max: 40_000, ..ReadConfig::default() });
    let (mut a, mut b, feed) = shared(&mut node, PLENTY).await;
    let count = 200;
    for offset in 0..count {
        feed.record(offset, 1);
        assert_eq!(told(&mut a).await, format!("{offset}..{}", offset + 1));
    }
    let bytes = node.reader.feed_metrics().bytes;
    assert!((30_000..=40_000).contains(&bytes), "{bytes}: each takes more than 400");
    let call = node.call(&mut [&mut b]).await;
    assert_eq!(call.from(), At::Offset(0), "it fell behind");
}

#[tokio::test(start_paused = true)]
async fn readers_of_a_feed_that_waits_for_the_budget_are_throttled_with_it() {
    let most = 1 << 20;
    let config = ReadConfig { credit_bytes_max: most, window_bytes_min: 1, ..ReadConfig::default() };
    let mut node = Played::new(config);
    // Those who come early hold more, until nothing is left.
    let another = |_| {
        let mut share = Share::new(Arc::clone(&node.reader.budget));
        share.raise(u64::MAX);
        share
    };
    let others: Vec<_> = (0..2_000).map(another).collect();
    assert!(others[1_999].is_throttled());
    let (mut a, mut b, feed) = shared(&mut node, PLENTY).await;
    let (a_credit, b_credit) = (a.credit(), b.credit());
    assert!(a_credit.is_throttled() && b_credit.is_throttled());
    feed.record(0, 10);
    for reader in [&mut a, &mut b] {
        assert_eq!(told(reader).await, "0..1", "it is slow, and goes on");
    }
    assert!(a_credit.is_throttled());
    drop(others);
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert!(!a_credit.is_throttled() && !b_credit.is_throttled());
}

#[tokio::test(start_paused = true)]
async fn readers_of_several_partitions_who_share_reserve_nothing_and_hold_no_feed_back() {
    let window = 1 << 10;
    let mut node = Played::new(ReadConfig {
        credit_bytes_max: 4 * window,
        window_bytes_max: window,
        window_bytes_min: window,
        ..ReadConfig::default()
    });
    let mut readers = Vec::new();
    for _ in 0..2 {
        let mut reader = node.follow(&["t", "u"], StartAt::Latest, PLENTY).await;
        for _ in 0..2 {
            node.call(&mut [&mut reader]).await.at_end(0);
        }
        for event in ["from 0", "end 0", "end 0"] {
            assert_eq!(told(&mut reader).await, event);
        }
        readers.push(reader);
    }
    let [a, b] = &mut readers[..] else { unreachable!("two of them") };
    assert_eq!(node.reader.budget().metrics().granted_bytes, 4 * window, "all of it");
    let mut feeds = Vec::new();
    for _ in 0..2 {
        let call = node.call(&mut [a, b]).await;
        call.at_end(0);
        feeds.push(call);
    }
    assert!(a.next().now_or_never().is_none() && b.next().now_or_never().is_none());
    assert_eq!(node.reader.feed_metrics().readers, 4);
    for round in 0..20 {
        for feed in &feeds {
            let before = feed.allowed_bytes();
            assert!(before > 600 * round, "{before} in round {round}");
            feed.record(round, 600);
            for reader in [&mut *a, &mut *b] {
                assert_eq!(told(reader).await, format!("{round}..{}", round + 1));
            }
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let budget = node.reader.budget().metrics();
    assert_eq!(budget.streams, 2, "those of the feeds");
    assert!(budget.granted_bytes <= 2 * window);

    // They go on by streams of their own, each with a window, and no more.
    feeds.into_iter().for_each(|feed| feed.gap(20, 30));
    for reader in [a, b] {
        for _ in 0..2 {
            let call = node.call(&mut [&mut *reader]).await;
            assert_eq!(call.from(), At::Offset(20));
            assert!(call.allowed_bytes() <= window, "{}", call.allowed_bytes());
            call.started(30);
            call.gap(20, 30);
        }
        for _ in 0..2 {
            assert_eq!(told(reader).await, "gap 20..30");
        }
    }
    assert_eq!(node.reader.budget().metrics().granted_bytes, 4 * window);
}
