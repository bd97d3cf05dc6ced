//! Settling and publishing in one step over HTTP: what its users do with it, what they do wrong, and kill -9.
#![expect(dead_code, reason = "each test uses a part of the product's client")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod kills;
mod product;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use kills::Kills;
use product::{Answer, Connection, Product};
use serde_json::{Value, json};

const JSON: (&str, &str) = ("Content-Type", "application/json");
const PULL: &str = "POST /v1/subscriptions/work:pull";
const SETTLE: &str = "POST /v1/subscriptions/work:settle";

fn send(http: &mut Connection, line: &str, body: &Value) -> Answer {
    http.request(line, &[JSON], body.to_string().as_bytes()).unwrap()
}

fn set_up(http: &mut Connection, inputs: u32) {
    for (line, config) in [
        ("PUT /v1/topics/orders", json!({"partitions": inputs})),
        ("PUT /v1/topics/invoices", json!({"partitions": 3})),
        ("PUT /v1/topics/ledger", json!({})),
        ("PUT /v1/subscriptions/work", json!({"mode": "queue", "topics": ["orders"], "max_attempts": 0})),
    ] {
        let made = send(http, line, &config);
        assert!(matches!(made.status, 200 | 201), "{line}: {}", made.text());
    }
}

/// Messages of one partition.
fn pull(http: &mut Connection, max: u32) -> Vec<Value> {
    let answer = send(http, PULL, &json!({"max": max, "scope": "partition", "wait_ms": 5000}));
    assert_eq!(answer.status, 200, "{}", answer.text());
    let messages = answer.json()["messages"].as_array().unwrap().clone();
    let partitions: BTreeSet<_> = messages.iter().map(|message| message["partition"].as_u64()).collect();
    assert!(partitions.len() <= 1, "{partitions:?}");
    messages
}

fn leases(messages: &[Value]) -> Vec<&Value> {
    messages.iter().map(|message| &message["lease"]).collect()
}

/// Everything that a topic holds.
fn all(http: &mut Connection, topic: &str, partitions: u32) -> Vec<Value> {
    let mut found = Vec::new();
    for partition in 0..partitions {
        let mut next = 0;
        loop {
            let line =
                format!("GET /v1/topics/{topic}/messages?partition={partition}&from={next}&limit=5000");
            let page = http.request(&line, &[], b"").unwrap().json();
            found.extend(page["messages"].as_array().unwrap().iter().cloned());
            next = page["next"].as_u64().unwrap();
            if page["up_to_date"] == true {
                break;
            }
        }
    }
    found
}

#[test]
fn a_worker_takes_transforms_and_hands_on_in_one_step() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let product = Product::start(dir.path());
    let mut http = Connection::open(&product.address).unwrap();
    set_up(&mut http, 2);
    for n in 0..4 {
        let body = json!({ "order": n }).to_string();
        let key = format!("k{n}");
        let line = "POST /v1/topics/orders/messages";
        let sent = http.request(line, &[JSON, ("Message-Key", &*key)], body.as_bytes()).unwrap();
        assert_eq!(sent.status, 201, "{}", sent.text());
    }
    let mut seen = 0;
    while seen < 4 {
        let messages = pull(&mut http, 10);
        seen += messages.len();
        let publish: Vec<Value> = messages
            .iter()
            .flat_map(|message| {
                let order = &message["data"]["order"];
                [
                    json!({"topic": "invoices", "key": message["key"], "headers": {"of": "order"},
                        "data": {"invoice": order}}),
                    json!({"topic": "ledger", "content_type": "text/plain", "data": format!("order {order}")}),
                ]
            })
            .collect();
        let settled = send(&mut http, SETTLE, &json!({"ack": leases(&messages), "publish": publish}));
        assert_eq!(settled.status, 200, "{}", settled.text());
        let settled = settled.json();
        assert_eq!(settled["level"], "quorum");
        assert!(settled["results"].as_array().unwrap().iter().all(|it| it["result"] == "ok"), "{settled}");
        for (asked, told) in publish.iter().zip(settled["published"].as_array().unwrap()) {
            let (topic, partition, offset) = (&told["topic"], &told["partition"], &told["offset"]);
            assert_eq!(topic, &asked["topic"]);
            let topic = topic.as_str().unwrap();
            let line = format!("GET /v1/topics/{topic}/messages?partition={partition}&from={offset}&limit=1");
            let found = http.request(&line, &[], b"").unwrap().json();
            assert_eq!(found["messages"][0]["data"], asked["data"], "{found}");
            let line = format!("GET /v1/topics/{topic}/receipts/{}", told["receipt"].as_str().unwrap());
            let receipt = http.request(&line, &[], b"").unwrap().json();
            assert_eq!(receipt["level"], "quorum", "{receipt}");
        }
    }
    assert_eq!((all(&mut http, "invoices", 3).len(), all(&mut http, "ledger", 1).len()), (4, 4));
    let state = http.request("GET /v1/subscriptions/work", &[], b"").unwrap().json();
    assert_eq!(state["totals"]["unsettled"], 0, "{state}");
}

