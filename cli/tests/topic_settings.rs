//! What topics and messages are told, and that it has an effect or is refused.
#![expect(dead_code, reason = "each test uses a part of the product's client")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod product;

use product::{Answer, Connection, Product};
use serde_json::{Value, json};

const LINES: (&str, &str) = ("Content-Type", "application/x-ndjson");

fn start(options: &[&str]) -> (tempfile::TempDir, Product, Connection) {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let product = Product::start_with(dir.path(), "127.0.0.1:0", options);
    let http = Connection::open(&product.address).unwrap();
    (dir, product, http)
}

fn code(answer: &Answer) -> (u16, String, String) {
    let problem = answer.json();
    let text = |name: &str| problem[name].as_str().unwrap_or_default().to_owned();
    assert_eq!(answer.header("content-type"), Some("application/problem+json"));
    assert_eq!(problem["outcome"], "none", "{problem}");
    (answer.status, text("code"), text("field"))
}

fn refused(status: u16, code: &str, field: &str) -> (u16, String, String) {
    (status, code.to_owned(), field.to_owned())
}

fn messages(http: &mut Connection, topic: &str) -> Vec<Value> {
    let page = http.request(&format!("GET /v1/topics/{topic}/messages"), &[], b"").unwrap().json();
    page["messages"].as_array().unwrap().clone()
}

