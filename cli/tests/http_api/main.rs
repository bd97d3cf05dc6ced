//! The HTTP API beyond the first minute, through the real product: batches, receipts, deadlines, forms of reading.
#![expect(dead_code, reason = "each test uses a part of the product's client")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod awaited;
mod cloudevents;
mod events;
#[path = "../product/mod.rs"]
mod product;
mod texts;
mod wire;

use product::{Answer, Connection, Product};
use serde_json::{Value, json};
use weir_protocol::batch::{Batch, BatchBuilder, Compression, Headers, RecordParts};
use weir_protocol::slots::partition_of;

const LINES: (&str, &str) = ("Content-Type", "application/x-ndjson");

struct Api {
    _dir: tempfile::TempDir,
    _product: Product,
    http: Connection,
}

impl Api {
    fn start() -> Self {
        let (dir, product, http) = product::started();
        Self { _dir: dir, _product: product, http }
    }

    fn with_topic(topic: &str, config: &str) -> Self {
        let mut api = Self::start();
        let made = api.send(&format!("PUT /v1/topics/{topic}"), &[], config.as_bytes());
        assert_eq!(made.status, 201, "{}", made.text());
        api
    }

    fn send(&mut self, line: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        self.http.request(line, headers, body).unwrap()
    }

    fn get(&mut self, path: &str, headers: &[(&str, &str)]) -> Answer {
        self.send(&format!("GET {path}"), headers, b"")
    }

    fn batch(&mut self, topic: &str, headers: &[(&str, &str)], body: impl AsRef<[u8]>) -> Answer {
        self.send(&format!("POST /v1/topics/{topic}/messages:batch"), headers, body.as_ref())
    }
}

fn codes(results: &Value) -> Vec<String> {
    let code = |result: &Value| result["problem"]["code"].as_str().unwrap_or("ok").to_owned();
    results.as_array().unwrap().iter().map(code).collect()
}

#[test]
fn lines_are_published_in_order_and_come_back_digit_for_digit() {
    let mut api = Api::with_topic("t", "{}");
    let lines = "{\"key\":\"k\",\"headers\":{\"x\":\"y\"},\"data\":{\"n\":9007199254740993.10}}\n\
                 {\"data\":\"text\",\"content_type\":\"text/plain\",\"ttl_ms\":9}\n{\"data_base64\":\"AAEC\"}\n";
    let answer = api.batch("t", &[LINES], lines);
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(
        answer.json(),
        json!({"results":[{"partition":0,"offset":0},{"partition":0,"offset":1},{"partition":0,"offset":2}],"level":"quorum"})
    );
    assert!(answer.header("server-timing").unwrap().contains("fsync;dur="));
    let limit = answer.header("ratelimit").unwrap();
    assert!(limit.starts_with("\"pub\";r=") && limit.ends_with(";t=1"), "{limit}");
    let page = api.get("/v1/topics/t/messages", &[]);
    assert!(page.text().contains("\"data\":{\"n\":9007199254740993.10}"), "{}", page.text());
    let messages = &page.json()["messages"];
    assert_eq!((&messages[0]["key"], &messages[0]["headers"]["x"]), (&json!("k"), &json!("y")));
    assert_eq!((&messages[1]["data"], &messages[2]["data_base64"]), (&json!("text"), &json!("AAEC")));
    let lines = api.get("/v1/topics/t/messages?from=1", &[("Accept", "application/x-ndjson")]);
    assert_eq!(lines.header("content-type"), Some("application/x-ndjson"));
    assert_eq!(lines.text().lines().count(), 2);
}

