//! Nothing is served to who may not have it: every operation of the table, through a real gateway.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use weir_gateway::api::operations::{OPERATIONS, Operation, PUBLIC, Target, Verb};
use weir_gateway::auth::{AuthError, Authenticator, Credentials, Grant, Op, OpSet, Pattern, Principal};
use weir_gateway::{Gateway, GatewayConfig, RunningGateway, Surroundings};
use weir_protocol::ids::Name;

/// Knows everybody and grants nobody anything.
#[derive(Debug)]
struct Denying;

impl Authenticator for Denying {
    fn authenticate(&self, _: &Credentials<'_>) -> Result<Principal, AuthError> {
        Ok(Principal::with_grants(Name::default_name(), Vec::new()))
    }

    fn demands_credentials(&self) -> bool {
        true
    }
}

/// Knows nobody.
#[derive(Debug)]
struct Unknowing;

impl Authenticator for Unknowing {
    fn authenticate(&self, _: &Credentials<'_>) -> Result<Principal, AuthError> {
        Err(AuthError::Missing)
    }

    fn demands_credentials(&self) -> bool {
        true
    }
}

/// A gateway whose storage does not exist: what is answered without it was decided before anything was asked of it.
async fn gateway(authenticator: Box<dyn Authenticator>) -> RunningGateway {
    let config = GatewayConfig {
        listen: "127.0.0.1:0".parse().unwrap(),
        storage: "127.0.0.1:1".to_owned(),
        ..GatewayConfig::default()
    };
    let around = Surroundings { authenticator: Some(authenticator), ..Surroundings::default() };
    Gateway::start_in(config, around).await.unwrap()
}

fn request(gateway: &RunningGateway, operation: &Operation) -> Request<Full<bytes::Bytes>> {
    let mut path = operation.path.to_owned();
    for (name, value) in [
        ("{ns}", "default"),
        ("{topic}", "t"),
        ("{subscription}", "s"),
        ("{partition}", "0"),
        ("{offset}", "0"),
        ("{receipt}", "r"),
        ("{producer}", "p"),
    ] {
        path = path.replace(name, value);
    }
    assert!(!path.contains('{'), "{path}: a parameter that this test does not know");
    if operation.target == Target::TopicsOfQuery {
        path.push_str("?topic=t");
    }
    if operation.id == "explainMessage" {
        path.push_str("?id=0:0");
    }
    let method = match operation.verb {
        Verb::Get => Method::GET,
        Verb::Put => Method::PUT,
        Verb::Patch => Method::PATCH,
        Verb::Post => Method::POST,
        Verb::Delete => Method::DELETE,
    };
    let uri = format!("http://{}{path}", gateway.local_addr());
    Request::builder().method(method).uri(uri).body(Full::default()).unwrap()
}

async fn answers(authenticator: Box<dyn Authenticator>) -> Vec<(&'static str, u16, String)> {
    let gateway = gateway(authenticator).await;
    let client = Client::builder(TokioExecutor::new()).build_http();
    let mut answers = Vec::new();
    for operation in OPERATIONS {
        let answer = client.request(request(&gateway, operation)).await.unwrap();
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        answers.push((operation.id, status, String::from_utf8_lossy(&body).into_owned()));
    }
    gateway.shutdown(std::time::Duration::from_secs(1)).await;
    answers
}

fn is_public(id: &str) -> bool {
    PUBLIC.iter().any(|operation| operation.id == id)
}

#[tokio::test]
async fn every_operation_but_the_public_ones_is_forbidden_to_who_has_no_grant() {
    for (id, status, body) in answers(Box::new(Denying)).await {
        if is_public(id) {
            assert!([204, 503].contains(&status), "{id}: {status} {body}");
        } else {
            assert_eq!(status, 403, "{id}: {body}");
            assert!(
                body.contains("\"code\":\"forbidden\"") && body.contains("missing_grant"),
                "{id}: {body}"
            );
        }
    }
}

#[tokio::test]
async fn strangers_are_told_to_say_who_they_are() {
    for (id, status, body) in answers(Box::new(Unknowing)).await {
        if !is_public(id) {
            assert_eq!(status, 401, "{id}: {body}");
        }
    }
}

/// May manage and consume the subscription `s`, and do nothing to topics.
#[derive(Debug)]
struct OnlySubscriptions;

impl Authenticator for OnlySubscriptions {
    fn authenticate(&self, _: &Credentials<'_>) -> Result<Principal, AuthError> {
        let grant = Grant {
            namespaces: Pattern::any(),
            topics: Pattern::new("mine"),
            subscriptions: Pattern::new("s"),
            ops: OpSet::of(Op::ALL),
        };
        Ok(Principal::with_grants(Name::default_name(), vec![grant]))
    }

    fn demands_credentials(&self) -> bool {
        true
    }
}

#[tokio::test]
async fn a_subscription_is_no_way_around_the_grants_on_topics() {
    let gateway = gateway(Box::new(OnlySubscriptions)).await;
    let client = Client::builder(TokioExecutor::new()).build_http();
    for (name, body, missing) in [
        ("s", r#"{"topics":["theirs"]}"#, "subscribe ns/default/topics/theirs"),
        ("s", r#"{"topics":["mine"],"dlq":"theirs"}"#, "publish ns/default/topics/theirs"),
        ("t", r#"{"topics":["mine"]}"#, "manage ns/default/subscriptions/t"),
    ] {
        let uri = format!("http://{}/v1/subscriptions/{name}", gateway.local_addr());
        let request = Request::put(uri).body(Full::<bytes::Bytes>::from(body)).unwrap();
        let answer = client.request(request).await.unwrap();
        assert_eq!(answer.status(), 403, "{body}");
        let answer = answer.into_body().collect().await.unwrap().to_bytes();
        let answer = String::from_utf8_lossy(&answer).into_owned();
        assert!(answer.contains(&format!("\"missing_grant\":\"{missing}\"")), "{answer}");
    }
    gateway.shutdown(std::time::Duration::from_secs(1)).await;
}
