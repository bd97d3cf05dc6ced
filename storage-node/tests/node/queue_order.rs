//! A queue in the order of keys: one record of each key at a time, also when the power fails.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use weir_journal::disk::sim::SimDisk;
use weir_protocol::batch::{Batch, BatchBuilder, Compression, Headers, RecordParts};
use weir_protocol::rpc::{
    Grant, Method, PartRef, PullRequest, SettleAction, SettleAnswer, SettleItem, SettleRequest,
    SubscriptionConfig,
};
use weir_transport::Link;

use crate::client::{SHARD, call, config, create, publish, start, until};
use crate::failures::start_on;
use crate::queue::{ack, ask, item, part, pull, pull_at, queue_config, settle, stats, subscribe};

/// Records whose key is the first letter of their value; `-` is none.
fn keyed(values: &[&str]) -> Batch {
    let mut builder = BatchBuilder::anonymous();
    for value in values {
        let key = value.get(..1).filter(|key| *key != "-").map(str::as_bytes);
        builder.push(RecordParts { key, headers: &Headers::default(), value: value.as_bytes() }).unwrap();
    }
    builder.build(Compression::None).unwrap()
}

fn by_key() -> SubscriptionConfig {
    SubscriptionConfig { is_by_key: true, max_attempts: 0, ..queue_config("orders") }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_each_key_one_record_is_held_and_the_next_comes_when_it_is_settled() {
    let dir = tempfile::tempdir().unwrap();
    let (node, link) = start(dir.path()).await;
    let life = create(&link, "orders", config()).await;
    publish(&link, life, &keyed(&["a1", "b1", "a2", "-1", "a3", "-2"])).await.unwrap();
    let work = part(&subscribe(&link, life, by_key(), &[1]).await, 0);
    let (first, found) = pull(&link, &ask(work, 9)).await;
    assert_eq!(found, ["a1", "b1", "-1", "-2"]);
    let standing = stats(&link, work).await;
    assert_eq!((standing.blocked, standing.leased, standing.ready, standing.in_memory), (2, 4, 0, 6));

    // Given back for later, it blocks its key until it is due and done. Later than the settle and a pull take.
    let later = SettleItem { ms: Some(5_000), ..item(&first[0], SettleAction::Nack) };
    settle(&link, work, vec![later, item(&first[1], SettleAction::Ack)]).await;
    assert_eq!(pull(&link, &ask(work, 9)).await.1, Vec::<String>::new());
    let (again, found) = pull(&link, &PullRequest { wait_ms: 20_000, ..ask(work, 9) }).await;
    assert_eq!((found, again[0].attempt), (vec!["a1".to_owned()], 2));
    ack(&link, work, &again).await;
    let (second, found) = pull(&link, &ask(work, 9)).await;
    assert_eq!(found, ["a2"]);
    // Whoever waits gets what a dead letter makes free.
    let waiting = PullRequest { wait_ms: 20_000, ..ask(work, 9) };
    let dead = settle(&link, work, vec![item(&second[0], SettleAction::Dead)]);
    let (third, _) = tokio::join!(pull(&link, &waiting), dead);
    assert_eq!(third.1, ["a3"]);
    drop(link);
    node.shutdown(Duration::from_secs(5)).await;

    // Another leader knows of no lease, and keeps the order all the same.
    let (node, link) = start(dir.path()).await;
    publish(&link, life, &keyed(&["a4"])).await.unwrap();
    let (after, found) = pull(&link, &ask(work, 9)).await;
    assert_eq!(found, ["-1", "a3", "-2"]);
    ack(&link, work, &after[1..2]).await;
    assert_eq!(pull(&link, &ask(work, 9)).await.1, ["a4"]);
    node.shutdown(Duration::from_secs(5)).await;
}

/// What workers have seen of each record, by offset, under one lock so that its order is the order of events.
#[derive(Default)]
struct Seen {
    delivered: u64,
    held: BTreeSet<u64>,
    /// Settles that were sent.
    asked: BTreeSet<u64>,
}

impl Seen {
    /// A record may only be delivered when every earlier one of its key was settled by somebody.
    fn deliver(&mut self, grant: &Grant, keys: u64) {
        self.delivered += 1;
        let before = (0..grant.offset).filter(|at| at % keys == grant.offset % keys);
        let missing: Vec<u64> = before.filter(|at| !self.asked.contains(at)).collect();
        assert!(missing.is_empty(), "{} goes before {missing:?} of its key", grant.offset);
        let same = self.held.iter().find(|at| *at % keys == grant.offset % keys);
        assert_eq!(same, None, "{} is delivered while another of its key is held", grant.offset);
        self.held.insert(grant.offset);
    }
}

const KEYS: u64 = 3;

/// Pulls, nacks every fifth first delivery, acks the rest, until refused or told to stop.
async fn work_in_order(link: Link, work: PartRef, stop: Arc<AtomicBool>, seen: Arc<Mutex<Seen>>) {
    loop {
        let request = PullRequest { wait_ms: 20, ..ask(work, 4) };
        let Ok((answer, _)) = pull_at(&link, SHARD, &request).await else { return };
        if answer.grants.is_empty() && stop.load(Ordering::Relaxed) {
            return;
        }
        let mut items = Vec::new();
        {
            let mut seen = seen.lock().unwrap();
            for grant in &answer.grants {
                seen.deliver(grant, KEYS);
            }
            // What is asked frees the key, so it is noted before.
            for grant in &answer.grants {
                seen.held.remove(&grant.offset);
                let is_nacked = grant.offset % 5 == 1 && grant.attempt == 1;
                if !is_nacked {
                    seen.asked.insert(grant.offset);
                }
                items.push(item(grant, if is_nacked { SettleAction::Nack } else { SettleAction::Ack }));
            }
        }
        if call::<SettleAnswer>(&link, Method::Settle, &SettleRequest { part: work, items }).await.is_err() {
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_order_of_each_key_holds_over_a_power_cut_at_any_moment() {
    for seed in 0..6 {
        let disk = SimDisk::new();
        let (node, link) = start_on(&disk).await;
        let life = create(&link, "orders", config()).await;
        let work = part(&subscribe(&link, life, by_key(), &[1]).await, 0);
        let publisher = tokio::spawn({
            let link = link.clone();
            async move {
                let mut confirmed = BTreeMap::new();
                for n in 0u64.. {
                    let value = format!("{}{n}", ['a', 'b', 'c'][(n % KEYS) as usize]);
                    match publish(&link, life, &keyed(&[&value])).await {
                        Ok(placed) => confirmed.insert(placed.base_offset, value),
                        Err(_) => break,
                    };
                }
                confirmed
            }
        });
        let (stop, seen) = (Arc::new(AtomicBool::new(false)), Arc::<Mutex<Seen>>::default());
        let worker =
            |_| tokio::spawn(work_in_order(link.clone(), work, Arc::clone(&stop), Arc::clone(&seen)));
        let workers: Vec<_> = (0..3).map(worker).collect();
        until("something is delivered before the power fails", || seen.lock().unwrap().delivered > 0).await;
        tokio::time::sleep(Duration::from_millis(40 + 17 * seed)).await;
        disk.fail_after(seed);
        let confirmed = publisher.await.unwrap();
        stop.store(true, Ordering::Relaxed);
        for worker in workers {
            worker.await.unwrap();
        }
        let after = disk.after_crash(seed);
        node.shutdown(Duration::from_millis(200)).await;

        let (node, link) = start_on(&after).await;
        let before = seen.lock().unwrap().delivered;
        assert!(before > 0, "seed {seed} cut too early to tell anything");
        seen.lock().unwrap().held.clear();
        loop {
            work_in_order(link.clone(), work, Arc::clone(&stop), Arc::clone(&seen)).await;
            let left = stats(&link, work).await;
            if left.ready + left.leased + left.delayed + left.blocked == 0 {
                break;
            }
        }
        {
            let seen = seen.lock().unwrap();
            for (offset, value) in &confirmed {
                assert!(seen.asked.contains(offset), "seed {seed}: {value} at {offset} is lost");
            }
        }
        node.shutdown(Duration::from_secs(2)).await;
    }
}