#[test]
fn a_batch_that_cannot_be_understood_has_no_effect_and_names_the_line() {
    let mut api = Api::with_topic("t", "{}");
    for (content_type, body, status, code) in [
        ("application/x-ndjson", "{\"data\":1}\n{\"dat\":1}", 400, "unknown_field"),
        ("application/x-ndjson", "{\"data\":1}\n{", 400, "malformed"),
        ("application/x-ndjson", "\n", 400, "malformed"),
        ("application/json", "[1]", 415, "unsupported_media_type"),
        ("application/vnd.weir.batch", "not a batch", 400, "invalid_batch"),
        ("application/cloudevents-batch+json", "[{\"id\":\"1\"}]", 400, "malformed"),
    ] {
        let answer = api.batch("t", &[("Content-Type", content_type)], body);
        assert_eq!(
            (answer.status, answer.json()["code"].as_str()),
            (status, Some(code)),
            "{body}: {}",
            answer.text()
        );
    }
    let keyed = api.batch("t", &[LINES, ("Idempotency-Key", "\"x\"")], "{\"data\":1}");
    assert_eq!(keyed.json()["code"], "not_supported");
    api.http.declare("POST /v1/topics/t/messages:batch", LINES.1, (10 << 20) + 1).unwrap();
    assert_eq!(api.http.head().unwrap().0, 413);
    api.http = Connection::open(&api._product.address).unwrap();
    assert_eq!(api.get("/v1/topics/t", &[]).json()["partitions"][0]["end"], 0);
}

/// A key of the partition, other than `not`.
fn key_of(partition: u32, not: &str) -> String {
    let keys = (0..).map(|n| format!("k{n}"));
    let mut fitting = keys.filter(|key| partition_of(key.as_bytes(), 2).0 == partition && key != not);
    fitting.next().unwrap()
}

#[test]
fn what_one_partition_refuses_another_may_take_and_each_message_has_its_result() {
    let mut api = Api::with_topic("wide", "{\"partitions\":2}");
    let triple = [LINES, ("Producer-Id", "p"), ("Producer-Epoch", "0"), ("Producer-Seq", "0")];
    let (one, two) = (key_of(0, ""), key_of(1, ""));
    let lines = |keys: [&str; 3]| keys.map(|key| format!("{{\"key\":\"{key}\",\"data\":1}}\n")).concat();
    let first = api.batch("wide", &triple, lines([&two, &one, &two]));
    assert_eq!((first.status, first.header("producer-seq")), (200, Some("2")), "{}", first.text());
    let again = api.batch("wide", &triple, lines([&two, &one, &two]));
    assert_eq!(again.status, 200);
    assert!(again.json()["results"].as_array().unwrap().iter().all(|result| result["duplicate"] == true));
    // Number 0 moves to the partition that has seen 1 but not 0; the other one has seen 2.
    let moved = api.batch("wide", &triple, lines([&key_of(0, &one), &one, &two]));
    assert_eq!((moved.status, moved.header("producer-seq")), (207, None), "{}", moved.text());
    let results = &moved.json()["results"];
    assert_eq!(codes(results), ["seq_overlap", "seq_overlap", "ok"]);
    assert_eq!((&results[0]["problem"]["outcome"], &results[2]["duplicate"]), (&json!("none"), &json!(true)));
}

#[test]
fn a_mixed_batch_answers_207_with_a_problem_for_each_refused_message() {
    let mut api = Api::with_topic("t", "{}");
    // Two batches in one body: the second repeats a number of its producer with another content behind it.
    let batch = |seq: u64, count: usize| {
        let id = weir_protocol::ids::ProducerKey(7);
        let mut builder = BatchBuilder::new(id, weir_protocol::ids::Epoch(0), weir_protocol::ids::Seq(seq));
        for _ in 0..count {
            builder.push(RecordParts { key: None, headers: &Headers::default(), value: b"v" }).unwrap();
        }
        builder.build(Compression::None).unwrap()
    };
    let body = [batch(0, 2).bytes().to_vec(), batch(5, 1).bytes().to_vec()].concat();
    let answer = api.batch("t", &[("Content-Type", "application/vnd.weir.batch")], body);
    assert_eq!(answer.status, 207, "{}", answer.text());
    let body = answer.json();
    assert_eq!(codes(&body["results"]), ["ok", "ok", "producer_gap"]);
    assert_eq!(body["results"][2]["problem"]["outcome"], "none");
    assert_eq!(api.get("/v1/topics/t", &[]).json()["partitions"][0]["end"], 2);
}

