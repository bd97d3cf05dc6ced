//! Subscriptions to several topics and to patterns, through the public interface of the real product.
#![expect(dead_code, reason = "each test uses a part of the product's client")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod frames;
mod product;

use std::collections::BTreeSet;

use frames::FrameSocket;
use product::{Connection, Product, done, send, started};
use serde_json::{Value, json};
use weir_protocol::ws::{Ack, ClientFrame, Hello, LeaseRef, Limit, NumberRange, ServerFrame, Sub};

fn topic(http: &mut Connection, name: &str, partitions: u32) {
    done(http, &format!("PUT /v1/topics/{name}"), &json!({"partitions": partitions}));
}

fn publish(http: &mut Connection, topic: &str, values: &[u64]) {
    for value in values {
        let media = [("Content-Type", "application/json")];
        let line = format!("POST /v1/topics/{topic}/messages");
        assert_eq!(http.request(&line, &media, value.to_string().as_bytes()).unwrap().status, 201);
    }
}

fn pull(http: &mut Connection, name: &str, body: &Value) -> Vec<Value> {
    done(http, &format!("POST /v1/subscriptions/{name}:pull"), body)["messages"].as_array().unwrap().clone()
}

fn settle(http: &mut Connection, name: &str, body: &Value) -> Value {
    done(http, &format!("POST /v1/subscriptions/{name}:settle"), body)
}

fn leases(messages: &[Value]) -> Vec<Value> {
    messages.iter().map(|message| message["lease"].clone()).collect()
}

fn values(messages: &[Value]) -> BTreeSet<u64> {
    messages.iter().map(|message| message["data"].as_u64().unwrap()).collect()
}

/// Pulls and acknowledges until these and no others have come.
fn drain(http: &mut Connection, name: &str, wanted: &[u64]) {
    let (mut missing, mut pulls) = (BTreeSet::from_iter(wanted.iter().copied()), 0);
    while !missing.is_empty() {
        let got = pull(http, name, &json!({"max": 100, "wait_ms": 10_000}));
        assert!(!got.is_empty() && pulls < 20, "{missing:?} did not come");
        for value in values(&got) {
            assert!(missing.remove(&value), "{value} came, and was not to");
        }
        settle(http, name, &json!({"ack": leases(&got)}));
        pulls += 1;
    }
    assert_eq!(pull(http, name, &json!({})), Vec::<Value>::new());
}

#[test]
fn two_topics_are_one_queue_and_every_call_says_which_topic_is_meant() {
    let (_dir, _product, mut http) = started();
    topic(&mut http, "orders", 2);
    topic(&mut http, "returns", 1);
    let config = json!({
        "topics": ["orders", "returns"], "dlq": "lost", "max_attempts": 1, "backoff_ms": []
    });
    topic(&mut http, "lost", 1);
    let made = done(&mut http, "PUT /v1/subscriptions/both", &config);
    assert_eq!(
        (&made["config"]["topics"], &made["topic_incarnation"]),
        (&json!(["orders", "returns"]), &Value::Null)
    );
    assert_eq!(made["parts"].as_array().unwrap().len(), 3);
    publish(&mut http, "orders", &[1, 2, 3, 4]);
    publish(&mut http, "returns", &[11, 12]);
    let all = pull(&mut http, "both", &json!({"max": 10}));
    assert_eq!(values(&all), BTreeSet::from([1, 2, 3, 4, 11, 12]));
    let back = all.iter().find(|message| message["data"] == 11).unwrap();
    assert_eq!((&back["topic"], &back["id"]), (&json!("returns"), &json!("returns:0:0")));

    let held = done(&mut http, "GET /v1/subscriptions/both/leases?topic=returns", &Value::Null);
    let held: Vec<_> = held["items"].as_array().unwrap().iter().map(|item| item["id"].clone()).collect();
    assert_eq!(held, ["returns:0:0", "returns:0:1"]);
    let first = done(&mut http, "GET /v1/subscriptions/both/leases?limit=4", &Value::Null);
    let line = format!("GET /v1/subscriptions/both/leases?cursor={}", first["next"].as_str().unwrap());
    let second = done(&mut http, &line, &Value::Null);
    assert_eq!(first["items"].as_array().unwrap().len() + second["items"].as_array().unwrap().len(), 6);
    let explained = done(&mut http, "GET /v1/subscriptions/both/explain?id=returns:0:0", &Value::Null);
    assert_eq!((&explained["state"], &explained["topic"]), (&json!("leased"), &json!("returns")));
    for bad in ["0:0", "clicks:0:0", "returns:7:0", "returns:0"] {
        let refused = send(&mut http, &format!("GET /v1/subscriptions/both/explain?id={bad}"), &Value::Null);
        assert!([400, 404].contains(&refused.status), "{bad}: {}", refused.text());
    }

    let others: Vec<_> = all.iter().filter(|message| message["data"] != 11).cloned().collect();
    let settled =
        settle(&mut http, "both", &json!({"ack": leases(&others), "nack": [{"lease": back["lease"]}]}));
    assert!(
        settled["results"].as_array().unwrap().iter().all(|result| result["result"] == "ok"),
        "{settled}"
    );
    let letter = done(&mut http, "GET /v1/topics/lost/messages?wait=10", &Value::Null);
    assert_eq!(letter["messages"][0]["headers"]["weir-dead-topic"], "returns");
    let dead = done(&mut http, "GET /v1/subscriptions/both/dlq", &Value::Null);
    assert_eq!(dead["items"][0]["id"], "returns:0:0");
    let again = done(&mut http, "POST /v1/subscriptions/both:redrive", &json!({"ids": ["returns:0:0"]}));
    assert_eq!(again["redriven"], json!(["returns:0:0"]));
    drain(&mut http, "both", &[11]);
    let moved = done(&mut http, "POST /v1/subscriptions/both:seek", &json!({"to": "earliest"}));
    assert_eq!((&moved["redelivered"], moved["parts"].as_array().unwrap().len()), (&json!(6), 3));
    drain(&mut http, "both", &[1, 2, 3, 4, 11, 12]);
    for of in ["orders", "returns"] {
        let listed = done(&mut http, &format!("GET /v1/ns/default/subscriptions?topic={of}"), &Value::Null);
        assert_eq!(listed["items"][0]["name"], "both");
    }
}

