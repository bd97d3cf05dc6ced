//! Many publishers and a node that stops answering for a while: credit slows them, nobody is refused.
#![expect(dead_code, reason = "each test uses a part of the product's client")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod frames;
mod product;

use std::collections::BTreeMap;
use std::process::Command;

use bytes::BytesMut;
use frames::FrameSocket;
use futures_util::SinkExt;
use product::{Connection, Product, Running};
use tokio_tungstenite::tungstenite::Message;
use weir_protocol::batch::{Batch, BatchBuilder, Compression, Headers, RecordParts};
use weir_protocol::ids::Seq;
use weir_protocol::ws::{
    Channel, ClientFrame, ClientPing, Hello, Limit, Open, Producer, ServerFrame, binary,
};

const CHANNELS: u16 = 200;
/// Messages of a KiB, one in a batch, that each channel publishes: twice the budget together.
const MESSAGES: u64 = 160;

#[derive(Default)]
struct Told {
    limit: Limit,
    sent: Limit,
    confirmed: u64,
}

/// One connection with channels that send all that they may.
struct Publisher {
    socket: FrameSocket,
    batch: Batch,
    channels: BTreeMap<u16, Told>,
    rejected: u64,
}

impl Publisher {
    async fn open(address: &str) -> Self {
        let mut socket = FrameSocket::connect(address, "weir.v1.bin").await;
        socket.send(0, ClientFrame::Hello(Hello { v: 1, ..Hello::default() })).await;
        assert!(matches!(socket.next().await.1, ServerFrame::Welcome(_)));
        let mut channels = BTreeMap::new();
        for ch in 1..=CHANNELS {
            let open = Open { topic: "t".into(), ..Open::default() };
            socket.send(ch, ClientFrame::Open(open)).await;
            let (_, ServerFrame::Opened(opened)) = socket.next().await else { panic!("not opened") };
            channels.insert(ch, Told { limit: opened.pub_limit, ..Told::default() });
        }
        let mut builder = BatchBuilder::anonymous();
        builder.push(RecordParts { key: None, headers: &Headers::default(), value: &[7; 1_024] }).unwrap();
        let batch = builder.build(Compression::None).unwrap();
        Self { socket, batch, channels, rejected: 0 }
    }

    /// Sends what there is credit for, one channel after the other, and learns what the gateway says of it.
    /// Soon: a node that stands still is given up after a while.
    async fn send(&mut self) {
        let bytes = u64::from(self.batch.header().raw_bytes);
        for ch in 1..=CHANNELS {
            let mut message = BytesMut::new();
            let told = self.channels.get_mut(&ch).unwrap();
            while told.sent.msgs < MESSAGES.min(told.limit.msgs)
                && told.sent.bytes + bytes <= told.limit.bytes
            {
                let first_seq = Seq(told.sent.msgs);
                let frame = ClientFrame::PubBatch { first_seq, batch: self.batch.clone() };
                binary::put_client_frame(&mut message, Channel(ch), &frame);
                told.sent = Limit { msgs: told.sent.msgs + 1, bytes: told.sent.bytes + bytes };
            }
            if !message.is_empty() {
                self.socket.socket.send(Message::Binary(message.freeze())).await.unwrap();
            }
        }
        // Answered behind everything that was sent before it.
        self.socket.send(0, ClientFrame::Ping(ClientPing { id: 1 })).await;
        self.take_until_pong().await;
    }

    async fn take_until_pong(&mut self) {
        loop {
            let (ch, frame) = self.socket.next().await;
            if matches!(frame, ServerFrame::Pong(_)) {
                return;
            }
            self.take(ch, frame);
        }
    }

    fn take(&mut self, ch: Channel, frame: ServerFrame) {
        let told = self.channels.get_mut(&ch.0).unwrap();
        match frame {
            ServerFrame::PubLimit(limit) => told.limit = limit,
            ServerFrame::Confirm(confirm) => told.confirmed = confirm.upto.unwrap() + 1,
            ServerFrame::Reject(_) => self.rejected += 1,
            other => panic!("{other:?}"),
        }
    }

    fn sent(&self) -> u64 {
        self.channels.values().map(|told| told.sent.msgs).sum()
    }

    fn confirmed(&self) -> u64 {
        self.channels.values().map(|told| told.confirmed).sum()
    }
}

