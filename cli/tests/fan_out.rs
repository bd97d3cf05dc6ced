//! Readers of one topic share one stream from the node; each still gets each message once, in order, at its own pace.
#![expect(dead_code, reason = "each test uses a part of the product's client")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod frames;
#[path = "../../storage-node/tier/tests/ports/mod.rs"]
mod ports;
mod product;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use frames::{FrameSocket, SOON};
use product::{Connection, Running};
use weir_protocol::start::Start;
use weir_protocol::ws::{Channel, ClientFrame, Hello, Limit, RawJson, ServerFrame, Sub};

const JSON: &str = "weir.v1.json";
const BINARY: &str = "weir.v1.bin";
const CREDIT: Limit = Limit { msgs: 1_000_000, bytes: 1 << 30 };
/// Of a batch that is posted at once.
const MESSAGES: u64 = 20;

/// Node and gateway, as processes of their own.
struct Apart {
    dir: tempfile::TempDir,
    node: Running,
    _gateway: Running,
    address: String,
}

fn node(dir: &Path, listen: &str) -> Running {
    let data = dir.join("data");
    let fixed = ["node", "--listen", listen, "--admin", "127.0.0.1:0", "--data-dir", data.to_str().unwrap()];
    Running::start(dir, &fixed)
}

impl Apart {
    fn start() -> Self {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let node = node(dir.path(), &ports::own().to_string());
        let gateway =
            Running::start(dir.path(), &["gateway", "--node", &node.said[0], "--listen", "127.0.0.1:0"]);
        let address = gateway.said[0].strip_prefix("http://").unwrap().to_owned();
        Self { dir, node, _gateway: gateway, address }
    }

    fn http(&self) -> Connection {
        Connection::open(&self.address).unwrap()
    }

    fn make(&self, topic: &str, config: &str) {
        let made = self.http().request(&format!("PUT /v1/topics/{topic}"), &[], config.as_bytes()).unwrap();
        assert_eq!(made.status, 201, "{}", made.text());
    }

    /// Posts [`MESSAGES`] of about `bytes` in one batch.
    fn post(&self, topic: &str, bytes: usize) {
        let line = format!("{{\"data\":\"{}\"}}\n", "x".repeat(bytes));
        let all = line.repeat(usize::try_from(MESSAGES).unwrap());
        let media = [("Content-Type", "application/x-ndjson")];
        let path = format!("POST /v1/topics/{topic}/messages:batch");
        assert_eq!(self.http().request(&path, &media, all.as_bytes()).unwrap().status, 200);
    }

    fn gateway(&self, name: &str) -> u64 {
        measured(&self.address, name)
    }

    /// Streams at the node.
    fn streams(&self) -> u64 {
        measured(&self.node.said[1], "weir_node_subscriptions")
    }

