//! What is refused has no effect and names what was wrong, whichever way it came: through the real product.
#![expect(dead_code, reason = "each test uses a part of the product's client")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod frames;
mod product;

use frames::FrameSocket;
use product::{Answer, Connection, Product};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;
use weir_protocol::batch::{Batch, BatchBuilder, Compression, Headers, HeadersBuilder, RecordParts};
use weir_protocol::ids::{Epoch, ProducerKey, Seq, TimestampMs};
use weir_protocol::limits::INTEGER_MAX;
use weir_protocol::rpc::Level;
use weir_protocol::ws::{
    Channel, ClientFrame, Hello, Open, Opened, Producer, Pub, RawJson, Reject, ServerFrame,
};

const PUBLISH: &str = "POST /v1/topics/t/messages";
const BATCH: &str = "POST /v1/topics/t/messages:batch";
const LINES: (&str, &str) = ("Content-Type", "application/x-ndjson");
const BINARY: (&str, &str) = ("Content-Type", "application/vnd.weir.batch");
/// Beyond what a JSON number tells everybody alike.
const TOO_HIGH: &str = "9007199254740992";

struct Api {
    _dir: tempfile::TempDir,
    product: Product,
    http: Connection,
}

impl Api {
    fn start() -> Self {
        let (dir, product, http) = product::started();
        Self { _dir: dir, product, http }
    }

    fn send(&mut self, line: &str, headers: &[(&str, &str)], body: impl AsRef<[u8]>) -> Answer {
        self.http.request(line, headers, body.as_ref()).unwrap()
    }

    /// Refused with this status and field, without effect.
    fn refused(&mut self, line: &str, headers: &[(&str, &str)], body: impl AsRef<[u8]>) -> (u16, Value) {
        let answer = self.send(line, headers, body);
        let problem = answer.json();
        assert_eq!(problem["outcome"], "none", "{headers:?}: {problem}");
        (answer.status, problem["field"].clone())
    }

    fn has_topic(&mut self) -> bool {
        self.send("GET /v1/topics/t", &[], "").status == 200
    }

    fn end(&mut self) -> u64 {
        self.send("GET /v1/topics/t", &[], "").json()["partitions"][0]["end"].as_u64().unwrap()
    }
}

fn batch(producer: Option<(u128, u64)>, headers: &Headers) -> Batch {
    let mut builder = match producer {
        Some((key, seq)) => BatchBuilder::new(ProducerKey(key), Epoch(0), Seq(seq)),
        None => BatchBuilder::anonymous(),
    };
    builder.push(RecordParts { key: None, headers, value: b"v" }).unwrap();
    builder.build(Compression::None).unwrap()
}

/// A line of a batch whose message has so many headers of so many bytes.
fn line_with_headers(count: usize, bytes: usize) -> Vec<u8> {
    let headers: serde_json::Map<_, _> =
        (0..count).map(|name| (format!("h{name}"), json!("x".repeat(bytes)))).collect();
    json!({"data": 1, "headers": headers}).to_string().into_bytes()
}

