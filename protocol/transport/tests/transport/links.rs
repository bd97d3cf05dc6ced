//! Connections that come, go and do not come.

use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use prost::Message;
use tokio::time::Instant;
use weir_protocol::error::{ErrorCode, Outcome};
use weir_protocol::frame::FrameKind;
use weir_protocol::rpc::{Hello, Method, Refusal};
use weir_transport::{
    CallError, ConnectError, HandshakeError, Link, Listener, NotSent, Reply, Server, TcpConnect,
};

use super::memory_link;
use crate::harness::*;

#[tokio::test]
async fn a_call_to_nobody_fails_fast_without_effect() {
    // No port that the system gives away: it might be somebody's by now.
    let link = Link::new(link_config(), Arc::new(TcpConnect { address: "127.0.0.1:1".into(), tls: None }));
    for _ in 0..2 {
        let error = call(&link, "x").await.unwrap_err();
        assert!(matches!(error, CallError::NotSent(NotSent::Down(_))), "{error:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_waits_for_a_connection_at_most_its_deadline() {
    let (link, _silent) = played_link(link_config());
    let started = Instant::now();
    let deadline = Duration::from_millis(300);
    let error = link.call(Method::Read, SHARD, Vec::new(), deadline).await.unwrap_err();
    assert!(matches!(error, CallError::NotSent(NotSent::Connecting)), "{error:?}");
    assert_eq!(started.elapsed(), deadline);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_never_welcomes_is_given_up_at_the_handshake_deadline() {
    let (link, _silent) = played_link(link_config());
    let started = Instant::now();
    let error = call(&link, "x").await.unwrap_err();
    let CallError::NotSent(NotSent::Down(reason)) = &error else { panic!("{error:?}") };
    assert!(matches!(**reason, ConnectError::Handshake(HandshakeError::Deadline(_))), "{reason:?}");
    assert_eq!(started.elapsed(), Duration::from_secs(5));
}

#[tokio::test]
async fn a_peer_that_dies_mid_call_leaves_the_outcome_unknown() {
    let (link, mut peer) = played_link(link_config());
    let dying = async {
        welcome(&mut peer).await;
        assert_eq!(read_frame(&mut peer).await.unwrap().0.kind, FrameKind::Request);
        drop(peer);
    };
    let (answer, ()) = tokio::join!(call(&link, "x"), dying);
    assert!(matches!(answer, Err(CallError::Unknown)), "{answer:?}");
    // The connection is gone, and with it every further call.
    let error = call(&link, "y").await.unwrap_err();
    assert!(matches!(error, CallError::NotSent(_)), "{error:?}");
}

#[tokio::test]
async fn a_stream_whose_peer_dies_ends_with_unknown() {
    let (link, mut peer) = played_link(link_config());
    let (answers, ()) = tokio::join!(link.open(Method::Subscribe, SHARD, Vec::new()), welcome(&mut peer));
    let mut answers = answers.unwrap();
    read_frame(&mut peer).await.unwrap();
    drop(peer);
    assert!(matches!(answers.next().await, Some(Err(CallError::Unknown))));
    assert!(answers.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_call_still_queued_when_the_connection_ends_is_not_sent() {
    let (link, mut peer) = played_link(link_config());
    let blocking = async {
        welcome(&mut peer).await;
        // The first request fills the pipe and is never read whole; the second stays in the queue.
        tokio::time::sleep(Duration::from_secs(1)).await;
        drop(peer);
    };
    let first = link.call(Method::Read, SHARD, vec![Bytes::from(vec![0; 1 << 20])], SOON);
    let second = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        call(&link, "queued").await
    };
    let (first, second, ()) = tokio::join!(first, second, blocking);
    assert!(matches!(first, Err(CallError::Unknown)), "{first:?}");
    assert!(matches!(second, Err(CallError::NotSent(NotSent::Ended))), "{second:?}");
}

#[tokio::test(start_paused = true)]
async fn a_half_open_connection_is_found_and_its_calls_end() {
    let (link, mut peer) = played_link(link_config());
    let (answer, ()) = tokio::join!(
        link.call(Method::Read, SHARD, Vec::new(), Duration::from_secs(3600)),
        welcome(&mut peer)
    );
    assert!(matches!(answer, Err(CallError::Unknown)), "{answer:?}");
    assert_eq!(read_frame(&mut peer).await.unwrap().0.kind, FrameKind::Request);
    assert_eq!(read_frame(&mut peer).await.unwrap().0.kind, FrameKind::Ping);
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_kept_alive_by_pings() {
    let config = server_config();
    let metrics = Arc::clone(&config.metrics);
    let (link, _server) = memory_link(link_config(), config, echo());
    call(&link, "x").await.unwrap();
    tokio::time::sleep(Duration::from_secs(600)).await;
    call(&link, "y").await.unwrap();
    assert_eq!(metrics.snapshot().connections_opened, 1);
}

#[tokio::test(start_paused = true)]
async fn a_half_open_caller_is_found_by_the_server() {
    let config = server_config();
    let metrics = Arc::clone(&config.metrics);
    let server = Server::new(config, echo());
    let mut caller = played_caller(&server);
    introduce(&mut caller, &hello()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(metrics.snapshot().connections, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_reconnects_to_a_node_that_returns() {
    let first = Listener::bind(server_config(), echo()).await.unwrap();
    let address = first.local_addr();
    let mut config = link_config();
    config.backoff_max = Duration::from_millis(100);
    let link = Link::new(config, Arc::new(TcpConnect { address: address.to_string(), tls: None }));
    call(&link, "x").await.unwrap();
    first.shutdown(SOON).await;
    let mut config = server_config();
    config.addr = address;
    let _second = Listener::bind(config, echo()).await.unwrap();
    let give_up = Instant::now() + SOON;
    while call(&link, "y").await.is_err() {
        assert!(Instant::now() < give_up, "the link did not return");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn dropping_the_last_handle_closes_the_connection() {
    let (link, mut peer) = played_link(link_config());
    let (answers, ()) = tokio::join!(link.open(Method::Subscribe, SHARD, Vec::new()), welcome(&mut peer));
    read_frame(&mut peer).await.unwrap();
    drop(link);
    // The answers keep it.
    write_frame(&mut peer, head(FrameKind::Ping, 0, 5), b"").await;
    assert_eq!(read_frame(&mut peer).await.unwrap().0.kind, FrameKind::Pong);
    drop(answers);
    while read_frame(&mut peer).await.is_some() {}
}

#[tokio::test(start_paused = true)]
async fn draining_answers_what_runs_and_refuses_what_comes() {
    let held: Arc<Mutex<Vec<Reply>>> = Arc::default();
    let holding = Arc::clone(&held);
    let (link, server) = memory_link(
        link_config(),
        server_config(),
        service(move |_, request| holding.lock().unwrap().push(request.reply)),
    );
    let running = call(&link, "running");
    let drained = async {
        while held.lock().unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
        let draining = tokio::spawn(async move { server.shutdown(SOON).await });
        tokio::time::sleep(Duration::from_millis(10)).await;
        let late = call(&link, "late").await;
        held.lock().unwrap().drain(..).for_each(|reply| reply.finish(Vec::new()));
        draining.await.unwrap();
        late
    };
    let (running, late) = tokio::join!(running, drained);
    assert!(running.is_ok(), "{running:?}");
    let Err(CallError::Refused(refusal)) = late else { panic!("{late:?}") };
    assert_eq!((refusal.error_code(), refusal.effect()), (ErrorCode::Draining, Outcome::None));
}

#[tokio::test(start_paused = true)]
async fn draining_cuts_off_what_is_not_answered_in_time() {
    let held: Arc<Mutex<Vec<Reply>>> = Arc::default();
    let holding = Arc::clone(&held);
    let (link, server) = memory_link(
        link_config(),
        server_config(),
        service(move |_, request| holding.lock().unwrap().push(request.reply)),
    );
    let running = call(&link, "running");
    let drained = async {
        while held.lock().unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
        let started = Instant::now();
        server.shutdown(Duration::from_secs(2)).await;
        started.elapsed()
    };
    let (running, took) = tokio::join!(running, drained);
    assert!(matches!(running, Err(CallError::Unknown)), "{running:?}");
    assert_eq!(took, Duration::from_secs(2));
}

async fn refusal_of(hello: Hello, change: impl FnOnce(&mut weir_transport::ServerConfig)) -> Refusal {
    let mut config = server_config();
    change(&mut config);
    let server = Server::new(config, echo());
    let mut stream = played_caller(&server);
    let (head, body) = introduce(&mut stream, &hello).await.unwrap();
    assert_eq!((head.kind, head.flags), (FrameKind::Welcome, 3));
    assert!(read_frame(&mut stream).await.is_none(), "closed after it");
    Refusal::decode(body).unwrap()
}

#[tokio::test]
async fn a_hello_is_refused_by_what_is_wrong_with_it() {
    let other = Hello { cluster_id: Some(8u128.into()), ..hello() };
    let refusal = refusal_of(other, |_| ()).await;
    assert_eq!(refusal.error_code(), ErrorCode::ConfigMismatch);
    assert!(refusal.detail.contains("00000007") && refusal.detail.contains("00000008"), "{refusal:?}");

    let refusal = refusal_of(Hello { version: 0, ..hello() }, |_| ()).await;
    assert_eq!(refusal.error_code(), ErrorCode::NotSupported);

    for wrong in ["", "secreT", "secret2"] {
        let guess = Hello { credential: Bytes::from_static(wrong.as_bytes()), ..hello() };
        let refusal = refusal_of(guess, |config| config.credential = Some("secret".into())).await;
        assert_eq!(refusal.error_code(), ErrorCode::Unauthorized);
    }

    let refusal = refusal_of(hello(), |config| config.connections_max = 0).await;
    assert_eq!(refusal.error_code(), ErrorCode::TooManyRequests);
}

#[tokio::test]
async fn a_newer_caller_is_welcomed_with_the_version_of_this_build() {
    let mut config = server_config();
    config.credential = Some("secret".into());
    let mut link = link_config();
    link.hello = Hello { version: 99, cluster_id: None, credential: "secret".into(), ..Hello::default() };
    let (link, _server) = memory_link(link, config, echo());
    let welcome = link.connected(SOON).await.unwrap();
    assert_eq!((welcome.version, welcome.node_id), (1, 1));
    assert_eq!(welcome.cluster_id, Some(7u128.into()));
}

#[tokio::test]
async fn a_link_does_not_talk_to_a_node_of_another_cluster() {
    let (link, mut peer) = played_link(link_config());
    let welcoming = async {
        read_frame(&mut peer).await.unwrap();
        let welcome =
            weir_protocol::rpc::Welcome { version: 1, cluster_id: Some(8u128.into()), ..Default::default() };
        write_frame(&mut peer, head(FrameKind::Welcome, 0, 0), &welcome.encode_to_vec()).await;
        assert!(read_frame(&mut peer).await.is_none(), "nothing is sent to it");
    };
    let (answer, ()) = tokio::join!(call(&link, "x"), welcoming);
    assert!(matches!(answer, Err(CallError::NotSent(NotSent::Down(_)))), "{answer:?}");
}

#[tokio::test(start_paused = true)]
async fn requests_beyond_the_links_queued_bytes_are_not_sent() {
    let mut config = link_config();
    config.queued_bytes_max = 1_000_000;
    let (link, mut peer) = played_link(config);
    let large = || vec![Bytes::from(vec![0; 1 << 20])];
    let (first, ()) = tokio::join!(link.open(Method::Publish, SHARD, large()), welcome(&mut peer));
    let _first = first.unwrap();
    let error = link.open(Method::Publish, SHARD, large()).await.unwrap_err();
    assert!(matches!(error, CallError::NotSent(NotSent::Full)), "{error:?}");
}
