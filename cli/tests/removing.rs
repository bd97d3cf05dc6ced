//! Purging subscriptions and trimming topics, through the public interface of the real product.
#![expect(dead_code, reason = "each test uses a part of the product's client")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod product;
mod sealing;

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use product::{Connection, Product, done, send, started};
use serde_json::{Value, json};

const BILLING: &str = "/v1/subscriptions/billing";

fn create(http: &mut Connection, partitions: u32, more: &Value) {
    done(http, "PUT /v1/topics/orders", &json!({"partitions": partitions}));
    let mut config = json!({"mode": "queue", "topics": ["orders"], "backoff_ms": [600_000]});
    config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    done(http, &format!("PUT {BILLING}"), &config);
}

fn publish_to(http: &mut Connection, topic: &str, values: std::ops::Range<u64>) {
    let lines: String = values.map(|n| format!("{{\"key\":\"k{n}\",\"data\":{n}}}\n")).collect();
    let media = [("Content-Type", "application/x-ndjson")];
    let line = format!("POST /v1/topics/{topic}/messages:batch");
    let sent = http.request(&line, &media, lines.as_bytes()).unwrap();
    assert_eq!(sent.status, 200, "{}", sent.text());
}

fn publish(http: &mut Connection, values: std::ops::Range<u64>) {
    publish_to(http, "orders", values);
}

fn pull(http: &mut Connection, subscription: &str, body: &Value) -> Vec<Value> {
    let pulled = done(http, &format!("POST /v1/subscriptions/{subscription}:pull"), body);
    pulled["messages"].as_array().unwrap().clone()
}

fn leases(messages: &[Value]) -> Vec<&str> {
    messages.iter().map(|message| message["lease"].as_str().unwrap()).collect()
}

fn numbers(messages: &[Value]) -> Vec<u64> {
    let mut numbers: Vec<_> = messages.iter().map(|message| message["data"].as_u64().unwrap()).collect();
    numbers.sort_unstable();
    numbers
}

fn settle(http: &mut Connection, body: &Value) -> Vec<String> {
    let settled = send(http, &format!("POST {BILLING}:settle"), body).json();
    let results = settled["results"].as_array().unwrap();
    results.iter().map(|result| result["result"].as_str().unwrap().to_owned()).collect()
}

fn purge(http: &mut Connection, query: &str, body: &Value) -> Value {
    done(http, &format!("POST {BILLING}:purge{query}"), body)
}

fn undo(http: &mut Connection, purged: &Value) {
    done(http, &format!("POST {BILLING}:seek"), &json!({"to": "undo", "undo": purged["undo"]}));
}

/// Which messages stand how, with their attempts.
fn standing(http: &mut Connection) -> BTreeMap<String, Vec<(String, u64)>> {
    let states = ["ready", "leased", "delayed", "dead"].map(|state| {
        let page = done(http, &format!("GET {BILLING}/state?of={state}"), &Value::Null);
        let item = |item: &Value| {
            (item["id"].as_str().unwrap().to_owned(), item["attempts"].as_u64().unwrap_or_default())
        };
        (state.to_owned(), page["items"].as_array().unwrap().iter().map(item).collect())
    });
    states.into_iter().collect()
}

fn ids(standing: &BTreeMap<String, Vec<(String, u64)>>, state: &str) -> Vec<String> {
    standing[state].iter().map(|(id, _)| id.clone()).collect()
}

/// Twelve messages of two partitions, two each acknowledged, dead and delayed, of the others two leased.
fn all_sorts(http: &mut Connection) -> Vec<Value> {
    publish(http, 0..12);
    let taken = pull(http, "billing", &json!({"max": 8, "lease_ms": 600_000}));
    assert_eq!(taken.len(), 8);
    let held = leases(&taken);
    let lease = |at: usize| json!({"lease": held[at], "reason": "no stock"});
    let body = json!({
        "ack": held[..2], "dead": [lease(2), lease(3)], "nack": [lease(4), lease(5)]
    });
    assert_eq!(settle(http, &body), ["ok"; 6]);
    taken[6..].to_vec()
}

