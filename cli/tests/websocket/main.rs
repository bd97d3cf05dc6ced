//! The WebSocket subprotocol in both forms, through the public interface of the real product.
#![expect(dead_code, reason = "each test uses a part of the product's client")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod frames;
mod product;

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use frames::{FrameSocket, SOON};
use futures_util::{SinkExt, StreamExt};
use product::{Connection, Product, Running};
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;
use weir_protocol::batch::{BatchBuilder, Compression, Headers, RecordParts};
use weir_protocol::ids::{Epoch, Incarnation, ProducerKey, Seq};
use weir_protocol::rpc::Level;
use weir_protocol::start::Start;
use weir_protocol::ws::{
    CaughtUp, Channel, ClientFrame, CloseCode, Confirm, Hello, Limit, Open, Opened, Producer, Pub, RawJson,
    ResumeChannel, Seen, ServerFrame, Sub, Unsub, binary,
};

const CREDIT: Limit = Limit { msgs: 100_000, bytes: 10 << 20 };

/// A client of either form.
struct Client(FrameSocket);

impl Client {
    async fn connect(address: &str, subprotocol: &'static str) -> Self {
        Self(FrameSocket::connect(address, subprotocol).await)
    }

    async fn welcomed(address: &str, subprotocol: &'static str) -> Self {
        let mut client = Self::connect(address, subprotocol).await;
        client.send(0, ClientFrame::Hello(Hello { v: 1, ..Hello::default() })).await;
        let (_, frame) = client.next().await;
        assert!(matches!(frame, ServerFrame::Welcome(_)), "{frame:?}");
        client
    }

    async fn send(&mut self, ch: u16, frame: ClientFrame) {
        self.0.send(ch, frame).await;
    }

    /// The next frame that is not credit: that comes whenever the gateway has some.
    async fn try_next(&mut self) -> Result<(Channel, ServerFrame), CloseCode> {
        loop {
            let next = self.0.try_next().await;
            if !matches!(next, Ok((_, ServerFrame::PubLimit(_)))) {
                return next;
            }
        }
    }

    async fn next(&mut self) -> (Channel, ServerFrame) {
        self.try_next().await.unwrap()
    }

    /// What comes until so many frames `count`, however long that takes, and from then on until nothing does
    /// for a second.
    async fn until_quiet(
        &mut self,
        count: usize,
        counts: impl Fn(&ServerFrame) -> bool,
    ) -> Vec<(Channel, ServerFrame)> {
        let (mut frames, mut counted) = (Vec::new(), 0);
        while let Ok(next) =
            timeout(if counted < count { SOON } else { Duration::from_secs(1) }, self.next()).await
        {
            counted += usize::from(counts(&next.1));
            frames.push(next);
            assert!(frames.len() < 50, "it goes round: {frames:?}");
        }
        frames
    }

    async fn closed(&mut self) -> (Vec<ServerFrame>, CloseCode) {
        let mut before = Vec::new();
        loop {
            match self.try_next().await {
                Ok((_, frame)) => before.push(frame),
                Err(code) => return (before, code),
            }
        }
    }

    async fn open(&mut self, ch: u16, topic: &str, producer: Option<&str>) -> Opened {
        let producer = producer.map(|id| Producer { id: id.into(), epoch: 0 });
        self.send(ch, ClientFrame::Open(Open { topic: topic.into(), producer, ..Open::default() })).await;
        match self.next().await {
            (Channel(number), ServerFrame::Opened(opened)) if number == ch => opened,
            other => panic!("{other:?}"),
        }
    }

    async fn sub(&mut self, ch: u16, topic: &str, from: &str, limit: Limit) {
        let from: Start = from.parse().unwrap();
        let sub = Sub { topic: Some(topic.into()), from: Some(from), limit, ..Sub::default() };
        self.send(ch, ClientFrame::Sub(sub)).await;
    }

    /// Confirms up to `seq`, all their frames.
    async fn confirmed(&mut self, seq: u64) -> Vec<Confirm> {
        let mut confirms = Vec::new();
        loop {
            match self.next().await {
                (_, ServerFrame::Confirm(confirm)) => confirms.push(confirm),
                other => panic!("{other:?}"),
            }
            if confirms.last().is_some_and(|confirm| confirm.upto == Some(seq)) {
                return confirms;
            }
        }
    }

