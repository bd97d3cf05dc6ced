//! Calls with one answer.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls_pki_types::{PrivateKeyDer, ServerName};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use weir_protocol::error::{ErrorCode, Outcome};
use weir_protocol::rpc::{Method, Refusal};
use weir_transport::{CallError, ClientTls, Link, Listener, NotSent, Reply, TcpConnect};

use super::memory_link;
use crate::harness::*;

/// Many concurrent calls of many sizes come back with their own bodies.
async fn pipelines_many_calls(link: Link) {
    let mut calls = JoinSet::new();
    for i in 0..500usize {
        let link = link.clone();
        calls.spawn(async move {
            let size = if i == 250 { 4 << 20 } else { i * 13 % 3000 };
            let body = vec![Bytes::from(i.to_le_bytes().to_vec()), Bytes::from(vec![i as u8; size])];
            let answer = link.call(Method::Read, SHARD, body.clone(), SOON).await.unwrap();
            assert!(answer[..] == body.concat()[..], "call {i} got another answer");
        });
    }
    while let Some(done) = calls.join_next().await {
        done.unwrap();
    }
}

#[tokio::test]
async fn many_calls_are_pipelined_in_memory() {
    let (link, server) = memory_link(link_config(), server_config(), echo());
    pipelines_many_calls(link).await;
    server.shutdown(SOON).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_calls_are_pipelined_over_tcp() {
    let config = server_config();
    let metrics = Arc::clone(&config.metrics);
    let listener = Listener::bind(config, echo()).await.unwrap();
    let connect = TcpConnect { address: listener.local_addr().to_string(), tls: None };
    let link = Link::new(link_config(), Arc::new(connect));
    pipelines_many_calls(link).await;
    listener.shutdown(SOON).await;
    let seen = metrics.snapshot();
    assert_eq!((seen.connections, seen.connections_opened), (0, 1));
    assert_eq!((seen.calls_in_flight, seen.queued_bytes), (0, 0));
    assert_eq!(seen.frames_in, 501, "the hello and each request");
    assert_eq!(seen.frames_out, 500, "each answer; the welcome precedes the queue");
}

fn tls(trusted: bool) -> (Arc<rustls::ServerConfig>, ClientTls) {
    let made = |_| generate_simple_self_signed(["node.test".to_owned()]).unwrap();
    let CertifiedKey { cert, signing_key } = made(());
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let key = PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
    let server = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key)
        .unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(if trusted { cert.der().clone() } else { made(()).cert.der().clone() }).unwrap();
    let client = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let server_name = ServerName::try_from("node.test").unwrap();
    (Arc::new(server), ClientTls { config: Arc::new(client), server_name })
}

