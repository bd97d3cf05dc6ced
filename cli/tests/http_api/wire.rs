//! What headers say, and what of them is passed on.

use serde_json::json;
use weir_protocol::batch::{BatchBuilder, Compression, HeadersBuilder, RecordParts};

use super::{Api, LINES};

const POST: &str = "POST /v1/topics/t/messages";
const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

#[test]
fn a_trace_is_passed_on_if_it_is_one_and_its_baggage_goes_with_it() {
    let mut api = Api::with_topic("t", "{}");
    let zero = PARENT.replace("b7ad6b7169203331", "0000000000000000");
    for (parent, is_passed_on) in [(PARENT, true), ("00-1", false), (&zero, false), ("ff", false)] {
        let trace =
            [("traceparent", parent), ("tracestate", "a=b"), ("baggage", "user=7"), ("baggage", "b=c;d")];
        let sent = api.send(POST, &trace, b"x");
        assert_eq!(sent.status, 201, "a trace that is none refuses nothing: {}", sent.text());
        let found = api.get(sent.header("location").unwrap(), &[]);
        let passed_on = is_passed_on.then_some((parent, "a=b")).unzip();
        assert_eq!((found.header("traceparent"), found.header("tracestate")), passed_on, "{parent}");
        assert_eq!(found.header("baggage"), Some("user=7, b=c;d"));
        let lines = json!({"data": 1, "traceparent": parent, "tracestate": "a=b"}).to_string();
        let offset = &api.batch("t", &[LINES], lines).json()["results"][0]["offset"];
        let page = api.get(&format!("/v1/topics/t/messages?from={offset}"), &[]).json();
        assert_eq!(page["messages"][0]["traceparent"].as_str(), passed_on.0, "{parent}");
    }
    let page = api.get("/v1/topics/t/messages?limit=1", &[]).json();
    assert_eq!(page["messages"][0]["headers"]["baggage"], "user=7, b=c;d");
    let long = "k=".to_owned() + &"v".repeat(8_191);
    let sent = api.send(POST, &[("baggage", &long)], b"x");
    assert_eq!(sent.status, 201);
    assert_eq!(
        api.get(sent.header("location").unwrap(), &[]).header("baggage"),
        None,
        "more than anybody has to"
    );
}

#[test]
fn both_digests_that_everybody_has_to_know_are_compared() {
    let mut api = Api::with_topic("t", "{}");
    let long =
        "sha-512=:m3HSJL1i83hdltRq0+o9czGb+8KJDKra4t/3JRlnPKcjI8PZm6XBHXx6zG4UuMXaDEZjR1wuXDre9G9zvN7AQw==:";
    for (body, status) in [(&b"hello"[..], 201), (b"hallo", 400)] {
        let answer = api.send(POST, &[("Content-Digest", long)], body);
        assert_eq!(answer.status, status, "{}", answer.text());
    }
    assert_eq!(api.get("/v1/topics/t/messages/0/0", &[]).header("content-digest"), Some(long));
}

#[test]
fn a_uuid_is_an_idempotency_key_with_quotes_and_without() {
    let mut api = Api::with_topic("t", "{}");
    let uuid = "6ba7b810-9dad-11d1-80b4-00c04fd430c8";
    let quoted = format!("\"{uuid}\"");
    for (key, status) in [(uuid, 201), (&quoted, 200), (uuid, 200), ("6ba7b810", 400)] {
        assert_eq!(api.send(POST, &[("Idempotency-Key", key)], b"x").status, status, "{key}");
    }
}

#[test]
fn a_duplicate_names_the_highest_number_that_was_accepted() {
    let mut api = Api::with_topic("t", "{}");
    let mut send = |seq: &str, epoch: &str| {
        let producer = [("Producer-Id", "p"), ("Producer-Epoch", epoch), ("Producer-Seq", seq)];
        let answer = api.send(POST, &producer, b"x");
        (answer.status, answer.header("producer-seq").map(str::to_owned))
    };
    for seq in ["0", "1", "2"] {
        assert_eq!(send(seq, "0"), (201, Some(seq.to_owned())));
    }
    assert_eq!(send("1", "0"), (200, Some("2".to_owned())));
    assert_eq!(send("2", "0"), (200, Some("2".to_owned())));
    assert_eq!(send("0", "1"), (201, Some("0".to_owned())), "of its epoch");
    let batch = |api: &mut Api, seq: &str| {
        let producer = [LINES, ("Producer-Id", "p"), ("Producer-Epoch", "1"), ("Producer-Seq", seq)];
        let answer = api.batch("t", &producer, "{\"data\":1}\n{\"data\":2}\n");
        (answer.status, answer.header("producer-seq").map(str::to_owned))
    };
    assert_eq!(batch(&mut api, "1"), (200, Some("2".to_owned())));
    assert_eq!(batch(&mut api, "3"), (200, Some("4".to_owned())));
    assert_eq!(batch(&mut api, "1"), (200, Some("4".to_owned())));
}

