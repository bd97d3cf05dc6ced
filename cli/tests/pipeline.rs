//! `weir pub` and `weir sub` as people use them, across crashes of either side.
#![expect(dead_code, reason = "each test uses a part of the product's client")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../storage-node/tier/tests/ports/mod.rs"]
mod ports;
mod product;

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use product::Product;

/// A log as programs write them: times, levels, now and then an empty line.
fn log_file(dir: &Path, lines: usize) -> (PathBuf, String) {
    let mut text = String::new();
    for n in 0..lines {
        match n % 97 {
            0 => text.push('\n'),
            _ => {
                writeln!(text, "2026-01-31T12:00:{:02}Z INFO request {n} took {} us", n % 60, n * 7).unwrap()
            }
        }
    }
    let path = dir.join("app.log");
    std::fs::write(&path, &text).unwrap();
    (path, text)
}

fn weir(product: &Product, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.arg("--url").arg(format!("http://{}", product.address)).args(args);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn run(product: &Product, args: &[&str]) -> Output {
    weir(product, args).output().unwrap()
}

fn succeeded(output: &Output) -> String {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}\n{err}");
    out.into_owned()
}

fn product() -> (tempfile::TempDir, Product) {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let product = Product::start(dir.path());
    (dir, product)
}

fn everything(product: &Product, topic: &str) -> String {
    succeeded(&run(product, &["sub", topic, "--from", "earliest", "--no-follow"]))
}

