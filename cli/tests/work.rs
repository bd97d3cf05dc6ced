//! Workers over WebSocket, in both forms, through the public interface of the real product.
#![expect(dead_code, reason = "each test uses a part of the product's client")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod frames;
mod product;

use std::collections::VecDeque;
use std::time::Duration;

use frames::FrameSocket;
use product::{Connection, Product};
use serde_json::{Value, json};
use tokio::time::timeout;
use weir_protocol::ws::{
    Ack, ClientFrame, Dead, Extend, Hello, Lease, LeaseRef, Limit, LostResult, Nack, NumberRange, Pause,
    ResumeChannel, ServerFrame, Sub, Unsub,
};

/// What does not come within it is taken not to come.
const MOMENT: Duration = Duration::from_millis(400);
const CREDIT: Limit = Limit { msgs: 1_000, bytes: 1 << 20 };
const FORMS: [&str; 2] = ["weir.v1.json", "weir.v1.bin"];

/// A delivery as either form shows it.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Delivery {
    n: u64,
    p: u32,
    o: u64,
    lease: Lease,
}

impl Delivery {
    fn lease_ref(&self) -> LeaseRef {
        LeaseRef { topic: None, p: self.p, o: self.o, fence: self.lease.fence }
    }
}

/// A worker on channel 1.
struct Worker {
    socket: FrameSocket,
    resume: String,
    frames: VecDeque<ServerFrame>,
    deliveries: VecDeque<Delivery>,
}

impl Worker {
    async fn connect(address: &str, form: &'static str, hello: Hello) -> Self {
        let socket = FrameSocket::connect(address, form).await;
        let (frames, deliveries) = (VecDeque::new(), VecDeque::new());
        let mut worker = Self { socket, resume: String::new(), frames, deliveries };
        worker.send_at(0, ClientFrame::Hello(hello)).await;
        match worker.next().await {
            ServerFrame::Welcome(welcome) => worker.resume = welcome.resume,
            other => panic!("{other:?}"),
        }
        worker
    }

    /// With the subscription `work`.
    async fn start(address: &str, form: &'static str, limit: Limit) -> Self {
        let mut worker = Self::connect(address, form, Hello { v: 1, ..Hello::default() }).await;
        worker.sub(limit).await;
        worker
    }

    async fn sub(&mut self, limit: Limit) {
        self.sub_for(limit, None).await;
    }

    /// With leases that last so long.
    async fn sub_for(&mut self, limit: Limit, lease_ms: Option<u32>) {
        self.send(ClientFrame::Sub(Sub { sub: Some("work".into()), limit, lease_ms, ..Sub::default() }))
            .await;
        match self.next().await {
            ServerFrame::Subscribed(subscribed) => assert!(subscribed.recovered && subscribed.inc > 0),
            other => panic!("{other:?}"),
        }
    }

    async fn send(&mut self, frame: ClientFrame) {
        self.send_at(1, frame).await;
    }

    async fn send_at(&mut self, ch: u16, frame: ClientFrame) {
        self.socket.send(ch, frame).await;
    }

    async fn ack(&mut self, first: u64, last: u64) {
        let n = vec![NumberRange { first, last }];
        self.send(ClientFrame::Ack(Ack { n, ..Ack::default() })).await;
    }

    async fn read(&mut self) {
        match self.socket.next().await.1 {
            ServerFrame::Msg(msg) => self.deliveries.push_back(delivery(&msg)),
            ServerFrame::Msgs(msgs) => self.deliveries.extend(msgs.msgs.iter().map(delivery)),
            ServerFrame::Deliveries(frame) => {
                let p = frame.slices[0].parsed().unwrap().header().partition.0;
                let of = |(n, (record, lease)): (u64, (weir_protocol::batch::Record, Option<Lease>))| {
                    Delivery { n, p, o: record.offset.0, lease: lease.unwrap() }
                };
                self.deliveries.extend((frame.n..).zip(frame.records().unwrap()).map(of));
            }
            frame => self.frames.push_back(frame),
        }
    }

    /// The next frame that is no delivery.
    async fn next(&mut self) -> ServerFrame {
        loop {
            if let Some(frame) = self.frames.pop_front() {
                return frame;
            }
            self.read().await;
        }
    }

