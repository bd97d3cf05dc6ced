//! kill -9 while publishing: nothing confirmed is ever lost.
#![expect(dead_code, reason = "each test uses a part of the product's client")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod kills;
mod product;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use kills::Kills;
use product::{Connection, Product};

const WRITERS: u64 = 8;
const LEVELS: [&str; 4] = ["quorum", "durable", "memory", "none"];

/// Confirmed messages: topic, partition and offset to payload.
type Confirmed = Arc<Mutex<BTreeMap<(String, u64, u64), String>>>;

/// `TORTURE_ROUNDS` rounds (3 by default): eight writers at mixed levels, a kill at a random moment, a restart, and
/// every message that was ever confirmed at `durable` or `quorum` is read back at its offset, with its bytes.
#[test]
fn torture_kill_while_eight_writers_publish_loses_nothing_confirmed() {
    let mut kills = Kills::of(3);
    let rounds = kills.rounds;
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let confirmed = Confirmed::default();
    for round in 0..rounds {
        let after = kills.after(20..720);
        // All together have to prove something, however slow this machine is.
        let proof = if round + 1 == rounds { rounds * 10 + 1 } else { 0 };
        publish_and_kill(dir.path(), round, (after, proof), &confirmed);
        let product = Product::start(dir.path());
        let count = read_back(&product, &confirmed);
        println!("round {round}: {count} confirmed messages are there");
    }
    assert!(
        confirmed.lock().unwrap().len() as u64 > rounds * 10,
        "too little was confirmed to prove anything"
    );
}

/// Kills after a time, and not before so much is confirmed in all.
fn publish_and_kill(dir: &Path, round: u64, (after, count): (Duration, u64), confirmed: &Confirmed) {
    let mut product = Product::start(dir);
    // Topics of one partition and of several, which lie in several shards.
    let mut http = Connection::open(&product.address).unwrap();
    for topic in 0..WRITERS / 2 {
        let config = format!("{{\"partitions\":{}}}", 1 + 3 * (topic % 2));
        let made = http.request(&format!("PUT /v1/topics/torture-{topic}"), &[], config.as_bytes()).unwrap();
        assert!(matches!(made.status, 200 | 201), "{}", made.text());
    }
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let (address, confirmed) = (product.address.clone(), Arc::clone(confirmed));
            std::thread::spawn(move || write(&address, (round, writer), &confirmed))
        })
        .collect();
    std::thread::sleep(after);
    let ends = Instant::now() + Duration::from_secs(60);
    while (confirmed.lock().unwrap().len() as u64) < count && Instant::now() < ends {
        std::thread::sleep(Duration::from_millis(20));
    }
    product.kill();
    for writer in writers {
        writer.join().unwrap();
    }
}

/// Publishes until the server is gone. Two writers share a topic. Every answer that arrived whole counts, also one that
/// is read when the server is gone already: it was sent before the kill, and nothing was confirmed later.
fn write(address: &str, (round, writer): (u64, u64), confirmed: &Confirmed) {
    let topic = format!("torture-{}", writer / 2);
    let Ok(mut connection) = Connection::open(address) else { return };
    for n in 0u64.. {
        let level = LEVELS[usize::try_from((n + writer) % 4).unwrap()];
        let payload =
            format!("round {round} writer {writer} message {n} {}", "x".repeat((n % 50) as usize * 20));
        let headers = [("Content-Type", "text/plain"), ("Confirm", level)];
        let line = format!("POST /v1/topics/{topic}/messages");
        let Ok(answer) = connection.request(&line, &headers, payload.as_bytes()) else { return };
        if answer.status == 201 {
            let placed = answer.json();
            let at = |field: &str| placed[field].as_u64().unwrap();
            let key = (topic.clone(), at("partition"), at("offset"));
            let before = confirmed.lock().unwrap().insert(key, payload);
            assert_eq!(before, None, "{placed} of {topic} was given twice");
        } else {
            assert_eq!(answer.status, 202, "{}", answer.text());
        }
    }
}

fn read_back(product: &Product, confirmed: &Confirmed) -> usize {
    let mut connection = Connection::open(&product.address).unwrap();
    let confirmed = confirmed.lock().unwrap();
    let mut found = BTreeMap::new();
    let partitions = (0..WRITERS / 2).flat_map(|topic| (0..1 + 3 * (topic % 2)).map(move |p| (topic, p)));
    for (topic, partition) in partitions {
        let topic = format!("torture-{topic}");
        let mut next = 0;
        loop {
            let line = format!(
                "GET /v1/topics/{topic}/messages?partition={partition}&from={next}&limit=5000&max_bytes=3000000"
            );
            let answer = connection.request(&line, &[], b"").unwrap();
            assert_eq!(answer.status, 200, "{}", answer.text());
            let page = answer.json();
            for message in page["messages"].as_array().unwrap() {
                let offset = message["offset"].as_u64().unwrap();
                assert_eq!(offset, next, "offsets of {topic} are dense");
                next += 1;
                found
                    .insert((topic.clone(), partition, offset), message["data"].as_str().unwrap().to_owned());
            }
            if page["up_to_date"] == true {
                break;
            }
        }
    }
    for (at, payload) in confirmed.iter() {
        assert_eq!(found.get(at), Some(payload), "{at:?} was confirmed");
    }
    confirmed.len()
}