/// Messages of a topic by its partition's end.
fn stored(product: &Product, topic: &str) -> u64 {
    let shown = run(product, &["--json", "topic", "get", topic]);
    let Ok(shown) = serde_json::from_slice::<serde_json::Value>(&shown.stdout) else { return 0 };
    shown["partitions"].as_array().unwrap().iter().map(|partition| partition["end"].as_u64().unwrap()).sum()
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(30);
    while !is_so() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn every_line_of_a_log_arrives_in_order() {
    let (dir, product) = product();
    let (path, text) = log_file(dir.path(), 50_000);
    let summary =
        succeeded(&run(&product, &["--json", "pub", "app", "--lines", "--file", path.to_str().unwrap()]));
    let summary: serde_json::Value = serde_json::from_str(&summary).unwrap();
    assert_eq!(summary["confirmed"], 50_000);
    assert_eq!(everything(&product, "app"), text);
    let last = succeeded(&run(&product, &["sub", "app", "--from", "tail:2", "-n", "1"]));
    assert_eq!(last.trim_end(), text.lines().nth(49_998).unwrap());
}

#[test]
fn a_line_is_published_when_it_comes_though_its_pipe_stays_open() {
    let (_dir, product) = product();
    let mut publisher = weir(&product, &["pub", "journal", "--lines"]).stdin(Stdio::piped()).spawn().unwrap();
    let mut pipe = publisher.stdin.take().unwrap();
    for (count, lines) in [(1, "first\n"), (3, "second\nthird\nbegun")] {
        pipe.write_all(lines.as_bytes()).unwrap();
        wait_until("the lines that are whole are there", || stored(&product, "journal") == count);
    }
    drop(pipe);
    succeeded(&publisher.wait_with_output().unwrap());
    assert_eq!(everything(&product, "journal"), "first\nsecond\nthird\nbegun\n");
}

#[test]
fn what_a_file_is_named_may_be_a_pipe_and_what_cannot_be_read_leaves_nothing_behind() {
    let (dir, product) = product();
    let fed = |args: &[&str]| {
        let mut publisher = weir(&product, args).stdin(Stdio::piped()).spawn().unwrap();
        publisher.stdin.take().unwrap().write_all(b"one\ntwo\n").unwrap();
        publisher.wait_with_output().unwrap()
    };
    // As a shell names the pipe of `<(zcat app.log.gz)`.
    succeeded(&fed(&["pub", "unzipped", "--lines", "--file", "/dev/stdin"]));
    assert_eq!(everything(&product, "unzipped"), "one\ntwo\n");
    let resumed = fed(&["pub", "unzipped", "--lines", "--file", "/dev/stdin", "--resume"]);
    assert!(String::from_utf8_lossy(&resumed.stderr).contains("--resume needs --file with a file"));

    let (folder, missing) = (dir.path(), dir.path().join("missing"));
    for (path, why) in [(folder, "is a directory"), (&missing, "No such file")] {
        let path = path.to_str().unwrap();
        let refused = run(&product, &["pub", "mistyped", "--create", "--lines", "--file", path]);
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(!refused.status.success() && said.contains(path) && said.contains(why), "{said}");
        assert!(!run(&product, &["topic", "get", "mistyped"]).status.success(), "{said}");
    }
}

#[test]
fn a_file_that_has_less_than_its_topic_is_not_gone_on_with() {
    let (dir, product) = product();
    let (path, _) = log_file(dir.path(), 1_000);
    let args = ["pub", "rotated", "--lines", "--file", path.to_str().unwrap(), "--resume"];
    succeeded(&run(&product, &args));
    succeeded(&run(&product, &args));
    // Somebody moved the log away and began another.
    std::fs::write(&path, "first of the new\n").unwrap();
    let resumed = run(&product, &args);
    let said = String::from_utf8_lossy(&resumed.stderr);
    assert!(!resumed.status.success() && said.contains("1 message(s), and the topic has 1000"), "{said}");
    assert!(said.contains("without --resume") && !said.contains("the same command"), "{said}");
    assert_eq!(stored(&product, "rotated"), 1_000);
    succeeded(&run(&product, &args[..5]));
    assert!(everything(&product, "rotated").ends_with("\nfirst of the new\n"));
}

#[test]
fn a_file_that_was_changed_up_to_where_it_is_to_go_on_is_not_gone_on_with() {
    let (dir, product) = product();
    let (path, text) = log_file(dir.path(), 1_000);
    let begun: String = text.split_inclusive('\n').take(600).collect();
    for partitions in ["1", "4"] {
        let topic = format!("changed-{partitions}");
        succeeded(&run(&product, &["topic", "create", &topic, "--partitions", partitions]));
        let args = ["pub", &topic, "--lines", "--file", path.to_str().unwrap(), "--resume"];
        std::fs::write(&path, &begun).unwrap();
        succeeded(&run(&product, &args));
        // Somebody wrote a line above the others, and the log grew.
        std::fs::write(&path, format!("a heading\n{text}")).unwrap();
        let resumed = run(&product, &args);
        let said = String::from_utf8_lossy(&resumed.stderr);
        assert!(!resumed.status.success() && said.contains("of the input is another"), "{said}");
        assert!(said.contains("without --resume") && !said.contains("the same command"), "{said}");
        assert_eq!(stored(&product, &topic), 600);
        std::fs::write(&path, &text).unwrap();
        succeeded(&run(&product, &args));
        assert_eq!(stored(&product, &topic), 1_000);
    }
    assert_eq!(everything(&product, "changed-1"), text);
}

#[test]
fn a_line_that_the_gateway_does_not_take_is_named_and_those_before_it_are_there() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let product = Product::start_with(dir.path(), "127.0.0.1:0", &["--record-max", "1KiB"]);
    let path = dir.path().join("lines");
    let large = "x".repeat((1 << 10) + 1);
    std::fs::write(&path, format!("{}{large}\nbehind it\n", "short\n".repeat(300))).unwrap();
    let refused = run(&product, &["pub", "t", "--lines", "--file", path.to_str().unwrap()]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("line 301 has 1025 bytes"), "{said}");
    assert!(said.contains("takes 1024 at most") && said.contains("300 messages are confirmed"), "{said}");
    assert_eq!(stored(&product, "t"), 300);
}

