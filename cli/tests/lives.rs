//! A position belongs to one life of a topic: in another it means nothing, and whoever brings it is told so. Nothing is
//! skipped without a word. Through the public interface of the real product.
#![expect(dead_code, reason = "each test uses a part of the product's client")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod frames;
mod product;

use std::path::Path;
use std::process::Command;

use frames::FrameSocket;
use product::{Answer, Connection, Product, done, send, started};
use serde_json::{Value, json};
use weir_protocol::ws::{
    Channel, ClientFrame, Hello, LeaseRef, Limit, ResumeChannel, Seen, ServerFrame, Settled, Sub, Subscribed,
};

const CREDIT: Limit = Limit { msgs: 1_000, bytes: 1 << 20 };
const PRODUCER: [(&str, &str); 2] = [("Producer-Id", "till"), ("Producer-Epoch", "0")];

/// A topic `log` in a namespace, whichever life it has.
struct World {
    http: Connection,
    address: String,
    ns: &'static str,
}

/// What a client holds that has read and written three messages.
struct Held {
    cursor: String,
    event_id: String,
    receipt: String,
    tail: String,
    version: String,
    life: u64,
    undo: String,
    /// Of the queue, and of the stream.
    leases: [String; 2],
    fence: u64,
    subscription_version: String,
}

impl World {
    fn path(&self, rest: &str) -> String {
        format!("/v1/ns/{}/{rest}", self.ns)
    }

    fn get(&mut self, rest: &str, headers: &[(&str, &str)]) -> Answer {
        let line = format!("GET {}", self.path(rest));
        self.http.request(&line, headers, b"").unwrap()
    }

    fn publish(&mut self, n: u64, headers: &[(&str, &str)]) -> Answer {
        let line = format!("POST {}", self.path("topics/log/messages"));
        let headers = [&[("Content-Type", "application/json")], headers].concat();
        self.http.request(&line, &headers, n.to_string().as_bytes()).unwrap()
    }

    fn done(&mut self, method: &str, rest: &str, body: &Value) -> Value {
        let line = format!("{method} {}", self.path(rest));
        done(&mut self.http, &line, body)
    }

    fn create(&mut self) {
        self.done("PUT", "topics/log", &json!({}));
        for (name, mode) in [("work", "queue"), ("ledger", "stream")] {
            let config = json!({"mode": mode, "topics": ["log"], "lease_ms": 600_000});
            self.done("PUT", &format!("subscriptions/{name}"), &config);
        }
    }

    fn delete(&mut self) {
        for rest in ["subscriptions/work", "subscriptions/ledger", "topics/log"] {
            self.done("DELETE", rest, &Value::Null);
        }
    }

    /// Publishes three messages and takes everything that names a place among them.
    fn held(&mut self) -> Held {
        let mut last = None;
        for n in 0..3u64 {
            let seq = n.to_string();
            let headers = [&PRODUCER[..], &[("Producer-Seq", seq.as_str()), ("Confirm", "quorum")]].concat();
            let published = self.publish(n, &headers);
            assert_eq!(published.status, 201, "{}", published.text());
            last = Some(published);
        }
        let of = |answer: &Answer, name: &str| answer.header(name).unwrap().to_owned();
        let published = last.unwrap();
        let page = self.get("topics/log/messages?from=earliest", &[]);
        let topic = self.get("topics/log", &[]);
        let mut lease = |name: &str| {
            let pull = json!({"max": 3, "holder": "me"});
            let pulled = self.done("POST", &format!("subscriptions/{name}:pull"), &pull);
            pulled["messages"][2].clone()
        };
        let [of_queue, of_stream] = [lease("work"), lease("ledger")];
        let sought = self.done("POST", "subscriptions/ledger:seek", &json!({"to": "earliest"}));
        let again = json!({"max": 3, "holder": "me"});
        let pulled = self.done("POST", "subscriptions/ledger:pull", &again);
        assert_ne!(of_stream["fence"], pulled["messages"][2]["fence"]);
        Held {
            cursor: of(&page, "cursor"),
            event_id: self.event_id(),
            receipt: of(&published, "confirm-receipt"),
            tail: of(&published, "etag"),
            version: of(&topic, "etag"),
            life: topic.json()["incarnation"].as_u64().unwrap(),
            undo: sought["undo"].as_str().unwrap().to_owned(),
            leases: [&of_queue, &pulled["messages"][2]].map(|m| m["lease"].as_str().unwrap().to_owned()),
            fence: of_queue["fence"].as_u64().unwrap(),
            subscription_version: of(&self.get("subscriptions/work", &[]), "etag"),
        }
    }

