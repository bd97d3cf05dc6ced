//! What caches between Weir and its clients are told, of every operation.
#![expect(dead_code, reason = "each test uses a part of the product's client")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod product;

use product::{Connection, Running, done, started};
use serde_json::{Value, json};

const PRODUCER: [(&str, &str); 3] = [("Producer-Id", "p"), ("Producer-Epoch", "0"), ("Producer-Seq", "0")];

/// What never changes may be kept; these alone answer with it.
const MAY_BE_KEPT: [&str; 2] = ["readMessages", "readMessage"];

/// Every operation of the document: its name, and a request line for what the test made.
fn lines(document: &Value, receipt: &str) -> Vec<(String, String)> {
    let mut lines = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        let path = [
            ("{ns}", "default"),
            ("{topic}", "t"),
            ("{subscription}", "s"),
            ("{partition}", "0"),
            ("{offset}", "0"),
            ("{producer}", "p"),
            ("{receipt}", receipt),
        ]
        .into_iter()
        .fold(path.clone(), |path, (name, value)| path.replace(name, value));
        for (method, operation) in methods.as_object().unwrap() {
            let Some(id) = operation["operationId"].as_str() else { continue };
            let query = match id {
                "explainMessage" => "?id=0:0",
                "followEvents" => "?topic=t",
                "listMessagesOfState" => "?of=ready",
                _ => "",
            };
            lines.push((id.to_owned(), format!("{} {path}{query}", method.to_uppercase())));
        }
    }
    // What is asked is still there when it is asked.
    lines.sort_by_key(|(_, line)| line.starts_with("DELETE"));
    lines
}

#[test]
fn every_answer_says_that_nobody_keeps_it_unless_it_never_changes() {
    let (_dir, product, mut http) = started();
    done(&mut http, "PUT /v1/topics/t", &json!({}));
    done(&mut http, "PUT /v1/subscriptions/s", &json!({"topics": ["t"]}));
    let stored = http.request("POST /v1/topics/t/messages", &PRODUCER, b"1").unwrap();
    let receipt = stored.header("confirm-receipt").unwrap().to_owned();
    let document = http.request("GET /openapi.json", &[], b"").unwrap().json();
    let lines = lines(&document, &receipt);
    assert!(lines.len() > 40, "{} operations", lines.len());
    for (id, line) in &lines {
        // One whose answer does not end is not asked for another.
        let mut own = Connection::open(&product.address).unwrap();
        own.send(line, &[], b"").unwrap();
        let (status, headers) = own.head().unwrap();
        if line.starts_with("GET") && id != "openWebSocket" {
            assert!((200..300).contains(&status), "{line}: {status}");
        }
        let told: Vec<_> = headers.iter().filter(|(name, _)| name == "cache-control").collect();
        let [(_, told)] = told[..] else { panic!("{line}: {status}: {headers:?}") };
        let is_kept = match id.as_str() {
            "followEvents" => told == "no-cache, no-transform",
            // It is asked for again by its tag before it is used.
            _ if line.starts_with("GET /openapi.json") => told == "no-cache",
            id => MAY_BE_KEPT.contains(&id) && told == "private, no-cache",
        };
        assert!(told == "no-store" || is_kept, "{line}: {status}: {told}");
    }
    let others =
        ["GET /v1/nothing", "OPTIONS /v1/topics", "GET /console", "HEAD /v1/topics", "GET /v1/topics/%"];
    for line in others {
        assert_eq!(kept(&product.address, line).as_deref(), Some("no-store"), "{line}");
    }
}

/// What the answer says of keeping it.
fn kept(address: &str, line: &str) -> Option<String> {
    let mut http = Connection::open(address).unwrap();
    http.send(line, &[], b"").unwrap();
    let (_, headers) = http.head().unwrap();
    headers.into_iter().find(|(name, _)| name == "cache-control").map(|(_, told)| told)
}

#[test]
fn nobody_keeps_what_a_node_says_of_itself() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let data = dir.path().join("data");
    let node =
        ["node", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--data-dir", data.to_str().unwrap()];
    let node = Running::start(dir.path(), &node);
    for path in ["/healthz", "/readyz", "/metrics"] {
        assert_eq!(kept(&node.said[1], &format!("GET {path}")).as_deref(), Some("no-store"), "{path}");
    }
}

#[test]
fn what_never_changes_is_for_shared_caches_where_the_topic_or_its_namespace_said_so() {
    let (_dir, product, mut http) = started();
    let told = |http: &mut Connection, topic: &str, config: &Value| {
        let made = http.request(&format!("PUT {topic}"), &[], config.to_string().as_bytes()).unwrap();
        assert_eq!(made.status, 201, "{}", made.text());
        let life = made.json()["incarnation"].clone();
        for _ in 0..2 {
            assert_eq!(http.request(&format!("POST {topic}/messages"), &[], b"1").unwrap().status, 201);
        }
        let kept = |query: &str| kept(&product.address, &format!("GET {topic}/messages{query}")).unwrap();
        let of_life = format!("&incarnation={life}");
        let at_the_end = kept("?from=1&limit=5");
        assert_eq!(at_the_end, "no-store", "what may grow is kept by nobody");
        let whole = [kept(&format!("?from=0&limit=1{of_life}")), kept("?from=0&limit=1")];
        let one = [kept(&format!("/0/0?incarnation={life}")), kept("/0/0")];
        assert_eq!(whole, one);
        whole.map(|told| {
            told.split(',').next().unwrap().to_owned() + if told.contains("immutable") { "!" } else { "" }
        })
    };
    let (mine, all) = (["private!", "private"], ["public!", "public"]);
    assert_eq!(told(&mut http, "/v1/topics/plain", &json!({})), mine);
    assert_eq!(told(&mut http, "/v1/topics/shared", &json!({"cache": "public"})), all);
    done(&mut http, "PUT /v1/ns/news", &json!({"cache": "public", "auto_create": true}));
    assert_eq!(told(&mut http, "/v1/ns/news/topics/a", &json!({})), all);
    assert_eq!(told(&mut http, "/v1/ns/news/topics/b", &json!({"cache": "private"})), mine);
    assert_eq!(http.request("POST /v1/ns/news/topics/c/messages", &[], b"1").unwrap().status, 201);
    let made = done(&mut http, "GET /v1/ns/news/topics/c", &Value::Null);
    assert_eq!(made["config"]["cache"], "public", "made by its first message");
    done(&mut http, "PATCH /v1/ns/news", &json!({"cache": "private"}));
    assert_eq!(done(&mut http, "GET /v1/ns/news/topics/a", &Value::Null)["config"]["cache"], "public");
    done(&mut http, "PATCH /v1/ns/news/topics/a", &json!({"cache": "private"}));
    let line = "GET /v1/ns/news/topics/a/messages?from=0&limit=1";
    assert_eq!(kept(&product.address, line).as_deref(), Some("private, no-cache"));
    assert_eq!(done(&mut http, "GET /v1/ns/news", &Value::Null)["cache"], "private");
}
