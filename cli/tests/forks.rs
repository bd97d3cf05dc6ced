//! Subscriptions that begin as another one stands or stood, through the public interface of the real product.
#![expect(dead_code, reason = "each test uses a part of the product's client")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod product;

use std::collections::BTreeSet;
use std::process::Command;

use product::{Answer, Connection, Product, done, send, started};
use serde_json::{Value, json};

fn restarted(dir: &tempfile::TempDir, mut product: Product) -> (Product, Connection) {
    product.kill();
    let product = Product::start(dir.path());
    let connection = Connection::open(&product.address).unwrap();
    (product, connection)
}

/// A topic of three partitions with numbers in it.
fn publish(http: &mut Connection, topic: &str, values: std::ops::Range<u64>) {
    done(http, &format!("PUT /v1/topics/{topic}"), &json!({"partitions": 3}));
    let lines: String = values.map(|n| format!("{{\"key\":\"k{n}\",\"data\":{n}}}\n")).collect();
    let media = [("Content-Type", "application/x-ndjson")];
    let line = format!("POST /v1/topics/{topic}/messages:batch");
    let sent = http.request(&line, &media, lines.as_bytes()).unwrap();
    assert_eq!(sent.status, 200, "{}", sent.text());
}

fn create(http: &mut Connection, name: &str, config: &Value) {
    done(http, &format!("PUT /v1/subscriptions/{name}"), config);
}

fn pull(http: &mut Connection, name: &str, max: u64) -> Vec<Value> {
    let body = json!({"max": max, "holder": "worker"});
    done(http, &format!("POST /v1/subscriptions/{name}:pull"), &body)["messages"].as_array().unwrap().clone()
}

fn values(messages: &[Value]) -> BTreeSet<u64> {
    messages.iter().map(|message| message["data"].as_u64().unwrap()).collect()
}

/// Leases what there is and acknowledges what is asked for, and gives the others up or back.
fn work(http: &mut Connection, name: &str, is_done: impl Fn(u64) -> bool, is_dead: impl Fn(u64) -> bool) {
    let (mut ack, mut dead, mut nack) = (Vec::new(), Vec::new(), Vec::new());
    for message in pull(http, name, 1_000) {
        let (value, lease) = (message["data"].as_u64().unwrap(), message["lease"].clone());
        match value {
            value if is_done(value) => ack.push(lease),
            value if is_dead(value) => dead.push(json!({"lease": lease, "reason": "no"})),
            _ => nack.push(json!({"lease": lease, "delay_ms": 0})),
        }
    }
    let body = json!({"ack": ack, "dead": dead, "nack": nack});
    done(http, &format!("POST /v1/subscriptions/{name}:settle"), &body);
}

fn fork(http: &mut Connection, of: &str, body: &Value) -> Answer {
    send(http, &format!("POST /v1/subscriptions/{of}:fork"), body)
}

fn total(http: &mut Connection, name: &str, field: &str) -> u64 {
    let found = http.request(&format!("GET /v1/subscriptions/{name}"), &[], b"").unwrap().json();
    found["totals"][field].as_u64().unwrap()
}

#[test]
fn a_fork_is_given_what_was_unsettled_then_and_the_source_does_not_notice() {
    let (dir, product, mut http) = started();
    publish(&mut http, "orders", 0..60);
    create(&mut http, "billing", &json!({"topics": ["orders"], "backoff_ms": [0]}));
    work(&mut http, "billing", |n| n.is_multiple_of(3), |n| n % 3 == 1);
    let open: BTreeSet<u64> = (0..60).filter(|n| n % 3 == 2).collect();

    let made = fork(&mut http, "billing", &json!({"name": "shadow", "config": {"lease_ms": 60_000}}));
    assert_eq!(made.status, 201, "{}", made.text());
    assert_eq!(made.header("location"), Some("/v1/subscriptions/shadow"));
    let made = made.json();
    assert_eq!(
        (&made["forked_from"]["name"], &made["forked_from"]["at"]),
        (&json!("billing"), &json!("now"))
    );
    assert_eq!((&made["config"]["lease_ms"], &made["totals"]["dead"]), (&json!(60_000), &json!(20)));
    // The incident: everything is skipped, and looked at afterwards.
    let seek = done(&mut http, "POST /v1/subscriptions/billing:seek", &json!({"to": "latest"}));
    let undo = seek["undo"].as_str().unwrap().to_owned();
    assert_eq!(pull(&mut http, "billing", 100).len(), 0);
    let replay = json!({"name": "replay", "at": undo, "config": {"max_attempts": 9}});
    assert_eq!(fork(&mut http, "billing", &replay).status, 201);

    let (product, mut http) = restarted(&dir, product);
    assert_eq!(total(&mut http, "billing", "unsettled"), 0);
    for name in ["shadow", "replay"] {
        let leased = pull(&mut http, name, 1_000);
        assert_eq!(values(&leased), open, "{name}");
        assert!(leased.iter().all(|message| message["attempt"] == 2), "attempts are those of then: {name}");
    }
    assert_eq!(total(&mut http, "billing", "leased"), 0);
    let (_product, mut http) = restarted(&dir, product);
    work(&mut http, "replay", |_| true, |_| false);
    assert_eq!(total(&mut http, "replay", "unsettled"), 0);
    assert_eq!(total(&mut http, "shadow", "unsettled"), 20);
    // What was dead then can be delivered again, to the fork alone.
    done(&mut http, "POST /v1/subscriptions/replay:redrive", &json!({"max": 100}));
    assert_eq!(values(&pull(&mut http, "replay", 100)), (0..60).filter(|n| n % 3 == 1).collect());
    let undone =
        done(&mut http, "POST /v1/subscriptions/billing:seek", &json!({"to": "undo", "undo": replay["at"]}));
    assert_eq!(undone["redelivered"], 20);
    done(&mut http, "DELETE /v1/subscriptions/billing", &Value::Null);
    assert_eq!(total(&mut http, "shadow", "unsettled"), 20);
}