#[test]
fn a_purge_settles_everything_undelivered_survives_a_crash_and_can_be_undone() {
    let (dir, mut product, mut http) = started();
    create(&mut http, 2, &json!({}));
    done(&mut http, "PUT /v1/subscriptions/audit", &json!({"topics": ["orders"]}));
    let held = all_sorts(&mut http);
    let before = standing(&mut http);
    let counts = ["ready", "leased", "delayed", "dead"].map(|state| before[state].len());
    assert_eq!(counts, [4, 2, 2, 2]);

    let would = purge(&mut http, "?dry_run=true", &json!({"what": "all"}));
    assert_eq!((&would["dry_run"], &would["purged"], &would["dead"]), (&json!(true), &json!(10), &json!(2)));
    assert_eq!(would["undo"], Value::Null);
    assert_eq!(standing(&mut http), before, "it was only asked");
    let purged = purge(&mut http, "", &json!({}));
    assert_eq!((&purged["purged"], &purged["dead"]), (&json!(10), &json!(2)));
    let mut parts = would["parts"].clone();
    assert_eq!(parts.as_array_mut(), purged["parts"].clone().as_array_mut());

    // Who holds a lease learns that it is none any more, as after a seek.
    assert_eq!(settle(&mut http, &json!({"ack": leases(&held)})), ["already_settled"; 2]);
    let body = json!({"extend": [{"lease": held[0]["lease"], "ms": 60_000}]});
    assert_eq!(settle(&mut http, &body), ["already_settled"]);
    product.kill();
    let product = Product::start(dir.path());
    let mut http = Connection::open(&product.address).unwrap();
    assert!(pull(&mut http, "billing", &json!({"max": 100})).is_empty());
    assert!(standing(&mut http).values().all(Vec::is_empty));
    let redriven = done(&mut http, &format!("POST {BILLING}:redrive"), &json!({}));
    assert_eq!(redriven["redriven"], json!([]), "nobody knows them as dead any more");
    assert_eq!(pull(&mut http, "audit", &json!({"max": 100})).len(), 12, "it is one subscription's");
    publish(&mut http, 12..15);
    let new = pull(&mut http, "billing", &json!({"max": 100}));
    assert_eq!(numbers(&new), [12, 13, 14]);
    assert_eq!(settle(&mut http, &json!({"ack": [new[0]["lease"]]})), ["ok"]);

    undo(&mut http, &purged);
    assert_eq!(settle(&mut http, &json!({"ack": leases(&held)})), ["lease_lost"; 2], "of before the purge");
    let mut after = standing(&mut http);
    let is_old = |id: &String| !new.iter().any(|message| message["id"] == json!(id));
    // Leases are in nobody's log: what was leased is ready, and what came since and is not done is too.
    let mut ready: Vec<_> = ids(&after, "ready").into_iter().filter(is_old).collect();
    let mut expected = [ids(&before, "ready"), ids(&before, "leased")].concat();
    ready.sort();
    expected.sort();
    assert_eq!(ready, expected);
    assert_eq!(ids(&after, "ready").len(), 6 + 2);
    assert_eq!(
        (after.remove("delayed"), after.remove("dead")),
        (before.get("delayed").cloned(), before.get("dead").cloned())
    );
    assert_eq!(pull(&mut http, "billing", &json!({"max": 100})).len(), 8);
}

#[test]
fn a_purge_of_dead_letters_leaves_everything_else_and_its_undo_what_was_done_since() {
    let (dir, mut product, mut http) = started();
    create(&mut http, 2, &json!({"dlq": "orders.dlq"}));
    let held = all_sorts(&mut http);
    let before = standing(&mut http);
    let would = purge(&mut http, "?dry_run=true", &json!({"what": "dead"}));
    assert_eq!((&would["purged"], &would["dead"]), (&json!(2), &json!(2)));
    assert_eq!(standing(&mut http), before);
    let purged = purge(&mut http, "", &json!({"what": "dead"}));
    let mut rest = before.clone();
    rest.insert("dead".to_owned(), Vec::new());
    assert_eq!(standing(&mut http), rest);
    assert_eq!(settle(&mut http, &json!({"ack": [held[0]["lease"]]})), ["ok"], "its lease has not ended");
    let dead = json!({"dead": [{"lease": held[1]["lease"]}]});
    assert_eq!(settle(&mut http, &dead), ["ok"]);
    let letters = done(&mut http, "GET /v1/topics/orders.dlq/messages?wait=10&limit=10", &Value::Null);
    assert!(!letters["messages"].as_array().unwrap().is_empty(), "those that were sent are there");
    product.kill();
    let product = Product::start(dir.path());
    let mut http = Connection::open(&product.address).unwrap();
    assert_eq!(ids(&standing(&mut http), "dead"), [held[1]["id"].as_str().unwrap()]);

    undo(&mut http, &purged);
    let after = standing(&mut http);
    let mut expected = ids(&before, "dead");
    expected.push(held[1]["id"].as_str().unwrap().to_owned());
    expected.sort();
    assert_eq!(ids(&after, "dead"), expected);
    assert_eq!((&after["ready"], &after["delayed"]), (&before["ready"], &before["delayed"]));
    let redriven = done(&mut http, &format!("POST {BILLING}:redrive"), &json!({}));
    assert_eq!(redriven["redriven"].as_array().unwrap().len(), 3);
}