type Unfit = (Value, u16, &'static str, Option<&'static str>);

/// Settles that cannot be done, with what is answered. `here[0]` is settled, the rest are leased.
fn unfit(here: &[&Value], there: &[&Value]) -> Vec<Unfit> {
    let good = json!({"topic": "ledger", "data": 1});
    let both = |ack: &[&Value]| json!({"ack": ack, "publish": [good]});
    let with = |messages: &[Value]| json!({"ack": [here[1]], "publish": messages});
    let one = |message: Value| with(&[message]);
    let extended = json!({"ack": [here[1]], "extend": [{"lease": here[1]}], "publish": [good]});
    let heavy = json!({"topic": "ledger", "data": "y".repeat(900 << 10)});
    let missing = [good.clone(), json!({"topic": "nothing", "data": 1})];
    vec![
        (both(&here[..2]), 409, "lease_lost", None),
        (both(&[here[1], there[0]]), 409, "not_supported", Some("ack")),
        (extended, 409, "not_supported", Some("extend")),
        (both(&[here[1], here[1]]), 400, "invalid_parameter", None),
        (json!({"publish": [good]}), 400, "malformed", Some("ack")),
        (both(&[&json!("l_x")]), 400, "invalid_cursor", Some("ack[0]")),
        (with(&missing), 404, "topic_not_found", Some("publish")),
        (one(json!({"topic": "closed", "data": 1})), 409, "topic_closed", Some("publish")),
        (one(json!({"topic": "a/b", "data": 1})), 400, "invalid_name", Some("publish[0].topic")),
        (one(json!({"topic": "ledger"})), 400, "malformed", Some("publish[0].data")),
        (one(json!({"topic": "ledger", "data": 1, "kye": 1})), 400, "unknown_field", Some("publish[0].kye")),
        (json!({"ack": [here[1]], "publish": {"topic": "ledger"}}), 400, "malformed", None),
        (one(json!({"topic": "ledger", "data": "x".repeat(1 << 20)})), 413, "too_large", Some("publish")),
        (with(&vec![good.clone(); 1001]), 413, "too_large", Some("publish")),
        (with(&vec![heavy; 4]), 413, "too_large", Some("publish")),
    ]
}