#[test]
fn a_fork_is_made_once_and_refused_by_name() {
    let (_dir, product, mut http) = started();
    publish(&mut http, "orders", 0..9);
    create(&mut http, "billing", &json!({"topics": ["orders"]}));
    let body = json!({"name": "shadow", "at": "now"});
    let first = fork(&mut http, "billing", &body);
    let again = fork(&mut http, "billing", &body);
    assert_eq!((first.status, again.status), (201, 200));
    assert_eq!(first.json()["id"], again.json()["id"]);
    let same = json!({"topics": ["orders"]});
    assert_eq!(
        send(&mut http, "PUT /v1/subscriptions/shadow", &same).status,
        200,
        "it is configured like that"
    );
    create(&mut http, "other", &same);
    for (body, status, code, field) in [
        (json!({"name": "other"}), 409, "config_mismatch", None),
        (json!({"name": "shadow", "config": {"lease_ms": 5_000}}), 409, "config_mismatch", None),
        (json!({"name": "billing"}), 400, "invalid_parameter", Some("name")),
        (json!({"name": "a/b"}), 400, "invalid_name", Some("name")),
        (json!({}), 400, "invalid_name", Some("name")),
        (json!({"name": "x", "at": "yesterday"}), 400, "invalid_parameter", Some("at")),
        (json!({"name": "x", "at": "snap_00000000000000ff"}), 410, "snapshot_gone", Some("at")),
        (json!({"name": "x", "config": {"mode": "stream"}}), 409, "not_supported", Some("mode")),
        (json!({"name": "x", "config": {"topics": ["other"]}}), 409, "not_supported", Some("topics")),
        (json!({"name": "x", "config": {"lease_ms": 1}}), 400, "invalid_config", Some("lease_ms")),
        (json!({"name": "x", "from": "now"}), 400, "unknown_field", Some("from")),
    ] {
        let refused = fork(&mut http, "billing", &body);
        let problem = refused.json();
        assert_eq!((refused.status, problem["code"].as_str()), (status, Some(code)), "{body}: {problem}");
        assert_eq!(problem["field"].as_str(), field, "{body}: {problem}");
        assert_eq!(problem["outcome"], "none", "{body}");
    }
    assert_eq!(http.request("GET /v1/subscriptions/x", &[], b"").unwrap().status, 404);
    assert_eq!(fork(&mut http, "nobody", &body).json()["code"], "subscription_not_found");
    done(&mut http, "DELETE /v1/topics/orders", &Value::Null);
    let gone = fork(&mut http, "billing", &json!({"name": "late"}));
    assert_eq!(
        (gone.status, gone.json()["code"].as_str()),
        (410, Some("incarnation_gone")),
        "{}",
        gone.text()
    );
    drop(product);
}

#[test]
fn a_fork_that_one_partition_cannot_begin_is_nowhere() {
    let (dir, product, mut http) = started();
    for topic in ["orders.eu", "orders.us"] {
        publish(&mut http, topic, 0..30);
    }
    create(&mut http, "all", &json!({"topics": ["orders.*"]}));
    work(&mut http, "all", |n| n < 10, |_| false);
    let seek = done(&mut http, "POST /v1/subscriptions/all:seek", &json!({"to": "earliest"}));
    let body = json!({"name": "before", "at": seek["undo"]});
    assert_eq!(fork(&mut http, "all", &body).status, 201);
    // Taken in after the seek: its partitions keep nothing of before it, in whatever shards they are.
    publish(&mut http, "orders.later", 0..3);
    for name in ["after", "after2", "after3"] {
        let refused = fork(&mut http, "all", &json!({"name": name, "at": seek["undo"]}));
        let problem = refused.json();
        assert_eq!((refused.status, &problem["code"]), (410, &json!("snapshot_gone")), "{problem}");
        assert_eq!((&problem["outcome"], &problem["field"]), (&json!("none"), &json!("at")), "{problem}");
        let missing = http.request(&format!("GET /v1/subscriptions/{name}"), &[], b"").unwrap();
        assert_eq!(missing.status, 404);
    }
    assert_eq!(
        fork(&mut http, "all", &json!({"name": "after"})).status,
        201,
        "its name is free, and now is kept"
    );
    let (_product, mut http) = restarted(&dir, product);
    assert_eq!(values(&pull(&mut http, "before", 1_000)), (10..30).chain(0..3).collect::<BTreeSet<_>>());
    assert_eq!(total(&mut http, "before", "leased"), 43);
    assert_eq!(pull(&mut http, "after", 1_000).len(), 63);
    assert_eq!(http.request("GET /v1/subscriptions/after2", &[], b"").unwrap().status, 404);
}