/// Whoever takes it back after a seek would otherwise take back the seek as well, and deliver again what was
/// settled since.
#[test]
fn a_purge_of_dead_letters_cannot_be_undone_over_a_seek() {
    let (_dir, _product, mut http) = started();
    create(&mut http, 2, &json!({}));
    all_sorts(&mut http);
    let purged = purge(&mut http, "", &json!({"what": "dead"}));
    done(&mut http, &format!("POST {BILLING}:seek"), &json!({"to": "latest"}));
    let nothing = standing(&mut http);
    for query in ["?dry_run=true", ""] {
        let back = json!({"to": "undo", "undo": purged["undo"]});
        let refused = send(&mut http, &format!("POST {BILLING}:seek{query}"), &back);
        let problem = refused.json();
        assert_eq!((refused.status, &problem["code"]), (410, &json!("snapshot_gone")), "{problem}");
        assert_eq!((&problem["outcome"], &problem["undo"]), (&json!("none"), &Value::Null), "{problem}");
    }
    assert_eq!(standing(&mut http), nothing);
    let before = purged["undo"].as_str().unwrap();
    let page = done(&mut http, &format!("GET {BILLING}/state?of=dead&as_of={before}"), &Value::Null);
    assert_eq!(page["items"].as_array().unwrap().len(), 2, "what it forgot can still be looked at");
}

#[test]
fn a_purge_reaches_every_topic_of_a_pattern_a_paused_subscription_and_a_stream() {
    let (_dir, _product, mut http) = started();
    for (topic, partitions) in [("orders.eu", 3), ("orders.us", 1)] {
        done(&mut http, &format!("PUT /v1/topics/{topic}"), &json!({"partitions": partitions}));
    }
    done(&mut http, "PUT /v1/subscriptions/all", &json!({"topics": ["orders.*"], "paused": true}));
    let both = json!({"mode": "stream", "topics": ["orders.eu", "orders.us"]});
    done(&mut http, "PUT /v1/subscriptions/stream", &both);
    publish_to(&mut http, "orders.eu", 0..9);
    publish_to(&mut http, "orders.us", 0..3);
    let purged = done(&mut http, "POST /v1/subscriptions/all:purge", &json!({}));
    assert_eq!((&purged["purged"], purged["parts"].as_array().unwrap().len()), (&json!(12), 4));
    assert_eq!(purged["parts"][3]["topic"], "orders.us");
    done(&mut http, "POST /v1/subscriptions/all:resume", &Value::Null);
    assert!(pull(&mut http, "all", &json!({})).is_empty());

    let read = pull(&mut http, "stream", &json!({"holder": "a", "max": 5}));
    assert_eq!(read.len(), 5);
    let refused = send(&mut http, "POST /v1/subscriptions/stream:purge", &json!({"what": "dead"}));
    assert_eq!((refused.status, &refused.json()["code"]), (409, &json!("not_supported")));
    let purged = done(&mut http, "POST /v1/subscriptions/stream:purge", &json!({}));
    assert_eq!((&purged["purged"], &purged["dead"]), (&json!(12), &json!(0)));
    assert!(pull(&mut http, "stream", &json!({"holder": "a"})).is_empty());
    publish_to(&mut http, "orders.us", 70..71);
    assert_eq!(numbers(&pull(&mut http, "stream", &json!({"holder": "a"}))), [70]);
    let back = json!({"to": "undo", "undo": purged["undo"]});
    done(&mut http, "POST /v1/subscriptions/stream:seek", &back);
    assert_eq!(pull(&mut http, "stream", &json!({"holder": "a", "max": 50})).len(), 13);
}