/// Each of these is refused whole: the message stays leased, and nothing is published.
#[test]
fn what_cannot_be_done_together_is_not_done_at_all() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let product = Product::start(dir.path());
    let mut http = Connection::open(&product.address).unwrap();
    set_up(&mut http, 3);
    assert_eq!(send(&mut http, "PUT /v1/topics/closed", &json!({"closed": true})).status, 201);
    let no_more = http.request("PATCH /v1/ns/default", &[JSON], b"{\"auto_create\":false}").unwrap();
    assert_eq!(no_more.status, 200, "{}", no_more.text());
    for n in 0..12 {
        let key = format!("k{n}");
        let line = "POST /v1/topics/orders/messages";
        assert_eq!(http.request(line, &[JSON, ("Message-Key", &*key)], b"{}").unwrap().status, 201);
    }
    let messages = send(&mut http, PULL, &json!({"max": 100})).json()["messages"].as_array().unwrap().clone();
    assert_eq!(messages.len(), 12);
    let of = |partition: u64| {
        messages
            .iter()
            .filter(move |it| it["partition"] == partition)
            .map(|it| &it["lease"])
            .collect::<Vec<_>>()
    };
    let (here, there) = (of(0), of(1));
    assert!(here.len() >= 2 && !there.is_empty(), "the keys spread");
    let good = json!({"topic": "ledger", "data": 1});
    let settled = send(&mut http, SETTLE, &json!({"ack": [here[0]]}));
    assert_eq!(settled.status, 200);
    for (body, status, code, field) in unfit(&here, &there) {
        let refused = send(&mut http, SETTLE, &body);
        let problem = refused.json();
        assert_eq!(
            (refused.status, &problem["code"], &problem["outcome"]),
            (status, &json!(code), &json!("none")),
            "{problem}"
        );
        if let Some(field) = field {
            assert_eq!(problem["field"], field, "{problem}");
        }
    }
    let late = http
        .request(
            SETTLE,
            &[JSON, ("Confirm-Deadline-Ms", "0")],
            json!({"ack": [here[1]], "publish": [good]}).to_string().as_bytes(),
        )
        .unwrap();
    assert_eq!((late.status, &late.json()["code"]), (400, &json!("invalid_header")));
    assert!(all(&mut http, "ledger", 1).is_empty(), "nothing was published");
    let rest: Vec<_> = here[1..].iter().chain(&there).collect();
    let settled = send(&mut http, SETTLE, &json!({"ack": rest, "publish": []}));
    assert_eq!(settled.status, 200, "every lease is held as before: {}", settled.text());
    // Nobody waits: the receipts tell when they have arrived.
    let last = of(2);
    let body = json!({"ack": last, "publish": [good]}).to_string();
    let soon = http.request(SETTLE, &[JSON, ("Confirm-Deadline-Ms", "1")], body.as_bytes()).unwrap();
    assert!(matches!(soon.status, 200 | 202), "{}", soon.text());
    let receipt = soon.json()["published"][0]["receipt"].as_str().unwrap().to_owned();
    let line = format!("GET /v1/topics/ledger/receipts/{receipt}?level=quorum&wait=10");
    let resolved = http.request(&line, &[], b"").unwrap().json();
    assert_eq!((&resolved["level"], &resolved["final"]), (&json!("quorum"), &json!(true)), "{resolved}");
    assert_eq!(all(&mut http, "ledger", 1).len(), 1);
}

type Published = Arc<Mutex<BTreeSet<String>>>;

/// `TORTURE_ROUNDS` rounds (10 by default): publishers and workers that consume, transform and produce, a kill at a
/// random moment, a restart. In the end the outputs are the inputs, each exactly once, whatever was answered or not.
#[test]
fn torture_kill_while_workers_settle_and_publish_gives_every_input_one_output() {
    let mut kills = Kills::of(10);
    let rounds = kills.rounds;
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let confirmed = Published::default();
    for round in 0..rounds {
        let after = kills.after(150..650);
        // All together have to prove something, however slow this machine is.
        let proof = if round + 1 == rounds { rounds * 10 + 1 } else { 0 };
        work_and_kill(dir.path(), round, (after, proof), &confirmed);
    }
    let product = Product::start(dir.path());
    let mut http = Connection::open(&product.address).unwrap();
    let inputs = texts(&all(&mut http, "orders", 2));
    let deadline = Instant::now() + Duration::from_secs(60);
    let outputs = loop {
        let state = http.request("GET /v1/subscriptions/work", &[], b"").unwrap().json();
        let is_settled = state["totals"]["unsettled"] == 0;
        if !is_settled {
            transform(&mut http, 200).expect("nobody kills it any more");
        }
        let outputs = texts(&all(&mut http, "invoices", 3));
        // Those on their way arrive by themselves.
        if (is_settled && outputs.len() >= inputs.len()) || Instant::now() > deadline {
            break outputs;
        }
    };
    let twice: Vec<_> = outputs.iter().filter(|(_, count)| **count != 1).collect();
    assert!(twice.is_empty(), "published more than once: {twice:?}");
    let missing: Vec<_> = inputs.keys().filter(|input| !outputs.contains_key(*input)).collect();
    assert!(missing.is_empty(), "settled without an output: {missing:?}");
    assert_eq!(outputs.len(), inputs.len());
    for input in &*confirmed.lock().unwrap() {
        assert!(inputs.contains_key(input), "{input} was confirmed");
    }
    println!("{} inputs, {} outputs, each once", inputs.len(), outputs.len());
    assert!(inputs.len() as u64 > rounds * 10, "{} inputs prove nothing", inputs.len());
}