async fn tls_link(trusted: bool) -> (Listener, Link) {
    let (server, client) = tls(trusted);
    let mut config = server_config();
    config.tls = Some(server);
    let listener = Listener::bind(config, echo()).await.unwrap();
    let connect = TcpConnect { address: listener.local_addr().to_string(), tls: Some(client) };
    (listener, Link::new(link_config(), Arc::new(connect)))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_calls_are_pipelined_over_tls() {
    let (listener, link) = tls_link(true).await;
    pipelines_many_calls(link).await;
    listener.shutdown(SOON).await;
}

#[tokio::test]
async fn a_node_with_an_untrusted_certificate_is_not_called() {
    let (_listener, link) = tls_link(false).await;
    let error = call(&link, "x").await.unwrap_err();
    assert!(matches!(error, CallError::NotSent(NotSent::Down(_))), "{error:?}");
}

#[tokio::test]
async fn answers_may_come_in_another_order_than_calls() {
    let held: Arc<Mutex<Vec<(Bytes, Reply)>>> = Arc::default();
    let holding = Arc::clone(&held);
    let (link, _server) = memory_link(
        link_config(),
        server_config(),
        service(move |_, request| {
            let mut held = holding.lock().unwrap();
            held.push((request.body.into_bytes(), request.reply));
            if held.len() == 3 {
                held.drain(..).rev().for_each(|(body, reply)| reply.finish(vec![body]));
            }
        }),
    );
    let (a, b, c) = tokio::join!(call(&link, "a"), call(&link, "b"), call(&link, "c"));
    assert_eq!([&a.unwrap()[..], &b.unwrap()[..], &c.unwrap()[..]], [b"a", b"b", b"c"]);
}

#[tokio::test]
async fn a_dropped_reply_is_answered_with_unknown_outcome() {
    let (link, _server) = memory_link(link_config(), server_config(), service(|_, request| drop(request)));
    let Err(CallError::Refused(refusal)) = call(&link, "x").await else { panic!("not refused") };
    assert_eq!((refusal.error_code(), refusal.effect()), (ErrorCode::Internal, Outcome::Unknown));
}

#[tokio::test]
async fn a_refusal_arrives_as_it_was_given() {
    let given = || Refusal { tail: Some(9), ..Refusal::new(ErrorCode::BeyondTail, "at 10") };
    let (link, _server) =
        memory_link(link_config(), server_config(), service(move |_, request| request.reply.refuse(given())));
    let Err(CallError::Refused(refusal)) = call(&link, "x").await else { panic!("not refused") };
    assert_eq!(refusal, given());
}

#[tokio::test]
async fn an_answer_larger_than_a_frame_is_refused_and_the_connection_lives() {
    let (link, _server) = memory_link(
        link_config(),
        server_config(),
        service(|_, request| {
            let size = if &request.body.into_bytes()[..] == b"large" { 5 << 20 } else { 1 };
            request.reply.finish(vec![Bytes::from(vec![0; size])]);
        }),
    );
    let Err(CallError::Refused(refusal)) = call(&link, "large").await else { panic!("not refused") };
    assert_eq!((refusal.error_code(), refusal.effect()), (ErrorCode::Internal, Outcome::Unknown));
    assert_eq!(call(&link, "small").await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_request_larger_than_a_frame_is_not_sent() {
    let (link, _server) = memory_link(link_config(), server_config(), echo());
    let body = vec![Bytes::from(vec![0; 5 << 20])];
    let error = link.call(Method::Read, SHARD, body, SOON).await.unwrap_err();
    assert!(matches!(error, CallError::NotSent(NotSent::TooLarge(size)) if size == 5 << 20), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn a_call_without_an_answer_ends_at_its_deadline_and_the_peer_is_told() {
    let (cancelled, mut told) = tokio::sync::mpsc::unbounded_channel();
    let (link, _server) = memory_link(
        link_config(),
        server_config(),
        service(move |_, request| {
            let cancelled = cancelled.clone();
            tokio::spawn(async move {
                let mut credit = request.reply.credit();
                while !credit.changed().await.is_cancelled {}
                cancelled.send(()).unwrap();
            });
        }),
    );
    let error = link.call(Method::Read, SHARD, Vec::new(), Duration::from_millis(200)).await.unwrap_err();
    assert!(matches!(error, CallError::Deadline), "{error:?}");
    told.recv().await.unwrap();
}

#[tokio::test]
async fn calls_beyond_the_servers_limit_are_refused_without_effect() {
    let held: Arc<Mutex<Vec<Reply>>> = Arc::default();
    let holding = Arc::clone(&held);
    let mut config = server_config();
    config.calls_max = 2;
    let (link, _server) = memory_link(
        link_config(),
        config,
        service(move |_, request| holding.lock().unwrap().push(request.reply)),
    );
    let (first, second) = (call(&link, "1"), call(&link, "2"));
    let third = async {
        while held.lock().unwrap().len() < 2 {
            tokio::task::yield_now().await;
        }
        let refused = call(&link, "3").await;
        held.lock().unwrap().drain(..).for_each(|reply| reply.finish(Vec::new()));
        refused
    };
    let (first, second, third) = tokio::join!(first, second, third);
    assert!(first.is_ok() && second.is_ok());
    let Err(CallError::Refused(refusal)) = third else { panic!("not refused") };
    assert_eq!((refusal.error_code(), refusal.effect()), (ErrorCode::TooManyRequests, Outcome::None));
}

#[tokio::test]
async fn calls_beyond_the_links_limit_are_not_sent() {
    let mut config = link_config();
    config.calls_max = 1;
    let (link, _server) =
        memory_link(config, server_config(), service(|_, request| std::mem::forget(request)));
    let _running = link.open(Method::Subscribe, SHARD, Vec::new()).await.unwrap();
    let error = call(&link, "x").await.unwrap_err();
    assert!(matches!(error, CallError::NotSent(NotSent::Full)), "{error:?}");
}

#[tokio::test]
async fn calls_that_leave_places_do_not_take_the_last_ones() {
    let mut config = link_config();
    config.calls_max = 3;
    let (link, _server) = memory_link(
        config,
        server_config(),
        service(|_, request| {
            if request.body.is_empty() { std::mem::forget(request) } else { request.reply.finish(Vec::new()) }
        }),
    );
    let lasting = link.leaving_places(2);
    let _first = lasting.open(Method::Subscribe, SHARD, Vec::new()).await.unwrap();
    let _second = link.open(Method::Publish, SHARD, Vec::new()).await.unwrap();
    let error = lasting.open(Method::Subscribe, SHARD, Vec::new()).await.unwrap_err();
    assert!(matches!(error, CallError::NotSent(NotSent::Full)), "{error:?}");
    assert!(call(&link, "x").await.is_ok(), "who is answered at once finds a place");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_socket_that_listens_already_is_served_where_it_is() {
    let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    // Connected before anybody serves: the port is never anybody else's.
    let early = Link::new(link_config(), Arc::new(TcpConnect { address: address.to_string(), tls: None }));
    let call = tokio::spawn(async move { early.call(Method::Read, SHARD, vec!["x".into()], SOON).await });
    let listener = Listener::serve(socket, server_config(), echo()).unwrap();
    assert_eq!(listener.local_addr(), address);
    assert_eq!(call.await.unwrap().unwrap(), "x");
    listener.shutdown(SOON).await;
}
