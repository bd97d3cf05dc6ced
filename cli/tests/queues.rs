//! A topic as a work queue, through the public interface of the real product.
#![expect(dead_code, reason = "each test uses a part of the product's client")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod product;

use std::process::Command;
use std::time::{Duration, Instant};

use product::{Answer, Connection, Product, started};
use serde_json::{Value, json};

fn post(http: &mut Connection, path: &str, body: &Value) -> Answer {
    http.request(&format!("POST {path}"), &[], body.to_string().as_bytes()).unwrap()
}

fn create(http: &mut Connection, partitions: u32, more: &Value) {
    let topic = json!({"partitions": partitions}).to_string();
    assert_eq!(http.request("PUT /v1/topics/orders", &[], topic.as_bytes()).unwrap().status, 201);
    let mut config = json!({"mode": "queue", "topics": ["orders"]});
    config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let made = http.request("PUT /v1/subscriptions/billing", &[], config.to_string().as_bytes()).unwrap();
    assert_eq!(made.status, 201, "{}", made.text());
}

fn publish(http: &mut Connection, count: usize) {
    let lines: String =
        (0..count).map(|n| format!("{{\"key\":\"k{n}\",\"data\":{{\"n\":{n}}}}}\n")).collect();
    let media = [("Content-Type", "application/x-ndjson")];
    let sent = http.request("POST /v1/topics/orders/messages:batch", &media, lines.as_bytes()).unwrap();
    assert_eq!(sent.status, 200, "{}", sent.text());
}

fn pull(http: &mut Connection, body: &Value) -> Vec<Value> {
    let pulled = post(http, "/v1/subscriptions/billing:pull", body);
    assert_eq!(pulled.status, 200, "{}", pulled.text());
    pulled.json()["messages"].as_array().unwrap().clone()
}

fn leases(messages: &[Value]) -> Vec<&str> {
    messages.iter().map(|message| message["lease"].as_str().unwrap()).collect()
}

#[test]
fn every_message_is_worked_on_once_and_what_fails_comes_again_and_ends_as_a_dead_letter() {
    let (_dir, product, mut http) = started();
    create(&mut http, 3, &json!({"dlq": "orders.dlq", "backoff_ms": [0], "max_attempts": 2}));
    publish(&mut http, 20);
    let all = pull(&mut http, &json!({"max": 100}));
    let mut numbers: Vec<_> = all.iter().map(|message| message["data"]["n"].as_u64().unwrap()).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..20).collect::<Vec<_>>());
    assert!(pull(&mut http, &json!({})).is_empty(), "all are leased");

    let all_leases = leases(&all);
    let (bad, good) = all_leases.split_first().unwrap();
    let body = json!({"ack": good, "nack": [{"lease": bad, "reason": "no stock"}]});
    let settled = post(&mut http, "/v1/subscriptions/billing:settle", &body);
    assert_eq!(settled.status, 200, "{}", settled.text());
    let again = pull(&mut http, &json!({"wait_ms": 10_000}));
    assert_eq!((again.len(), &again[0]["attempt"]), (1, &json!(2)));
    assert!(again[0]["fence"].as_u64() > all[0]["fence"].as_u64());
    let stale = post(&mut http, "/v1/subscriptions/billing:settle", &json!({"ack": [bad]}));
    assert_eq!((stale.status, &stale.json()["results"][0]["result"]), (207, &json!("lease_lost")));
    assert_eq!(stale.json()["results"][0]["current"]["attempt"], 2);
    let body = json!({"nack": [{"lease": again[0]["lease"]}]});
    assert_eq!(post(&mut http, "/v1/subscriptions/billing:settle", &body).status, 200);
    assert!(pull(&mut http, &json!({"wait_ms": 500})).is_empty());
    let dead = http.request("GET /v1/topics/orders.dlq/messages?wait=10", &[], b"").unwrap();
    assert_eq!(dead.status, 200);
    let dead = &dead.json()["messages"][0];
    assert_eq!(
        (&dead["data"], &dead["headers"]["weir-dead-subscription"]),
        (&all[0]["data"], &json!("billing"))
    );
    let shown = http.request("GET /v1/subscriptions/billing", &[], b"").unwrap().json();
    assert_eq!((&shown["totals"]["unsettled"], &shown["totals"]["dead"]), (&json!(0), &json!(1)));

    let body = json!({"to": "earliest"});
    let moved = post(&mut http, "/v1/subscriptions/billing:seek", &body).json();
    assert_eq!((&moved["redelivered"], &moved["skipped"]), (&json!(20), &json!(0)));
    assert_eq!(pull(&mut http, &json!({"max": 100})).len(), 20);
    drop(product);
}

