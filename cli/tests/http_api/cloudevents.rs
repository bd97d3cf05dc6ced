//! Events of the CloudEvents specification, in each of its modes.

use serde_json::json;

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

    for (name, value) in
        [("ce-id", ""), ("ce-source", ""), ("ce-type", ""), ("ce-subject", "100%"), ("ce-subject", "%C0%A0")]
    {
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
    assert_eq!(api.get("/v1/topics/t", &[]).json()["partitions"][0]["end"], 2);
}