#[test]
fn an_atomic_batch_is_one_batch_and_refused_whole_beyond_its_limit() {
    let mut api = Api::with_topic("t", "{}");
    let line = format!("{{\"data\":\"{}\"}}\n", "x".repeat(700_000));
    let atomic =
        api.send("POST /v1/topics/t/messages:batch?atomic=true", &[LINES], line.repeat(3).as_bytes());
    assert_eq!(atomic.status, 200, "{}", atomic.text());
    let binary =
        api.get("/v1/topics/t/messages?max_bytes=4000000", &[("Accept", "application/vnd.weir.batch")]);
    let mut stored = bytes::Bytes::from(binary.body);
    assert_eq!(Batch::take_from(&mut stored).unwrap().header().count, 3, "one batch as it was stored");
    assert!(stored.is_empty());
    let beyond =
        api.send("POST /v1/topics/t/messages:batch?atomic=true", &[LINES], line.repeat(6).as_bytes());
    assert_eq!((beyond.status, beyond.json()["code"].as_str()), (413, Some("too_large")));
    assert_eq!(api.get("/v1/topics/t", &[]).json()["partitions"][0]["end"], 3);
}

#[test]
fn a_binary_batch_goes_in_and_comes_out_untouched() {
    let mut api = Api::with_topic("t", "{}");
    let mut builder = BatchBuilder::anonymous();
    for n in 0..5u8 {
        builder
            .push(RecordParts { key: Some(b"k"), headers: &Headers::default(), value: &[n, 0, 255] })
            .unwrap();
    }
    let batch = builder.build(Compression::Zstd).unwrap();
    let media = "application/vnd.weir.batch";
    assert_eq!(api.batch("t", &[("Content-Type", media)], batch.bytes()).status, 200);
    let read = |api: &mut Api, query: &str| {
        let answer = api.get(&format!("/v1/topics/t/messages{query}"), &[("Accept", media)]);
        assert_eq!(answer.header("content-type"), Some(media));
        let records = Batch::parse(answer.body.into()).unwrap();
        records
            .records()
            .unwrap()
            .map(|record| record.unwrap())
            .map(|it| (it.offset.0, it.value[0]))
            .collect::<Vec<_>>()
    };
    assert_eq!(read(&mut api, ""), [(0, 0), (1, 1), (2, 2), (3, 3), (4, 4)]);
    assert_eq!(read(&mut api, "?from=1&limit=2"), [(1, 1), (2, 2)], "only what was asked for");
}

#[test]
fn several_partitions_are_read_as_one_and_a_cursor_goes_on_exactly() {
    let mut api = Api::with_topic("wide", "{\"partitions\":3}");
    let lines: String = (0..60).map(|n| format!("{{\"key\":\"k{n}\",\"data\":{n}}}\n")).collect();
    assert_eq!(api.batch("wide", &[LINES], &lines).status, 200);
    let (mut from, mut seen, mut pages) = ("earliest".to_owned(), Vec::new(), 0);
    loop {
        let page = api.get(&format!("/v1/topics/wide/messages?limit=7&from={from}"), &[]);
        assert_eq!(page.status, 200, "{}", page.text());
        let body = page.json();
        let messages = body["messages"].as_array().unwrap();
        assert!(messages.len() <= 7, "{}", messages.len());
        seen.extend(messages.iter().map(|message| message["data"].as_u64().unwrap()));
        assert_eq!(page.header("next-offset"), None);
        from = format!("cursor:{}", body["next"].as_str().unwrap());
        assert_eq!(page.header("cursor"), body["next"].as_str());
        pages += 1;
        if body["up_to_date"] == true {
            break;
        }
    }
    seen.sort_unstable();
    assert_eq!(seen, (0..60).collect::<Vec<_>>(), "each once");
    assert!(pages >= 9);
    let offset = api.get("/v1/topics/wide/messages?from=3", &[]);
    assert_eq!((offset.status, offset.json()["code"].as_str()), (400, Some("invalid_parameter")));
    assert_eq!(api.get("/v1/topics/wide/messages?from=0&partition=1", &[]).status, 200);
    assert_eq!(api.get("/v1/topics/wide/messages?partition=3", &[]).json()["code"], "partition_not_found");
    assert_eq!(api.get("/v1/topics/wide/messages?from=cursor:x", &[]).json()["code"], "invalid_cursor");
}