#[test]
fn a_deleted_topic_leaves_the_others_and_the_last_one_ends_the_subscription() {
    let (_dir, _product, mut http) = started();
    topic(&mut http, "a", 2);
    topic(&mut http, "b", 1);
    let config = json!({"topics": ["a", "b"]});
    done(&mut http, "PUT /v1/subscriptions/work", &config);
    publish(&mut http, "a", &[1, 2]);
    publish(&mut http, "b", &[11]);
    let held = pull(&mut http, "work", &json!({"max": 10}));
    assert_eq!(held.len(), 3);
    done(&mut http, "DELETE /v1/topics/a", &Value::Null);
    let settled =
        send(&mut http, "POST /v1/subscriptions/work:settle", &json!({"ack": leases(&held)})).json();
    let mut results: Vec<_> = settled["results"]
        .as_array()
        .unwrap()
        .iter()
        .map(|result| result["result"].as_str().unwrap())
        .collect();
    results.sort_unstable();
    assert_eq!(results, ["ok", "unknown", "unknown"]);
    publish(&mut http, "b", &[12]);
    drain(&mut http, "work", &[12]);
    topic(&mut http, "a", 1); // another topic of that name, which nobody asked for
    publish(&mut http, "a", &[3]);
    let seen = done(&mut http, "GET /v1/subscriptions/work", &Value::Null);
    assert_eq!((&seen["topics_deleted"], &seen["topic_deleted"]), (&json!(["a"]), &json!(false)));
    assert_eq!(seen["parts"].as_array().unwrap().len(), 1);
    assert_eq!(pull(&mut http, "work", &json!({})), Vec::<Value>::new());
    done(&mut http, "DELETE /v1/topics/b", &Value::Null);
    let gone = send(&mut http, "POST /v1/subscriptions/work:pull", &json!({"wait_ms": 5_000}));
    assert_eq!((gone.status, &gone.json()["code"]), (410, &json!("incarnation_gone")), "{}", gone.text());
    assert_eq!(done(&mut http, "GET /v1/subscriptions/work", &Value::Null)["topic_deleted"], true);
    done(&mut http, "DELETE /v1/subscriptions/work", &Value::Null);
}