    /// The id of the third message on an event stream.
    fn event_id(&self) -> String {
        let mut events = Connection::open(&self.address).unwrap();
        let line = format!("GET {}", self.path("events?topic=log&from=earliest"));
        events.send(&line, &[], b"").unwrap();
        assert_eq!(events.head().unwrap().0, 200);
        let (mut id, mut seen) = (String::new(), 0);
        while seen < 3 {
            let line = events.line().unwrap();
            match line.split_once(": ") {
                Some(("id", text)) => text.clone_into(&mut id),
                Some(("data", text)) => seen += u64::from(text.contains("\"offset\"")),
                _ => {}
            }
        }
        id
    }

    /// Follows `log` again after a break, as one who has seen three messages of the life `inc`; what it is told
    /// and the offsets that come.
    async fn resumed(
        &self,
        form: &'static str,
        inc: Option<u64>,
        only: Option<u64>,
        count: usize,
    ) -> (Result<Subscribed, Value>, Vec<u64>) {
        let mut socket = FrameSocket::connect(&self.address, form).await;
        let seen = vec![Seen { p: 0, o: 2, ..Seen::default() }];
        let channels = vec![ResumeChannel { ch: 1, inc, n: Some(3), seen, ..ResumeChannel::default() }];
        let resume = Some("rt_01M7YJPVWBRSCAH33PZJ6HTZEV".to_owned());
        socket.send(0, ClientFrame::Hello(Hello { v: 1, resume, channels, ..Hello::default() })).await;
        let ns = Some(self.ns.to_owned());
        let from = Some("earliest".parse().unwrap());
        let sub = Sub { ns, topic: Some("log".into()), inc: only, from, limit: CREDIT, ..Sub::default() };
        socket.send(1, ClientFrame::Sub(sub)).await;
        let (mut told, mut offsets) = (None, Vec::new());
        while told.is_none() || offsets.len() < count {
            match socket.next().await.1 {
                ServerFrame::Subscribed(subscribed) => told = Some(subscribed),
                ServerFrame::Msg(msg) => offsets.push(msg.o),
                ServerFrame::Msgs(msgs) => offsets.extend(msgs.msgs.iter().map(|msg| msg.o)),
                ServerFrame::Deliveries(frame) => {
                    for slice in &frame.slices {
                        offsets.extend(slice.records().unwrap().map(|record| record.unwrap().offset.0));
                    }
                }
                ServerFrame::Gap(gap) => assert_eq!((gap.from, gap.to), (3, 4), "the trim of this test"),
                ServerFrame::Err(refused) => {
                    return (Err(serde_json::from_str(refused.problem.get()).unwrap()), offsets);
                }
                ServerFrame::Welcome(_) | ServerFrame::CaughtUp(_) => {}
                other => panic!("{other:?}"),
            }
        }
        (Ok(told.unwrap()), offsets)
    }

    /// Everything that is held is refused by name, or answered for the new life alone. It holds `there` messages
    /// of its own, and nothing of its subscriptions is settled.
    async fn is_another_life(&mut self, held: &Held, there: u64) {
        self.reads_are_refused(held);
        self.writes_are_refused(held);
        self.settles_are_refused(held);
        for form in ["weir.v1.json", "weir.v1.bin"] {
            let all: Vec<_> = (0..there).collect();
            let (told, offsets) = self.resumed(form, Some(held.life), None, all.len()).await;
            let told = told.unwrap();
            assert_ne!(told.inc, held.life);
            assert_eq!((told.recovered, told.start, offsets), (false, Some(0), all.clone()), "{form}");
            // Who does not say in which life begins where it says, and is told that something may be missing.
            let (told, offsets) = self.resumed(form, None, None, all.len()).await;
            assert_eq!((told.unwrap().recovered, offsets), (false, all), "{form}");
            let (told, _) = self.resumed(form, Some(held.life), Some(held.life), 0).await;
            assert_eq!(told.unwrap_err()["code"], "incarnation_gone", "{form}");
        }
        self.old_fences_settle_nothing(held).await;
    }