#[test]
fn a_killed_publisher_goes_on_where_it_was_and_nothing_is_there_twice() {
    let (dir, product) = product();
    let (path, text) = log_file(dir.path(), 2_000);
    // The input stops in the middle, so that the kill meets a run under way.
    let half = text.len() / 2;
    let args = ["pub", "app", "--lines", "--producer", "shipper"];
    let mut child: Child = weir(&product, &args).stdin(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(&text.as_bytes()[..half]).unwrap();
    wait_until("part of the log is stored", || stored(&product, "app") >= 256);
    child.kill().unwrap();
    child.wait().unwrap();
    let before = stored(&product, "app");
    assert!(before < 2_000);
    let resumed = run(
        &product,
        &[
            "--json",
            "pub",
            "app",
            "--lines",
            "--producer",
            "shipper",
            "--resume",
            "-f",
            path.to_str().unwrap(),
        ],
    );
    let summary: serde_json::Value = serde_json::from_str(&succeeded(&resumed)).unwrap();
    assert_eq!((&summary["confirmed"], &summary["skipped"]), (&2_000.into(), &before.into()));
    assert_eq!(everything(&product, "app"), text);
}

/// Publishes 4,000 lines to a topic of four partitions in runs that are killed wherever they are, each going on where
/// the one before was; then every line is there once.
fn killed_and_resumed(keys: &[&str]) {
    const LINES: usize = 4_000;
    let (dir, product) = product();
    succeeded(&run(&product, &["topic", "create", "app", "--partitions", "4"]));
    let lines: Vec<_> = (0..LINES).map(|n| format!("{{\"user\":\"u{}\",\"n\":{n}}}\n", n % 23)).collect();
    let path = dir.path().join("events.ndjson");
    std::fs::write(&path, lines.concat()).unwrap();
    let publish = [&["--json", "pub", "app", "--lines", "--producer", "shipper"], keys].concat();
    for (round, resume) in [&[][..], &["--resume"], &["--resume"]].into_iter().enumerate() {
        let before = stored(&product, "app");
        // The input ends within the round, so that the kill meets a run under way.
        let end = LINES / 4 * (round + 1);
        let mut child = weir(&product, &[&publish, resume].concat()).stdin(Stdio::piped()).spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        input.write_all(lines[..end].concat().as_bytes()).unwrap();
        wait_until("part of it is stored", || stored(&product, "app") > before);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(stored(&product, "app") <= end as u64, "round {round}");
    }
    let before = stored(&product, "app");
    let rest = [&publish, &["--resume", "-f", path.to_str().unwrap()][..]].concat();
    let summary: serde_json::Value = serde_json::from_str(&succeeded(&run(&product, &rest))).unwrap();
    assert_eq!(summary["confirmed"], LINES);
    assert!(summary["skipped"].as_u64().unwrap() <= before, "{summary}, {before} were stored");
    assert_eq!(stored(&product, "app"), LINES as u64);
    let all = everything(&product, "app");
    let mut found: Vec<_> = all.split_inclusive('\n').collect();
    if !keys.is_empty() {
        let shown = run(&product, &["--json", "topic", "get", "app"]);
        let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
        let ends = shown["partitions"].as_array().unwrap().iter().map(|partition| &partition["end"]);
        assert!(ends.filter(|end| end.as_u64() > Some(0)).count() > 1, "{shown}");
        // What has the same key lies in one partition, in order.
        let of_one: Vec<_> = found.iter().filter(|line| line.contains("\"u7\"")).collect();
        assert_eq!(of_one, lines.iter().filter(|line| line.contains("\"u7\"")).collect::<Vec<_>>());
    }
    found.sort_unstable();
    let mut expected: Vec<_> = lines.iter().map(String::as_str).collect();
    expected.sort_unstable();
    assert_eq!(found, expected, "each once");
}

#[test]
fn runs_that_are_killed_over_several_partitions_go_on_and_nothing_is_there_twice() {
    killed_and_resumed(&[]);
}

#[test]
fn runs_with_keys_that_are_killed_go_on_and_keep_the_order_of_each_key() {
    killed_and_resumed(&["--key-json", ".user"]);
}

#[test]
fn publisher_and_follower_survive_a_crash_of_the_product() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut product = Product::start_at(dir.path(), &ports::own().to_string());
    let (_, text) = log_file(dir.path(), 5_000);
    let mut follower = weir(&product, &["sub", "app", "--from", "earliest", "-n", "5000", "--credit", "100"]);
    let mut publisher =
        weir(&product, &["pub", "app", "--lines", "--producer", "p"]).stdin(Stdio::piped()).spawn().unwrap();
    let mut input = publisher.stdin.take().unwrap();
    let third = text.len() / 3;
    input.write_all(&text.as_bytes()[..third]).unwrap();
    wait_until("the first third is being stored", || stored(&product, "app") > 0);
    let mut follower = follower.spawn().unwrap();
    product.kill();
    let product = Product::start_at(dir.path(), &product.address);
    input.write_all(&text.as_bytes()[third..]).unwrap();
    drop(input);
    let published = publisher.wait_with_output().unwrap();
    succeeded(&published);
    let mut seen = String::new();
    follower.stdout.take().unwrap().read_to_string(&mut seen).unwrap();
    assert!(follower.wait().unwrap().success());
    assert_eq!(seen, text);
    assert_eq!(everything(&product, "app"), text);
}