    /// Waits until what is measured is as expected.
    fn until(&self, what: &str, is_so: impl Fn() -> bool) {
        let start = Instant::now();
        while !is_so() {
            assert!(start.elapsed() < SOON, "{what}: {} streams", self.streams());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn measured(address: &str, name: &str) -> u64 {
    let metrics = Connection::open(address).unwrap().request("GET /metrics", &[], b"").unwrap().text();
    let value = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
    value.unwrap_or_else(|| panic!("{name} is not measured: {metrics}"))
}

/// One that follows, and checks what it gets.
struct Reader {
    socket: FrameSocket,
    /// Number of the last delivery, and the offset that comes next.
    n: u64,
    next: u64,
    marks: u64,
}

/// What a reader is told beside messages.
#[derive(Debug, PartialEq)]
enum Told {
    CaughtUp(u64),
    Gap(u64, u64),
    Ended(String),
}

impl Reader {
    async fn start(apart: &Apart, form: &'static str, topic: &str, from: &str, limit: Limit) -> Self {
        let mut socket = FrameSocket::connect(&apart.address, form).await;
        socket.send(0, ClientFrame::Hello(Hello { v: 1, ..Hello::default() })).await;
        assert!(matches!(socket.next().await.1, ServerFrame::Welcome(_)));
        let from: Start = from.parse().unwrap();
        let sub = Sub { topic: Some(topic.into()), from: Some(from), limit, ..Sub::default() };
        socket.send(1, ClientFrame::Sub(sub)).await;
        let next = match socket.next().await.1 {
            ServerFrame::Subscribed(subscribed) => subscribed.start.unwrap(),
            other => panic!("{other:?}"),
        };
        Self { socket, n: 0, next, marks: 0 }
    }

    /// One frame: messages are checked and counted, everything else is said.
    async fn step(&mut self) -> Option<Told> {
        let (n, offsets): (u64, Vec<u64>) = match self.socket.next().await {
            (Channel(1), ServerFrame::Msg(msg)) => (msg.n, vec![msg.o]),
            (Channel(1), ServerFrame::Msgs(msgs)) => {
                (msgs.msgs[0].n, msgs.msgs.iter().map(|msg| msg.o).collect())
            }
            (Channel(1), ServerFrame::Deliveries(frame)) => {
                (frame.n, frame.records().unwrap().iter().map(|(record, _)| record.offset.0).collect())
            }
            (Channel(1), ServerFrame::CaughtUp(mark)) => {
                assert_eq!(mark.end, self.next, "the end is where it is told");
                self.marks += 1;
                return Some(Told::CaughtUp(mark.end));
            }
            (Channel(1), ServerFrame::Gap(gap)) => {
                self.next = gap.to;
                return Some(Told::Gap(gap.from, gap.to));
            }
            (Channel(1), ServerFrame::Err(end)) => return Some(Told::Ended(code(&end.problem))),
            other => panic!("{other:?}"),
        };
        assert_eq!(n, self.n + 1, "numbers follow each other");
        self.n += offsets.len() as u64;
        assert_eq!(offsets, (self.next..self.next + offsets.len() as u64).collect::<Vec<_>>());
        self.next += offsets.len() as u64;
        None
    }

    /// Takes everything before `end`.
    async fn upto(&mut self, end: u64) {
        while self.next < end {
            assert!(!matches!(self.step().await, Some(Told::Gap(..) | Told::Ended(_))));
        }
        assert_eq!(self.next, end);
    }

    /// Takes everything that there is, and what is told of the end: once, unless it was really behind.
    async fn caught_up(&mut self, end: u64) {
        self.upto(end).await;
        while self.marks == 0 {
            assert_eq!(self.step().await, Some(Told::CaughtUp(end)));
        }
    }
}

fn code(problem: &RawJson) -> String {
    let problem: serde_json::Value = serde_json::from_str(problem.get()).unwrap();
    problem["code"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_who_wait_hold_one_stream_together_and_each_gets_each_message_once() {
    let apart = Apart::start();
    apart.make("t", "{\"partitions\":1}");
    apart.post("t", 100);
    let mut readers = Vec::new();
    for i in 0..12 {
        let form = if i % 3 == 0 { JSON } else { BINARY };
        readers.push(
            Reader::start(&apart, form, "t", if i % 2 == 0 { "latest" } else { "earliest" }, CREDIT).await,
        );
    }
    for reader in &mut readers {
        reader.caught_up(MESSAGES).await;
    }
    apart.until("one stream for all", || {
        apart.streams() == 1 && apart.gateway("weir_gateway_feed_readers") == 12
    });
    let before = measured(&apart.node.said[1], "weir_node_delivered_records_total");
    for round in 2..=30 {
        apart.post("t", 1_000);
        if round % 10 == 0 {
            for reader in &mut readers {
                reader.caught_up(round * MESSAGES).await;
            }
        }
    }
    let delivered = measured(&apart.node.said[1], "weir_node_delivered_records_total") - before;
    assert_eq!(delivered, 29 * MESSAGES, "the node sends each message once");
    assert_eq!(apart.gateway("weir_gateway_feeds"), 1);
    assert_eq!(apart.gateway("weir_gateway_feed_falls_total"), 0);
    drop(readers);
    apart.until("the feed ends with the last of them", || {
        apart.streams() == 0 && apart.gateway("weir_gateway_feeds") == 0
    });
    apart.until("nothing of it is left", || {
        ["feed_bytes", "read_credit_bytes"].iter().all(|of| apart.gateway(&format!("weir_gateway_{of}")) == 0)
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lone_reader_has_a_stream_of_its_own_and_shares_once_another_comes() {
    let apart = Apart::start();
    apart.make("t", "{\"partitions\":1}");
    let mut first = Reader::start(&apart, BINARY, "t", "latest", CREDIT).await;
    first.caught_up(0).await;
    apart.post("t", 10);
    first.caught_up(MESSAGES).await;
    assert_eq!((apart.streams(), apart.gateway("weir_gateway_feeds")), (1, 0));
    let mut second = Reader::start(&apart, BINARY, "t", "latest", CREDIT).await;
    second.caught_up(MESSAGES).await;
    apart.until("both share", || apart.streams() == 1 && apart.gateway("weir_gateway_feed_readers") == 2);
    apart.post("t", 10);
    first.caught_up(2 * MESSAGES).await;
    second.caught_up(2 * MESSAGES).await;
    assert_eq!((first.marks, second.marks), (1, 1), "once, and not behind each message");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_takes_nothing_holds_nobody_back_and_goes_on_where_it_was() {
    let apart = Apart::start();
    apart.make("t", "{\"partitions\":1}");
    let few = Limit { msgs: 5, bytes: 1 << 20 };
    let mut frozen = Reader::start(&apart, BINARY, "t", "latest", few).await;
    let mut halting = Reader::start(&apart, JSON, "t", "latest", few).await;
    let mut fast = [
        Reader::start(&apart, BINARY, "t", "latest", CREDIT).await,
        Reader::start(&apart, JSON, "t", "latest", CREDIT).await,
    ];
    apart.until("all share", || apart.gateway("weir_gateway_feed_readers") == 4);
    // Eight MiB: more than a feed keeps for who is slow.
    let rounds = 40;
    for round in 1..=rounds {
        apart.post("t", 10_000);
        for reader in &mut fast {
            reader.caught_up(round * MESSAGES).await;
        }
        // One message more each time: a batch in parts, now from the feed and now from the node.
        halting.socket.send(1, ClientFrame::Limit(Limit { msgs: 5 + round, ..CREDIT })).await;
        halting.upto(5 + round).await;
    }
    frozen.upto(5).await;
    assert!(apart.gateway("weir_gateway_feed_bytes") <= 5 << 20);
    for reader in [&mut frozen, &mut halting] {
        reader.socket.send(1, ClientFrame::Limit(CREDIT)).await;
        reader.caught_up(rounds * MESSAGES).await;
    }
    assert!(apart.gateway("weir_gateway_feed_falls_total") >= 2);
    apart
        .until("all share again", || apart.streams() == 1 && apart.gateway("weir_gateway_feed_readers") == 4);
    apart.post("t", 10);
    for reader in fast.iter_mut().chain([&mut frozen, &mut halting]) {
        reader.caught_up((rounds + 1) * MESSAGES).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_nobody_takes_the_feed_asks_for_no_more_than_a_window() {
    let apart = Apart::start();
    apart.make("t", "{\"partitions\":1}");
    let few = Limit { msgs: 1, bytes: 1 << 20 };
    let mut readers = Vec::new();
    for _ in 0..3 {
        readers.push(Reader::start(&apart, BINARY, "t", "latest", few).await);
    }
    apart.until("all share", || apart.gateway("weir_gateway_feed_readers") == 3);
    for _ in 0..20 {
        apart.post("t", 10_000);
    }
    for reader in &mut readers {
        reader.upto(1).await;
    }
    // A window of a MiB, and the batch that overshot it.
    assert!(apart.gateway("weir_gateway_feed_bytes") < 2 << 20);
    for reader in &mut readers {
        reader.socket.send(1, ClientFrame::Limit(CREDIT)).await;
    }
    for reader in &mut readers {
        reader.caught_up(20 * MESSAGES).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_retention_took_while_nobody_read_is_told_to_each_reader_as_a_gap() {
    let apart = Apart::start();
    apart.make("t", "{\"partitions\":1,\"retention\":{\"records\":40}}");
    let few = Limit { msgs: 1, bytes: 1 << 20 };
    let mut readers = Vec::new();
    for form in [BINARY, JSON, BINARY] {
        readers.push(Reader::start(&apart, form, "t", "latest", few).await);
    }
    apart.until("all share", || apart.gateway("weir_gateway_feed_readers") == 3);
    // More than the feed takes ahead of them, so that it is overtaken as well.
    for _ in 0..50 {
        apart.post("t", 10_000);
    }
    let end = 50 * MESSAGES;
    apart.until("retention takes all but the newest", || {
        let topic = apart.http().request("GET /v1/topics/t", &[], b"").unwrap().json();
        topic["partitions"][0]["start"].as_u64().unwrap() + 40 >= end
    });
    for reader in &mut readers {
        reader.socket.send(1, ClientFrame::Limit(CREDIT)).await;
    }
    for reader in &mut readers {
        let (mut gaps, mut last) = (Vec::new(), None);
        while reader.next < end || last != Some(Told::CaughtUp(end)) {
            let before = reader.next;
            last = reader.step().await;
            match last {
                Some(Told::Gap(from, to)) => {
                    assert!(from == before && to > from, "{from}..{to} where {before} was next");
                    gaps.push((from, to));
                }
                Some(Told::Ended(why)) => panic!("{why}"),
                _ => {}
            }
        }
        // Retention may have come further between two of them.
        assert_eq!(gaps.last().map(|gap| gap.1), Some(end - 40), "{gaps:?}");
    }
    apart
        .until("all share again", || apart.streams() == 1 && apart.gateway("weir_gateway_feed_readers") == 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_begins_at_the_beginning_while_others_publish_reaches_the_others() {
    let apart = Apart::start();
    apart.make("t", "{\"partitions\":1}");
    for _ in 0..50 {
        apart.post("t", 2_000);
    }
    let mut fast = Reader::start(&apart, BINARY, "t", "latest", CREDIT).await;
    let mut late = Vec::new();
    for round in 0..50 {
        apart.post("t", 2_000);
        if round % 10 == 0 {
            late.push(
                Reader::start(&apart, if round == 0 { JSON } else { BINARY }, "t", "earliest", CREDIT).await,
            );
        }
    }
    let end = 100 * MESSAGES;
    for reader in late.iter_mut().chain([&mut fast]) {
        reader.caught_up(end).await;
    }
    apart.until("all share", || apart.streams() == 1 && apart.gateway("weir_gateway_feed_readers") == 6);
    apart.post("t", 10);
    for reader in late.iter_mut().chain([&mut fast]) {
        reader.caught_up(end + MESSAGES).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_that_is_deleted_and_made_again_ends_each_reader_as_it_ends_one_alone() {
    let apart = Apart::start();
    for topic in ["shared", "alone"] {
        apart.make(topic, "{\"partitions\":1}");
        apart.post(topic, 100);
    }
    let mut alone = Reader::start(&apart, BINARY, "alone", "latest", CREDIT).await;
    let mut shared = Vec::new();
    for _ in 0..4 {
        shared.push(Reader::start(&apart, BINARY, "shared", "latest", CREDIT).await);
    }
    apart.until("all share", || apart.gateway("weir_gateway_feed_readers") == 4);
    for topic in ["shared", "alone"] {
        assert_eq!(
            apart.http().request(&format!("DELETE /v1/topics/{topic}"), &[], b"").unwrap().status,
            204
        );
        apart.make(topic, "{\"partitions\":1}");
        apart.post(topic, 100);
    }
    let mut ends = Vec::new();
    for reader in shared.iter_mut().chain([&mut alone]) {
        ends.push(loop {
            match reader.step().await {
                Some(Told::Ended(code)) => break code,
                Some(Told::CaughtUp(_)) => {}
                other => panic!("{other:?} of another topic"),
            }
        });
        assert_eq!(reader.n, 0, "nothing of the new topic is delivered on the old subscription");
    }
    assert!(ends.iter().all(|end| end == &ends[4]), "{ends:?}");
    // Who follows the new one is among its readers only.
    let mut new = Reader::start(&apart, BINARY, "shared", "earliest", CREDIT).await;
    new.caught_up(MESSAGES).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_killed_and_comes_back_is_followed_on_without_a_loss_or_a_repeat() {
    let mut apart = Apart::start();
    apart.make("t", "{\"partitions\":1}");
    let mut readers = Vec::new();
    for i in 0..6 {
        readers.push(Reader::start(&apart, if i == 0 { JSON } else { BINARY }, "t", "latest", CREDIT).await);
    }
    // One of them is behind, with a part of a batch.
    readers.push(Reader::start(&apart, BINARY, "t", "latest", Limit { msgs: 7, bytes: 1 << 20 }).await);
    apart.until("all share", || apart.gateway("weir_gateway_feed_readers") == 7);
    apart.post("t", 1_000);
    for reader in &mut readers[..6] {
        reader.caught_up(MESSAGES).await;
    }
    readers[6].upto(7).await;
    for round in 2..=4 {
        apart.node.kill();
        let (dir, address): (PathBuf, _) = (apart.dir.path().to_owned(), apart.node.said[0].clone());
        apart.node = tokio::task::spawn_blocking(move || node(&dir, &address)).await.unwrap();
        apart.post("t", 1_000);
        for reader in &mut readers[..6] {
            reader.caught_up(round * MESSAGES).await;
        }
    }
    readers[6].socket.send(1, ClientFrame::Limit(CREDIT)).await;
    readers[6].caught_up(4 * MESSAGES).await;
    apart.until("all share", || apart.streams() == 1 && apart.gateway("weir_gateway_feed_readers") == 7);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_of_several_partitions_and_of_server_sent_events_share_too() {
    let apart = Apart::start();
    apart.make("t", "{\"partitions\":1}");
    apart.make("u", "{\"partitions\":1}");
    let mut events = Vec::new();
    for line in ["GET /v1/topics/t/messages?from=latest", "GET /v1/ns/default/events?topic=t&topic=u"] {
        let mut http = apart.http();
        http.send(line, &[("Accept", "text/event-stream")], b"").unwrap();
        assert_eq!(http.head().unwrap().0, 200);
        events.push(http);
    }
    let mut socket = Reader::start(&apart, BINARY, "t", "latest", CREDIT).await;
    apart.until("three share a topic", || apart.gateway("weir_gateway_feed_readers") == 3);
    for _ in 0..10 {
        apart.post("t", 1_000);
        apart.post("u", 1_000);
    }
    socket.caught_up(10 * MESSAGES).await;
    for (http, topics) in events.iter_mut().zip([1, 2]) {
        let mut next = std::collections::BTreeMap::<String, u64>::new();
        while next.len() < topics || next.values().any(|next| *next < 10 * MESSAGES) {
            let line = http.line().unwrap();
            let Some(data) = line.strip_prefix("data: {\"topic\"") else { continue };
            let event: serde_json::Value = serde_json::from_str(&format!("{{\"topic\"{data}")).unwrap();
            let Some(offset) = event["offset"].as_u64() else { continue };
            let next = next.entry(event["topic"].as_str().unwrap().to_owned()).or_default();
            assert_eq!(offset, *next, "each once, in order");
            *next += 1;
        }
    }
}
