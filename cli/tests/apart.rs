//! Node and gateways as processes of their own: any of them may go and come back, and nothing is lost or repeated.
#![expect(dead_code, reason = "each test uses a part of the product's client")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../storage-node/tier/tests/ports/mod.rs"]
mod ports;
mod product;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use product::{Connection, Running};

/// Until then what changes has to show.
const PATIENCE: Duration = Duration::from_secs(60);

fn node(dir: &Path, listen: &str, more: &[&str]) -> Running {
    let data = dir.join("data");
    let fixed = ["node", "--listen", listen, "--admin", "127.0.0.1:0", "--data-dir", data.to_str().unwrap()];
    let node = Running::start(dir, &[&fixed, more].concat());
    assert_eq!(node.said.len(), 2, "{:?}", node.said);
    node
}

fn gateway(dir: &Path, node: &str, more: &[&str]) -> (Running, String) {
    let fixed = ["gateway", "--node", node, "--listen", "127.0.0.1:0"];
    let gateway = Running::start(dir, &[&fixed, more].concat());
    let address = gateway.said[0].strip_prefix("http://").unwrap().to_owned();
    (gateway, address)
}

/// Publishes, and waits for it as long as that may be asked for.
fn publish(http: &mut Connection, seq: u64) -> u16 {
    http.patience(2 * PATIENCE);
    let seq_text = seq.to_string();
    let producer = [("Producer-Id", "p"), ("Producer-Epoch", "0"), ("Producer-Seq", seq_text.as_str())];
    let headers = [&producer[..], &[("Confirm-Deadline-Ms", "60000")]].concat();
    http.request("POST /v1/topics/t/messages", &headers, seq_text.as_bytes()).unwrap().status
}

/// Whether the gateway says that it is ready.
fn ready(address: &str) -> u16 {
    Connection::open(address).unwrap().request("GET /readyz", &[], b"").unwrap().status
}

/// Waits until it says so: it need not have found its node when it begins to listen.
fn until_ready(address: &str) {
    let until = Instant::now() + PATIENCE;
    while ready(address) != 204 {
        assert!(Instant::now() < until, "the node is there and the gateway is not ready");
    }
}

fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

#[test]
fn a_node_that_is_killed_and_comes_back_is_found_again_and_nothing_is_lost_or_repeated() {
    let dir = scratch();
    let mut running = node(dir.path(), &ports::own().to_string(), &[]);
    let address = running.said[0].clone();
    let (_a, a) = gateway(dir.path(), &address, &[]);
    let (_b, b) = gateway(dir.path(), &address, &[]);
    let mut http = Connection::open(&a).unwrap();
    assert_eq!(http.request("PUT /v1/topics/t", &[], b"{\"partitions\":1}").unwrap().status, 201);
    assert!((0..20).all(|seq| publish(&mut http, seq) == 201));
    running.kill();
    // While the node is away the request waits; a repeat would be recognised.
    let (dir_path, returning): (PathBuf, _) = (dir.path().to_owned(), address.clone());
    let back = std::thread::spawn(move || node(&dir_path, &returning, &[]));
    assert!((20..40).all(|seq| matches!(publish(&mut http, seq), 200 | 201)));
    let _node = back.join().unwrap();
    let mut other = Connection::open(&b).unwrap();
    let page = other.request("GET /v1/topics/t/messages?from=earliest&limit=1000", &[], b"").unwrap().json();
    let found: Vec<_> = page["messages"].as_array().unwrap().iter().map(|m| m["offset"].as_u64()).collect();
    assert_eq!(found, (0..40).map(Some).collect::<Vec<_>>());
}

#[test]
fn a_gateway_is_not_ready_while_its_node_is_away() {
    let dir = scratch();
    let mut running = node(dir.path(), &ports::own().to_string(), &[]);
    let address = running.said[0].clone();
    let (_gateway, edge) = gateway(dir.path(), &address, &[]);
    until_ready(&edge);
    running.kill();
    let until = Instant::now() + PATIENCE;
    while ready(&edge) != 503 {
        assert!(Instant::now() < until, "the gateway is ready without a node");
    }
    let _node = node(dir.path(), &address, &[]);
    until_ready(&edge);
}