#[test]
fn a_topics_content_type_is_that_of_messages_that_name_none() {
    let (_dir, _product, mut http) = start(&[]);
    let text = br#"{"content_type":"text/plain"}"#;
    assert_eq!(http.request("PUT /v1/topics/notes", &[], text).unwrap().status, 201);
    let post = "POST /v1/topics/notes/messages";
    assert_eq!(http.request(post, &[], b"plain").unwrap().status, 201);
    assert_eq!(http.request(post, &[("Content-Type", "application/json")], b"[1]").unwrap().status, 201);
    let lines = b"{\"data\":\"line\"}\n{\"data_base64\":\"aGk=\"}\n{\"data\":2,\"content_type\":\"application/json\"}";
    let batch = "POST /v1/topics/notes/messages:batch";
    assert_eq!(http.request(batch, &[LINES], lines).unwrap().status, 200);
    let found: Vec<_> = messages(&mut http, "notes")
        .iter()
        .map(|message| (message["content_type"].clone(), message["data"].clone()))
        .collect();
    let is_text = |text: &str| (json!("text/plain"), json!(text));
    let is_json = |value: Value| (json!("application/json"), value);
    assert_eq!(
        found,
        [is_text("plain"), is_json(json!([1])), is_text("line"), is_text("hi"), is_json(json!(2))]
    );
    let one = http.request("GET /v1/topics/notes/messages/0/0", &[], b"").unwrap();
    assert_eq!((one.header("content-type"), one.text().as_str()), (Some("text/plain"), "plain"));
    let no_text = http.request(batch, &[LINES], b"{\"data\":{}}").unwrap();
    assert_eq!(code(&no_text), refused(400, "malformed", "data"));

    // What is stored stays what it was; what comes from now on has the new type, and none once there is none.
    let patch = "PATCH /v1/topics/notes";
    assert_eq!(http.request(patch, &[], br#"{"content_type":"application/json"}"#).unwrap().status, 200);
    assert_eq!(http.request(post, &[], b"{\"n\":1.10}").unwrap().status, 201);
    assert_eq!(http.request(patch, &[], br#"{"content_type":null}"#).unwrap().status, 200);
    assert_eq!(http.request(post, &[], b"bytes").unwrap().status, 201);
    let found = messages(&mut http, "notes");
    assert_eq!((&found[0]["content_type"], &found[0]["data"]), (&json!("text/plain"), &json!("plain")));
    assert_eq!(
        (&found[5]["content_type"], &found[5]["data"]["n"]),
        (&json!("application/json"), &json!(1.10))
    );
    assert_eq!((&found[6]["content_type"], &found[6]["data_base64"]), (&Value::Null, &json!("Ynl0ZXM=")));
}

#[test]
fn a_content_type_that_is_none_is_refused_by_name_and_changes_nothing() {
    let (_dir, _product, mut http) = start(&[]);
    let text = json!({"content_type": "text/plain; charset=utf-8"}).to_string();
    assert_eq!(http.request("PUT /v1/topics/t", &[], text.as_bytes()).unwrap().status, 201);
    for none in ["", "json", "not a type\nx", "text/plain; charset", &"x/".repeat(200)] {
        let body = json!({"content_type": none}).to_string();
        for line in ["PUT /v1/topics/new", "PATCH /v1/topics/t"] {
            let answer = http.request(line, &[], body.as_bytes()).unwrap();
            assert_eq!(code(&answer), refused(400, "invalid_config", "content_type"), "{line} {none:?}");
        }
    }
    assert_eq!(http.request("GET /v1/topics/new", &[], b"").unwrap().status, 404);
    let topic = http.request("GET /v1/topics/t", &[], b"").unwrap().json();
    let kept = (&topic["config"]["content_type"], &topic["version"]);
    assert_eq!(kept, (&json!("text/plain; charset=utf-8"), &json!(1)));
}

#[test]
fn what_would_have_no_effect_is_refused_by_name_and_changes_nothing() {
    let (_dir, _product, mut http) = start(&[]);
    assert_eq!(http.request("PUT /v1/topics/t", &[], b"{}").unwrap().status, 201);
    let before = http.request("GET /v1/topics/t", &[], b"").unwrap().json();
    for (config, code_expected, field) in [(r#"{"compaction":"key"}"#, "not_supported", "compaction")] {
        for line in ["PUT /v1/topics/new", "PATCH /v1/topics/t"] {
            let answer = http.request(line, &[], config.as_bytes()).unwrap();
            assert_eq!(code(&answer), refused(409, code_expected, field), "{line} {config}");
        }
        assert_eq!(http.request("GET /v1/topics/new", &[], b"").unwrap().status, 404);
    }
    let after = http.request("GET /v1/topics/t", &[], b"").unwrap().json();
    assert_eq!((&before["config"], &before["version"]), (&after["config"], &after["version"]));
    let said = br#"{"compaction":"none","retention":{"until_settled":false},"deliver_from":"quorum"}"#;
    assert_eq!(
        http.request("PUT /v1/topics/new", &[], said).unwrap().status,
        201,
        "the defaults may be named"
    );

    assert_eq!(http.request("POST /v1/topics/t/messages", &[], b"x").unwrap().status, 201);
    for (path, headers) in [
        ("/v1/topics/t/messages?min_level=memory", &[][..]),
        ("/v1/topics/t/messages/0/0?min_level=memory", &[]),
    ] {
        let answer = http.request(&format!("GET {path}"), headers, b"").unwrap();
        assert_eq!(code(&answer), refused(409, "level_unavailable", "min_level"), "{path} {headers:?}");
    }
    let quorum = http.request("GET /v1/topics/t/messages?min_level=quorum", &[], b"").unwrap();
    assert_eq!((quorum.status, quorum.json()["messages"].as_array().unwrap().len()), (200, 1));
}

#[test]
fn where_memory_is_all_there_is_topics_and_readers_may_ask_for_it() {
    let (_dir, product, mut http) = start(&["--sync", "os"]);
    let memory = br#"{"deliver_from":"memory"}"#;
    assert_eq!(http.request("PUT /v1/topics/t", &[], memory).unwrap().status, 201);
    let published = http.request("POST /v1/topics/t/messages", &[], b"x").unwrap();
    assert_eq!((published.status, published.header("confirm-level")), (202, Some("memory")));
    // A page is of committed messages, and the commit follows the confirm.
    for query in ["?min_level=memory&wait=5", "?min_level=memory", ""] {
        let page = http.request(&format!("GET /v1/topics/t/messages{query}"), &[], b"").unwrap();
        assert_eq!((page.status, page.json()["messages"].as_array().unwrap().len()), (200, 1), "{query}");
    }
    let mut events = Connection::open(&product.address).unwrap();
    events.send("GET /v1/ns/default/events?topic=t&from=earliest&min_level=memory", &[], b"").unwrap();
    assert_eq!(events.head().unwrap().0, 200);
    while !events.line().unwrap().starts_with("data: {\"topic\":\"t\",\"partition\":0,\"offset\":0") {}
}

#[test]
fn what_is_stored_with_a_message_is_given_back_with_it() {
    let (_dir, product, mut http) = start(&[]);
    assert_eq!(http.request("PUT /v1/topics/t", &[], b"{}").unwrap().status, 201);
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let digest = "sha-256=:LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ=:";
    let at = time_soon(&mut http);
    let stored = [
        ("Deliver-At", at.as_str()),
        ("Message-TTL-Ms", "60000"),
        ("Content-Digest", digest),
        ("traceparent", parent),
        ("tracestate", "a=b"),
    ];
    let published = http.request("POST /v1/topics/t/messages", &stored, b"hello").unwrap();
    assert_eq!(published.status, 201, "{}", published.text());
    let line = format!("{{\"data\":1,\"deliver_at\":\"{at}\",\"ttl_ms\":7}}\n{{\"data\":2}}");
    assert_eq!(
        http.request("POST /v1/topics/t/messages:batch", &[LINES], line.as_bytes()).unwrap().status,
        200
    );

    let one = http.request("GET /v1/topics/t/messages/0/0", &[], b"").unwrap();
    for (name, value) in &stored {
        assert_eq!(one.header(name), Some(*value), "{name}");
    }
    let found = messages(&mut http, "t");
    let names = ["deliver_at", "ttl_ms", "content_digest", "traceparent", "tracestate"];
    let of = |message: &Value| names.map(|name| message[name].clone());
    let all = [json!(at), json!(60_000), json!(digest), json!(parent), json!("a=b")];
    assert_eq!(of(&found[0]), all);
    assert_eq!(of(&found[1]), [json!(at), json!(7), Value::Null, Value::Null, Value::Null]);
    assert!(names.iter().all(|name| found[2].get(name).is_none()), "absent, not null: {}", found[2]);
    let lines =
        http.request("GET /v1/topics/t/messages", &[("Accept", "application/x-ndjson")], b"").unwrap();
    let first: Value = serde_json::from_str(lines.text().lines().next().unwrap()).unwrap();
    assert_eq!(of(&first), all);
    let mut events = Connection::open(&product.address).unwrap();
    events.send("GET /v1/topics/t/messages", &[("Accept", "text/event-stream")], b"").unwrap();
    assert_eq!(events.head().unwrap().0, 200);
    let event = loop {
        let line = events.line().unwrap();
        if let Some(data) = line.strip_prefix("data: {\"topic\"") {
            break serde_json::from_str::<Value>(&format!("{{\"topic\"{data}")).unwrap();
        }
    };
    assert_eq!(of(&event), all);
}

#[test]
fn what_stands_around_a_batch_has_an_effect_or_is_refused_by_name() {
    let (_dir, _product, mut http) = start(&[]);
    assert_eq!(http.request("PUT /v1/topics/t", &[], b"{}").unwrap().status, 201);
    let batch = "POST /v1/topics/t/messages:batch";
    let refusals = [
        ("Message-Key", "k", "message-key"),
        ("Message-Header-X", "y", "message-header-x"),
        ("Message-TTL-Ms", "5", "message-ttl-ms"),
        ("Deliver-At", "2999-01-01T00:00:00Z", "deliver-at"),
        ("Deliver-Delay-Ms", "5", "deliver-delay-ms"),
        ("ce-id", "7", "ce-id"),
    ];
    for (name, value, field) in refusals {
        let answer = http.request(batch, &[LINES, (name, value)], b"{\"data\":1}").unwrap();
        assert_eq!(code(&answer), refused(400, "invalid_header", field), "{name}");
    }
    let event = br#"{"specversion":"1.0","id":"1","source":"/s","type":"t","data":1}"#;
    let events = [("Content-Type", "application/cloudevents+json"), ("Content-Encoding", "gzip")];
    for (line, headers) in [
        (batch, [LINES, ("Content-Encoding", "gzip")]),
        (batch, events),
        ("POST /v1/topics/t/messages", events),
    ] {
        let answer = http.request(line, &headers, event).unwrap();
        assert_eq!(code(&answer), refused(415, "unsupported_media_type", "content-encoding"), "{line}");
        assert_eq!(answer.header("accept-encoding"), Some("identity"), "{line}");
    }
    assert_eq!(messages(&mut http, "t"), [] as [Value; 0], "nothing had an effect");

    // The trace of the request is that of each message that names none.
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let own = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let traced = [LINES, ("traceparent", parent), ("tracestate", "a=b"), ("Content-Encoding", "identity")];
    let lines = format!("{{\"data\":1}}\n{{\"data\":2,\"traceparent\":\"{own}\"}}\n");
    assert_eq!(http.request(batch, &traced, lines.as_bytes()).unwrap().status, 200);
    let one_event = [("Content-Type", "application/cloudevents+json"), traced[1], traced[2], ("ce-id", "1")];
    assert_eq!(http.request(batch, &one_event, event).unwrap().status, 200);
    let found = messages(&mut http, "t");
    let of = |place: usize| (found[place]["traceparent"].as_str(), found[place]["tracestate"].as_str());
    assert_eq!(
        [of(0), of(1), of(2)],
        [(Some(parent), Some("a=b")), (Some(own), None), (Some(parent), Some("a=b"))]
    );
}

/// A time to come, as messages tell it.
fn time_soon(http: &mut Connection) -> String {
    let delay = [("Deliver-Delay-Ms", "86400000")];
    assert_eq!(http.request("POST /v1/topics/clock/messages", &delay, b"").unwrap().status, 201);
    messages(http, "clock")[0]["deliver_at"].as_str().expect("it is told").to_owned()
}

#[test]
fn a_compressed_payload_is_decoded_for_who_does_not_take_it_and_only_then() {
    let (_dir, _product, mut http) = start(&[]);
    assert_eq!(http.request("PUT /v1/topics/t", &[], b"{}").unwrap().status, 201);
    // `printf hello | gzip -n` and `printf hello | zstd`.
    let gzip = [
        0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 0xcb, 0x48, 0xcd, 0xc9, 0xc9, 7, 0, 0x86, 0xa6, 0x10, 0x36, 5, 0,
        0, 0,
    ];
    let zstd =
        [0x28, 0xb5, 0x2f, 0xfd, 4, 0x58, 0x29, 0, 0, b'h', b'e', b'l', b'l', b'o', 0xa3, 0x6d, 0x9f, 0x88];
    let mut publish = |encoding: &str, body: &[u8]| {
        let headers = [("Content-Type", "text/plain"), ("Content-Encoding", encoding)];
        assert_eq!(http.request("POST /v1/topics/t/messages", &headers, body).unwrap().status, 201);
    };
    publish("gzip", &gzip);
    publish("zstd", &zstd);
    publish("br", b"whatever");
    publish("gzip", b"no gzip");
    let mut get = |offset: u64, accept: Option<&str>| {
        let headers: Vec<_> = accept.map(|accept| ("Accept-Encoding", accept)).into_iter().collect();
        http.request(&format!("GET /v1/topics/t/messages/0/{offset}"), &headers, b"").unwrap()
    };
    for (offset, name, stored) in [(0, "gzip", &gzip[..]), (1, "zstd", &zstd)] {
        let mut tags = Vec::new();
        for (accept, is_stored) in [(None, true), (Some("*"), true), (Some(name), true), (Some("br"), false)]
        {
            let answer = get(offset, accept);
            assert_eq!(answer.status, 200, "{name} for {accept:?}: {}", answer.text());
            assert_eq!(answer.header("content-encoding"), is_stored.then_some(name), "for {accept:?}");
            assert_eq!(answer.body, if is_stored { stored } else { b"hello" }, "{name} for {accept:?}");
            assert_eq!(answer.header("content-type"), Some("text/plain"));
            assert_eq!(answer.header("vary"), Some("Accept, Accept-Encoding"));
            tags.push(answer.header("etag").unwrap().to_owned());
        }
        assert!(tags[0] == tags[2] && tags[2] != tags[3], "what differs has another tag: {tags:?}");
    }
    for offset in [2, 3] {
        assert_eq!(get(offset, None).status, 200);
        assert_eq!(code(&get(offset, Some("identity"))), refused(406, "not_acceptable", "accept-encoding"));
    }
}
