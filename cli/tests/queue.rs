//! A topic as a work queue over HTTP: what its users do with it, and kill -9 while they do.
#![expect(dead_code, reason = "each test uses a part of the product's client")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod kills;
mod product;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use kills::Kills;
use product::{Answer, Connection, Product};
use serde_json::{Value, json};

const JSON: (&str, &str) = ("Content-Type", "application/json");

fn send(http: &mut Connection, line: &str, body: &Value) -> Answer {
    http.request(line, &[JSON], body.to_string().as_bytes()).unwrap()
}

fn pull(http: &mut Connection, body: &Value) -> Vec<Value> {
    let answer = send(http, "POST /v1/subscriptions/billing:pull", body);
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()["messages"].as_array().unwrap().clone()
}

fn ids(messages: &[Value]) -> Vec<&str> {
    messages.iter().map(|message| message["id"].as_str().unwrap()).collect()
}

fn leases(messages: &[Value]) -> Vec<&str> {
    messages.iter().map(|message| message["lease"].as_str().unwrap()).collect()
}

/// One topic, two workers of which one dies with what it holds, a reader of the whole stream, a restart by force, and a
/// seek that delivers again.
#[test]
fn one_topic_is_a_queue_of_two_workers_a_stream_and_both_again_after_a_seek() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut product = Product::start(dir.path());
    let mut http = Connection::open(&product.address).unwrap();
    for n in 1..=4 {
        let sent = send(&mut http, "POST /v1/topics/orders/messages", &json!({ "order": n }));
        assert_eq!(sent.status, 201, "{}", sent.text());
    }
    let work = json!({"mode": "queue", "topics": ["orders"], "lease_ms": 1000, "dlq": "orders.dead"});
    let made = send(&mut http, "PUT /v1/subscriptions/billing", &work);
    assert_eq!(made.status, 201, "{}", made.text());
    assert_eq!(send(&mut http, "PUT /v1/subscriptions/billing", &work).status, 200, "twice is once");

    // The first takes two and dies; the second does the others, and those two once their leases are over:
    // which is not before it has the others.
    let lost = pull(&mut http, &json!({"max": 2, "lease_ms": 60_000, "holder": "worker-1"}));
    assert_eq!(ids(&lost), ["0:0", "0:1"]);
    let held = http.request("GET /v1/subscriptions/billing/leases", &[], b"").unwrap().json();
    assert_eq!(held["items"][0]["holder"], "worker-1", "{held}");
    let mut done = pull(&mut http, &json!({"max": 9, "lease_ms": 60_000, "holder": "worker-2"}));
    assert_eq!(ids(&done), ["0:2", "0:3"]);
    let brief: Vec<_> = leases(&lost).iter().map(|lease| json!({"lease": lease, "ms": 1_000})).collect();
    let settled = send(&mut http, "POST /v1/subscriptions/billing:settle", &json!({"extend": brief}));
    assert_eq!(settled.status, 200, "{}", settled.text());
    while done.len() < 4 {
        let ask = json!({"max": 9, "wait_ms": 20_000, "lease_ms": 60_000, "holder": "worker-2"});
        done.extend(pull(&mut http, &ask));
    }
    assert_eq!(ids(&done[2..]), ["0:0", "0:1"]);
    assert_eq!(done[2]["attempt"], 2);
    assert!(done[2]["fence"].as_u64() > lost[0]["fence"].as_u64());
    let late = send(&mut http, "POST /v1/subscriptions/billing:settle", &json!({"ack": leases(&lost)}));
    assert_eq!(late.status, 207, "{}", late.text());
    let late = late.json();
    assert_eq!(
        (&late["results"][0]["result"], &late["results"][0]["current"]["attempt"]),
        (&json!("lease_lost"), &json!(2))
    );
    let settled = send(&mut http, "POST /v1/subscriptions/billing:settle", &json!({"ack": leases(&done)}));
    assert_eq!(settled.status, 200, "{}", settled.text());

    // Whoever reads the topic as a stream sees all of it, and sees nothing of the queue.
    let stream = http.request("GET /v1/topics/orders/messages", &[], b"").unwrap().json();
    let orders: Vec<_> =
        stream["messages"].as_array().unwrap().iter().map(|it| it["data"]["order"].clone()).collect();
    assert_eq!(orders, [1, 2, 3, 4]);

    product.kill();
    let product = Product::start(dir.path());
    let mut http = Connection::open(&product.address).unwrap();
    assert!(pull(&mut http, &json!({"max": 9})).is_empty(), "what was settled stays settled");
    let seek = "POST /v1/subscriptions/billing:seek";
    let dry = send(&mut http, &format!("{seek}?dry_run=true"), &json!({"to": "0:2"}));
    assert_eq!(dry.status, 400, "an offset is a number");
    let dry = send(&mut http, &format!("{seek}?dry_run=true"), &json!({"to": "2"})).json();
    assert_eq!((&dry["redelivered"], &dry["skipped"]), (&json!(2), &json!(0)), "{dry}");
    assert!(pull(&mut http, &json!({"max": 9})).is_empty(), "nothing was done");
    assert_eq!(send(&mut http, seek, &json!({"to": "2"})).status, 200);
    let again = pull(&mut http, &json!({"max": 9}));
    assert_eq!(ids(&again), ["0:2", "0:3"]);
    assert_eq!(again[0]["attempt"], 1);
}

