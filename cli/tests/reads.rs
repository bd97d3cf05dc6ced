//! Where reads start and stop, and what confirms and receipts say when there is no time.
#![expect(dead_code, reason = "each test uses a part of the product's client")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod product;

use std::sync::Arc;
use std::time::{Duration, Instant};

use product::{Connection, Product};
use serde_json::json;
use weir_gateway::{Gateway, GatewayConfig};
use weir_journal::disk::sim::SimDisk;
use weir_protocol::slots::partition_of;
use weir_storage_node::{Node, NodeConfig, Surroundings};

/// Whatever a node does by itself is done within this.
const SOON: Duration = Duration::from_secs(20);

fn start(options: &[&str]) -> (tempfile::TempDir, Product, Connection) {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let product = Product::start_with(dir.path(), "127.0.0.1:0", options);
    let http = Connection::open(&product.address).unwrap();
    (dir, product, http)
}

/// Offsets and times of the messages that a read finds.
fn found(http: &mut Connection, query: &str) -> Vec<(u64, u64)> {
    let page = http.request(&format!("GET /v1/topics/t/messages?{query}"), &[], b"").unwrap();
    assert_eq!(page.status, 200, "{query}: {}", page.text());
    let page = page.json();
    let number = |message: &serde_json::Value, name: &str| message[name].as_u64().unwrap();
    page["messages"].as_array().unwrap().iter().map(|it| (number(it, "offset"), number(it, "ts"))).collect()
}

fn offsets(http: &mut Connection, query: &str) -> Vec<u64> {
    found(http, query).into_iter().map(|(offset, _)| offset).collect()
}

#[test]
fn reads_start_and_stop_at_offsets_and_times() {
    let (_dir, _product, mut http) = start(&[]);
    assert_eq!(http.request("PUT /v1/topics/t", &[], b"{}").unwrap().status, 201);
    let mut last = 0;
    // At least three times that differ.
    while last < 3 {
        for _ in 0..4 {
            assert_eq!(http.request("POST /v1/topics/t/messages", &[], b"x").unwrap().status, 201);
        }
        let mut times: Vec<_> = found(&mut http, "limit=10000").iter().map(|(_, ts)| *ts).collect();
        times.dedup();
        last = times.len();
    }
    let all = found(&mut http, "limit=10000");
    let every: Vec<u64> = all.iter().map(|(offset, _)| *offset).collect();
    assert_eq!(every, (0..every.len() as u64).collect::<Vec<_>>());
    assert_eq!(offsets(&mut http, "until=3"), [0, 1, 2], "an end is exclusive");
    assert_eq!(offsets(&mut http, "from=1&until=3"), [1, 2]);
    assert_eq!(offsets(&mut http, "from=3&until=3"), [0u64; 0]);
    // Neither the first nor the last of them.
    let mut times: Vec<_> = all.iter().map(|(_, ts)| *ts).collect();
    times.dedup();
    let middle = times[times.len() / 2];
    let (before, after): (Vec<_>, Vec<_>) = all.iter().partition(|(_, ts)| *ts < middle);
    assert!(!before.is_empty() && !after.is_empty());
    let numbers = |part: &[&(u64, u64)]| part.iter().map(|(offset, _)| *offset).collect::<Vec<_>>();
    let numbers_of = |part: &[(u64, u64)]| numbers(&part.iter().collect::<Vec<_>>());
    assert_eq!(offsets(&mut http, &format!("limit=10000&until=ts:{middle}")), numbers_of(&before));
    assert_eq!(offsets(&mut http, &format!("limit=10000&from=ts:{middle}")), numbers_of(&after));
    assert_eq!(offsets(&mut http, "from=ts:1970-01-01T00:00:00Z&limit=1"), [0]);
    assert_eq!(offsets(&mut http, "from=ts:2999-01-01T00:00:00Z"), [0u64; 0], "what is to come");
    assert_eq!(offsets(&mut http, "from=tail:2"), every[every.len() - 2..]);
    for (query, field) in [("from=ts:soon", "from"), ("until=latest", "until")] {
        let refused = http.request(&format!("GET /v1/topics/t/messages?{query}"), &[], b"").unwrap();
        let problem = refused.json();
        assert_eq!((refused.status, &problem["field"]), (400, &json!(field)), "{problem}");
    }
}

