//! A topic that keeps the newest message of each key, through the public interface of the real product:
//! killed while it is compacted, and restored from the bucket alone.
#![expect(dead_code, reason = "each test uses a part of the product's client")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod frames;
mod product;
mod sealing;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use frames::FrameSocket;
use product::{Connection, Product, done, send};
use sealing::{metric, publish, until, value};
use serde_json::{Value, json};
use weir_protocol::ws::{ClientFrame, Hello, Limit, ServerFrame, Sub};

const MESSAGES: u64 = 420;
const KEYS: u64 = 5;
/// One of so many has no key.
const PLAIN_EVERY: u64 = 60;
const BYTES: usize = 64 << 10;
const PATIENCE: Duration = Duration::from_secs(480);
/// What is new is left as it is while it is less than a MiB in objects.
const NEW_MAX: usize = 60;
/// The compactor looks for what to do every two seconds: two looks, and more.
const LOOKS: Duration = Duration::from_secs(6);

fn key(n: u64) -> Option<String> {
    (!n.is_multiple_of(PLAIN_EVERY)).then(|| format!("k{}", n % KEYS))
}

/// Whether the message is there in any case: it has no key, or is the newest of its.
fn must_be_there(n: u64) -> bool {
    key(n).is_none_or(|own| !(n + 1..MESSAGES).any(|later| key(later).is_some_and(|key| key == own)))
}

fn start(dir: &Path, bucket: &str) -> (Product, Connection) {
    let mut options = vec!["--object-store", bucket];
    options.extend(sealing::OPTIONS.as_flattened());
    let product = Product::start_with(dir, "127.0.0.1:0", &options);
    let http = Connection::open(&product.address).unwrap();
    (product, http)
}

/// The offsets of all that is there; each message is what was published there.
fn read_all(http: &mut Connection) -> Vec<u64> {
    let (mut found, mut next) = (Vec::new(), 0);
    loop {
        let line = format!("GET /v1/topics/table/messages?from={next}&limit=40&max_bytes=3000000");
        let answer = http.request(&line, &[], b"").unwrap();
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(answer.header("cache-control"), Some("no-store"), "what is there may be dropped later");
        let page = answer.json();
        for message in page["messages"].as_array().unwrap() {
            let offset = message["offset"].as_u64().unwrap();
            assert!(message["data"] == value(offset, BYTES), "message {offset} is another");
            assert_eq!(message["key"].as_str().map(str::to_owned), key(offset));
            found.push(offset);
        }
        next = page["next"].as_u64().unwrap();
        if page["up_to_date"] == true {
            assert_eq!(next, MESSAGES, "the end stays where it is");
            break;
        }
    }
    assert!(found.is_sorted_by(|a, b| a < b), "in order: {found:?}");
    let missing: Vec<_> = (0..MESSAGES).filter(|n| must_be_there(*n) && !found.contains(n)).collect();
    assert!(missing.is_empty(), "{missing:?} are gone");
    found
}

/// The offsets of all that is there once hardly anything is new and the compactor has looked at that: what is
/// worth a pass has one, and a pass drops something at every look.
fn all_when_it_rests(http: &mut Connection, ends: Instant) -> Vec<u64> {
    let (mut found, mut since) = (read_all(http), Instant::now());
    let few = (0..MESSAGES).filter(|n| must_be_there(*n)).count() + NEW_MAX;
    loop {
        let is_sealed = metric(http, "weir_storage_upload_lag_seconds") == 0.0;
        if is_sealed && found.len() <= few && since.elapsed() > LOOKS {
            return found;
        }
        assert!(Instant::now() < ends, "it goes on being compacted: {found:?}");
        std::thread::sleep(Duration::from_millis(20));
        let now = read_all(http);
        if !is_sealed || now != found {
            (found, since) = (now, Instant::now());
        }
    }
}