#[test]
fn a_deadline_that_is_none_refuses_a_settle() {
    let mut api = Api::with_topic("t", "{}");
    assert_eq!(api.send("PUT /v1/subscriptions/s", &[], br#"{"topics":["t"]}"#).status, 201);
    for (deadline, status) in [("abc", 400), ("0", 400), ("1000", 200)] {
        let settled =
            api.send("POST /v1/subscriptions/s:settle", &[("Confirm-Deadline-Ms", deadline)], b"{}");
        assert_eq!(settled.status, status, "{deadline}: {}", settled.text());
    }
}

#[test]
fn options_names_the_methods_of_what_is_there_and_nothing_else() {
    let mut api = Api::with_topic("t", "{}");
    for (path, allow) in [
        ("/v1/topics/t", "DELETE, GET, HEAD, OPTIONS, PATCH, PUT"),
        ("/v1/topics/t/messages", "GET, HEAD, OPTIONS, POST"),
        ("/v1/topics/t:trim", "OPTIONS, POST"),
        ("/healthz", "GET, HEAD, OPTIONS"),
        ("/console/", "GET, HEAD, OPTIONS"),
        ("*", "DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT"),
    ] {
        let answer = api.send(&format!("OPTIONS {path}"), &[], b"");
        let mut methods: Vec<_> = answer.header("allow").unwrap_or_default().split(", ").collect();
        methods.sort_unstable();
        assert_eq!((answer.status, methods.join(", ").as_str()), (204, allow), "{path}");
    }
    for path in ["/v1/nothing", "/", "/v1/topics/t/a/b"] {
        assert_eq!(api.send(&format!("OPTIONS {path}"), &[], b"").status, 404, "{path}");
    }
}

#[test]
fn a_socket_needs_a_key_of_sixteen_bytes() {
    let mut api = Api::start();
    for key in ["", "x", "AAAA", "dGhlIHNhbXBsZSBub25jZQ", "dGhlIHNhbXBsZSBub25jZSE="] {
        let handshake = [
            ("Connection", "Upgrade"),
            ("Upgrade", "websocket"),
            ("Sec-WebSocket-Version", "13"),
            ("Sec-WebSocket-Protocol", "weir.v1.json"),
            ("Sec-WebSocket-Key", key),
        ];
        let refused = api.get("/v1/ws", &handshake);
        let told = (refused.status, refused.json()["field"].clone());
        assert_eq!(told, (400, json!("sec-websocket-key")), "{key:?}");
    }
}

#[test]
fn a_page_of_another_origin_sees_the_headers_that_publishers_named() {
    let mut api = Api::with_topic("t", "{}");
    let named = [("Message-Header-Tenant", "a"), ("ce-id", "1"), ("ce-source", "/s"), ("ce-type", "t")];
    assert_eq!(api.send(POST, &named, b"x").status, 201);
    let origin = [("Origin", "http://localhost:3000")];
    let exposed = |api: &mut Api, path: &str| {
        let answer = api.get(path, &origin);
        let exposed = answer.header("access-control-expose-headers").unwrap().to_lowercase();
        (exposed, answer.header("access-control-allow-credentials").map(str::to_owned))
    };
    let (of_message, credentials) = exposed(&mut api, "/v1/topics/t/messages/0/0");
    for name in ["message-header-tenant", "ce-id", "ce-source", "ce-type", "message-timestamp", "etag"] {
        assert!(of_message.split(", ").any(|exposed| exposed.trim() == name), "{name}: {of_message}");
    }
    assert_eq!(credentials, None);
    let (of_page, _) = exposed(&mut api, "/v1/topics/t/messages");
    assert!(!of_page.contains("tenant"), "{of_page}");
}

#[test]
fn a_name_that_no_header_can_have_is_refused_and_a_value_that_none_can_have_is_told() {
    let mut api = Api::with_topic("t", "{}");
    for name in ["a b", "a:", "größe", "", "a\n"] {
        let line = json!({"data": 1, "headers": {name: "x"}}).to_string();
        let refused = api.batch("t", &[LINES], line);
        assert_eq!((refused.status, &refused.json()["field"]), (400, &json!("headers")), "{name:?}");
    }
    let line =
        json!({"data": 1, "key": "a\nb", "headers": {"told": "x", "two-lines": "a\r\nb: c"}}).to_string();
    assert_eq!(api.batch("t", &[LINES], line).status, 200);
    let one = api.get("/v1/topics/t/messages/0/0", &[]);
    assert_eq!(one.header("message-header-told"), Some("x"));
    assert_eq!(one.header("message-left-out"), Some("message-key, message-header-two-lines"));
    let page = api.get("/v1/topics/t/messages", &[]).json();
    assert_eq!(page["messages"][0]["headers"]["two-lines"], "a\r\nb: c", "a page tells all");

    let mut headers = HeadersBuilder::default();
    headers.user("a b", b"x").unwrap();
    let (headers, mut builder) = (headers.finish(), BatchBuilder::anonymous());
    builder.push(RecordParts { key: None, headers: &headers, value: b"x" }).unwrap();
    let batch = builder.build(Compression::None).unwrap();
    let media = [("Content-Type", "application/vnd.weir.batch")];
    assert_eq!(api.batch("t", &media, batch.bytes()).status, 200);
    let one = api.get("/v1/topics/t/messages/0/1", &[]);
    assert_eq!(one.header("message-left-out"), Some("message-header-a%20b"));
}
