//! A reader that takes nothing costs a bounded number of bytes, and gets everything once it does.
#![expect(dead_code, reason = "each test uses a part of the product's client")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod product;

use product::Connection;
use weir_gateway::{ClientLimits, Gateway, GatewayConfig};
use weir_storage_node::{Node, NodeConfig, Surroundings};

const MESSAGES: u64 = 400;
const MESSAGE_BYTES: usize = 10_000;
/// A few messages.
const EVENTS_BYTES_MAX: u64 = 32 << 10;

/// Bytes that storage was allowed to send and that were not handed on yet.
fn granted(registry: &prometheus::Registry) -> u64 {
    let families = registry.gather();
    let family = families.iter().find(|family| family.name() == "weir_gateway_read_credit_bytes").unwrap();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of bytes")]
    let bytes = family.get_metric()[0].get_gauge().get_value() as u64;
    bytes
}

#[test]
fn an_event_stream_is_sent_ahead_no_more_than_its_limit_and_nothing_is_left_out() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let registry = prometheus::Registry::new();
    let node = NodeConfig { data_dir: dir.path().join("data"), data_shards: 1, ..NodeConfig::default() };
    let node = runtime.block_on(Node::start_in(node, Surroundings::default())).unwrap();
    let limits = ClientLimits { events_bytes_max: EVENTS_BYTES_MAX, ..ClientLimits::default() };
    let gateway = GatewayConfig {
        listen: "127.0.0.1:0".parse().unwrap(),
        storage: node.local_addr().to_string(),
        limits,
        ..GatewayConfig::default()
    };
    let gateway = runtime.block_on(Gateway::start(gateway, registry.clone())).unwrap();
    let address = gateway.local_addr().to_string();
    let mut http = Connection::open(&address).unwrap();
    assert_eq!(http.request("PUT /v1/topics/t", &[], b"{}").unwrap().status, 201);
    let line = format!("{{\"data\":\"{}\"}}\n", "x".repeat(MESSAGE_BYTES));
    let lines = [("Content-Type", "application/x-ndjson")];
    let all = line.repeat(usize::try_from(MESSAGES).unwrap());
    assert_eq!(http.request("POST /v1/topics/t/messages:batch", &lines, all.as_bytes()).unwrap().status, 200);

    let mut events = Connection::open(&address).unwrap();
    events.send("GET /v1/topics/t/messages", &[("Accept", "text/event-stream")], b"").unwrap();
    assert_eq!(events.head().unwrap().0, 200);
    let (mut next, mut most) = (0, 0);
    while next < MESSAGES {
        most = most.max(granted(&registry));
        let line = events.line().unwrap();
        if let Some(data) = line.strip_prefix("data: {\"topic\"") {
            let message: serde_json::Value = serde_json::from_str(&format!("{{\"topic\"{data}")).unwrap();
            if let Some(offset) = message["offset"].as_u64() {
                assert_eq!(offset, next, "each once, in order");
                next += 1;
            }
        }
    }
    assert!(most > 0, "nothing was measured");
    assert!(most <= EVENTS_BYTES_MAX, "{most} bytes were sent ahead");
}
