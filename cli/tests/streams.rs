//! Subscriptions as streams: one reader of a partition at a time, in order, acknowledged up to a message; through the
//! public interface of the real product.
#![expect(dead_code, reason = "each test uses a part of the product's client")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod frames;
mod product;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::process::Command;
use std::time::Duration;

use frames::FrameSocket;
use product::{Connection, Product, done, send, started};
use serde_json::{Value, json};
use tokio::time::timeout;
use weir_protocol::ws::{
    Ack, Bye, ClientFrame, Hello, Limit, Nack, NumberRange, ResumeChannel, ServerFrame, Sub,
};

/// What does not come within it is taken not to come.
const MOMENT: Duration = Duration::from_millis(400);
const FORMS: [&str; 2] = ["weir.v1.json", "weir.v1.bin"];

fn create(http: &mut Connection, partitions: u32, more: &Value) {
    done(http, "PUT /v1/topics/orders", &json!({"partitions": partitions}));
    subscribe(http, "tail", more);
}

fn subscribe(http: &mut Connection, name: &str, more: &Value) {
    let mut config = json!({"mode": "stream", "topics": ["orders"], "lease_ms": 2_000});
    config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let made = done(http, &format!("PUT /v1/subscriptions/{name}"), &config);
    assert_eq!(made["config"]["mode"], "stream");
}

/// Publishes numbers with their key, which says the partition.
fn publish(http: &mut Connection, values: std::ops::Range<u64>) {
    let lines: String = values.map(|n| format!("{{\"key\":\"k{}\",\"data\":{n}}}\n", n % 7)).collect();
    let media = [("Content-Type", "application/x-ndjson")];
    let sent = http.request("POST /v1/topics/orders/messages:batch", &media, lines.as_bytes()).unwrap();
    assert_eq!(sent.status, 200, "{}", sent.text());
}

fn pull(http: &mut Connection, name: &str, holder: &str, max: u64, wait_ms: u64) -> Vec<Value> {
    let body = json!({"holder": holder, "max": max, "wait_ms": wait_ms});
    done(http, &format!("POST /v1/subscriptions/{name}:pull"), &body)["messages"].as_array().unwrap().clone()
}

fn ack(http: &mut Connection, name: &str, message: &Value) -> String {
    let body = json!({"ack": [message["lease"]]});
    let settled = send(http, &format!("POST /v1/subscriptions/{name}:settle"), &body).json();
    settled["results"][0]["result"].as_str().unwrap().to_owned()
}

fn values(messages: &[Value]) -> Vec<u64> {
    messages.iter().map(|message| message["data"].as_u64().unwrap()).collect()
}

#[test]
fn one_reads_in_order_and_acknowledges_up_to_a_message_and_another_takes_over_when_it_is_silent() {
    let (_dir, _product, mut http) = started();
    create(&mut http, 1, &json!({"lease_ms": 6_000}));
    publish(&mut http, 0..10);
    let first = pull(&mut http, "tail", "a", 4, 0);
    assert_eq!(values(&first), [0, 1, 2, 3]);
    assert_eq!(values(&pull(&mut http, "tail", "a", 4, 0)), [0, 1, 2, 3], "not acknowledged: the same again");
    assert!(pull(&mut http, "tail", "b", 4, 0).is_empty(), "one at a time");
    assert_eq!(ack(&mut http, "tail", &first[2]), "ok", "and what is before it");
    assert_eq!(values(&pull(&mut http, "tail", "a", 2, 0)), [3, 4]);
    let seen = done(&mut http, "GET /v1/subscriptions/tail", &Value::Null);
    assert_eq!((&seen["parts"][0]["floor"], &seen["totals"]["unsettled"]), (&json!(3), &json!(7)));
    // It is silent from now on; who waits takes its place, and gets what was not acknowledged.
    let next = pull(&mut http, "tail", "b", 3, 20_000);
    assert_eq!(values(&next), [3, 4, 5]);
    assert_eq!(ack(&mut http, "tail", &first[3]), "lease_lost");
    assert_eq!(ack(&mut http, "tail", &first[0]), "already_settled");
    assert_eq!(ack(&mut http, "tail", &next[2]), "ok");
    for (body, status) in [
        (json!({"nack": [{"lease": next[0]["lease"]}]}), 409),
        (json!({"dead": [{"lease": next[0]["lease"]}]}), 409),
        (json!({"extend": [{"lease": next[0]["lease"], "ms": 5_000}]}), 409),
        (json!({"ack": [next[0]["lease"]], "nack": [{"lease": next[0]["lease"]}]}), 409),
        (json!({"ack": [next[0]["lease"]], "publish": [{"topic": "orders", "data": 1}]}), 409),
    ] {
        let refused = send(&mut http, "POST /v1/subscriptions/tail:settle", &body);
        assert_eq!((refused.status, &refused.json()["code"]), (status, &json!("not_supported")), "{body}");
    }
    let refused = send(&mut http, "POST /v1/subscriptions/tail:redrive", &json!({}));
    assert_eq!((refused.status, &refused.json()["code"]), (409, &json!("not_supported")));
    let nameless = send(&mut http, "POST /v1/subscriptions/tail:pull", &json!({}));
    assert_eq!((nameless.status, &nameless.json()["field"]), (400, &json!("holder")), "{}", nameless.text());
    assert_eq!(ack(&mut http, "tail", &next[2]), "ok", "once more");
    assert_eq!(values(&pull(&mut http, "tail", "b", 9, 0)), [6, 7, 8, 9], "nothing else came of it");
}

