//! The object store is away while the product starts: what the disk has is there, and the rest when the store is.
#![expect(dead_code, reason = "each test uses a part of the product's client")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../storage-node/tier/tests/minio/mod.rs"]
mod minio;
#[path = "../../storage-node/tier/tests/ports/mod.rs"]
mod ports;
mod product;

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use minio::Minio;
use product::{Connection, Product};

const ARCHIVED: [(&str, &str); 2] = [("Confirm", "archived"), ("Confirm-Deadline-Ms", "60000")];
const PATIENCE: Duration = Duration::from_secs(90);

fn options(url: &str) -> [&str; 8] {
    ["--object-store", url, "--data-shards", "1", "--journal-max", "64MiB", "--journal-file", "16MiB"]
}

fn start(dir: &Path, minio: &Minio) -> (Product, Connection) {
    let url = Minio::url("away");
    let product = Product::start_with_env(dir, "127.0.0.1:0", &options(&url), &minio.options());
    let mut http = Connection::open(&product.address).unwrap();
    http.patience(PATIENCE);
    (product, http)
}

/// What a start that is refused says.
fn refused(dir: &Path, url: &str, env: Vec<(String, String)>) -> String {
    let data = dir.join("data");
    let fixed = ["dev", "--listen", "127.0.0.1:0", "--data-dir", data.to_str().unwrap()];
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    let output = command.args(fixed).args(options(url)).envs(env).output().unwrap();
    assert!(!output.status.success());
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn publish(http: &mut Connection, value: &str, headers: &[(&str, &str)]) {
    let headers = [&[("Content-Type", "text/plain")], headers].concat();
    let answer = http.request("POST /v1/topics/t/messages", &headers, value.as_bytes()).unwrap();
    assert_eq!(answer.status, 201, "{}", answer.text());
}

fn values(http: &mut Connection) -> Vec<String> {
    let answer = http.request("GET /v1/topics/t/messages?from=0&limit=100", &[], b"").unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text());
    let page = answer.json();
    let messages = page["messages"].as_array().unwrap();
    messages.iter().map(|message| message["data"].as_str().unwrap().to_owned()).collect()
}

fn metrics(http: &mut Connection) -> String {
    http.request("GET /metrics", &[], b"").unwrap().text()
}

fn is_awaited(http: &mut Connection) -> bool {
    metrics(http).lines().any(|line| line == "weir_tier_store_awaited 1")
}

#[test]
fn a_crash_while_the_store_is_away_costs_no_message_that_is_on_the_disk() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut minio = Minio::start();
    let (mut product, mut http) = start(dir.path(), &minio);
    assert_eq!(http.request("PUT /v1/topics/t", &[], br#"{"partitions":1}"#).unwrap().status, 201);
    publish(&mut http, "in the store", &ARCHIVED);
    publish(&mut http, "on the disk", &[]);

    minio.kill();
    product.kill();
    let (mut product, mut http) = start(dir.path(), &minio);
    assert_eq!(http.request("GET /v1/topics/t", &[], b"").unwrap().status, 200, "it serves");
    assert!(is_awaited(&mut http));
    publish(&mut http, "meanwhile", &[]);
    assert_eq!(values(&mut http), ["in the store", "on the disk", "meanwhile"]);

    // Asked to stop while it waits for what does not come back before it has.
    assert!(product.stop());
    let (mut product, mut http) = start(dir.path(), &minio);
    minio.begin();
    publish(&mut http, "in both", &ARCHIVED);
    assert!(!is_awaited(&mut http));
    assert_eq!(values(&mut http).len(), 4);
    assert!(product.stop());
}

#[test]
fn wrong_credentials_or_another_address_stop_the_start_though_the_store_was_used_before() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let minio = Minio::start();
    let url = Minio::url("away");
    let env = |name: &str, value: &str| [minio.options(), vec![(name.to_owned(), value.to_owned())]].concat();
    // Nobody listens there, and nobody ever did for this directory.
    let nowhere = env("AWS_ENDPOINT", "http://127.0.0.1:1");
    let why = refused(dir.path(), &url, nowhere.clone());
    assert!(why.contains("does not answer"), "{why}");
    assert!(start(dir.path(), &minio).0.stop());
    let why = refused(dir.path(), &url, nowhere);
    assert!(why.contains("does not answer"), "{why}");
    let why = refused(dir.path(), &url, env("AWS_SECRET_ACCESS_KEY", "another"));
    assert!(why.contains("cannot be used") && why.contains("refuses"), "{why}");
    let why = refused(dir.path(), "s3://no-such-bucket/away", minio.options());
    assert!(why.contains("no such bucket"), "{why}");
    assert!(start(dir.path(), &minio).0.stop());
}

#[test]
fn who_waits_for_the_store_is_told_what_is_confirmed_when_it_stops() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut minio = Minio::start();
    let (mut product, mut http) = start(dir.path(), &minio);
    for topic in ["t", "u"] {
        let made = http.request(&format!("PUT /v1/topics/{topic}"), &[], br#"{"partitions":1}"#).unwrap();
        assert_eq!(made.status, 201);
    }
    minio.kill();
    let sent = http.request("POST /v1/topics/u/messages", &[], b"x").unwrap();
    assert_eq!(sent.status, 201, "{}", sent.text());
    let receipt = sent.header("confirm-receipt").unwrap().to_owned();
    let waits = |line: String, headers: &'static [(&str, &str)]| {
        let mut http = Connection::open(&product.address).unwrap();
        http.patience(PATIENCE);
        std::thread::spawn(move || http.request(&line, headers, b"").unwrap())
    };
    let published = waits("POST /v1/topics/t/messages".to_owned(), &ARCHIVED);
    let resolved = waits(format!("GET /v1/topics/u/receipts/{receipt}?level=archived&wait=60"), &[]);
    // One call for each partition.
    let begun = Instant::now();
    while !metrics(&mut http).contains("weir_transport_calls_in_flight{side=\"client\"} 2\n") {
        assert!(begun.elapsed() < PATIENCE, "{}", metrics(&mut http));
    }
    let begun = Instant::now();
    assert!(product.stop());
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    let published = published.join().unwrap();
    assert_eq!(
        (published.status, &published.json()["level"]),
        (202, &"quorum".into()),
        "{}",
        published.text()
    );
    assert!(published.header("confirm-receipt").is_some(), "whoever wants to know asks again");
    let resolved = resolved.join().unwrap();
    assert_eq!((resolved.status, &resolved.json()["level"]), (200, &"quorum".into()), "{}", resolved.text());
}
