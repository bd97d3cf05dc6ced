//! Messages of every age in one journal: what is alive stays, and publishes go on, however much goes through.
#![expect(dead_code, reason = "each test uses a part of the product's client")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod product;

use std::time::{Duration, Instant};

use product::{Connection, Product, done};
use serde_json::{Value, json};

/// Eight files of 16 MiB.
const SMALL: [&str; 8] =
    ["--journal-max", "128MiB", "--journal-file", "16MiB", "--checkpoint", "1MiB", "--data-shards", "2"];
const BLOCK: usize = 256 << 10;

fn put(http: &mut Connection, path: &str, body: &Value) {
    done(http, &format!("PUT /v1/{path}"), body);
}

fn publish(http: &mut Connection, topic: &str, headers: &[(&str, &str)], body: &[u8]) {
    let line = format!("POST /v1/topics/{topic}/messages");
    let start = Instant::now();
    loop {
        let answer = http.request(&line, headers, body).unwrap();
        match answer.status {
            201 => return,
            // For a moment, if more comes than the disk can move: it ends by itself.
            429 | 503 => assert!(start.elapsed() < Duration::from_secs(20), "{}", answer.text()),
            _ => panic!("{}", answer.text()),
        }
    }
}

fn pull(http: &mut Connection, name: &str, max: u64) -> Vec<Value> {
    let body = json!({"max": max, "holder": "worker"});
    done(http, &format!("POST /v1/subscriptions/{name}:pull"), &body)["messages"].as_array().unwrap().clone()
}

/// Gives up the first message of a subscription.
fn give_up(http: &mut Connection, name: &str) {
    let message = pull(http, name, 1).remove(0);
    let body = json!({"dead": [{"lease": message["lease"], "reason": "no"}]});
    done(http, &format!("POST /v1/subscriptions/{name}:settle"), &body);
}

/// One message, or a few, of everything that may be old.
fn old(http: &mut Connection) {
    put(http, "topics/quiet", &json!({"partitions": 1}));
    publish(http, "quiet", &[("Content-Type", "text/plain")], b"one small message");
    // Nobody settles it.
    put(http, "topics/asked", &json!({"partitions": 1, "retention": {"until_settled": true}}));
    put(http, "subscriptions/absent", &json!({"mode": "queue", "topics": ["asked"], "start": "earliest"}));
    put(http, "subscriptions/forked", &json!({"mode": "queue", "topics": ["asked"], "start": "earliest"}));
    for n in 0..3 {
        publish(http, "asked", &[], format!("asked {n}").as_bytes());
    }
    done(http, "POST /v1/subscriptions/forked:fork", &json!({"name": "fork"}));
    // Due in a year.
    put(http, "topics/year", &json!({"partitions": 1}));
    put(http, "subscriptions/year", &json!({"mode": "queue", "topics": ["year"], "start": "earliest"}));
    let year = (365 * 86_400_000_u64).to_string();
    publish(http, "year", &[("Deliver-Delay-Ms", &year)], b"in a year");
    // One dead letter that has arrived, and one that has nowhere to go while its topic trims what it came from.
    put(http, "topics/dead", &json!({"partitions": 1}));
    put(http, "topics/failing", &json!({"partitions": 1}));
    let queue = |dlq: &str| json!({"mode": "queue", "topics": ["failing"], "start": "earliest", "dlq": dlq});
    put(http, "subscriptions/arrives", &queue("dead"));
    put(http, "topics/missing", &json!({"partitions": 1}));
    put(http, "subscriptions/waits", &queue("missing"));
    assert_eq!(http.request("DELETE /v1/topics/missing", &[], b"").unwrap().status, 204);
    publish(http, "failing", &[], b"cannot be worked on");
    give_up(http, "arrives");
    give_up(http, "waits");
    let trim = json!({"before": "end"});
    done(http, "POST /v1/topics/failing:trim", &trim);
    // Settled, and what that published; then sought back.
    put(http, "topics/ledger", &json!({"partitions": 1}));
    let lease = pull(http, "absent", 1).remove(0)["lease"].clone();
    let publish = json!([{"topic": "ledger", "data": "from a settle"}]);
    let body = json!({"ack": [lease], "publish": publish});
    done(http, "POST /v1/subscriptions/absent:settle", &body);
    done(http, "POST /v1/subscriptions/absent:seek", &json!({"to": "earliest"}));
}