#[test]
fn what_until_settled_removes_after_a_purge_is_gone_though_the_purge_is_undone() {
    let (_dir, _product, mut http) = started();
    create(&mut http, 1, &json!({}));
    done(&mut http, "PATCH /v1/topics/orders", &json!({"retention": {"until_settled": true}}));
    publish(&mut http, 0..4);
    publish(&mut http, 4..8);
    let purged = purge(&mut http, "", &json!({}));
    let topic = done(&mut http, "GET /v1/topics/orders", &Value::Null);
    assert_eq!(topic["partitions"][0]["start"], 8);
    undo(&mut http, &purged);
    assert!(pull(&mut http, "billing", &json!({})).is_empty());
    publish(&mut http, 8..9);
    assert_eq!(numbers(&pull(&mut http, "billing", &json!({}))), [8]);
}

#[test]
fn who_works_while_it_is_purged_is_given_nothing_more_of_what_was_there() {
    let (_dir, product, mut http) = started();
    create(&mut http, 2, &json!({"backoff_ms": [0], "max_attempts": 0}));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|threads| {
        let worker = |n: u64| {
            let (address, is_over) = (&product.address, &is_over);
            threads.spawn(move || {
                let mut http = Connection::open(address).unwrap();
                while !is_over.load(Ordering::Relaxed) {
                    let held = pull(&mut http, "billing", &json!({"max": 7, "wait_ms": 100}));
                    let (some, others) = held.split_at(held.len() / 2);
                    let nack: Vec<_> = leases(others).iter().map(|lease| json!({"lease": lease})).collect();
                    // Whatever becomes of it: a purge may have been faster.
                    let body = if n == 0 {
                        json!({"ack": leases(some), "nack": nack})
                    } else {
                        json!({"nack": nack})
                    };
                    send(&mut http, &format!("POST {BILLING}:settle"), &body);
                }
            })
        };
        let workers = [worker(0), worker(1)];
        for round in 0..20u64 {
            publish(&mut http, round * 50..round * 50 + 50);
            let floors = loop {
                let purged = send(&mut http, &format!("POST {BILLING}:purge"), &json!({}));
                if purged.status == 200 {
                    break purged.json()["parts"].clone();
                }
                assert_eq!(purged.json()["code"], "busy", "{}", purged.text());
            };
            let shown = done(&mut http, &format!("GET {BILLING}"), &Value::Null);
            assert_eq!(shown["totals"]["unsettled"], 0, "nothing of it is left: {shown}");
            assert_eq!(shown["totals"]["leased"], 0, "nobody holds anything: {shown}");
            let tail: u64 =
                floors.as_array().unwrap().iter().map(|part| part["floor"].as_u64().unwrap()).sum();
            assert_eq!(tail, round * 50 + 50);
        }
        is_over.store(true, Ordering::Relaxed);
        workers.into_iter().for_each(|worker| worker.join().unwrap());
    });
    assert!(pull(&mut http, "billing", &json!({"max": 100})).is_empty());
}

#[test]
fn a_purge_or_trim_of_what_is_not_there_is_refused() {
    let (_dir, _product, mut http) = started();
    create(&mut http, 2, &json!({}));
    publish(&mut http, 0..6);
    done(&mut http, "PUT /v1/ns/other", &json!({}));
    for (line, body, status, code) in [
        ("POST /v1/ns/other/subscriptions/billing:purge", json!({}), 404, "subscription_not_found"),
        ("POST /v1/ns/nobody/subscriptions/billing:purge", json!({}), 404, "namespace_not_found"),
        ("POST /v1/subscriptions/nobody:purge", json!({}), 404, "subscription_not_found"),
        ("POST /v1/subscriptions/billing:purge", json!({"what": "ready"}), 400, "malformed"),
        ("POST /v1/subscriptions/billing:purge", json!({"force": true}), 400, "unknown_field"),
        ("POST /v1/subscriptions/billing:purge?dry_run=maybe", json!({}), 400, "invalid_parameter"),
        ("POST /v1/ns/other/topics/orders:trim", json!({"before": "end"}), 404, "topic_not_found"),
        ("POST /v1/topics/orders:trim", json!({}), 400, "invalid_parameter"),
        ("POST /v1/topics/orders:trim", json!({"before": "latest"}), 400, "invalid_parameter"),
        ("POST /v1/topics/orders:trim", json!({"before": "1"}), 400, "invalid_parameter"),
        ("POST /v1/topics/orders:trim", json!({"before": "1", "partition": 2}), 404, "partition_not_found"),
        ("POST /v1/topics/orders:trim", json!({"before": "7", "partition": 0}), 416, "beyond_tail"),
    ] {
        let refused = send(&mut http, line, &body);
        let problem = refused.json();
        assert_eq!((refused.status, &problem["code"]), (status, &json!(code)), "{line} {body}");
        assert_eq!(problem["outcome"], "none", "{line} {body}");
    }
    done(&mut http, "PATCH /v1/topics/orders", &json!({"closed": true}));
    let refused = send(&mut http, "POST /v1/topics/orders:trim", &json!({"before": "end"}));
    assert_eq!((refused.status, &refused.json()["code"]), (409, &json!("topic_closed")));
    assert_eq!(pull(&mut http, "billing", &json!({})).len(), 6, "nothing has happened");
}

