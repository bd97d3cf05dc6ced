//! Several lives of one node, each ended by a disk that fails and a machine that loses power: while it starts, while it
//! works, while it writes a checkpoint or frees its log.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use weir_journal::disk::sim::SimDisk;
use weir_protocol::error::ErrorCode;
use weir_protocol::rpc::{At, TopicConfig};
use weir_storage_node::{Node, NodeConfig, RunningNode, StartError, Surroundings};

use crate::client::{batch, config, connect, create, publish_refused, read, settings};

const DIR: &str = "/data";
const HISTORIES: u64 = 6;
const LIVES: usize = 5;
const KEPT: u64 = 30;
const PRODUCER: u128 = 7;

async fn start_on(disk: &SimDisk) -> Result<RunningNode, StartError> {
    let config = NodeConfig { checkpoint_bytes: 1 << 20, ..settings(Path::new(DIR)) };
    Node::start_in(config, Surroundings { disk: Arc::new(disk.clone()), ..Surroundings::default() }).await
}

/// Steele and Vigna's SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

fn value(n: u64, is_large: bool) -> String {
    format!("{n} {}", "x".repeat(if is_large { 900_000 } else { 100 }))
}

/// Sends the next numbers until one is not confirmed. What was sent before and not confirmed is sent again by the next life.
async fn work(node: &RunningNode, topic: u64, next: &mut u64, random: &mut Random) {
    let link = connect(node);
    for _ in 0..40 {
        let message = value(*next, random.below(2) == 0);
        match publish_refused(&link, topic, &batch(PRODUCER, *next, &[&message])).await {
            Ok(placed) => {
                assert_eq!(placed.base_offset, *next);
                *next += 1;
            }
            // While the next file is being prepared.
            Err(refusal) if refusal.error_code() == ErrorCode::Busy => tokio::task::yield_now().await,
            Err(_) => return,
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_message_of_a_producer_is_there_once_and_in_order_however_its_lives_end() {
    for history in 0..HISTORIES {
        let mut random = Random(history);
        let mut disk = SimDisk::new();
        let node = start_on(&disk).await.unwrap();
        let kept = TopicConfig { retention_records: Some(KEPT), ..config() };
        let topic = create(&connect(&node), "orders", kept).await;
        node.shutdown(Duration::from_secs(5)).await;
        let mut next = 0;
        for life in 0..LIVES {
            let cut = random.below(if life % 2 == 0 { 200 } else { 40 });
            disk.fail_after(cut);
            match start_on(&disk).await {
                Ok(node) => {
                    work(&node, topic, &mut next, &mut random).await;
                    node.shutdown(Duration::from_secs(5)).await;
                }
                Err(error) => {
                    let told = error.to_string();
                    let is_for_good =
                        ["damaged", "missing", "moment", "format"].iter().any(|word| told.contains(word));
                    assert!(!is_for_good, "history {history}, life {life}, cut {cut}: {told}");
                }
            }
            disk = disk.after_crash(random.next());
        }
        let node = start_on(&disk).await.unwrap_or_else(|error| panic!("history {history}: {error}"));
        let link = connect(&node);
        let again =
            publish_refused(&link, topic, &batch(PRODUCER, next, &[&value(next, false)])).await.unwrap();
        assert_eq!(again.base_offset, next, "history {history}");
        let (mut from, mut offset) = (At::Earliest(true), None);
        loop {
            let (answer, found) = match read(&link, topic, from, 0).await {
                // Retention catches up with what the lives left.
                Err(ErrorCode::OffsetTrimmed) => {
                    (from, offset) = (At::Earliest(true), None);
                    continue;
                }
                found => found.unwrap(),
            };
            for (n, message) in (answer.from..).zip(&found) {
                assert!(message.starts_with(&format!("{n} ")), "history {history}: {n} is {}", &message[..9]);
            }
            assert!(offset.is_none_or(|offset| offset == answer.from), "history {history}: a gap");
            offset = Some(answer.next);
            from = At::Offset(answer.next);
            if answer.up_to_date {
                assert_eq!(answer.next, next + 1, "history {history}");
                break;
            }
        }
        node.shutdown(Duration::from_secs(5)).await;
    }
}
