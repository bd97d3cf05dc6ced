//! How the product stops when it is asked to, and what does not stop it.
#![expect(dead_code, reason = "each test uses a part of the product's client")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bare;
mod product;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use bare::{masked, upgraded};
use product::{Answer, Connection, Product, started};
use serde_json::json;

/// Whatever is asked for is done within this.
const PATIENCE: Duration = Duration::from_secs(60);

fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// Asks again until there is something.
fn awaited<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = ask() {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Sends a signal, and returns once the process has ended.
fn end(mut child: Child, signal: &str) -> ExitStatus {
    assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success());
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if begun.elapsed() > PATIENCE {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("{signal} did not end it");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Starts `weir` with an object store that takes connections and answers nobody; returns once it waits for that.
fn waiting_for_its_store(arguments: &[&str], data: &Path, log: &Path) -> (Child, TcpListener, TcpStream) {
    let store = TcpListener::bind("127.0.0.1:0").unwrap();
    store.set_nonblocking(true).unwrap();
    let child = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(arguments)
        .args(["--object-store", "s3://bucket/prefix", "--data-dir"])
        .arg(data)
        .env("AWS_ENDPOINT", format!("http://{}", store.local_addr().unwrap()))
        .envs([("AWS_ALLOW_HTTP", "true"), ("AWS_REGION", "us-east-1")])
        .envs([("AWS_ACCESS_KEY_ID", "anybody"), ("AWS_SECRET_ACCESS_KEY", "anything")])
        .env_remove("WEIR_LOG")
        .stderr(Stdio::from(std::fs::File::create(log).unwrap()))
        .spawn()
        .unwrap();
    let asked = awaited("the store is not asked", || store.accept().ok());
    (child, store, asked.0)
}

#[test]
fn a_start_ends_when_it_is_asked_to_and_costs_nothing() {
    let dir = scratch();
    let log = dir.path().join("log");
    let mut product = Product::start(dir.path());
    let publish = |product: &Product| {
        let mut http = Connection::open(&product.address).unwrap();
        let sent = http.request("POST /v1/topics/t/messages", &[], b"x").unwrap();
        assert_eq!(sent.status, 201, "{}", sent.text());
        sent.json()["offset"].as_u64().unwrap()
    };
    assert_eq!(publish(&product), 0);
    assert!(product.stop());
    let node = ["node", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
    let dev = ["dev", "--listen", "127.0.0.1:0"];
    let fresh = dir.path().join("fresh");
    for (data, arguments, signal) in [
        (dir.path().join("data"), &dev[..], "-TERM"),
        (dir.path().join("data"), &node, "-INT"),
        (fresh.join("data"), &node, "-TERM"),
    ] {
        let (child, _store, _asked) = waiting_for_its_store(arguments, &data, &log);
        let status = end(child, signal);
        let log = std::fs::read_to_string(&log).unwrap();
        assert!(status.success() && log.contains("stopping"), "{arguments:?} {signal} {status}: {log}");
        assert!(!log.contains("WARN") && !log.contains("ERROR"), "{arguments:?} {signal}: {log}");
    }
    assert_eq!(publish(&Product::start(dir.path())), 1, "what was there is there");
    assert_eq!(publish(&Product::start(&fresh)), 0, "what was begun goes on");
}

#[test]
fn a_server_goes_on_when_nobody_reads_what_it_says() {
    let dir = scratch();
    for arguments in [
        &["dev", "--listen", "127.0.0.1:0"][..],
        &["node", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"],
    ] {
        let ready = dir.path().join(arguments[0]);
        let mut child = Command::new(env!("CARGO_BIN_EXE_weir"))
            .args(arguments)
            .args(["--data-dir".as_ref(), dir.path().join("data").as_os_str()])
            .args(["--ready-file".as_ref(), ready.as_os_str()])
            .env("WEIR_LOG", "debug")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop((child.stdout.take(), child.stderr.take()));
        let said = awaited("it is not ready", || {
            assert_eq!(child.try_wait().unwrap(), None, "{arguments:?}");
            std::fs::read_to_string(&ready).ok().filter(|said| !said.is_empty())
        });
        let address = said.lines().last().unwrap().trim_start_matches("http://");
        let healthy = Connection::open(address).unwrap().request("GET /healthz", &[], b"").unwrap();
        assert_eq!(healthy.status, 204, "{arguments:?}");
        assert!(end(child, "-TERM").success(), "{arguments:?}");
    }
}

#[test]
fn a_command_whose_reader_has_left_ends_without_a_word() {
    let dir = scratch();
    let product = Product::start(dir.path());
    let url = format!("http://{}", product.address);
    let weir = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command.args(["--url", &url]).args(arguments).stdin(Stdio::null());
        command
    };
    assert!(weir(&["pub", "t", "x"]).stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap().success());
    for arguments in [&["sub", "t", "--from", "earliest"][..], &["topic", "list"]] {
        let mut child = weir(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let ended = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(ended.status.success() && said.is_empty(), "{arguments:?} {}: {said}", ended.status);
    }
    // Remarks that nobody reads are no reason to fail.
    for (arguments, code) in [(&["pub", "t", "x"][..], 0), (&["topic", "get", "nothing"], 1)] {
        let mut child = weir(arguments).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stderr.take());
        assert_eq!(child.wait().unwrap().code(), Some(code), "{arguments:?}");
    }
}

/// A product with 3,000 messages of a kilobyte in topic `t`, and the work queue `work` of it; and what starts
/// commands against it.
fn filled() -> (tempfile::TempDir, Product, impl Fn(&[&str]) -> Command) {
    let dir = scratch();
    let product = Product::start(dir.path());
    let (url, file) = (format!("http://{}", product.address), dir.path().join("lines"));
    let weir = move |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command.args(["--url", &url]).args(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    };
    let lines: String = (0..3_000).map(|n| format!("{n:01000}\n")).collect();
    std::fs::write(&file, lines).unwrap();
    for arguments in [
        &["topic", "create", "t", "--partitions", "4"][..],
        &["subscription", "create", "work", "--topic", "t"],
        &["pub", "t", "--lines", "--file", file.to_str().unwrap()],
    ] {
        let done = weir(arguments).output().unwrap();
        assert!(done.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
    }
    (dir, product, weir)
}

#[test]
fn a_run_that_is_interrupted_before_the_end_it_was_to_reach_has_failed() {
    let (_dir, _product, weir) = filled();
    for signal in ["-INT", "-TERM"] {
        for (at, (arguments, code)) in [
            (&["sub", "t", "--from", "earliest"][..], 0),
            (&["sub", "t", "--from", "earliest", "-n", "5000"], 1),
            (&["sub", "--subscription", "NAME"], 0),
            (&["sub", "--subscription", "NAME", "-n", "5000"], 1),
            (&["pull", "NAME", "--follow"], 0),
            (&["pub", "NAME", "--lines"], 1),
        ]
        .into_iter()
        .enumerate()
        {
            // What one case leaves is not there for the next.
            let name = format!("case{signal}-{at}");
            let arguments: Vec<_> =
                arguments.iter().map(|word| if *word == "NAME" { &name } else { *word }).collect();
            if arguments.contains(&name.as_str()) {
                assert!(weir(&["subscription", "create", &name, "--topic", "t"]).status().unwrap().success());
            }
            let mut child = weir(&arguments).spawn().unwrap();
            let mut printed = BufReader::new(child.stdout.take().unwrap());
            if let ["pub", topic, ..] = arguments[..] {
                child.stdin.as_ref().unwrap().write_all(b"x\n").unwrap();
                let is_there = || weir(&["topic", "get", topic]).output().unwrap().status.success();
                awaited("a line that was published", || is_there().then_some(()));
            } else {
                printed.read_line(&mut String::new()).unwrap();
            }
            std::thread::spawn(move || std::io::copy(&mut printed, &mut std::io::sink()));
            let (mut said, mut saying) = (String::new(), child.stderr.take().unwrap());
            let status = end(child, signal);
            saying.read_to_string(&mut said).unwrap();
            assert_eq!(status.code(), Some(code), "{signal} {arguments:?}: {said}");
            assert_eq!(said.contains("interrupted"), code == 1, "{signal} {arguments:?}: {said}");
        }
    }
}

#[test]
fn a_run_whose_output_nobody_takes_ends_when_it_is_asked_to() {
    let dir = scratch();
    let product = Product::start(dir.path());
    let mut http = Connection::open(&product.address).unwrap();
    for (line, body) in [
        ("PUT /v1/topics/t", "{}"),
        ("PUT /v1/subscriptions/work", r#"{"topics":["t"]}"#),
        ("PUT /v1/subscriptions/read", r#"{"topics":["t"],"mode":"stream"}"#),
        // More than a pipe holds.
        ("POST /v1/topics/t/messages", &"x".repeat(1 << 20)),
    ] {
        let done = http.request(line, &[], body.as_bytes()).unwrap();
        assert!(done.status < 300, "{line}: {}", done.text());
    }
    let begin = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command.args(["--url", &format!("http://{}", product.address)]).args(arguments);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut printed = child.stdout.take().unwrap();
        printed.read_exact(&mut [0]).unwrap();
        (child, printed)
    };
    let mut kept = [
        begin(&["sub", "t", "--from", "earliest"]),
        begin(&["sub", "--subscription", "read"]),
        begin(&["pull", "work", "--follow", "--ack"]),
    ];
    for (child, _) in &kept {
        assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    }
    // Time ends the first, whoever is impatient the others.
    let (first, others) = kept.split_first_mut().unwrap();
    for (child, _) in others.iter() {
        assert!(Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap().success());
    }
    for child in [&mut first.0].into_iter().chain(others.iter_mut().map(|(child, _)| child)) {
        let status = awaited("an end", || child.try_wait().unwrap());
        assert_eq!(status.code(), Some(1), "what was begun is not all printed: {status}");
    }
}

#[test]
fn what_an_interrupted_consumer_has_printed_does_not_come_again() {
    let (_dir, _product, weir) = filled();
    let mut child = weir(&["sub", "--subscription", "work"]).spawn().unwrap();
    let mut printed = BufReader::new(child.stdout.take().unwrap());
    let mut first = String::new();
    printed.read_line(&mut first).unwrap();
    // Nobody takes the rest: it stands in the middle of what came.
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let rest = std::thread::spawn(move || std::io::read_to_string(printed).unwrap());
    assert!(awaited("an end", || child.try_wait().unwrap()).success());
    let mut seen: Vec<_> = [first, rest.join().unwrap()].concat().lines().map(str::to_owned).collect();
    let left = (3_000 - seen.len()).to_string();
    let others = weir(&["sub", "--subscription", "work", "-n", &left]).output().unwrap();
    seen.extend(String::from_utf8(others.stdout).unwrap().lines().map(str::to_owned));
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), 3_000, "{left} were left");
}

#[test]
fn a_stop_that_was_asked_for_logs_no_warning() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = |name: &str| dir.path().join(name);
    // Whether a node or its gateway notices first is a race, so it is run a few times.
    for round in 0..5 {
        let (log, ready) = (path(&format!("log-{round}")), path(&format!("ready-{round}")));
        let mut child = Command::new(env!("CARGO_BIN_EXE_weir"))
            .args(["dev", "--listen", "127.0.0.1:0", "--data-dir"])
            .arg(path("data"))
            .arg("--ready-file")
            .arg(&ready)
            .env_remove("WEIR_LOG")
            .stderr(Stdio::from(std::fs::File::create(&log).unwrap()))
            .spawn()
            .unwrap();
        let begun = Instant::now();
        let url = loop {
            match std::fs::read_to_string(&ready) {
                Ok(url) if !url.is_empty() => break url,
                _ => assert!(begun.elapsed() < Duration::from_secs(60), "it never got ready"),
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        // Links to every shard, a follower that waits, and a connection that is kept alive.
        let address = url.split_once("://").unwrap().1;
        let mut http = Connection::open(address).unwrap();
        let config = br#"{"partitions":4}"#;
        http.request("PUT /v1/topics/wide", &[("Content-Type", "application/json")], config).unwrap();
        let text = [("Content-Type", "text/plain")];
        for _ in 0..8 {
            let sent = http.request("POST /v1/topics/wide/messages", &text, b"x").unwrap();
            assert_eq!(sent.status, 201, "{}", sent.text());
        }
        let mut events = Connection::open(address).unwrap();
        events.send("GET /v1/topics/wide/messages", &[("Accept", "text/event-stream")], b"").unwrap();
        assert_eq!(events.head().unwrap().0, 200);

        let pid = child.id().to_string();
        assert!(Command::new("kill").arg(pid).status().unwrap().success());
        assert!(child.wait().unwrap().success());
        let log = std::fs::read_to_string(&log).unwrap();
        assert!(log.contains("stopping: finishing what is in flight"), "{log}");
        assert!(!log.contains("WARN") && !log.contains("ERROR"), "round {round}: {log}");
    }
}

#[test]
fn who_is_slow_to_send_or_to_take_does_not_hold_up_the_stop() {
    let dir = scratch();
    let mut product = Product::start(dir.path());
    // Beyond what fits into the buffers of a connection that nobody reads.
    let publish = |http: &mut Connection, bytes: usize| {
        let sent = http.request("POST /v1/topics/t/messages", &[], &vec![b'x'; bytes]).unwrap();
        assert_eq!(sent.status, 201, "{}", sent.text());
    };
    let mut http = Connection::open(&product.address).unwrap();
    (0..16).for_each(|_| publish(&mut http, 1 << 20));
    let asks = |request: &str| {
        let mut stream = TcpStream::connect(&product.address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        stream
    };
    let head = "Host: localhost\r\n";
    let page = format!("GET /v1/topics/t/messages?limit=16&max_bytes=4194304 HTTP/1.1\r\n{head}\r\n");
    let slow = [
        asks(&format!("POST /v1/topics/t/messages HTTP/1.1\r\n{head}Content-Length: 100\r\n\r\nbegun")),
        asks(&format!("POST /v1/topics/t/messages HTTP/1.1\r\n{head}")),
        asks(&page.repeat(8)),
    ];
    let mut socket = upgraded(&product, "weir.v1.json");
    let limit = r#"{"msgs":1000,"bytes":1000000000}"#;
    let follow = format!(
        "{{\"t\":\"hello\",\"v\":1}}\n{{\"t\":\"sub\",\"ch\":1,\"topic\":\"t\",\"from\":\"earliest\",\"limit\":{limit}}}"
    );
    socket.write_all(&masked(0x81, follow.as_bytes())).unwrap();
    publish(&mut http, 1);
    let begun = Instant::now();
    assert!(product.stop());
    // They may finish within five seconds. What was begun may take thirty as long as nobody wants a stop.
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    drop((slow, socket));
}

#[test]
fn who_waits_for_messages_is_answered_when_it_stops() {
    let (_dir, mut product, mut http) = started();
    for topic in ["one", "several"] {
        let config = json!({ "partitions": if topic == "one" { 1 } else { 3 } }).to_string();
        let made = http.request(&format!("PUT /v1/topics/{topic}"), &[], config.as_bytes()).unwrap();
        assert_eq!(made.status, 201);
    }
    for (name, mode, topic) in
        [("queue", "queue", "several"), ("stream", "stream", "one"), ("shared", "stream", "several")]
    {
        let config = json!({ "mode": mode, "topics": [topic] }).to_string();
        let line = format!("PUT /v1/subscriptions/{name}");
        assert_eq!(http.request(&line, &[], config.as_bytes()).unwrap().status, 201);
    }
    let pull = br#"{"wait_ms":60000,"holder":"h"}"#;
    let waiting = [
        ("GET /v1/topics/one/messages?wait=60", &b""[..]),
        ("GET /v1/topics/several/messages?wait=60", b""),
        ("POST /v1/subscriptions/queue:pull", pull),
        ("POST /v1/subscriptions/stream:pull", pull),
        ("POST /v1/subscriptions/shared:pull", pull),
    ];
    let waiting = waiting.map(|(line, body)| (line, waits(&product, line, body)));
    // They are there to wait, not on their way: for each partition, the pulls for seven.
    let waited_for = ["weir_transport_calls_in_flight{side=\"client\"} 11\n", "weir_gateway_pull_waits 7\n"];
    let begun = Instant::now();
    loop {
        let metrics = http.request("GET /metrics", &[], b"").unwrap().text();
        if waited_for.iter().all(|line| metrics.contains(line)) {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "{metrics}");
    }
    let begun = Instant::now();
    assert!(product.stop(), "SIGTERM is no failure");
    // Whoever waited on would have done so for a minute.
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    for (line, waiting) in waiting {
        let answer = waiting.join().unwrap().unwrap_or_else(|error| panic!("{line}: {error}"));
        let expected = if line.starts_with("GET") { (204, "") } else { (200, r#"{"messages":[]}"#) };
        assert_eq!((answer.status, answer.text().as_str()), expected, "{line}");
    }
}

type Waiting = std::thread::JoinHandle<std::io::Result<Answer>>;

fn waits(product: &Product, line: &'static str, body: &'static [u8]) -> Waiting {
    let mut http = Connection::open(&product.address).unwrap();
    std::thread::spawn(move || {
        http.patience(Duration::from_secs(90));
        http.request(line, &[], body)
    })
}