    /// The next deliveries, so many.
    async fn take(&mut self, count: usize) -> Vec<Delivery> {
        while self.deliveries.len() < count {
            self.read().await;
        }
        self.deliveries.drain(..count).collect()
    }

    /// Nothing is delivered for a moment.
    async fn is_idle(&mut self) -> bool {
        let came = async {
            while self.deliveries.is_empty() {
                self.read().await;
            }
        };
        timeout(MOMENT, came).await.is_err()
    }

    async fn settled(&mut self) -> u64 {
        match self.next().await {
            ServerFrame::Settled(settled) => settled.upto,
            other => panic!("{other:?}"),
        }
    }

    /// Goes without a word.
    fn vanish(self) -> String {
        self.resume
    }
}

fn delivery(msg: &weir_protocol::ws::Msg) -> Delivery {
    Delivery { n: msg.n, p: msg.p, o: msg.o, lease: msg.lease.unwrap() }
}

fn send(http: &mut Connection, line: &str, body: &Value) -> Value {
    let headers = [("content-type", "application/json")];
    let answer = http.request(line, &headers, body.to_string().as_bytes()).unwrap();
    assert!(answer.status < 300, "{line}: {} {}", answer.status, answer.text());
    if answer.status == 204 { Value::Null } else { answer.json() }
}

/// A product with the topic `orders`, of so many partitions, and the subscription `work`.
struct Play {
    http: Connection,
    product: Product,
    _dir: tempfile::TempDir,
}

impl Play {
    fn start(partitions: u32, config: &Value) -> Self {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let product = Product::start(dir.path());
        let mut http = Connection::open(&product.address).unwrap();
        send(&mut http, "PUT /v1/topics/orders", &json!({"partitions": partitions}));
        let mut subscription = json!({"topics": ["orders"], "backoff_ms": []});
        subscription.as_object_mut().unwrap().extend(config.as_object().unwrap().clone());
        send(&mut http, "PUT /v1/subscriptions/work", &subscription);
        Self { http, product, _dir: dir }
    }

    fn publish(&mut self, count: u64) {
        for n in 0..count {
            send(&mut self.http, "POST /v1/topics/orders/messages", &json!({ "order": n }));
        }
    }

    fn address(&self) -> &str {
        &self.product.address
    }
}

