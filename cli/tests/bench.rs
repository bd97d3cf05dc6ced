//! The measuring instrument: it can tell when messages are lost, repeated or out of order, and each of its workloads
//! works.
#![expect(dead_code, reason = "each test uses a part of the product's client")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod product;

use std::io::{BufRead as _, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use futures_util::{SinkExt as _, StreamExt as _};
use product::Product;
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::handshake::server::{Request, Response};
use weir_protocol::ws::{ServerFrame, binary};

/// Whatever is waited for has come by then.
const PATIENCE: Duration = Duration::from_secs(60);

fn dir() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn bench(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_weir")).arg("bench").args(args).output().unwrap()
}

fn said(output: &Output) -> String {
    format!("{}\n{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn results(file: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(file).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn figure(result: &Value, name: &str) -> f64 {
    let figures = result["figures"].as_array().unwrap();
    let found = figures.iter().find(|figure| figure["name"] == name);
    found.unwrap_or_else(|| panic!("no {name} in {result}"))["value"].as_f64().unwrap()
}

/// What happens to the deliveries of one reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    Lose,
    Duplicate,
    Reorder,
}

/// Which messages of deliveries, counted from the first, are tampered with: so early that a run on a slow disk, which
/// has few of them, has these.
const TAMPERED: std::ops::Range<usize> = 5..8;

/// Stands between clients and a gateway, and does harm to deliveries.
struct Tamperer {
    address: String,
    /// Ends the proxy when dropped.
    _runtime: tokio::runtime::Runtime,
}

impl Tamperer {
    fn start(upstream: &str, fault: Fault) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let upstream = upstream.to_owned();
        runtime.spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(serve(client, upstream.clone(), fault));
            }
        });
        Self { address, _runtime: runtime }
    }
}

async fn serve(mut client: TcpStream, upstream: String, fault: Fault) {
    let mut start = [0; 10];
    while client.peek(&mut start).await.unwrap() < start.len() {
        tokio::task::yield_now().await;
    }
    if &start == b"GET /v1/ws" {
        websocket(client, &upstream, fault).await;
    } else {
        let mut server = TcpStream::connect(upstream).await.unwrap();
        let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
    }
}

async fn websocket(client: TcpStream, upstream: &str, fault: Fault) {
    let mut protocol = None;
    let echo = |request: &Request, mut response: Response| {
        protocol = request.headers().get("sec-websocket-protocol").cloned();
        let echoed = protocol.clone().unwrap();
        response.headers_mut().insert("sec-websocket-protocol", echoed);
        Ok(response)
    };
    let client = tokio_tungstenite::accept_hdr_async(client, echo).await.unwrap();
    let mut request = format!("ws://{upstream}/v1/ws").into_client_request().unwrap();
    request.headers_mut().insert("sec-websocket-protocol", protocol.unwrap());
    let (server, _) = tokio_tungstenite::connect_async(request).await.unwrap();
    let ((mut to_client, mut from_client), (mut to_server, mut from_server)) =
        (client.split(), server.split());
    let up = async {
        while let Some(Ok(message)) = from_client.next().await {
            if to_server.send(message).await.is_err() {
                return;
            }
        }
    };
    let down = async {
        let (mut count, mut held) = (0, None);
        while let Some(Ok(message)) = from_server.next().await {
            let is_tampered = is_deliveries(&message) && {
                count += 1;
                TAMPERED.contains(&count)
            };
            let mut out = match fault {
                Fault::Lose if is_tampered => vec![],
                Fault::Duplicate if is_tampered => vec![message.clone(), message],
                // One is kept back until the next has gone.
                Fault::Reorder if is_tampered && held.is_none() => {
                    held = Some(message);
                    vec![]
                }
                _ => vec![message],
            };
            if !out.is_empty() {
                out.extend(held.take());
            }
            for message in out {
                if to_client.send(message).await.is_err() {
                    return;
                }
            }
        }
    };
    tokio::select! { () = up => {}, () = down => {} }
}

