//! What is refused has no effect and names what was wrong, whichever way it came: through the real product.
#![expect(dead_code, reason = "each test uses a part of the product's client")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod frames;
mod product;

use frames::FrameSocket;
use product::{Answer, Connection, Product};
use serde_json::{Value, json};
use weir_protocol::batch::{Batch, BatchBuilder, Compression, Headers, RecordParts};
use weir_protocol::ids::{Epoch, ProducerKey, Seq};
use weir_protocol::rpc::Level;
use weir_protocol::ws::{Channel, ClientFrame, Hello, Open, ServerFrame};

const PUBLISH: &str = "POST /v1/topics/t/messages";
const BATCH: &str = "POST /v1/topics/t/messages:batch";
const LINES: (&str, &str) = ("Content-Type", "application/x-ndjson");
const BINARY: (&str, &str) = ("Content-Type", "application/vnd.weir.batch");

struct Api {
    _dir: tempfile::TempDir,
    product: Product,
    http: Connection,
}

impl Api {
    fn start() -> Self {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let product = Product::start(dir.path());
        let http = Connection::open(&product.address).unwrap();
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
}

fn batch(producer: Option<(u128, u64)>, headers: &Headers) -> Batch {
    let mut builder = match producer {
        Some((key, seq)) => BatchBuilder::new(ProducerKey(key), Epoch(0), Seq(seq)),
        None => BatchBuilder::anonymous(),
    };
    builder.push(RecordParts { key: None, headers, value: b"v" }).unwrap();
    builder.build(Compression::None).unwrap()
}

#[test]
fn a_refused_publish_does_not_create_its_topic() {
    let mut api = Api::start();
    let producer = |seq| [("Producer-Id", "p"), ("Producer-Epoch", "0"), ("Producer-Seq", seq)];
    let long_key = "k".repeat(2_000);
    for (headers, status) in [
        (&[("Confirm", "archived")][..], 409),
        (&producer("5"), 409),
        (&[("If-Match", "\"4398046511105:0:0\"")], 410),
        (&[("Message-Key", &long_key)], 413),
        (&[("Confirm", "durable"), ("Confirm", "durable")], 400),
    ] {
        assert_eq!(api.refused(PUBLISH, headers, "v").0, status, "{headers:?}");
        assert!(!api.has_topic(), "{headers:?}");
    }
    assert_eq!(api.send(PUBLISH, &producer("5"), "v").json()["current"], json!({"expected_seq": 0}));
    let gap = batch(Some((7, 3)), &Headers::default());
    for (headers, body, status) in [
        (&[LINES][..], b"{\"data\":1,\"ttl_ms\":0}".to_vec(), 400),
        (&[LINES, ("Confirm", "archived")], b"{\"data\":1}".to_vec(), 409),
        (&[BINARY], gap.bytes().to_vec(), 409),
    ] {
        assert_eq!(api.refused(BATCH, headers, body).0, status, "{headers:?}");
        assert!(!api.has_topic(), "{headers:?}");
    }
    // What a settle would publish.
    assert_eq!(api.send("PUT /v1/topics/work", &[], "").status, 201);
    assert_eq!(api.send("PUT /v1/subscriptions/s", &[], r#"{"mode":"queue","topics":["work"]}"#).status, 201);
    assert_eq!(api.send("POST /v1/topics/work/messages", &[], "v").status, 201);
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
}

#[tokio::test]
async fn a_refused_open_does_not_create_its_topic() {
    let mut api = Api::start();
    let mut socket = welcomed(&api, "weir.v1.json").await;
    let open = Open { topic: "t".into(), confirm: vec![Level::Archived], ..Open::default() };
    socket.send(1, ClientFrame::Open(open)).await;
    let (_, ServerFrame::Err(refused)) = socket.next().await else { panic!("it was opened") };
    assert!(refused.problem.get().contains("\"level_unavailable\""), "{refused:?}");
    assert!(!api.has_topic());
}

async fn welcomed(api: &Api, subprotocol: &'static str) -> FrameSocket {
    let mut socket = FrameSocket::connect(&api.product.address, subprotocol).await;
    socket.send(0, ClientFrame::Hello(Hello { v: 1, ..Hello::default() })).await;
    assert!(matches!(socket.next().await, (Channel(0), ServerFrame::Welcome(_))));
    socket
}
