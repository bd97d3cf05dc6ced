//! The WebSocket subprotocol in both forms, through the public interface of the real product.
#![expect(dead_code, reason = "each test uses a part of the product's client")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod client;
#[path = "../frames/mod.rs"]
mod frames;
mod freezing;
#[path = "../product/mod.rs"]
mod product;
mod resuming;

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use client::Client;
use frames::SOON;
use futures_util::{SinkExt, StreamExt};
use product::{Connection, Product, Running};
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;
use weir_protocol::batch::{BatchBuilder, Compression, Headers, RecordParts};
use weir_protocol::ids::{Epoch, Incarnation, ProducerKey, Seq};
use weir_protocol::rpc::Level;
use weir_protocol::ws::{
    CaughtUp, Channel, ClientFrame, ClientPing, CloseCode, ClosePub, Hello, Limit, Open, Opened, Pub,
    RawJson, ServerFrame, Sub, Unsub, binary, json,
};

const CREDIT: Limit = Limit { msgs: 100_000, bytes: 10 << 20 };

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

/// One message of all these frames of a channel.
fn together(ch: u16, frames: &[ClientFrame]) -> Message {
    let mut text = String::new();
    frames.iter().for_each(|frame| json::put_client_frame(&mut text, Channel(ch), frame));
    Message::Text(text.into())
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
        assert!(!frames.iter().any(|(_, frame)| is_end(frame)), "each was at the end before: {frames:?}");
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

#[tokio::test]
async fn who_asks_again_and_again_for_something_else_makes_the_gateway_hold_little() {
    let (_dir, product) = product();
    let mut client = Client::welcomed(&product.address, "weir.v1.json").await;
    client.open(1, "log", None).await;
    client.sub(2, "log", "latest", CREDIT).await;
    assert!(matches!(client.next().await.1, ServerFrame::Subscribed(_)));
    let before = product.memory_peak();
    for again in [
        "{\"t\":\"seek\",\"ch\":2,\"from\":\"latest\"}\n",
        "{\"t\":\"unsub\",\"ch\":2}\n{\"t\":\"sub\",\"ch\":2,\"topic\":\"log\",\"limit\":{\"msgs\":1,\"bytes\":1}}\n",
        "{\"t\":\"close_pub\",\"ch\":1}\n{\"t\":\"open\",\"ch\":1,\"topic\":\"log\"}\n",
    ] {
        for _ in 0..2 {
            let many = again.repeat((4 << 20) / again.len());
            client.0.socket.send(Message::Text(many.into())).await.unwrap();
        }
    }
    client.send(0, ClientFrame::Ping(ClientPing { id: 7 })).await;
    while !matches!(client.next().await.1, ServerFrame::Pong(_)) {}
    let more = product.memory_peak() - before;
    assert!(more < 100 << 20, "{more} bytes were held for 24 MiB of frames, of which three count");
}

#[tokio::test]
async fn the_number_of_a_channel_is_free_again_when_nothing_of_it_is_under_way() {
    let (_dir, product) = product();
    let mut http = Connection::open(&product.address).unwrap();
    assert_eq!(http.request("PUT /v1/topics/log", &[], b"").unwrap().status, 201);
    let queue = br#"{"mode":"queue","topics":["log"]}"#;
    assert_eq!(http.request("PUT /v1/subscriptions/work", &[], queue).unwrap().status, 201);
    let open = || ClientFrame::Open(Open { topic: "log".into(), ..Open::default() });
    let work = || ClientFrame::Sub(Sub { sub: Some("work".into()), limit: CREDIT, ..Sub::default() });
    let mut client = Client::welcomed(&product.address, "weir.v1.json").await;
    client.open(1, "log", None).await;
    client.send(1, text(0, "1")).await;
    client.confirmed(0).await;
    // Taken in together, and before the first of them is opened as well.
    let close = || ClientFrame::ClosePub(ClosePub {});
    client.0.socket.send(together(1, &[close(), open(), close()])).await.unwrap();
    let opened = client.open(1, "log", None).await;
    assert_eq!(opened.last_seq, None);
    client.send(1, text(0, "2")).await;
    client.confirmed(0).await;
    let leave = || ClientFrame::Unsub(Unsub {});
    client.0.socket.send(together(1, &[close(), work(), leave(), work()])).await.unwrap();
    while !matches!(client.next().await.1, ServerFrame::Subscribed(_)) {}
    assert_eq!(client.deliveries(1, 2).await, [0, 1]);
    client.send(1, leave()).await;
    client.sub(1, "log", "earliest", CREDIT).await;
    while !matches!(client.next().await.1, ServerFrame::Subscribed(_)) {}
    assert_eq!(client.deliveries(1, 2).await, [0, 1]);
}

#[tokio::test]
async fn who_only_listens_stays_and_each_json_message_is_one_document() {
    let (_dir, product) = product();
    let mut client = Client::connect(&product.address, "weir.v1.json").await;
    client.send(0, ClientFrame::Hello(Hello { v: 1, ..Hello::default() })).await;
    let mut http = Connection::open(&product.address).unwrap();
    http.request("PUT /v1/topics/ledger", &[], b"{}").unwrap();
    client.sub(2, "ledger", "earliest", CREDIT).await;
    for _ in 0..20 {
        http.request("POST /v1/topics/ledger/messages", &[], b"x").unwrap();
    }
    // It answers nothing by itself: the library's pong is all that it says for longer than a silent client may stay.
    let (mut pings, mut offsets) = (0, Vec::new());
    let listens = async {
        while pings < 3 {
            match client.0.socket.next().await.unwrap().unwrap() {
                Message::Ping(_) => pings += 1,
                Message::Text(text) => {
                    let frame: serde_json::Value = serde_json::from_str(&text).expect("one document");
                    let list = frame["msgs"].as_array().cloned().unwrap_or_else(|| vec![frame.clone()]);
                    offsets.extend(list.iter().filter_map(|message| message["o"].as_u64()));
                }
                other => panic!("{other:?}"),
            }
        }
    };
    // A ping every 20 s.
    timeout(2 * SOON, listens).await.unwrap();
    assert_eq!(offsets, (0..20).collect::<Vec<_>>());
}
