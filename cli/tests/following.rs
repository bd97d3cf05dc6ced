//! `weir pull --follow` through interruptions: it goes on, acknowledges what it printed, and ends where
//! trying again is no use.
#![expect(dead_code, reason = "each test uses a part of the product's client")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../storage-node/tier/tests/ports/mod.rs"]
mod ports;
mod product;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use product::{Connection, Running};
use serde_json::{Value, json};

/// Until then what changes has to show.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a gateway of the test's own does with a request: answers so, or goes away.
type Reaction = Option<(u16, Value)>;

/// A request: its path, the header `Idempotency-Key`, and its body.
type Asked = (String, Option<String>, Value);

/// Takes a request on a connection of its own.
fn request(stream: &mut BufReader<TcpStream>) -> Asked {
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).unwrap();
        match line.trim_end() {
            "" => break,
            line => head.push(line.to_owned()),
        }
    }
    let header = |name: &str| {
        let mut pairs = head.iter().filter_map(|line| line.split_once(": "));
        pairs.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_owned())
    };
    let mut body = vec![0; header("content-length").map_or(0, |length| length.parse().unwrap())];
    stream.read_exact(&mut body).unwrap();
    let path = head[0].split(' ').nth(1).unwrap().rsplit(':').next().unwrap().to_owned();
    (path, header("idempotency-key"), serde_json::from_slice(&body).unwrap())
}

/// A gateway that reacts to one request after the other as it is told; then it is gone.
fn gateway(reactions: Vec<Reaction>) -> (String, std::thread::JoinHandle<Vec<Asked>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let serve = move || {
        let react = |reaction: Reaction| {
            let mut stream = BufReader::new(listener.accept().unwrap().0);
            let asked = request(&mut stream);
            if let Some((status, body)) = reaction {
                let body = body.to_string();
                let head =
                    format!("HTTP/1.1 {status} x\r\nConnection: close\r\nContent-Length: {}", body.len());
                stream.get_mut().write_all(format!("{head}\r\n\r\n{body}").as_bytes()).unwrap();
            }
            asked
        };
        reactions.into_iter().map(react).collect()
    };
    (url, std::thread::spawn(serve))
}

fn pulled(lease: &str) -> Reaction {
    let message =
        json!({"lease": lease, "content_type": "text/plain", "data": format!("what {lease} is of")});
    Some((200, json!({"messages": [message]})))
}

fn settled(lease: &str, result: &str) -> Reaction {
    let problem = json!({"code": "unavailable", "title": "Unavailable", "retryable": true});
    Some((207, json!({"results": [{"lease": lease, "result": result, "problem": problem}]})))
}

fn refused(status: u16, code: &str, retryable: bool) -> Reaction {
    Some((status, json!({"code": code, "title": "No", "detail": "so it is", "retryable": retryable})))
}

fn follow(url: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(["pull", "work", "--follow", "--ack", "--url", url]);
    command
}

#[test]
fn what_was_printed_is_acknowledged_once_whatever_becomes_of_requests_and_answers() {
    let (url, asked) = gateway(vec![
        pulled("a"),
        None, // The acknowledgement may have arrived.
        settled("a", "already_settled"),
        None, // Messages may be leased by now: the same pull again.
        None,
        refused(503, "unavailable", true),
        pulled("b"),
        settled("b", "failed"),
        settled("b", "ok"),
        pulled("c"),
        settled("c", "lease_lost"),
        refused(404, "subscription_not_found", false),
    ]);
    let output = follow(&url).output().unwrap();
    let (printed, said) =
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert_eq!(printed, "what a is of\nwhat b is of\nwhat c is of\n");
    assert_eq!(said.matches("trying again").count(), 3, "once per interruption: {said}");
    assert!(said.contains("lease_lost") && said.contains("come again"), "{said}");
    assert!(said.trim_end().lines().last().unwrap().contains("subscription_not_found"), "{said}");

    let asked = asked.join().unwrap();
    let acks: Vec<_> = asked
        .iter()
        .filter(|(path, ..)| path == "settle")
        .map(|(.., body)| body["ack"][0].as_str().unwrap())
        .collect();
    assert_eq!(acks, ["a", "a", "b", "b", "c"]);
    let keys: Vec<_> =
        asked.iter().filter(|(path, ..)| path == "pull").map(|(_, key, _)| key.clone().unwrap()).collect();
    let distinct: std::collections::BTreeSet<_> = keys.iter().collect();
    assert_eq!((keys.len(), distinct.len()), (7, 4), "a pull whose answer was lost is the same: {keys:?}");
    assert!(keys[1..5].iter().all(|key| *key == keys[1]), "{keys:?}");
}