fn bounds(http: &mut Connection) -> Vec<(u64, u64, u64)> {
    let topic = done(http, "GET /v1/topics/orders", &Value::Null);
    let number = |partition: &Value, field: &str| partition[field].as_u64().unwrap();
    let partitions = topic["partitions"].as_array().unwrap();
    partitions
        .iter()
        .map(|found| (number(found, "start"), number(found, "end"), number(found, "bytes")))
        .collect()
}

#[test]
fn a_trim_removes_the_oldest_for_everybody_and_stays_done_after_a_crash() {
    let (dir, mut product, mut http) = started();
    create(&mut http, 2, &json!({}));
    (0..4).for_each(|round| publish(&mut http, round * 10..round * 10 + 10));
    let before = bounds(&mut http);
    let trim = |http: &mut Connection, query: &str, body: Value| {
        done(http, &format!("POST /v1/topics/orders:trim{query}"), &body)
    };
    let held = pull(&mut http, "billing", &json!({"max": 100}));
    assert_eq!(held.len(), 40);
    let upto = before[0].1 - 3;
    let would = trim(&mut http, "?dry_run=true", json!({"partition": 0, "before": upto}));
    assert_eq!(bounds(&mut http), before, "it was only asked");
    let done_so = trim(&mut http, "", json!({"partition": 0, "before": upto.to_string()}));
    assert_eq!(would["partitions"], done_so["partitions"]);
    let trimmed = &done_so["partitions"][0];
    assert_eq!((&trimmed["start"], &trimmed["messages"]), (&json!(upto), &json!(upto)));
    let after = bounds(&mut http);
    assert_eq!(after[0].0, upto);
    assert_eq!(json!(before[0].2 - after[0].2), trimmed["bytes"]);
    assert_eq!(after[1], before[1], "the other partition is as it was");
    let gone = send(&mut http, "GET /v1/topics/orders/messages/0/0", &Value::Null);
    assert_eq!((gone.status, &gone.json()["code"]), (410, &json!("offset_trimmed")));
    let again = trim(&mut http, "", json!({"partition": 0, "before": "1"}));
    assert_eq!(
        (&again["messages"], &again["bytes"], &again["partitions"][0]["start"]),
        (&json!(0), &json!(0), &json!(upto))
    );
    let shown = done(&mut http, &format!("GET {BILLING}"), &Value::Null);
    assert_eq!(shown["totals"]["unsettled"], json!(40 - upto));
    let oldest = held.iter().find(|message| message["id"] == "0:0").unwrap();
    assert_eq!(settle(&mut http, &json!({"ack": [oldest["lease"]]})), ["already_settled"]);

    product.kill();
    let product = Product::start(dir.path());
    let mut http = Connection::open(&product.address).unwrap();
    assert_eq!(bounds(&mut http), after);
    let all = trim(&mut http, "", json!({"before": "end"}));
    assert_eq!(all["messages"], json!(40 - upto));
    let empty = bounds(&mut http);
    assert!(empty.iter().all(|(start, end, bytes)| start == end && *bytes == 0), "{empty:?}");
    assert!(pull(&mut http, "billing", &json!({})).is_empty());
    publish(&mut http, 40..50);
    let page = done(&mut http, "GET /v1/topics/orders/messages", &Value::Null);
    assert_eq!(page["messages"].as_array().unwrap().len(), 10, "offsets go on");
}

