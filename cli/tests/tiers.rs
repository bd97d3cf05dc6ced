//! Messages before they are committed: everybody who is shown one is told what became of it, whatever is killed.
#![expect(dead_code, reason = "each test uses a part of the product's client")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../storage-node/tier/tests/ports/mod.rs"]
mod ports;
mod product;

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use product::{Connection, Running};
use serde_json::{Value, json};
use weir_gateway::{Gateway, GatewayConfig};
use weir_journal::disk::sim::SimDisk;
use weir_storage_node::{Node, NodeConfig, RunningNode, Surroundings};

const SOON: Duration = Duration::from_secs(60);
const ROUNDS: u64 = 3;

/// What a follower was shown and told, by the rules of the contract.
#[derive(Debug, Default)]
struct Held {
    messages: Vec<Value>,
    /// Messages that cannot be taken back any more.
    firm: usize,
    early: usize,
    retracted: usize,
}

impl Held {
    fn message(&mut self, message: &Value) {
        assert_eq!(message["offset"], self.messages.len(), "dense, each once");
        self.messages.push(message["data"].clone());
        if message.get("final").is_none() {
            self.firm = self.messages.len();
        } else {
            assert!(message["final"] == false && message["term"].as_u64().unwrap() > 0, "{message}");
            self.early += 1;
        }
    }

    fn firm(&mut self, told: &Value) {
        let upto = usize::try_from(told["upto"].as_u64().unwrap()).unwrap();
        assert!(upto > self.firm && upto <= self.messages.len(), "{told} at {}", self.firm);
        self.firm = upto;
    }

    fn retract(&mut self, told: &Value) {
        assert_eq!((&told["from"], &told["to"]), (&json!(self.firm), &json!(self.messages.len())), "{told}");
        self.messages.truncate(self.firm);
        self.retracted += 1;
    }
}

type Follower = Arc<Mutex<Held>>;

/// `weir --json sub`, which comes back by itself; ends when dropped.
struct Sub(Child, Follower);

impl Sub {
    fn start(url: &str, level: &str) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_weir"))
            .args(["--json", "sub", "t", "--from", "earliest", "--min-level", level, "--url", url])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let held = Follower::default();
        let (out, into) = (child.stdout.take().unwrap(), Arc::clone(&held));
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines() {
                let Ok(line) = line else { return };
                let told: Value = serde_json::from_str(&line).unwrap();
                let mut held = into.lock().unwrap();
                match told["event"].as_str() {
                    None => held.message(&told),
                    Some("firm") => held.firm(&told),
                    Some("retract") => held.retract(&told),
                    Some(other) => panic!("{other}"),
                }
            }
        });
        Self(child, held)
    }
}