/// What the rounds of the torture have seen.
#[derive(Default)]
struct Seen {
    /// Confirmed messages.
    published: BTreeSet<String>,
    /// Settled, and answered so: never to be delivered again.
    settled: BTreeSet<String>,
    /// Settles that were sent; without an answer they may have been done.
    asked: BTreeSet<String>,
    /// Given up, and answered so.
    dead: BTreeSet<String>,
}

type Shared = Arc<Mutex<Seen>>;

/// `TORTURE_ROUNDS` rounds (3 by default): publishers and workers, a kill at a random moment, a restart. What was
/// answered as settled never comes again, what was given up is in its topic once, nothing else is lost.
#[test]
fn torture_kill_while_workers_settle_brings_nothing_back_and_loses_nothing() {
    let mut kills = Kills::of(3);
    let rounds = kills.rounds;
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (seen, numbers) = (Shared::default(), Arc::new(AtomicU64::new(0)));
    for round in 0..rounds {
        let after = kills.after(100..800);
        // All together have to prove something, however slow this machine is.
        let proof = if round + 1 == rounds { rounds } else { 0 };
        work_and_kill(dir.path(), (after, proof), &seen, &numbers);
        let seen = seen.lock().unwrap();
        println!("round {round}: {} published, {} settled", seen.published.len(), seen.settled.len());
    }
    let product = Product::start(dir.path());
    let mut http = Connection::open(&product.address).unwrap();
    let mut drained = BTreeSet::new();
    loop {
        let state = http.request("GET /v1/subscriptions/billing", &[], b"").unwrap().json();
        if state["totals"]["unsettled"] == 0 && state["totals"]["dead_pending"] == 0 {
            break;
        }
        let messages = pull(&mut http, &json!({"max": 100, "wait_ms": 500}));
        if !messages.is_empty() {
            let settled =
                send(&mut http, "POST /v1/subscriptions/billing:settle", &json!({"ack": leases(&messages)}));
            assert_eq!(settled.status, 200, "{}", settled.text());
        }
        drained.extend(ids(&messages).into_iter().map(str::to_owned));
    }
    let seen = seen.lock().unwrap();
    let back: Vec<_> = drained.intersection(&seen.settled).collect();
    assert!(back.is_empty(), "settled, and delivered again: {back:?}");
    for id in &seen.published {
        assert!(seen.asked.contains(id) || drained.contains(id), "{id} is lost");
    }
    let letters = letters(&mut http);
    for id in &seen.dead {
        assert_eq!(letters.get(id), Some(&1), "{id} was given up");
    }
    assert!(letters.values().all(|count| *count == 1), "{letters:?}");
    assert!(seen.settled.len() as u64 > rounds * 10, "too little was settled to prove anything");
    assert!(seen.dead.len() as u64 >= rounds, "too little was given up to prove anything");
}

