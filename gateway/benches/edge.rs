//! What the text forms of HTTP and WebSocket cost per message: `cargo bench -p weir-gateway --bench edge`.
//!
//! * `lines`: the body of a publish, a JSON object per line.
//! * `page`: what was read, as JSON and as lines; `JSON` payloads are embedded, of `bytes` the base64 is.
//! * `websocket`: deliveries as messages in either form, and a message on the wire, masked as a client's are.

#![expect(clippy::unwrap_used, reason = "a bench stops on any error")]

use std::hint::black_box;
use std::io::{Cursor, Read, Write};

use bytes::Bytes;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocket};
use tokio_tungstenite::tungstenite::{self, Message};
use weir_gateway::measured;
use weir_gateway::service::read::RecordSlice;
use weir_protocol::batch::{Batch, BatchBuilder, Compression, HeadersBuilder, RecordParts};
use weir_protocol::ids::{Offset, PartitionId, Term, TimestampMs};

const MESSAGES: u32 = 100;

/// A JSON object of about a KiB: 20 fields of text and numbers.
fn object(number: u32) -> String {
    let field =
        |at: u32| format!("\"field{at:02}\":\"value {number} and {at}, some more text\",\"n{at}\":{at}.5");
    format!("{{{}}}", (0..17).map(field).collect::<Vec<_>>().join(","))
}

/// Bytes that are no text.
fn noise(number: u32) -> Vec<u8> {
    (0..1_024_u32)
        .map(|at| (at.wrapping_mul(2_654_435_761).wrapping_add(number) >> 24).to_le_bytes()[0])
        .collect()
}

fn slices(content_type: &str, value: impl Fn(u32) -> Vec<u8>) -> Vec<RecordSlice> {
    let mut headers = HeadersBuilder::default();
    headers.content_type(content_type);
    headers.user("source", b"bench").unwrap();
    let headers = headers.finish();
    let mut builder = BatchBuilder::anonymous();
    for number in 0..MESSAGES {
        builder.push(RecordParts { key: Some(b"key"), headers: &headers, value: &value(number) }).unwrap();
    }
    let placed = builder.build(Compression::None).unwrap().placed(Offset(0), TimestampMs(1), PartitionId(0));
    let batch = Batch::parse(placed.concat().into()).unwrap();
    let committed_end = Offset(u64::from(MESSAGES));
    vec![RecordSlice {
        partition: PartitionId(0),
        batch,
        first: Offset(0),
        take: MESSAGES,
        committed_end,
        term: Term(1),
    }]
}

fn json_slices() -> Vec<RecordSlice> {
    slices("application/json", |number| object(number).into_bytes())
}

fn http(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("edge");
    group.throughput(Throughput::Elements(u64::from(MESSAGES)));
    let line = |number| {
        format!("{{\"key\":\"key\",\"headers\":{{\"source\":\"bench\"}},\"data\":{}}}\n", object(number))
    };
    let body = Bytes::from((0..MESSAGES).map(line).collect::<String>());
    group.bench_function("lines", |bench| bench.iter(|| measured::read_lines(black_box(&body)).unwrap()));
    let kinds = [("JSON", json_slices()), ("bytes", slices("application/octet-stream", noise))];
    for (kind, slices) in kinds {
        group.bench_function(format!("page of {kind} as JSON"), |bench| {
            bench.iter(|| measured::page_as_json(black_box(&slices)).unwrap());
        });
        group.bench_function(format!("page of {kind} as lines"), |bench| {
            bench.iter(|| measured::page_as_lines(black_box(&slices)).unwrap());
        });
    }
    group.finish();
}

/// What was sent, or is to be read again and again.
struct Wire(Cursor<Vec<u8>>);

impl Read for Wire {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        self.0.read(into)
    }
}

impl Write for Wire {
    fn write(&mut self, from: &[u8]) -> std::io::Result<usize> {
        self.0.write(from)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn websocket(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("websocket");
    group.throughput(Throughput::Elements(u64::from(MESSAGES)));
    let slices = json_slices();
    for (form, is_binary) in [("JSON", false), ("binary", true)] {
        group.bench_function(format!("deliveries, {form}"), |bench| {
            bench.iter(|| measured::deliveries(black_box(slices.clone()), is_binary));
        });
    }
    let message = Bytes::from(vec![7; MESSAGES as usize * 1_024]);
    let send = |role, wire: Vec<u8>| {
        let mut socket = WebSocket::from_raw_socket(Wire(Cursor::new(wire)), role, None);
        socket.send(Message::Binary(message.clone())).unwrap();
        socket.into_inner().0.into_inner()
    };
    group.bench_function("wire, sent by the server", |bench| {
        let mut wire = Vec::new();
        bench.iter(|| wire = send(Role::Server, std::mem::take(&mut wire)));
    });
    let masked = send(Role::Client, Vec::new());
    group.bench_function("wire, read by the server", |bench| {
        bench.iter(|| {
            let wire = Wire(Cursor::new(black_box(&masked).clone()));
            let read = WebSocket::from_raw_socket(wire, Role::Server, None).read();
            assert!(matches!(read, Ok(tungstenite::Message::Binary(_))));
        });
    });
    group.finish();
}

criterion_group!(benches, http, websocket);
criterion_main!(benches);
