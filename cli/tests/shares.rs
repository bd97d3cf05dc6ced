//! A stream's partitions are shared evenly among its consumers, on any gateway: who comes gets its share,
//! what one leaves or loses is the others', and nothing is lost, out of order or shown again once it was
//! acknowledged.
#![expect(dead_code, reason = "each test uses a part of the product's client")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod frames;
mod product;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use frames::FrameSocket;
use futures_util::StreamExt as _;
use product::{Connection, Running, done, send, started};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use weir_protocol::ws::{
    Ack, Bye, ClientFrame, Hello, Limit, Msg, NumberRange, PartitionOf, ResumeChannel, ServerFrame,
    ShareChange, Sub,
};

/// Shares are even within it; with what a consumer leaves that is not heard of any more, whose place is kept for 30 s.
const SOON: Duration = Duration::from_secs(20);
const LATE: Duration = Duration::from_secs(60);
const FORMS: [&str; 2] = ["weir.v1.json", "weir.v1.bin"];

/// A partition of a topic.
type Part = (String, u32);

/// What all readers together were told.
#[derive(Default)]
struct Log {
    shown: BTreeSet<(Part, u64)>,
    settled: BTreeSet<(Part, u64)>,
    /// Which partitions each reads, as it was told.
    reads: BTreeMap<String, BTreeSet<Part>>,
}

/// A consumer that acknowledges at once all that it is shown.
struct Reader {
    task: JoinHandle<()>,
    leave: mpsc::Sender<()>,
}

impl Reader {
    async fn start(address: &str, form: &'static str, name: &str, log: &Arc<Mutex<Log>>) -> Self {
        let mut socket = FrameSocket::connect(address, form).await;
        socket.send(0, ClientFrame::Hello(Hello { v: 1, ..Hello::default() })).await;
        assert!(matches!(socket.next().await.1, ServerFrame::Welcome(_)));
        let limit = Limit { msgs: 1_000_000, bytes: 1 << 30 };
        let (sub, holder) = (Some("tail".into()), Some(name.into()));
        socket.send(1, ClientFrame::Sub(Sub { sub, holder, limit, ..Sub::default() })).await;
        assert!(matches!(socket.next().await.1, ServerFrame::Subscribed(_)));
        let (leave, left) = mpsc::channel(1);
        let task = tokio::spawn(read(socket, name.to_owned(), Arc::clone(log), left));
        Self { task, leave }
    }

    /// As a crash would end it.
    async fn kill(self) {
        self.task.abort();
        let _ended = self.task.await;
    }

    async fn leave(self) {
        self.leave.send(()).await.unwrap();
        self.task.await.unwrap();
    }
}

async fn read(mut socket: FrameSocket, name: String, log: Arc<Mutex<Log>>, mut left: mpsc::Receiver<()>) {
    let mut open = BTreeMap::<u64, (Part, u64)>::new();
    let mut reached = BTreeMap::<Part, u64>::new();
    loop {
        let frame = tokio::select! {
            frame = socket.next() => frame.1,
            _ = left.recv() => {
                socket.send(0, ClientFrame::Bye(Bye::default())).await;
                log.lock().unwrap().reads.remove(&name);
                // What comes now is not looked at: it is not acknowledged, and comes again elsewhere.
                return while let Some(Ok(_)) = socket.socket.next().await {};
            }
        };
        let frame = match frame {
            ServerFrame::LeaseLost(lost) => {
                lost.lost.iter().filter_map(|lost| lost.n).for_each(|n| drop(open.remove(&n)));
                continue;
            }
            ServerFrame::Settled(settled) => {
                let later = open.split_off(&(settled.upto + 1));
                log.lock().unwrap().settled.extend(std::mem::replace(&mut open, later).into_values());
                continue;
            }
            ServerFrame::Share(ShareChange { gained, lost }) => {
                let part = |of: PartitionOf| (of.topic.unwrap(), of.p);
                let mut log = log.lock().unwrap();
                let reads = log.reads.entry(name.clone()).or_default();
                for part in lost.into_iter().map(part) {
                    assert!(reads.remove(&part), "{name} loses what it did not read: {part:?}");
                }
                for part in gained.into_iter().map(part) {
                    reached.remove(&part);
                    assert!(reads.insert(part.clone()), "{name} gains {part:?} twice");
                }
                continue;
            }
            frame => frame,
        };
        let shown = shown_by(frame);
        let last = shown.last().unwrap().0;
        {
            let mut log = log.lock().unwrap();
            for (n, part, offset) in shown {
                assert!(log.reads[&name].contains(&part), "{name} does not read {part:?}");
                assert!(!log.settled.contains(&(part.clone(), offset)), "{part:?} {offset} was acknowledged");
                let before = reached.insert(part.clone(), offset);
                assert!(
                    before.is_none_or(|before| before + 1 == offset),
                    "{part:?}: {offset} after {before:?}"
                );
                log.shown.insert((part.clone(), offset));
                open.insert(n, (part, offset));
            }
        }
        let n = vec![NumberRange { first: last, last }];
        socket.send(1, ClientFrame::Ack(Ack { n, cum: true, ..Ack::default() })).await;
    }
}

