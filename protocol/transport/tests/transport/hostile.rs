//! Callers that send what callers do not send.

use std::sync::Arc;
use std::time::Duration;

use prost::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::Instant;
use weir_protocol::error::{ErrorCode, Outcome};
use weir_protocol::frame::{FLAG_END, FrameHead, FrameKind, HEADER_BYTES};
use weir_protocol::rpc::{Hello, Method, Refusal};
use weir_transport::{MetricsSnapshot, Server};

use crate::harness::*;

/// Sends raw bytes instead of a hello (or after one) and waits for the server to close.
async fn send_raw(introduced: bool, bytes: &[u8]) -> MetricsSnapshot {
    let config = server_config();
    let metrics = Arc::clone(&config.metrics);
    let server = Server::new(config, echo());
    let mut stream = played_caller(&server);
    if introduced {
        introduce(&mut stream, &hello()).await.unwrap();
    }
    // The server may close while this is being written.
    let _ = stream.write_all(bytes).await;
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest).await;
    server.shutdown(SOON).await;
    metrics.snapshot()
}

#[tokio::test(start_paused = true)]
async fn garbage_instead_of_a_hello_is_closed_at_once() {
    let started = Instant::now();
    let seen = send_raw(false, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    assert_eq!((seen.handshakes_failed, seen.connections_opened), (1, 0));
    assert_eq!(started.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn another_frame_instead_of_a_hello_is_closed_at_once() {
    let seen = send_raw(false, &frame_bytes(request_head(21, 1), b"early")).await;
    assert_eq!((seen.handshakes_failed, seen.connections_opened), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_large_hello_is_refused_by_its_header_and_little_of_it_is_read() {
    let started = Instant::now();
    let bytes = frame_bytes(head(FrameKind::Hello, 0, 0), &vec![0; 1 << 20]);
    let seen = send_raw(false, &bytes).await;
    assert_eq!(seen.handshakes_failed, 1);
    assert!(seen.bytes_in <= 8 * 1024, "{seen:?}");
    assert_eq!(started.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_slow_hello_is_closed_at_the_deadline() {
    let config = server_config();
    let metrics = Arc::clone(&config.metrics);
    let server = Server::new(config, echo());
    let mut stream = played_caller(&server);
    let started = Instant::now();
    let bytes = frame_bytes(head(FrameKind::Hello, 0, 0), &hello().encode_to_vec());
    let (mut reading, mut writing) = tokio::io::split(&mut stream);
    let trickle = async {
        for byte in bytes {
            if writing.write_all(&[byte]).await.is_err() {
                break;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    let mut rest = Vec::new();
    let closed = async {
        let _ = reading.read_to_end(&mut rest).await;
        started.elapsed()
    };
    let ((), took) = tokio::join!(trickle, closed);
    assert_eq!(took, Duration::from_secs(5));
    assert_eq!(metrics.snapshot().handshakes_failed, 1);
}

#[tokio::test(start_paused = true)]
async fn every_bad_frame_closes_the_connection() {
    let good = frame_bytes(request_head(21, 1), b"body");
    let flipped = |at: usize| {
        let mut bytes = good.clone();
        bytes[at] ^= 0x40;
        bytes
    };
    let oversize = {
        let mut bytes = good.clone();
        bytes[0..4].copy_from_slice(&u32::MAX.to_le_bytes());
        bytes
    };
    let cases = [
        ("an oversize length", oversize),
        ("an unknown kind", flipped(4)),
        ("an unknown flag", flipped(5)),
        ("a damaged header", flipped(12)),
        ("a damaged body", flipped(HEADER_BYTES)),
        ("an answer", frame_bytes(head(FrameKind::Answer, FLAG_END, 1), b"")),
        ("a second hello", frame_bytes(head(FrameKind::Hello, 0, 0), &hello().encode_to_vec())),
        ("credit that cannot be decoded", frame_bytes(head(FrameKind::Credit, 0, 1), b"\xff")),
        ("garbage", vec![0xaa; 4096]),
    ];
    for (case, bytes) in cases {
        let started = Instant::now();
        let seen = send_raw(true, &bytes).await;
        assert_eq!((seen.connections_opened, seen.connections), (1, 0), "{case}");
        assert_eq!(seen.calls_in_flight, 0, "{case}");
        assert_eq!(started.elapsed(), Duration::ZERO, "{case}: closed by a deadline only");
    }
}

#[tokio::test(start_paused = true)]
async fn a_frame_cut_anywhere_by_a_closing_caller_starts_no_call() {
    let bytes = frame_bytes(request_head(21, 1), b"body");
    for cut in 1..bytes.len() {
        let server = Server::new(server_config(), service(|_, _| panic!("called by a part of a frame")));
        let mut stream = played_caller(&server);
        introduce(&mut stream, &hello()).await.unwrap();
        stream.write_all(&bytes[..cut]).await.unwrap();
        stream.shutdown().await.unwrap();
        assert!(read_frame(&mut stream).await.is_none(), "cut at {cut}");
        server.shutdown(SOON).await;
    }
}

#[tokio::test(start_paused = true)]
async fn two_running_calls_with_one_number_close_the_connection() {
    let config = server_config();
    let metrics = Arc::clone(&config.metrics);
    let held: Arc<std::sync::Mutex<Vec<_>>> = Arc::default();
    let holding = Arc::clone(&held);
    let server = Server::new(config, service(move |_, request| holding.lock().unwrap().push(request.reply)));
    let mut stream = played_caller(&server);
    introduce(&mut stream, &hello()).await.unwrap();
    for _ in 0..2 {
        write_frame(&mut stream, request_head(21, 1), b"").await;
    }
    assert!(read_frame(&mut stream).await.is_none());
    held.lock().unwrap().clear();
    server.shutdown(SOON).await;
    assert_eq!(metrics.snapshot().calls_in_flight, 0);
}

async fn refusal_of(hello: Hello, head: FrameHead) -> Refusal {
    let server = Server::new(server_config(), echo());
    let mut stream = played_caller(&server);
    introduce(&mut stream, &hello).await.unwrap();
    write_frame(&mut stream, head, b"").await;
    let (answer, body) = read_frame(&mut stream).await.unwrap();
    assert_eq!((answer.kind, answer.flags, answer.call), (FrameKind::Answer, 3, head.call));
    // The connection lives.
    write_frame(&mut stream, request_head(Method::Read as u16, 2), b"").await;
    assert_eq!(read_frame(&mut stream).await.unwrap().0.flags, FLAG_END);
    Refusal::decode(body).unwrap()
}

#[tokio::test]
async fn unknown_and_node_only_methods_are_refused_without_effect() {
    let refusal = refusal_of(hello(), request_head(99, 1)).await;
    assert_eq!((refusal.error_code(), refusal.effect()), (ErrorCode::NotSupported, Outcome::None));
    let refusal = refusal_of(hello(), request_head(100, 1)).await;
    assert_eq!((refusal.error_code(), refusal.effect()), (ErrorCode::Forbidden, Outcome::None));
    // A node passes this check; whether the method exists is the next one.
    let refusal = refusal_of(Hello { node_id: 2, ..hello() }, request_head(60_000, 1)).await;
    assert_eq!(refusal.error_code(), ErrorCode::NotSupported);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_reads_nothing_is_closed_before_its_refusals_pile_up() {
    let mut config = server_config();
    config.calls_max = 16;
    let metrics = Arc::clone(&config.metrics);
    let server = Server::new(config, echo());
    let mut stream = played_caller(&server);
    introduce(&mut stream, &hello()).await.unwrap();
    let flood = frame_bytes(request_head(99, 1), b"");
    while stream.write_all(&flood).await.is_ok() {
        let seen = metrics.snapshot();
        assert!(seen.queued_bytes < 1 << 20, "{seen:?}");
    }
    assert_eq!(metrics.snapshot().connections_opened, 1);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_leaves_answers_unread_gets_no_further_calls_admitted() {
    let mut config = server_config();
    config.queued_bytes_max = 300_000;
    let metrics = Arc::clone(&config.metrics);
    let answer = bytes::Bytes::from(vec![1; 100_000]);
    let server = Server::new(config, service(move |_, request| request.reply.finish(vec![answer.clone()])));
    let mut stream = played_caller(&server);
    introduce(&mut stream, &hello()).await.unwrap();
    for call in 1..=50 {
        write_frame(&mut stream, request_head(Method::Read as u16, call), b"").await;
    }
    // With the clock paused this returns once every task waits.
    tokio::time::sleep(Duration::from_millis(10)).await;
    let seen = metrics.snapshot();
    assert!(seen.queued_bytes < 300_000 + 2 * 101_000, "{seen:?}");
    assert!(seen.refused >= 40, "{seen:?}");
    let mut answered = 0;
    for _ in 1..=50 {
        let (answer, body) = read_frame(&mut stream).await.unwrap();
        if answer.flags == FLAG_END {
            answered += 1;
        } else {
            let refusal = Refusal::decode(body).unwrap();
            assert_eq!((refusal.error_code(), refusal.effect()), (ErrorCode::TooManyRequests, Outcome::None));
        }
    }
    assert_eq!(answered + seen.refused, 50, "every call is answered once");
}