#[test]
fn a_trim_removes_what_is_only_in_the_object_store() {
    const BYTES: usize = 256 << 10;
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let bucket = format!("file://{}", dir.path().join("bucket").display());
    let mut options = vec!["--object-store", &bucket];
    options.extend(sealing::OPTIONS.as_flattened());
    let mut product = Product::start_with(dir.path(), "127.0.0.1:0", &options);
    let mut http = Connection::open(&product.address).unwrap();
    done(&mut http, "PUT /v1/topics/orders", &json!({}));
    let ends = Instant::now() + Duration::from_secs(120);
    (0..200).for_each(|n| sealing::publish(&mut http, "orders", None, &sealing::value(n, BYTES), ends));
    let storage = |http: &mut Connection, field: &str| {
        let topic = done(http, "GET /v1/topics/orders", &Value::Null);
        topic["partitions"][0]["storage"][field].as_u64().unwrap()
    };
    let is_cold =
        |http: &mut Connection| storage(http, "cold_to") >= 20 && storage(http, "archived_to") == 200;
    sealing::until(&mut http, "the oldest have left the disk", ends, &is_cold);
    let (cold_to, cold_bytes) = (storage(&mut http, "cold_to"), storage(&mut http, "cold_bytes"));

    let body = json!({"partition": 0, "before": 11});
    let trimmed = done(&mut http, "POST /v1/topics/orders:trim", &body);
    assert_eq!((&trimmed["messages"], &trimmed["partitions"][0]["start"]), (&json!(11), &json!(11)));
    assert!(storage(&mut http, "cold_to") >= cold_to);
    assert_eq!(storage(&mut http, "archived_to"), 200);
    assert!(storage(&mut http, "cold_bytes") < cold_bytes);
    product.kill();
    let product = Product::start_with(dir.path(), "127.0.0.1:0", &options);
    let mut http = Connection::open(&product.address).unwrap();
    let gone = send(&mut http, "GET /v1/topics/orders/messages/0/10", &Value::Null);
    assert_eq!((gone.status, &gone.json()["current"]["earliest"]), (410, &json!(11)));
    let page = done(&mut http, "GET /v1/topics/orders/messages?limit=1", &Value::Null);
    assert!(page["messages"][0]["data"] == sealing::value(11, BYTES), "the first that stays is whole");

    done(&mut http, "POST /v1/topics/orders:trim", &json!({"before": "end"}));
    let are_gone = |http: &mut Connection| {
        sealing::metric(http, "weir_storage_object_bytes") == 0.0
            && sealing::metric(http, "weir_storage_unneeded_objects") == 0.0
    };
    sealing::until(&mut http, "no object is kept", ends, &are_gone);
    drop(product);
}

#[test]
fn a_trim_by_time_removes_what_is_older_and_one_of_another_life_nothing() {
    let (_dir, _product, mut http) = started();
    create(&mut http, 1, &json!({}));
    publish(&mut http, 0..5);
    let first = done(&mut http, "GET /v1/topics/orders/messages", &Value::Null);
    let ts = first["messages"][4]["ts"].as_u64().unwrap();
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(5) {
        std::thread::yield_now();
    }
    publish(&mut http, 5..8);
    let body = json!({"before": format!("ts:{}", ts + 1)});
    let trimmed = done(&mut http, "POST /v1/topics/orders:trim", &body);
    assert_eq!((&trimmed["messages"], &trimmed["partitions"][0]["start"]), (&json!(5), &json!(5)));

    let read = http.request("GET /v1/topics/orders", &[], b"").unwrap();
    let tag = read.header("etag").unwrap().to_owned();
    let trim = |http: &mut Connection, tag: &str| {
        let body = json!({"before": "end"}).to_string();
        http.request("POST /v1/topics/orders:trim", &[("If-Match", tag)], body.as_bytes()).unwrap()
    };
    done(&mut http, "PATCH /v1/topics/orders", &json!({"ttl_ms": 1_000}));
    let refused = trim(&mut http, &tag);
    assert_eq!((refused.status, &refused.json()["code"]), (412, &json!("version_mismatch")));
    done(&mut http, "DELETE /v1/topics/orders", &Value::Null);
    done(&mut http, "PUT /v1/topics/orders", &json!({}));
    publish(&mut http, 0..2);
    let refused = trim(&mut http, &tag);
    assert_eq!((refused.status, &refused.json()["code"]), (410, &json!("incarnation_gone")));
    assert_eq!(bounds(&mut http)[0].0, 0);
    let read = http.request("GET /v1/topics/orders", &[], b"").unwrap();
    let now = read.header("etag").unwrap().to_owned();
    assert_eq!(trim(&mut http, &now).status, 200);
    assert_eq!(bounds(&mut http)[0].0, 2);
}