impl Drop for Sub {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// One event of a stream: its name and data; moves the id, as a browser does.
fn next_event(stream: &mut Connection, last_id: &mut Option<String>) -> std::io::Result<(String, Value)> {
    let (mut name, mut data, mut id) = (String::from("message"), String::new(), None);
    loop {
        let line = stream.line()?;
        match line.split_once(": ") {
            Some(("event", event)) => event.clone_into(&mut name),
            Some(("id", told)) => id = Some(told.to_owned()),
            Some(("data", told)) => told.clone_into(&mut data),
            _ if line.is_empty() && !data.is_empty() => {
                *last_id = id.or_else(|| last_id.take());
                return Ok((name, serde_json::from_str(&data).unwrap()));
            }
            _ => {}
        }
    }
}

fn events(address: &str, last_id: Option<&String>) -> std::io::Result<Connection> {
    let mut stream = Connection::open(address)?;
    let id = last_id.map(|id| ("Last-Event-ID", id.as_str()));
    let headers = [&[("Accept", "text/event-stream")][..], id.as_slice()].concat();
    stream.send("GET /v1/topics/t/messages?min_level=memory", &headers, b"")?;
    match stream.head()?.0 {
        200 => Ok(stream),
        _ => Err(std::io::ErrorKind::ConnectionRefused.into()),
    }
}

/// Follows server-sent events and comes back with `Last-Event-ID`, as a browser does.
fn follow_events(address: String) -> Follower {
    let held = Follower::default();
    let into = Arc::clone(&held);
    std::thread::spawn(move || {
        let mut last_id = None;
        loop {
            let Ok(mut stream) = events(&address, last_id.as_ref()) else {
                std::thread::sleep(Duration::from_millis(20));
                continue;
            };
            while let Ok((event, told)) = next_event(&mut stream, &mut last_id) {
                let mut held = into.lock().unwrap();
                match event.as_str() {
                    "message" => held.message(&told),
                    "firm" => held.firm(&told),
                    "retract" => held.retract(&told),
                    _ => {}
                }
            }
        }
    });
    held
}

fn node(dir: &Path, listen: &str) -> Running {
    let data = dir.join("data");
    let fixed = ["node", "--listen", listen, "--admin", "127.0.0.1:0", "--auto-create", "--data-dir"];
    Running::start(dir, &[&fixed, &[data.to_str().unwrap()][..]].concat())
}

/// Four publishers at `memory` until nobody answers or they are told to stop.
fn publish(address: &str, round: u64, stop: &Arc<AtomicBool>) -> Vec<std::thread::JoinHandle<()>> {
    let one = |writer: u64| {
        let (address, stop) = (address.to_owned(), Arc::clone(stop));
        std::thread::spawn(move || {
            let Ok(mut http) = Connection::open(&address) else { return };
            for n in 0.. {
                let body = json!([round, writer, n]).to_string();
                let headers = [("Content-Type", "application/json"), ("Confirm", "memory")];
                let answer = http.request("POST /v1/topics/t/messages", &headers, body.as_bytes());
                if answer.is_err() || stop.load(Ordering::Relaxed) {
                    return;
                }
            }
        })
    };
    (0..4).map(one).collect()
}

fn read_back(address: &str) -> Vec<Value> {
    let mut http = Connection::open(address).unwrap();
    let mut found = Vec::new();
    loop {
        let line = format!("GET /v1/topics/t/messages?partition=0&from={}&limit=5000", found.len());
        let page = http.request(&line, &[], b"").unwrap().json();
        found.extend(page["messages"].as_array().unwrap().iter().map(|message| message["data"].clone()));
        if page["up_to_date"] == true {
            return found;
        }
    }
}

fn waits_for(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < SOON, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The gateway stays and the node is killed, again and again; then gateway and node are one process.
#[test]
fn whoever_is_shown_a_message_early_hears_that_it_is_firm_or_to_be_forgotten_whatever_is_killed() {
    for apart in [true, false] {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let data = dir.path().join("data");
        let dev = |listen: &str| {
            Running::start(dir.path(), &["dev", "--listen", listen, "--data-dir", data.to_str().unwrap()])
        };
        let own = ports::own().to_string();
        let mut killed = if apart { node(dir.path(), &own) } else { dev(&own) };
        let gateway = apart
            .then(|| Running::start(dir.path(), &["gateway", "--node", &own, "--listen", "127.0.0.1:0"]));
        let url = gateway.as_ref().map_or(killed.said[0].clone(), |gateway| gateway.said[0].clone());
        let address = url.trim_start_matches("http://").to_owned();
        let mut http = Connection::open(&address).unwrap();
        let config = br#"{"default_confirm":"memory","deliver_from":"memory"}"#;
        assert_eq!(http.request("PUT /v1/topics/t", &[], config).unwrap().status, 201);
        let ahead = [Sub::start(&url, "memory"), Sub::start(&url, "memory")];
        let committed = Sub::start(&url, "quorum");
        let by_events = follow_events(address.clone());
        let first = Arc::clone(&ahead[0].1);
        for round in 0..ROUNDS {
            let before = first.lock().unwrap().early;
            let stop = Arc::new(AtomicBool::new(false));
            let writers = publish(&address, round, &stop);
            waits_for("nothing came early", || first.lock().unwrap().early > before + 50);
            killed.kill();
            if !apart {
                writers.into_iter().for_each(|writer| writer.join().unwrap());
                killed = dev(&own);
                continue;
            }
            killed = node(dir.path(), &own);
            stop.store(true, Ordering::Relaxed);
            writers.into_iter().for_each(|writer| writer.join().unwrap());
        }
        // What was answered at `memory` before this is committed once it is.
        let sure = [("Content-Type", "application/json"), ("Confirm", "quorum")];
        let mut http = Connection::open(&address).unwrap();
        assert_eq!(http.request("POST /v1/topics/t/messages", &sure, b"\"last\"").unwrap().status, 201);
        let found = read_back(&address);
        let followers = [&ahead[0].1, &ahead[1].1, &committed.1, &by_events];
        for (number, follower) in followers.into_iter().enumerate() {
            waits_for("what is committed never became firm", || {
                let held = follower.lock().unwrap();
                held.firm >= found.len() && held.messages.len() == held.firm
            });
            let held = follower.lock().unwrap();
            assert!(held.messages == found, "follower {number}: {} of {}", held.messages.len(), found.len());
            println!("apart {apart}, follower {number}: {} early, {} taken back", held.early, held.retracted);
            assert!(number != 2 || held.early + held.retracted == 0, "who waits for the commit sees no more");
        }
        drop(gateway);
    }
}

async fn start_node(disk: &SimDisk, listen: &str) -> RunningNode {
    let config = NodeConfig {
        data_dir: "/data".into(),
        listen: listen.parse().unwrap(),
        data_shards: 1,
        auto_create: true,
        journal_file_bytes: 16 << 20,
        journal_max_bytes: 64 << 20,
        ..NodeConfig::default()
    };
    Node::start_in(config, Surroundings { disk: Arc::new(disk.clone()), ..Surroundings::default() })
        .await
        .unwrap()
}

#[test]
fn an_event_stream_has_a_message_before_its_sync_and_takes_it_back_when_the_sync_fails() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let disk = SimDisk::new();
    let own = ports::own().to_string();
    let node = runtime.block_on(start_node(&disk, &own));
    let config = GatewayConfig {
        listen: "127.0.0.1:0".parse().unwrap(),
        storage: own.clone(),
        ..GatewayConfig::default()
    };
    let gateway = runtime.block_on(Gateway::start(config, prometheus::Registry::new())).unwrap();
    let address = gateway.local_addr().to_string();
    let mut http = Connection::open(&address).unwrap();
    let mut post = |body: &str, level: &str| {
        let headers = [("Content-Type", "application/json"), ("Confirm", level)];
        http.request("POST /v1/topics/t/messages", &headers, body.as_bytes()).unwrap()
    };
    assert_eq!(post("0", "quorum").status, 201);
    let mut last_id = None;
    let mut stream = events(&address, None).unwrap();
    let mut next = |stream: &mut Connection| loop {
        let (event, told) = next_event(stream, &mut last_id).unwrap();
        if event != "caught-up" {
            return (event, told);
        }
    };
    assert_eq!(next(&mut stream).1["data"], 0);
    disk.stall_syncs();
    let answer = post("1", "memory");
    let (event, early) = next(&mut stream);
    assert_eq!((event.as_str(), &early["data"], &early["final"]), ("message", &json!(1), &json!(false)));
    assert_eq!((answer.status, &early["term"]), (202, &answer.json()["term"]));
    disk.go_on();
    assert_eq!(next(&mut stream), ("firm".into(), json!({"topic": "t", "partition": 0, "upto": 2})));
    disk.stall_syncs();
    assert_eq!(post("2", "memory").status, 202);
    assert_eq!(next(&mut stream).1["data"], 2);
    // The power goes, and with it what was not synced; who comes back to the next life is told so.
    let after = disk.after_crash(1);
    disk.fail_syncs();
    disk.go_on();
    let retract = json!({"topic": "t", "partition": 0, "from": 2, "to": 3, "term": early["term"]});
    assert_eq!(next(&mut stream), ("retract".into(), retract));
    runtime.block_on(node.shutdown(Duration::from_secs(2)));
    let node = runtime.block_on(start_node(&after, &own));
    waits_for("the node is back", || post("\"next\"", "quorum").status == 201);
    let mut seen = Vec::new();
    while seen.last() != Some(&json!("next")) {
        let (event, told) = next(&mut stream);
        assert!(matches!(event.as_str(), "message" | "firm"), "{event}: {told}");
        if event == "message" {
            assert_eq!(told["offset"], 2 + seen.len());
            seen.push(told["data"].clone());
        }
    }
    assert_eq!(read_back(&address)[2..], seen);
    runtime.block_on(async {
        drop(stream);
        gateway.shutdown(Duration::from_secs(2)).await;
        node.shutdown(Duration::from_secs(2)).await;
    });
}
