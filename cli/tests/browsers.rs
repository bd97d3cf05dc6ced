//! What protects browsers and their users: hosts, origins, the headers of every answer. And the namespaces that say
//! which origins may ask.
#![expect(dead_code, reason = "each test uses a part of the product's client")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod frames;
mod product;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use frames::FrameSocket;
use product::{Answer, Connection, Product};
use serde_json::{Value, json};
use weir_protocol::ws::{ClientFrame, Hello, Limit, Open, Pub, RawJson, ServerFrame, Sub};

fn start(options: &[&str]) -> (tempfile::TempDir, Product, Connection) {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let product = Product::start_with(dir.path(), "127.0.0.1:0", options);
    let http = Connection::open(&product.address).unwrap();
    (dir, product, http)
}

/// The status, head and body of the answer to a request that is written out.
fn raw(product: &Product, request: &str) -> (u16, String, Value) {
    let mut stream = TcpStream::connect(&product.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
    stream.read_exact(&mut body).unwrap();
    (status, head, serde_json::from_slice(&body).unwrap_or_default())
}

#[test]
fn a_websocket_of_a_foreign_page_or_under_a_foreign_name_is_refused_with_a_problem() {
    let (_dir, product, _) = start(&["--allow-origin", "https://app.example"]);
    let shake = |host: &str, origin: &str| {
        let origin = if origin.is_empty() { String::new() } else { format!("Origin: {origin}\r\n") };
        raw(
            &product,
            &format!(
                "GET /v1/ws HTTP/1.1\r\nHost: {host}\r\n{origin}Connection: Upgrade, close\r\nUpgrade: websocket\r\n\
                 Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
                 Sec-WebSocket-Protocol: weir.v1.json\r\n\r\n"
            ),
        )
    };
    for (host, origin, status, code) in [
        ("localhost", "https://evil.example", 403, "origin_forbidden"),
        ("localhost", "http://localhost.evil.example", 403, "origin_forbidden"),
        ("localhost", "null", 403, "origin_forbidden"),
        ("evil.example", "", 421, "unknown_host"),
        ("evil.example", "http://evil.example", 421, "unknown_host"),
    ] {
        let (found, head, problem) = shake(host, origin);
        assert_eq!((found, &problem["code"]), (status, &json!(code)), "{host} {origin}");
        assert!(head.contains("content-type: application/problem+json"), "{head}");
        assert!(!head.contains("access-control-"), "{head}");
        assert_eq!(problem["outcome"], "none");
        let says_what_to_do = problem["detail"].as_str().unwrap().contains("--host-name");
        assert_eq!(says_what_to_do, status == 421, "{problem}");
    }
    for (host, origin) in
        [("localhost", ""), ("localhost", "https://app.example"), ("127.0.0.1", "http://localhost:3000")]
    {
        assert_eq!(shake(host, origin).0, 101, "{host} {origin}");
    }
}

const SHOP: Option<&str> = Some("https://shop.example");

/// A socket of a page of `origin`, after its `hello`.
async fn socket_of(product: &Product, origin: Option<&str>) -> FrameSocket {
    let mut socket =
        FrameSocket::connect_from(origin, &product.address, "weir.v1.json").await.expect("it may connect");
    socket.send(0, ClientFrame::Hello(Hello { v: 1, ..Hello::default() })).await;
    assert!(matches!(socket.next().await.1, ServerFrame::Welcome(_)));
    socket
}

fn open(ns: &str) -> ClientFrame {
    ClientFrame::Open(Open { ns: Some(ns.into()), topic: "from-a-page".into(), ..Open::default() })
}

fn sub(ns: &str, topic: Option<&str>, sub: Option<&str>) -> ClientFrame {
    let limit = Limit { msgs: 10, bytes: 1 << 20 };
    let from = topic.map(|_| "earliest".parse().unwrap());
    let (ns, topic, sub) = (Some(ns.to_owned()), topic.map(str::to_owned), sub.map(str::to_owned));
    ClientFrame::Sub(Sub { ns, topic, sub, from, limit, ..Sub::default() })
}

/// The code of the `err` that comes next on `ch`; credit, and what is told of other channels, is passed over.
async fn refusal(socket: &mut FrameSocket, ch: u16) -> String {
    loop {
        match socket.next().await {
            (_, ServerFrame::PubLimit(_) | ServerFrame::Confirm(_) | ServerFrame::CaughtUp(_)) => {}
            (number, ServerFrame::Err(refused)) if number.0 == ch => {
                let problem: Value = serde_json::from_str(refused.problem.get()).unwrap();
                assert_eq!(problem["outcome"], "none", "{problem}");
                return problem["code"].as_str().unwrap().to_owned();
            }
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_page_that_a_namespace_lists_has_a_websocket_to_that_namespace_and_no_other() {
    let (_dir, product, mut http) = start(&["--allow-origin", "https://app.example"]);
    let mut send = |line: &str, body: &[u8]| http.request(line, &[], body).unwrap();
    for (name, origins) in [("shop", "\"https://shop.example\""), ("other", "\"https://other.example\"")] {
        let config = format!("{{\"auto_create\":true,\"cors_origins\":[{origins}]}}");
        assert_eq!(send(&format!("PUT /v1/ns/{name}"), config.as_bytes()).status, 201);
    }
    send("PUT /v1/ns/other/topics/there", b"{}");
    send("PUT /v1/ns/other/subscriptions/work", br#"{"mode":"queue","topics":["there"]}"#);
    let stranger = FrameSocket::connect_from(Some("https://evil.example"), &product.address, "weir.v1.json");
    assert_eq!(stranger.await.err(), Some(403));

    let mut page = socket_of(&product, SHOP).await;
    page.send(1, open("shop")).await;
    assert!(matches!(page.next().await.1, ServerFrame::Opened(_)));
    let data = RawJson::from_text("\"paid\"");
    page.send(1, ClientFrame::Pub(Pub { seq: 0, data, ..Pub::default() })).await;
    page.send(2, sub("shop", Some("from-a-page"), None)).await;
    loop {
        match page.next().await.1 {
            ServerFrame::Msg(msg) if msg.data.as_ref().map(RawJson::get) == Some("\"paid\"") => break,
            ServerFrame::Err(refused) => panic!("{refused:?}"),
            _ => {}
        }
    }

    // Whatever it asks of another namespace, one that exists or not, has no effect and is told on its channel.
    for (ch, ask) in [
        (3, open("other")),
        (4, open("default")),
        (5, sub("other", Some("there"), None)),
        (6, sub("other", None, Some("work"))),
        (7, open("nowhere")),
        (8, sub("nowhere", Some("there"), None)),
    ] {
        page.send(ch, ask).await;
        assert_eq!(refusal(&mut page, ch).await, "origin_forbidden", "channel {ch}");
    }
    for path in ["/v1/ns/other/topics/from-a-page", "/v1/topics/from-a-page"] {
        assert_eq!(send(&format!("GET {path}"), b"").status, 404, "{path}");
    }

    // A page that the gateway itself knows, and who is no page, may use them all.
    for origin in [Some("https://app.example"), None] {
        let mut socket = socket_of(&product, origin).await;
        for (ch, ns) in [(1, "shop"), (2, "other"), (3, "default")] {
            socket.send(ch, open(ns)).await;
            // Credit of those before may still be told.
            let frame = loop {
                match socket.next().await.1 {
                    ServerFrame::PubLimit(_) => {}
                    frame => break frame,
                }
            };
            assert!(matches!(frame, ServerFrame::Opened(_)), "{origin:?} {ns}: {frame:?}");
        }
    }

    // Once it is not listed any more, it opens nothing more, on a socket from before too.
    assert_eq!(send("PATCH /v1/ns/shop", br#"{"cors_origins":[]}"#).status, 200);
    page.send(9, open("shop")).await;
    assert_eq!(refusal(&mut page, 9).await, "origin_forbidden");
    let begin = std::time::Instant::now();
    while FrameSocket::connect_from(SHOP, &product.address, "weir.v1.json").await.is_ok() {
        assert!(begin.elapsed() < frames::SOON, "it still connects");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// What pages may read besides what the standard lets them.
const EXPOSED: &str = "next-offset up-to-date closed cursor link confirm-level confirm-receipt \
    idempotency-replayed etag location server-timing ratelimit ratelimit-policy retry-after \
    deliver-at message-ttl-ms content-digest traceparent";

fn names(answer: &Answer, header: &str) -> Vec<String> {
    let lists = answer.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case(header));
    let names = lists.flat_map(|(_, list)| list.split(','));
    names.map(|name| name.trim().to_ascii_lowercase()).collect()
}

#[test]
fn pages_of_allowed_origins_may_ask_and_read_what_the_contract_names() {
    let (_dir, _product, mut http) = start(&["--allow-origin", "https://app.example"]);
    let origin = ("Origin", "https://app.example");
    let asked = [
        "authorization",
        "content-type",
        "content-encoding",
        "content-digest",
        "deliver-at",
        "deliver-delay-ms",
        "prefer",
        "if-none-match",
        "if-match",
        "idempotency-key",
        "producer-id",
        "producer-epoch",
        "producer-seq",
        "stream-seq",
        "confirm",
        "confirm-deadline-ms",
        "message-key",
        "message-ttl-ms",
        "message-header-x",
        "ce-id",
        "traceparent",
        "last-event-id",
    ];
    let list = format!("{}, cookie, x-other", asked.join(", "));
    let preflight =
        [origin, ("Access-Control-Request-Method", "POST"), ("Access-Control-Request-Headers", &list)];
    let answer = http.request("OPTIONS /v1/topics/t/messages", &preflight, b"").unwrap();
    assert_eq!((answer.status, answer.header("access-control-max-age")), (204, Some("7200")));
    assert_eq!(names(&answer, "access-control-allow-headers"), asked, "each that is known, and no other");
    assert_eq!(names(&answer, "access-control-allow-methods"), ["get", "put", "patch", "post", "delete"]);
    assert_eq!(answer.header("access-control-allow-origin"), Some(origin.1));
    assert_eq!(answer.header("access-control-allow-credentials"), None, "never with credentials");

    // A page reads refusals too.
    for (line, status) in [("POST /v1/topics/t/messages", 201), ("GET /v1/topics/t/messages?from=9", 416)] {
        let answer = http.request(line, &[origin], b"x").unwrap();
        assert_eq!(answer.status, status, "{}", answer.text());
        assert_eq!(answer.header("access-control-allow-origin"), Some(origin.1));
        assert_eq!(answer.header("timing-allow-origin"), Some(origin.1));
        assert!(names(&answer, "vary").contains(&"origin".to_owned()));
        let exposed = names(&answer, "access-control-expose-headers");
        for name in EXPOSED.split(' ') {
            assert!(exposed.contains(&name.to_owned()), "{name} is not among {exposed:?}");
        }
    }
    let stranger =
        http.request("POST /v1/topics/t/messages", &[("Origin", "https://evil.example")], b"x").unwrap();
    assert_eq!((stranger.status, &stranger.json()["code"]), (403, &json!("origin_forbidden")));
    for name in ["access-control-allow-origin", "access-control-expose-headers", "timing-allow-origin"] {
        assert_eq!(stranger.header(name), None, "{name}");
    }
}

#[test]
fn every_answer_forbids_to_guess_its_type_and_to_embed_it_elsewhere() {
    let (_dir, product, mut http) = start(&[]);
    let guarded = |answer: &Answer| {
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"), "{answer:?}");
        assert_eq!(answer.header("cross-origin-resource-policy"), Some("same-origin"), "{answer:?}");
    };
    for (line, headers, status) in [
        ("GET /healthz", &[][..], 204),
        ("GET /v1", &[], 200),
        ("GET /metrics", &[], 200),
        ("GET /openapi.json", &[], 200),
        ("GET /console/", &[], 200),
        ("HEAD /v1", &[], 200),
        ("OPTIONS /v1", &[], 204),
        ("GET /nothing", &[], 404),
        ("DELETE /v1", &[], 405),
        ("PUT /v1/topics/t", &[], 201),
        ("POST /v1/topics/t/messages", &[], 201),
        ("GET /v1/topics/t/messages/0/0", &[], 200),
        ("GET /v1/topics/t/messages", &[("Accept", "image/png")], 406),
        ("GET /v1", &[("Origin", "https://evil.example")], 403),
        ("GET /v1/ws", &[], 400),
    ] {
        // What has no body says how long it would be.
        let mut once = Connection::open(&product.address).unwrap();
        let answer = if line.starts_with("HEAD") {
            once.send(line, headers, b"").unwrap();
            let (status, headers) = once.head().unwrap();
            Answer { status, headers, body: Vec::new() }
        } else {
            http.request(line, headers, b"").unwrap()
        };
        assert_eq!(answer.status, status, "{line}: {}", answer.text());
        guarded(&answer);
    }
}

/// What the page of the gateway itself asked for says no origin, and a browser may keep the answer.
#[test]
fn an_answer_that_may_be_kept_says_that_it_depends_on_who_asks() {
    let (_dir, _product, mut http) = start(&["--allow-origin", "https://app.example"]);
    assert_eq!(http.request("POST /v1/topics/t/messages", &[], b"x").unwrap().status, 201);
    let life = http.request("GET /v1/topics/t", &[], b"").unwrap().json()["incarnation"].clone();
    let line = format!("GET /v1/topics/t/messages/0/0?incarnation={life}");
    for headers in [&[][..], &[("Origin", "https://app.example")]] {
        let kept = http.request(&line, headers, b"").unwrap();
        assert_eq!(kept.header("cache-control"), Some("private, max-age=31536000, immutable"));
        assert_eq!(names(&kept, "vary"), ["accept", "origin"], "{headers:?}");
        let known = [headers, &[("If-None-Match", kept.header("etag").unwrap())]].concat();
        let known = http.request(&line, &known, b"").unwrap();
        assert_eq!(
            (known.status, names(&known, "vary")),
            (304, vec!["accept".to_owned(), "origin".to_owned()])
        );
    }
}

#[test]
fn an_origin_that_no_browser_sends_is_refused_and_changes_nothing() {
    let (_dir, _product, mut http) = start(&[]);
    let mut send = |line: &str, body: &Value| http.request(line, &[], body.to_string().as_bytes()).unwrap();
    assert_eq!(send("PUT /v1/ns/shop", &json!({"cors_origins": ["https://shop.example"]})).status, 201);
    let many: Vec<_> = (0..101).map(|n| format!("https://{n}.example")).collect();
    let listed = [
        json!(["*"]),
        json!([""]),
        json!(["null"]),
        json!(["shop.example"]),
        json!(["https://shop.example/"]),
        json!(["https://Shop.example"]),
        json!(["https://shop.example:443"]),
        json!(["not an origin\n"]),
        json!(["https://shop.example", "https://*.shop.example"]),
        json!(many),
    ];
    for origins in listed {
        for line in ["PUT /v1/ns/new", "PUT /v1/ns/shop", "PATCH /v1/ns/shop"] {
            let answer = send(line, &json!({"cors_origins": origins}));
            let problem = answer.json();
            let told = (answer.status, &problem["code"], &problem["field"], &problem["outcome"]);
            let expected = (400, &json!("invalid_config"), &json!("cors_origins"), &json!("none"));
            assert_eq!(told, expected, "{line} {origins}: {}", answer.text());
        }
    }
    assert_eq!(send("GET /v1/ns/new", &Value::Null).status, 404);
    let shop = send("GET /v1/ns/shop", &Value::Null).json();
    assert_eq!((&shop["cors_origins"], &shop["version"]), (&json!(["https://shop.example"]), &json!(1)));
    let wildcard = send("PATCH /v1/ns/shop", &json!({"cors_origins": ["*"]})).json();
    assert!(wildcard["detail"].as_str().unwrap().contains("no wildcard"), "{wildcard}");
}

#[test]
fn namespaces_are_made_changed_listed_and_deleted_once_they_are_empty() {
    let (_dir, _product, mut http) = start(&[]);
    let mut send =
        |line: &str, headers: &[(&str, &str)], body: &[u8]| http.request(line, headers, body).unwrap();
    let code =
        |answer: &Answer| (answer.status, answer.json()["code"].as_str().unwrap_or_default().to_owned());
    let refused = |status: u16, code: &str| (status, code.to_owned());
    let shop = br#"{"auto_create":true,"cors_origins":["https://shop.example"]}"#;
    assert_eq!(send("PUT /v1/ns/shop", &[], shop).status, 201);
    assert_eq!(send("PUT /v1/ns/shop", &[], shop).status, 200, "it stands like that");
    let other = send("PUT /v1/ns/shop", &[], b"{\"auto_create\":true}");
    assert_eq!(code(&other), refused(409, "config_mismatch"));
    let differs = r#"has other settings: cors_origins is ["https://shop.example"], not []"#;
    assert!(other.json()["detail"].as_str().unwrap().ends_with(differs), "{}", other.text());

    // A patch changes what it names; one of an older version nothing.
    let before = send("GET /v1/ns/shop", &[], b"");
    let tag = before.header("etag").unwrap().to_owned();
    let patched = send("PATCH /v1/ns/shop", &[("If-Match", &tag)], br#"{"auto_create":false}"#);
    assert_eq!(patched.status, 200, "{}", patched.text());
    assert_eq!(
        (&patched.json()["auto_create"], &patched.json()["cors_origins"]),
        (&json!(false), &json!(["https://shop.example"]))
    );
    assert_ne!(patched.header("etag"), Some(tag.as_str()));
    let late = send("PATCH /v1/ns/shop", &[("If-Match", &tag)], br#"{"auto_create":true}"#);
    assert_eq!(code(&late), refused(412, "version_mismatch"));
    assert_eq!(code(&send("PATCH /v1/ns/shop", &[], br#"{"auto":true}"#)), refused(400, "unknown_field"));
    assert_eq!(code(&send("PATCH /v1/ns/nowhere", &[], b"{}")), refused(404, "namespace_not_found"));
    let unmade = send("POST /v1/ns/shop/topics/t/messages", &[], b"x");
    assert_eq!(code(&unmade), refused(404, "topic_not_found"), "it makes none by itself any more");

    for name in ["alpha", "beta"] {
        assert_eq!(send(&format!("PUT /v1/ns/{name}"), &[], b"{}").status, 201);
    }
    let (mut listed, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = send(&format!("GET /v1/ns?limit=2{cursor}"), &[], b"").json();
        let items = page["items"].as_array().unwrap();
        assert!(items.len() <= 2);
        listed.extend(items.iter().map(|item| item["name"].as_str().unwrap().to_owned()));
        match page["next"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(listed, ["alpha", "beta", "default", "shop"]);
    let some = send("GET /v1/ns?q=eta", &[], b"").json();
    assert_eq!(some["items"].as_array().unwrap().len(), 1, "{some}");

    assert_eq!(send("PUT /v1/ns/shop/topics/t", &[], b"{}").status, 201);
    let full = send("DELETE /v1/ns/shop", &[], b"");
    assert_eq!(code(&full), refused(409, "namespace_not_empty"));
    assert_eq!(full.json()["outcome"], "none");
    assert_eq!(send("GET /v1/ns/shop/topics/t", &[], b"").status, 200, "nothing was deleted");
    assert_eq!(send("DELETE /v1/ns/shop/topics/t", &[], b"").status, 204);
    assert_eq!(send("DELETE /v1/ns/shop", &[], b"").status, 204);
    for line in ["GET /v1/ns/shop", "DELETE /v1/ns/shop", "GET /v1/ns/shop/topics"] {
        assert_eq!(code(&send(line, &[], b"")), refused(404, "namespace_not_found"), "{line}");
    }
    assert_eq!(code(&send("DELETE /v1/ns/default", &[], b"")), refused(409, "not_supported"));
}