fn offsets(deliveries: &[Delivery]) -> Vec<u64> {
    deliveries.iter().map(|delivery| delivery.o).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_vanishes_loses_its_messages_to_another_and_learns_of_it() {
    for form in FORMS {
        let mut play = Play::start(1, &json!({"lease_ms": 1_000}));
        play.publish(2);
        let mut lost = Worker::start(play.address(), form, Limit { msgs: 2, ..CREDIT }).await;
        let held = lost.take(2).await;
        assert_eq!((offsets(&held), held[0].n, held[0].lease.attempt), (vec![0, 1], 1, 1));
        assert!(held[0].lease.ms <= 1_000);
        // Its leases last, so that they are still the other's when the first asks.
        let mut other = Worker::connect(play.address(), form, Hello { v: 1, ..Hello::default() }).await;
        other.sub_for(CREDIT, Some(60_000)).await;
        lost.vanish();
        let again = other.take(2).await;
        assert_eq!((offsets(&again), again[0].lease.attempt), (vec![0, 1], 2));
        assert!(again[0].lease.fence > held[1].lease.fence, "fences grow with every delivery");
        let n = vec![NumberRange { first: 1, last: 2 }];
        other.send(ClientFrame::Extend(Extend { n, ms: 60_000, ..Extend::default() })).await;
        assert!(matches!(other.next().await, ServerFrame::Extended(extended) if extended.ms == 60_000));
        let mut back = Worker::start(play.address(), form, Limit::default()).await;
        let leases = vec![held[0].lease_ref()];
        back.send(ClientFrame::Ack(Ack { leases, ..Ack::default() })).await;
        let ServerFrame::LeaseLost(told) = back.next().await else { panic!() };
        let current = told.lost[0].current.unwrap();
        assert_eq!((told.lost[0].result, current.attempt), (LostResult::LeaseLost, 2));
        assert_eq!(current.fence, again[0].lease.fence);
        other.ack(1, 2).await;
        assert_eq!(other.settled().await, 2);
        let shown = play.http.request("GET /v1/subscriptions/work", &[], b"").unwrap().json();
        assert_eq!(shown["parts"][0]["floor"], 2, "{shown}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn credit_moves_by_the_clients_limit_and_places_by_settling() {
    for form in FORMS {
        let mut play = Play::start(1, &json!({"max_unacked": 3}));
        play.publish(6);
        let mut worker = Worker::start(play.address(), form, Limit::default()).await;
        assert!(worker.is_idle().await, "no credit, nothing");
        worker.send(ClientFrame::Limit(Limit { msgs: 2, ..CREDIT })).await;
        assert_eq!(offsets(&worker.take(2).await), [0, 1]);
        worker.ack(1, 2).await;
        assert_eq!(worker.settled().await, 2);
        assert!(worker.is_idle().await, "settling is no credit");
        worker.send(ClientFrame::Limit(CREDIT)).await;
        assert_eq!(offsets(&worker.take(3).await), [2, 3, 4]);
        assert!(worker.is_idle().await, "three are held, and that is all");
        worker.ack(4, 4).await;
        assert_eq!(worker.settled().await, 2, "the third is not settled yet");
        assert_eq!(offsets(&worker.take(1).await), [5]);
        worker
            .send(ClientFrame::Ack(Ack {
                n: vec![NumberRange { first: 6, last: 6 }],
                cum: true,
                ..Ack::default()
            }))
            .await;
        assert_eq!(worker.settled().await, 6);
        // A message that is published now comes at once.
        play.publish(1);
        assert_eq!(offsets(&worker.take(1).await), [6]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_whose_messages_are_purged_learns_it_and_has_room_for_new_ones() {
    for form in FORMS {
        let mut play = Play::start(1, &json!({"max_unacked": 2, "lease_ms": 600_000}));
        play.publish(5);
        let mut worker = Worker::start(play.address(), form, CREDIT).await;
        worker.take(2).await;
        assert!(worker.is_idle().await, "two are held, and that is all");
        let purged = send(&mut play.http, "POST /v1/subscriptions/work:purge", &json!({}));
        assert_eq!(purged["purged"], 5);
        assert!(worker.is_idle().await, "nothing of what was there comes");
        play.publish(3);
        assert_eq!(offsets(&worker.take(2).await), [5, 6]);
        worker.ack(1, 2).await;
        let ServerFrame::LeaseLost(told) = worker.next().await else { panic!() };
        assert_eq!(
            told.lost.iter().map(|lost| lost.result).collect::<Vec<_>>(),
            [LostResult::AlreadySettled; 2]
        );
        assert_eq!(worker.settled().await, 2, "settled or lost");
        worker.ack(3, 4).await;
        assert_eq!(worker.settled().await, 4);
        assert_eq!(offsets(&worker.take(1).await), [7]);
        let undo = json!({"to": "undo", "undo": purged["undo"]});
        send(&mut play.http, "POST /v1/subscriptions/work:seek", &undo);
        assert_eq!(offsets(&worker.take(2).await), [0, 1], "what was purged, and not what was done since");
        worker.ack(5, 5).await;
        let ServerFrame::LeaseLost(told) = worker.next().await else { panic!() };
        assert_eq!(told.lost[0].result, LostResult::LeaseLost);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_unsubscribes_gives_back_at_once_and_who_comes_back_keeps() {
    for form in FORMS {
        let mut play = Play::start(2, &json!({"lease_ms": 60_000}));
        play.publish(6);
        let one = Limit { msgs: 1, ..CREDIT };
        let mut first = Worker::start(play.address(), form, one).await;
        let kept = first.take(1).await;
        let mut other = Worker::start(play.address(), form, CREDIT).await;
        let all = other.take(5).await;
        // The connection breaks: what the first has stays its own for a while, and is its own again when it is back.
        let resume = Some(first.vanish());
        assert!(other.is_idle().await);
        let channel = ResumeChannel { ch: 1, n: Some(1), ..ResumeChannel::default() };
        let hello = Hello { v: 1, resume, channels: vec![channel], ..Hello::default() };
        let mut back = Worker::connect(play.address(), form, hello).await;
        back.sub(one).await;
        let leases = vec![kept[0].lease_ref()];
        back.send(ClientFrame::Ack(Ack { leases: leases.clone(), ..Ack::default() })).await;
        assert!(matches!(back.next().await, ServerFrame::Settled(settled) if settled.leases == leases));
        // Whoever leaves on purpose makes room at once, far before the minute is over.
        other.send(ClientFrame::Unsub(Unsub {})).await;
        let again = back.take(1).await;
        assert_eq!((again[0].n, again[0].lease.attempt), (2, 2), "numbers go on");
        assert!(all.iter().any(|delivery| (delivery.p, delivery.o) == (again[0].p, again[0].o)));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_message_at_a_time_comes_from_whatever_partition_has_one() {
    for form in FORMS {
        let mut play = Play::start(4, &json!({}));
        let mut worker = Worker::start(play.address(), form, Limit { msgs: 1, bytes: 1 << 20 }).await;
        play.publish(20);
        let mut seen = std::collections::BTreeSet::new();
        for n in 1..=20 {
            let came = worker.take(1).await[0];
            assert_eq!(came.n, n);
            assert!(seen.insert((came.p, came.o)), "{came:?} came twice");
            worker.ack(n, n).await;
            worker.send(ClientFrame::Limit(Limit { msgs: n + 1, bytes: 1 << 20 })).await;
        }
        assert_eq!(seen.iter().map(|(p, _)| p).collect::<std::collections::BTreeSet<_>>().len(), 4);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_messages_come_again_and_given_up_ones_become_dead_letters() {
    for form in FORMS {
        let mut play = Play::start(1, &json!({}));
        send(&mut play.http, "PUT /v1/topics/dead", &json!({}));
        let patched = send(&mut play.http, "PATCH /v1/subscriptions/work", &json!({"dlq": "dead"}));
        assert_eq!(patched["config"]["dlq"], "dead");
        play.publish(3);
        let mut worker = Worker::start(play.address(), form, CREDIT).await;
        worker.take(3).await;
        let n = |n| vec![NumberRange { first: n, last: n }];
        worker
            .send(ClientFrame::Nack(Nack { n: n(1), delay_ms: Some(1), reason: None, ..Nack::default() }))
            .await;
        assert_eq!(worker.settled().await, 1);
        let again = worker.take(1).await[0];
        assert_eq!((again.n, again.o, again.lease.attempt), (4, 0, 2));
        worker.send(ClientFrame::Dead(Dead { n: n(2), reason: Some("no".into()), ..Dead::default() })).await;
        assert_eq!(worker.settled().await, 2);
        let mut dead = Vec::new();
        while dead.is_empty() {
            let read = play.http.request("GET /v1/topics/dead/messages?wait=5", &[], b"").unwrap();
            if read.status == 200 {
                dead = read.json()["messages"].as_array().unwrap().clone();
            }
        }
        assert_eq!(dead[0]["data"]["order"], 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pause_holds_deliveries_back_and_what_is_not_there_is_refused() {
    for form in FORMS {
        let mut play = Play::start(2, &json!({}));
        let mut worker = Worker::start(play.address(), form, CREDIT).await;
        worker.send(ClientFrame::Pause(Pause { on: true })).await;
        // Answered in order: the pause was heard before anything is published.
        worker.send_at(0, ClientFrame::Ping(weir_protocol::ws::ClientPing { id: 3 })).await;
        assert!(matches!(worker.next().await, ServerFrame::Pong(_)));
        play.publish(4);
        assert!(worker.is_idle().await);
        worker.send(ClientFrame::Pause(Pause { on: false })).await;
        assert_eq!(worker.take(4).await.len(), 4);

        worker.send_at(2, ClientFrame::Sub(Sub { sub: Some("nothing".into()), ..Sub::default() })).await;
        let ServerFrame::Err(refused) = worker.next().await else { panic!() };
        assert!(refused.problem.get().contains("subscription_not_found"), "{refused:?}");
        send(&mut play.http, "DELETE /v1/subscriptions/work", &Value::Null);
        let ServerFrame::Err(gone) = worker.next().await else { panic!() };
        assert!(gone.problem.get().contains("subscription_not_found"), "{gone:?}");
    }
}