#[test]
fn several_partitions_are_read_within_the_bytes_asked_for_and_the_cursor_misses_nothing() {
    let mut api = Api::with_topic("t", r#"{"partitions":4}"#);
    let lines: String = (0..200)
        .map(|n| json!({ "key": format!("k{}", n % 23), "data": "x".repeat(500), "headers": { "n": n.to_string() } }))
        .map(|line| line.to_string() + "\n")
        .collect();
    let published = api.batch("t", &[LINES], lines);
    assert_eq!(published.status, 200, "{}", published.text());
    let (mut seen, mut from) = (Vec::new(), "earliest".to_owned());
    for _ in 0..200 {
        let page =
            api.get(&format!("/v1/topics/t/messages?limit=1000&max_bytes=4000&from={from}"), &[]).json();
        let messages = page["messages"].as_array().unwrap();
        // The last one may overshoot.
        assert!((1..=9).contains(&messages.len()), "{} messages of 500 bytes", messages.len());
        seen.extend(messages.iter().map(|m| m["headers"]["n"].as_str().unwrap().parse::<u32>().unwrap()));
        if page["up_to_date"] == true {
            break;
        }
        from = format!("cursor:{}", page["next"].as_str().unwrap());
    }
    seen.sort_unstable();
    assert_eq!(seen, (0..200).collect::<Vec<_>>());
}

#[test]
fn configurations_have_tags_and_what_must_be_new_is() {
    let mut api = Api::start();
    let new = ("If-None-Match", "*");
    for path in ["/v1/topics/t", "/v1/ns/team"] {
        let made = api.send(&format!("PUT {path}"), &[new], b"{}");
        assert_eq!(made.status, 201, "{}", made.text());
        for body in [&b"{}"[..], br#"{"default_confirm":"durable"}"#, br#"{"auto_create":false}"#] {
            let again = api.send(&format!("PUT {path}"), &[new], body);
            assert!(again.status == 412 || again.status == 400, "{}", again.text());
        }
        assert_eq!(api.send(&format!("PUT {path}"), &[], b"{}").status, 200, "it stands like that");
        let found = api.get(path, &[]);
        let tag = found.header("etag").unwrap().to_owned();
        assert_eq!(made.header("etag"), Some(tag.as_str()));
        assert_eq!(found.header("cache-control"), Some("no-store"), "offsets change under the same tag");
        let same = api.get(path, &[("If-None-Match", &tag)]);
        assert_eq!((same.status, same.body.len()), (304, 0));
        assert_eq!(api.get(path, &[("If-None-Match", "\"0:0\"")]).status, 200);
    }
    assert_eq!(api.send("PUT /v1/topics/u", &[], b"{}").header("location"), Some("/v1/topics/u"));
}

#[test]
fn ranges_have_tags_and_may_be_kept_once_nothing_can_change_them() {
    let mut api = Api::with_topic("t", "{}");
    let lines: String = (0..10).map(|n| format!("{{\"data\":{n}}}\n")).collect();
    api.batch("t", &[LINES], &lines);
    let life = api.get("/v1/topics/t", &[]).json()["incarnation"].as_u64().unwrap();
    let (kept, compared) = ("private, max-age=31536000, immutable", "private, no-cache");
    let full = api.get("/v1/topics/t/messages?from=0&limit=5", &[]);
    assert_eq!(full.header("cache-control"), Some(compared), "the topic may be made anew");
    assert_eq!(full.header("next-offset"), Some("5"));
    let of_life = api.get(&format!("/v1/topics/t/messages?from=0&limit=5&incarnation={life}"), &[]);
    assert_eq!(of_life.header("cache-control"), Some(kept));
    let next = format!("</v1/topics/t/messages?from=5&limit=5&incarnation={life}>; rel=\"next\"");
    assert_eq!((of_life.header("link"), of_life.body == full.body), (Some(next.as_str()), true));
    let cursor = full.header("cursor").unwrap().to_owned();
    let rest = api.get(&format!("/v1/topics/t/messages?from=cursor:{cursor}&limit=3"), &[]);
    assert_eq!(rest.header("cache-control"), Some(kept), "a cursor is of one life");
    assert_eq!(full.header("link"), Some("</v1/topics/t/messages?from=5&limit=5>; rel=\"next\""));
    let encoded = api.get("/v1/%74opics/t/messages?%66rom=0&li%6dit=5", &[]);
    let link = encoded.header("link").unwrap();
    assert_eq!(link, "</v1/%74opics/t/messages?from=5&li%6dit=5>; rel=\"next\"");
    let next = link.trim_start_matches('<').split('>').next().unwrap();
    assert_eq!(api.get(next, &[]).json()["messages"][0]["offset"], 5, "{link}");
    let tag = full.header("etag").unwrap().to_owned();
    let known = api.get("/v1/topics/t/messages?from=0&limit=5", &[("If-None-Match", &tag)]);
    assert_eq!((known.status, known.body.len()), (304, 0));
    for moving in ["?from=5&limit=5", "?from=earliest&limit=5", "?limit=100"] {
        let page = api.get(&format!("/v1/topics/t/messages{moving}"), &[]);
        assert_eq!(page.header("cache-control"), Some("no-store"), "{moving}");
    }
    let end = "/v1/topics/t/messages?from=5&limit=5";
    let all = api.get(end, &[]);
    assert_eq!((all.status, all.header("up-to-date")), (200, Some("true")));
    api.batch("t", &[LINES], "{\"data\":10}\n");
    let more = api.get(end, &[("If-None-Match", all.header("etag").unwrap())]);
    assert_eq!((more.status, &more.json()["up_to_date"]), (200, &false.into()), "it says something else now");
    let one = api.get("/v1/topics/t/messages/0/3", &[]);
    let tag = one.header("etag").unwrap().to_owned();
    assert_eq!(one.header("cache-control"), Some(compared));
    let one_of_life = api.get(&format!("/v1/topics/t/messages/0/3?incarnation={life}"), &[]);
    assert_eq!((one_of_life.header("cache-control"), one_of_life.body == one.body), (Some(kept), true));
    assert_eq!(api.get("/v1/topics/t/messages/0/3", &[("If-None-Match", &tag)]).status, 304);
    assert_eq!(api.get("/v1/topics/t/messages/0/11", &[]).status, 416);
    assert_eq!(api.get("/v1/topics/t/messages?from=11&wait=1", &[]).status, 204, "waited for in vain");
    let unacceptable = api.get("/v1/topics/t/messages", &[("Accept", "image/png")]);
    assert_eq!((unacceptable.status, unacceptable.json()["code"].as_str()), (406, Some("not_acceptable")));

    // Made anew: what was kept is not the answer of any address without its life, and its own have none.
    assert_eq!(api.send("DELETE /v1/topics/t", &[], b"").status, 204);
    api.send("PUT /v1/topics/t", &[], b"{}");
    api.batch("t", &[LINES], lines.replace("\"data\":", "\"data\":1"));
    let anew = api.get("/v1/topics/t/messages/0/3", &[("If-None-Match", &tag)]);
    assert_eq!((anew.status, anew.text()), (200, "13".to_owned()));
    for path in
        ["messages?from=0&limit=5&incarnation=", "messages/0/3?incarnation=", "messages/0/99?incarnation="]
    {
        let gone = api.get(&format!("/v1/topics/t/{path}{life}"), &[]);
        assert_eq!((gone.status, gone.json()["code"].as_str()), (410, Some("incarnation_gone")), "{path}");
        assert!(
            gone.json()["current"]["incarnation"].as_u64().is_some_and(|now| now != life),
            "{}",
            gone.text()
        );
    }
    let unknown = api.get("/v1/topics/t/messages?incarnation=0", &[]);
    assert_eq!((unknown.status, unknown.json()["field"].as_str()), (400, Some("incarnation")));
}

#[test]
fn every_level_has_its_status_and_a_receipt_that_tells_what_became_of_it() {
    let mut api = Api::with_topic("t", "{}");
    for (level, status) in [("none", 202), ("memory", 202), ("durable", 201), ("quorum", 201)] {
        let answer = api.send("POST /v1/topics/t/messages", &[("Confirm", level)], b"x");
        let body = answer.json();
        assert_eq!((answer.status, body["level"].as_str()), (status, Some(level)), "{body}");
        assert_eq!(answer.header("confirm-level"), Some(level));
        assert_eq!(body["offset"].is_null(), level == "none");
        if level == "none" {
            continue;
        }
        assert_eq!(
            body["final"] == false,
            body["term"].is_u64(),
            "a term while the offset may change: {body}"
        );
        let receipt = answer.header("confirm-receipt").unwrap().to_owned();
        let resolved = api.get(&format!("/v1/topics/t/receipts/{receipt}?level=quorum&wait=5"), &[]);
        assert_eq!(resolved.status, 200, "{}", resolved.text());
        let resolved = resolved.json();
        assert_eq!(
            (&resolved["level"], &resolved["final"], &resolved["lost"]),
            (&json!("quorum"), &json!(true), &json!(false))
        );
        assert_eq!(resolved["offset"], body["offset"]);
    }
    let foreign = api.get("/v1/topics/t/receipts/rcpt_x", &[]);
    assert_eq!((foreign.status, foreign.json()["code"].as_str()), (400, Some("invalid_cursor")));
    let minimal = api.send("POST /v1/topics/t/messages", &[("Prefer", "return=minimal")], b"x");
    assert_eq!((minimal.status, minimal.body.len()), (204, 0));
    assert!(minimal.header("location").is_some() && minimal.header("etag").is_some());
    let receipt = minimal.header("confirm-receipt").unwrap();
    let without_a_store = api.get(&format!("/v1/topics/t/receipts/{receipt}?level=archived"), &[]).json();
    assert_eq!(
        (&without_a_store["code"], &without_a_store["field"]),
        (&json!("level_unavailable"), &json!("level"))
    );
    let patient = api.send("POST /v1/topics/t/messages", &[("Confirm-Deadline-Ms", "20000")], b"x");
    assert_eq!((patient.status, patient.json()["level"].as_str()), (201, Some("quorum")));
    let bad = api.send("POST /v1/topics/t/messages", &[("Confirm-Deadline-Ms", "0")], b"x");
    assert_eq!(bad.json()["code"], "invalid_header");
}

#[test]
fn a_node_that_does_not_sync_confirms_at_memory_unless_more_is_asked_for() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let product = Product::start_with(dir.path(), "127.0.0.1:0", &["--sync", "os"]);
    let mut http = Connection::open(&product.address).unwrap();
    let mut publish =
        |headers: &[(&str, &str)]| http.request("POST /v1/topics/t/messages", headers, b"x").unwrap();
    let silent = publish(&[]);
    assert_eq!((silent.status, silent.header("confirm-level")), (202, Some("memory")), "{}", silent.text());
    let demanding = publish(&[("Confirm", "durable")]);
    assert_eq!(demanding.json()["code"], "level_unavailable");
    let offered = http.request("GET /v1", &[], b"").unwrap().json();
    assert_eq!(offered["levels"], json!(["none", "memory"]));
}