#[test]
fn a_gateway_names_the_node_that_it_cannot_reach_before_anybody_asks() {
    let dir = scratch();
    let nobody = ports::own().to_string();
    let (gateway, _) = gateway(dir.path(), &nobody, &[]);
    let until = Instant::now() + PATIENCE;
    let named = format!("peer=\"{nobody}\"");
    while !std::fs::read_to_string(&gateway.log).unwrap().contains(&named) {
        assert!(Instant::now() < until, "the log does not name {nobody}");
        std::thread::yield_now();
    }
}

#[test]
fn a_gateway_keeps_nothing_so_another_goes_on_in_its_place() {
    let dir = scratch();
    let mut node = node(dir.path(), "127.0.0.1:0", &["--auto-create"]);
    let (mut first, address) = gateway(dir.path(), &node.said[0], &[]);
    assert!((0..5).all(|seq| publish(&mut Connection::open(&address).unwrap(), seq) == 201));
    first.kill();
    let (mut second, address) = gateway(dir.path(), &node.said[0], &[]);
    let mut http = Connection::open(&address).unwrap();
    assert_eq!(publish(&mut http, 4), 200, "the node knows the producer, not the gateway");
    assert_eq!(publish(&mut http, 5), 201);
    let mut operators = Connection::open(&node.said[1]).unwrap();
    for (path, status) in [("/healthz", 204), ("/readyz", 204), ("/nothing", 404)] {
        assert_eq!(operators.request(&format!("GET {path}"), &[], b"").unwrap().status, status, "{path}");
    }
    let metrics = operators.request("GET /metrics", &[], b"").unwrap().text();
    assert!(metrics.contains("weir_node_published_records_total 6"), "{metrics}");
    assert!(second.stop(), "SIGTERM is no failure");
    assert!(node.stop(), "SIGTERM is no failure");
}

#[test]
fn who_does_not_know_the_secret_is_no_gateway() {
    let dir = scratch();
    let secret = dir.path().join("secret");
    std::fs::write(&secret, "open sesame\n").unwrap();
    let with_secret = ["--cluster-secret", secret.to_str().unwrap()];
    let node = node(dir.path(), "127.0.0.1:0", &with_secret);
    let (_a, stranger) = gateway(dir.path(), &node.said[0], &[]);
    let (_b, member) = gateway(dir.path(), &node.said[0], &with_secret);
    until_ready(&member);
    assert_eq!(ready(&stranger), 503);
    let made = Connection::open(&member).unwrap().request("PUT /v1/topics/t", &[], b"{}").unwrap();
    assert_eq!(made.status, 201);
}

#[test]
fn an_address_that_others_can_reach_needs_a_secret_and_says_so() {
    for (arguments, expected) in [
        (&["node", "--listen", "192.0.2.1:7070"][..], "--cluster-secret"),
        (&["node", "--listen", "0.0.0.0:7070", "--insecure-public"], "name one that they can reach"),
        (
            &["node", "--listen", "0.0.0.0:7070", "--insecure-public", "--advertise", "nowhere"],
            "a host and a port",
        ),
        (&["node", "--admin", "192.0.2.1:7071"], "metrics have no authentication"),
        (&["gateway", "--listen", "0.0.0.0:0"], "--insecure-public"),
    ] {
        let dir = scratch();
        let output =
            Command::new(env!("CARGO_BIN_EXE_weir")).args(arguments).current_dir(dir.path()).output();
        let output = output.unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(expected), "{arguments:?}: {said}");
        assert!(!dir.path().join("weir-data").exists(), "no data was touched");
    }
}

#[test]
fn a_node_that_listens_everywhere_is_found_where_it_says() {
    let dir = scratch();
    let port = ports::own().port();
    let told = format!("localhost:{port}");
    let running = node(dir.path(), &format!("0.0.0.0:{port}"), &["--insecure-public", "--advertise", &told]);
    let log = std::fs::read_to_string(&running.log).unwrap();
    assert!(log.contains(&format!("weir gateway --node {told}")), "{log}");
    let (_gateway, address) = gateway(dir.path(), &format!("127.0.0.1:{port}"), &[]);
    until_ready(&address);
    let mut http = Connection::open(&address).unwrap();
    assert_eq!(http.request("PUT /v1/topics/t", &[], b"{\"partitions\":1}").unwrap().status, 201);
    assert_eq!(publish(&mut http, 0), 201);
}