#[test]
fn who_follows_partitions_without_messages_is_told_of_no_loss_after_a_crash() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut product = Product::start_at(dir.path(), &ports::own().to_string());
    succeeded(&run(&product, &["topic", "create", "wide", "--partitions", "4"]));
    let publish = |product: &Product, text: &str| {
        succeeded(&run(product, &["pub", "wide", text, "--key", "k"]));
    };
    publish(&product, "first");
    let mut follower = weir(&product, &["sub", "wide", "--from", "earliest", "-n", "2"]).spawn().unwrap();
    let mut lines = BufReader::new(follower.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "first");
    product.kill();
    let product = Product::start_at(dir.path(), &product.address);
    publish(&product, "second");
    assert_eq!(lines.next().unwrap().unwrap(), "second");
    let output = follower.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("trying again") && !said.contains("missing"), "{said}");
}

#[test]
fn how_to_go_on_is_what_can_be_typed() {
    let (_dir, product) = product();
    let namespace = ["--ns", "strict", "pub", "none", "--producer", "it's"];
    succeeded(&run(&product, &["namespace", "create", "strict"]));
    let said = |more: &[&str]| {
        let refused = run(&product, &[&namespace, more].concat());
        String::from_utf8(refused.stderr).unwrap().lines().last().unwrap().to_owned()
    };
    assert_eq!(said(&["x"]), "0 messages are confirmed");
    let on = "0 messages are confirmed; the same command with --resume sends the rest, each once";
    assert_eq!(said(&["--lines"]), on);
}

#[test]
fn keys_come_from_json_and_bad_input_is_named_with_what_is_confirmed() {
    let (dir, product) = product();
    let path = dir.path().join("orders.ndjson");
    std::fs::write(&path, "{\"id\":1,\"n\":9007199254740993.10}\n{\"id\":\"b\"}\nnot json\n").unwrap();
    let failed =
        run(&product, &["pub", "orders", "--lines", "--key-json", ".id", "-f", path.to_str().unwrap()]);
    let error = String::from_utf8_lossy(&failed.stderr).into_owned();
    assert!(!failed.status.success());
    assert!(error.contains("line 3 is not JSON") && error.contains("2 messages are confirmed"), "{error}");
    let lines = succeeded(&run(&product, &["--json", "sub", "orders", "--from", "earliest", "--no-follow"]));
    let keys: Vec<_> = lines
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["key"].clone())
        .collect();
    assert_eq!(keys, ["1", "b"]);
    assert!(lines.contains("9007199254740993.10"), "digits are kept: {lines}");
}