/// Kills after a time, and not before something is settled and given up for each of the `proven` rounds.
fn work_and_kill(dir: &Path, (after, proven): (Duration, u64), seen: &Shared, numbers: &Arc<AtomicU64>) {
    let mut product = Product::start(dir);
    let mut http = Connection::open(&product.address).unwrap();
    for (line, config) in [
        ("PUT /v1/topics/orders", json!({"partitions": 2})),
        ("PUT /v1/topics/orders.dead", json!({})),
        (
            "PUT /v1/subscriptions/billing",
            json!({"mode": "queue", "topics": ["orders"], "dlq": "orders.dead", "max_attempts": 100}),
        ),
    ] {
        let made = send(&mut http, line, &config);
        assert!(matches!(made.status, 200 | 201), "{}", made.text());
    }
    let stopping = Arc::new(AtomicBool::new(false));
    let threads: Vec<_> = (0..5)
        .map(|thread| {
            let (address, seen, numbers) = (product.address.clone(), Arc::clone(seen), Arc::clone(numbers));
            let stopping = Arc::clone(&stopping);
            std::thread::spawn(move || match thread {
                0 | 1 => publish(&address, &seen, &numbers),
                _ => work(&address, &seen, &stopping),
            })
        })
        .collect();
    std::thread::sleep(after);
    let ends = Instant::now() + Duration::from_secs(60);
    let is_proven = || {
        let seen = seen.lock().unwrap();
        seen.settled.len() as u64 > proven * 10 && seen.dead.len() as u64 >= proven
    };
    while proven > 0 && !is_proven() && Instant::now() < ends {
        std::thread::sleep(Duration::from_millis(20));
    }
    product.kill();
    stopping.store(true, Ordering::Release);
    for thread in threads {
        thread.join().unwrap();
    }
}

/// Publishes until the server is gone.
fn publish(address: &str, seen: &Shared, numbers: &AtomicU64) {
    let Ok(mut http) = Connection::open(address) else { return };
    loop {
        let n = numbers.fetch_add(1, Ordering::Relaxed);
        let body = json!({ "n": n }).to_string();
        let headers = [JSON, ("Message-Key", &*format!("k{}", n % 20))];
        let Ok(answer) = http.request("POST /v1/topics/orders/messages", &headers, body.as_bytes()) else {
            return;
        };
        assert_eq!(answer.status, 201, "{}", answer.text());
        let placed = answer.json();
        seen.lock().unwrap().published.insert(format!("{}:{}", placed["partition"], placed["offset"]));
    }
}

/// Pulls and settles until the server is gone.
fn work(address: &str, seen: &Shared, stopping: &AtomicBool) {
    let Ok(mut http) = Connection::open(address) else { return };
    let ask = json!({"max": 8, "wait_ms": 200}).to_string();
    while !stopping.load(Ordering::Acquire) {
        let line = "POST /v1/subscriptions/billing:pull";
        let Ok(answer) = http.request(line, &[JSON], ask.as_bytes()) else { return };
        if answer.status != 200 {
            return;
        }
        let messages = answer.json()["messages"].as_array().unwrap().clone();
        if messages.is_empty() {
            continue;
        }
        let (mut ack, mut nack, mut dead) = (Vec::new(), Vec::new(), Vec::new());
        let (mut settled, mut given_up) = (Vec::new(), Vec::new());
        for message in &messages {
            let (id, lease) = (message["id"].as_str().unwrap().to_owned(), message["lease"].clone());
            let n = message["data"]["n"].as_u64().unwrap();
            let mut seen = seen.lock().unwrap();
            assert!(!seen.settled.contains(&id), "{id} was settled and is delivered again");
            match (n % 11, n % 5, message["attempt"].as_u64()) {
                (3, _, _) => {
                    dead.push(json!({"lease": lease, "reason": "of no use"}));
                    given_up.push(id.clone());
                }
                (_, 1, Some(1)) => {
                    nack.push(json!({"lease": lease, "delay_ms": 50}));
                    continue;
                }
                _ => ack.push(lease),
            }
            seen.asked.insert(id.clone());
            settled.push(id);
        }
        let body = json!({"ack": ack, "nack": nack, "dead": dead}).to_string();
        let line = "POST /v1/subscriptions/billing:settle";
        let Ok(answer) = http.request(line, &[JSON], body.as_bytes()) else { return };
        if answer.status != 200 {
            return;
        }
        let mut seen = seen.lock().unwrap();
        seen.settled.extend(settled);
        seen.dead.extend(given_up);
    }
}

/// Dead letters by where they came from, with how often they are there.
fn letters(http: &mut Connection) -> BTreeMap<String, u64> {
    let (mut letters, mut next) = (BTreeMap::new(), 0);
    loop {
        let line = format!("GET /v1/topics/orders.dead/messages?from={next}&limit=5000");
        let page = http.request(&line, &[], b"").unwrap().json();
        for message in page["messages"].as_array().unwrap() {
            let header = |name: &str| message["headers"][name].as_str().unwrap().to_owned();
            let id = format!("{}:{}", header("weir-dead-partition"), header("weir-dead-offset"));
            *letters.entry(id).or_insert(0) += 1;
        }
        next = page["next"].as_u64().unwrap();
        if page["up_to_date"] == true {
            return letters;
        }
    }
}

