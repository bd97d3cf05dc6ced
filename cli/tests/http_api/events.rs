//! Event streams: ids that go on, and what followers are told.

use std::time::Duration;

use serde_json::{Value, json};

use super::product::{Connection, Product};
use super::{Api, LINES};

/// Reads `count` messages of an event stream: their payloads and the last id.
fn messages(events: &mut Connection, count: usize) -> (Vec<u64>, String) {
    let (mut seen, mut id, mut is_message) = (Vec::new(), String::new(), true);
    while seen.len() < count {
        let line = events.line().unwrap();
        match line.split_once(": ") {
            Some(("id", text)) => id = text.to_owned(),
            Some(("event", _)) => is_message = false,
            Some(("data", text)) if is_message => {
                seen.push(serde_json::from_str::<Value>(text).unwrap()["data"].as_u64().unwrap());
            }
            _ if line.is_empty() => is_message = true,
            _ => {}
        }
    }
    (seen, id)
}

#[test]
fn with_many_partitions_an_id_goes_on_behind_the_last_whole_batch() {
    let mut api = Api::with_topic("wide", "{\"partitions\":20}");
    let lines: String = (0..100).map(|n| format!("{{\"key\":\"k{n}\",\"data\":{n}}}\n")).collect();
    assert_eq!(api.batch("wide", &[LINES], lines).status, 200);
    let follow = |headers: &[(&str, &str)]| {
        let mut events = Connection::open(&api._product.address).unwrap();
        let accept = [headers, &[("Accept", "text/event-stream")]].concat();
        events.send("GET /v1/topics/wide/messages?from=earliest", &accept, b"").unwrap();
        assert_eq!(events.head().unwrap().0, 200);
        events
    };
    let mut events = follow(&[]);
    let (mut seen, mut ids, mut id, mut named) = (Vec::new(), 0, String::new(), None);
    // What came up to the last message that named its place.
    let mut covered = 0;
    while seen.len() < 60 {
        let line = events.line().unwrap();
        match line.split_once(": ") {
            Some(("id", text)) => named = Some(text.to_owned()),
            Some(("data", text)) => {
                let message: Value = serde_json::from_str(text).unwrap();
                seen.extend(message["data"].as_u64());
                if let (Some(place), true) = (named.take(), message["data"].is_u64()) {
                    (id, covered, ids) = (place, seen.len(), ids + 1);
                }
            }
            _ => {}
        }
    }
    assert!((1..30).contains(&ids), "{ids} ids for 60 messages in batches of about five");
    let (rest, _) = messages(&mut follow(&[("Last-Event-ID", &id)]), 100 - covered);
    let mut all = [&seen[..covered], &rest].concat();
    all.sort_unstable();
    assert_eq!(all, (0..100).collect::<Vec<_>>(), "each once from the id on");
}

#[test]
fn an_event_id_goes_on_exactly_over_several_topics_and_partitions() {
    let mut api = Api::with_topic("a", "{\"partitions\":3}");
    assert_eq!(api.send("PUT /v1/topics/b", &[], b"{}").status, 201);
    let lines = |from: u64| -> String {
        (from..from + 20).map(|n| format!("{{\"key\":\"k{n}\",\"data\":{n}}}\n")).collect()
    };
    assert_eq!(api.batch("a", &[LINES], lines(0)).status, 200);
    assert_eq!(api.batch("b", &[LINES], lines(20)).status, 200);
    let follow = |api: &Api, headers: &[(&str, &str)]| {
        let mut events = Connection::open(&api._product.address).unwrap();
        events.send("GET /v1/ns/default/events?topic=a&topic=b&from=earliest", headers, b"").unwrap();
        assert_eq!(events.head().unwrap().0, 200);
        events
    };
    let (mut all, id) = messages(&mut follow(&api, &[]), 17);
    let (rest, id) = messages(&mut follow(&api, &[("Last-Event-ID", &id)]), 23);
    all.extend(rest);
    all.sort_unstable();
    assert_eq!(all, (0..40).collect::<Vec<_>>(), "each once");
    assert_eq!(
        api.send("POST /v1/topics/b/messages", &[("Content-Type", "application/json")], b"40").status,
        201
    );
    assert_eq!(messages(&mut follow(&api, &[("Last-Event-ID", &id)]), 1).0, [40], "nothing comes twice");

    // Made again, a topic has a life that the id does not know. Whoever names it as a place is refused.
    assert_eq!(api.send("DELETE /v1/topics/b", &[], b"").status, 204);
    assert_eq!(api.send("PUT /v1/topics/b", &[], b"{}").status, 201);
    let gone = api
        .get(&format!("/v1/ns/default/events?topic=b&from=cursor:{id}"), &[("Accept", "text/event-stream")]);
    assert_eq!(
        (gone.status, gone.json()["code"].as_str()),
        (410, Some("incarnation_gone")),
        "{}",
        gone.text()
    );
}

#[test]
fn a_place_that_is_none_of_ours_is_refused_by_what_named_it() {
    let mut api = Api::start();
    assert_eq!(api.send("PUT /v1/topics/a", &[], b"{}").status, 201);
    for (path, headers, field) in [
        ("events?topic=a", &[("Last-Event-ID", "x")][..], "last-event-id"),
        ("events?topic=a&last_event_id=x", &[], "last_event_id"),
        ("events?topic=a&from=cursor:x", &[], "from"),
        ("topics/a/messages?from=cursor:x", &[], "from"),
    ] {
        let problem = api.get(&format!("/v1/ns/default/{path}"), headers).json();
        let told = (problem["code"].as_str(), problem["field"].as_str());
        assert_eq!(told, (Some("invalid_cursor"), Some(field)), "{path}: {problem}");
    }
}