#[test]
fn a_deadline_that_has_come_is_answered_with_the_level_reached_even_to_those_who_want_no_body() {
    let mut api = Api::with_topic("t", "{}");
    for (prefer, body_bytes) in [(None, 1), (Some(("Prefer", "return=minimal")), 0)] {
        // The deadline counts from the head of the request; the body comes when it has passed.
        let headers: Vec<_> = std::iter::once(("Confirm-Deadline-Ms", "1")).chain(prefer).collect();
        let late = std::time::Duration::from_millis(5);
        let answer = api.http.request_late("POST /v1/topics/t/messages", &headers, b"hello", late).unwrap();
        assert_eq!((answer.status, answer.header("confirm-level")), (202, Some("none")), "{}", answer.text());
        assert_eq!(answer.body.len().min(1), body_bytes);
    }
    // Not confirmed is not refused: both come, one after the other.
    for offset in 0..2 {
        let page = api.get(&format!("/v1/topics/t/messages?from={offset}&limit=1&wait=10"), &[]);
        assert_eq!((page.status, page.json()["next"].as_u64()), (200, Some(offset + 1)), "{}", page.text());
    }
}

#[test]
fn a_retry_too_old_to_be_placed_is_answered_as_the_success_that_it_was() {
    let mut api = Api::with_topic("t", "{}");
    let triple = |seq: &'static str| [("Producer-Id", "p"), ("Producer-Epoch", "0"), ("Producer-Seq", seq)];
    for seq in ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"] {
        let answer = api.send("POST /v1/topics/t/messages", &triple(seq), b"x");
        assert_eq!((answer.status, answer.header("producer-seq")), (201, Some(seq)), "{}", answer.text());
        // Another's message behind each: what lies side by side is remembered as one.
        assert_eq!(api.send("POST /v1/topics/t/messages", &[], b"y").status, 201);
    }
    let old = api.send("POST /v1/topics/t/messages", &triple("0"), b"x");
    assert_eq!(old.status, 200, "{}", old.text());
    assert_eq!(
        old.json(),
        json!({"partition":0,"level":"quorum","final":true,"duplicate":true}),
        "nobody knows where it is"
    );
    assert_eq!((old.header("confirm-level"), old.header("location")), (Some("quorum"), None));
    let many = [LINES, triple("0")[0], triple("0")[1], triple("0")[2]];
    let old = api.batch("t", &many, "{\"data\":1}");
    assert_eq!((old.status, old.header("confirm-level")), (200, Some("quorum")), "{}", old.text());
    assert_eq!(old.json()["results"], json!([{"partition":0,"duplicate":true}]));
    assert_eq!(api.get("/v1/topics/t", &[]).json()["partitions"][0]["end"], 20);
}