/// True if there are records in it, and nothing that a client waits for.
fn is_deliveries(message: &Message) -> bool {
    let Message::Binary(bytes) = message else { return false };
    let mut bytes = bytes.clone();
    let mut has_records = false;
    while let Some((_, frame)) = binary::take_server_frame(&mut bytes).unwrap() {
        match frame {
            ServerFrame::Deliveries(_) => has_records = true,
            ServerFrame::CaughtUp(_) => {}
            _ => return false,
        }
    }
    has_records
}

/// A short run through the tamperer; whether it succeeded, and its result.
fn tampered(product: &Product, out: PathBuf, fault: Fault) -> (bool, Value) {
    let tamperer = Tamperer::start(&product.address, fault);
    let url = format!("http://{}", tamperer.address);
    let shape = ["--rate", "1k", "--writers", "2", "--readers", "2", "--warmup", "1", "--seconds", "2"];
    let target = ["--running", "--url", &url, "--out", out.to_str().unwrap()];
    let output = bench(&[&["steady"], &shape[..], &target[..]].concat());
    let mut found = results(&out);
    assert_eq!(found.len(), 1, "{}", said(&output));
    (output.status.success(), found.remove(0))
}

#[test]
fn loss_duplication_and_reordering_make_a_run_fail_and_are_told_apart() {
    let dir = dir();
    let product = Product::start(dir.path());
    for (fault, field) in
        [(Fault::Lose, "missing"), (Fault::Duplicate, "duplicates"), (Fault::Reorder, "out_of_order")]
    {
        let out = dir.path().join(format!("{field}.json"));
        let (succeeded, result) = tampered(&product, out.clone(), fault);
        assert!(!succeeded, "{fault:?} went unnoticed: {result}");
        for name in ["missing", "duplicates", "out_of_order"] {
            let count = result["identity"][name].as_u64().unwrap();
            assert_eq!(count > 0, name == field, "{fault:?}: {name} is {count} in {result}");
        }
        assert!(!result["void"].as_array().unwrap().is_empty(), "{result}");
        let table = said(&bench(&["table", out.to_str().unwrap()]));
        assert!(table.contains("0 of 1 (the others void)"), "{fault:?}: {table}");
    }
    let (succeeded, result) = tampered(&product, dir.path().join("none.json"), Fault::None);
    assert!(succeeded && result["identity"]["delivered"].as_u64().unwrap() > 2_000, "{result}");
}

#[test]
fn what_is_read_cold_comes_from_the_object_store_once_and_what_is_read_again_does_not() {
    let dir = dir();
    let out = dir.path().join("results.json");
    let store = format!("file://{}", dir.path().join("objects").display());
    let what = ["catch-up", "--readers", "3", "--size", "4MiB", "--object-store", &store];
    let output = bench(
        &[&what[..], &["--dir", dir.path().to_str().unwrap(), "--out", out.to_str().unwrap()]].concat(),
    );
    assert!(output.status.success(), "{}", said(&output));
    let found = results(&out);
    let [first, cold, warm] = &found[..] else { panic!("{found:?}") };
    for (result, end, messages) in [(first, "cold, first", 6144), (cold, "cold", 4096), (warm, "warm", 4096)]
    {
        assert!(result["case"].as_str().unwrap().ends_with(end), "{result}");
        assert_eq!(result["identity"]["delivered"], 3 * messages, "{result}");
    }
    for cold in [first, cold] {
        assert!(figure(cold, "bare_gets_mib_per_s") > 0.0 && figure(cold, "read_per_bare_gets_pct") > 0.0);
        let got = figure(cold, "get_bytes_per_object_byte");
        assert!((0.9..1.2).contains(&got), "three readers of each block made one request: {cold}");
        assert!(figure(cold, "blocks_missed") > 0.0, "{cold}");
    }
    assert!(figure(warm, "blocks_missed").abs() < 1e-9, "{warm}");
}

/// Processes whose command line has this in it.
fn processes_with(text: &str) -> usize {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = all.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    lines.filter(|line| String::from_utf8_lossy(line).contains(text)).count()
}

