//! Events of the CloudEvents specification, in each of its modes.

use serde_json::json;

use weir_protocol::batch::{BatchBuilder, Compression, HeadersBuilder, RecordParts};

use super::Api;

#[test]
fn cloudevents_come_and_go_in_all_their_modes() {
    let mut api = Api::with_topic("t", "{}");
    let event =
        r#"{"specversion":"1.0","id":"1","source":"/s","type":"made","partitionkey":"k","data":{"n":1.10}}"#;
    let structured = [("Content-Type", "application/cloudevents+json")];
    assert_eq!(api.send("POST /v1/topics/t/messages", &structured, event.as_bytes()).status, 201);
    let batched = [("Content-Type", "application/cloudevents-batch+json")];
    assert_eq!(api.batch("t", &batched, format!("[{event},{event}]")).status, 200);
    let binary = [
        ("Content-Type", "text/plain"),
        ("ce-specversion", "1.0"),
        ("ce-id", "4"),
        ("ce-source", "/s"),
        ("ce-type", "said"),
        ("ce-partitionkey", "k"),
    ];
    assert_eq!(api.send("POST /v1/topics/t/messages", &binary, b"hello").status, 201);
    let one = api.get("/v1/topics/t/messages/0/0", &[]);
    assert_eq!(
        (one.text().as_str(), one.header("ce-type"), one.header("message-key")),
        ("{\"n\":1.10}", Some("made"), Some("k"))
    );
    let events = api.get("/v1/topics/t/messages", &[("Accept", "application/cloudevents-batch+json")]);
    assert!(events.text().contains("\"data\":{\"n\":1.10}"), "{}", events.text());
    let events = events.json();
    let types: Vec<_> = events.as_array().unwrap().iter().map(|event| event["type"].clone()).collect();
    assert_eq!(types, ["made", "made", "made", "said"]);
    assert_eq!((&events[3]["data"], &events[3]["partitionkey"]), (&json!("hello"), &json!("k")));

    // What was not published as an event is read as one, complete and with an id of its own.
    let text = [("Content-Type", "text/plain")];
    let plain = api.send("POST /v1/topics/t/messages", &text, b"plain");
    let life = plain.header("etag").unwrap().trim_matches('"').split(':').next().unwrap().to_owned();
    let events = api.get("/v1/topics/t/messages?from=4", &[("Accept", "application/cloudevents-batch+json")]);
    let event = &events.json()[0];
    assert_eq!(
        (&event["specversion"], &event["source"], &event["id"], &event["data"]),
        (&json!("1.0"), &json!("/v1/ns/default/topics/t"), &json!(format!("{life}:0:4")), &json!("plain"))
    );
    assert!(event["time"].as_str().unwrap().ends_with('Z') && event["type"].is_string(), "{event}");
}