/// The messages of a frame: delivery number, partition and offset.
fn shown_by(frame: ServerFrame) -> Vec<(u64, Part, u64)> {
    let of = |msg: Msg| (msg.n, (msg.topic.unwrap_or_default(), msg.p), msg.o);
    match frame {
        ServerFrame::Msg(msg) => vec![of(*msg)],
        ServerFrame::Msgs(msgs) => msgs.msgs.into_iter().map(of).collect(),
        ServerFrame::Deliveries(frame) => {
            let p = frame.slices[0].parsed().unwrap().header().partition.0;
            let part = (frame.topic.as_ref().map(ToString::to_string).unwrap_or_default(), p);
            let records = (frame.n..).zip(frame.records().unwrap());
            records.map(|(n, (record, _))| (n, part.clone(), record.offset.0)).collect()
        }
        other => panic!("{other:?}"),
    }
}

/// Who reads how many partitions, as operators are told.
fn readers(http: &mut Connection) -> BTreeMap<String, usize> {
    let seen = done(http, "GET /v1/subscriptions/tail", &Value::Null);
    let mut counts = BTreeMap::new();
    for part in seen["parts"].as_array().unwrap() {
        let reader = part["reader"].as_str().unwrap_or("nobody");
        *counts.entry(reader.split(' ').next().unwrap().to_owned()).or_default() += 1;
    }
    counts
}

/// Waits until these read so many partitions each, in any order of numbers, and are told so.
async fn shared(
    http: &mut Connection,
    log: &Mutex<Log>,
    names: &[&str],
    mut counts: Vec<usize>,
    within: Duration,
) {
    let start = Instant::now();
    counts.sort_unstable();
    loop {
        let now = readers(http);
        let mut read: Vec<_> = now.values().copied().collect();
        read.sort_unstable();
        let is_so = now.keys().map(String::as_str).eq(names.iter().copied()) && read == counts;
        let is_told = {
            let log = log.lock().unwrap();
            now.iter().all(|(name, count)| log.reads.get(name).is_some_and(|reads| reads.len() == *count))
        };
        if is_so && is_told {
            return;
        }
        assert!(start.elapsed() < within, "{now:?}, not {names:?} with {counts:?}");
        sleep(Duration::from_millis(50)).await;
    }
}