    fn reads_are_refused(&mut self, held: &Held) {
        let gone = (410, "incarnation_gone");
        let from = format!("topics/log/messages?from=cursor:{}", held.cursor);
        assert_eq!(told(&self.get(&from, &[])), gone, "a cursor");
        let until = format!("topics/log/messages?from=0&incarnation={}", held.life);
        assert_eq!(told(&self.get(&until, &[])), gone, "a page of a life");
        let receipt = format!("topics/log/receipts/{}?level=quorum", held.receipt);
        assert_eq!(told(&self.get(&receipt, &[])), gone, "a receipt");
        let producer = self.get("topics/log/producers/till", &[]);
        assert_eq!(told(&producer), (404, "producer_not_found"), "a producer of the life before");
    }

    fn writes_are_refused(&mut self, held: &Held) {
        let next = [&PRODUCER[..], &[("Producer-Seq", "3")]].concat();
        assert_eq!(told(&self.publish(9, &next)), (409, "producer_gap"), "no number counts here");
        let tail = self.publish(9, &[("If-Match", &held.tail)]);
        assert!(matches!(told(&tail), (410 | 412, _)), "{}", tail.text());
        let trim = format!("POST {}", self.path("topics/log:trim"));
        let version = [("If-Match", held.version.as_str())];
        let trimmed = self.http.request(&trim, &version, b"{\"before\":\"end\"}").unwrap();
        assert!(matches!(told(&trimmed), (410 | 412, _)), "{}", trimmed.text());
        let seek = format!("POST {}", self.path("subscriptions/work:seek"));
        let version = [("If-Match", held.subscription_version.as_str())];
        let sought = self.http.request(&seek, &version, b"{\"to\":\"latest\"}").unwrap();
        assert!(matches!(told(&sought), (410 | 412, _)), "{}", sought.text());
        let undo = json!({"to": "undo", "undo": held.undo});
        let line = format!("POST {}", self.path("subscriptions/ledger:seek"));
        let undone = send(&mut self.http, &line, &undo);
        assert_eq!(undone.status, 410, "{}", undone.text());
    }

    fn settles_are_refused(&mut self, held: &Held) {
        for (name, lease) in ["work", "ledger"].iter().zip(&held.leases) {
            // The same message has been given to somebody in this life too.
            self.done("POST", &format!("subscriptions/{name}:pull"), &json!({"max": 3, "holder": "now"}));
            let line = format!("POST {}", self.path(&format!("subscriptions/{name}:settle")));
            let settled = send(&mut self.http, &line, &json!({"ack": [lease]}));
            assert_eq!(settled.json()["results"][0]["result"], "unknown", "{name}: {}", settled.text());
        }
    }

    /// A worker that comes back knows its messages by partition, offset and fence.
    async fn old_fences_settle_nothing(&mut self, held: &Held) {
        let mut socket = FrameSocket::connect(&self.address, "weir.v1.json").await;
        socket.send(0, ClientFrame::Hello(Hello { v: 1, ..Hello::default() })).await;
        let ns = Some(self.ns.to_owned());
        let limit = Limit { msgs: 0, ..CREDIT };
        socket.send(1, ClientFrame::Sub(Sub { ns, sub: Some("work".into()), limit, ..Sub::default() })).await;
        let leases = vec![LeaseRef { p: 0, o: 2, fence: held.fence, ..LeaseRef::default() }];
        socket.send(1, ClientFrame::Ack(weir_protocol::ws::Ack { leases, ..Default::default() })).await;
        loop {
            match socket.next().await {
                (Channel(1), ServerFrame::LeaseLost(_)) => return,
                (_, ServerFrame::Settled(Settled { leases, .. })) => panic!("it settled {leases:?}"),
                _ => {}
            }
        }
    }
}

fn told(answer: &Answer) -> (u16, &'static str) {
    let problem = if answer.body.is_empty() { Value::Null } else { answer.json() };
    let codes = ["incarnation_gone", "producer_gap", "producer_not_found", "offset_trimmed"];
    let code = codes.into_iter().find(|code| problem["code"] == *code);
    (answer.status, code.unwrap_or("another"))
}

fn world(product: &Product, http: Connection, ns: &'static str) -> World {
    World { http, address: product.address.clone(), ns }
}