#[test]
fn metrics_tell_what_is_bounded_and_never_whose_it_is() {
    let mut api = Api::with_topic("secret-name", "{}");
    api.send("POST /v1/topics/secret-name/messages", &[], b"x");
    let text = api.get("/metrics", &[]).text();
    for (name, expected) in [
        ("weir_gateway_connections", "1"),
        ("weir_gateway_publish_batches_total", "1"),
        ("weir_gateway_publish_bytes", "0"),
        ("weir_gateway_topics", "1"),
        ("weir_node_published_records_total", "1"),
    ] {
        assert!(text.contains(&format!("\n{name} {expected}\n")), "{name} is not {expected}: {text}");
    }
    for bound in [
        "connections_max",
        "request_bytes_max",
        "answer_bytes_max",
        "publish_bytes_max",
        "read_credit_bytes_max",
        "topics_max",
    ] {
        assert!(text.contains(&format!("\nweir_gateway_{bound} ")), "{bound}");
    }
    assert!(!text.contains("secret-name"), "labels come from closed sets");
}

#[test]
fn a_namespace_lets_pages_of_its_origins_in_and_no_others() {
    let mut api = Api::start();
    let shop = br#"{"auto_create":true,"cors_origins":["https://shop.example"]}"#;
    assert_eq!(api.send("PUT /v1/ns/shop", &[], shop).status, 201);
    for (path, origin, status) in [
        ("/v1/ns/shop/topics/t/messages", "https://shop.example", 201),
        ("/v1/ns/shop/topics/t/messages", "http://shop.example", 403),
        ("/v1/ns/default/topics/t/messages", "https://shop.example", 403),
        ("/v1/topics/t/messages", "https://shop.example", 403),
    ] {
        let answer = api.send(&format!("POST {path}"), &[("Origin", origin)], b"x");
        assert_eq!(answer.status, status, "{path} from {origin}: {}", answer.text());
        let readable = answer.header("access-control-allow-origin");
        assert_eq!(readable, (status == 201).then_some(origin), "{path} from {origin}");
    }
    let preflight =
        [("Origin", "https://shop.example"), ("Access-Control-Request-Headers", "message-key, cookie")];
    let answer = api.send("OPTIONS /v1/ns/shop/topics/t/messages", &preflight, b"");
    assert_eq!((answer.status, answer.header("access-control-allow-headers")), (204, Some("message-key")));
}

#[test]
fn topics_tell_their_rates_and_lists_go_on_with_a_cursor() {
    let mut api = Api::with_topic("busy", "{\"partitions\":2}");
    for n in 0..5 {
        assert_eq!(api.send(&format!("PUT /v1/topics/other-{n}"), &[], b"{}").status, 201);
    }
    let lines: String = (0..500).map(|n| format!("{{\"key\":\"k{n}\",\"data\":{n}}}\n")).collect();
    api.batch("busy", &[LINES], &lines);
    let topic = api.get("/v1/topics/busy", &[]).json();
    assert!(topic["rates"]["publish_records_per_second"].as_f64().unwrap() > 0.0, "{topic}");
    let (mut names, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = api.get(&format!("/v1/ns/default/topics?limit=2{cursor}"), &[]).json();
        names.extend(
            page["items"].as_array().unwrap().iter().map(|topic| topic["name"].as_str().unwrap().to_owned()),
        );
        match page["next"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(names, ["busy", "other-0", "other-1", "other-2", "other-3", "other-4"]);
}
