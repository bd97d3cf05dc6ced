//! `If-Match` and `If-None-Match` with lists of tags, through the real product.
#![expect(dead_code, reason = "each test uses a part of the product's client")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod product;

use product::{Answer, Connection, started};

fn send(http: &mut Connection, line: &str, headers: &[(&str, &str)], body: &str) -> Answer {
    http.request(line, headers, body.as_bytes()).unwrap()
}

fn tag(answer: &Answer) -> String {
    assert!(answer.status < 300, "{}", answer.text());
    answer.header("etag").unwrap().to_owned()
}

/// A life and version, as the tags of configurations have them.
fn numbers(tag: &str) -> (u64, u32) {
    let (life, version) = tag.trim_matches('"').split_once(':').unwrap();
    (life.parse().unwrap(), version.parse().unwrap())
}

/// Where it is, what makes it, and two changes of it, the second of which a PUT makes.
const CONFIGURED: [(&str, &str, &str, &str); 3] = [
    ("/v1/ns/shop", "{}", r#"{"auto_create":true}"#, r#"{"auto_create":false}"#),
    ("/v1/topics/t", "{}", r#"{"retention":{"records":8}}"#, r#"{"retention":{"records":9}}"#),
    (
        "/v1/subscriptions/work",
        r#"{"topics":["t"]}"#,
        r#"{"lease_ms":5000}"#,
        r#"{"topics":["t"],"lease_ms":6000}"#,
    ),
];

#[test]
fn any_tag_of_a_list_may_be_the_one_that_is_there() {
    let (_dir, _product, mut http) = started();
    for (path, made, patch, put) in CONFIGURED {
        let first = tag(&send(&mut http, &format!("PUT {path}"), &[], made));
        let (life, version) = numbers(&first);
        let of = |life: u64, version: u32| format!("\"{life}:{version}\"");
        let (next, later) = (of(life, version + 1), of(life, version + 5));
        // Neither the first nor the last of them, in two lines, with an empty place, and one of somebody else's.
        let list = format!("{later}, \"abc\",,{first}");
        let two = [("If-Match", list.as_str()), ("If-Match", next.as_str())];
        let changed = tag(&send(&mut http, &format!("PATCH {path}"), &two, patch));
        assert_eq!(changed, next, "{path}");
        let changed = tag(&send(&mut http, &format!("PUT {path}"), &two, put));
        assert_eq!(numbers(&changed).1, version + 2, "{path}: the second of them was there");
        let stale = send(&mut http, &format!("PATCH {path}"), &two, patch);
        assert_eq!((stale.status, stale.json()["outcome"].as_str()), (412, Some("none")), "{path}");
        let stale = send(&mut http, &format!("DELETE {path}"), &two, "");
        assert_eq!(stale.status, 412, "{path}");
        assert_eq!(tag(&send(&mut http, &format!("GET {path}"), &[], "")), changed);
    }
    for (path, ..) in CONFIGURED.iter().rev() {
        let now = tag(&send(&mut http, &format!("GET {path}"), &[], ""));
        let (life, version) = numbers(&now);
        let list = format!("\"{life}:{}\", {now}", version - 1);
        assert_eq!(
            send(&mut http, &format!("DELETE {path}"), &[("If-Match", &list)], "").status,
            204,
            "{path}"
        );
    }
}

#[test]
fn a_tag_that_is_weak_or_none_is_refused_by_name() {
    let (_dir, _product, mut http) = started();
    let publish = "POST /v1/topics/t/messages";
    for (path, made, ..) in CONFIGURED {
        send(&mut http, &format!("PUT {path}"), &[], made);
    }
    for line in [
        "PATCH /v1/ns/shop",
        "PATCH /v1/topics/t",
        "PATCH /v1/subscriptions/work",
        "DELETE /v1/topics/t",
        publish,
    ] {
        for (list, named) in [
            ("W/\"1:1\"", "W/\"1:1\" is weak"),
            ("\"1:1\", W/\"1:0:2\"", "W/\"1:0:2\" is weak"),
            ("1:1", "double quotes"),
            ("\"1:1", "double quotes"),
            ("\"1:1\" \"1:2\"", "double quotes"),
            ("*, \"1:1\"", "double quotes"),
            ("", "double quotes"),
            (",", "double quotes"),
            ("\"abc\"", "no tag of this gateway"),
        ] {
            let refused = send(&mut http, line, &[("If-Match", list)], "{}");
            let problem = refused.json();
            assert_eq!((refused.status, problem["field"].as_str()), (400, Some("if-match")), "{line} {list}");
            assert!(problem["detail"].as_str().unwrap().contains(named), "{line} {list}: {problem}");
        }
        let both = [("If-Match", "*"), ("If-None-Match", "*")];
        assert_eq!(send(&mut http, line, &both, "{}").status, 400, "{line}");
    }
    assert_eq!(send(&mut http, "GET /v1/topics/t", &[], "").json()["partitions"][0]["end"], 0);
}

/// What moves a subscription is as hard to take back as a change of it.
#[test]
fn a_subscription_is_moved_only_as_the_tag_says() {
    let (_dir, _product, mut http) = started();
    send(&mut http, "PUT /v1/topics/t", &[], "{}");
    assert_eq!(send(&mut http, "POST /v1/topics/t/messages", &[], "m").status, 201);
    let made =
        |http: &mut Connection| tag(&send(http, "PUT /v1/subscriptions/work", &[], r#"{"topics":["t"]}"#));
    let first = made(&mut http);
    let second = tag(&send(
        &mut http,
        "PATCH /v1/subscriptions/work",
        &[("If-Match", &first)],
        r#"{"lease_ms":5000}"#,
    ));
    let moves = [("seek", r#"{"to":"latest"}"#), ("redrive", "{}"), ("purge", "")];
    let ready = |http: &mut Connection| {
        send(http, "GET /v1/subscriptions/work", &[], "").json()["totals"]["ready"].clone()
    };
    for (verb, body) in moves {
        for line in [verb.to_owned(), format!("{verb}?dry_run=true")] {
            let line = format!("POST /v1/subscriptions/work:{line}");
            let stale = send(&mut http, &line, &[("If-Match", &first)], body);
            assert_eq!((stale.status, &stale.json()["code"]), (412, &"version_mismatch".into()), "{line}");
            assert_eq!(send(&mut http, &line, &[("If-Match", "work")], body).status, 400, "{line}");
        }
    }
    assert_eq!(ready(&mut http), 1, "nothing was moved");
    let either = format!("{first}, {second}");
    for ((verb, body), tag) in moves.into_iter().zip([second.as_str(), "*", &either]) {
        let line = format!("POST /v1/subscriptions/work:{verb}");
        let moved = send(&mut http, &line, &[("If-Match", tag)], body);
        assert_eq!(moved.status, 200, "{}", moved.text());
    }
    assert_eq!(ready(&mut http), 0);
    assert_eq!(send(&mut http, "DELETE /v1/subscriptions/work", &[], "").status, 204);
    made(&mut http);
    for (verb, body) in moves {
        let line = format!("POST /v1/subscriptions/work:{verb}");
        let gone = send(&mut http, &line, &[("If-Match", &second)], body);
        assert_eq!((gone.status, &gone.json()["code"]), (410, &"incarnation_gone".into()), "{verb}");
        assert_eq!(gone.json()["title"], "Topic or subscription was deleted");
    }
}

/// A fork takes over how the subscription is configured, and what it has settled.
#[test]
fn a_subscription_is_forked_only_as_the_tag_says() {
    let (_dir, _product, mut http) = started();
    send(&mut http, "PUT /v1/topics/t", &[], "{}");
    let work = "/v1/subscriptions/work";
    let made = |http: &mut Connection| tag(&send(http, &format!("PUT {work}"), &[], r#"{"topics":["t"]}"#));
    let first = made(&mut http);
    let patched = send(&mut http, &format!("PATCH {work}"), &[], r#"{"lease_ms":5000}"#);
    let second = tag(&patched);
    let fork = |http: &mut Connection, name: &str, tag: &str| {
        let body = format!(r#"{{"name":"{name}"}}"#);
        send(http, &format!("POST {work}:fork"), &[("If-Match", tag)], &body)
    };
    let stale = fork(&mut http, "a", &first);
    assert_eq!((stale.status, &stale.json()["code"]), (412, &"version_mismatch".into()));
    assert_eq!(fork(&mut http, "a", "work").status, 400);
    assert_eq!(send(&mut http, "GET /v1/subscriptions/a", &[], "").status, 404, "nothing was forked");
    for (name, tag) in [("a", second.as_str()), ("b", "*"), ("c", &format!("{first}, {second}"))] {
        let forked = fork(&mut http, name, tag);
        assert_eq!(forked.status, 201, "{}", forked.text());
    }
    assert_eq!(send(&mut http, &format!("DELETE {work}"), &[], "").status, 204);
    made(&mut http);
    let gone = fork(&mut http, "d", &second);
    assert_eq!((gone.status, &gone.json()["code"]), (410, &"incarnation_gone".into()));
}

#[test]
fn a_message_is_appended_to_any_of_the_tails_that_are_named() {
    let (_dir, _product, mut http) = started();
    send(&mut http, "PUT /v1/topics/t", &[], r#"{"partitions":2}"#);
    let publish = "POST /v1/topics/t/messages";
    let mut post = |headers: &[(&str, &str)]| send(&mut http, publish, headers, "m");
    let first = tag(&post(&[("Message-Key", "k")]));
    let (rest, end) = first
        .trim_matches('"')
        .rsplit_once(':')
        .map(|(rest, end)| (rest.to_owned(), end.to_owned()))
        .unwrap();
    assert_eq!(end, "1");
    let at = |end: u64| format!("\"{rest}:{end}\"");
    let list = format!("{}, {}, {}", at(3), at(0), at(1));
    for end in [1, 3] {
        assert_eq!(tag(&post(&[("If-Match", &list)])), at(end + 1), "at {end}");
        // What stands between is published whatever is there.
        post(&[("Message-Key", "k")]);
    }
    let refused = post(&[("If-Match", &list)]);
    assert_eq!((refused.status, refused.json()["current"]["etag"].as_str()), (412, Some(at(5).as_str())));
    let (life, partition) = rest.split_once(':').unwrap();
    let other = 1 - partition.parse::<u32>().unwrap();
    let two = post(&[("If-Match", &format!("{}, \"{life}:{other}:0\"", at(5)))]);
    assert_eq!((two.status, two.json()["field"].as_str()), (400, Some("if-match")), "{}", two.text());
    let some = post(&[("If-None-Match", &at(5))]);
    assert_eq!((some.status, some.json()["field"].as_str()), (400, Some("if-none-match")));
    assert_eq!(tag(&post(&[("If-Match", &at(5))])), at(6), "nothing of it was stored");
}

#[test]
fn what_has_one_of_the_tags_is_not_made_anew_nor_sent_again() {
    let (_dir, _product, mut http) = started();
    for (path, made, patch, _) in CONFIGURED {
        let put = |http: &mut Connection, list: &str| {
            send(http, &format!("PUT {path}"), &[("If-None-Match", list)], made)
        };
        let made = put(&mut http, "\"1:1\", W/\"2:2\"");
        assert_eq!(made.status, 201, "{path}: there is none with such a tag: {}", made.text());
        let now = tag(&made);
        let weak = format!("\"1:1\", W/{now}");
        assert_eq!(put(&mut http, &weak).status, 412, "{path}");
        assert_eq!(put(&mut http, "\"1:1\"").status, 200, "{path}: it stands like that, and has another tag");
        assert_eq!(put(&mut http, "1:1").status, 400, "{path}");
        let get = |http: &mut Connection, lists: [&str; 2]| {
            let headers = lists.map(|list| ("If-None-Match", list));
            send(http, &format!("GET {path}"), &headers, "").status
        };
        assert_eq!(get(&mut http, ["\"9:9\"", &weak]), 304, "{path}");
        send(&mut http, &format!("PATCH {path}"), &[("If-Match", &now)], patch);
        assert_eq!(get(&mut http, ["\"9:9\"", &weak]), 200, "{path}");
    }
}