#[tokio::test]
async fn two_hundred_publishers_are_slowed_and_not_refused_while_the_node_stands_still() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let data = dir.path().join("data");
    let of_node =
        ["node", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--data-dir", data.to_str().unwrap()];
    let node = Running::start(dir.path(), &of_node);
    let of_gateway =
        ["gateway", "--node", &node.said[0], "--listen", "127.0.0.1:0", "--publish-bytes-max", "16MiB"];
    let gateway = Running::start(dir.path(), &of_gateway);
    let address = gateway.said[0].strip_prefix("http://").unwrap();
    let mut http = Connection::open(address).unwrap();
    assert_eq!(http.request("PUT /v1/topics/t", &[], b"{\"partitions\":1}").unwrap().status, 201);
    let mut publisher = Publisher::open(address).await;
    node.signal("-STOP");
    let mut sent = None;
    while sent != Some(publisher.sent()) {
        sent = Some(publisher.sent());
        publisher.send().await;
    }
    let (sent, all) = (publisher.sent(), MESSAGES * u64::from(CHANNELS));
    node.signal("-CONT");
    assert_eq!(publisher.rejected, 0, "of {sent}");
    assert!((1_000..all).contains(&sent), "{sent} messages had credit");
    while publisher.confirmed() < all {
        publisher.send().await;
    }
    assert_eq!(publisher.rejected, 0);
    let metrics = http.request("GET /metrics", &[], b"").unwrap().text();
    let throttled =
        metrics.lines().find_map(|line| line.strip_prefix("weir_gateway_publish_throttled_total "));
    assert!(throttled.unwrap().parse::<u64>().unwrap() > 0, "{metrics}");
}

/// Stores the first lines as an earlier run of the producer `shipper` would, in batches of so many.
async fn earlier_run(address: &str, lines: &[String], sizes: &[usize]) {
    let mut socket = FrameSocket::connect(address, "weir.v1.bin").await;
    socket.send(0, ClientFrame::Hello(Hello { v: 1, ..Hello::default() })).await;
    assert!(matches!(socket.next().await.1, ServerFrame::Welcome(_)));
    let producer = Some(Producer { id: "shipper".into(), epoch: 0 });
    socket.send(1, ClientFrame::Open(Open { topic: "t".into(), producer, ..Open::default() })).await;
    assert!(matches!(socket.next().await.1, ServerFrame::Opened(_)));
    let mut first = 0;
    for size in sizes {
        let mut builder = BatchBuilder::anonymous();
        for line in &lines[first..first + size] {
            let value = line.as_bytes();
            builder.push(RecordParts { key: None, headers: &Headers::default(), value }).unwrap();
        }
        let batch = builder.build(Compression::None).unwrap();
        socket.send(1, ClientFrame::PubBatch { first_seq: Seq(first as u64), batch }).await;
        first += size;
        loop {
            match socket.next().await.1 {
                ServerFrame::Confirm(confirm) if confirm.upto == Some(first as u64 - 1) => break,
                ServerFrame::Confirm(_) | ServerFrame::PubLimit(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resumed_run_over_several_partitions_takes_whatever_batches_the_earlier_one_stored() {
    for sizes in [&[100][..], &[1, 255, 256, 30], &[400, 400, 400]] {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let product = Product::start(dir.path());
        let mut http = Connection::open(&product.address).unwrap();
        assert_eq!(http.request("PUT /v1/topics/t", &[], b"{\"partitions\":2}").unwrap().status, 201);
        let lines: Vec<_> = (0..4_000).map(|n| format!("line {n}")).collect();
        earlier_run(&product.address, &lines, sizes).await;
        let path = dir.path().join("lines");
        std::fs::write(&path, lines.join("\n")).unwrap();
        let url = format!("http://{}", product.address);
        let weir = |args: &[&str]| {
            let ran =
                Command::new(env!("CARGO_BIN_EXE_weir")).args(["--url", &url]).args(args).output().unwrap();
            assert!(ran.status.success(), "{sizes:?}: {}", String::from_utf8_lossy(&ran.stderr));
            String::from_utf8(ran.stdout).unwrap()
        };
        weir(&["pub", "t", "--lines", "--producer", "shipper", "--resume", "-f", path.to_str().unwrap()]);
        let all = weir(&["sub", "t", "--from", "earliest", "--no-follow"]);
        assert!(all.lines().eq(&lines), "{sizes:?}: each line is there once, in order");
    }
}
