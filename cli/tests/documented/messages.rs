//! Headers of requests, and messages as JSON, against the document.

use serde_json::json;

use super::{Api, Texts};

#[test]
fn headers_look_as_the_document_says() {
    let mut api = Api::start();
    let tags: Texts<'_> =
        (&["*", r#""1:2""#, r#""1:2", "1:3""#], &["", "1:2", r#"W/"1:2""#, r#""x""#, r#""1:2:3""#, "**"]);
    let told = api.parameter("updateTopic", "If-Match");
    api.holds("If-Match", &told, tags, |api, text| {
        api.send("PATCH /v1/topics/t", &[("If-Match", text)], &json!({}))
    });
    let told = api.parameter("createTopic", "If-None-Match");
    let any: Texts<'_> = (&["*", r#"W/"x","a:b""#, r#""1:2""#], &["", "x", r#""a b""#, r#""a" "b""#]);
    api.holds("If-None-Match", &told, any, |api, text| {
        api.send("PUT /v1/topics/t", &[("If-None-Match", text)], &json!({}))
    });
    let digest = "sha-256=:LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ=:";
    let posted: &[(&str, Texts<'_>)] = &[
        ("If-Match", (&["*", r#""1:0:5""#], &["", r#""1:2""#, r#"W/"1:0:5""#])),
        ("If-None-Match", (&["*"], &["", r#""1:0:5""#])),
        ("Content-Digest", (&[digest], &["", "sha-256=x", "md5=:AA==:"])),
        (
            "Deliver-At",
            (&["1970-01-01T00:00:00Z", "2001-02-03t04:05:06.7+08:00"], &["", "5", "1969-12-31T23:59:59Z"]),
        ),
    ];
    for (name, texts) in posted {
        let told = api.parameter("publishMessage", name);
        api.holds(name, &told, *texts, |api, text| {
            api.http.request("POST /v1/topics/t/messages", &[(name, text)], b"hello").unwrap()
        });
    }
    // What a pattern cannot say, the text beside it does.
    let answer = api.send("POST /v1/topics/t/messages", &[("Deliver-At", "2999-01-01T00:00:00Z")], &json!(1));
    assert_eq!((answer.status, &answer.json()["field"]), (400, &json!("deliver-at")));
    assert!(api.about("publishMessage", "Deliver-At").contains("366 days"));
}

#[test]
fn what_a_message_says_of_itself_in_json_looks_as_the_document_says() {
    let mut api = Api::start();
    let lines: &[(&str, Texts<'_>)] = &[
        ("data_base64", (&["", "aA==", "aGU=", "aGVs"], &["a", "aA", "aB==", "a-_=", "aGU=="])),
        ("deliver_at", (&["1970-01-01T00:00:00Z"], &["", "0", "2001-13-01T00:00:00Z"])),
        ("traceparent", (&["x"], &["é", "a\nb"])),
        ("tracestate", (&["", "a=b"], &["\u{7f}", "\t"])),
    ];
    for (field, texts) in lines {
        let told = api.field("BatchLine", field);
        api.holds(field, &told, *texts, |api, text| {
            let mut line = json!({ *field: text });
            if *field != "data_base64" {
                line["data"] = json!(1);
            }
            let line = line.to_string();
            let media = [("Content-Type", "application/x-ndjson")];
            api.http.request("POST /v1/topics/t/messages:batch", &media, line.as_bytes()).unwrap()
        });
    }
    let attributes: &[(&str, Texts<'_>)] = &[
        (
            "time",
            (
                &["1969-07-20T20:17:40Z", "2026-01-31t12:00:00.5+01:00"],
                &["", "0", "soon", "2001-13-01T00:00:00Z"],
            ),
        ),
        (
            "dataschema",
            (&["https://shop.example/order", "urn:a"], &["", "order", ":x", "a:", "a:b c", "a:<b>", "1:x"]),
        ),
        ("data_base64", (&["", "aA=="], &["aA", "?"])),
    ];
    for (field, texts) in attributes {
        let told = api.field("CloudEvent", field);
        api.holds(field, &told, *texts, |api, text| {
            let event = json!({"specversion": "1.0", "id": "7", "source": "/s", "type": "t", *field: text});
            let media = [("Content-Type", "application/cloudevents+json")];
            api.http.request("POST /v1/topics/t/messages", &media, event.to_string().as_bytes()).unwrap()
        });
    }
    let told = api.field("TopicPatch", "content_type");
    let quoted = r#"text/plain; charset="a\"b" ;x=y;"#;
    let types: Texts<'_> =
        (&["application/json", quoted], &["", "json", "a/", "a b/c", "a/b;c", "a/b; c=", "a/é"]);
    api.holds("content_type", &told, types, |api, text| {
        api.send("PATCH /v1/topics/t", &[], &json!({"content_type": text}))
    });
    let told = api.field("Settle", "ack");
    api.holds("ack", &told, (&[], &["", "l_", "x", "l_é"]), |api, text| {
        api.send("POST /v1/subscriptions/s:settle", &[], &json!({"ack": [text]}))
    });
}

#[test]
fn a_redrive_of_as_many_ids_as_the_document_says_fits_its_body() {
    let mut api = Api::start();
    let most = api.schema("Redrive/properties/ids")["maxItems"].as_u64().unwrap();
    let ids: Vec<_> = (0..most).map(|offset| format!("0:{}", 9_007_199_254_700_000 + offset)).collect();
    let line = "POST /v1/subscriptions/s:redrive?dry_run=true";
    let answer = api.send(line, &[], &json!({"ids": ids, "max": most}));
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.json()["redriven"], json!([]));
}