#[test]
fn positions_that_do_not_exist_are_told_what_does_or_moved_there() {
    let (_dir, _product, mut http) = start(&[]);
    let retention = br#"{"retention":{"records":5}}"#;
    assert_eq!(http.request("PUT /v1/topics/t", &[], retention).unwrap().status, 201);
    let start = Instant::now();
    let (mut end, mut earliest) = (0, 0);
    // Retention takes the oldest while more come.
    while earliest == 0 || earliest + 5 < end {
        assert!(start.elapsed() < SOON, "of {end} messages those up to {earliest} were removed");
        if earliest == 0 {
            assert_eq!(http.request("POST /v1/topics/t/messages", &[], b"x").unwrap().status, 201);
            end += 1;
        }
        let topic = http.request("GET /v1/topics/t", &[], b"").unwrap().json();
        earliest = topic["partitions"][0]["start"].as_u64().unwrap();
    }
    let ask = |http: &mut Connection, path: &str| {
        let answer = http.request(&format!("GET /v1/topics/t/messages{path}"), &[], b"").unwrap();
        let problem = answer.json();
        (answer.status, problem["code"].as_str().unwrap().to_owned(), problem["current"].clone())
    };
    let gone = |current| (410, "offset_trimmed".to_owned(), current);
    assert_eq!(ask(&mut http, "?from=0"), gone(json!({"partition": 0, "earliest": earliest, "tail": end})));
    assert_eq!(ask(&mut http, "/0/0"), gone(json!({"partition": 0, "earliest": earliest, "tail": end})));
    let beyond = |current| (416, "beyond_tail".to_owned(), current);
    let far = end + 10;
    assert_eq!(
        ask(&mut http, &format!("?from={far}")),
        beyond(json!({"partition": 0, "earliest": earliest, "tail": end}))
    );
    assert_eq!(ask(&mut http, &format!("/0/{end}")).0, 416);
    assert_eq!(offsets(&mut http, &format!("from={end}")), [0u64; 0], "the tail itself is a position");
    assert_eq!(offsets(&mut http, "from=0&clamp=true&limit=1"), [earliest]);
    let page = http.request(&format!("GET /v1/topics/t/messages?from={far}&clamp=true"), &[], b"").unwrap();
    assert_eq!((page.status, page.header("next-offset")), (200, Some(end.to_string().as_str())));
    assert_eq!((&page.json()["messages"], &page.json()["up_to_date"]), (&json!([]), &json!(true)));
}

#[test]
fn a_topics_floor_refuses_lesser_confirms_before_they_have_an_effect() {
    let (_dir, _product, mut http) = start(&[]);
    let floor = br#"{"min_confirm":"durable"}"#;
    assert_eq!(http.request("PUT /v1/topics/t", &[], floor).unwrap().status, 201);
    for level in ["none", "memory"] {
        let refused = http.request("POST /v1/topics/t/messages", &[("Confirm", level)], b"x").unwrap();
        let problem = refused.json();
        assert_eq!(
            (refused.status, &problem["code"], &problem["field"], &problem["outcome"]),
            (409, &json!("level_unavailable"), &json!("confirm"), &json!("none"))
        );
    }
    assert_eq!(offsets(&mut http, ""), [0u64; 0]);
    for headers in [&[("Confirm", "durable")][..], &[("Confirm", "quorum")], &[]] {
        assert_eq!(http.request("POST /v1/topics/t/messages", headers, b"x").unwrap().status, 201);
    }
    let below = br#"{"min_confirm":"quorum","default_confirm":"memory"}"#;
    let refused = http.request("PUT /v1/topics/u", &[], below).unwrap();
    assert_eq!((refused.status, &refused.json()["field"]), (400, &json!("default_confirm")));
}