/// The events of a stream, each its name and data: so many, however long they take, and what comes behind
/// them until it says nothing for a second.
fn events_until_quiet(events: &mut Connection, count: usize) -> Vec<(String, Value)> {
    let (mut seen, mut name) = (Vec::new(), "message".to_owned());
    loop {
        events.patience(Duration::from_secs(if seen.len() < count { 20 } else { 1 }));
        let Ok(line) = events.line() else { return seen };
        match line.split_once(": ") {
            Some(("event", text)) => text.clone_into(&mut name),
            Some(("data", text)) => {
                let name = std::mem::replace(&mut name, "message".to_owned());
                seen.push((name, serde_json::from_str(text).unwrap()));
            }
            _ => {}
        }
        assert!(seen.len() < 20, "it goes round: {seen:?}");
    }
}

#[test]
fn a_follower_of_a_closed_topic_is_told_once_and_goes_on_when_it_is_opened() {
    let mut api = Api::with_topic("t", "{}");
    let json = [("Content-Type", "application/json")];
    assert_eq!(api.send("POST /v1/topics/t/messages", &json, b"0").status, 201);
    let mut early = Connection::open(&api._product.address).unwrap();
    let accept = [("Accept", "text/event-stream")];
    early.send("GET /v1/topics/t/messages", &accept, b"").unwrap();
    assert_eq!(early.head().unwrap().0, 200);
    let names =
        |seen: &[(String, Value)]| seen.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>().join(" ");
    assert_eq!(names(&events_until_quiet(&mut early, 2)), "message caught-up");
    assert_eq!(api.send("PATCH /v1/topics/t", &[], b"{\"closed\":true}").status, 200);
    let mut late = Connection::open(&api._product.address).unwrap();
    late.send("GET /v1/topics/t/messages", &accept, b"").unwrap();
    assert_eq!(late.head().unwrap().0, 200);
    let end = |closed: bool| {
        let mut data = json!({"topic": "t", "partition": 0, "end": 1});
        if closed {
            data["closed"] = json!(true);
        }
        ("caught-up".to_owned(), data)
    };
    assert_eq!(events_until_quiet(&mut early, 1), [end(true)]);
    let seen = events_until_quiet(&mut late, 2);
    assert_eq!((names(&seen).as_str(), &seen[1]), ("message caught-up", &end(true)));

    assert_eq!(api.send("PATCH /v1/topics/t", &[], b"{\"closed\":false}").status, 200);
    assert_eq!(events_until_quiet(&mut late, 1), [end(false)]);
    assert_eq!(api.send("POST /v1/topics/t/messages", &json, b"1").status, 201);
    for (follower, count, expected) in [(&mut early, 2, "caught-up message"), (&mut late, 1, "message")] {
        assert_eq!(names(&events_until_quiet(follower, count)), expected);
    }
}

#[test]
fn a_follower_is_told_to_go_when_the_gateway_stops() {
    let mut api = Api::with_topic("t", "{}");
    let mut events = Connection::open(&api._product.address).unwrap();
    events.send("GET /v1/topics/t/messages", &[("Accept", "text/event-stream")], b"").unwrap();
    assert_eq!(events.head().unwrap().0, 200);
    assert!(api._product.stop());
    let mut lines = Vec::new();
    while let Ok(line) = events.line() {
        lines.push(line);
    }
    assert!(lines.iter().any(|line| line == "event: goaway"), "{lines:?}");
}

#[test]
fn what_was_told_to_be_firm_does_not_come_again_however_many_partitions_there_are() {
    let mut api = Api::with_topic("wide", "{\"partitions\":20,\"deliver_from\":\"memory\"}");
    let follow = |address: &str, headers: &[(&str, &str)]| {
        let mut events = Connection::open(address).unwrap();
        let accept = [headers, &[("Accept", "text/event-stream")]].concat();
        events.send("GET /v1/topics/wide/messages", &accept, b"").unwrap();
        assert_eq!(events.head().unwrap().0, 200);
        events
    };
    let mut events = follow(&api._product.address, &[]);
    let message = [("Content-Type", "application/json")];
    for _ in 0..30 {
        assert_eq!(api.send("POST /v1/topics/wide/messages", &message, b"1").status, 201);
    }
    events.patience(Duration::from_secs(1));
    let (mut id, mut is_firm, mut messages) = (String::new(), false, 0);
    while let Ok(line) = events.line() {
        match line.split_once(": ") {
            Some(("id", text)) => text.clone_into(&mut id),
            Some(("event", name)) => is_firm |= name == "firm",
            Some(("data", data)) => messages += u64::from(data.contains("\"offset\"")),
            _ => {}
        }
    }
    assert_eq!((messages, is_firm), (30, true));
    // Another start has another term: what is not known to be firm is taken back.
    api._product.kill();
    let product = Product::start(api._dir.path());
    let mut events = follow(&product.address, &[("Last-Event-ID", &id)]);
    let mut told = Vec::new();
    while told.len() < 20 {
        let line = events.line().unwrap();
        told.extend(line.strip_prefix("event: ").map(str::to_owned));
        assert!(!line.contains("\"offset\""), "it comes again: {line}");
    }
    assert!(told.iter().all(|name| name == "caught-up"), "{told:?}");
}