#[test]
fn a_fork_of_a_stream_reads_on_from_where_its_cursor_stood() {
    let (dir, product, mut http) = started();
    done(&mut http, "PUT /v1/topics/log", &json!({"partitions": 1}));
    let lines: String = (0..10).map(|n| format!("{{\"data\":{n}}}\n")).collect();
    let media = [("Content-Type", "application/x-ndjson")];
    http.request("POST /v1/topics/log/messages:batch", &media, lines.as_bytes()).unwrap();
    create(&mut http, "ledger", &json!({"mode": "stream", "topics": ["log"]}));
    let read = pull(&mut http, "ledger", 4);
    done(&mut http, "POST /v1/subscriptions/ledger:settle", &json!({"ack": [read[3]["lease"]]}));
    let url = format!("http://{}", product.address);
    let run = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["subscription", "fork", "ledger", "audit", "--lease", "5s", "--url", &url])
        .output()
        .unwrap();
    let said = String::from_utf8(run.stdout).unwrap();
    assert_eq!(
        said,
        "audit forked, from ledger at now, topic log\n",
        "{}",
        String::from_utf8_lossy(&run.stderr)
    );
    let rest = pull(&mut http, "ledger", 100);
    done(&mut http, "POST /v1/subscriptions/ledger:settle", &json!({"ack": [rest.last().unwrap()["lease"]]}));
    let (_product, mut http) = restarted(&dir, product);
    assert_eq!(values(&pull(&mut http, "audit", 100)), (4..10).collect::<BTreeSet<_>>());
    assert_eq!(pull(&mut http, "ledger", 100).len(), 0);
}

/// Milliseconds since the epoch, after everything that was done before and before everything that is done after.
fn instant() -> u64 {
    let now = || {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        u64::try_from(now.as_millis()).unwrap()
    };
    let asked = now() + 1;
    while now() <= asked {
        std::hint::spin_loop();
    }
    asked
}

#[test]
fn what_stood_at_a_time_is_listed_and_forked_and_the_answer_says_which_instant_it_is() {
    let (dir, product, mut http) = started();
    publish(&mut http, "orders", 0..30);
    create(&mut http, "billing", &json!({"topics": ["orders"], "backoff_ms": [0]}));
    let listed = |http: &mut Connection, name: &str, query: &str| {
        http.request(&format!("GET /v1/subscriptions/{name}/state?{query}"), &[], b"").unwrap()
    };
    let before = instant();
    work(&mut http, "billing", |n| n < 10, |n| n < 12);
    let then = instant();
    // A seek keeps what stood before it, with its time.
    done(&mut http, "POST /v1/subscriptions/billing:seek", &json!({"to": "latest"}));
    publish(&mut http, "orders", 30..33);
    let (product, mut http) = restarted(&dir, product);
    for (of, at, count) in
        [("ready", before, 30), ("ready", then, 18), ("dead", then, 2), ("dead", before, 0)]
    {
        let found = listed(&mut http, "billing", &format!("of={of}&as_of=ts:{at}")).json();
        assert_eq!(found["items"].as_array().unwrap().len(), count, "{of} at {at}: {found}");
        assert_eq!(found["as_of_ms"], at, "{found}");
    }
    assert_eq!(listed(&mut http, "billing", "of=leased&as_of=ts:5").json()["code"], "invalid_parameter");
    assert_eq!(listed(&mut http, "billing", "as_of=yesterday").json()["field"], "as_of");
    let made = fork(&mut http, "billing", &json!({"name": "replay", "at": format!("ts:{then}")}));
    assert_eq!(made.status, 201, "{}", made.text());
    let made = made.json();
    assert_eq!(made["forked_from"]["at"], format!("ts:{then}"));
    assert!(made["parts"].as_array().unwrap().iter().all(|part| part["forked_at_ms"] == then), "{made}");
    assert_eq!((&made["totals"]["dead"], &made["totals"]["unsettled"]), (&json!(2), &json!(21)));
    let first = fork(&mut http, "billing", &json!({"name": "anew", "at": format!("ts:{before}")}));
    assert_eq!(first.json()["totals"]["unsettled"], 33);
    let (_product, mut http) = restarted(&dir, product);
    assert_eq!(values(&pull(&mut http, "replay", 100)), (12..33).collect());
    assert_eq!(values(&pull(&mut http, "billing", 100)), (30..33).collect());
}