/// Of a delivery that no message may have, each with the field that says so.
fn deliveries() -> [(Headers, &'static str); 3] {
    let headers =
        |at: u64, ttl_ms: u64| HeadersBuilder::default().deliver_at(TimestampMs(at)).ttl_ms(ttl_ms).finish();
    [
        (headers(9_000_000_000_000_000, 1), "deliver_at"),
        (headers(0, 0), "ttl_ms"),
        (headers(0, INTEGER_MAX + 1), "ttl_ms"),
    ]
}

#[test]
fn a_refused_publish_does_not_create_its_topic() {
    let mut api = Api::start();
    let producer = |seq| [("Producer-Id", "p"), ("Producer-Epoch", "0"), ("Producer-Seq", seq)];
    let long_key = "k".repeat(2_000);
    for (headers, status) in [
        (&[("Confirm", "archived")][..], 409),
        (&producer("5"), 409),
        (&producer(TOO_HIGH), 400),
        (&[("If-Match", "\"4398046511105:0:0\"")], 410),
        (&[("If-Match", "*")], 412),
        (&[("Message-Key", &long_key)], 413),
        (&[("Message-TTL-Ms", TOO_HIGH)], 400),
        (&[("Confirm", "durable"), ("Confirm", "durable")], 400),
    ] {
        assert_eq!(api.refused(PUBLISH, headers, "v").0, status, "{headers:?}");
        assert!(!api.has_topic(), "{headers:?}");
    }
    assert_eq!(api.send(PUBLISH, &producer("5"), "v").json()["current"], json!({"expected_seq": 0}));
    for id in ["", &"p".repeat(256)] {
        let named = [("Producer-Id", id), ("Producer-Epoch", "0"), ("Producer-Seq", "0")];
        let problem = api.send(PUBLISH, &named, "v").json();
        assert_eq!(problem["detail"], "Producer-Id: has 1 to 255 bytes", "{id:?}");
    }
    let gap = batch(Some((7, 3)), &Headers::default());
    for (headers, body, status) in [
        (&[LINES][..], b"{\"data\":1,\"ttl_ms\":0}".to_vec(), 400),
        (&[LINES], line_with_headers(65, 1), 413),
        (&[LINES], line_with_headers(2, 8 << 10), 413),
        (&[LINES, ("Confirm", "archived")], b"{\"data\":1}".to_vec(), 409),
        (&[BINARY], gap.bytes().to_vec(), 409),
        (&[BINARY], batch(None, &deliveries()[0].0).bytes().to_vec(), 400),
    ] {
        assert_eq!(api.refused(BATCH, headers, body).0, status, "{headers:?}");
        assert!(!api.has_topic(), "{headers:?}");
    }
    // What a settle would publish.
    assert_eq!(api.send("PUT /v1/topics/jobs", &[], "").status, 201);
    assert_eq!(api.send("PUT /v1/subscriptions/s", &[], r#"{"mode":"queue","topics":["jobs"]}"#).status, 201);
    assert_eq!(api.send("POST /v1/topics/jobs/messages", &[], "v").status, 201);
    let pulled = api.send("POST /v1/subscriptions/s:pull", &[], r#"{"wait_ms":10000}"#).json();
    let key = &long_key;
    let settle = json!({
        "ack": [pulled["messages"][0]["lease"]], "publish": [{"topic": "t", "key": key, "data": 1}],
    });
    assert_eq!(api.refused("POST /v1/subscriptions/s:settle", &[], settle.to_string()).0, 413);
    assert!(!api.has_topic());

    // A producer begins with 0, and who is no retry of anything is taken.
    let made = api.send(PUBLISH, &producer("0"), "v");
    assert_eq!(made.status, 201, "{}", made.text());
    assert_eq!(api.send(PUBLISH, &[("If-Match", "*")], "v").status, 201);
    assert_eq!(api.end(), 2);
}

#[tokio::test]
async fn a_refused_open_does_not_create_its_topic() {
    let mut api = Api::start();
    let mut socket = welcomed(&api, "weir.v1.json").await;
    let open = Open { topic: "t".into(), confirm: vec![Level::Archived], ..Open::default() };
    socket.send(1, ClientFrame::Open(open)).await;
    let (_, ServerFrame::Err(refused)) = socket.next().await else { panic!("it was opened") };
    let problem: Value = serde_json::from_str(refused.problem.get()).unwrap();
    assert_eq!((&problem["code"], &problem["field"]), (&json!("level_unavailable"), &json!("confirm")));
    assert!(!api.has_topic());
}

async fn welcomed(api: &Api, subprotocol: &'static str) -> FrameSocket {
    let mut socket = FrameSocket::connect(&api.product.address, subprotocol).await;
    socket.send(0, ClientFrame::Hello(Hello { v: 1, ..Hello::default() })).await;
    assert!(matches!(socket.next().await, (Channel(0), ServerFrame::Welcome(_))));
    socket
}

async fn opened(socket: &mut FrameSocket, producer: Option<&str>) -> Opened {
    let producer = producer.map(|id| Producer { id: id.into(), epoch: 0 });
    socket.send(1, ClientFrame::Open(Open { topic: "t".into(), producer, ..Open::default() })).await;
    match socket.next().await.1 {
        ServerFrame::Opened(opened) => opened,
        other => panic!("{other:?}"),
    }
}

async fn rejected(socket: &mut FrameSocket) -> Reject {
    loop {
        match socket.next().await.1 {
            ServerFrame::Reject(reject) => return reject,
            ServerFrame::PubLimit(_) => {}
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn deliveries_beyond_the_limits_are_refused_in_every_form() {
    let mut api = Api::start();
    assert_eq!(api.send("PUT /v1/topics/t", &[], "").status, 201);
    let mut json = welcomed(&api, "weir.v1.json").await;
    let mut bin = welcomed(&api, "weir.v1.bin").await;
    opened(&mut json, None).await;
    opened(&mut bin, None).await;
    for (seq, (headers, field)) in (0..).zip(deliveries()) {
        let batch = batch(None, &headers);
        let refused = api.refused(BATCH, &[BINARY], batch.bytes());
        assert_eq!(refused, (400, json!(field)));
        bin.send(1, ClientFrame::PubBatch { first_seq: Seq(seq), batch }).await;
        let (deliver_at, ttl_ms) = (headers.deliver_at().map(|at| at.0), headers.ttl_ms());
        let data = RawJson::from_text("1");
        json.send(1, ClientFrame::Pub(Pub { seq, data, deliver_at, ttl_ms, ..Pub::default() })).await;
        for socket in [&mut json, &mut bin] {
            let reject = rejected(socket).await;
            let problem: Value = serde_json::from_str(reject.problem.get()).unwrap();
            assert_eq!((reject.seq, &problem["field"]), (seq, &json!(field)), "{problem}");
        }
    }
    assert_eq!(api.end(), 0);
}

/// As too large a payload is, and by name: a request whose own header section is too large never gets so far.
#[tokio::test]
async fn more_headers_than_a_message_may_have_are_too_large_in_every_form() {
    let mut api = Api::start();
    assert_eq!(api.send("PUT /v1/topics/t", &[], "").status, 201);
    for line in [line_with_headers(65, 1), line_with_headers(2, 8 << 10)] {
        assert_eq!(api.refused(BATCH, &[LINES], line), (413, json!("headers")));
    }
    let mut event = json!({"specversion": "1.0", "id": "1", "source": "/s", "type": "t"});
    for name in 0..62 {
        event[format!("x{name}")] = json!("1");
    }
    let structured = [("Content-Type", "application/cloudevents+json")];
    assert_eq!(api.refused(PUBLISH, &structured, event.to_string()), (413, json!("headers")));
    let mut socket = welcomed(&api, "weir.v1.json").await;
    opened(&mut socket, None).await;
    for (seq, count) in [(0, 65), (1, 1_000)] {
        let h = weir_protocol::ws::HeaderMap((0..count).map(|n| (format!("h{n}"), "1".into())).collect());
        let data = RawJson::from_text("1");
        socket.send(1, ClientFrame::Pub(Pub { seq, h, data, ..Pub::default() })).await;
        let reject = rejected(&mut socket).await;
        let problem: Value = serde_json::from_str(reject.problem.get()).unwrap();
        let told = (reject.seq, &problem["code"], &problem["field"], &problem["limit"]);
        assert_eq!(told, (seq, &json!("too_large"), &json!("headers"), &json!(64)));
    }
    assert_eq!(api.end(), 0);
}

#[tokio::test]
async fn a_message_that_a_socket_cannot_make_of_its_fields_is_refused_by_the_wrong_one() {
    let mut api = Api::start();
    assert_eq!(api.send("PUT /v1/topics/t", &[], "").status, 201);
    let mut socket = welcomed(&api, "weir.v1.json").await;
    opened(&mut socket, None).await;
    let none = Pub::default;
    let (data, text) = (RawJson::from_text("1"), |text: &str| Some(text.to_owned()));
    let header = weir_protocol::ws::HeaderMap(vec![(String::new(), String::new())]);
    for (seq, (wrong, field)) in (0..).zip([
        (none(), "data"),
        (Pub { data: data.clone(), b64: text(""), ..none() }, "data"),
        (Pub { data: data.clone(), ct: text("text/plain"), ..none() }, "data"),
        (Pub { data: data.clone(), ct: text("image/png"), ..none() }, "data"),
        (Pub { b64: text("?"), ..none() }, "b64"),
        (Pub { data: data.clone(), key: text("k"), key_b64: text("aw=="), ..none() }, "key"),
        (Pub { data: data.clone(), key_b64: text("?"), ..none() }, "key_b64"),
        (Pub { data, h: header, ..none() }, "h"),
    ]) {
        socket.send(1, ClientFrame::Pub(Pub { seq, ..wrong })).await;
        let reject = rejected(&mut socket).await;
        let problem: Value = serde_json::from_str(reject.problem.get()).unwrap();
        assert_eq!((reject.seq, &problem["field"]), (seq, &json!(field)), "{problem}");
    }
    assert_eq!(api.end(), 0);
}

#[tokio::test]
async fn a_content_type_that_no_header_can_tell_is_refused_in_every_form() {
    let mut api = Api::start();
    assert_eq!(api.send("PUT /v1/topics/t", &[], "").status, 201);
    let mut json = welcomed(&api, "weir.v1.json").await;
    let mut bin = welcomed(&api, "weir.v1.bin").await;
    opened(&mut json, None).await;
    opened(&mut bin, None).await;
    let url = format!("http://{}", api.product.address);
    for (seq, bad) in (0..).zip(["", "a/b\nX: y", "text/plain\r\n", "a/\u{7f}", "text/pl\u{e4}in"]) {
        let line = json!({"data_base64": "YQ==", "content_type": bad}).to_string();
        assert_eq!(api.refused(BATCH, &[LINES], line), (400, json!("content_type")), "{bad:?}");
        let event = json!({"specversion": "1.0", "id": "1", "source": "/s", "type": "t", "data": "x",
            "datacontenttype": bad});
        for (line, media, body) in [
            (PUBLISH, "application/cloudevents+json", event.to_string()),
            (BATCH, "application/cloudevents+json", event.to_string()),
            (BATCH, "application/cloudevents-batch+json", format!("[{event}]")),
        ] {
            let answer = api.send(line, &[("Content-Type", media)], body);
            assert!(answer.status == 400 && answer.text().contains("datacontenttype"), "{}", answer.text());
        }
        let batch = batch(None, &HeadersBuilder::default().content_type(bad).finish());
        assert_eq!(api.refused(BATCH, &[BINARY], batch.bytes()), (400, json!("content_type")), "{bad:?}");
        bin.send(1, ClientFrame::PubBatch { first_seq: Seq(seq), batch }).await;
        let (ct, b64) = (Some(bad.to_owned()), Some("YQ==".to_owned()));
        json.send(1, ClientFrame::Pub(Pub { seq, ct, b64, ..Pub::default() })).await;
        for (socket, field) in [(&mut json, "ct"), (&mut bin, "content_type")] {
            let reject = rejected(socket).await;
            let problem: Value = serde_json::from_str(reject.problem.get()).unwrap();
            assert_eq!((reject.seq, &problem["field"]), (seq, &json!(field)), "{problem}");
        }
        let typed = ["pub", "t", "x", "--content-type", bad, "--url", &url];
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_weir")).args(typed).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains("--content-type"), "{said}");
    }
    assert_eq!(api.end(), 0);
}

#[tokio::test]
async fn numbers_beyond_two_to_the_53_and_limits_of_nothing_are_refused_by_name_in_every_form() {
    let mut api = Api::start();
    assert_eq!(api.send("PUT /v1/topics/t", &[], "").status, 201);
    assert_eq!(api.send("PUT /v1/subscriptions/s", &[], r#"{"mode":"queue","topics":["t"]}"#).status, 201);
    let producer =
        |epoch, seq| [LINES, ("Producer-Id", "p"), ("Producer-Epoch", epoch), ("Producer-Seq", seq)];
    for too_high in [TOO_HIGH, "18446744073709551615"] {
        for (line, body) in [(PUBLISH, "v"), (BATCH, "{\"data\":1}")] {
            let refused = api.refused(line, &producer("0", too_high), body);
            assert_eq!(refused, (400, json!("producer-seq")), "{line} {too_high}");
            let refused = api.refused(line, &producer(too_high, "0"), body);
            assert_eq!(refused, (400, json!("producer-epoch")), "{line} {too_high}");
        }
        assert_eq!(
            api.refused(PUBLISH, &[("Message-TTL-Ms", too_high)], "v"),
            (400, json!("message-ttl-ms"))
        );
        for (path, field) in [
            (format!("topics/t/messages?from={too_high}"), "from"),
            (format!("topics/t/messages?from=tail:{too_high}"), "from"),
            (format!("topics/t/messages?from=ts:{too_high}"), "from"),
            (format!("topics/t/messages?until={too_high}"), "until"),
            (format!("topics/t/messages/0/{too_high}"), "offset"),
            (format!("subscriptions/s/explain?id=0:{too_high}"), "id"),
            (format!("subscriptions/s/state?as_of=ts:{too_high}"), "as_of"),
        ] {
            assert_eq!(api.refused(&format!("GET /v1/{path}"), &[], ""), (400, json!(field)), "{path}");
        }
        let to = json!({"to": too_high}).to_string();
        assert_eq!(api.refused("POST /v1/subscriptions/s:seek", &[], to), (400, json!("to")));
        let trim = json!({"before": too_high, "partition": 0}).to_string();
        assert_eq!(api.refused("POST /v1/topics/t:trim", &[], trim), (400, json!("before")));
        let line = format!("{{\"data\":1,\"ttl_ms\":{too_high}}}");
        assert_eq!(api.refused(BATCH, &[LINES], line), (400, json!("ttl_ms")));
    }
    for wrong in [TOO_HIGH, "9223372036854775808", "18446744073709551615", "0"] {
        for (field, config) in [
            ("ttl_ms", format!("{{\"ttl_ms\":{wrong}}}")),
            ("dedupe.window_ms", format!("{{\"dedupe\":{{\"window_ms\":{wrong}}}}}")),
            ("retention.age_ms", format!("{{\"retention\":{{\"age_ms\":{wrong}}}}}")),
            ("retention.bytes", format!("{{\"retention\":{{\"bytes\":{wrong}}}}}")),
            ("retention.records", format!("{{\"retention\":{{\"records\":{wrong}}}}}")),
        ] {
            assert_eq!(api.refused("PATCH /v1/topics/t", &[], &config), (400, json!(field)), "{config}");
            assert_eq!(api.refused("PUT /v1/topics/u", &[], &config), (400, json!(field)), "{config}");
        }
    }
    let two = "{\"data\":1}\n{\"data\":2}";
    let refused = api.refused(BATCH, &producer("0", "9007199254740991"), two);
    assert_eq!(refused, (400, json!("seq")), "the second has no number");
    let own = batch(Some((7, INTEGER_MAX + 1)), &Headers::default());
    assert_eq!(api.refused(BATCH, &[BINARY], own.bytes()), (400, json!("seq")));

    for subprotocol in ["weir.v1.json", "weir.v1.bin"] {
        let mut socket = welcomed(&api, subprotocol).await;
        opened(&mut socket, Some("q")).await;
        for seq in [INTEGER_MAX + 1, u64::MAX] {
            let frame = match subprotocol {
                "weir.v1.bin" => {
                    ClientFrame::PubBatch { first_seq: Seq(seq), batch: batch(None, &Headers::default()) }
                }
                _ => ClientFrame::Pub(Pub { seq, data: RawJson::from_text("1"), ..Pub::default() }),
            };
            socket.send(1, frame).await;
            let reject = rejected(&mut socket).await;
            let problem: Value = serde_json::from_str(reject.problem.get()).unwrap();
            assert_eq!((&problem["status"], &problem["field"]), (&json!(400), &json!("seq")), "{problem}");
        }
    }
    assert_eq!(api.end(), 0);
}

#[test]
fn what_has_one_value_is_refused_twice_by_its_name_and_lists_are_read_as_one() {
    let mut api = Api::start();
    assert_eq!(api.send("PUT /v1/topics/t", &[], "").status, 201);
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    for (name, value) in [
        ("content-type", "text/plain"),
        ("host", "localhost"),
        ("message-key", "k"),
        ("message-ttl-ms", "1000"),
        ("message-header-x", "1"),
        ("deliver-at", "2020-01-01T00:00:00Z"),
        ("deliver-delay-ms", "1"),
        ("traceparent", trace),
        ("ce-id", "1"),
        ("producer-id", "p"),
        ("idempotency-key", "\"k\""),
        ("confirm", "quorum"),
    ] {
        let twice = [(name, value), (name, value)];
        // The client says Host itself.
        let headers = if name == "host" { &twice[..1] } else { &twice };
        assert_eq!(api.refused(PUBLISH, headers, "v"), (400, json!(name)), "{name}");
    }
    for name in ["message-key", "ce-partitionkey"] {
        let long = "k".repeat(1_025);
        assert_eq!(api.refused(PUBLISH, &[(name, &long)], "v"), (413, json!(name)));
    }
    for (media, body, field) in [
        ("application/x-ndjson", r#"{"data":1,"headers":{"x":"1","x":"2"}}"#, "x"),
        ("application/x-ndjson", r#"{"data":1,"data":2}"#, "data"),
        (
            "application/cloudevents+json",
            r#"{"specversion":"1.0","id":"1","id":"2","source":"/s","type":"t"}"#,
            "id",
        ),
    ] {
        let refused = api.refused(BATCH, &[("Content-Type", media)], body);
        assert_eq!(refused, (400, json!(field)), "{body}");
    }
    assert_eq!(api.end(), 0);

    let digest = "sha-256=:LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ=:";
    let longer =
        "sha-512=:m3HSJL1i83hdltRq0+o9czGb+8KJDKra4t/3JRlnPKcjI8PZm6XBHXx6zG4UuMXaDEZjR1wuXDre9G9zvN7AQw==:";
    let lists = [
        ("Prefer", "respond-async, wait=5"),
        ("Prefer", "return=minimal"),
        ("Content-Digest", longer),
        ("Content-Digest", digest),
        ("tracestate", "a=1"),
        ("tracestate", "b=2"),
    ];
    assert_eq!(api.send(PUBLISH, &lists, "hello").status, 204);
    let stored = api.send("GET /v1/topics/t/messages/0/0", &[], "");
    assert_eq!(stored.header("tracestate"), Some("a=1,b=2"));
    assert_eq!(stored.header("content-digest"), Some(format!("{longer}, {digest}").as_str()));
    let accept = [("Accept", "text/html"), ("Accept", "application/json;q=0, */*")];
    let page = api.send("GET /v1/topics/t/messages", &accept, "");
    assert_eq!((page.status, page.header("content-type")), (200, Some("application/x-ndjson")));
    let none = api.send("GET /v1/topics/t/messages", &[("Accept", "application/json;q=0")], "");
    assert_eq!(none.status, 406, "{}", none.text());
}

/// What serde derives for an object takes an array as well, field by field.
#[tokio::test]
async fn an_array_is_no_object_wherever_one_is_expected() {
    let mut api = Api::start();
    assert_eq!(api.send("PUT /v1/topics/t", &[], "{}").status, 201);
    assert_eq!(api.send("PUT /v1/subscriptions/work", &[], r#"{"topics":["t"]}"#).status, 201);
    let version = |api: &mut Api| api.send("GET /v1/topics/t", &[], "").json()["version"].clone();
    let before = version(&mut api);
    for (line, body) in [
        ("PUT /v1/ns/shop", "[]"),
        ("PUT /v1/ns/shop", "[true]"),
        ("PATCH /v1/ns/default", "[]"),
        ("PUT /v1/topics/u", "[]"),
        ("PATCH /v1/topics/t", "[]"),
        ("PATCH /v1/topics/t", "[1]"),
        ("PATCH /v1/topics/t", r#"{"retention":[1,2]}"#),
        ("PATCH /v1/topics/t", r#"{"dedupe":[5]}"#),
        ("POST /v1/topics/t:trim", r#"[null,"end"]"#),
        ("PATCH /v1/subscriptions/work", "[]"),
        ("POST /v1/subscriptions/work:fork", r#"["other"]"#),
        ("POST /v1/subscriptions/work:fork", r#"{"name":"other","config":[]}"#),
        ("POST /v1/subscriptions/work:pull", "[1]"),
        ("POST /v1/subscriptions/work:settle", "[[]]"),
        ("POST /v1/subscriptions/work:settle", r#"{"nack":[["l_x"]]}"#),
        ("POST /v1/subscriptions/work:seek", r#"["earliest"]"#),
        ("POST /v1/subscriptions/work:purge", "[]"),
        ("POST /v1/subscriptions/work:redrive", "[]"),
    ] {
        let answer = api.send(line, &[], body);
        let problem = answer.json();
        assert_eq!((answer.status, &problem["code"]), (400, &json!("malformed")), "{line} {body}: {problem}");
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains("invalid type: array, expected an object"), "{line} {body}: {detail}");
    }
    let line = api.send(BATCH, &[LINES], r#"["k",null,null,1]"#);
    assert_eq!((line.status, api.end()), (400, 0), "{}", line.text());
    for missing in ["GET /v1/ns/shop", "GET /v1/topics/u", "GET /v1/subscriptions/other"] {
        assert_eq!(api.send(missing, &[], "").status, 404, "{missing}");
    }
    assert_eq!(version(&mut api), before);
    let mut socket = FrameSocket::connect(&api.product.address, "weir.v1.json").await;
    socket.send(0, ClientFrame::Hello(Hello { v: 1, ..Hello::default() })).await;
    let (_, ServerFrame::Welcome(_)) = socket.next().await else { panic!("no welcome") };
    let sub = r#"{"t":"sub","ch":1,"topic":"t","limit":[1,2]}"#;
    futures_util::SinkExt::send(&mut socket.socket, Message::Text(sub.into())).await.unwrap();
    let (_, ServerFrame::Err(refused)) = socket.next().await else { panic!("it is taken") };
    assert!(refused.problem.get().contains("array, expected an object"), "{}", refused.problem.get());
}

/// Every operation that takes JSON, with every field of it as what it is not.
#[test]
fn what_is_wrong_with_json_is_said_in_its_own_words() {
    let mut api = Api::start();
    assert_eq!(api.send("PUT /v1/topics/t", &[], "{}").status, 201);
    assert_eq!(api.send("PUT /v1/subscriptions/work", &[], r#"{"topics":["t"]}"#).status, 201);
    let document = api.send("GET /openapi.json", &[], "").json();
    let fields_of = |operation: &Value| {
        let schema = &operation["requestBody"]["content"]["application/json"]["schema"]["$ref"];
        let name = schema.as_str()?.rsplit('/').next()?;
        Some(document["components"]["schemas"][name]["properties"].as_object()?.keys().cloned().collect())
    };
    let mut told = 0;
    for (path, operations) in document["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            let Some(fields): Option<Vec<String>> = fields_of(operation) else { continue };
            let path =
                path.replace("{ns}", "default").replace("{topic}", "t").replace("{subscription}", "work");
            let line = format!("{} {path}", method.to_uppercase());
            for wrong in
                ["7", "-1", "1.5", "5000000000", "\"x\"", "[]", "[7]", "{}", "{\"x\":[]}", "true", "{"]
            {
                let bodies = fields.iter().map(|field| format!("{{\"{field}\":{wrong}}}"));
                for body in bodies.chain([wrong.to_owned()]) {
                    let answer = api.send(&line, &[], &body);
                    assert!(answer.status < 500, "{line} {body}: {}", answer.text());
                    let text = answer.text();
                    let of_rust = [
                        "struct",
                        "enum",
                        "variant",
                        "sequence",
                        "tuple",
                        "::",
                        "expected u",
                        "expected i",
                        "a map",
                    ];
                    let named = of_rust.iter().find(|word| text.contains(**word));
                    assert_eq!(named, None, "{line} {body}: {text}");
                    told += usize::from(text.contains("expected "));
                }
            }
        }
    }
    assert!(told > 200, "{told} answers say what is expected");
}

#[test]
fn a_condition_holds_wherever_it_is_given() {
    let mut api = Api::start();
    let shop = "/v1/ns/shop";
    let made = api.send(&format!("PUT {shop}"), &[], "{}");
    let first = made.header("etag").unwrap().to_owned();
    let changed = api.send(&format!("PATCH {shop}"), &[("If-Match", "*")], r#"{"auto_create":true}"#);
    assert_eq!(changed.status, 200, "{}", changed.text());
    let now = changed.header("etag").unwrap().to_owned();
    for stale in [first.as_str(), "\"7:2\""] {
        assert_eq!(api.refused(&format!("DELETE {shop}"), &[("If-Match", stale)], "").0, 412, "{stale}");
        assert_eq!(api.refused(&format!("PUT {shop}"), &[("If-Match", stale)], "{}").0, 412, "{stale}");
    }
    let replaced = api.send(&format!("PUT {shop}"), &[("If-Match", "*")], r#"{"auto_create":false}"#);
    assert_eq!((replaced.status, &replaced.json()["auto_create"]), (200, &json!(false)));
    assert_eq!(api.refused(&format!("DELETE {shop}"), &[("If-Match", &now)], "").0, 412);
    let now = replaced.header("etag").unwrap().to_owned();
    assert_eq!(api.send(&format!("DELETE {shop}"), &[("If-Match", &now)], "").status, 204);
    let any = [("If-Match", "*")];
    assert_eq!(api.refused(&format!("DELETE {shop}"), &any, "").0, 404, "there is none");
    assert_eq!(api.refused(&format!("PUT {shop}"), &any, "{}").0, 404);

    assert_eq!(api.refused("PUT /v1/topics/t", &any, "{}").0, 404, "it does not create");
    assert_eq!(api.send("PUT /v1/topics/t", &[], "{}").status, 201);
    let keeps = r#"{"retention":{"records":9}}"#;
    for (line, body, status) in [
        ("PUT /v1/topics/t", keeps, 200),
        ("PATCH /v1/topics/t", r#"{"retention":{"records":8}}"#, 200),
        (PUBLISH, "v", 201),
        ("POST /v1/topics/t:trim", r#"{"before":"end"}"#, 200),
        ("DELETE /v1/topics/t", "", 204),
    ] {
        let done = api.send(line, &any, body);
        assert_eq!(done.status, status, "{line}: {}", done.text());
    }
}

#[tokio::test]
async fn a_problem_on_a_websocket_names_the_field_and_the_connection() {
    let api = Api::start();
    for (line, field) in [
        (r#"{"t":"sub","ch":1,"topic":"t","form":"latest"}"#, json!("form")),
        (r#"{"t":"sub","ch":1,"topic":"t","topic":"u"}"#, json!("topic")),
        (r#"{"t":"open","ch":1,"topic":"a/b"}"#, json!("topic")),
    ] {
        let mut socket = FrameSocket::connect(&api.product.address, "weir.v1.json").await;
        socket.send(0, ClientFrame::Hello(Hello { v: 1, ..Hello::default() })).await;
        let (_, ServerFrame::Welcome(welcome)) = socket.next().await else { panic!("no welcome") };
        futures_util::SinkExt::send(&mut socket.socket, Message::Text(line.into())).await.unwrap();
        let (_, ServerFrame::Err(refused)) = socket.next().await else { panic!("{line} is taken") };
        let problem: Value = serde_json::from_str(refused.problem.get()).unwrap();
        assert_eq!(problem["field"], field, "{problem}");
        assert_eq!(problem["request_id"], json!(welcome.sid), "{problem}");
    }
}