#[test]
fn a_run_that_is_interrupted_leaves_neither_processes_nor_data() {
    for signal in ["-INT", "-TERM"] {
        let dir = dir();
        let below = format!("{}/weir-bench-", dir.path().to_str().unwrap());
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command.args(["bench", "steady", "--rate", "100", "--seconds", "600", "--clients", "2", "--dir"]);
        let mut child = command.arg(dir.path()).stderr(Stdio::piped()).spawn().unwrap();
        let until = Instant::now() + PATIENCE;
        let is_ready = || {
            let entries = std::fs::read_dir(dir.path()).unwrap().flatten();
            entries.into_iter().any(|entry| entry.path().join("ready").exists())
        };
        while !is_ready() {
            assert!(Instant::now() < until && child.try_wait().unwrap().is_none(), "it does not begin");
            std::thread::yield_now();
        }
        assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success());
        let output = child.wait_with_output().unwrap();
        assert!(
            output.status.code() == Some(1) && said(&output).contains("interrupted"),
            "{}",
            said(&output)
        );
        // Who was killed is gone in a moment.
        while processes_with(&below) > 0 {
            assert!(Instant::now() < until, "a server goes on");
            std::thread::yield_now();
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "{signal}");
    }
}

#[test]
fn what_is_measured_while_it_runs_keeps_none_of_its_topics_and_results_have_a_place_before() {
    let dir = dir();
    let product = Product::start(dir.path());
    let url = format!("http://{}", product.address);
    let to = ["--running", "--seconds", "1", "--url", &url, "--dir", dir.path().to_str().unwrap()];
    for what in [&["http", "--rounds", "1", "--connections", "2"][..], &["lone", "--rate", "50"]] {
        let output = bench(&[what, &to].concat());
        assert!(output.status.success(), "{}", said(&output));
    }
    let listed = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["topic", "list", "--json", "--url", &url])
        .output()
        .unwrap();
    assert_eq!((listed.status.code(), said(&listed).trim()), (Some(0), ""));
    // What nothing can be kept in is refused before anything is measured.
    let nowhere = dir.path().join("nowhere/results.json");
    let output = bench(&[&["lone", "--out", nowhere.to_str().unwrap()], &to[..]].concat());
    assert!(
        said(&output).contains("cannot append to") && !said(&output).contains("confirm"),
        "{}",
        said(&output)
    );
}

/// Answers every request of a connection, and refuses to delete anything.
fn answer_all_but_delete(connection: std::net::TcpStream) -> std::io::Result<()> {
    let mut reader = std::io::BufReader::new(connection.try_clone()?);
    loop {
        let (mut line, mut length) = (String::new(), 0);
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let status = match line.split(' ').next().unwrap() {
            "DELETE" => "503 Service Unavailable",
            "POST" => "201 Created",
            _ => "204 No Content",
        };
        while line != "\r\n" {
            line.clear();
            reader.read_line(&mut line)?;
            if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
        }
        std::io::copy(&mut reader.by_ref().take(length), &mut std::io::sink())?;
        let length = if status.starts_with("204") { "" } else { "content-length: 0\r\n" };
        (&connection).write_all(format!("HTTP/1.1 {status}\r\n{length}\r\n").as_bytes())?;
    }
}

#[test]
fn a_topic_that_cannot_be_removed_takes_no_result_with_it() {
    let dir = dir();
    let out = dir.path().join("results.json");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            std::thread::spawn(move || answer_all_but_delete(connection.unwrap()));
        }
    });
    let (at, out_at) = (dir.path().to_str().unwrap(), out.to_str().unwrap());
    let mut args = vec!["http", "--rounds", "1", "--connections", "2", "--seconds", "1", "--running"];
    args.extend(["--url", &url, "--dir", at, "--out", out_at]);
    let output = bench(&args);
    assert!(!output.status.success() && said(&output).contains("cannot clean up"), "{}", said(&output));
    assert_eq!(results(&out).len(), 1, "{}", said(&output));
}