#[test]
fn attributes_of_events_are_percent_encoded_in_headers_and_nowhere_else() {
    let mut api = Api::with_topic("t", "{}");
    let post = "POST /v1/topics/t/messages";
    let structured = [("Content-Type", "application/cloudevents+json")];
    let event = |rest: &str| {
        format!(r#"{{"specversion":"1.0","id":"1","source":"/s","type":"said",{rest},"data":1}}"#)
    };
    let told = event(r#""subject":"Euro € 100%","n":3,"is":true"#);
    assert_eq!(api.send(post, &structured, told.as_bytes()).status, 201);
    let binary = [
        ("ce-specversion", "1.0"),
        ("ce-id", "2"),
        ("ce-source", "/s"),
        ("ce-type", "said"),
        ("ce-subject", "Euro%20%e2%82%ac"),
        ("ce-partitionkey", "\"a \\\"b\\\"\""),
    ];
    assert_eq!(api.send(post, &binary, b"x").status, 201);

    let in_header = |api: &mut Api, offset: u64| {
        let one = api.get(&format!("/v1/topics/t/messages/0/{offset}"), &[]);
        one.header("ce-subject").map(str::to_owned)
    };
    assert_eq!(in_header(&mut api, 0).as_deref(), Some("Euro%20%E2%82%AC%20100%25"));
    assert_eq!(in_header(&mut api, 1).as_deref(), Some("Euro%20%E2%82%AC"));
    let events = api.get("/v1/topics/t/messages", &[("Accept", "application/cloudevents-batch+json")]).json();
    assert_eq!((&events[0]["subject"], &events[1]["subject"]), (&json!("Euro € 100%"), &json!("Euro €")));
    assert_eq!(events[1]["partitionkey"], "a \"b\"");
    assert_eq!((&events[0]["n"], &events[0]["is"]), (&json!("3"), &json!("true")), "as in headers: texts");
    let page =
        api.get("/v1/topics/t/messages?filter=header.ce-subject%20==%20'Euro%20%E2%82%AC'", &[]).json();
    assert_eq!(page["messages"].as_array().unwrap().len(), 1);
    let found = &page["messages"][0];
    assert_eq!((&found["key"], &found["headers"]["ce-subject"]), (&json!("a \"b\""), &json!("Euro €")));

    for (name, value) in [
        ("ce-id", ""),
        ("ce-source", ""),
        ("ce-type", ""),
        ("ce-subject", ""),
        ("ce-subject", "%C0%A0"),
        ("ce-time", "yesterday"),
        ("ce-dataschema", "/order"),
    ] {
        let refused = api.send(post, &[(name, value)], b"x");
        let problem = refused.json();
        let told = (refused.status, &problem["code"], &problem["field"]);
        assert_eq!(told, (400, &json!("invalid_header"), &json!(name)), "{name}: {value}");
    }
    for empty in ["id", "source", "type"] {
        let event =
            event(r#""subject":"x""#).replace(&format!(r#""{empty}":"#), &format!(r#""{empty}":"","x":"#));
        let refused = api.send(post, &structured, event.as_bytes());
        assert_eq!(refused.status, 400, "{event}");
        assert!(refused.text().contains("is empty"), "{}", refused.text());
    }
    for (field, rest) in [
        ("subject", r#""subject":"""#),
        ("time", r#""time":"soon""#),
        ("dataschema", r#""dataschema":"order""#),
    ] {
        let refused = api.send(post, &structured, event(rest).as_bytes());
        assert_eq!((refused.status, &refused.json()["field"]), (400, &json!(field)), "{}", refused.text());
    }
    assert_eq!(api.get("/v1/topics/t", &[]).json()["partitions"][0]["end"], 2);
}

const EVENT: (&str, &str) = ("Accept", "application/cloudevents+json");
const EVENTS: (&str, &str) = ("Accept", "application/cloudevents-batch+json");

#[test]
fn a_percent_sign_that_encodes_nothing_is_one() {
    let mut api = Api::with_topic("t", "{}");
    let sent = [("ce-id", "1"), ("ce-source", "/s"), ("ce-type", "t"), ("ce-subject", "100% of 5%zz%20%")];
    assert_eq!(api.send("POST /v1/topics/t/messages", &sent, b"x").status, 201);
    let events = api.get("/v1/topics/t/messages", &[EVENTS]).json();
    assert_eq!(events[0]["subject"], "100% of 5%zz %");
    let one = api.get("/v1/topics/t/messages/0/0", &[]);
    assert_eq!(one.header("ce-subject"), Some("100%25%20of%205%25zz%20%25"), "encoded as the binding says");
}

#[test]
fn what_is_no_single_event_is_told_where_it_goes_instead_of_being_stored_as_it_is() {
    let mut api = Api::with_topic("t", "{}");
    for media in [
        "application/cloudevents-batch+json",
        "application/cloudevents+avro",
        "application/cloudevents-batch+protobuf; charset=utf-8",
        "Application/CloudEvents",
    ] {
        let refused = api.send("POST /v1/topics/t/messages", &[("Content-Type", media)], b"[]");
        let problem = refused.json();
        let told = (refused.status, &problem["code"], &problem["field"]);
        assert_eq!(told, (415, &json!("unsupported_media_type"), &json!("content-type")), "{media}");
        assert!(problem["detail"].as_str().unwrap().contains(":batch"), "{media}: {problem}");
    }
    assert_eq!(api.get("/v1/topics/t", &[]).json()["partitions"][0]["end"], 0);
}

#[test]
fn a_message_is_one_structured_event_for_who_asks_for_that() {
    let mut api = Api::with_topic("t", "{}");
    let binary = [
        ("Content-Type", "application/json"),
        ("ce-specversion", "1.0"),
        ("ce-id", "4"),
        ("ce-source", "/s"),
        ("ce-type", "said"),
        ("ce-subject", "Euro%20%E2%82%AC"),
    ];
    assert_eq!(api.send("POST /v1/topics/t/messages", &binary, b"{\"n\":1.10}").status, 201);
    let path = "/v1/topics/t/messages/0/0";
    for accept in ["application/cloudevents+json", "application/cloudevents+json, */*;q=0.5"] {
        let event = api.get(path, &[("Accept", accept)]);
        assert_eq!(event.header("content-type"), Some("application/cloudevents+json; charset=utf-8"));
        assert!(event.text().contains("\"data\":{\"n\":1.10}"), "{}", event.text());
        let event = event.json();
        assert_eq!((&event["id"], &event["subject"]), (&json!("4"), &json!("Euro €")));
        assert_eq!(event["datacontenttype"], "application/json");
    }
    let event = api.get(path, &[EVENT]);
    let tag = event.header("etag").unwrap().to_owned();
    let plain = api.get(path, &[("Accept", "*/*")]);
    assert_eq!((plain.text().as_str(), plain.header("ce-id")), ("{\"n\":1.10}", Some("4")));
    assert_ne!(plain.header("etag"), Some(tag.as_str()), "two forms are told apart");
    let vary = |answer: &super::Answer| {
        let mut lists = answer.headers.iter().filter(|(name, _)| name == "vary");
        lists.any(|(_, list)| list.split(", ").any(|name| name.eq_ignore_ascii_case("accept")))
    };
    assert!(vary(&event) && vary(&plain));
    assert_eq!(api.get(path, &[EVENT, ("If-None-Match", &tag)]).status, 304);
    let liked_less = ("Accept", "application/json, application/cloudevents+json;q=0.5");
    assert_eq!(api.get(path, &[liked_less]).text(), "{\"n\":1.10}");
}

/// Record batches are stored as they are: as what builds stored that checked less.
#[test]
fn what_was_stored_before_it_was_checked_does_not_spoil_a_page() {
    let mut api = Api::with_topic("t", "{}");
    let mut headers = HeadersBuilder::default();
    for (name, value) in [
        ("ce-id", ""),
        ("ce-source", "/s"),
        ("ce-type", "t"),
        ("ce-specversion", "1.0"),
        ("ce-time", "yesterday"),
        ("ce-subject", ""),
        ("ce-dataschema", "order"),
        ("ce-mine", "kept"),
    ] {
        headers.user(name, value.as_bytes()).unwrap();
    }
    let (headers, mut builder) = (headers.finish(), BatchBuilder::anonymous());
    builder.push(RecordParts { key: None, headers: &headers, value: b"x" }).unwrap();
    let batch = builder.build(Compression::None).unwrap();
    let media = [("Content-Type", "application/vnd.weir.batch")];
    assert_eq!(api.batch("t", &media, batch.bytes()).status, 200);
    for (path, accept) in [("/v1/topics/t/messages", EVENTS), ("/v1/topics/t/messages/0/0", EVENT)] {
        let found = api.get(path, &[accept]).json();
        let event = if found.is_array() { &found[0] } else { &found };
        assert!(event["time"].as_str().unwrap().ends_with('Z'), "when it was accepted: {event}");
        assert!(event["id"].as_str().unwrap().ends_with(":0:0"), "where it is: {event}");
        assert!(event.get("subject").is_none() && event.get("dataschema").is_none(), "{event}");
        assert_eq!(event["mine"], "kept");
    }
}