/// Publishes to all partitions of both topics until it is told to stop; how many messages.
fn publisher(address: &str, stop: &Arc<AtomicBool>) -> std::thread::JoinHandle<usize> {
    let (mut http, stop) = (Connection::open(address).unwrap(), Arc::clone(stop));
    std::thread::spawn(move || {
        let mut count = 0;
        while !stop.load(Ordering::Relaxed) {
            for topic in ["orders", "returns"] {
                let lines: String =
                    (0..24).map(|n| format!("{{\"key\":\"k{n}\",\"data\":{count}}}\n")).collect();
                let media = [("Content-Type", "application/x-ndjson")];
                let line = format!("POST /v1/topics/{topic}/messages:batch");
                let sent = http.request(&line, &media, lines.as_bytes()).unwrap();
                assert_eq!(sent.status, 200, "{}", sent.text());
                count += 24;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        count
    })
}

fn gateway(dir: &Path, node: &str) -> (Running, String) {
    let gateway = Running::start(dir, &["gateway", "--node", node, "--listen", "127.0.0.1:0"]);
    let address = gateway.said[0].strip_prefix("http://").unwrap().to_owned();
    (gateway, address)
}

fn lock(log: &Mutex<Log>) -> MutexGuard<'_, Log> {
    log.lock().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_comes_gets_its_share_and_what_one_leaves_or_loses_is_shared_again() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let data = dir.path().join("data");
    let node =
        ["node", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--data-dir", data.to_str().unwrap()];
    let node = Running::start(dir.path(), &node);
    let gateways = [gateway(dir.path(), &node.said[0]), gateway(dir.path(), &node.said[0])];
    let mut http = Connection::open(&gateways[0].1).unwrap();
    // Eight partitions of two topics, in several shards.
    done(&mut http, "PUT /v1/topics/orders", &json!({"partitions": 5}));
    done(&mut http, "PUT /v1/topics/returns", &json!({"partitions": 3}));
    let config = json!({"mode": "stream", "topics": ["orders", "returns"], "lease_ms": 10_000});
    done(&mut http, "PUT /v1/subscriptions/tail", &config);
    let (stop, log) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Log::default())));
    let published = publisher(&gateways[1].1, &stop);
    let start = async |at: usize| {
        let name = ["r0", "r1", "r2", "r3"][at];
        Reader::start(&gateways[at % 2].1, FORMS[at / 2], name, &log).await
    };
    let r0 = start(0).await;
    shared(&mut http, &log, &["r0"], vec![8], SOON).await;
    let (r1, r2, r3) = (start(1).await, start(2).await, start(3).await);
    shared(&mut http, &log, &["r0", "r1", "r2", "r3"], vec![2; 4], SOON).await;
    let before = lock(&log).reads.clone();
    r3.kill().await;
    shared(&mut http, &log, &["r0", "r1", "r2"], vec![3, 3, 2], LATE).await;
    for name in ["r0", "r1", "r2"] {
        assert!(lock(&log).reads[name].is_superset(&before[name]), "what it read it reads on");
    }
    r1.leave().await;
    shared(&mut http, &log, &["r0", "r2"], vec![4, 4], SOON).await;
    stop.store(true, Ordering::Relaxed);
    let count = published.join().unwrap();
    let end = Instant::now() + SOON;
    loop {
        let left = done(&mut http, "GET /v1/subscriptions/tail", &Value::Null)["totals"]["unsettled"].clone();
        let shown = lock(&log).shown.len();
        if (shown, left.as_u64()) == (count, Some(0)) {
            break;
        }
        assert!(Instant::now() < end, "{shown} of {count} were shown, {left} are not acknowledged");
        sleep(Duration::from_millis(50)).await;
    }
    for reader in [r0, r2] {
        assert!(!reader.task.is_finished(), "what it was shown was in order");
        reader.leave().await;
    }
}