#[test]
fn every_workload_of_the_proof_proves_its_messages() {
    let dir = dir();
    let out = dir.path().join("results.json");
    let output =
        bench(&["matrix", "proof", "--dir", dir.path().to_str().unwrap(), "--out", out.to_str().unwrap()]);
    assert!(output.status.success(), "{}", said(&output));
    let found = results(&out);
    let mut proven = Vec::new();
    for result in &found {
        let identity = &result["identity"];
        if identity.is_object() {
            assert_eq!(identity["missing"], 0, "{result}");
            assert!(identity["delivered"].as_u64().unwrap() > 0, "{result}");
            assert_eq!(identity["sent"], identity["confirmed"], "{result}");
            proven.push(result["workload"].as_str().unwrap());
        }
        assert!(result["seconds"].as_f64().unwrap() > 0.0 && result["command"] != "", "{result}");
    }
    let mut expected =
        ["smoke", "steady", "payload", "burst", "fan-out", "frozen", "queue-lifecycle"].to_vec();
    expected.extend(["catch-up", "recovery", "many-topics"]);
    for (workload, case) in [
        ("steady", "3 clients"),
        ("steady", "past the gateway"),
        ("frozen", "2 of them frozen"),
        ("queue-lifecycle", "WebSocket binary, prefetch 64"),
        ("queue-lifecycle", "WebSocket JSON"),
        ("queue-lifecycle", "HTTP"),
        ("queue-lifecycle", "2 clients"),
    ] {
        let is = |it: &&Value| it["workload"] == workload && it["case"].as_str().unwrap().contains(case);
        let result = found.iter().find(is).unwrap_or_else(|| panic!("{workload} {case} was not measured"));
        assert_eq!(result["identity"]["duplicates"], 0, "{result}");
    }
    for result in found.iter().filter(|it| it["workload"] == "smoke") {
        // What was under way when it began to count is confirmed while it counts, and was written before.
        assert!(figure(result, "written_bytes_per_published_byte") > 0.5, "{result}");
    }
    expected.retain(|workload| !proven.contains(workload));
    assert!(expected.is_empty(), "not proven: {expected:?}");
    let left: Vec<_> =
        std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["results.json"], "the data of runs is removed");
    let table = said(&bench(&["table", out.to_str().unwrap(), "--only", "confirm,post_per_s,nacked"]));
    for heading in ["### smoke", "### queue-lifecycle", "### lone", "| nacked |", "| post per s |"] {
        assert!(table.contains(heading), "{heading} is missing in {table}");
    }
}

#[test]
fn a_set_that_is_not_there_is_refused_with_those_that_are() {
    let output = bench(&["matrix", "nothing"]);
    assert!(!output.status.success() && said(&output).contains("proof, quick"), "{}", said(&output));
    assert!(said(&bench(&["matrix"])).contains("1 × weir bench smoke"));
}

#[test]
fn a_store_that_no_restore_can_be_from_is_refused_with_what_to_name_instead() {
    let output = bench(&["catch-up", "--object-store", "local", "--size", "4MiB"]);
    assert!(!output.status.success() && said(&output).contains("file:///FOLDER"), "{}", said(&output));
}

#[test]
fn a_set_goes_on_where_it_was_left_and_begins_anew_for_another_build() {
    let dir = dir();
    let out = dir.path().join("results.json");
    let low = |build: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command.args(["bench", "matrix", "low-rate", "--runs", "1", "--short", "--resume", "--dir"]);
        command.arg(dir.path()).arg("--out").arg(&out).env("WEIR_BENCH_BUILD", build);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", said(&output));
        results(&out).len()
    };
    let whole = low("one");
    assert_eq!(whole, 6, "three rates of each of two workloads");
    // As if it had been stopped after the first line, whose last result is there too.
    let text = std::fs::read_to_string(&out).unwrap();
    std::fs::write(&out, text.lines().take(3).map(|line| format!("{line}\n")).collect::<String>()).unwrap();
    assert_eq!(low("one"), whole, "the second line alone was run");
    assert_eq!(low("one"), whole, "nothing is left to run");
    assert_eq!(low("two"), 2 * whole);
}