#[test]
fn a_pattern_takes_in_what_is_created_later_from_its_beginning() {
    let (dir, mut product, mut http) = started();
    topic(&mut http, "orders.eu", 2);
    publish(&mut http, "orders.eu", &[1, 2]);
    done(&mut http, "PUT /v1/subscriptions/all", &json!({"topics": ["orders.*"], "start": "latest"}));
    assert_eq!(pull(&mut http, "all", &json!({})), Vec::<Value>::new(), "what is there starts as it says");
    let again =
        send(&mut http, "PUT /v1/subscriptions/all", &json!({"topics": ["orders.*"], "start": "latest"}));
    assert_eq!(again.status, 200, "{}", again.text());
    topic(&mut http, "orders.us", 3);
    topic(&mut http, "invoices", 1);
    publish(&mut http, "orders.us", &[11, 12, 13]);
    publish(&mut http, "invoices", &[99]);
    publish(&mut http, "orders.eu", &[3]);
    drain(&mut http, "all", &[3, 11, 12, 13]);

    // One who waits already gets what comes from a topic that is not there yet.
    let address = product.address.clone();
    let waits = std::thread::spawn(move || {
        let mut http = Connection::open(&address).unwrap();
        pull(&mut http, "all", &json!({"wait_ms": 20_000}))
    });
    topic(&mut http, "orders.fr", 1);
    publish(&mut http, "orders.fr", &[21]);
    let got = waits.join().unwrap();
    assert_eq!((values(&got), &got[0]["topic"]), (BTreeSet::from([21]), &json!("orders.fr")));

    product.kill();
    drop(product);
    let product = Product::start(dir.path());
    let mut http = Connection::open(&product.address).unwrap();
    publish(&mut http, "orders.us", &[14]);
    // Leases were in memory: what was not settled is free again.
    drain(&mut http, "all", &[14, 21]);
    done(&mut http, "DELETE /v1/topics/orders.us", &Value::Null);
    publish(&mut http, "orders.eu", &[4]);
    drain(&mut http, "all", &[4]);
    done(&mut http, "DELETE /v1/subscriptions/all", &Value::Null);
}

#[test]
fn what_cannot_be_is_refused_and_a_pattern_may_match_nothing() {
    let (_dir, _product, mut http) = started();
    topic(&mut http, "a", 1);
    for (config, status, field) in [
        (json!({"topics": ["a", "a"]}), 400, "topics"),
        (json!({"topics": ["a*", "b"]}), 400, "topics"),
        (json!({"topics": ["*a"]}), 400, "topics"),
        (json!({"topics": ["a", "nowhere"]}), 404, "topics"),
        (json!({"topics": ["a*"], "dlq": "a.dlq"}), 400, "dlq"),
    ] {
        let refused = send(&mut http, "PUT /v1/subscriptions/bad", &config);
        assert_eq!(
            (refused.status, &refused.json()["field"]),
            (status, &json!(field)),
            "{config}: {}",
            refused.text()
        );
    }
    done(&mut http, "PUT /v1/subscriptions/none", &json!({"topics": ["z*"]}));
    let refused = send(&mut http, "PATCH /v1/subscriptions/none", &json!({"topics": ["a*"]}));
    assert_eq!((refused.status, &refused.json()["code"]), (409, &json!("not_supported")));
    assert_eq!(pull(&mut http, "none", &json!({"wait_ms": 100})), Vec::<Value>::new());
    let seen = done(&mut http, "GET /v1/subscriptions/none", &Value::Null);
    assert_eq!((&seen["parts"], &seen["topic_deleted"]), (&json!([]), &json!(false)));
    let moved = done(&mut http, "POST /v1/subscriptions/none:seek", &json!({"to": "latest"}));
    assert_eq!(moved["parts"], json!([]));
    assert_eq!(done(&mut http, "GET /v1/subscriptions/none/leases", &Value::Null)["items"], json!([]));
    topic(&mut http, "zoo", 1);
    publish(&mut http, "zoo", &[1]);
    drain(&mut http, "none", &[1]);
    let limits = &done(&mut http, "GET /v1", &Value::Null)["limits"];
    assert_eq!(
        (&limits["subscription_topics"], &limits["subscription_partitions"]),
        (&json!(100), &json!(1024))
    );
}

/// A worker on channel 1 of a WebSocket.
struct Worker {
    socket: FrameSocket,
}

impl Worker {
    async fn start(address: &str, form: &'static str, sub: &str) -> Self {
        let mut worker = Self { socket: FrameSocket::connect(address, form).await };
        worker.send(0, ClientFrame::Hello(Hello { v: 1, ..Hello::default() })).await;
        assert!(matches!(worker.next().await, ServerFrame::Welcome(_)));
        let limit = Limit { msgs: 1_000, bytes: 1 << 20 };
        worker.send(1, ClientFrame::Sub(Sub { sub: Some(sub.into()), limit, ..Sub::default() })).await;
        assert!(matches!(worker.next().await, ServerFrame::Subscribed(_)));
        worker
    }

    async fn send(&mut self, ch: u16, frame: ClientFrame) {
        self.socket.send(ch, frame).await;
    }

    async fn next(&mut self) -> ServerFrame {
        self.socket.next().await.1
    }