#[test]
fn a_deadline_that_comes_before_the_disk_is_answered_at_memory_and_the_receipt_tells_the_rest() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let disk = SimDisk::new();
    let around = Surroundings { disk: Arc::new(disk.clone()), ..Surroundings::default() };
    let config = NodeConfig {
        data_dir: "/data".into(),
        data_shards: 1,
        journal_file_bytes: 16 << 20,
        journal_max_bytes: 64 << 20,
        ..NodeConfig::default()
    };
    let node = runtime.block_on(Node::start_in(config, around)).unwrap();
    let config = GatewayConfig {
        listen: "127.0.0.1:0".parse().unwrap(),
        storage: node.local_addr().to_string(),
        ..GatewayConfig::default()
    };
    let gateway = runtime.block_on(Gateway::start(config, prometheus::Registry::new())).unwrap();
    let mut http = Connection::open(&gateway.local_addr().to_string()).unwrap();
    assert_eq!(http.request("PUT /v1/topics/t", &[], b"{}").unwrap().status, 201);
    assert_eq!(http.request("POST /v1/topics/t/messages", &[], b"x").unwrap().status, 201);
    disk.stall_syncs();
    let early = http.request("POST /v1/topics/t/messages", &[("Confirm-Deadline-Ms", "2000")], b"y").unwrap();
    let body = early.json();
    assert_eq!((early.status, early.header("confirm-level")), (202, Some("memory")), "{body}");
    assert_eq!((&body["offset"], &body["final"]), (&json!(1), &json!(false)));
    assert!(body["term"].is_u64(), "{body}");
    disk.go_on();
    let receipt = early.header("confirm-receipt").unwrap();
    let path = format!("GET /v1/topics/t/receipts/{receipt}?level=quorum&wait=20");
    let resolved = http.request(&path, &[], b"").unwrap().json();
    assert_eq!(
        (&resolved["level"], &resolved["final"], &resolved["lost"], &resolved["offset"]),
        (&json!("quorum"), &json!(true), &json!(false), &json!(1))
    );
    assert_eq!(offsets(&mut http, ""), [0, 1]);
    drop(http);
    runtime.block_on(async {
        gateway.shutdown(Duration::from_secs(2)).await;
        node.shutdown(Duration::from_secs(2)).await;
    });
}

/// Publishes `count` messages; every third has the header `region` eu, others us.
fn publish_regions(http: &mut Connection, count: usize) {
    let region = |n: usize| if n.is_multiple_of(3) { "eu" } else { "us" };
    let line = |n: usize| format!("{{\"headers\":{{\"region\":\"{}\"}},\"data\":{n}}}\n", region(n));
    let lines: String = (0..count).map(line).collect();
    let media = [("Content-Type", "application/x-ndjson")];
    let sent = http.request("POST /v1/topics/t/messages:batch", &media, lines.as_bytes()).unwrap();
    assert_eq!(sent.status, 200, "{}", sent.text());
}

#[test]
fn a_filtered_page_has_what_matches_and_its_positions_are_behind_what_was_looked_at() {
    let (_dir, _product, mut http) = start(&[]);
    assert_eq!(http.request("PUT /v1/topics/t", &[], b"{\"partitions\":2}").unwrap().status, 201);
    publish_regions(&mut http, 60);
    // header.region == 'eu'
    let filter = "filter=header.region%20%3D%3D%20%27eu%27";
    let (mut query, mut numbers, mut pages) = (format!("from=earliest&limit=4&{filter}"), Vec::new(), 0);
    loop {
        let page = http.request(&format!("GET /v1/topics/t/messages?{query}"), &[], b"").unwrap();
        let body = page.json();
        numbers.extend(body["messages"].as_array().unwrap().iter().map(|it| it["data"].as_u64().unwrap()));
        pages += 1;
        if body["up_to_date"] == json!(true) {
            break;
        }
        let link = page.header("link").unwrap();
        let (_, next) = link.split_once('?').unwrap();
        next.split('>').next().unwrap().clone_into(&mut query);
        assert!(query.contains(filter), "{link}");
    }
    numbers.sort_unstable();
    assert_eq!(numbers, (0..60).step_by(3).collect::<Vec<u64>>());
    assert!(pages >= 5, "{pages}");
    let refused = http.request("GET /v1/topics/t/messages?filter=region", &[], b"").unwrap();
    assert_eq!((refused.status, &refused.json()["field"]), (400, &json!("filter")), "{}", refused.text());
    let nothing =
        http.request("GET /v1/topics/t/messages?wait=1&filter=key%3D%3D%27no%27", &[], b"").unwrap();
    assert_eq!(nothing.status, 204, "waited for in vain");
}