/// One message that was dropped says which is next; that one is there.
fn ask_for_dropped(http: &mut Connection, found: &[u64]) {
    for gone in (0..MESSAGES).filter(|n| !found.contains(n)).step_by(37) {
        let answer = http.request(&format!("GET /v1/topics/table/messages/0/{gone}"), &[], b"").unwrap();
        let problem = answer.json();
        assert_eq!((answer.status, &problem["code"]), (410, &json!("compacted")), "{problem}");
        let next = found.iter().find(|offset| **offset > gone).unwrap();
        assert_eq!(problem["current"]["next"], *next, "{problem}");
        let there = http.request(&format!("GET /v1/topics/table/messages/0/{next}"), &[], b"").unwrap();
        assert_eq!((there.status, there.text() == value(*next, BYTES)), (200, true));
    }
    let beyond = http.request(&format!("GET /v1/topics/table/messages/0/{MESSAGES}"), &[], b"").unwrap();
    assert_eq!(beyond.status, 416, "{}", beyond.text());
}

fn work_off(http: &mut Connection, name: &str) -> Vec<u64> {
    let (mut found, ends) = (Vec::new(), Instant::now() + PATIENCE);
    loop {
        let body = json!({"max": 20, "wait_ms": 500, "holder": "me"});
        let pulled = done(http, &format!("POST /v1/subscriptions/{name}:pull"), &body);
        let messages = pulled["messages"].as_array().unwrap();
        if messages.is_empty() {
            // What was looked at meanwhile may be holes alone.
            let seen = done(http, &format!("GET /v1/subscriptions/{name}"), &Value::Null);
            if seen["totals"]["unsettled"] == 0 {
                return found;
            }
            assert!(Instant::now() < ends, "{name}: {seen}");
            continue;
        }
        found.extend(messages.iter().map(|message| message["offset"].as_u64().unwrap()));
        let leases: Vec<_> = messages.iter().map(|message| message["lease"].clone()).collect();
        done(http, &format!("POST /v1/subscriptions/{name}:settle"), &json!({"ack": leases}));
    }
}

/// What a follower over the WebSocket is sent from the earliest message on.
async fn follow(address: &str, form: &'static str) -> Vec<u64> {
    let mut socket = FrameSocket::connect(address, form).await;
    socket.send(0, ClientFrame::Hello(Hello { v: 1, ..Hello::default() })).await;
    let limit = Limit { msgs: 1_000_000, bytes: 1 << 30 };
    let from = Some("earliest".parse().unwrap());
    let sub = Sub { topic: Some("table".into()), from, limit, ..Sub::default() };
    socket.send(1, ClientFrame::Sub(sub)).await;
    let mut found = Vec::new();
    loop {
        match socket.next().await.1 {
            ServerFrame::Msg(msg) => found.push(msg.o),
            ServerFrame::Msgs(msgs) => found.extend(msgs.msgs.iter().map(|msg| msg.o)),
            ServerFrame::Deliveries(frame) => {
                found.extend(frame.records().unwrap().iter().map(|(record, _)| record.offset.0));
            }
            ServerFrame::CaughtUp(_) => return found,
            ServerFrame::Gap(gap) => panic!("{gap:?}"),
            _ => {}
        }
    }
}