/// A kill at a random moment while workers take turns at ten keys: each key's messages are worked on in their
/// order, before and after, and none while another of its key is held.
#[test]
fn torture_kill_keeps_the_order_of_every_key() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let asked = Arc::new(Mutex::new(BTreeSet::<String>::new()));
    let mut confirmed = BTreeSet::new();
    for round in 0..3u64 {
        let mut product = Product::start(dir.path());
        let mut http = Connection::open(&product.address).unwrap();
        let config = json!({"topics": ["orders"], "order": "key", "backoff_ms": [20], "max_attempts": 0});
        for (line, config) in
            [("PUT /v1/topics/orders", json!({"partitions": 2})), ("PUT /v1/subscriptions/billing", config)]
        {
            let made = send(&mut http, line, &config);
            assert!(matches!(made.status, 200 | 201), "{}", made.text());
        }
        let stopping = Arc::new(AtomicBool::new(false));
        let workers: Vec<_> = (0..3)
            .map(|_| {
                let (address, asked, stopping) =
                    (product.address.clone(), Arc::clone(&asked), Arc::clone(&stopping));
                std::thread::spawn(move || work_in_order(&address, &asked, &stopping))
            })
            .collect();
        for n in 0..120 + 37 * round {
            let (body, key) = (json!({ "n": n }).to_string(), format!("k{}", n % 10));
            let headers = [JSON, ("Message-Key", &*key)];
            let sent = http.request("POST /v1/topics/orders/messages", &headers, body.as_bytes()).unwrap();
            let placed = sent.json();
            confirmed.insert(format!("{}:{} {key}", placed["partition"], placed["offset"]));
        }
        product.kill();
        stopping.store(true, Ordering::Release);
        workers.into_iter().for_each(|worker| worker.join().unwrap());
    }
    let product = Product::start(dir.path());
    let mut http = Connection::open(&product.address).unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while http.request("GET /v1/subscriptions/billing", &[], b"").unwrap().json()["totals"]["unsettled"] != 0
    {
        assert!(Instant::now() < deadline, "messages are stuck");
        take_in_order(&mut http, &asked);
    }
    let asked = asked.lock().unwrap();
    let lost: Vec<_> = confirmed.iter().filter(|place| !asked.contains(*place)).collect();
    assert!(lost.is_empty(), "{lost:?}");
    assert!(confirmed.len() > 400);
}

fn work_in_order(address: &str, asked: &Mutex<BTreeSet<String>>, stopping: &AtomicBool) {
    let Ok(mut http) = Connection::open(address) else { return };
    while !stopping.load(Ordering::Acquire) && take_in_order(&mut http, asked) {}
}

/// Takes some, gives every seventh back at first, acknowledges the rest. False once the server is gone.
fn take_in_order(http: &mut Connection, asked: &Mutex<BTreeSet<String>>) -> bool {
    let ask = json!({"max": 6, "wait_ms": 100}).to_string();
    let Ok(answer) = http.request("POST /v1/subscriptions/billing:pull", &[JSON], ask.as_bytes()) else {
        return false;
    };
    if answer.status != 200 {
        return false;
    }
    let (mut ack, mut nack, mut held) = (Vec::new(), Vec::new(), BTreeSet::new());
    for message in answer.json()["messages"].as_array().unwrap() {
        let (key, lease) = (message["key"].as_str().unwrap(), message["lease"].clone());
        let (partition, offset) = (&message["partition"], message["offset"].as_u64().unwrap());
        assert!(held.insert(key.to_owned()), "two of {key} at once");
        let mut asked = asked.lock().unwrap();
        let is_given_back = offset % 7 == 3 && message["attempt"] == 1;
        if is_given_back {
            nack.push(json!({ "lease": lease }));
        } else {
            ack.push(lease);
            asked.insert(format!("{partition}:{offset} {key}"));
        }
        let later = asked.iter().find(|place| {
            let (id, other) = place.split_once(' ').unwrap();
            let (in_partition, at) = id.split_once(':').unwrap();
            other == key && in_partition == *partition && at.parse::<u64>().unwrap() > offset
        });
        assert_eq!(later, None, "{partition}:{offset} comes after a later one of {key}");
    }
    let body = json!({"ack": ack, "nack": nack}).to_string();
    match http.request("POST /v1/subscriptions/billing:settle", &[JSON], body.as_bytes()) {
        Ok(answer) => answer.status == 200,
        Err(_) => false,
    }
}
