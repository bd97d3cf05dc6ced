//! The product against its own document: what it says of texts, numbers and `null` is what is accepted and refused.
#![expect(dead_code, reason = "each test uses a part of the product's client")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod messages;
#[path = "../product/mod.rs"]
mod product;

use product::{Answer, Connection, Product};
use serde_json::{Value, json};
use weir_protocol::error::ErrorCode;

/// Texts that are accepted, and texts that are refused.
type Texts<'a> = (&'a [&'a str], &'a [&'a str]);

/// Headers that HTTP itself, or every answer, may have.
const ON_ANY: [&str; 8] = [
    "cache-control",
    "content-length",
    "content-security-policy",
    "cross-origin-resource-policy",
    "date",
    "vary",
    "x-content-type-options",
    "x-request-id",
];

const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const FORK: &str = r#"{"name":"q","at":"now"}"#;
/// What clients are never told.
const BETWEEN_ROOMS: [ErrorCode; 3] = [ErrorCode::NotLeader, ErrorCode::ConfigBehind, ErrorCode::ConfigStale];

struct Api {
    _dir: tempfile::TempDir,
    _product: Product,
    http: Connection,
    document: Value,
}

impl Api {
    /// A topic `t` of one partition with one message, and a subscription `s` of it.
    fn start() -> Self {
        let (dir, product, mut http) = product::started();
        product::done(&mut http, "PUT /v1/topics/t", &json!({}));
        product::done(&mut http, "PUT /v1/subscriptions/s", &json!({"topics": ["t"]}));
        assert_eq!(http.request("POST /v1/topics/t/messages", &[], b"x").unwrap().status, 201);
        let document = http.request("GET /openapi.json", &[], b"").unwrap().json();
        Self { _dir: dir, _product: product, http, document }
    }

    fn send(&mut self, line: &str, headers: &[(&str, &str)], body: &Value) -> Answer {
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        self.http.request(line, headers, &body).unwrap()
    }

    fn schema(&self, pointer: &str) -> &Value {
        let found = self.document.pointer(&format!("/components/schemas/{pointer}"));
        found.unwrap_or_else(|| panic!("the document has no {pointer}"))
    }

    /// What the schema of a parameter says.
    fn parameter(&self, operation: &str, name: &str) -> Value {
        let schema = &self.told(operation, name)["schema"];
        schema.get("items").unwrap_or(schema).clone()
    }

    /// What the text beside it says.
    fn about(&self, operation: &str, name: &str) -> &str {
        self.told(operation, name)["description"].as_str().unwrap()
    }

    fn told(&self, operation: &str, name: &str) -> &Value {
        let paths = self.document["paths"].as_object().unwrap().values();
        let mut operations = paths.flat_map(|path| path.as_object().unwrap().values());
        let operation = operations.find(|one| one["operationId"] == operation).unwrap();
        let parameters = operation["parameters"].as_array().unwrap();
        parameters.iter().find(|one| one["name"] == name).unwrap()
    }

    /// Asserts that an operation may be answered so: with this status, this form and these headers.
    fn may_answer(&self, operation: &str, answer: &Answer) {
        let paths = self.document["paths"].as_object().unwrap().values();
        let mut operations = paths.flat_map(|path| path.as_object().unwrap().values());
        let told = operations.find(|one| one["operationId"] == operation).unwrap();
        let told = &told["responses"][answer.status.to_string()];
        assert!(told.is_object(), "{operation}: the document has no {}", answer.status);
        let has = |what: &str, name: &str| {
            let named = told[what].as_object();
            named.is_some_and(|named| named.keys().any(|key| key.eq_ignore_ascii_case(name)))
        };
        for (name, value) in &answer.headers {
            let is_told = match name.as_str() {
                "content-type" => {
                    let form = value.split(';').next().unwrap();
                    has("content", form) || has("content", "*/*")
                }
                name => ON_ANY.contains(&name) || has("headers", name),
            };
            assert!(is_told, "{operation}: the document has no {name}: {value} with {}", answer.status);
        }
    }

    fn field(&self, schema: &str, field: &str) -> Value {
        let told = self.schema(&format!("{schema}/properties/{field}"));
        told.get("items").unwrap_or(told).clone()
    }

    /// `ask` with each of `accepted` is not refused for it, and with each of `refused` is; and the document says so.
    fn holds(
        &mut self,
        what: &str,
        told: &Value,
        (accepted, refused): Texts<'_>,
        ask: impl Fn(&mut Self, &str) -> Answer,
    ) {
        assert!(["pattern", "maxLength"].iter().any(|rule| told.get(rule).is_some()), "{what}: {told}");
        for (texts, is_accepted) in [(accepted, true), (refused, false)] {
            for text in texts {
                assert_eq!(matches(told, text), is_accepted, "{what}: the document on {text:?}: {told}");
                let answer = ask(self, text);
                let is_refused = matches!(answer.status, 400 | 409);
                assert_eq!(!is_refused, is_accepted, "{what}: {text:?}: {}", answer.text());
            }
        }
    }
}

fn matches(told: &Value, text: &str) -> bool {
    let length = text.chars().count() as u64;
    let pattern = told["pattern"].as_str().map(|pattern| regex::Regex::new(pattern).unwrap());
    told["minLength"].as_u64().is_none_or(|min| length >= min)
        && told["maxLength"].as_u64().is_none_or(|max| length <= max)
        && pattern.is_none_or(|pattern| pattern.is_match(text))
}

fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

#[test]
fn parameters_look_as_the_document_says() {
    let mut api = Api::start();
    let (longest, too_long) = ("a".repeat(255), "a".repeat(256));
    let names: Texts<'_> =
        (&["a", "...", ".a", "..a", "~-_.9Z", &longest], &[".", "..", "a b", "a*", "é", "a/b", &too_long]);
    for (operation, name, before) in
        [("readTopic", "topic", "topics/"), ("readSubscription", "subscription", "subscriptions/")]
    {
        let told = api.parameter(operation, name);
        api.holds(operation, &told, names, |api, text| {
            api.send(&format!("GET /v1/{before}{}", encoded(text)), &[], &Value::Null)
        });
    }
    let told = api.parameter("readNamespace", "ns");
    api.holds("ns", &told, names, |api, text| {
        api.send(&format!("GET /v1/ns/{}", encoded(text)), &[], &Value::Null)
    });

    let long_filter = format!("key == '{}'", "a".repeat(1_024));
    let queries: &[(&str, &str, &str, Texts<'_>)] = &[
        (
            "readMessages",
            "from",
            "topics/t/messages",
            (
                &["earliest", "latest", "0", "ts:0", "ts:2026-01-01T00:00:00Z", "tail:3"],
                &["", "Latest", "-1", "+1", "tail:", "tail:x", "when:1", "cursor:", "ts:"],
            ),
        ),
        (
            "readMessages",
            "until",
            "topics/t/messages",
            (&["1", "ts:5"], &["", "latest", "tail:1", "cursor:x"]),
        ),
        ("readMessages", "filter", "topics/t/messages", (&["key == 'a'"], &["", &long_filter])),
        (
            "listMessagesOfState",
            "as_of",
            "subscriptions/s/state",
            (&["now", "ts:9999999999999", "snap_00000000000000ff"], &["", "snap_1", "earliest", "5", "ts:"]),
        ),
        ("listMessagesOfState", "topic", "subscriptions/s/state", (&["t"], &["", "a b", ".."])),
        (
            "explainMessage",
            "id",
            "subscriptions/s/explain",
            (&["0:0"], &["", "0", ":0", "a b:0:0", "0:x", "0:+7", "+0:7"]),
        ),
    ];
    for (operation, name, path, texts) in queries {
        let told = api.parameter(operation, name);
        api.holds(name, &told, *texts, |api, text| {
            api.send(&format!("GET /v1/{path}?{name}={}", encoded(text)), &[], &Value::Null)
        });
    }

    let told = api.parameter("publishMessage", "Producer-Id");
    api.holds("Producer-Id", &told, (&["p", &longest], &[&too_long]), |api, text| {
        let headers = [("Producer-Id", text), ("Producer-Epoch", "0"), ("Producer-Seq", "0")];
        api.send("POST /v1/topics/t/messages", &headers, &json!(1))
    });
    let told = api.parameter("publishMessage", "Idempotency-Key");
    let too_long = format!("\"{too_long}\"");
    let keys: Texts<'_> = (
        &[r#""k""#, r#""a\"b\\c""#, "6ba7b810-9dad-11d1-80b4-00c04fd430c8"],
        &["k", "6ba7b8109dad11d180b400c04fd430c8", r#""""#, r#""a"#, r#""a"b""#, r#""a\b""#, &too_long],
    );
    api.holds("Idempotency-Key", &told, keys, |api, text| {
        api.send("POST /v1/topics/t/messages", &[("Idempotency-Key", text)], &json!(1))
    });
}

#[test]
fn what_the_service_makes_looks_as_the_document_says() {
    let mut api = Api::start();
    let published = api.send("POST /v1/topics/t/messages", &[], &json!(1));
    let receipt = published.header("confirm-receipt").unwrap().to_owned();
    let told = api.parameter("readReceipt", "receipt");
    api.holds("receipt", &told, (&[&receipt], &["", "x", "rcpt_", "rcpt_é"]), |api, text| {
        api.send(&format!("GET /v1/topics/t/receipts/{}", encoded(text)), &[], &Value::Null)
    });
    for (operation, path) in [
        ("listTopics", "topics"),
        ("listNamespaces", "ns"),
        ("listSubscriptions", "subscriptions"),
        ("listLeases", "subscriptions/s/leases"),
    ] {
        let told = api.parameter(operation, "cursor");
        api.holds(operation, &told, (&[], &["", "é", "a b", "="]), |api, text| {
            api.send(&format!("GET /v1/{path}?cursor={}", encoded(text)), &[], &Value::Null)
        });
    }
}

#[test]
fn a_number_in_a_text_is_digits_alone() {
    let mut api = Api::start();
    for path in ["messages?partition=%2B0&from=0", "messages?limit=%2B5", "messages/0/%2B0", "messages/+0/0"]
    {
        let answer = api.send(&format!("GET /v1/topics/t/{path}"), &[], &Value::Null);
        assert_eq!(answer.status, 400, "{path}: {}", answer.text());
    }
    let ttl = [("Message-TTL-Ms", "+5")];
    let answer = api.send("POST /v1/topics/t/messages", &ttl, &json!(1));
    assert_eq!((answer.status, &answer.json()["field"]), (400, &json!("message-ttl-ms")));
}

#[test]
fn texts_of_configurations_look_as_the_document_says() {
    let mut api = Api::start();
    let config: &[(&str, Texts<'_>)] = &[
        ("topics", (&["t", "orders.*", "*", "..*"], &["", "a b", "..", "a*b", "**"])),
        ("dlq", (&["dead"], &["", "a/b", "."])),
        ("start", (&["earliest", "latest", "ts:5"], &["", "now", "cursor:x", "tail:"])),
        ("filter", (&["key == 'a'"], &[""])),
        ("fair_by", (&["key", "header.tenant"], &[""])),
    ];
    for (field, texts) in config {
        let told = api.field("SubscriptionSettings", field);
        api.holds(field, &told, *texts, |api, text| {
            let mut body = json!({"topics": ["t"]});
            body[*field] = if *field == "topics" { json!([text]) } else { json!(text) };
            let made = api.send("PUT /v1/subscriptions/new", &[], &body);
            api.send("DELETE /v1/subscriptions/new", &[], &Value::Null);
            made
        });
    }
    for (field, accepted, refused) in
        [("mode", &["queue"], &["", "push"]), ("order", &["none"], &["", "keys"])]
    {
        let told = api.field("SubscriptionPatch", field);
        api.holds(field, &told, (accepted, refused), |api, text| {
            api.send("PATCH /v1/subscriptions/s", &[], &json!({ field: text }))
        });
    }

    let told = api.field("NamespacePatch", "cors_origins");
    let origins: Texts<'_> = (
        &["https://shop.example", "http://10.0.0.7:8080", "http://[::1]"],
        &[
            "",
            "*",
            "null",
            "shop.example",
            "https://Shop.example",
            "https://a.example/",
            "https://me@a.example",
        ],
    );
    api.holds("cors_origins", &told, origins, |api, text| {
        api.send("PATCH /v1/ns/default", &[], &json!({"cors_origins": [text]}))
    });
}

#[test]
fn positions_and_names_in_bodies_look_as_the_document_says() {
    let mut api = Api::start();
    let told = api.field("Seek", "to")["oneOf"][0].clone();
    let seeks: Texts<'_> = (&["earliest", "latest", "0", "ts:5"], &["", "now", "tail:1", "-1", "+1", "ts:"]);
    api.holds("to", &told, seeks, |api, text| {
        api.send("POST /v1/subscriptions/s:seek?dry_run=true", &[], &json!({"to": text}))
    });
    let told = api.field("Seek", "undo");
    api.holds("undo", &told, (&["snap_00000000000000ff"], &["", "snap_1", "now"]), |api, text| {
        api.send("POST /v1/subscriptions/s:seek", &[], &json!({"to": "undo", "undo": text}))
    });
    let told = api.field("Trim", "before")["oneOf"][0].clone();
    api.holds("before", &told, (&["0", "ts:0", "end"], &["", "latest", "tail:1", "+0"]), |api, text| {
        api.send("POST /v1/topics/t:trim?dry_run=true", &[], &json!({"before": text, "partition": 0}))
    });
    for (schema, line) in [("Seek", "subscriptions/s:seek"), ("Trim", "topics/t:trim")] {
        let field = if schema == "Seek" { "to" } else { "before" };
        assert_eq!(api.field(schema, field)["oneOf"][1]["type"], "integer");
        let body = json!({ field: 0, "partition": 0 });
        let body = if schema == "Seek" { json!({ field: 0 }) } else { body };
        let answer = api.send(&format!("POST /v1/{line}?dry_run=true"), &[], &body);
        assert_eq!(answer.status, 200, "{line}: {}", answer.text());
        let most = api.field(schema, field)["oneOf"][1]["maximum"].as_u64().unwrap();
        let beyond = json!({ field: most + 1, "partition": 0 });
        let beyond = if schema == "Seek" { json!({ field: most + 1 }) } else { beyond };
        let answer = api.send(&format!("POST /v1/{line}?dry_run=true"), &[], &beyond);
        assert_eq!((answer.status, &answer.json()["field"]), (400, &json!(field)), "{line}: {beyond}");
    }
    let told = api.field("Redrive", "ids");
    api.holds("ids", &told, (&["0:0"], &["", "7", "a b:0:0", "0:+0"]), |api, text| {
        api.send("POST /v1/subscriptions/s:redrive?dry_run=true", &[], &json!({"ids": [text]}))
    });
    let told = api.field("BatchLine", "content_type");
    let types: Texts<'_> = (&["text/plain", "text/plain;\tx=y"], &["", "a\nb", "a\rb", "a\0", "\u{7f}", "é"]);
    api.holds("content_type", &told, types, |api, text| {
        let line = json!({"data": "x", "content_type": text}).to_string();
        let media = [("Content-Type", "application/x-ndjson")];
        api.http.request("POST /v1/topics/t/messages:batch", &media, line.as_bytes()).unwrap()
    });
    for (field, accepted, refused) in
        [("at", &["now"][..], &["", "earliest", "snap_1"][..]), ("name", &["fork"], &["", "a b", ".."])]
    {
        let told = api.field("ForkSubscription", field);
        api.holds(field, &told, (accepted, refused), |api, text| {
            let mut body = json!({"name": "fork", "at": "now"});
            body[field] = json!(text);
            api.send("POST /v1/subscriptions/s:fork", &[], &body)
        });
    }
}

#[test]
fn null_in_a_configuration_is_as_if_it_were_left_out_and_the_document_says_where() {
    let mut api = Api::start();
    let bodies = [
        ("NamespaceSettings", "PUT /v1/ns/n", json!({})),
        ("NamespacePatch", "PATCH /v1/ns/n", json!({})),
        ("TopicSettings", "PUT /v1/topics/new", json!({})),
        ("TopicPatch", "PATCH /v1/topics/new", json!({})),
        ("SubscriptionSettings", "PUT /v1/subscriptions/new", json!({"topics": ["t"]})),
        ("SubscriptionPatch", "PATCH /v1/subscriptions/new", json!({})),
    ];
    for (schema, line, around) in bodies {
        // What is made first is what everything left out makes; making it again is 200 only if that is the same.
        let made = api.send(line, &[], &around);
        assert!(matches!(made.status, 200 | 201), "{line}: {}", made.text());
        for (field, told) in api.schema(schema)["properties"].as_object().unwrap().clone() {
            let mut body = around.clone();
            body[&field] = Value::Null;
            let answer = api.send(line, &[], &body);
            assert_eq!(answer.status == 200, takes_null(&told), "{line} {body}: {told}: {}", answer.text());
            let Some(inner) = inner_of(&told) else { continue };
            for (name, told) in api.schema(&inner)["properties"].as_object().cloned().unwrap_or_default() {
                body[&field] = json!({ name: null });
                let answer = api.send(line, &[], &body);
                assert_eq!(answer.status == 200, takes_null(&told), "{line} {body}: {}", answer.text());
            }
        }
    }
}

/// A body's fields are described by one type, several, or any of several schemas.
fn takes_null(told: &Value) -> bool {
    match (&told["type"], &told["anyOf"]) {
        (Value::Array(types), _) => types.contains(&json!("null")),
        (_, Value::Array(several)) => several.iter().any(|one| one["type"] == "null"),
        _ => false,
    }
}

fn inner_of(told: &Value) -> Option<String> {
    let several = told["anyOf"].as_array()?;
    let target = several.iter().find_map(|one| one["$ref"].as_str())?;
    Some(target.rsplit('/').next()?.to_owned())
}

#[test]
fn no_number_is_said_to_be_smaller_than_it_may_be() {
    let api = Api::start();
    assert!(!api.document.to_string().contains("int32"), "32 bits here have no sign");
    let told = api.field("SubscriptionConfig", "max_attempts");
    assert_eq!((&told["minimum"], &told["maximum"]), (&json!(0), &json!(u32::MAX)));
}

type Headers = &'static [(&'static str, &'static str)];

const PRODUCER: Headers = &[("Producer-Id", "p"), ("Producer-Epoch", "0"), ("Producer-Seq", "0")];
const KEY: Headers = &[("Idempotency-Key", "\"k\"")];
const MINIMAL: Headers = &[("Prefer", "return=minimal")];
const KEYED: Headers = &[("Message-Key", "k"), ("Deliver-Delay-Ms", "1"), ("Message-TTL-Ms", "60000")];
const ENCODED: Headers = &[("Content-Encoding", "gzip"), ("traceparent", TRACE), ("tracestate", "a=b")];
const LINES: Headers = &[("Content-Type", "application/x-ndjson")];
const LINES_AT_MEMORY: Headers = &[("Content-Type", "application/x-ndjson"), ("Confirm", "memory")];
const LINES_MINIMAL: Headers = &[("Content-Type", "application/x-ndjson"), ("Prefer", "return=minimal")];
const CLOUD_EVENTS: Headers = &[("Accept", "application/cloudevents-batch+json")];
const LINE: &str = "{\"data\":1}\n";

/// An operation, a request of it, and the status of its answer; one behind the other.
const ANSWERS: &[(&str, &str, Headers, &str, u16)] = &[
    ("describeService", "GET /v1", &[], "", 200),
    ("readHealth", "GET /healthz", &[], "", 204),
    ("readReadiness", "GET /readyz", &[], "", 204),
    ("readReadiness", "GET /readyz?verbose", &[], "", 200),
    ("readMetrics", "GET /metrics", &[], "", 200),
    ("readOpenapi", "GET /openapi.json", &[], "", 200),
    ("listNamespaces", "GET /v1/ns", &[], "", 200),
    ("createNamespace", "PUT /v1/ns/n", &[], "{}", 201),
    ("createNamespace", "PUT /v1/ns/n", &[], "{}", 200),
    ("updateNamespace", "PATCH /v1/ns/n", &[], "{\"auto_create\":true}", 200),
    ("readNamespace", "GET /v1/ns/n", &[], "", 200),
    ("readNamespace", "GET /v1/ns/n", &[("If-None-Match", "*")], "", 304),
    ("deleteNamespace", "DELETE /v1/ns/n", &[], "", 204),
    ("listTopics", "GET /v1/topics", &[], "", 200),
    ("createTopic", "PUT /v1/topics/u", &[], "{}", 201),
    ("createTopic", "PUT /v1/topics/u", &[], "{}", 200),
    ("updateTopic", "PATCH /v1/topics/u", &[], "{}", 200),
    ("readTopic", "GET /v1/topics/u", &[], "", 200),
    ("readTopic", "GET /v1/topics/u", &[("If-None-Match", "*")], "", 304),
    ("deleteTopic", "DELETE /v1/topics/u", &[], "", 204),
    ("publishMessage", "POST /v1/topics/t/messages", PRODUCER, "1", 201),
    ("publishMessage", "POST /v1/topics/t/messages", PRODUCER, "1", 200),
    ("publishMessage", "POST /v1/topics/t/messages", KEY, "1", 201),
    ("publishMessage", "POST /v1/topics/t/messages", KEY, "1", 200),
    ("publishMessage", "POST /v1/topics/t/messages", MINIMAL, "1", 204),
    ("publishMessage", "POST /v1/topics/t/messages", &[("Confirm", "memory")], "1", 202),
    ("publishMessage", "POST /v1/topics/t/messages", &[("Confirm", "none")], "1", 202),
    ("publishMessage", "POST /v1/topics/t/messages", ENCODED, "1", 201),
    ("publishMessage", "POST /v1/topics/t/messages", KEYED, "1", 201),
    ("publishBatch", "POST /v1/topics/t/messages:batch", LINES, LINE, 200),
    ("publishBatch", "POST /v1/topics/t/messages:batch", LINES_AT_MEMORY, LINE, 202),
    ("publishBatch", "POST /v1/topics/t/messages:batch", LINES_MINIMAL, LINE, 204),
    ("readProducer", "GET /v1/topics/t/producers/p", &[], "", 200),
    ("readMessages", "GET /v1/topics/t/messages", &[], "", 200),
    ("readMessages", "GET /v1/topics/t/messages", &[("Accept", "application/x-ndjson")], "", 200),
    ("readMessages", "GET /v1/topics/t/messages", &[("Accept", "application/vnd.weir.batch")], "", 200),
    ("readMessages", "GET /v1/topics/t/messages", CLOUD_EVENTS, "", 200),
    ("readMessages", "GET /v1/topics/t/messages?from=latest&wait=1", &[], "", 204),
    ("readMessages", "GET /v1/topics/t/messages", &[("If-None-Match", "*")], "", 304),
    ("readMessage", "GET /v1/topics/t/messages/0/0", &[], "", 200),
    ("readMessage", "GET /v1/topics/t/messages/0/0", &[("If-None-Match", "*")], "", 304),
    ("readMessage", "GET /v1/topics/t/messages/0/6", &[], "", 200),
    ("readMessage", "GET /v1/topics/t/messages/0/7", &[], "", 200),
    ("trimTopic", "POST /v1/topics/t:trim?dry_run=true", &[], "{\"before\":\"end\"}", 200),
    ("listSubscriptions", "GET /v1/subscriptions", &[], "", 200),
    ("createSubscription", "PUT /v1/subscriptions/r", &[], "{\"topics\":[\"t\"]}", 201),
    ("createSubscription", "PUT /v1/subscriptions/r", &[], "{\"topics\":[\"t\"]}", 200),
    ("updateSubscription", "PATCH /v1/subscriptions/r", &[], "{}", 200),
    ("readSubscription", "GET /v1/subscriptions/r", &[], "", 200),
    ("readSubscription", "GET /v1/subscriptions/r", &[("If-None-Match", "*")], "", 304),
    ("pauseSubscription", "POST /v1/subscriptions/r:pause", &[], "", 200),
    ("resumeSubscription", "POST /v1/subscriptions/r:resume", &[], "", 200),
    ("forkSubscription", "POST /v1/subscriptions/r:fork", &[], FORK, 201),
    ("forkSubscription", "POST /v1/subscriptions/r:fork", &[], FORK, 200),
    ("seekSubscription", "POST /v1/subscriptions/r:seek", &[], "{\"to\":\"earliest\"}", 200),
    ("purgeSubscription", "POST /v1/subscriptions/r:purge?dry_run=true", &[], "{}", 200),
    ("redriveDeadLetters", "POST /v1/subscriptions/r:redrive", &[], "{\"max\":1}", 200),
    ("listDeadLetters", "GET /v1/subscriptions/r/dlq", &[], "", 200),
    ("listLeases", "GET /v1/subscriptions/r/leases", &[], "", 200),
    ("listMessagesOfState", "GET /v1/subscriptions/r/state?of=ready", &[], "", 200),
    ("explainMessage", "GET /v1/subscriptions/r/explain?id=0:0", &[], "", 200),
    ("pullMessages", "POST /v1/subscriptions/r:pull", &[], "{\"max\":1}", 200),
    ("deleteSubscription", "DELETE /v1/subscriptions/r", &[], "", 204),
];

#[test]
fn answers_look_as_the_document_says() {
    let mut api = Api::start();
    for (operation, asked, headers, body, status) in ANSWERS {
        let answer = api.http.request(asked, headers, body.as_bytes()).unwrap();
        assert_eq!(answer.status, *status, "{asked} {headers:?}: {}", answer.text());
        api.may_answer(operation, &answer);
        if answer.status == 201 {
            let place = answer.header("location").unwrap_or_else(|| panic!("{asked}: where it is"));
            let found = api.http.request(&format!("GET {place}"), &[], b"").unwrap();
            assert_eq!(found.status, 200, "{place}");
        }
    }
    let stored = api.send("POST /v1/topics/t/messages", &[], &json!(1));
    let receipt = stored.header("confirm-receipt").unwrap();
    let resolved = api.send(&format!("GET /v1/topics/t/receipts/{receipt}"), &[], &Value::Null);
    assert_eq!(resolved.status, 200, "{}", resolved.text());
    api.may_answer("readReceipt", &resolved);
    for (publish, status) in [(json!([]), 200), (json!([{"topic": "t", "data": 1}]), 200), (json!([]), 207)] {
        let pulled = api.send("POST /v1/subscriptions/s:pull", &[], &json!({"max": 1})).json();
        let lease = &pulled["messages"][0]["lease"];
        let body = match status {
            207 => json!({"ack": [lease, lease]}),
            _ => json!({"ack": [lease], "publish": publish}),
        };
        let settled = api.send("POST /v1/subscriptions/s:settle", &[], &body);
        assert_eq!(settled.status, status, "{}", settled.text());
        api.may_answer("settleMessages", &settled);
    }
}

#[test]
fn what_a_subscription_keeps_for_life_is_refused_by_its_field() {
    let mut api = Api::start();
    for (field, other) in [
        ("mode", json!("stream")),
        ("topics", json!(["u"])),
        ("start", json!("latest")),
        ("order", json!("key")),
    ] {
        let answer = api.send("PATCH /v1/subscriptions/s", &[], &json!({ field: other }));
        let problem = answer.json();
        assert_eq!(
            (answer.status, &problem["code"], &problem["field"]),
            (409, &json!("not_supported"), &json!(field))
        );
    }
}

/// Every code that a client may be told is in the table of docs/api.md, with its status and whether the same
/// request may help later.
#[test]
fn the_guide_names_every_code_of_a_refusal() {
    let guide = include_str!("../../../docs/api.md");
    let rows: Vec<Vec<&str>> = guide
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.strip_suffix(" |"))
        .map(|row| row.split('|').map(|cell| cell.trim().trim_matches('`')).collect())
        .collect();
    for code in ErrorCode::ALL.iter().filter(|code| !BETWEEN_ROOMS.contains(*code)) {
        let (status, again) = (code.status().to_string(), if code.retryable() { "yes" } else { "no" });
        let row = rows.iter().find(|row| row[0] == code.as_str() && row.len() == 4);
        let row = row.unwrap_or_else(|| panic!("docs/api.md does not name {}", code.as_str()));
        assert_eq!((row[1], row[2]), (status.as_str(), again), "{}", code.as_str());
    }
}
