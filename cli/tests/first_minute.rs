//! What a newcomer does first, through the public interface of the real product.
#![expect(dead_code, reason = "each test uses a part of the product's client")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod product;

use product::{Connection, Product, started};

#[test]
fn publish_read_and_follow_with_the_readmes_requests_and_across_a_restart() {
    let (dir, mut product, mut http) = started();
    let text = [("Content-Type", "text/plain"), ("Message-Header-Lang", "en"), ("Message-Key", "k")];
    let sent = http.request("POST /v1/topics/greetings/messages", &text, b"hello").unwrap();
    assert_eq!((sent.status, sent.header("confirm-level")), (201, Some("quorum")), "{}", sent.text());
    assert_eq!(sent.json()["offset"], 0);
    let timing = sent.header("server-timing").unwrap();
    for stage in ["gw", "net", "queue", "write", "fsync", "quorum", "total"] {
        assert!(timing.contains(&format!("{stage};dur=")), "{timing}");
    }
    let location = sent.header("location").unwrap().to_owned();
    let raw = http.request(&format!("GET {location}"), &[], b"").unwrap();
    assert_eq!((raw.text().as_str(), raw.header("content-type")), ("hello", Some("text/plain")));
    assert_eq!((raw.header("message-key"), raw.header("message-header-lang")), (Some("k"), Some("en")));

    let digits = br#"{"total":9007199254740993.10}"#;
    http.request("POST /v1/topics/greetings/messages", &[("Content-Type", "application/json")], digits)
        .unwrap();
    let page = http.request("GET /v1/topics/greetings/messages", &[], b"").unwrap();
    assert!(page.text().contains(r#""data":{"total":9007199254740993.10}"#), "{}", page.text());
    assert_eq!((page.json()["next"].as_u64(), page.header("up-to-date")), (Some(2), Some("true")));

    let mut events = Connection::open(&product.address).unwrap();
    events.send("GET /v1/topics/greetings/messages", &[("Accept", "text/event-stream")], b"").unwrap();
    assert_eq!(events.head().unwrap().0, 200);
    let id = next_event(&mut events, r#""offset":0"#);
    drop(events);
    assert!(product.stop(), "SIGTERM stops it cleanly");

    let product = Product::start(dir.path());
    let mut events = Connection::open(&product.address).unwrap();
    let resume = [("Accept", "text/event-stream"), ("Last-Event-ID", id.as_str())];
    events.send("GET /v1/topics/greetings/messages", &resume, b"").unwrap();
    events.head().unwrap();
    next_event(&mut events, r#""offset":1"#);
    let mut http = Connection::open(&product.address).unwrap();
    http.request("POST /v1/topics/greetings/messages", &text, b"again").unwrap();
    next_event(&mut events, r#""data":"again""#);
}

/// Reads to the next message, which must contain `wanted`; returns its id.
fn next_event(events: &mut Connection, wanted: &str) -> String {
    let (mut id, mut is_message) = (String::new(), true);
    loop {
        let line = events.line().unwrap();
        match line.split_once(": ") {
            Some(("id", text)) => id = text.to_owned(),
            Some(("event", _)) => is_message = false,
            Some(("data", text)) if is_message => {
                assert!(text.contains(wanted), "{text}");
                return id;
            }
            _ if line.is_empty() => is_message = true,
            _ => {}
        }
    }
}

#[test]
fn bad_requests_get_a_precise_answer_and_no_effect() {
    let (_dir, _product, mut http) = started();
    let create = http.request("PUT /v1/topics/orders", &[], br#"{"retention":{"records":5}}"#).unwrap();
    assert_eq!(create.status, 201, "{}", create.text());
    let again = http.request("PUT /v1/topics/orders", &[], br#"{"retention":{"records":5}}"#).unwrap();
    assert_eq!(again.status, 200);
    for (line, headers, body, status, code) in [
        ("PUT /v1/topics/orders", &[][..], &b"{}"[..], 409, "config_mismatch"),
        ("PUT /v1/topics/x", &[], b"{\"partitons\":2}", 400, "unknown_field"),
        ("PUT /v1/topics/x", &[], b"{\"partitions\":0}", 400, "invalid_config"),
        ("PUT /v1/topics/x", &[], b"{", 400, "malformed"),
        ("PUT /v1/topics/a%2Fb", &[], b"{}", 400, "invalid_name"),
        ("GET /v1/topics/nothing", &[], b"", 404, "topic_not_found"),
        ("GET /v1/ns/nowhere/topics", &[], b"", 404, "namespace_not_found"),
        ("GET /v1/topics/orders/messages?from=1", &[], b"", 416, "beyond_tail"),
        ("GET /v1/topics/orders/messages?from=now", &[], b"", 400, "invalid_parameter"),
        ("GET /v1/topics/orders/messages?form=1", &[], b"", 400, "invalid_parameter"),
        ("POST /v1/topics/orders", &[], b"", 405, "method_not_allowed"),
        ("POST /v1/topics/orders/messages", &[("Confirm", "soon")], b"x", 400, "invalid_header"),
        ("POST /v1/topics/orders/messages", &[("Confirm", "archived")], b"x", 409, "level_unavailable"),
        ("POST /v1/topics/orders/messages", &[("Producer-Id", "p")], b"x", 400, "invalid_header"),
        ("POST /v1/topics/orders/messages", &[("If-Match", "\"1:0:7\"")], b"x", 410, "incarnation_gone"),
        (
            "POST /v1/topics/orders/messages",
            &[("Content-Digest", "sha-256=:AAAA:")],
            b"x",
            400,
            "digest_mismatch",
        ),
        (
            "POST /v1/topics/orders/messages",
            &[("Origin", "https://evil.example")],
            b"x",
            403,
            "origin_forbidden",
        ),
        ("POST /v1/topics/orders/messages", &[("Deliver-Delay-Ms", "soon")], b"x", 400, "invalid_header"),
    ] {
        let answer = http.request(line, headers, body).unwrap();
        assert_eq!(answer.status, status, "{line}: {}", answer.text());
        let problem = answer.json();
        assert_eq!(
            (problem["code"].as_str(), problem["outcome"].as_str()),
            (Some(code), Some("none")),
            "{line}"
        );
        assert_eq!(answer.header("content-type"), Some("application/problem+json"));
    }
    let detail = |http: &mut Connection, line: &str| {
        let refused = http.request(line, &[], b"{}").unwrap().json();
        refused["detail"].as_str().unwrap().to_owned()
    };
    let other = detail(&mut http, "PUT /v1/topics/orders");
    assert!(other.ends_with("with another configuration: retention.records is 5, not null"), "{other}");
    let misspelt = detail(&mut http, "GET /v1/topics/orders/messages?form=1");
    assert!(misspelt.starts_with("form: unknown here; there are from, limit, "), "{misspelt}");
    assert_eq!(http.request("PUT /v1/ns/strict", &[], b"{}").unwrap().status, 201);
    let unmade = detail(&mut http, "POST /v1/ns/strict/topics/x/messages");
    assert!(unmade.starts_with("there is no topic strict/x, and its namespace makes none"), "{unmade}");
    let wrong_method = http.request("POST /v1/topics/orders", &[], b"").unwrap();
    assert_eq!(wrong_method.header("allow"), Some("PUT, GET, HEAD, PATCH, DELETE, OPTIONS"));
    for (origin, may_read) in [("http://localhost:3000", true), ("https://evil.example", false)] {
        let answer = http.request("GET /v1/topics/orders", &[("Origin", origin)], b"").unwrap();
        assert_eq!(answer.header("access-control-allow-origin").is_some(), may_read, "{origin}");
    }
    // Refused by its declared length, before a byte of it is read.
    http.declare("POST /v1/topics/orders/messages", "text/plain", (1 << 20) + 1).unwrap();
    assert_eq!(http.head().unwrap().0, 413);
    let mut http = Connection::open(&_product.address).unwrap();
    let page = http.request("GET /v1/topics/orders/messages", &[], b"").unwrap();
    assert_eq!(page.json()["messages"].as_array().unwrap().len(), 0, "no refused request had an effect");
}

#[test]
fn retries_and_conditions_are_answered_as_promised() {
    let (_dir, _product, mut http) = started();
    let mut post = |headers: &[(&str, &str)], body: &str| {
        http.request("POST /v1/topics/orders/messages", headers, body.as_bytes()).unwrap()
    };
    let triple = |seq| [("Producer-Id", "p"), ("Producer-Epoch", "0"), ("Producer-Seq", seq)];
    assert_eq!(post(&triple("0"), "a").status, 201);
    let again = post(&triple("0"), "a");
    assert_eq!((again.status, again.json()["duplicate"].as_bool()), (200, Some(true)));
    let gap = post(&triple("5"), "f");
    assert_eq!((gap.status, gap.json()["current"]["expected_seq"].as_u64()), (409, Some(1)));

    let keyed = [("Idempotency-Key", "\"order-1\"")];
    let first = post(&keyed, "b");
    let replayed = post(&keyed, "b");
    assert_eq!(replayed.header("idempotency-replayed"), Some("true"));
    assert_eq!(replayed.json()["offset"], first.json()["offset"]);
    assert_eq!(post(&keyed, "other").json()["code"], "key_reused");
    // Under the key nothing is appended: the number would not be its producer's next one.
    let both = post(&[triple("1").as_slice(), &keyed].concat(), "b").json();
    assert_eq!((&both["code"], &both["field"]), (&"invalid_header".into(), &"idempotency-key".into()));
    let last = post(&triple("1"), "g");
    assert_eq!(last.status, 201);

    let tag = last.header("etag").unwrap().to_owned();
    assert_eq!(post(&[("If-Match", &tag)], "c").status, 201);
    let moved = post(&[("If-Match", &tag)], "d");
    assert_eq!((moved.status, moved.json()["current"]["tail"].as_u64()), (412, Some(4)));
    let current = moved.json()["current"]["etag"].as_str().unwrap().to_owned();
    assert_eq!(post(&[("If-Match", &current)], "d").status, 201, "the problem names the tag to go on with");
}