#[test]
fn who_follows_a_topic_is_told_that_it_is_closed_and_that_it_is_open_again() {
    let (_dir, product) = product();
    let mut http = product::Connection::open(&product.address).unwrap();
    let mut send = |line: &str, body: &str| {
        let answer = http.request(line, &[], body.as_bytes()).unwrap();
        assert!(answer.status < 300, "{line}: {}", answer.text());
    };
    send("PUT /v1/topics/log", r#"{"partitions":2}"#);
    send("POST /v1/topics/log/messages", "first");
    send("PATCH /v1/topics/log", r#"{"closed":true}"#);
    let follow = |args: &[&str]| weir(&product, args).spawn().unwrap();
    let mut as_json = follow(&["--json", "sub", "log", "--from", "earliest", "-n", "2"]);
    let mut as_text = follow(&["sub", "log", "--from", "earliest", "-n", "2"]);
    let mut lines = BufReader::new(as_json.stdout.take().unwrap()).lines();
    let mut next = || serde_json::from_str::<serde_json::Value>(&lines.next().unwrap().unwrap()).unwrap();
    let mut notes = BufReader::new(as_text.stderr.take().unwrap()).lines();
    let mut note = || notes.next().unwrap().unwrap();
    assert_eq!(next()["data_base64"], "Zmlyc3Q=");
    assert_eq!(next(), serde_json::json!({"event": "closed", "topic": "log"}));
    assert!(note().contains("log: closed"));
    send("PATCH /v1/topics/log", r#"{"closed":false}"#);
    assert_eq!(next(), serde_json::json!({"event": "opened", "topic": "log"}));
    assert!(note().contains("log: opened again"));
    send("POST /v1/topics/log/messages", "last");
    assert_eq!(next()["data_base64"], "bGFzdA==");
    assert!(as_json.wait().unwrap().success());
    assert_eq!(succeeded(&as_text.wait_with_output().unwrap()), "first\nlast\n", "payloads and nothing else");
}

#[test]
fn what_is_stored_with_a_message_is_in_its_line_as_the_api_has_it() {
    let (_dir, product) = product();
    let mut http = product::Connection::open(&product.address).unwrap();
    let stored = [
        ("Content-Type", "text/plain"),
        ("Content-Encoding", "x-none"),
        ("Content-Digest", "sha-256=:LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ=:"),
        ("Deliver-Delay-Ms", "86400000"),
        ("Message-TTL-Ms", "60000"),
        ("Message-Header-X", "y"),
        ("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
        ("tracestate", "a=b"),
    ];
    assert_eq!(http.request("POST /v1/topics/t/messages", &stored, b"hello").unwrap().status, 201);
    let mut request = b"POST /v1/topics/t/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\
                        Message-Header-Cafe: caf\xe9\r\nMessage-Header-Tea: t\xc3\xa9\r\nConnection: close\r\n\r\nx"
        .as_slice();
    let mut raw = std::net::TcpStream::connect(&product.address).unwrap();
    std::io::copy(&mut request, &mut raw).unwrap();
    let mut answer = String::new();
    raw.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    let lines = succeeded(&run(&product, &["--json", "sub", "t", "--from", "earliest", "--no-follow"]));
    let lines: Vec<serde_json::Value> =
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let page = http.request("GET /v1/topics/t/messages", &[], b"").unwrap().json();
    for (line, of_the_api) in lines.iter().zip(page["messages"].as_array().unwrap()) {
        let mut expected = of_the_api.clone();
        expected["topic"] = "t".into();
        assert_eq!(*line, expected);
    }
    assert_eq!((lines.len(), lines[0].as_object().unwrap().len()), (2, 13), "{lines:?}");
    assert_eq!(lines[1]["headers_base64"], serde_json::json!({"cafe": "Y2Fm6Q=="}));
    assert_eq!(lines[1]["headers"], serde_json::json!({"tea": "té"}));
}

#[test]
fn a_message_has_the_headers_that_were_typed_and_is_found_by_them() {
    let (_dir, product) = product();
    for region in ["eu=west", "us"] {
        let header = format!("region={region}");
        succeeded(&run(&product, &["pub", "t", region, "-H", &header, "--header", "empty="]));
    }
    let filter = ["--filter", "header.region == 'eu*' and header.empty == ''"];
    let found = [&["--json", "sub", "t", "--from", "earliest", "--no-follow"][..], &filter].concat();
    let line: serde_json::Value = serde_json::from_str(&succeeded(&run(&product, &found))).unwrap();
    assert_eq!(line["headers"], serde_json::json!({"region": "eu=west", "empty": ""}));
    for (bad, why) in [("region", "NAME=VALUE"), ("=eu", "name is empty")] {
        let refused = run(&product, &["pub", "t", "x", "-H", bad]);
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(!refused.status.success() && said.contains(why), "{said}");
    }
    let twice = run(&product, &["pub", "t", "x", "-H", "a=1", "-H", "a=2"]);
    let said = String::from_utf8_lossy(&twice.stderr);
    assert!(!twice.status.success() && said.contains("a header name occurs twice"), "{said}");
    assert_eq!(stored(&product, "t"), 2);
}

#[test]
fn what_is_published_can_be_waited_for_until_it_is_archived() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let store = format!("file://{}", dir.path().join("objects").display());
    let product = Product::start_with(dir.path(), "127.0.0.1:0", &["--object-store", &store]);
    let publish = ["--json", "pub", "t", "hello", "--create", "--confirm", "archived"];
    let said: serde_json::Value = serde_json::from_str(&succeeded(&run(&product, &publish))).unwrap();
    assert_eq!(said["confirmed"], 1, "{said}");
    let (_dir, without) = self::product();
    let refused = run(&without, &publish);
    let error = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && error.contains("level_unavailable"), "{error}");
}

#[test]
fn what_cannot_be_followed_says_why() {
    let (_dir, product) = product();
    for (args, expected) in [
        (vec!["sub", "nothing"], "topic_not_found"),
        (vec!["sub", "nothing", "--from", "yesterday"], "--from"),
        (vec!["pub", "a", "--resume", "--lines"], "--resume needs"),
        (vec!["pub", "a", "m", "--confirm", "soon"], "possible values"),
    ] {
        let output = run(&product, &args);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && error.contains(expected), "{args:?}: {error}");
    }
}

#[test]
fn one_partition_is_followed_to_its_end_whichever_it_is() {
    let (_dir, product) = product();
    succeeded(&run(&product, &["topic", "create", "wide", "--partitions", "4"]));
    for n in 0..40 {
        succeeded(&run(&product, &["pub", "wide", &format!("m{n}"), "--key", &format!("k{n}")]));
    }
    let of = |partition: &str| {
        let args = ["sub", "wide", "--from", "earliest", "--no-follow", "--partition", partition];
        succeeded(&run(&product, &args)).lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let parts: Vec<_> = ["0", "1", "2", "3"].map(of).into();
    assert_eq!(parts.iter().map(Vec::len).sum::<usize>(), 40, "{parts:?}");
    assert!(parts.iter().filter(|part| !part.is_empty()).count() > 1, "{parts:?}");
}

#[test]
fn output_that_cannot_be_written_is_an_error_and_a_reader_that_left_is_none() {
    let (_dir, product) = product();
    succeeded(&run(&product, &["pub", "t", "hello"]));
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut sub = weir(&product, &["sub", "t", "--from", "earliest", "--no-follow"]);
    let output = sub.stdout(full).output().unwrap();
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("cannot write to standard output"));
}

#[test]
fn a_publisher_over_several_partitions_survives_a_crash_of_the_product() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut product = Product::start_at(dir.path(), &ports::own().to_string());
    succeeded(&run(&product, &["topic", "create", "wide", "--partitions", "3"]));
    let (_, text) = log_file(dir.path(), 9_000);
    let lines: Vec<_> = text.split_inclusive('\n').collect();
    let (first, rest) = lines.split_at(6_000);
    let args = ["pub", "wide", "--lines", "--producer", "p"];
    let mut publisher = weir(&product, &args).stdin(Stdio::piped()).spawn().unwrap();
    let mut input = publisher.stdin.take().unwrap();
    input.write_all(first.concat().as_bytes()).unwrap();
    // More than a producer's window: what a gateway finds of it later is less than what the publisher was told.
    wait_until("what comes in whole pieces is stored", || stored(&product, "wide") > 4_000);
    product.kill();
    let product = Product::start_at(dir.path(), &product.address);
    input.write_all(rest.concat().as_bytes()).unwrap();
    drop(input);
    succeeded(&publisher.wait_with_output().unwrap());
    let all = everything(&product, "wide");
    let mut found: Vec<_> = all.split_inclusive('\n').collect();
    found.sort_unstable();
    let mut expected = lines;
    expected.sort_unstable();
    assert!(found == expected, "{} lines of {}, or not each once", found.len(), expected.len());
}
