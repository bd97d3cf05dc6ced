//! Far more messages than the journal holds, through a real S3, while the product and the store are killed at random.
#![expect(dead_code, reason = "each test uses a part of the product's client")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../storage-node/tier/tests/minio/mod.rs"]
mod minio;
#[path = "../../storage-node/tier/tests/ports/mod.rs"]
mod ports;
mod product;

use std::path::Path;
use std::time::{Duration, Instant};

use minio::Minio;
use product::{Connection, Product};

/// Published in all; the journal may hold 64 MiB.
const MESSAGES: u64 = 1_200;
const BYTES: usize = 256 << 10;
/// Between two kills, on average.
const MESSAGES_PER_KILL: u64 = 150;
const PATIENCE: Duration = Duration::from_secs(400);

fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

fn value(n: u64) -> String {
    let mut state = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut text = format!("{n:08} ");
    while text.len() < BYTES {
        text.push_str(&format!("{:016x}", random(&mut state)));
    }
    text
}

fn start(dir: &Path, minio: &Minio) -> (Product, Connection) {
    let url = Minio::url("e2e");
    let options = [
        ["--object-store", url.as_str()],
        ["--journal-max", "64MiB"],
        ["--journal-file", "16MiB"],
        ["--data-shards", "2"],
        ["--seal-after-ms", "2000"],
        ["--seal-size", "16MiB"],
        ["--tail-ring", "1MiB"],
        ["--cache-memory", "16MiB"],
        ["--cache-disk", "64MiB"],
    ];
    let product = Product::start_with_env(dir, "127.0.0.1:0", options.concat().as_slice(), &minio.options());
    let http = Connection::open(&product.address).unwrap();
    (product, http)
}

#[test]
fn hundreds_of_mebibytes_through_a_small_journal_survive_kills_of_product_and_store() {
    let seed: u64 = std::env::var("COLD_SEED")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or_else(|| u64::from(std::process::id()));
    println!("COLD_SEED={seed}");
    let mut dice = seed | 1;
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut minio = Minio::start();
    let (mut product, mut http) = start(dir.path(), &minio);
    assert_eq!(http.request("PUT /v1/topics/t", &[], br#"{"partitions":3}"#).unwrap().status, 201);
    let began = Instant::now();
    let (mut placed, mut kills, mut waits, mut is_store_dead) = (Vec::new(), [0; 2], 0, false);
    while (placed.len() as u64) < MESSAGES {
        let n = placed.len() as u64;
        assert!(began.elapsed() < PATIENCE, "{n} messages, {kills:?} kills, {waits} waits");
        let sent = http.request(
            "POST /v1/topics/t/messages",
            &[("Content-Type", "text/plain")],
            value(n).as_bytes(),
        );
        let answer = sent.unwrap();
        match answer.status {
            201 => {
                let at = answer.json();
                placed.push((at["partition"].as_u64().unwrap(), at["offset"].as_u64().unwrap()));
            }
            429 | 503 => {
                waits += 1;
                std::thread::sleep(Duration::from_millis(100));
            }
            _ => panic!("message {n}: {}", answer.text()),
        }
        if is_store_dead && (answer.status != 201 || random(&mut dice).is_multiple_of(20)) {
            minio.begin();
            is_store_dead = false;
        }
        match random(&mut dice) % (2 * MESSAGES_PER_KILL) {
            0 if !is_store_dead => {
                product.kill();
                (product, http) = start(dir.path(), &minio);
                kills[0] += 1;
            }
            1 if !is_store_dead => {
                minio.kill();
                is_store_dead = true;
                kills[1] += 1;
            }
            _ => {}
        }
    }
    if is_store_dead {
        minio.begin();
    }
    println!("{MESSAGES} messages, {kills:?} kills, {waits} waits in {:?}", began.elapsed());
    product.kill();
    let (mut product, mut http) = start(dir.path(), &minio);
    read_back(&mut http, &placed);
    let metrics = http.request("GET /metrics", &[], b"").unwrap().text();
    let fetched = metrics.lines().find(|line| line.starts_with("weir_tier_blocks_total{what=\"fetched\"}"));
    let fetched: f64 = fetched.and_then(|line| line.rsplit(' ').next()).unwrap().parse().unwrap();
    assert!(fetched > 100.0, "most of it comes from the store, in blocks of 512 KiB: {fetched}");
    assert!(product.stop());
}

/// Every confirmed message is at its place, and nothing else is.
fn read_back(http: &mut Connection, placed: &[(u64, u64)]) {
    let mut found = 0;
    for partition in 0..3 {
        let mut next = 0;
        loop {
            let line = format!(
                "GET /v1/topics/t/messages?partition={partition}&from={next}&limit=100&max_bytes=3000000"
            );
            let answer = http.request(&line, &[], b"").unwrap();
            assert_eq!(answer.status, 200, "{}", answer.text());
            let page = answer.json();
            for message in page["messages"].as_array().unwrap() {
                assert_eq!(message["offset"], next, "offsets of {partition} are dense");
                let data = message["data"].as_str().unwrap();
                let n: usize = data[..8].parse().unwrap();
                assert_eq!(placed[n], (partition, next), "message {n} is elsewhere");
                assert!(data == value(n as u64), "message {n} is another");
                next += 1;
                found += 1;
            }
            if page["up_to_date"] == true {
                break;
            }
        }
    }
    assert_eq!(found, placed.len());
}
