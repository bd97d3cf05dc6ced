//! What goes on after a crash, or on another connection.

use std::time::Duration;

use futures_util::SinkExt;
use tokio::time::timeout;
use weir_protocol::ws::{
    Channel, ClientFrame, CloseCode, Confirm, Hello, Limit, Opened, ResumeChannel, Seen, ServerFrame, Unsub,
};

use super::client::Client;
use super::product::{Connection, Product, Running};
use super::{CREDIT, batch, product, text, together};

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

/// Sends what was confirmed in part again, in one message or batch, and goes on behind it.
async fn repeats_and_goes_on(subprotocol: &'static str, partitions: u32) {
    let (_dir, product) = product();
    let mut http = Connection::open(&product.address).unwrap();
    let config = format!("{{\"partitions\":{partitions}}}");
    http.request("PUT /v1/topics/log", &[], config.as_bytes()).unwrap();
    let is_json = subprotocol.ends_with("json");
    let mut first = Client::welcomed(&product.address, subprotocol).await;
    let opened = first.open(1, "log", Some("p")).await;
    let send = async |client: &mut Client, opened: &Opened, seqs: std::ops::Range<u64>| {
        if is_json {
            let frames: Vec<_> = seqs.map(|seq| text(seq, "1")).collect();
            client.0.socket.send(together(1, &frames)).await.unwrap();
        } else {
            client.send(1, batch(opened, Some("p"), seqs.start, seqs.end - seqs.start)).await;
        }
    };
    send(&mut first, &opened, 0..3).await;
    first.confirmed(2).await;
    drop(first);
    let mut client = Client::welcomed(&product.address, subprotocol).await;
    let opened = client.open(1, "log", Some("p")).await;
    send(&mut client, &opened, 1..6).await;
    client.confirmed(5).await;
    // The same on one connection.
    send(&mut client, &opened, 4..9).await;
    client.confirmed(8).await;
    client.sub(2, "log", "earliest", CREDIT).await;
    while !matches!(client.next().await.1, ServerFrame::Subscribed(_)) {}
    let mut offsets = client.deliveries(1, 9).await;
    offsets.sort_unstable();
    assert_eq!(offsets, (0..9).collect::<Vec<_>>(), "{subprotocol}, {partitions}: each once");
    let mut http = Connection::open(&product.address).unwrap();
    let page = http.request("GET /v1/topics/log/messages?from=earliest", &[], b"").unwrap().json();
    assert_eq!(page["messages"].as_array().unwrap().len(), 9, "{page}");
}

#[tokio::test]
async fn what_is_known_in_part_is_a_repeat_and_the_rest_is_stored() {
    for subprotocol in ["weir.v1.json", "weir.v1.bin"] {
        for partitions in [1, 3] {
            repeats_and_goes_on(subprotocol, partitions).await;
        }
    }
}

#[tokio::test]
async fn a_reader_resumes_where_it_was_with_its_numbers() {
    let (_dir, product) = product();
    let mut client = Client::welcomed(&product.address, "weir.v1.json").await;
    let inc = Some(client.open(1, "log", None).await.inc);
    for seq in 0..6 {
        client.send(1, text(seq, "1")).await;
    }
    client.confirmed(5).await;
    let mut reader = Client::connect(&product.address, "weir.v1.json").await;
    let seen = vec![Seen { p: 0, o: 3, ..Seen::default() }];
    let channel = ResumeChannel { ch: 9, inc, n: Some(41), seen, ..ResumeChannel::default() };
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
async fn resumed(address: &str, token: &str, inc: u64, (n, o): (u64, u64)) -> (Client, String) {
    let mut client = Client::connect(address, "weir.v1.json").await;
    let seen = vec![Seen { p: 0, o, ..Seen::default() }];
    let channels =
        vec![ResumeChannel { ch: 9, inc: Some(inc), n: Some(n), seen, ..ResumeChannel::default() }];
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
    let inc = writer.open(1, "log", None).await.inc;
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
        let (mut reader, next) = resumed(address, &token, inc, (n, n - 1)).await;
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