fn restore(bucket: &str, data: &Path) -> Value {
    let arguments = ["restore", "--json", "--bucket", bucket, "--data-dir", data.to_str().unwrap()];
    let output = Command::new(env!("CARGO_BIN_EXE_weir")).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_compacted_topic_keeps_the_newest_of_each_key_whatever_happens_to_its_machine() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let bucket = format!("file://{}", dir.path().join("bucket").display());
    let (mut product, mut http) = start(dir.path(), &bucket);
    done(&mut http, "PUT /v1/topics/table", &json!({"partitions": 1, "compaction": "key"}));
    for (name, mode) in [("work", "queue"), ("tail", "stream"), ("later", "queue")] {
        let config = json!({"mode": mode, "topics": ["table"], "start": "earliest"});
        done(&mut http, &format!("PUT /v1/subscriptions/{name}"), &config);
    }
    let ends = Instant::now() + PATIENCE;
    for n in 0..MESSAGES {
        publish(&mut http, "table", key(n).as_deref(), &value(n, BYTES), ends);
    }
    // A part of the partition is compacted, and more is on its way.
    until(&mut http, "a pack is compacted", ends, &|http| {
        metric(http, "weir_tier_compacted_records_total") > 0.0
    });
    product.kill();
    let (mut product, mut http) = start(dir.path(), &bucket);
    read_all(&mut http);
    let found = all_when_it_rests(&mut http, ends);
    ask_for_dropped(&mut http, &found);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for form in ["weir.v1.json", "weir.v1.bin"] {
        assert_eq!(runtime.block_on(follow(&product.address, form)), found, "{form}");
    }
    for name in ["work", "tail"] {
        assert_eq!(work_off(&mut http, name), found, "{name}");
        let seen = done(&mut http, &format!("GET /v1/subscriptions/{name}"), &Value::Null);
        assert_eq!(seen["totals"]["unsettled"], 0, "{seen}");
    }
    // The newest manifest knows all of it: what changes next is a message more.
    let sure = [("Confirm", "archived"), ("Confirm-Deadline-Ms", "60000"), ("Message-Key", "k0")];
    http.patience(Duration::from_secs(90));
    let more = http.request("POST /v1/topics/other/messages", &sure, b"").unwrap();
    assert_eq!(more.status, 201, "{}", more.text());
    product.kill();

    let again = dir.path().join("again");
    restore(&bucket, &again.join("data"));
    let (mut product, mut http) = start(&again, &bucket);
    let restored = all_when_it_rests(&mut http, ends);
    assert!(restored.iter().all(|offset| found.contains(offset)), "nothing comes back");
    ask_for_dropped(&mut http, &restored);
    assert_eq!(work_off(&mut http, "later"), restored);
    // Of what is left nobody promises that it was all there is, though no more goes.
    assert_eq!(send(&mut http, "PATCH /v1/topics/table", &json!({"compaction": "none"})).status, 200);
    for what in ["messages?from=1&limit=2".to_owned(), format!("messages/0/{}", restored[0])] {
        let answer = http.request(&format!("GET /v1/topics/table/{what}"), &[], b"").unwrap();
        assert_eq!((answer.status, answer.header("cache-control")), (200, Some("no-store")), "{what}");
        let is_page = what.contains('?');
        assert_eq!(answer.header("etag").unwrap().contains(":k"), is_page, "it counts what is left");
    }
    assert!(product.stop());
}

#[test]
fn what_makes_no_sense_with_compaction_is_refused_and_an_empty_message_deletes_its_key() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let bucket = format!("file://{}", dir.path().join("bucket").display());
    let (mut product, mut http) = start(dir.path(), &bucket);
    let both = json!({"compaction": "key", "retention": {"until_settled": true}});
    let answer = send(&mut http, "PUT /v1/topics/t", &both);
    let problem = answer.json();
    assert_eq!((answer.status, &problem["code"]), (400, &json!("invalid_config")), "{problem}");
    let config =
        json!({"compaction": "key", "retention": {"age_ms": 3_600_000_000_u64, "records": 1_000_000}});
    let made = done(&mut http, "PUT /v1/topics/t", &config);
    assert_eq!(made["config"]["compaction"], "key");
    let until_settled = json!({"retention": {"until_settled": true}});
    assert_eq!(send(&mut http, "PATCH /v1/topics/t", &until_settled).status, 400);
    assert_eq!(send(&mut http, "PATCH /v1/topics/t", &json!({"compaction": "none"})).status, 200);
    assert_eq!(send(&mut http, "PATCH /v1/topics/t", &json!({"compaction": "key"})).status, 200);
    // A key may be deleted like this; the message is shown as any other while it is there.
    let deletes = http.request("POST /v1/topics/t/messages", &[("Message-Key", "gone")], b"").unwrap();
    assert_eq!(deletes.status, 201, "{}", deletes.text());
    let page = done(&mut http, "GET /v1/topics/t/messages", &Value::Null);
    let shown: BTreeMap<_, _> = page["messages"][0].as_object().unwrap().iter().collect();
    assert_eq!(shown[&"key".to_owned()], "gone", "{page}");
    assert!(product.stop());
}