    /// Offsets of the next `count` deliveries; their delivery numbers are checked to be consecutive from `n` on.
    async fn deliveries(&mut self, mut n: u64, count: usize) -> Vec<u64> {
        let mut offsets = Vec::new();
        while offsets.len() < count {
            match self.next().await.1 {
                ServerFrame::Msg(msg) => {
                    assert_eq!(msg.n, n);
                    offsets.push(msg.o);
                    n += 1;
                }
                ServerFrame::Msgs(msgs) => {
                    for msg in msgs.msgs {
                        assert_eq!(msg.n, n);
                        offsets.push(msg.o);
                        n += 1;
                    }
                }
                ServerFrame::Deliveries(frame) => {
                    assert_eq!(frame.n, n);
                    n += frame.count();
                    for slice in &frame.slices {
                        offsets.extend(slice.records().unwrap().map(|record| record.unwrap().offset.0));
                    }
                }
                ServerFrame::CaughtUp(_) => {}
                other => panic!("{other:?}"),
            }
        }
        offsets
    }
}

fn text(seq: u64, data: &str) -> ClientFrame {
    ClientFrame::Pub(Pub { seq, data: RawJson::from_text(data), ..Pub::default() })
}

fn batch(opened: &Opened, producer: Option<&str>, seq: u64, count: u64) -> ClientFrame {
    let mut builder = match producer {
        Some(id) => BatchBuilder::new(ProducerKey::of(Incarnation(opened.inc), id), Epoch(0), Seq(seq)),
        None => BatchBuilder::anonymous(),
    };
    for i in seq..seq + count {
        let value = i.to_le_bytes();
        let parts = RecordParts { key: None, headers: &Headers::default(), value: &value };
        builder.push(parts).unwrap();
    }
    let batch = builder.build(Compression::None).unwrap();
    ClientFrame::PubBatch { first_seq: Seq(seq), batch }
}

fn product() -> (tempfile::TempDir, Product) {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let product = Product::start(dir.path());
    (dir, product)
}

