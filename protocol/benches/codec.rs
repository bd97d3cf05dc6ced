//! What a message costs before any network or disk: batches, node frames, and the frames and JSON of the WebSocket.
//! `cargo bench -p weir-protocol`. Throughput is in messages of 1 KiB that do not compress.

#![expect(clippy::unwrap_used, reason = "a bench stops on any error")]

use std::hint::black_box;

use bytes::{Bytes, BytesMut};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use weir_protocol::batch::{Batch, BatchBuilder, Compression, Headers, RecordParts};
use weir_protocol::ids::{Offset, PartitionId, Seq, TimestampMs};
use weir_protocol::rpc::Level;
use weir_protocol::ws::{
    Base, Channel, ClientFrame, Confirm, Deliveries, Delivery, Msg, Msgs, Pub, RawJson, ServerFrame, binary,
    json,
};

const MESSAGES: u32 = 64;
const CH: Channel = Channel(1);

/// Bytes that do not compress.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[0]
    };
    std::iter::repeat_with(next).take(len).collect()
}

fn batch(value: &[u8]) -> Batch {
    let mut builder = BatchBuilder::anonymous();
    for _ in 0..MESSAGES {
        builder.push(RecordParts { key: None, headers: &Headers::default(), value }).unwrap();
    }
    builder.build(Compression::None).unwrap()
}

/// The batch as a partition keeps it.
fn stored(value: &[u8]) -> [Bytes; 2] {
    batch(value).placed(Offset(0), TimestampMs(1), PartitionId(0))
}

fn deliveries(value: &[u8]) -> ServerFrame {
    let slices = vec![Delivery { first: Offset(0), take: MESSAGES, batch: stored(value) }];
    ServerFrame::Deliveries(Deliveries { n: 1, staged: None, slices, leases: Vec::new(), topic: None })
}

fn batches(criterion: &mut Criterion) {
    let value = noise(1_024);
    let mut group = criterion.benchmark_group("batch");
    group.throughput(Throughput::Elements(u64::from(MESSAGES)));
    group.bench_function("build", |bench| bench.iter(|| batch(black_box(&value))));
    let bytes = batch(&value).bytes().clone();
    group.bench_function("parse and verify", |bench| {
        bench.iter(|| Batch::parse(black_box(bytes.clone())).unwrap().validate_records().unwrap());
    });
    let delivery = Delivery { first: Offset(0), take: MESSAGES, batch: stored(&value) };
    group.bench_function("read records", |bench| {
        bench.iter(|| delivery.records().unwrap().map(|record| record.unwrap().size).sum::<usize>());
    });
    group.finish();
}

fn binary_frames(criterion: &mut Criterion) {
    let value = noise(1_024);
    let mut group = criterion.benchmark_group("websocket, binary");
    group.throughput(Throughput::Elements(u64::from(MESSAGES)));
    let publish = ClientFrame::PubBatch { first_seq: Seq(0), batch: batch(&value) };
    let mut out = BytesMut::new();
    group.bench_function("put a batch to publish", |bench| {
        bench.iter(|| {
            out.clear();
            binary::put_client_frame(&mut out, CH, black_box(&publish));
        });
    });
    let message = out.clone().freeze();
    group.bench_function("take a batch to publish", |bench| {
        bench.iter(|| binary::take_client_frame(&mut black_box(message.clone())).unwrap());
    });
    let frame = deliveries(&value);
    let mut out = BytesMut::new();
    group.bench_function("put deliveries", |bench| {
        bench.iter(|| {
            out.clear();
            binary::put_server_frame(&mut out, CH, black_box(&frame));
        });
    });
    let message = out.clone().freeze();
    group.bench_function("take deliveries", |bench| {
        bench.iter(|| binary::take_server_frame(&mut black_box(message.clone())).unwrap());
    });
    group.finish();
}

fn json_frames(criterion: &mut Criterion) {
    let value = noise(1_024);
    let mut group = criterion.benchmark_group("websocket, JSON");
    group.throughput(Throughput::Elements(u64::from(MESSAGES)));
    let delivery = Delivery { first: Offset(0), take: MESSAGES, batch: stored(&value) };
    let records: Vec<_> = delivery.records().unwrap().map(Result::unwrap).collect();
    let view = || {
        let numbered = (1..).zip(&records);
        Msgs { msgs: numbered.map(|(n, record)| Msg::of(record, n, PartitionId(0))).collect() }
    };
    let mut out = String::new();
    group.bench_function("records to text", |bench| {
        bench.iter(|| {
            out.clear();
            json::put_server_frame(&mut out, CH, &ServerFrame::Msgs(view()));
        });
    });
    group.bench_function("text to records", |bench| {
        bench.iter(|| {
            for frame in json::server_frames(black_box(&out)) {
                let (_, ServerFrame::Msgs(msgs)) = frame.unwrap() else { panic!("records were put") };
                msgs.msgs.iter().for_each(|msg| drop(black_box(msg.value().unwrap())));
            }
        });
    });
    group.finish();
}

/// What a publisher and its gateway say to each other around the records: messages as JSON, and confirms in both forms.
fn publishing_frames(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("websocket, publishing");
    group.throughput(Throughput::Elements(u64::from(MESSAGES)));
    let data = format!("{{\"text\":\"{}\"}}", "some text, ".repeat(90));
    let publish = |seq| {
        let data = RawJson::from_text(&data);
        ClientFrame::Pub(Pub { seq, data, ..Pub::default() })
    };
    let mut text = String::new();
    (0..u64::from(MESSAGES)).for_each(|seq| json::put_client_frame(&mut text, CH, &publish(seq)));
    group.bench_function("text to messages", |bench| {
        bench.iter(|| json::client_frames(black_box(&text)).map(|frame| drop(frame.unwrap())).count());
    });
    let base = vec![Base { seq: 0, n: MESSAGES, p: 0, o: 1_000_000 }];
    let confirm =
        ServerFrame::Confirm(Confirm { upto: Some(63), level: Level::Quorum, base, ..Confirm::default() });
    let mut out = String::new();
    group.bench_function("confirm to text", |bench| {
        bench.iter(|| {
            out.clear();
            json::put_server_frame(&mut out, CH, black_box(&confirm));
        });
    });
    let mut out = BytesMut::new();
    group.bench_function("confirm to bytes", |bench| {
        bench.iter(|| {
            out.clear();
            binary::put_server_frame(&mut out, CH, black_box(&confirm));
        });
    });
    group.finish();
}

criterion_group!(benches, batches, binary_frames, json_frames, publishing_frames);
criterion_main!(benches);
