//! What operators rely on: what is measured and published, being drained, and a journal that is full.
#![expect(dead_code, reason = "each test uses a part of the product's client")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
// The list of limits is one literal.
#![recursion_limit = "256"]

mod product;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use product::{Connection, Product, Running};
use serde_json::json;

/// Whatever happens by itself has happened within this.
const SOON: Duration = Duration::from_secs(20);

fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

#[test]
fn the_gateway_publishes_every_limit_that_it_holds_its_clients_to() {
    let dir = scratch();
    let options = ["--connections-max", "77", "--record-max", "2MiB"];
    let product = Product::start_with(dir.path(), "127.0.0.1:0", &options);
    let service = Connection::open(&product.address).unwrap().request("GET /v1", &[], b"").unwrap().json();
    assert_eq!(
        service["limits"],
        json!({
            "record_bytes": 2 << 20, "batch_bytes": 10 << 20, "batch_records": 10_000, "batch_decoded_bytes": 128 << 20, "atomic_batch_bytes": 3 << 20,
            "key_bytes": 1024, "headers": 64, "headers_bytes": 16 << 10, "client_id_bytes": 255, "read_records": 10_000,
            "read_bytes": 4 << 20, "wait_ms": 60_000, "delay_ms": 366u64 * 24 * 3600 * 1000, "sse_topics": 100,
            "subscription_topics": 100, "subscription_partitions": 1024, "subscription_patterns": 1000,
            "ws_channels": 1000, "ws_message_bytes": 4 << 20, "partitions": 1024, "dedupe_window_ms": 600_000,
            "producer_idle_ms": 7 * 24 * 3600 * 1000, "confirm_deadline_ms": 60_000, "request_headers": 64,
            "request_headers_bytes": 16 << 10, "connections": 77, "config_bytes": 64 << 10, "lease_ms_min": 1_000,
            "lease_ms": 12 * 3600 * 1000, "pull_records": 10_000, "pull_bytes": 4 << 20, "settle_leases": 10_000,
            "settle_bytes": 2 << 20, "settle_outputs": 1_000, "settle_output_bytes": 3 << 20,
            "settle_publish_bytes": 6 << 20, "settle_reason_bytes": 1024, "holder_bytes": 255, "unacked": 1_000_000,
            "backoff_steps": 32, "filter_bytes": 1024, "filter_depth": 16, "redrive_records": 10_000
        })
    );
}

#[test]
fn a_gateway_publishes_the_levels_of_its_storage_before_it_was_asked_for_anything_else() {
    for (options, best) in [(["--object-store", "local"], "archived"), (["--sync", "os"], "memory")] {
        let dir = scratch();
        let product = Product::start_with(dir.path(), "127.0.0.1:0", &options);
        let service =
            Connection::open(&product.address).unwrap().request("GET /v1", &[], b"").unwrap().json();
        assert_eq!(service["levels"].as_array().unwrap().last(), Some(&json!(best)));
    }
}