#[test]
fn who_follows_with_a_filter_gets_what_matches_and_goes_on_behind_the_rest() {
    let (_dir, product, mut http) = start(&[]);
    assert_eq!(http.request("PUT /v1/topics/t", &[], b"{}").unwrap().status, 201);
    publish_regions(&mut http, 9);
    let filter = "filter=header.region%3D%3D%27eu%27";
    let follow = |headers: &[(&str, &str)]| {
        let mut events = Connection::open(&product.address).unwrap();
        let all = [&[("Accept", "text/event-stream")], headers].concat();
        let path = format!("GET /v1/topics/t/messages?from=earliest&{filter}");
        events.send(&path, &all, b"").unwrap();
        assert_eq!(events.head().unwrap().0, 200);
        let (mut found, mut id) = (Vec::new(), String::new());
        loop {
            let line = events.line().unwrap();
            if let Some(at) = line.strip_prefix("id: ") {
                at.clone_into(&mut id);
            } else if line == "event: caught-up" {
                // Its id comes next.
                let at = events.line().unwrap();
                return (found, at.strip_prefix("id: ").unwrap().to_owned());
            } else if let Some(data) = line.strip_prefix("data: ") {
                found.push(serde_json::from_str::<serde_json::Value>(data).unwrap()["data"].clone());
            }
        }
    };
    let (found, id) = follow(&[]);
    assert_eq!(found, [json!(0), json!(3), json!(6)]);
    publish_regions(&mut http, 4);
    let (found, _) = follow(&[("Last-Event-ID", &id)]);
    assert_eq!(found, [json!(0), json!(3)]);

    let url = format!("http://{}", product.address);
    let weir = |filter: &str| {
        let arguments = ["sub", "t", "--from", "earliest", "--no-follow", "--filter", filter, "--url", &url];
        std::process::Command::new(env!("CARGO_BIN_EXE_weir")).args(arguments).output().unwrap()
    };
    let printed = weir("not header.region == 'us'");
    assert_eq!(String::from_utf8(printed.stdout).unwrap(), "0\n3\n6\n0\n3\n");
    assert_eq!(weir("key == 'nobody'").stdout, b"", "it ends although nothing came");
    let refused = weir("region = eu");
    let why = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success() && why.contains("filter: expected header.<name>"), "{why}");
}