#[tokio::test]
async fn nothing_of_a_deleted_topic_counts_for_the_one_that_was_made_again() {
    let (_dir, product, http) = started();
    let mut world = world(&product, http, "default");
    world.create();
    let held = world.held();
    world.delete();
    world.create();
    (10..15).for_each(|n| assert_eq!(world.publish(n, &[]).status, 201));
    world.is_another_life(&held, 5).await;
}

#[tokio::test]
async fn nothing_of_a_deleted_namespace_counts_for_the_one_that_was_made_again() {
    let (_dir, product, http) = started();
    let mut world = world(&product, http, "team");
    done(&mut world.http, "PUT /v1/ns/team", &json!({}));
    world.create();
    let held = world.held();
    world.delete();
    done(&mut world.http, "DELETE /v1/ns/team", &Value::Null);
    done(&mut world.http, "PUT /v1/ns/team", &json!({}));
    world.create();
    (10..15).for_each(|n| assert_eq!(world.publish(n, &[]).status, 201));
    world.is_another_life(&held, 5).await;
}

#[tokio::test]
async fn a_topic_of_another_namespace_is_another_topic() {
    let (_dir, product, http) = started();
    let mut first = world(&product, http, "default");
    first.create();
    let held = first.held();
    let mut other = world(&product, Connection::open(&product.address).unwrap(), "team");
    done(&mut other.http, "PUT /v1/ns/team", &json!({}));
    other.create();
    (10..15).for_each(|n| assert_eq!(other.publish(n, &[]).status, 201));
    let (told, offsets) = other.resumed("weir.v1.json", Some(held.life), None, 5).await;
    assert_eq!((told.unwrap().recovered, offsets), (false, vec![0, 1, 2, 3, 4]));
    let page = other.get(&format!("topics/log/messages?from=cursor:{}", held.cursor), &[]);
    assert!(matches!(page.status, 400 | 410), "{}", page.text());
    let receipt = other.get(&format!("topics/log/receipts/{}", held.receipt), &[]);
    assert!(matches!(receipt.status, 400 | 404 | 410), "{}", receipt.text());
}

fn restore(bucket: &str, dir: &Path) {
    let data = dir.join("data");
    let arguments = ["restore", "--bucket", bucket, "--data-dir", data.to_str().unwrap()];
    let output = Command::new(env!("CARGO_BIN_EXE_weir")).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[tokio::test]
async fn nothing_of_before_a_restore_counts_after_it() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let bucket = format!("file://{}", dir.path().join("bucket").display());
    let options = ["--object-store", &bucket, "--seal-after-ms", "3600000", "--snapshot-every-ms", "3600000"];
    let mut product = Product::start_with(dir.path(), "127.0.0.1:0", &options);
    let mut before = world(&product, Connection::open(&product.address).unwrap(), "default");
    before.create();
    let archived = [("Confirm", "archived"), ("Confirm-Deadline-Ms", "60000")];
    assert_eq!(before.publish(100, &archived).status, 201, "this is all that the store has");
    let held = before.held();
    product.kill();
    std::fs::remove_dir_all(dir.path().join("data")).unwrap();
    restore(&bucket, dir.path());
    let product = Product::start_with(dir.path(), "127.0.0.1:0", &options);
    let mut world = world(&product, Connection::open(&product.address).unwrap(), "default");
    (10..14).for_each(|n| assert_eq!(world.publish(n, &[]).status, 201));
    world.is_another_life(&held, 5).await;
}

#[tokio::test]
async fn a_trim_is_no_new_life_and_who_was_behind_it_is_told_what_is_missing() {
    let (_dir, product, http) = started();
    let mut world = world(&product, http, "default");
    world.create();
    let held = world.held();
    world.publish(3, &[]);
    world.publish(4, &[]);
    let (told_first, offsets) = world.resumed("weir.v1.json", Some(held.life), None, 2).await;
    let told_first = told_first.unwrap();
    assert_eq!((told_first.recovered, told_first.inc, offsets), (true, held.life, vec![3, 4]));
    world.done("POST", "topics/log:trim", &json!({"partition": 0, "before": "4"}));
    let (after, offsets) = world.resumed("weir.v1.bin", Some(held.life), Some(held.life), 1).await;
    let after = after.unwrap();
    assert_eq!((after.recovered, after.start, offsets), (false, Some(4), vec![4]));
    let page = world.get(&format!("topics/log/messages?from=cursor:{}", held.cursor), &[]);
    assert_eq!(told(&page), (410, "offset_trimmed"));
}