#[test]
fn what_is_published_is_what_is_refused() {
    let dir = scratch();
    let product = Product::start(dir.path());
    let mut http = Connection::open(&product.address).unwrap();
    let limits = http.request("GET /v1", &[], b"").unwrap().json()["limits"].clone();
    let limit = |name: &str| limits[name].as_u64().unwrap();
    let mut ms = |ms: u64| {
        let ms = ms.to_string();
        http.request("POST /v1/topics/t/messages", &[("Confirm-Deadline-Ms", &ms)], b"x").unwrap().status
    };
    assert_eq!((ms(limit("confirm_deadline_ms")), ms(limit("confirm_deadline_ms") + 1)), (201, 400));
    let mut config = |bytes: u64| {
        let body = format!("{{}}{}", " ".repeat(usize::try_from(bytes - 2).unwrap()));
        http.request("PUT /v1/topics/u", &[], body.as_bytes()).unwrap().status
    };
    assert_eq!((config(limit("config_bytes")), config(limit("config_bytes") + 1)), (201, 413));
    http = Connection::open(&product.address).unwrap();
    // Every request of this client has Host and Content-Length.
    let mut fields = |count: u64| {
        let names: Vec<_> = (2..count).map(|n| format!("x-{n}")).collect();
        let headers: Vec<_> = names.iter().map(|name| (name.as_str(), "y")).collect();
        http.request("GET /v1", &headers, b"").unwrap().status
    };
    assert_eq!((fields(limit("request_headers")), fields(limit("request_headers") + 1)), (200, 431));
    let mut filtered = |filter: &str| {
        let filter: String = filter.bytes().map(|byte| format!("%{byte:02X}")).collect();
        http.request(&format!("GET /v1/topics/t/messages?filter={filter}"), &[], b"").unwrap().status
    };
    let mut long = |bytes: u64| {
        let text = "x".repeat(usize::try_from(bytes).unwrap() - "key == ''".len());
        filtered(&format!("key == '{text}'"))
    };
    assert_eq!((long(limit("filter_bytes")), long(limit("filter_bytes") + 1)), (200, 400));
    let mut deep = |depth: u64| {
        let depth = usize::try_from(depth).unwrap();
        filtered(&format!("{}key == ''{}", "(".repeat(depth), ")".repeat(depth)))
    };
    assert_eq!((deep(limit("filter_depth")), deep(limit("filter_depth") + 1)), (200, 400));
    http.request("PUT /v1/subscriptions/s", &[], br#"{"mode":"queue","topics":["t"]}"#).unwrap();
    let mut redriven = |max: u64| {
        let body = json!({"max": max}).to_string();
        http.request("POST /v1/subscriptions/s:redrive", &[], body.as_bytes()).unwrap().status
    };
    assert_eq!((redriven(limit("redrive_records")), redriven(limit("redrive_records") + 1)), (200, 400));
}

/// The values of a metric, by its labels.
fn values(metrics: &str, name: &str) -> Vec<(String, f64)> {
    let lines = metrics.lines().filter_map(|line| line.strip_prefix(name));
    let samples = lines.filter(|rest| rest.starts_with(['{', ' ']));
    samples
        .map(|rest| {
            let (labels, value) = rest.rsplit_once(' ').unwrap();
            (labels.to_owned(), value.parse().unwrap())
        })
        .collect()
}

/// The metrics once they are `so`, or as they are in the end.
fn once(http: &mut Connection, so: impl Fn(&str) -> bool) -> String {
    let until = Instant::now() + SOON;
    loop {
        let metrics = http.request("GET /metrics", &[], b"").unwrap().text();
        if so(&metrics) || Instant::now() >= until {
            return metrics;
        }
    }
}

#[test]
fn both_ends_of_the_way_between_gateway_and_node_are_measured() {
    let dir = scratch();
    let data = dir.path().join("data");
    let node =
        ["node", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--data-dir", data.to_str().unwrap()];
    let node = Running::start(dir.path(), &node);
    let gateway =
        Running::start(dir.path(), &["gateway", "--node", &node.said[0], "--listen", "127.0.0.1:0"]);
    let mut http = Connection::open(gateway.said[0].strip_prefix("http://").unwrap()).unwrap();
    assert_eq!(http.request("PUT /v1/topics/t", &[], b"{}").unwrap().status, 201);
    let message = vec![b'x'; 100_000];
    assert_eq!(http.request("POST /v1/topics/t/messages", &[], &message).unwrap().status, 201);
    let mut node = Connection::open(&node.said[1]).unwrap();
    for (http, side, sent, received) in [
        (&mut http, "client", "weir_transport_sent_bytes_total", "weir_transport_received_bytes_total"),
        (&mut node, "server", "weir_transport_received_bytes_total", "weir_transport_sent_bytes_total"),
    ] {
        // What is written is counted afterwards, so the answer to it may be here before.
        let metrics = once(http, |metrics| {
            let total = |name: &str| values(metrics, name).first().map_or(0.0, |(_, value)| *value);
            total(sent) > 100_000.0
                && total(received) > 0.0
                && total("weir_transport_sent_frames_total") >= 2.0
                && total("weir_transport_writes_total") >= 2.0
        });
        let value = |name: &str| {
            let found = values(&metrics, name);
            assert_eq!(found.len(), 1, "{name} of the {side}: {metrics}");
            assert_eq!(found[0].0, format!("{{side=\"{side}\"}}"));
            found[0].1
        };
        assert!(value(sent) > 100_000.0, "{side}: {}", value(sent));
        assert!(value(received) > 0.0 && value(received) < 100_000.0, "{side}");
        assert!(value("weir_transport_connections") >= 1.0);
        assert!(value("weir_transport_connections_opened_total") >= 1.0);
        assert!(value("weir_transport_sent_frames_total") >= 2.0);
        assert!(value("weir_transport_received_frames_total") >= 2.0);
        assert!(value("weir_transport_writes_total") >= 2.0);
        for name in [
            "weir_transport_handshakes_failed_total",
            "weir_transport_calls_in_flight",
            "weir_transport_queued_bytes",
            "weir_transport_backpressure_waits_total",
            "weir_transport_refused_calls_total",
            "weir_transport_overruns_total",
        ] {
            assert!(value(name) >= 0.0, "{name}");
        }
    }
}

#[test]
fn one_process_measures_both_sides_and_names_the_most_of_what_is_bounded() {
    let dir = scratch();
    let product = Product::start_with(dir.path(), "127.0.0.1:0", &["--connections-max", "77"]);
    let mut http = Connection::open(&product.address).unwrap();
    let metrics = http.request("GET /metrics", &[], b"").unwrap().text();
    let sides = values(&metrics, "weir_transport_connections");
    assert_eq!(sides.len(), 2, "{sides:?}");
    for name in [
        "connections",
        "websockets",
        "request_bytes",
        "answer_bytes",
        "publish_bytes",
        "publish_credit_bytes",
        "read_credit_bytes",
        "feed_bytes",
        "topics",
    ] {
        let (now, most) = (format!("weir_gateway_{name}"), format!("weir_gateway_{name}_max"));
        let (now, most) = (values(&metrics, &now), values(&metrics, &most));
        assert_eq!((now.len(), most.len()), (1, 1), "{name}: {metrics}");
        assert!(now[0].1 <= most[0].1 && most[0].1 > 0.0, "{name}");
    }
    assert!((values(&metrics, "weir_gateway_websockets_max")[0].1 - 77.0).abs() < 0.5);
}

#[test]
fn a_gateway_that_drains_says_that_it_is_not_ready() {
    let dir = scratch();
    let mut product = Product::start(dir.path());
    let address = product.address.clone();
    let mut asking = TcpStream::connect(&address).unwrap();
    asking.set_read_timeout(Some(SOON)).unwrap();
    asking.write_all(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n").unwrap();
    // That part of a request is there before others are answered that came later.
    for _ in 0..3 {
        let mut other = Connection::open(&address).unwrap();
        assert_eq!(other.request("GET /healthz", &[], b"").unwrap().status, 204);
    }
    let stopping = std::thread::spawn(move || product.stop());
    let start = Instant::now();
    while TcpStream::connect(&address).is_ok() {
        assert!(start.elapsed() < SOON, "it goes on listening");
        std::thread::yield_now();
    }
    asking.write_all(b"\r\n").unwrap();
    let mut answer = String::new();
    asking.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    assert!(answer.contains("\"code\":\"draining\""), "{answer}");
    assert!(answer.to_ascii_lowercase().contains("\r\nretry-after: 1\r\n"), "{answer}");
    assert!(answer.contains("\"retry_after_ms\":1000"), "{answer}");
    assert!(stopping.join().unwrap(), "it stopped by itself");
}

#[test]
fn who_finds_no_room_is_told_when_to_come_again_and_what_the_budget_is() {
    let dir = scratch();
    let product = Product::start_with(dir.path(), "127.0.0.1:0", &["--request-bytes-max", "10MiB"]);
    // A body that is nearly all there is room for, and never ends.
    let mut greedy = TcpStream::connect(&product.address).unwrap();
    let head = "POST /v1/topics/t/messages:batch HTTP/1.1\r\nHost: localhost\r\n\
                Content-Type: application/x-ndjson\r\nContent-Length: 10485760\r\n\r\n";
    greedy.write_all(head.as_bytes()).unwrap();
    greedy.write_all(&vec![b' '; (10 << 20) - 1_000]).unwrap();
    let mut http = Connection::open(&product.address).unwrap();
    let start = Instant::now();
    loop {
        let metrics = http.request("GET /metrics", &[], b"").unwrap().text();
        if values(&metrics, "weir_gateway_request_bytes")[0].1 > f64::from((10 << 20) - 2_000) {
            break;
        }
        assert!(start.elapsed() < SOON, "it is not held");
    }
    let refused = http.request("POST /v1/topics/t/messages", &[], &[b'x'; 2_000]).unwrap();
    assert_eq!((refused.status, &refused.json()["code"]), (429, &json!("busy")), "{}", refused.text());
    assert_eq!(refused.header("retry-after"), Some("1"));
    let policy = refused.header("ratelimit-policy").unwrap();
    assert!(policy.starts_with("\"pub\";q=") && policy.ends_with(";qu=\"content-bytes\""), "{policy}");
    assert!(refused.header("ratelimit").unwrap().starts_with("\"pub\";r="));
}

#[test]
fn a_full_journal_names_its_topics_and_takes_more_once_they_are_deleted() {
    let dir = scratch();
    let small =
        ["--journal-max", "32MiB", "--journal-file", "16MiB", "--checkpoint", "1MiB", "--data-shards", "1"];
    let product = Product::start_with(dir.path(), "127.0.0.1:0", &small);
    let mut http = Connection::open(&product.address).unwrap();
    for topic in ["old", "young"] {
        assert_eq!(http.request(&format!("PUT /v1/topics/{topic}"), &[], b"{}").unwrap().status, 201);
    }
    let message = vec![b'x'; 1 << 20];
    let mut fit = 0;
    let (problem, refused) = loop {
        let answer = http.request("POST /v1/topics/old/messages", &[], &message).unwrap();
        match answer.status {
            201 => fit += 1,
            // The next file is being prepared: that ends by itself.
            429 => assert_eq!(answer.json()["code"], "busy"),
            _ => break (answer.json(), answer),
        }
        assert!(fit < 64, "64 MiB do not fit");
    };
    assert_eq!(
        (refused.status, &problem["code"], &problem["outcome"], &problem["retryable"]),
        (503, &json!("journal_full"), &json!("none"), &json!(true)),
        "{problem}"
    );
    assert!(refused.header("retry-after").is_some());
    assert!(problem["detail"].as_str().unwrap().contains("old"), "{problem}");
    let other = http.request("POST /v1/topics/young/messages", &[], &message).unwrap();
    assert_eq!(other.status, 503, "the journal is one for all");
    let read = http.request("GET /v1/topics/old/messages/0/0", &[], b"").unwrap();
    assert_eq!((read.status, read.body.len()), (200, message.len()), "reads go on");
    assert_eq!(http.request("DELETE /v1/topics/old", &[], b"").unwrap().status, 204);
    let start = Instant::now();
    while http.request("POST /v1/topics/young/messages", &[], &message).unwrap().status != 201 {
        assert!(start.elapsed() < SOON, "nothing was freed");
    }
    let topic = http.request("GET /v1/topics/young", &[], b"").unwrap().json();
    assert_eq!(topic["partitions"][0]["end"], 1, "what was refused had no effect");
    // Who looks at the log alone finds when it began, why, and when it was over; not each message.
    let lines = |of: &str| -> Vec<String> {
        product.log().lines().filter(|line| line.contains(of)).map(str::to_owned).collect()
    };
    let began = lines("there is no room: publishes are refused");
    assert_eq!(began.len(), 1, "{}", product.log());
    assert!(
        ["WARN", "the journal is full", "of 29360128 bytes", "old"]
            .iter()
            .all(|word| began[0].contains(word))
    );
    let start = Instant::now();
    while lines("there is room again: publishes are taken").is_empty() {
        assert!(start.elapsed() < SOON, "the end is not told: {}", product.log());
    }
}

#[test]
fn a_start_without_the_object_store_that_was_used_before_says_what_cannot_be_read() {
    let dir = scratch();
    let warned = |options: &[&str]| {
        let mut product = Product::start_with(dir.path(), "127.0.0.1:0", options);
        assert!(product.stop());
        let log = product.log();
        log.lines().find(|line| line.contains("WARN")).map(str::to_owned)
    };
    assert_eq!(warned(&[]), None, "there never was one");
    assert_eq!(warned(&["--object-store", "local"]), None);
    let warning = warned(&[]).expect("a warning");
    assert!(warning.contains("/data/objects") && warning.contains("--object-store"), "{warning}");
    assert_eq!(warned(&["--object-store", "local"]), None);
}