#[test]
fn a_page_of_several_partitions_is_kept_only_if_there_is_more_of_each() {
    let (_dir, _product, mut http) = start(&[]);
    assert_eq!(http.request("PUT /v1/topics/t", &[], br#"{"partitions":2}"#).unwrap().status, 201);
    let begin = http.request("GET /v1/topics/t/messages", &[], b"").unwrap();
    let page = format!("GET /v1/topics/t/messages?limit=2&from=cursor:{}", begin.header("cursor").unwrap());
    let publish = |http: &mut Connection, partition: u32| {
        let mut keys = (0..).map(|number| format!("k{number}"));
        let key = keys.find(|key| partition_of(key.as_bytes(), 2).0 == partition).unwrap();
        let sent = http.request("POST /v1/topics/t/messages", &[("Message-Key", &key)], b"x").unwrap();
        assert_eq!((sent.status, &sent.json()["partition"]), (201, &json!(partition)));
    };
    let caching = |http: &mut Connection| {
        let page = http.request(&page, &[], b"").unwrap();
        let count = page.json()["messages"].as_array().unwrap().len();
        (count, page.header("cache-control").unwrap().to_owned(), page.header("up-to-date") == Some("true"))
    };
    let (moving, kept) = ("no-store".to_owned(), "private, max-age=31536000, immutable".to_owned());
    (0..3).for_each(|_| publish(&mut http, 0));
    assert_eq!(caching(&mut http), (1, moving.clone(), false), "what comes to the other one belongs into it");
    publish(&mut http, 1);
    assert_eq!(caching(&mut http), (2, moving, false));
    publish(&mut http, 1);
    assert_eq!(caching(&mut http), (2, kept, false));
}

#[test]
fn an_event_has_each_member_once_whatever_headers_its_message_has() {
    let (_dir, _product, mut http) = start(&[]);
    let headers = [
        ("Content-Type", "application/json"),
        ("ce-specversion", "1.0"),
        ("ce-id", "7"),
        ("ce-source", "/s"),
        ("ce-type", "said"),
        ("ce-subject", "who"),
        ("ce-data", "other"),
        ("ce-data_base64", "AAAA"),
        ("ce-datacontenttype", "text/plain"),
        ("ce-not-a-name", "1"),
    ];
    assert_eq!(http.request("POST /v1/topics/t/messages", &headers, b"{\"n\":1}").unwrap().status, 201);
    let accept = [("Accept", "application/cloudevents-batch+json")];
    let page = http.request("GET /v1/topics/t/messages", &accept, b"").unwrap();
    let text = page.text();
    for member in ["data", "datacontenttype", "subject"] {
        assert_eq!(text.matches(&format!("\"{member}\":")).count(), 1, "{member}: {text}");
    }
    let mut event = page.json()[0].take();
    assert!(event.as_object_mut().unwrap().remove("time").is_some());
    let told = json!({
        "specversion": "1.0", "id": "7", "source": "/s", "type": "said", "subject": "who",
        "datacontenttype": "application/json", "data": {"n": 1},
    });
    assert_eq!(event, told);
    // Headers they are all the same.
    let one = http.request("GET /v1/topics/t/messages/0/0", &[], b"").unwrap();
    assert_eq!((one.header("ce-data"), one.header("ce-not-a-name")), (Some("other"), Some("1")));
}

#[test]
fn a_topic_is_followed_once() {
    let (_dir, _product, mut http) = start(&[]);
    for topic in ["a", "b"] {
        assert_eq!(http.request(&format!("PUT /v1/topics/{topic}"), &[], b"").unwrap().status, 201);
    }
    let twice = http.request("GET /v1/ns/default/events?topic=a&topic=b&topic=a", &[], b"").unwrap();
    let problem = twice.json();
    assert_eq!((twice.status, &problem["code"]), (400, &json!("invalid_parameter")), "{problem}");
    assert_eq!((&problem["field"], &problem["detail"]), (&json!("topic"), &json!("topic: names a twice")));
    http.send("GET /v1/ns/default/events?topic=a&topic=b", &[], b"").unwrap();
    assert_eq!(http.head().unwrap().0, 200);
}

#[test]
fn why_a_stream_ended_is_told_with_the_id_of_its_request() {
    let (_dir, product, mut http) = start(&[]);
    assert_eq!(http.request("PUT /v1/topics/t", &[], b"{}").unwrap().status, 201);
    let mut events = Connection::open(&product.address).unwrap();
    events.send("GET /v1/topics/t/messages", &[("Accept", "text/event-stream")], b"").unwrap();
    let (status, headers) = events.head().unwrap();
    assert_eq!(status, 200);
    let (_, id) = headers.iter().find(|(name, _)| name == "x-request-id").unwrap();
    assert_eq!(http.request("DELETE /v1/topics/t", &[], b"").unwrap().status, 204);
    while events.line().unwrap() != "event: end" {}
    let data = events.line().unwrap();
    let problem: serde_json::Value = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
    assert_eq!((&problem["code"], &problem["request_id"]), (&json!("incarnation_gone"), &json!(id)));
}

#[test]
fn who_waits_on_thousands_of_partitions_keeps_nobody_from_publishing() {
    // A single shard, so that all of them share a link.
    let (_dir, product, mut http) = start(&["--data-shards", "1"]);
    let wide: Vec<_> = (0..7).map(|number| format!("wide-{number}")).collect();
    for topic in &wide {
        let path = format!("PUT /v1/topics/{topic}");
        assert_eq!(http.request(&path, &[], br#"{"partitions":1024}"#).unwrap().status, 201);
    }
    let waiting: Vec<_> = wide
        .iter()
        .map(|topic| {
            let mut waits = Connection::open(&product.address).unwrap();
            let path = format!("GET /v1/topics/{topic}/messages?from=latest&wait=60");
            waits.send(&path, &[], b"").unwrap();
            waits
        })
        .collect();
    // As many as there are places for who reads: somebody found none.
    let found_none = |http: &mut Connection| {
        let metrics = http.request("GET /metrics", &[], b"").unwrap().text();
        let tried = |line: &str| line.strip_prefix("weir_gateway_retries_total ")?.parse::<u32>().ok();
        metrics.lines().find_map(tried).unwrap() > 0
    };
    let begun = Instant::now();
    while !found_none(&mut http) {
        assert!(begun.elapsed() < SOON, "all of them have places");
        std::thread::sleep(Duration::from_millis(10));
    }
    let published = http.request("POST /v1/topics/t/messages", &[], b"x").unwrap();
    assert_eq!(published.status, 201, "{}", published.text());
    assert_eq!(offsets(&mut http, "limit=1"), [0]);
    drop(waiting);
    // More than there are places for would wait for ever.
    let topics: Vec<_> = wide.iter().map(|topic| format!("topic={topic}")).collect();
    let path = format!("GET /v1/ns/default/events?{}", topics.join("&"));
    let refused = http.request(&path, &[], b"").unwrap();
    let problem = refused.json();
    assert_eq!(
        (refused.status, &problem["code"], &problem["limit"]),
        (413, &json!("too_large"), &json!(4096))
    );
}

#[test]
fn a_page_that_waits_for_a_time_to_come_has_no_message_from_before_it() {
    let (_dir, product, mut http) = start(&[]);
    for partitions in [1, 3] {
        let topic = format!("t{partitions}");
        let config = json!({"partitions": partitions}).to_string();
        assert_eq!(
            http.request(&format!("PUT /v1/topics/{topic}"), &[], config.as_bytes()).unwrap().status,
            201
        );
        let post = format!("POST /v1/topics/{topic}/messages");
        let publish =
            |http: &mut Connection| http.request(&post, &[], b"x").unwrap().json()["ts"].as_u64().unwrap();
        let first = publish(&mut http);
        let wanted = first + 1_000;
        let mut waiting = Connection::open(&product.address).unwrap();
        let line = format!("GET /v1/topics/{topic}/messages?from=ts:{wanted}&wait=20");
        let waiting = std::thread::spawn(move || waiting.request(&line, &[], b"").unwrap());
        // Some before the time, and then one that is not.
        let mut early = 0;
        while publish(&mut http) < wanted {
            early += 1;
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(early > 3, "{early} messages from before it came while it waited");
        let page = waiting.join().unwrap();
        assert_eq!(page.status, 200, "{}", page.text());
        let page = page.json();
        let found = page["messages"].as_array().unwrap();
        assert!(
            !found.is_empty() && found.iter().all(|it| it["ts"].as_u64() >= Some(wanted)),
            "{wanted}: {page}"
        );
    }
}
