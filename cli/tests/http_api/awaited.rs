//! Event streams on topics that do not exist yet, or are made again: a browser's page sees no answer but 200, and does
//! not try again after any other.

use serde_json::{Value, json};

use super::product::{Answer, Connection, Product, done};
use super::{Api, LINES};

const JSON: [(&str, &str); 1] = [("Content-Type", "application/json")];

/// An open event stream.
struct Events(Connection);

impl Events {
    fn open(product: &Product, path: &str, id: Option<&str>) -> Self {
        let mut http = Connection::open(&product.address).unwrap();
        let headers: Vec<_> = id.map(|id| ("Last-Event-ID", id)).into_iter().collect();
        let accept = [&headers[..], &[("Accept", "text/event-stream")]].concat();
        http.send(&format!("GET /v1/ns/default/{path}"), &accept, b"").unwrap();
        assert_eq!(http.head().unwrap().0, 200);
        Self(http)
    }

    /// The next event: its name, data and the id by then.
    fn next(&mut self) -> (String, Value, String) {
        let (mut name, mut id) = ("message".to_owned(), String::new());
        loop {
            let line = self.0.line().unwrap();
            match line.split_once(": ") {
                Some(("event", text)) => text.clone_into(&mut name),
                Some(("id", text)) => text.clone_into(&mut id),
                Some(("data", text)) => return (name, serde_json::from_str(text).unwrap(), id),
                _ => {}
            }
        }
    }

    /// The id that is told before anything has happened.
    fn first_id(&mut self) -> String {
        loop {
            if let Some(("id", id)) = self.0.line().unwrap().split_once(": ") {
                return id.to_owned();
            }
        }
    }

    /// Payloads of the next messages, and the last id.
    fn messages(&mut self, count: usize) -> (Vec<u64>, String) {
        let (mut seen, mut id) = (Vec::new(), String::new());
        while seen.len() < count {
            let (name, data, at) = self.next();
            if name == "message" {
                seen.push(data["data"].as_u64().unwrap());
            }
            id = if at.is_empty() { id } else { at };
        }
        (seen, id)
    }
}

fn publish(api: &mut Api, topic: &str, n: u64) -> Answer {
    api.send(&format!("POST /v1/topics/{topic}/messages"), &JSON, n.to_string().as_bytes())
}

#[test]
fn a_stream_of_a_topic_that_does_not_exist_yet_begins_with_its_first_message() {
    let mut api = Api::start();
    let mut one = Events::open(&api._product, "topics/new/messages?from=latest", None);
    let mut both = Events::open(&api._product, "events?topic=new&topic=newer", None);
    let id = both.first_id();
    for n in 0..3 {
        assert_eq!(publish(&mut api, "new", n).status, 201);
    }
    assert_eq!(one.messages(3).0, [0, 1, 2]);
    let (seen, later) = both.messages(3);
    assert_eq!(seen, [0, 1, 2]);
    assert_eq!(publish(&mut api, "newer", 7).status, 201);
    assert_eq!(both.messages(1).0, [7], "the other one comes to it");
    assert_eq!(publish(&mut api, "new", 3).status, 201);
    assert_eq!(both.messages(1).0, [3], "and nothing twice");
    // Whoever comes back goes on, also if nothing had come yet, or one of them did not exist yet.
    let path = "events?topic=new&topic=newer";
    let mut all = Events::open(&api._product, path, Some(&id)).messages(5).0;
    all.sort_unstable();
    assert_eq!(all, [0, 1, 2, 3, 7]);
    let mut rest = Events::open(&api._product, path, Some(&later)).messages(2).0;
    rest.sort_unstable();
    assert_eq!(rest, [3, 7]);
    let metrics = api.get("/metrics", &[]).text();
    assert!(metrics.contains("weir_gateway_awaited_topics 0"), "{metrics}");
}

#[test]
fn a_topic_that_was_made_again_is_told_as_such_and_begins_anew() {
    let mut api = Api::with_topic("t", "{\"partitions\":2}");
    let lines: String = (0..8).map(|n| format!("{{\"key\":\"k{n}\",\"data\":{n}}}\n")).collect();
    assert_eq!(api.batch("t", &[LINES], &lines).status, 200);
    let mut events = Events::open(&api._product, "topics/t/messages", None);
    let (_, id) = events.messages(8);
    assert_eq!(api.send("DELETE /v1/topics/t", &[], b"").status, 204);
    let name = loop {
        let (name, data, _) = events.next();
        if name != "caught-up" {
            break (name, data["code"].clone());
        }
    };
    assert_eq!(name.0, "end", "{name:?}");
    // It waits for the next one.
    let events = Events::open(&api._product, "topics/t/messages", Some(&id));
    assert_eq!(publish(&mut api, "t", 9).status, 201);
    let life = done(&mut api.http, "GET /v1/topics/t", &Value::Null)["incarnation"].clone();
    for mut events in [events, Events::open(&api._product, "topics/t/messages", Some(&id))] {
        let (name, data, at) = events.next();
        let gap = json!({"topic":"t","partition":0,"from":0,"to":0,"why":"recreated","incarnation":life});
        assert_eq!((name.as_str(), data), ("gap", gap));
        assert_eq!(events.messages(1).0, [9]);
        let again = Events::open(&api._product, "topics/t/messages", Some(&at)).messages(1).0;
        assert_eq!(again, [9], "it is told once");
    }
}

#[test]
fn where_publishes_make_no_topics_the_answer_says_what_to_do() {
    let mut api = Api::start();
    assert_eq!(api.send("PUT /v1/ns/strict", &[], b"{}").status, 201);
    let missing = api.get("/v1/ns/strict/events?topic=new", &[]);
    let problem = missing.json();
    assert_eq!((missing.status, problem["code"].as_str()), (404, Some("topic_not_found")));
    assert!(problem["detail"].as_str().unwrap().contains("create the topic first"), "{problem}");
    let nowhere = api.get("/v1/ns/nowhere/events?topic=new", &[]);
    assert_eq!(nowhere.json()["code"], "namespace_not_found", "{}", nowhere.text());
}