    /// The next messages: of each the number, and its lease as it is named by itself.
    async fn messages(&mut self) -> Vec<(u64, LeaseRef)> {
        let lease = |topic: Option<String>, p, o, fence| LeaseRef { topic, p, o, fence };
        match self.next().await {
            ServerFrame::Msg(msg) => vec![(msg.n, lease(msg.topic, msg.p, msg.o, msg.lease.unwrap().fence))],
            ServerFrame::Msgs(msgs) => {
                let of = |msg: weir_protocol::ws::Msg| {
                    (msg.n, lease(msg.topic, msg.p, msg.o, msg.lease.unwrap().fence))
                };
                msgs.msgs.into_iter().map(of).collect()
            }
            ServerFrame::Deliveries(frame) => {
                let topic = frame.topic.as_ref().map(ToString::to_string);
                let partition = frame.slices[0].parsed().unwrap().header().partition.0;
                let records = frame.records().unwrap();
                let of = |(n, (record, held)): (u64, (weir_protocol::batch::Record, Option<_>))| {
                    let held: weir_protocol::ws::Lease = held.unwrap();
                    (n, lease(topic.clone(), partition, record.offset.0, held.fence))
                };
                (frame.n..).zip(records).map(of).collect()
            }
            other => panic!("{other:?}"),
        }
    }

    /// Numbers and topics of what is told as lost until everything up to a number is decided.
    async fn lost_upto(&mut self, n: u64) -> BTreeSet<(Option<u64>, Option<String>)> {
        let mut told = BTreeSet::new();
        loop {
            match self.next().await {
                ServerFrame::LeaseLost(frame) => {
                    told.extend(frame.lost.into_iter().map(|lost| (lost.n, lost.topic)));
                }
                ServerFrame::Settled(settled) if settled.upto >= n => return told,
                ServerFrame::Settled(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    async fn settled(&mut self) {
        match self.next().await {
            ServerFrame::Settled(_) => {}
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_websocket_topics_come_and_go_while_a_worker_works() {
    let (_dir, product, mut http) = started();
    topic(&mut http, "orders.eu", 2);
    for (form, last) in [("weir.v1.json", "j"), ("weir.v1.bin", "b")] {
        let name = format!("all-{last}");
        let config = json!({"topics": ["orders.*"], "start": "latest"});
        done(&mut http, &format!("PUT /v1/subscriptions/{name}"), &config);
        let mut worker = Worker::start(&product.address, form, &name).await;
        publish(&mut http, "orders.eu", &[1]);
        let got = worker.messages().await;
        assert_eq!((got.len(), got[0].0, got[0].1.topic.as_deref()), (1, 1, Some("orders.eu")));
        let later = format!("orders.{last}");
        topic(&mut http, &later, 2);
        publish(&mut http, &later, &[2]);
        let more = worker.messages().await;
        assert_eq!((more[0].0, more[0].1.topic.as_deref()), (2, Some(later.as_str())));
        let n = vec![NumberRange { first: 1, last: 1 }];
        worker.send(1, ClientFrame::Ack(Ack { n, ..Ack::default() })).await;
        worker.settled().await;
        let leases = vec![more[0].1.clone()];
        worker.send(1, ClientFrame::Ack(Ack { leases: leases.clone(), ..Ack::default() })).await;
        match worker.next().await {
            ServerFrame::Settled(settled) => assert_eq!(settled.leases, leases),
            other => panic!("{other:?}"),
        }
        publish(&mut http, &later, &[3]);
        let third = worker.messages().await;
        done(&mut http, &format!("DELETE /v1/topics/{later}"), &Value::Null);
        // Number 2 is open as well: its lease was settled, and not its number.
        assert_eq!(third[0].0, 3);
        let n = vec![NumberRange { first: 2, last: 3 }];
        worker.send(1, ClientFrame::Ack(Ack { n, ..Ack::default() })).await;
        let lost = worker.lost_upto(3).await;
        assert_eq!(lost, BTreeSet::from([2, 3].map(|n| (Some(n), Some(later.clone())))));
        publish(&mut http, "orders.eu", &[4]);
        let fourth = worker.messages().await;
        assert_eq!((fourth[0].0, fourth[0].1.topic.as_deref()), (4, Some("orders.eu")));
        let n = vec![NumberRange { first: 4, last: 4 }];
        worker.send(1, ClientFrame::Ack(Ack { n, ..Ack::default() })).await;
        worker.settled().await;
        let seen = done(&mut http, &format!("GET /v1/subscriptions/{name}"), &Value::Null);
        assert_eq!(seen["totals"]["unsettled"], 0, "{seen}");
    }
}
