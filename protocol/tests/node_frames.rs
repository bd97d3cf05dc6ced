//! Node frames are pinned: another build must understand what this one writes, and the other way round.
#![expect(clippy::disallowed_methods, reason = "golden files and seeds are read in tests")]
#![expect(clippy::unwrap_used, reason = "a test stops at what it did not expect")]

use bytes::Bytes;
use prost::Message;
use weir_protocol::error::ErrorCode;
use weir_protocol::frame::{FLAG_END, FLAG_REFUSED, FrameHead, FrameKind, HEADER_BYTES};
use weir_protocol::rpc::{
    Credit, Hello, Level, Method, Packet, Placed, PublishAnswer, PublishItem, PublishRequest, PublishResult,
    Refusal, Stages, U128, encode_packet,
};

fn folder() -> String {
    format!("{}/tests/golden", env!("CARGO_MANIFEST_DIR"))
}

fn batch() -> Bytes {
    std::fs::read(format!("{}/batch-none.bin", folder())).unwrap().into()
}

fn head(kind: FrameKind, flags: u8, method: u16) -> FrameHead {
    FrameHead { kind, flags, method, shard: if method == 0 { 0 } else { 3 }, call: 77 }
}

fn publish() -> PublishRequest {
    let item = PublishItem {
        incarnation: 7,
        config_version: 2,
        partition: 4,
        batch_bytes: u32::try_from(batch().len()).unwrap(),
        expected_end: Some(76_531),
        idempotency: None,
    };
    PublishRequest { levels: Level::Memory.bit() | Level::Quorum.bit(), items: vec![item] }
}

fn answer() -> PublishAnswer {
    let placed = Placed {
        base_offset: 76_531,
        count: 3,
        ts_ms: 1_787_654_321_123,
        term: 4,
        is_final: true,
        duplicate: false,
        last_seq: None,
    };
    let result = PublishResult { placed: Some(placed), refused: None };
    let stages = Stages {
        queue_us: 380,
        write_us: 40,
        fsync_us: 550,
        quorum_us: 0,
        node_us: 990,
        ..Default::default()
    };
    PublishAnswer { level: Level::Quorum as i32, results: vec![result], stages: Some(stages) }
}

fn frames() -> Vec<(FrameHead, Vec<Bytes>)> {
    let hello = Hello { version: 1, cluster_id: Some(U128 { high: 1, low: 2 }), ..Default::default() };
    let refusal =
        Refusal { tail: Some(9), ..Refusal::new(ErrorCode::TailMismatch, "end is 9, expected 76531") };
    let message = |bytes: Vec<u8>| vec![Bytes::from(bytes)];
    vec![
        (FrameHead { call: 0, ..head(FrameKind::Hello, 0, 0) }, message(hello.encode_to_vec())),
        (head(FrameKind::Request, FLAG_END, Method::Publish as u16), encode_packet(&publish(), [batch()])),
        (head(FrameKind::Answer, FLAG_END, 0), message(answer().encode_to_vec())),
        (head(FrameKind::Answer, FLAG_END | FLAG_REFUSED, 0), message(refusal.encode_to_vec())),
        (head(FrameKind::Credit, 0, 0), message(Credit { records: 500, bytes: 1 << 20 }.encode_to_vec())),
        (head(FrameKind::Ping, 0, 0), vec![]),
    ]
}

#[test]
fn the_layout_is_pinned_by_a_golden_file() {
    let encode = |(head, body): (FrameHead, Vec<Bytes>)| [&head.encode(&body)[..], &body.concat()].concat();
    let bytes: Vec<u8> = frames().into_iter().flat_map(encode).collect();
    let path = format!("{}/node-frames.bin", folder());
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &bytes).unwrap();
    }
    assert!(std::fs::read(&path).unwrap() == bytes, "{path} differs: other builds speak this layout");
}

#[test]
fn the_golden_file_reads_back() {
    let mut bytes = Bytes::from(std::fs::read(format!("{}/node-frames.bin", folder())).unwrap());
    for (head, body) in frames() {
        let read = FrameHead::decode(bytes.first_chunk::<HEADER_BYTES>().unwrap()).unwrap();
        let mut frame = bytes.split_to(HEADER_BYTES + read.body_bytes);
        let stored = frame.split_off(HEADER_BYTES);
        read.verify(&stored).unwrap();
        assert_eq!((read.head, &stored[..]), (head, &body.concat()[..]));
        if head.kind == FrameKind::Request {
            let packet = Packet::<PublishRequest>::decode(stored).unwrap();
            assert_eq!((packet.message, packet.payload.into_bytes()), (publish(), batch()));
        }
    }
    assert!(bytes.is_empty());
}