#[tokio::test]
async fn json_publishes_are_confirmed_and_delivered_within_credit_digit_for_digit() {
    let (_dir, product) = product();
    let mut client = Client::welcomed(&product.address, "weir.v1.json").await;
    let opened = client.open(1, "orders", Some("tab-9")).await;
    assert_eq!((opened.last_seq, opened.partitions), (None, 1));
    for seq in 0..5 {
        client.send(1, text(seq, &format!("{{\"i\":{seq},\"total\":9007199254740993.10}}"))).await;
    }
    let confirms = client.confirmed(4).await;
    assert!(confirms.iter().all(|confirm| confirm.level == Level::Quorum && confirm.term.is_none()));
    let records: u32 = confirms.iter().flat_map(|confirm| &confirm.base).map(|base| base.n).sum();
    assert_eq!(records, 5, "every record is confirmed once");
    assert!(confirms.last().unwrap().us.total > 0);
    let mut http = Connection::open(&product.address).unwrap();
    let metrics = http.request("GET /metrics", &[], b"").unwrap().text();
    let fsync = metrics
        .lines()
        .find_map(|line| line.strip_prefix("weir_gateway_publish_stage_seconds_count{stage=\"fsync\"} "));
    let observed: u64 = fsync.unwrap().parse().unwrap();
    assert!((1..=5).contains(&observed), "once a batch: {observed}");

    client.sub(2, "orders", "earliest", Limit { msgs: 2, bytes: 10_000 }).await;
    match client.next().await {
        (Channel(2), ServerFrame::Subscribed(started)) => {
            assert_eq!((started.start, started.tail, started.recovered), (Some(0), Some(5), true));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(client.deliveries(1, 2).await, [0, 1]);
    let more = timeout(Duration::from_millis(200), client.next()).await;
    assert!(more.is_err(), "sent beyond the credit: {more:?}");
    // A repeated and a lower grant change nothing; a higher one lets the rest go.
    client.send(2, ClientFrame::Limit(Limit { msgs: 2, bytes: 10_000 })).await;
    client.send(2, ClientFrame::Limit(Limit { msgs: 1, bytes: 1 })).await;
    client.send(2, ClientFrame::Limit(Limit { msgs: 100, bytes: 10_000 })).await;
    let Ok((_, frame)) = client.try_next().await else { panic!("closed") };
    let first = match frame {
        ServerFrame::Msgs(msgs) => msgs.msgs[0].clone(),
        ServerFrame::Msg(msg) => *msg,
        other => panic!("{other:?}"),
    };
    assert_eq!((first.n, first.o), (3, 2));
    assert_eq!(first.data.unwrap().get(), r#"{"i":2,"total":9007199254740993.10}"#);
}

/// Each level is told by itself, archived last; and where nothing can be archived nobody waits for it.
#[tokio::test]
async fn archived_is_confirmed_after_quorum_and_refused_without_a_store() {
    let (dir, product) = product();
    let confirm = vec![Level::Quorum, Level::Archived];
    let open = Open { topic: "t".into(), confirm, ..Open::default() };
    let mut client = Client::welcomed(&product.address, "weir.v1.json").await;
    client.send(1, ClientFrame::Open(open.clone())).await;
    let (_, refused) = client.next().await;
    assert!(matches!(refused, ServerFrame::Err(_)), "{refused:?}");
    assert!(format!("{refused:?}").contains("level_unavailable"), "{refused:?}");
    drop(product);
    let product = Product::start_with(dir.path(), "127.0.0.1:0", &["--object-store", "local"]);
    let mut client = Client::welcomed(&product.address, "weir.v1.json").await;
    client.send(1, ClientFrame::Open(open)).await;
    let (_, opened) = client.next().await;
    assert!(matches!(opened, ServerFrame::Opened(_)), "{opened:?}");
    for seq in 0..3 {
        client.send(1, text(seq, "1")).await;
    }
    let mut told = BTreeMap::new();
    while told.get(&Level::Archived) != Some(&Some(2)) {
        match client.next().await.1 {
            ServerFrame::Confirm(confirm) => {
                let is_last = confirm.level == Level::Archived;
                assert!(!is_last || Some(&confirm.upto) <= told.get(&Level::Quorum), "{told:?}");
                told.insert(confirm.level, confirm.upto);
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(told.get(&Level::Quorum), Some(&Some(2)), "{told:?}");
}

#[tokio::test]
async fn binary_batches_come_back_as_they_were_published() {
    let (_dir, product) = product();
    let mut client = Client::welcomed(&product.address, "weir.v1.bin").await;
    let opened = client.open(1, "ticks", Some("feed")).await;
    for i in 0..20 {
        client.send(1, batch(&opened, Some("feed"), i * 50, 50)).await;
    }
    client.confirmed(999).await;
    client.sub(2, "ticks", "earliest", CREDIT).await;
    assert!(matches!(client.next().await.1, ServerFrame::Subscribed(_)));
    assert_eq!(client.deliveries(1, 1_000).await, (0..1_000).collect::<Vec<_>>());
    // A batch without a producer of its own is stamped with the channel's.
    client.send(1, batch(&opened, None, 1_000, 3)).await;
    let mut seen = Vec::new();
    while seen.len() < 3 {
        match client.next().await.1 {
            ServerFrame::Deliveries(frame) => {
                for record in frame.slices.iter().flat_map(|slice| slice.records().unwrap()) {
                    let record = record.unwrap();
                    seen.push((record.offset.0, record.seq.0, record.value));
                }
            }
            ServerFrame::Confirm(_) | ServerFrame::CaughtUp(_) => {}
            other => panic!("{other:?}"),
        }
    }
    let expected = |i: u64| (i, i, Bytes::copy_from_slice(&i.to_le_bytes()));
    assert_eq!(seen, [expected(1_000), expected(1_001), expected(1_002)]);
}

#[tokio::test]
async fn a_producer_goes_on_after_a_crash_without_losing_or_repeating_anything() {
    let (dir, mut product) = product();
    let mut client = Client::welcomed(&product.address, "weir.v1.bin").await;
    let opened = client.open(1, "ledger", Some("p")).await;
    for i in 0..40 {
        client.send(1, batch(&opened, Some("p"), i * 10, 10)).await;
    }
    let ServerFrame::Confirm(Confirm { upto: Some(upto), .. }) = client.next().await.1 else {
        panic!("the first thing to be said is a confirm");
    };
    product.kill();
    let product = Product::start(dir.path());
    let mut client = Client::welcomed(&product.address, "weir.v1.bin").await;
    let opened = client.open(1, "ledger", Some("p")).await;
    let last = opened.last_seq.expect("the producer is known");
    assert!(last >= upto, "{upto} was confirmed before the crash");
    // From what the client knows, not from what the gateway says: repeats are recognised. Where all of it had
    // been stored, each of several confirms says so, and some may come after the first. All may have been
    // confirmed with the first of them: there is more to come in any case.
    for seq in upto + 1..500 {
        client.send(1, batch(&opened, Some("p"), seq, 1)).await;
    }
    client.confirmed(499).await;
    client.sub(2, "ledger", "earliest", CREDIT).await;
    // Credit of the publishing channel may still be told.
    while !matches!(client.next().await.1, ServerFrame::Subscribed(_)) {}
    assert_eq!(client.deliveries(1, 500).await, (0..500).collect::<Vec<_>>());
    let more = timeout(Duration::from_millis(200), async {
        loop {
            match client.next().await.1 {
                ServerFrame::CaughtUp(_) | ServerFrame::Confirm(_) => {}
                other => return other,
            }
        }
    });
    let more = more.await;
    assert!(more.is_err(), "a record came twice: {more:?}");
}

#[tokio::test]
async fn a_reader_resumes_where_it_was_with_its_numbers() {
    let (_dir, product) = product();
    let mut client = Client::welcomed(&product.address, "weir.v1.json").await;
    client.open(1, "log", None).await;
    for seq in 0..6 {
        client.send(1, text(seq, "1")).await;
    }
    client.confirmed(5).await;
    let mut reader = Client::connect(&product.address, "weir.v1.json").await;
    let seen = vec![Seen { p: 0, o: 3, ..Seen::default() }];
    let channel = ResumeChannel { ch: 9, n: Some(41), seen, ..ResumeChannel::default() };
    let hello = Hello { v: 1, channels: vec![channel], ..Hello::default() };
    reader.send(0, ClientFrame::Hello(hello)).await;
    assert!(matches!(reader.next().await.1, ServerFrame::Welcome(_)));
    reader.sub(9, "log", "latest", CREDIT).await;
    match reader.next().await {
        (Channel(9), ServerFrame::Subscribed(started)) => {
            assert_eq!((started.start, started.recovered), (Some(4), true));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(reader.deliveries(42, 2).await, [4, 5]);
    reader.send(9, ClientFrame::Unsub(Unsub {})).await;
    client.send(1, text(6, "1")).await;
    client.confirmed(6).await;
    reader.sub(9, "log", "6", CREDIT).await;
    loop {
        // What was on its way before the channel was closed may still come.
        if let ServerFrame::Subscribed(started) = reader.next().await.1 {
            assert_eq!(started.start, Some(6));
            break;
        }
    }
    assert_eq!(reader.deliveries(1, 1).await, [6], "a new subscription counts anew");
}

/// Greets with what an earlier connection left; the new token.
async fn resumed(address: &str, token: &str, n: u64, o: u64) -> (Client, String) {
    let mut client = Client::connect(address, "weir.v1.json").await;
    let seen = vec![Seen { p: 0, o, ..Seen::default() }];
    let channels = vec![ResumeChannel { ch: 9, n: Some(n), seen, ..ResumeChannel::default() }];
    let hello = Hello { v: 1, resume: Some(token.to_owned()), channels, ..Hello::default() };
    client.send(0, ClientFrame::Hello(hello)).await;
    match client.next().await.1 {
        ServerFrame::Welcome(welcome) => (client, welcome.resume),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_resume_token_goes_on_exactly_at_its_gateway_and_at_another() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let data = dir.path().join("data");
    let node = ["node", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--auto-create", "--data-dir"];
    let node = Running::start(dir.path(), &[&node[..], &[data.to_str().unwrap()]].concat());
    let gateway =
        || Running::start(dir.path(), &["gateway", "--node", &node.said[0], "--listen", "127.0.0.1:0"]);
    let (a, b) = (gateway(), gateway());
    let address = |gateway: &Running| gateway.said[0].strip_prefix("http://").unwrap().to_owned();
    let (a, b) = (address(&a), address(&b));
    let mut writer = Client::welcomed(&a, "weir.v1.json").await;
    writer.open(1, "log", None).await;
    for seq in 0..9 {
        writer.send(1, text(seq, "1")).await;
    }
    writer.confirmed(8).await;

    let mut reader = Client::connect(&a, "weir.v1.json").await;
    reader.send(0, ClientFrame::Hello(Hello { v: 1, ..Hello::default() })).await;
    let ServerFrame::Welcome(welcome) = reader.next().await.1 else { panic!("no welcome") };
    let three = Limit { msgs: 3, ..CREDIT };
    reader.sub(9, "log", "earliest", three).await;
    assert!(matches!(reader.next().await.1, ServerFrame::Subscribed(_)));
    assert_eq!(reader.deliveries(1, 3).await, [0, 1, 2]);
    // The connection is gone without a goodbye.
    drop(reader);
    let mut token = welcome.resume;
    for (address, n) in [(&a, 3), (&b, 6)] {
        let (mut reader, next) = resumed(address, &token, n, n - 1).await;
        reader.sub(9, "log", "earliest", three).await;
        match reader.next().await {
            (Channel(9), ServerFrame::Subscribed(started)) => {
                assert_eq!((started.start, started.tail, started.recovered), (Some(n), Some(9), true));
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(reader.deliveries(n + 1, 3).await, [n, n + 1, n + 2]);
        assert_ne!(next, token, "each connection has a token of its own");
        token = next;
    }
    let mut stranger = Client::connect(&b, "weir.v1.json").await;
    let hello = Hello { v: 1, resume: Some("rt_nobody".into()), ..Hello::default() };
    stranger.send(0, ClientFrame::Hello(hello)).await;
    assert_eq!(stranger.closed().await.1, CloseCode::ResumeExpired);
}

/// A gateway learns of a change at another one from the node, which refuses what was sent before it did.
#[tokio::test]
async fn a_change_of_a_topic_refuses_nobody_who_publishes() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let data = dir.path().join("data");
    let node = ["node", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--auto-create"];
    let more = ["--data-shards", "1", "--data-dir", data.to_str().unwrap()];
    let node = Running::start(dir.path(), &[&node[..], &more].concat());
    let gateway =
        || Running::start(dir.path(), &["gateway", "--node", &node.said[0], "--listen", "127.0.0.1:0"]);
    let (a, b) = (gateway(), gateway());
    let address = |gateway: &Running| gateway.said[0].strip_prefix("http://").unwrap().to_owned();
    let mut writer = Client::welcomed(&address(&a), "weir.v1.json").await;
    for (ch, topic) in [(1, "changed"), (2, "other")] {
        writer.open(ch, topic, None).await;
        writer.send(ch, text(0, "0")).await;
        writer.confirmed(0).await;
    }
    let mut http = Connection::open(&address(&b)).unwrap();
    for round in 1..=20 {
        let retention = format!("{{\"retention\":{{\"age_ms\":{}}}}}", 60_000_000 + round);
        assert_eq!(http.request("PATCH /v1/topics/changed", &[], retention.as_bytes()).unwrap().status, 200);
        writer.send(1, text(round, "1")).await;
        writer.send(2, text(round, "2")).await;
        let mut confirmed = Vec::new();
        while confirmed.len() < 2 {
            match writer.next().await {
                (ch, ServerFrame::Confirm(confirm)) if confirm.upto == Some(round) => confirmed.push(ch),
                other => panic!("round {round}: {other:?}"),
            }
        }
    }
}

#[tokio::test]
async fn what_is_said_of_a_message_is_delivered_with_it_and_its_topic_says_the_rest() {
    let (_dir, product) = product();
    let mut http = Connection::open(&product.address).unwrap();
    let notes = http.request("PUT /v1/topics/notes", &[], br#"{"content_type":"text/plain"}"#);
    assert_eq!(notes.unwrap().status, 201);
    let mut client = Client::welcomed(&product.address, "weir.v1.json").await;
    client.open(1, "notes", None).await;
    let soon = std::time::SystemTime::now() + Duration::from_secs(3600);
    let soon = soon.duration_since(std::time::UNIX_EPOCH).unwrap().as_millis().try_into().unwrap();
    let publish = |seq, publish: Pub| ClientFrame::Pub(Pub { seq, ..publish });
    let data = |text| Pub { data: RawJson::from_text(text), ..Pub::default() };
    client.send(1, publish(0, Pub { deliver_at: Some(soon), ttl_ms: Some(7), ..data("\"a\"") })).await;
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let (traceparent, tracestate) = (Some(parent.to_owned()), Some("c=d".to_owned()));
    let traced = Pub { b64: Some("Yg==".into()), traceparent, tracestate, ..Pub::default() };
    client.send(1, publish(1, traced)).await;
    client.send(1, publish(2, Pub { ct: Some("application/json".into()), ..data("\"c\"") })).await;
    client.confirmed(2).await;
    client.send(1, publish(3, data("{}"))).await;
    match client.next().await.1 {
        ServerFrame::Reject(reject) => assert!(reject.problem.get().contains("text/plain"), "{reject:?}"),
        other => panic!("{other:?}"),
    }
    let digest = "sha-256=:LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ=:";
    let headers = [("Content-Digest", digest), ("traceparent", parent), ("tracestate", "a=b")];
    let posted = http.request("POST /v1/topics/notes/messages", &headers, b"hello").unwrap();
    assert_eq!(posted.status, 201, "{}", posted.text());

    client.sub(3, "notes", "earliest", CREDIT).await;
    let mut found = Vec::new();
    while found.len() < 4 {
        match client.next().await.1 {
            ServerFrame::Msg(msg) => found.push(*msg),
            ServerFrame::Msgs(msgs) => found.extend(msgs.msgs),
            _ => {}
        }
    }
    let shown: Vec<_> =
        found.iter().map(|msg| (msg.ct.as_deref().unwrap(), msg.data.as_ref().unwrap().get())).collect();
    let plain = |data| ("text/plain", data);
    assert_eq!(shown, [plain("\"a\""), plain("\"b\""), ("application/json", "\"c\""), plain("\"hello\"")]);
    assert_eq!((found[0].deliver_at, found[0].ttl_ms), (Some(soon), Some(7)));
    assert_eq!((found[1].deliver_at, found[1].ttl_ms), (None, None));
    let texts = [&found[3].digest, &found[3].traceparent, &found[3].tracestate].map(|it| it.as_deref());
    assert_eq!(texts, [Some(digest), Some(parent), Some("a=b")]);
    let trace = [&found[1].traceparent, &found[1].tracestate].map(|it| it.as_deref());
    assert_eq!(trace, [Some(parent), Some("c=d")]);
    client.send(1, publish(4, Pub { traceparent: Some("a\nb".into()), ..data("\"e\"") })).await;
    loop {
        match client.next().await.1 {
            ServerFrame::Reject(reject) => {
                assert!(reject.problem.get().contains("traceparent"), "{reject:?}");
                break;
            }
            ServerFrame::CaughtUp(_) => {}
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn several_partitions_are_followed_as_one_and_none_is_lost() {
    let (_dir, product) = product();
    let mut http = Connection::open(&product.address).unwrap();
    let made =
        http.request("PUT /v1/topics/wide", &[("Content-Type", "application/json")], br#"{"partitions":4}"#);
    assert_eq!(made.unwrap().status, 201);
    let mut client = Client::welcomed(&product.address, "weir.v1.json").await;
    assert_eq!(client.open(1, "wide", Some("p")).await.partitions, 4);
    for seq in 0..200 {
        let publish =
            Pub { seq, key: Some(format!("k{}", seq % 17)), data: RawJson::from_text("7"), ..Pub::default() };
        client.send(1, ClientFrame::Pub(publish)).await;
    }
    client.confirmed(199).await;
    client.sub(2, "wide", "earliest", Limit { msgs: 50, bytes: 1 << 20 }).await;
    match client.next().await.1 {
        ServerFrame::Subscribed(started) => {
            assert_eq!(started.parts.iter().map(|part| part.p).collect::<Vec<_>>(), [0, 1, 2, 3]);
            assert_eq!(started.parts.iter().map(|part| part.tail).sum::<u64>(), 200);
        }
        other => panic!("{other:?}"),
    }
    client.deliveries(1, 50).await;
    let more = timeout(Duration::from_millis(200), async {
        while matches!(client.next().await.1, ServerFrame::CaughtUp(_)) {}
    });
    assert!(more.await.is_err(), "the credit is for the channel, not for each partition");
    client.send(2, ClientFrame::Limit(CREDIT)).await;
    client.deliveries(51, 150).await;
}

#[tokio::test]
async fn what_makes_no_sense_is_told_and_closed_with_its_code() {
    let (_dir, product) = product();
    let address = product.address.as_str();
    let refused = |frames: &[ServerFrame], code: &str| match &frames[frames.len() - 1] {
        ServerFrame::Err(problem) => assert!(problem.problem.get().contains(code), "{problem:?}"),
        other => panic!("{other:?}"),
    };
    // A frame before hello.
    for subprotocol in ["weir.v1.json", "weir.v1.bin"] {
        let mut client = Client::connect(address, subprotocol).await;
        client.sub(1, "t", "latest", CREDIT).await;
        let (frames, code) = client.closed().await;
        assert_eq!(code, CloseCode::BadFrame);
        refused(&frames, "\"malformed\"");
    }
    // Another version, an unknown field, no frame at all.
    for (sent, code, problem) in [
        (r#"{"t":"hello","v":2}"#, CloseCode::UnsupportedVersion, "\"malformed\""),
        (r#"{"t":"hello","v":1,"tokn":"x"}"#, CloseCode::BadFrame, "tokn"),
        ("nonsense", CloseCode::BadFrame, "\"malformed\""),
    ] {
        let mut client = Client::connect(address, "weir.v1.json").await;
        client.0.socket.send(Message::Text(sent.into())).await.unwrap();
        let (frames, found) = client.closed().await;
        assert_eq!(found, code, "{sent}");
        refused(&frames, problem);
    }
    // Publishing past the limit, and before there is one.
    let mut client = Client::welcomed(address, "weir.v1.bin").await;
    let opened = client.open(1, "t", None).await;
    for i in 0..u64::MAX {
        let frame = batch(&opened, None, i * 10_000, 10_000);
        let mut bytes = BytesMut::new();
        binary::put_client_frame(&mut bytes, Channel(1), &frame);
        if client.0.socket.feed(Message::Binary(bytes.freeze())).await.is_err() || i > 2 {
            break;
        }
    }
    let _ = client.0.socket.flush().await;
    assert_eq!(client.closed().await.1, CloseCode::CreditViolation);
    // A damaged batch.
    let mut client = Client::welcomed(address, "weir.v1.bin").await;
    let opened = client.open(1, "t", None).await;
    let mut bytes = BytesMut::new();
    binary::put_client_frame(&mut bytes, Channel(1), &batch(&opened, None, 0, 3));
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    client.0.socket.send(Message::Binary(bytes.freeze())).await.unwrap();
    let (frames, code) = client.closed().await;
    assert_eq!(code, CloseCode::BadFrame);
    refused(&frames, "\"invalid_batch\"");
}

#[tokio::test]
async fn refusals_of_one_channel_leave_the_others_alone() {
    let (_dir, product) = product();
    let mut client = Client::welcomed(&product.address, "weir.v1.json").await;
    client.sub(1, "nowhere", "latest", CREDIT).await;
    match client.next().await {
        (Channel(1), ServerFrame::Err(problem)) => {
            assert!(problem.problem.get().contains("\"topic_not_found\""), "{problem:?}");
        }
        other => panic!("{other:?}"),
    }
    client.open(2, "somewhere", None).await;
    // One record too many in a hurry: only that one is refused.
    client.send(2, text(0, "0")).await;
    let large = format!("\"{}\"", "x".repeat((1 << 20) + 1));
    client.send(2, text(1, &large)).await;
    client.send(2, text(2, "2")).await;
    let (mut rejected, mut upto) = (Vec::new(), None);
    while upto != Some(2) {
        match client.next().await.1 {
            ServerFrame::Confirm(confirm) => upto = confirm.upto,
            ServerFrame::Reject(reject) => {
                assert!(reject.problem.get().contains("\"too_large\""), "{reject:?}");
                rejected.push((reject.seq, reject.n));
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(rejected, [(1, 1)]);
    client.sub(3, "somewhere", "earliest", CREDIT).await;
    assert!(matches!(client.next().await.1, ServerFrame::Subscribed(_)));
    assert_eq!(client.deliveries(1, 2).await, [0, 1]);
}

#[tokio::test]
async fn a_follower_of_a_closed_topic_is_told_once_and_goes_on_when_it_is_opened() {
    let (_dir, product) = product();
    let mut http = Connection::open(&product.address).unwrap();
    let mut done = |line: &str, body: &str| {
        let answer = http.request(line, &[], body.as_bytes()).unwrap();
        assert!(answer.status < 300, "{line}: {}", answer.text());
    };
    done("PUT /v1/topics/log", "{\"partitions\":2,\"closed\":true}");
    for subprotocol in ["weir.v1.json", "weir.v1.bin"] {
        // Two channels share a feed of each partition; a third has a stream of its own.
        let mut client = Client::welcomed(&product.address, subprotocol).await;
        for ch in 1..=2 {
            client.sub(ch, "log", "earliest", CREDIT).await;
        }
        let filter = Some("not key == 'x'".to_owned());
        let (topic, from) = (Some("log".into()), Some("earliest".parse().unwrap()));
        client.send(3, ClientFrame::Sub(Sub { topic, from, filter, limit: CREDIT, ..Sub::default() })).await;
        let ends = |frames: Vec<(Channel, ServerFrame)>| {
            let end = |(ch, frame): &(Channel, ServerFrame)| match frame {
                ServerFrame::CaughtUp(CaughtUp { p, closed, .. }) => Some((ch.0, *p, *closed)),
                _ => None,
            };
            let mut ends: Vec<_> = frames.iter().filter_map(end).collect();
            ends.sort_unstable();
            ends
        };
        let each = |closed| {
            let all = (1..=3).flat_map(|ch| (0..2).map(move |p| (ch, p, closed)));
            all.collect::<Vec<_>>()
        };
        let is_end = |frame: &ServerFrame| matches!(frame, ServerFrame::CaughtUp(_));
        assert_eq!(ends(client.until_quiet(6, is_end).await), each(true));
        done("PATCH /v1/topics/log", "{\"closed\":false}");
        assert_eq!(ends(client.until_quiet(6, is_end).await), each(false));
        done("POST /v1/topics/log/messages", "x");
        let is_message =
            |frame: &ServerFrame| matches!(frame, ServerFrame::Msg(_) | ServerFrame::Deliveries(_));
        let frames = client.until_quiet(3, is_message).await;
        assert_eq!(frames.iter().filter(|(_, frame)| is_message(frame)).count(), 3, "{frames:?}");
        // Of the partition that it is in, each is told the end once more.
        let told = frames.iter().filter(|(_, frame)| is_end(frame)).count();
        if told < 3 {
            assert_eq!(client.until_quiet(3 - told, is_end).await.len(), 3 - told);
        }
        done("PATCH /v1/topics/log", "{\"closed\":true}");
        assert_eq!(ends(client.until_quiet(6, is_end).await), each(true));
    }
}

#[tokio::test]
async fn a_stopping_gateway_says_goodbye() {
    let (_dir, mut product) = product();
    let mut client = Client::welcomed(&product.address, "weir.v1.json").await;
    client.open(1, "t", None).await;
    client.send(1, text(0, "0")).await;
    client.confirmed(0).await;
    let stopping = tokio::task::spawn_blocking(move || product.stop());
    let (frames, code) = client.closed().await;
    assert!(matches!(&frames[..], [ServerFrame::Goaway(_)]), "{frames:?}");
    assert_eq!(code, CloseCode::GoingAway);
    assert!(stopping.await.unwrap(), "it stopped by itself");
}

#[tokio::test]
async fn a_client_that_closes_is_answered_with_a_close() {
    let (_dir, product) = product();
    let mut client = Client::welcomed(&product.address, "weir.v1.json").await;
    client.0.socket.close(None).await.unwrap();
    let answer = timeout(SOON, client.0.socket.next()).await.unwrap();
    assert!(matches!(answer, Some(Ok(Message::Close(_)))), "{answer:?}");
    assert!(timeout(SOON, client.0.socket.next()).await.unwrap().is_none());
}

/// `count` records of a kilobyte from `seq` on, as one batch.
fn kilobytes(opened: &Opened, producer: &str, seq: u64, count: u64) -> ClientFrame {
    let key = ProducerKey::of(Incarnation(opened.inc), producer);
    let mut builder = BatchBuilder::new(key, Epoch(0), Seq(seq));
    for _ in 0..count {
        let parts = RecordParts { key: None, headers: &Headers::default(), value: &[7; 1_000] };
        builder.push(parts).unwrap();
    }
    ClientFrame::PubBatch { first_seq: Seq(seq), batch: builder.build(Compression::None).unwrap() }
}

/// Offsets that came on each channel, until each of `wanted` has `count`.
async fn delivered(client: &mut Client, wanted: &[u16], count: usize) -> BTreeMap<u16, Vec<u64>> {
    let mut seen = BTreeMap::<u16, Vec<u64>>::new();
    while wanted.iter().any(|ch| seen.get(ch).map_or(0, Vec::len) < count) {
        let (Channel(ch), frame) = client.next().await;
        match frame {
            ServerFrame::Deliveries(frame) => {
                let records = frame.slices.iter().flat_map(|slice| slice.records().unwrap());
                seen.entry(ch).or_default().extend(records.map(|record| record.unwrap().offset.0));
            }
            ServerFrame::Subscribed(_) | ServerFrame::CaughtUp(_) => {}
            other => panic!("{other:?}"),
        }
    }
    seen
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_of_the_subscribers_may_freeze_and_the_others_get_everything() {
    const RECORDS: u64 = 8_000;
    const NOTHING: Limit = Limit { msgs: 0, bytes: 0 };
    const PLENTY: Limit = Limit { msgs: 100_000, bytes: 1 << 30 };
    let (_dir, product) = product();
    let mut publisher = Client::welcomed(&product.address, "weir.v1.bin").await;
    let opened = publisher.open(1, "busy", Some("feed")).await;
    // On one connection every other channel has no credit; of the connections every other one reads nothing at all.
    let (frozen, quick) = ([1, 3, 5], [2, 4, 6]);
    let mut readers = Vec::new();
    for _ in 0..2 {
        let mut reader = Client::welcomed(&product.address, "weir.v1.bin").await;
        for ch in 1..=6 {
            let limit = if frozen.contains(&ch) { NOTHING } else { PLENTY };
            reader.sub(ch, "busy", "earliest", limit).await;
        }
        let mut silent = Client::welcomed(&product.address, "weir.v1.bin").await;
        for ch in 1..=6 {
            silent.sub(ch, "busy", "earliest", PLENTY).await;
        }
        readers.push((reader, silent));
    }
    let publishing = tokio::spawn(async move {
        for seq in (0..RECORDS).step_by(100) {
            publisher.send(1, kilobytes(&opened, "feed", seq, 100)).await;
            publisher.confirmed(seq + 99).await;
        }
    });
    let expected: Vec<u64> = (0..RECORDS).collect();
    for (reader, _) in &mut readers {
        let seen = delivered(reader, &quick, expected.len()).await;
        assert_eq!(seen.keys().copied().collect::<Vec<_>>(), quick, "nothing is sent without credit");
        for ch in quick {
            assert_eq!(seen[&ch], expected, "channel {ch}");
        }
    }
    publishing.await.unwrap();
    // Whoever was frozen has missed nothing.
    let (reader, _silent) = &mut readers[0];
    reader.send(3, ClientFrame::Limit(PLENTY)).await;
    assert_eq!(delivered(reader, &[3], expected.len()).await, BTreeMap::from([(3, expected)]));
}