#[test]
fn settled_messages_stay_settled_across_a_crash_and_leases_that_were_held_come_again() {
    let (dir, mut product, mut http) = started();
    create(&mut http, 1, &json!({}));
    publish(&mut http, 3);
    let all = pull(&mut http, &json!({"lease_ms": 600_000}));
    let body = json!({"ack": [leases(&all)[1]]});
    assert_eq!(post(&mut http, "/v1/subscriptions/billing:settle", &body).status, 200);
    product.kill();
    let product = Product::start(dir.path());
    let mut http = Connection::open(&product.address).unwrap();
    let again = pull(&mut http, &json!({"wait_ms": 10_000}));
    let ids: Vec<_> = again.iter().map(|message| message["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["0:0", "0:2"]);
    assert!(again[0]["fence"].as_u64() > all[2]["fence"].as_u64(), "fences grow across restarts");
    let body = json!({"ack": [leases(&all)[0]]});
    let stale = post(&mut http, "/v1/subscriptions/billing:settle", &body);
    assert_eq!(stale.json()["results"][0]["result"], "lease_lost");
}

#[test]
fn a_waiting_pull_gets_the_next_message_at_once() {
    let (_dir, product, mut http) = started();
    create(&mut http, 3, &json!({}));
    let address = product.address.clone();
    let publisher = std::thread::spawn(move || {
        let mut http = Connection::open(&address).unwrap();
        std::thread::sleep(Duration::from_millis(300));
        publish(&mut http, 1);
    });
    let start = Instant::now();
    let found = pull(&mut http, &json!({"wait_ms": 20_000}));
    assert_eq!(found.len(), 1);
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    publisher.join().unwrap();
}

#[test]
fn a_namespace_with_a_subscription_is_not_deleted() {
    let (_dir, _product, mut http) = started();
    assert_eq!(http.request("PUT /v1/ns/shop", &[], b"{}").unwrap().status, 201);
    assert_eq!(http.request("PUT /v1/ns/shop/topics/orders", &[], b"{}").unwrap().status, 201);
    let config = br#"{"topics":["orders"]}"#;
    assert_eq!(http.request("PUT /v1/ns/shop/subscriptions/billing", &[], config).unwrap().status, 201);
    assert_eq!(http.request("DELETE /v1/ns/shop/topics/orders", &[], b"").unwrap().status, 204);
    let refused = http.request("DELETE /v1/ns/shop", &[], b"").unwrap();
    assert_eq!((refused.status, &refused.json()["code"]), (409, &json!("namespace_not_empty")));
    assert_eq!(http.request("DELETE /v1/ns/shop/subscriptions/billing", &[], b"").unwrap().status, 204);
    assert_eq!(http.request("DELETE /v1/ns/shop", &[], b"").unwrap().status, 204);
}

#[test]
fn the_command_line_makes_a_subscription_works_on_it_and_moves_it() {
    let (_dir, product, mut http) = started();
    let weir = |arguments: &[&str]| {
        let url = format!("http://{}", product.address);
        let output =
            Command::new(env!("CARGO_BIN_EXE_weir")).args(arguments).args(["--url", &url]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        text
    };
    weir(&["topic", "create", "orders"]);
    let made = weir(&["subscription", "create", "billing", "--topic", "orders", "--lease", "1m"]);
    assert_eq!(made, "billing created, topic orders\n");
    weir(&["pub", "orders", "a b"]);
    publish(&mut http, 1);
    let json = weir(&["pull", "billing", "--max", "1", "--json", "--holder", "me"]);
    let message: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(message["data"], "a b");
    assert_eq!(weir(&["pull", "billing", "--ack"]), "{\"n\":0}\n");
    let shown: Value = serde_json::from_str(&weir(&["subscription", "get", "billing", "--json"])).unwrap();
    assert_eq!((&shown["config"]["lease_ms"], &shown["totals"]["leased"]), (&json!(60_000), &json!(1)));
    let table = weir(&["subscription", "list"]);
    assert!(table.contains("billing       orders  active  0      1"), "{table}");
    let would = weir(&["subscription", "seek", "billing", "earliest", "--dry-run"]);
    assert_eq!(would, "2 message(s) would be delivered again, 0 skipped\n");
    weir(&["subscription", "seek", "billing", "earliest", "--yes"]);
    let changed = weir(&["subscription", "set", "billing", "--max-attempts", "3", "--dlq", "orders.dlq"]);
    assert_eq!(changed, "billing changed, topic orders\n");
    let cleared: Value =
        serde_json::from_str(&weir(&["subscription", "set", "billing", "--dlq", "", "--json"])).unwrap();
    let config = &cleared["config"];
    assert_eq!((&config["dlq"], &config["max_attempts"]), (&json!(null), &json!(3)));
    assert_eq!(config["lease_ms"], 60_000, "what is left out stays");
    weir(&["subscription", "pause", "billing"]);
    assert_eq!(weir(&["pull", "billing"]), "");
    weir(&["subscription", "resume", "billing"]);
    assert_eq!(weir(&["pull", "billing", "--ack"]), "a b\n{\"n\":0}\n");
    assert!(weir(&["subscription", "delete", "billing", "--yes"]).starts_with("deleted billing"));
}

#[test]
fn what_was_deleted_is_told_to_programs_too() {
    let (_dir, product, mut http) = started();
    create(&mut http, 1, &json!({}));
    publish(&mut http, 2);
    let url = format!("http://{}", product.address);
    let deleted = |arguments: &[&str]| {
        let (is_done, text, said) = weir(&url, &[arguments, &["--yes", "--json"]].concat());
        assert!(is_done, "{said}");
        serde_json::from_str::<Value>(&text).map_err(|_| text)
    };
    let subscription = json!({"deleted": "billing", "unsettled": 2});
    assert_eq!(deleted(&["subscription", "delete", "billing"]), Ok(subscription));
    let topic = deleted(&["topic", "delete", "orders"]).unwrap();
    assert_eq!((&topic["deleted"], &topic["messages"]), (&json!("orders"), &json!(2)));
    assert!(topic["bytes"].as_u64() > Some(0), "{topic}");
}

fn start_of(http: &mut Connection) -> u64 {
    let topic = http.request("GET /v1/topics/orders", &[], b"").unwrap();
    topic.json()["partitions"][0]["start"].as_u64().unwrap()
}

/// All that `subscription` gets, acknowledged.
fn work_off(http: &mut Connection, subscription: &str) -> usize {
    let messages = pull_as(http, subscription, 100);
    if !messages.is_empty() {
        let body = json!({"ack": leases(&messages)});
        assert_eq!(post(http, &format!("/v1/subscriptions/{subscription}:settle"), &body).status, 200);
    }
    messages.len()
}

#[test]
fn a_topic_until_settled_lets_go_of_what_every_subscription_has_settled_and_of_nothing_else() {
    let (dir, product, mut http) = started();
    create(&mut http, 1, &json!({}));
    let until_settled = br#"{"retention":{"until_settled":true}}"#;
    assert_eq!(http.request("PATCH /v1/topics/orders", &[], until_settled).unwrap().status, 200);
    let audit = json!({"mode": "queue", "topics": ["orders"]}).to_string();
    assert_eq!(http.request("PUT /v1/subscriptions/audit", &[], audit.as_bytes()).unwrap().status, 201);
    (0..3).for_each(|_| publish(&mut http, 4));

    assert_eq!(work_off(&mut http, "billing"), 12);
    assert_eq!(start_of(&mut http), 0, "audit has settled nothing");
    let first = pull_as(&mut http, "audit", 6);
    let body = json!({"ack": leases(&first)});
    assert_eq!(post(&mut http, "/v1/subscriptions/audit:settle", &body).status, 200);
    assert_eq!(start_of(&mut http), 4, "a batch goes as a whole");
    let seek = post(&mut http, "/v1/subscriptions/billing:seek", &json!({"to": "earliest"}));
    assert_eq!((seek.status, &seek.json()["redelivered"]), (200, &json!(8)), "{}", seek.text());
    assert_eq!(work_off(&mut http, "audit"), 6);
    assert_eq!(start_of(&mut http), 4, "billing is to see them again");

    drop(http);
    drop(product);
    let product = Product::start(dir.path());
    let mut http = Connection::open(&product.address).unwrap();
    assert_eq!(start_of(&mut http), 4);
    assert_eq!(http.request("DELETE /v1/subscriptions/billing", &[], b"").unwrap().status, 204);
    assert_eq!(start_of(&mut http), 12, "who is gone keeps nothing");
    let gone = http.request("GET /v1/topics/orders/messages/0/3", &[], b"").unwrap();
    assert_eq!(gone.status, 410);
    publish(&mut http, 1);
    assert_eq!(http.request("DELETE /v1/subscriptions/audit", &[], b"").unwrap().status, 204);
    assert_eq!(start_of(&mut http), 12, "without subscriptions everything stays");
}

fn pull_as(http: &mut Connection, subscription: &str, most: u64) -> Vec<Value> {
    let pulled = post(http, &format!("/v1/subscriptions/{subscription}:pull"), &json!({"max": most}));
    pulled.json()["messages"].as_array().unwrap().clone()
}

/// What `weir` prints, and whether it succeeded.
fn weir(url: &str, arguments: &[&str]) -> (bool, String, String) {
    let run = Command::new(env!("CARGO_BIN_EXE_weir")).args(arguments).args(["--url", url]).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (run.status.success(), text(run.stdout), text(run.stderr))
}

#[test]
fn an_operator_explains_redrives_seeks_and_undoes_from_the_command_line() {
    let (_dir, product, mut http) = started();
    create(&mut http, 1, &json!({"max_attempts": 1}));
    publish(&mut http, 6);
    let held = pull(&mut http, &json!({"max": 4}));
    let dead: Vec<_> =
        leases(&held[..3]).iter().map(|lease| json!({"lease": lease, "reason": "no"})).collect();
    assert_eq!(post(&mut http, "/v1/subscriptions/billing:settle", &json!({"dead": dead})).status, 200);

    let url = format!("http://{}", product.address);
    let (ok, said, _) = weir(&url, &["subscription", "explain", "billing", "0:0"]);
    assert!(ok && said.starts_with("0:0 is dead"), "{said}");
    let (_, said, _) = weir(&url, &["subscription", "explain", "billing", "0:3", "--json"]);
    assert_eq!(serde_json::from_str::<Value>(&said).unwrap()["state"], "leased", "{said}");
    let state = |of: &[&str]| {
        let (ok, said, why) = weir(&url, &[&["subscription", "state", "billing", "--json"], of].concat());
        assert!(ok, "{why}");
        said.lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap()["offset"].as_u64().unwrap())
            .collect()
    };
    let dead: Vec<u64> = state(&["--of", "dead"]);
    assert_eq!(dead, [0, 1, 2]);
    assert_eq!(state(&[]), [4, 5]);

    let (ok, said, why) = weir(&url, &["subscription", "redrive", "billing", "--dry-run"]);
    assert!(ok && said == "0:0\n0:1\n0:2\n" && why.contains("3 message(s) would be"), "{said}{why}");
    let (ok, _, why) = weir(&url, &["subscription", "redrive", "billing"]);
    assert!(!ok && why.contains("nothing was redriven"), "nobody was there to say yes: {why}");
    let (ok, said, _) = weir(&url, &["subscription", "redrive", "billing", "0:1", "--yes", "--json"]);
    assert_eq!(
        (ok, serde_json::from_str::<Value>(&said).unwrap()["redriven"].clone()),
        (true, json!(["0:1"]))
    );
    assert_eq!(state(&["--of", "dead"]), [0, 2]);
    // What was redriven has died all the same: the column does not say how many are dead.
    let (_, said, _) = weir(&url, &["subscription", "list"]);
    let column = |line: usize| said.lines().nth(line).unwrap().split_whitespace().last().unwrap();
    assert_eq!((column(0), column(1)), ("DIED", "3"), "{said}");

    let (ok, said, why) = weir(&url, &["subscription", "seek", "billing", "latest", "--yes"]);
    assert!(ok && said.contains("4 skipped"), "{said}{why}");
    let undo = why.split_whitespace().last().unwrap().to_owned();
    assert!(undo.starts_with("snap_"), "{why}");
    assert_eq!(state(&[]), [0u64; 0]);
    assert_eq!(state(&["--as-of", &undo]), [1, 3, 4, 5]);
    let (ok, said, _) = weir(&url, &["subscription", "undo", "billing", &undo, "--dry-run"]);
    assert!(ok && said.contains("4 message(s) would be"), "{said}");
    let (ok, said, why) = weir(&url, &["subscription", "undo", "billing", &undo, "--yes"]);
    assert!(ok, "{said}{why}");
    assert_eq!(state(&[]), [1, 3, 4, 5]);
    let (ok, _, why) = weir(&url, &["subscription", "undo", "billing", "snap_00000000000000ff", "--yes"]);
    assert!(!ok && why.contains("not kept"), "{why}");
}

#[test]
fn a_pull_that_follows_prints_and_acknowledges_what_comes() {
    let (_dir, product, mut http) = started();
    create(&mut http, 1, &json!({}));
    let url = format!("http://{}", product.address);
    let mut worker = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["pull", "billing", "--follow", "--ack", "--max", "2", "--url", &url])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    publish(&mut http, 3);
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(worker.stdout.take().unwrap()));
    let mut next = || lines.next().unwrap().unwrap();
    assert_eq!([next(), next(), next()], ["{\"n\":0}", "{\"n\":1}", "{\"n\":2}"]);
    publish(&mut http, 1);
    assert_eq!(next(), "{\"n\":0}");
    let start = Instant::now();
    loop {
        let found = http.request("GET /v1/subscriptions/billing", &[], b"").unwrap().json();
        if found["totals"]["unsettled"] == json!(0) {
            break;
        }
        assert!(start.elapsed() < Duration::from_secs(20), "{found}");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(Command::new("kill").args(["-INT", &worker.id().to_string()]).status().unwrap().success());
    assert!(worker.wait().unwrap().success());
}

#[test]
fn the_command_line_says_what_is_in_the_way_and_what_to_type() {
    let (_dir, product, mut http) = started();
    create(&mut http, 2, &json!({}));
    let url = format!("http://{}", product.address);
    let run = |line: &[&str]| weir(&url, line);
    assert!(run(&["topic", "create", "other"]).0);
    let (ok, said, why) = run(&["topic", "list", "--limit", "1"]);
    assert!(ok && said.lines().count() == 2 && why == "there are more: --limit 10\n", "{said}{why}");
    let (ok, said, why) = run(&["topic", "list", "--limit", "2"]);
    assert!(ok && said.lines().count() == 3 && why.is_empty(), "{said}{why}");

    publish(&mut http, 1);
    let (ok, said, why) = run(&["sub", "orders", "--no-follow"]);
    assert!(ok && said.is_empty() && why.contains("--from, which is `latest`"), "{said}{why}");
    let (ok, said, why) = run(&["sub", "orders", "--no-follow", "--from", "earliest"]);
    assert!(ok && !said.is_empty() && why.is_empty(), "{said}{why}");
    let (ok, _, why) = run(&["sub", "orders", "--from", "0", "--no-follow"]);
    assert!(!ok && why.contains("--partition N"), "{why}");

    assert_eq!(pull(&mut http, &json!({"max": 1})).len(), 1);
    let (ok, _, why) = run(&["pull", "billing"]);
    assert_eq!((ok, why.as_str()), (true, "nothing to lease now: 1 leased\n"));
    assert!(run(&["subscription", "pause", "billing"]).0);
    let (ok, _, why) = run(&["pull", "billing"]);
    let resume = why.split('`').nth(1).unwrap_or_default().to_owned();
    assert!(ok && why.contains("is paused"), "{why}");
    assert!(
        resume.starts_with("weir --url http://") && resume.ends_with("subscription resume billing"),
        "{why}"
    );

    assert!(run(&["namespace", "create", "strict"]).0);
    let (ok, _, why) = run(&["--ns", "strict", "pub", "orders", "x"]);
    assert!(!ok && why.contains("With --create this command creates it"), "{why}");
    assert!(run(&["--ns", "strict", "pub", "orders", "x", "--create"]).0);
}
