//! Payloads that are text, whatever they are called.

use serde_json::{Value, json};

use super::{Api, LINES};

/// What `curl -d` says where nobody says otherwise.
const FORM: &str = "application/x-www-form-urlencoded";

#[test]
fn what_is_text_by_its_type_is_read_as_a_string_and_its_bytes_stay_what_they_are() {
    let mut api = Api::with_topic("t", "{}");
    let types = [
        (FORM, true),
        ("text/csv", true),
        ("application/xml", true),
        ("image/svg+xml; charset=utf-8", true),
        ("application/x-yaml", true),
        ("application/javascript", true),
        ("application/graphql", true),
        ("application/xml; charset=utf-16", false),
        ("application/octet-stream", false),
        ("application/vnd.wap.wbxml", false),
    ];
    for (media, is_text) in types {
        let sent = api.send("POST /v1/topics/t/messages", &[("Content-Type", media)], "hellö".as_bytes());
        assert_eq!(sent.status, 201, "{media}: {}", sent.text());
        let place = sent.header("location").unwrap().to_owned();
        let offset = sent.json()["offset"].clone();
        let page = api.get(&format!("/v1/topics/t/messages?from={offset}"), &[]).json();
        let shown = &page["messages"][0];
        let expected =
            if is_text { (json!("hellö"), Value::Null) } else { (Value::Null, json!("aGVsbMO2")) };
        assert_eq!((shown["data"].clone(), shown["data_base64"].clone()), expected, "{media}");
        let raw = api.get(&place, &[]);
        assert_eq!((raw.text().as_str(), raw.header("content-type")), ("hellö", Some(media)));
    }
    let sent = api.send("POST /v1/topics/t/messages", &[("Content-Type", FORM)], b"\xff");
    let page = api.get(&format!("/v1/topics/t/messages?from={}", sent.json()["offset"]), &[]).json();
    assert_eq!(page["messages"][0]["data_base64"], "/w==", "what is no UTF-8 is no text");
}

#[test]
fn what_a_page_shows_as_a_string_can_be_sent_back_as_it_is() {
    let mut api = Api::with_topic("t", "{}");
    let line = json!({"content_type": "application/xml", "data": "<a b=\"c\"/>"});
    assert_eq!(api.batch("t", &[LINES], line.to_string()).status, 200);
    let page = api.get("/v1/topics/t/messages", &[]).json();
    let shown = &page["messages"][0];
    assert_eq!((&shown["content_type"], &shown["data"]), (&line["content_type"], &line["data"]));
    assert_eq!(api.get("/v1/topics/t/messages/0/0", &[]).text(), "<a b=\"c\"/>");
    let refused = api.batch("t", &[LINES], r#"{"content_type":"application/xml","data":{"a":1}}"#);
    assert_eq!((refused.status, &refused.json()["field"]), (400, &json!("data")), "{}", refused.text());
}