fn texts(messages: &[Value]) -> BTreeMap<String, u32> {
    let mut counted = BTreeMap::new();
    for message in messages {
        *counted.entry(message["data"].as_str().unwrap().to_owned()).or_insert(0) += 1;
    }
    counted
}

/// Kills after a time, and not before so many inputs are confirmed in all.
fn work_and_kill(dir: &Path, round: u64, (after, inputs): (Duration, u64), confirmed: &Published) {
    let mut product = Product::start(dir);
    let mut http = Connection::open(&product.address).unwrap();
    set_up(&mut http, 2);
    let threads: Vec<_> = (0..5u64)
        .map(|thread| {
            let (address, confirmed) = (product.address.clone(), Arc::clone(confirmed));
            std::thread::spawn(move || {
                let Ok(mut http) = Connection::open(&address) else { return };
                if thread < 2 {
                    publish(&mut http, round, thread, &confirmed);
                } else {
                    while transform(&mut http, 8).is_some() {}
                }
            })
        })
        .collect();
    std::thread::sleep(after);
    let ends = Instant::now() + Duration::from_secs(60);
    while (confirmed.lock().unwrap().len() as u64) < inputs && Instant::now() < ends {
        std::thread::sleep(Duration::from_millis(20));
    }
    product.kill();
    for thread in threads {
        thread.join().unwrap();
    }
}

/// Publishes until the server is gone.
fn publish(http: &mut Connection, round: u64, thread: u64, confirmed: &Published) {
    for n in 0u64.. {
        let input = format!("{round}-{thread}-{n}");
        let headers = [("Content-Type", "text/plain"), ("Message-Key", &*input)];
        let Ok(answer) = http.request("POST /v1/topics/orders/messages", &headers, input.as_bytes()) else {
            return;
        };
        assert_eq!(answer.status, 201, "{}", answer.text());
        confirmed.lock().unwrap().insert(input);
    }
}

/// Takes some messages and hands them on in one step; `None` once the server is gone.
fn transform(http: &mut Connection, max: u32) -> Option<()> {
    let ask = json!({"max": max, "scope": "partition", "wait_ms": 100, "lease_ms": 1000}).to_string();
    let pulled = http.request(PULL, &[JSON], ask.as_bytes()).ok().filter(|answer| answer.status == 200)?;
    let messages = pulled.json()["messages"].as_array().unwrap().clone();
    if messages.is_empty() {
        return Some(());
    }
    let output = |message: &Value| json!({"topic": "invoices", "key": message["key"], "content_type": "text/plain", "data": message["data"]});
    let publish: Vec<_> = messages.iter().map(output).collect();
    let body = json!({"ack": leases(&messages), "publish": publish}).to_string();
    let settled = http.request(SETTLE, &[JSON], body.as_bytes()).ok()?;
    // Slow workers lose their leases; then nothing was published.
    matches!(settled.status, 200 | 202 | 409 | 429).then_some(())
}