#[test]
fn what_was_printed_is_acknowledged_before_it_stops() {
    let (url, asked) = gateway(vec![pulled("a"), refused(503, "unavailable", true), settled("a", "ok")]);
    let mut child = follow(&url).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap());
    said.read_line(&mut String::new()).unwrap();
    // It was printed and is not acknowledged.
    assert!(Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap().success());
    assert!(child.wait().unwrap().success());
    // A gateway that still waits to be asked is asked for nothing.
    drop(TcpStream::connect(url.trim_start_matches("http://")));
    assert_eq!(asked.join().unwrap()[2].2["ack"], json!(["a"]));
}

#[test]
fn a_refusal_that_does_not_pass_ends_it() {
    for (status, code) in [(401, "unauthenticated"), (400, "invalid_parameter")] {
        let (url, asked) = gateway(vec![refused(status, code, false)]);
        let output = follow(&url).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(1) && said.contains(code), "{said}");
        assert!(!said.contains("trying again"), "{said}");
        assert_eq!(asked.join().unwrap().len(), 1);
    }
}

#[test]
fn an_answer_that_leaves_out_what_was_acknowledged_ends_it() {
    let (url, asked) = gateway(vec![pulled("a"), Some((200, json!({"results": []})))]);
    let output = follow(&url).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(1) && said.contains("0 instead of 1"), "{said}");
    assert_eq!(asked.join().unwrap().len(), 2);
}

struct Worker {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Worker {
    fn start(dir: &Path, url: &str) -> Self {
        let said = std::fs::File::create(dir.join("said")).unwrap();
        let mut child = follow(url).stdout(Stdio::piped()).stderr(said).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    fn next(&mut self) -> String {
        self.lines.next().unwrap().unwrap()
    }
}

fn processes(dir: &Path, node: &str, edge: &str) -> (Running, Running) {
    let data = dir.join("data");
    let node = ["node", "--listen", node, "--admin", "127.0.0.1:0", "--data-dir", data.to_str().unwrap()];
    let node = Running::start(dir, &node);
    let edge = Running::start(dir, &["gateway", "--node", &node.said[0], "--listen", edge]);
    (node, edge)
}

#[test]
fn it_goes_on_when_its_gateway_or_the_node_was_away() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (mut node, mut edge) = processes(dir.path(), &ports::own().to_string(), &ports::own().to_string());
    let (node_address, url) = (node.said[0].clone(), edge.said[0].clone());
    let open = || Connection::open(url.strip_prefix("http://").unwrap()).unwrap();
    let mut http = open();
    product::done(&mut http, "PUT /v1/topics/t", &json!({"partitions": 1}));
    product::done(&mut http, "PUT /v1/subscriptions/work", &json!({"topics": ["t"]}));
    let publish = |text: &str| {
        let media = [("Content-Type", "text/plain")];
        assert_eq!(
            open().request("POST /v1/topics/t/messages", &media, text.as_bytes()).unwrap().status,
            201
        );
    };
    // What is printed is acknowledged before the process that was asked goes away: nothing may come twice below.
    let all_settled = || {
        let until = Instant::now() + PATIENCE;
        while product::send(&mut open(), "GET /v1/subscriptions/work", &Value::Null).json()["totals"]["unsettled"]
            != 0
        {
            assert!(Instant::now() < until, "not acknowledged");
            std::thread::yield_now();
        }
    };
    let mut worker = Worker::start(dir.path(), &url);
    publish("one");
    assert_eq!(worker.next(), "one");
    all_settled();

    edge.kill();
    let said = || std::fs::read_to_string(dir.path().join("said")).unwrap();
    let until = Instant::now() + PATIENCE;
    while !said().contains("trying again") {
        assert!(Instant::now() < until && worker.child.try_wait().unwrap().is_none(), "{}", said());
        std::thread::yield_now();
    }
    let edge_address = url.strip_prefix("http://").unwrap();
    let _edge = Running::start(dir.path(), &["gateway", "--node", &node_address, "--listen", edge_address]);
    publish("two");
    assert_eq!(worker.next(), "two");
    all_settled();

    node.kill();
    let data = dir.path().join("data");
    let again =
        ["node", "--listen", &node_address, "--admin", "127.0.0.1:0", "--data-dir", data.to_str().unwrap()];
    let _node = Running::start(dir.path(), &again);
    publish("three");
    assert_eq!(worker.next(), "three");
    all_settled();

    product::done(&mut open(), "DELETE /v1/subscriptions/work", &Value::Null);
    assert!(!worker.child.wait().unwrap().success(), "there is nothing to follow any more");
    assert!(said().contains("subscription_not_found"), "{}", said());
    assert!(worker.lines.next().is_none(), "nothing came twice");
}