#[test]
fn the_command_line_asks_before_it_purges_or_trims_and_says_how_to_take_it_back() {
    let (_dir, product, mut http) = started();
    create(&mut http, 2, &json!({}));
    all_sorts(&mut http);
    let url = format!("http://{}", product.address);
    let weir = |arguments: &[&str]| {
        let run =
            Command::new(env!("CARGO_BIN_EXE_weir")).args(arguments).args(["--url", &url]).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (run.status.success(), text(run.stdout), text(run.stderr))
    };
    let (ok, said, _) = weir(&["subscription", "purge", "billing", "--dry-run"]);
    assert!(ok && said == "10 message(s) would be purged, 2 of them dead\n", "{said}");
    let (ok, said, why) = weir(&["subscription", "purge", "billing"]);
    assert!(!ok && why.contains("not purged"), "nobody was there to say yes: {said}{why}");
    let (ok, said, why) = weir(&["subscription", "purge", "billing", "--what", "dead", "--yes"]);
    assert!(ok && said.starts_with("2 message(s) were purged"), "{said}{why}");
    let (ok, said, why) = weir(&["subscription", "purge", "billing", "--yes", "--json"]);
    let answer: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((ok, &answer["purged"]), (true, &json!(8)), "{why}");
    let (ok, said, why) =
        weir(&["subscription", "undo", "billing", answer["undo"].as_str().unwrap(), "--yes"]);
    assert!(ok && said.starts_with("8 message(s)"), "{said}{why}");

    let (ok, said, _) = weir(&["topic", "trim", "orders", "end", "--dry-run"]);
    assert!(ok && said.starts_with("12 message(s), ") && said.contains("of orders would go"), "{said}");
    let (ok, said, why) = weir(&["topic", "trim", "orders", "end"]);
    assert!(!ok && why.contains("not trimmed"), "{said}{why}");
    let (ok, said, why) = weir(&["topic", "trim", "orders", "1", "--partition", "0", "--yes", "--json"]);
    let answer: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((ok, &answer["messages"]), (true, &json!(1)), "{why}");
    let (ok, _, why) = weir(&["topic", "trim", "orders", "1", "--yes"]);
    assert!(!ok && why.contains("partition"), "{why}");
    let (ok, said, why) = weir(&["topic", "trim", "orders", "end", "--yes"]);
    assert!(ok && said.starts_with("11 message(s), ") && said.contains("are gone"), "{said}{why}");
}

#[test]
fn a_name_that_is_none_is_refused_whole_and_not_taken_for_what_it_begins_with() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let product = Product::start(dir.path());
    let mut http = Connection::open(&product.address).unwrap();
    create(&mut http, 1, &json!({}));
    let url = format!("http://{}", product.address);
    for name in ["orders#old", "orders?old", "orders/old", "orders%00"] {
        for command in ["topic", "subscription"] {
            let weir = Command::new(env!("CARGO_BIN_EXE_weir"))
                .args([command, "delete", "--yes", name, "--url", &url])
                .output()
                .unwrap();
            let said = String::from_utf8(weir.stderr).unwrap();
            assert!(!weir.status.success() && said.contains("invalid_name"), "{command} {name}: {said}");
        }
    }
    assert_eq!(done(&mut http, "GET /v1/topics/orders", &json!({}))["name"], "orders");
    // And a search for any text is one for that text.
    for (query, found) in [("rder", 1), ("rder&limit=1", 0), ("a#b c", 0)] {
        let weir = Command::new(env!("CARGO_BIN_EXE_weir"))
            .args(["topic", "list", "--json", "--query", query, "--url", &url])
            .output()
            .unwrap();
        let listed = String::from_utf8(weir.stdout).unwrap();
        assert!(weir.status.success() && listed.lines().count() == found, "{query}: {listed}");
    }
}