/// Waits until the gateway counts so many partitions that are consumed.
async fn consumed(http: &mut Connection, count: usize) {
    let end = Instant::now() + SOON;
    loop {
        let metrics = http.request("GET /metrics", &[], b"").unwrap().text();
        let now = metrics.lines().find_map(|line| line.strip_prefix("weir_gateway_lease_streams "));
        if now.unwrap().parse::<usize>().unwrap() == count {
            return;
        }
        assert!(Instant::now() < end, "{now:?}, not {count}");
        sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_gone_takes_no_place_of_the_gateway_whoever_read_it() {
    let (_dir, product, mut http) = started();
    let config = json!({"mode": "stream", "topics": ["t-*"], "lease_ms": 10_000});
    done(&mut http, "PUT /v1/subscriptions/tail", &config);
    let log = Arc::new(Mutex::new(Log::default()));
    let mut readers = Vec::new();
    for name in ["r0", "r1"] {
        readers.push(Reader::start(&product.address, FORMS[0], name, &log).await);
    }
    done(&mut http, "PUT /v1/topics/t-1", &json!({"partitions": 4}));
    let (end, even) = (Instant::now() + SOON, [2, 2]);
    while !lock(&log).reads.values().map(BTreeSet::len).eq(even) {
        assert!(Instant::now() < end, "{:?}", lock(&log).reads);
        sleep(Duration::from_millis(50)).await;
    }
    // Each has all of them, of which it reads two.
    consumed(&mut http, 8).await;
    done(&mut http, "DELETE /v1/topics/t-1", &Value::Null);
    consumed(&mut http, 0).await;
}

/// Reads until so many messages were shown; its resume token, the partitions that it gained and the messages.
async fn shown_first(
    address: &str,
    form: &'static str,
    (hello, count): (Hello, usize),
) -> (String, BTreeSet<u32>, BTreeSet<(Part, u64)>) {
    let mut socket = FrameSocket::connect(address, form).await;
    socket.send(0, ClientFrame::Hello(hello)).await;
    let ServerFrame::Welcome(welcome) = socket.next().await.1 else { panic!("no welcome") };
    let (sub, limit) = (Some("tail".into()), Limit { msgs: 1_000, bytes: 1 << 20 });
    socket.send(1, ClientFrame::Sub(Sub { sub, limit, ..Sub::default() })).await;
    assert!(matches!(socket.next().await.1, ServerFrame::Subscribed(_)));
    let (mut gained, mut shown) = (BTreeSet::new(), BTreeSet::new());
    while shown.len() < count {
        match socket.next().await.1 {
            ServerFrame::Share(share) => gained.extend(share.gained.iter().map(|part| part.p)),
            frame => shown.extend(shown_by(frame).into_iter().map(|(_, part, offset)| (part, offset))),
        }
    }
    (welcome.resume, gained, shown)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_comes_back_has_its_share_at_once_and_not_beside_what_it_was() {
    for form in FORMS {
        let (_dir, product, mut http) = started();
        done(&mut http, "PUT /v1/topics/orders", &json!({"partitions": 4}));
        done(&mut http, "PUT /v1/subscriptions/tail", &json!({"mode": "stream", "topics": ["orders"]}));
        publish(&mut http, 0..60);
        let hello = Hello { v: 1, ..Hello::default() };
        let (resume, gained, first) = shown_first(&product.address, form, (hello, 60)).await;
        assert_eq!(gained.len(), 4);
        // It broke. What is its for half a minute more is its again when it is back.
        let channels = vec![ResumeChannel { ch: 1, n: Some(60), ..ResumeChannel::default() }];
        let hello = Hello { v: 1, resume: Some(resume), channels, ..Hello::default() };
        let (_, gained, again) = shown_first(&product.address, form, (hello, 60)).await;
        assert_eq!((gained.len(), again), (4, first));
    }
}

fn pull(http: &mut Connection, holder: &str, wait_ms: u64) -> Vec<Value> {
    let body = json!({"holder": holder, "max": 100, "wait_ms": wait_ms});
    done(http, "POST /v1/subscriptions/tail:pull", &body)["messages"].as_array().unwrap().clone()
}

/// Acknowledges the last message of each partition: what came of it, by partition.
fn ack_all(http: &mut Connection, messages: &[Value]) -> BTreeMap<u64, String> {
    let last: BTreeMap<u64, &Value> =
        messages.iter().map(|message| (message["partition"].as_u64().unwrap(), &message["lease"])).collect();
    let body = json!({"ack": last.values().collect::<Vec<_>>()});
    let settled = send(http, "POST /v1/subscriptions/tail:settle", &body).json();
    let results = settled["results"].as_array().unwrap().iter();
    let results = results.map(|result| result["result"].as_str().unwrap().to_owned());
    last.into_keys().zip(results).collect()
}

fn publish(http: &mut Connection, values: std::ops::Range<u64>) {
    let lines: String = values.map(|n| format!("{{\"key\":\"k{n}\",\"data\":{n}}}\n")).collect();
    let media = [("Content-Type", "application/x-ndjson")];
    let sent = http.request("POST /v1/topics/orders/messages:batch", &media, lines.as_bytes()).unwrap();
    assert_eq!(sent.status, 200, "{}", sent.text());
}

#[test]
fn two_that_pull_share_a_stream_and_who_is_silent_loses_its_share() {
    let (_dir, _product, mut http) = started();
    done(&mut http, "PUT /v1/topics/orders", &json!({"partitions": 4}));
    let config = json!({"mode": "stream", "topics": ["orders"], "lease_ms": 10_000});
    done(&mut http, "PUT /v1/subscriptions/tail", &config);
    publish(&mut http, 0..60);
    let partitions = |messages: &[Value]| {
        messages.iter().map(|message| message["partition"].as_u64().unwrap()).collect::<BTreeSet<_>>()
    };
    let first = pull(&mut http, "a", 0);
    assert_eq!((first.len(), partitions(&first).len()), (60, 4), "alone it reads them all");
    // What the other was shown it may acknowledge for a while; then it is shown to who has it now.
    let mut second = Vec::new();
    while partitions(&second).len() < 2 {
        second.extend(pull(&mut http, "b", 10_000));
    }
    let of_b = partitions(&second);
    assert_eq!(of_b.len(), 2);
    for (partition, result) in ack_all(&mut http, &first) {
        let expected = if of_b.contains(&partition) { "lease_lost" } else { "ok" };
        assert_eq!(result, expected, "partition {partition}");
    }
    assert!(ack_all(&mut http, &second).values().all(|result| result == "ok"));
    assert_eq!(readers(&mut http), BTreeMap::from([("a".into(), 2), ("b".into(), 2)]));
    publish(&mut http, 60..120);
    let mine = pull(&mut http, "a", 10_000);
    assert!(partitions(&mine).is_disjoint(&of_b), "what it lost is not its to read");
    assert!(ack_all(&mut http, &mine).values().all(|result| result == "ok"));
    // From now on the other is silent.
    let mut count = mine.len();
    let end = std::time::Instant::now() + LATE;
    while count < 60 {
        assert!(std::time::Instant::now() < end, "{count} of 60 came");
        let got = pull(&mut http, "a", 5_000);
        assert!(ack_all(&mut http, &got).values().all(|result| result == "ok"));
        count += got.len();
    }
    let seen = done(&mut http, "GET /v1/subscriptions/tail", &Value::Null);
    assert_eq!((count, &seen["totals"]["unsettled"]), (60, &json!(0)));
    assert_eq!(readers(&mut http), BTreeMap::from([("a".into(), 4)]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_died_is_given_nothing_and_what_it_had_is_free_after_the_lease() {
    let (_dir, product, mut http) = started();
    for topic in ["orders", "returns"] {
        done(&mut http, &format!("PUT /v1/topics/{topic}"), &json!({"partitions": 3}));
    }
    let config = json!({"mode": "stream", "topics": ["orders", "returns"], "lease_ms": 6_000});
    done(&mut http, "PUT /v1/subscriptions/tail", &config);
    let (stop, log) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Log::default())));
    let publisher = publisher(&product.address, &stop);
    let _a = Reader::start(&product.address, FORMS[0], "a", &log).await;
    let b = Reader::start(&product.address, FORMS[1], "b", &log).await;
    let c = Reader::start(&product.address, FORMS[0], "c", &log).await;
    shared(&mut http, &log, &["a", "b", "c"], vec![2, 2, 2], SOON).await;
    b.kill().await;
    // The gateway has heard of it once nobody is read for there.
    let begin = Instant::now();
    c.leave().await;
    let of_a = || lock(&log).reads["a"].len();
    while of_a() < 4 {
        assert!(begin.elapsed() < SOON, "{} partitions", of_a());
        sleep(Duration::from_millis(20)).await;
    }
    lock(&log).reads.remove("b");
    // A lease, and not half a minute.
    shared(&mut http, &log, &["a"], vec![6], SOON).await;
    stop.store(true, Ordering::Relaxed);
    publisher.join().unwrap();
}