fn messages(http: &mut Connection, topic: &str) -> Vec<Value> {
    let (mut from, mut all) = (String::from("earliest"), Vec::new());
    loop {
        let line = format!("GET /v1/topics/{topic}/messages?from={from}&limit=1000");
        let answer = http.request(&line, &[], b"").unwrap();
        assert_eq!(answer.status, 200, "{}", answer.text());
        let page = answer.json();
        all.extend(page["messages"].as_array().unwrap().iter().cloned());
        if page["up_to_date"] == true {
            return all;
        }
        from = page["next"].to_string().trim_matches('"').to_owned();
    }
}

fn all_is_there(http: &mut Connection) {
    for (topic, expected) in [("quiet", 1), ("asked", 3), ("year", 1), ("dead", 1), ("ledger", 1)] {
        assert_eq!(messages(http, topic).len(), expected, "{topic}");
    }
    assert!(format!("{:?}", messages(http, "quiet")).contains("one small message"));
    let kept = messages(http, "kept");
    assert!(kept.len() >= 300, "{}", kept.len());
    for message in kept {
        // Base64 of the block's bytes; only the first differs.
        let data = message["data_base64"].as_str().unwrap();
        assert!(data.len() == (BLOCK / 8).div_ceil(3) * 4 && data[4..].starts_with("eXl5"), "{}", &data[..8]);
    }
    for name in ["absent", "fork"] {
        assert_eq!(pull(http, name, 10).len(), 3, "{name}");
        let seek = json!({"to": "earliest"});
        done(http, &format!("POST /v1/subscriptions/{name}:seek"), &seek);
    }
}

/// So many MiB, of which one part in 32 stays for ever, one is kept for a second, and the rest is gone at once.
fn go_through(http: &mut Connection, mib: usize) {
    let (block, mut small) = (vec![b'x'; BLOCK], vec![b'y'; BLOCK / 8]);
    for n in 0..mib * 4 {
        publish(http, "busy", &[], &block);
        if n % 4 == 0 {
            publish(http, "second", &[], &block);
            small[0] = u8::try_from(n % 251).unwrap();
            publish(http, "kept", &[], &small);
        }
    }
}

#[test]
fn what_is_alive_stays_and_publishes_go_on_whatever_its_age() {
    let dir = tempfile::tempdir().unwrap();
    let mut product = Product::start_with(dir.path(), "127.0.0.1:0", &SMALL);
    let mut http = Connection::open(&product.address).unwrap();
    http.patience(Duration::from_secs(60));
    put(&mut http, "topics/busy", &json!({"partitions": 1, "retention": {"bytes": 1 << 20}}));
    put(&mut http, "topics/second", &json!({"partitions": 1, "retention": {"age_ms": 1_000}}));
    put(&mut http, "topics/kept", &json!({"partitions": 1}));
    old(&mut http);
    go_through(&mut http, 300);
    all_is_there(&mut http);
    // Everything comes from the disk now, twice.
    for _ in 0..2 {
        product.kill();
        product = Product::start_with(dir.path(), "127.0.0.1:0", &SMALL);
        http = Connection::open(&product.address).unwrap();
        http.patience(Duration::from_secs(60));
        all_is_there(&mut http);
    }
    go_through(&mut http, 100);
    all_is_there(&mut http);
    // The letter that had nowhere to go gets there, out of what was carried.
    put(&mut http, "topics/missing", &json!({"partitions": 1}));
    let start = Instant::now();
    while messages(&mut http, "missing").is_empty() {
        assert!(start.elapsed() < Duration::from_secs(20), "{}", product.log());
    }
    let metrics = http.request("GET /metrics", &[], b"").unwrap().text();
    let value = |name: &str| -> f64 {
        let line = metrics.lines().find(|line| line.starts_with(&format!("{name} "))).unwrap();
        line.rsplit(' ').next().unwrap().parse().unwrap()
    };
    assert!(value("weir_journal_carried_bytes") > 0.0);
    let (written, carried) =
        (value("weir_journal_written_bytes_total"), value("weir_journal_carried_written_bytes_total"));
    assert!(carried < written / 2.0, "{carried} of {written}");
}