#[test]
fn where_messages_stand_is_told_and_a_seek_can_be_undone() {
    let (_dir, _product, mut http) = started();
    create(&mut http, 1, &json!({"lease_ms": 60_000}));
    publish(&mut http, 0..10);
    let shown = pull(&mut http, "tail", "a", 6, 0);
    assert_eq!(ack(&mut http, "tail", &shown[1]), "ok");
    let part = |http: &mut Connection| {
        let seen = done(http, "GET /v1/subscriptions/tail", &Value::Null)["parts"][0].clone();
        ["floor", "leased", "ready", "reader"].map(|field| seen[field].clone())
    };
    assert_eq!(part(&mut http), [json!(2), json!(4), json!(4), json!("a")]);
    let held = done(&mut http, "GET /v1/subscriptions/tail/leases?limit=3", &Value::Null);
    let ids = |page: &Value| {
        page["items"].as_array().unwrap().iter().map(|item| item["id"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(
        (ids(&held), &held["items"][0]["holder"]),
        (vec!["0:2".into(), "0:3".into(), "0:4".into()], &json!("a"))
    );
    let line = format!("GET /v1/subscriptions/tail/leases?cursor={}", held["next"].as_str().unwrap());
    assert_eq!(ids(&done(&mut http, &line, &Value::Null)), ["0:5"]);
    let ready = done(&mut http, "GET /v1/subscriptions/tail/state?of=ready", &Value::Null);
    assert_eq!(ids(&ready), ["0:6", "0:7", "0:8", "0:9"]);
    for (id, state, reasons) in
        [("0:1", "settled", json!([])), ("0:3", "leased", json!([])), ("0:7", "ready", json!(["in_line"]))]
    {
        let explained = done(&mut http, &format!("GET /v1/subscriptions/tail/explain?id={id}"), &Value::Null);
        assert_eq!((&explained["state"], &explained["reasons"]), (&json!(state), &reasons), "{explained}");
    }
    let seek = |http: &mut Connection, query: &str, body: Value| {
        done(http, &format!("POST /v1/subscriptions/tail:seek{query}"), &body)
    };
    let would = seek(&mut http, "?dry_run=true", json!({"to": "0"}));
    assert_eq!((&would["redelivered"], &would["skipped"]), (&json!(6), &json!(0)), "all that was shown");
    let moved = seek(&mut http, "", json!({"to": "8"}));
    assert_eq!(moved["skipped"], 6);
    assert_eq!(ack(&mut http, "tail", &shown[5]), "already_settled");
    assert_eq!(part(&mut http), [json!(8), json!(0), json!(2), Value::Null]);
    let got = pull(&mut http, "tail", "a", 1, 0);
    assert_eq!((values(&got), ack(&mut http, "tail", &got[0])), (vec![8], "ok".to_owned()));
    seek(&mut http, "", json!({"to": "undo", "undo": moved["undo"]}));
    assert_eq!(ack(&mut http, "tail", &shown[4]), "lease_lost", "of before the seek");
    assert_eq!(
        values(&pull(&mut http, "tail", "a", 9, 0)),
        [2, 3, 4, 5, 6, 7, 9],
        "8 was acknowledged since"
    );
    done(&mut http, "POST /v1/subscriptions/tail:pause", &Value::Null);
    assert!(pull(&mut http, "tail", "a", 9, 0).is_empty());
    done(&mut http, "POST /v1/subscriptions/tail:resume", &Value::Null);
    let got = pull(&mut http, "tail", "a", 9, 0);
    assert_eq!(ack(&mut http, "tail", got.last().unwrap()), "ok");
    assert_eq!(part(&mut http), [json!(10), json!(0), json!(0), json!("a")]);
}

#[test]
fn a_stream_begins_where_it_is_told_and_says_what_is_not_there() {
    let (_dir, _product, mut http) = started();
    done(&mut http, "PUT /v1/topics/orders", &json!({}));
    publish(&mut http, 0..10);
    for (start, from) in [
        ("earliest", 0),
        ("tail:3", 7),
        ("4", 4),
        ("99", 10),
        ("latest", 10),
        ("ts:0", 0),
        ("ts:2100-01-01T00:00:00Z", 10),
    ] {
        let name = format!("s-{}", start.replace(':', "-"));
        subscribe(&mut http, &name, &json!({"start": start}));
        let expected: Vec<u64> = (from..10).collect();
        assert_eq!(values(&pull(&mut http, &name, "a", 100, 0)), expected, "{start}");
    }
    let beyond = send(&mut http, "POST /v1/subscriptions/s-4:seek", &json!({"to": "11"}));
    assert_eq!((beyond.status, &beyond.json()["code"]), (416, &json!("beyond_tail")), "{}", beyond.text());
    let moved = done(&mut http, "POST /v1/subscriptions/s-4:seek", &json!({"to": "8"}));
    assert_eq!(moved["parts"][0]["floor"], 8);
    assert_eq!(values(&pull(&mut http, "s-4", "a", 100, 0)), [8, 9]);
    let refused = send(&mut http, "PATCH /v1/subscriptions/s-4", &json!({"mode": "queue"}));
    assert_eq!((refused.status, &refused.json()["field"]), (409, &json!("mode")), "{}", refused.text());
    for field in ["dlq", "filter"] {
        let config = json!({"mode": "stream", "topics": ["orders"], field: "key == 'a'"});
        let refused = send(&mut http, "PUT /v1/subscriptions/bad", &config);
        assert_eq!((refused.status, &refused.json()["field"]), (409, &json!(field)), "{}", refused.text());
    }
}

#[test]
fn after_a_kill_no_acknowledged_message_comes_again_and_no_other_is_missing() {
    let (dir, mut product, mut http) = started();
    create(&mut http, 3, &json!({}));
    publish(&mut http, 0..60);
    let (mut acked, mut rounds) = (BTreeSet::new(), 0);
    while rounds < 6 {
        let got = pull(&mut http, "tail", "a", 10, 10_000);
        let half = &got[..got.len().div_ceil(2)];
        assert_eq!(ack(&mut http, "tail", half.last().unwrap()), "ok");
        // Of the partition of the last one everything up to it.
        let last = half.last().unwrap();
        let is_acked = |message: &&Value| {
            message["partition"] == last["partition"] && message["offset"].as_u64() <= last["offset"].as_u64()
        };
        acked.extend(values(
            &half.iter().filter(is_acked).map(|message| (*message).clone()).collect::<Vec<_>>(),
        ));
        rounds += 1;
    }
    let before = pull(&mut http, "tail", "a", 3, 10_000);
    product.kill();
    drop(product);
    let product = Product::start(dir.path());
    let mut http = Connection::open(&product.address).unwrap();
    // Who worked on while the node was gone need not do it again.
    assert_eq!(ack(&mut http, "tail", &before[0]), "ok");
    acked.extend(values(&before[..1]));
    let mut last_of = BTreeMap::new();
    let mut came = Vec::new();
    while came.len() + acked.len() < 60 {
        let got = pull(&mut http, "tail", "b", 100, 10_000);
        assert!(!got.is_empty(), "{} of 60 came", came.len());
        for message in &got {
            let (partition, offset) =
                (message["partition"].as_u64().unwrap(), message["offset"].as_u64().unwrap());
            assert!(last_of.insert(partition, offset).is_none_or(|before| before < offset), "in order");
        }
        for value in values(&got) {
            assert!(!acked.contains(&value), "{value} was acknowledged");
            came.push(value);
        }
        let partitions: BTreeSet<_> =
            got.iter().map(|message| message["partition"].as_u64().unwrap()).collect();
        for partition in partitions {
            let last =
                got.iter().rev().find(|message| message["partition"].as_u64() == Some(partition)).unwrap();
            assert_eq!(ack(&mut http, "tail", last), "ok");
        }
    }
    came.extend(acked);
    came.sort_unstable();
    assert_eq!(came, (0..60).collect::<Vec<_>>());
}

/// One message, as a reader is told of it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Shown {
    n: u64,
    topic: Option<String>,
    p: u32,
    o: u64,
}

/// A reader of `tail` on channel 1.
struct Reader {
    socket: FrameSocket,
    resume: String,
    frames: VecDeque<ServerFrame>,
    shown: VecDeque<Shown>,
}

impl Reader {
    async fn connect(address: &str, form: &'static str, hello: Hello) -> Self {
        let socket = FrameSocket::connect(address, form).await;
        let (frames, shown) = (VecDeque::new(), VecDeque::new());
        let mut reader = Self { socket, resume: String::new(), frames, shown };
        reader.socket.send(0, ClientFrame::Hello(hello)).await;
        match reader.frame().await {
            ServerFrame::Welcome(welcome) => reader.resume = welcome.resume,
            other => panic!("{other:?}"),
        }
        reader
    }

    async fn start(address: &str, form: &'static str) -> Self {
        let mut reader = Self::connect(address, form, Hello { v: 1, ..Hello::default() }).await;
        reader.sub().await;
        reader
    }

    async fn sub(&mut self) {
        let limit = Limit { msgs: 1_000, bytes: 1 << 20 };
        self.send(ClientFrame::Sub(Sub { sub: Some("tail".into()), limit, ..Sub::default() })).await;
        assert!(matches!(self.frame().await, ServerFrame::Subscribed(_)));
    }

    async fn send(&mut self, frame: ClientFrame) {
        self.socket.send(1, frame).await;
    }

    async fn read(&mut self) {
        let of = |msg: weir_protocol::ws::Msg| Shown { n: msg.n, topic: msg.topic, p: msg.p, o: msg.o };
        match self.socket.next().await.1 {
            ServerFrame::Msg(msg) => self.shown.push_back(of(*msg)),
            ServerFrame::Msgs(msgs) => self.shown.extend(msgs.msgs.into_iter().map(of)),
            ServerFrame::Deliveries(frame) => {
                let p = frame.slices[0].parsed().unwrap().header().partition.0;
                let topic = frame.topic.as_ref().map(ToString::to_string);
                let records = (frame.n..).zip(frame.records().unwrap());
                self.shown.extend(records.map(|(n, (record, _))| Shown {
                    n,
                    topic: topic.clone(),
                    p,
                    o: record.offset.0,
                }));
            }
            // Which partitions it reads is tested where several share them.
            ServerFrame::Share(_) => {}
            frame => self.frames.push_back(frame),
        }
    }

    /// The next frame that shows no message.
    async fn frame(&mut self) -> ServerFrame {
        while self.frames.is_empty() {
            self.read().await;
        }
        self.frames.pop_front().unwrap()
    }

    /// The next messages, so many.
    async fn take(&mut self, count: usize) -> Vec<Shown> {
        while self.shown.len() < count {
            self.read().await;
        }
        self.shown.drain(..count).collect()
    }

    /// Nothing comes for a moment.
    async fn is_quiet(&mut self) -> bool {
        self.shown.is_empty() && timeout(MOMENT, self.read()).await.is_err()
    }

    /// Acknowledges up to a number, and waits until it is so.
    async fn ack(&mut self, n: u64, cum: bool) {
        let ack = Ack { n: vec![NumberRange { first: n, last: n }], cum, ..Ack::default() };
        self.send(ClientFrame::Ack(ack)).await;
        let mut is_settled = false;
        while !is_settled {
            match self.frame().await {
                ServerFrame::Settled(settled) if cum => is_settled = settled.upto >= n,
                ServerFrame::Settled(settled) => {
                    is_settled = settled.n.iter().any(|range| (range.first..=range.last).contains(&n));
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

fn offsets(shown: &[Shown]) -> Vec<u64> {
    shown.iter().map(|shown| shown.o).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_websocket_a_reader_goes_on_behind_its_last_acknowledgement_and_another_follows_when_it_leaves()
{
    for form in FORMS {
        let (_dir, product, mut http) = started();
        create(&mut http, 1, &json!({}));
        publish(&mut http, 0..6);
        let mut first = Reader::start(&product.address, form).await;
        let got = first.take(6).await;
        assert_eq!(offsets(&got), [0, 1, 2, 3, 4, 5]);
        first.ack(got[1].n, false).await;
        let nack = Nack { n: vec![NumberRange { first: 3, last: 3 }], ..Nack::default() };
        first.send(ClientFrame::Nack(nack)).await;
        match first.frame().await {
            ServerFrame::Err(refused) => {
                let problem = serde_json::to_value(&refused.problem).unwrap();
                assert_eq!(
                    (&problem["code"], &problem["outcome"]),
                    (&json!("not_supported"), &json!("none"))
                );
            }
            other => panic!("{other:?}"),
        }
        first.ack(got[2].n, true).await;
        // It breaks, and comes back: what it did not acknowledge comes again.
        let channels = vec![ResumeChannel { ch: 1, n: Some(got[5].n), ..ResumeChannel::default() }];
        let hello = Hello { v: 1, resume: Some(first.resume.clone()), channels, ..Hello::default() };
        drop(first);
        let mut again = Reader::connect(&product.address, form, hello).await;
        again.sub().await;
        let got = again.take(3).await;
        assert_eq!(offsets(&got), [3, 4, 5]);
        let mut other = Reader::start(&product.address, form).await;
        publish(&mut http, 6..7);
        assert_eq!(offsets(&again.take(1).await), [6]);
        assert!(other.is_quiet().await, "one at a time");
        again.ack(got[2].n, true).await;
        again.socket.send(0, ClientFrame::Bye(Bye::default())).await;
        let got = other.take(1).await;
        assert_eq!(offsets(&got), [6], "it left: the next begins behind what it acknowledged");
        other.ack(got[0].n, true).await;
        publish(&mut http, 7..9);
        assert_eq!(offsets(&other.take(2).await), [7, 8]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_kill_a_reader_goes_on_at_the_committed_cursor() {
    for form in FORMS {
        let (dir, mut product, mut http) = started();
        create(&mut http, 1, &json!({}));
        publish(&mut http, 0..50);
        let mut reader = Reader::start(&product.address, form).await;
        let got = reader.take(50).await;
        reader.ack(got[20].n, true).await;
        product.kill();
        drop(product);
        let product = Product::start(dir.path());
        let mut http = Connection::open(&product.address).unwrap();
        let seen = done(&mut http, "GET /v1/subscriptions/tail", &Value::Null);
        assert_eq!(seen["parts"][0]["floor"], 21);
        let mut reader = Reader::start(&product.address, form).await;
        assert_eq!(offsets(&reader.take(29).await), (21..50).collect::<Vec<_>>());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_partitions_and_other_topics_come_together_each_in_its_order() {
    for form in FORMS {
        let (_dir, product, mut http) = started();
        done(&mut http, "PUT /v1/topics/orders", &json!({"partitions": 4}));
        subscribe(&mut http, "tail", &json!({"topics": ["order*"]}));
        let mut reader = Reader::start(&product.address, form).await;
        publish(&mut http, 0..200);
        let check = |all: &[Shown]| {
            let mut next = BTreeMap::new();
            for shown in all {
                let next = next.entry((shown.topic.clone(), shown.p)).or_insert(0);
                assert_eq!(shown.o, *next, "{shown:?}");
                *next += 1;
            }
            next
        };
        let all = reader.take(200).await;
        assert_eq!(check(&all).len(), 4, "keys of every partition");
        // An acknowledgement of the last one of a partition is one of that partition alone.
        let of_two: Vec<_> = all.iter().filter(|shown| shown.p == 2).collect();
        reader.ack(of_two.last().unwrap().n, false).await;
        let seen = done(&mut http, "GET /v1/subscriptions/tail", &Value::Null);
        let floors = seen["parts"].as_array().unwrap().iter().map(|part| part["floor"].as_u64().unwrap());
        let floors: Vec<_> = floors.collect();
        assert_eq!(floors, [0, 0, of_two.len() as u64, 0]);
        // A topic that comes later is read from its beginning.
        done(&mut http, "PUT /v1/topics/orders-eu", &json!({"partitions": 1}));
        for _ in 0..3 {
            let media = [("Content-Type", "application/json")];
            assert_eq!(http.request("POST /v1/topics/orders-eu/messages", &media, b"1").unwrap().status, 201);
        }
        let more = reader.take(3).await;
        assert_eq!((offsets(&more), more[0].topic.as_deref()), (vec![0, 1, 2], Some("orders-eu")));
        reader.ack(more[2].n, true).await;
        let seen = done(&mut http, "GET /v1/subscriptions/tail", &Value::Null);
        assert_eq!(seen["totals"]["unsettled"], 0, "all up to it, of every partition");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_vanishes_loses_its_place_to_another_by_itself() {
    let (_dir, product, mut http) = started();
    create(&mut http, 1, &json!({"lease_ms": 6_000}));
    publish(&mut http, 0..4);
    let mut reader = Reader::start(&product.address, FORMS[0]).await;
    let got = reader.take(4).await;
    reader.ack(got[0].n, true).await;
    drop(reader);
    assert!(pull(&mut http, "tail", "b", 4, 0).is_empty(), "it may come back");
    let waits = (0..4).map(|_| pull(&mut http, "tail", "b", 4, 15_000));
    let got = waits.into_iter().find(|got| !got.is_empty()).unwrap();
    assert_eq!(values(&got), [1, 2, 3]);
}

#[test]
fn from_the_command_line_a_run_goes_on_behind_the_one_before() {
    let (_dir, product, mut http) = started();
    let url = format!("http://{}", product.address);
    let weir = |arguments: &[&str]| {
        let run =
            Command::new(env!("CARGO_BIN_EXE_weir")).args(arguments).args(["--url", &url]).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (run.status.success(), text(run.stdout), text(run.stderr))
    };
    assert!(weir(&["topic", "create", "orders", "--partitions", "1"]).0);
    publish(&mut http, 0..10);
    let create =
        ["subscription", "create", "tail", "--topic", "orders", "--mode", "stream", "--start", "tail:8"];
    let (is_done, said, why) = weir(&create);
    assert!(is_done && said.starts_with("tail created"), "{said} {why}");
    assert_eq!(weir(&["sub", "--subscription", "tail", "-n", "3"]).1, "2\n3\n4\n");
    let (is_done, said, why) = weir(&["sub", "--subscription", "tail", "-n", "2", "--json"]);
    assert!(is_done, "{why}");
    let lines: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.iter().map(|line| line["data"].as_u64().unwrap()).collect::<Vec<_>>(), [5, 6]);
    assert_eq!((&lines[0]["topic"], &lines[0]["offset"]), (&json!("orders"), &json!(5)));
    let pull = ["pull", "tail", "--ack", "-n", "2", "--holder", "by hand"];
    assert_eq!(weir(&pull).1, "7\n8\n");
    let (is_done, said, why) = weir(&["pull", "tail"]);
    assert!(is_done && said.is_empty() && why.contains("--holder \"by hand\""), "{said} {why}");
    assert_eq!(weir(&pull).1, "9\n");
    for nothing in [&["pull", "tail"][..], &pull] {
        let (is_done, said, why) = weir(nothing);
        assert!(is_done && said.is_empty() && why.ends_with("nothing to lease\n"), "{said} {why}");
    }
    assert!(weir(&["subscription", "get", "tail"]).1.contains("mode = \"stream\""));
    for bad in [
        &["sub", "--subscription", "nobody"][..],
        &["sub", "--subscription", "tail", "orders"],
        &["subscription", "create", "x", "--topic", "orders", "--mode", "push"],
        &["subscription", "create", "x", "--topic", "orders", "--mode", "stream", "--dlq", "orders"],
    ] {
        let (is_done, _, why) = weir(bad);
        assert!(!is_done && !why.is_empty(), "{bad:?}");
    }
}
