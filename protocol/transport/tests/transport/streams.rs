//! Calls with several answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use weir_protocol::frame::FrameKind;
use weir_protocol::rpc::{Credit, Method};
use weir_transport::{Answers, CallError, Link, Request, Service};

use super::memory_link;
use crate::harness::*;

fn records(records: u64) -> Credit {
    Credit { records, bytes: 0 }
}

/// Sends as many numbered answers as credit allows; counts streams that ended.
fn counting(ended: Arc<AtomicUsize>) -> Arc<dyn Service> {
    service(move |_, request| {
        let ended = Arc::clone(&ended);
        tokio::spawn(async move {
            count(request).await;
            ended.fetch_add(1, Ordering::SeqCst);
        });
    })
}

async fn count(request: Request) {
    let mut credit = request.reply.credit();
    let (mut sent, mut state) = (0u64, credit.latest());
    while !state.is_cancelled {
        while sent < state.credit.records {
            let answer = vec![Bytes::from(sent.to_le_bytes().to_vec())];
            if request.reply.send_when_ready(answer).await.is_err() {
                return;
            }
            sent += 1;
        }
        state = credit.changed().await;
    }
}

async fn expect(answers: &mut Answers, range: std::ops::Range<u64>) {
    for i in range {
        let answer = answers.next().await.unwrap().unwrap();
        assert_eq!(answer[..], i.to_le_bytes());
    }
}

async fn until_ended(ended: &AtomicUsize, count: usize) {
    let reached = async {
        while ended.load(Ordering::SeqCst) < count {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(SOON, reached).await.expect("streams whose caller is gone end");
}

async fn open(link: &Link) -> Answers {
    link.open(Method::Subscribe, SHARD, Vec::new()).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_stream_sends_what_is_granted_and_no_more() {
    let (link, _server) = memory_link(link_config(), server_config(), counting(Arc::default()));
    let mut answers = open(&link).await;
    answers.grant(records(3));
    expect(&mut answers, 0..3).await;
    let more = tokio::time::timeout(Duration::from_secs(1), answers.next()).await;
    assert!(more.is_err(), "sent beyond its credit: {more:?}");

    answers.grant(records(2));
    answers.grant(records(5));
    expect(&mut answers, 3..5).await;
}

#[tokio::test]
async fn dropping_the_answers_cancels_the_stream_and_leaves_others_alone() {
    let ended = Arc::new(AtomicUsize::new(0));
    let (link, server) = memory_link(link_config(), server_config(), counting(Arc::clone(&ended)));
    let mut kept = open(&link).await;
    let mut dropped = open(&link).await;
    dropped.grant(records(10));
    expect(&mut dropped, 0..1).await;
    drop(dropped);
    until_ended(&ended, 1).await;
    kept.grant(records(4));
    expect(&mut kept, 0..4).await;
    assert_eq!(ended.load(Ordering::SeqCst), 1);
    drop((kept, link));
    until_ended(&ended, 2).await;
    server.shutdown(SOON).await;
}

#[tokio::test]
async fn several_answers_arrive_in_order_and_an_empty_last_one_is_the_bare_end() {
    let (link, _server) = memory_link(
        link_config(),
        server_config(),
        service(|_, request| {
            request.reply.send(vec![Bytes::from_static(b"memory")]);
            request.reply.send(vec![Bytes::from_static(b"durable")]);
            request.reply.finish(
                Some(request.body.into_bytes()).filter(|body| !body.is_empty()).into_iter().collect(),
            );
        }),
    );
    for (last, expected) in [("", 2), ("quorum", 3)] {
        let body = vec![Bytes::from_static(last.as_bytes())];
        let mut answers = link.open(Method::Publish, SHARD, body).await.unwrap();
        let mut got = Vec::new();
        while let Some(answer) = answers.next().await {
            got.push(answer.unwrap());
        }
        assert_eq!(got, ["memory", "durable", "quorum"][..expected]);
    }
}

#[tokio::test]
async fn a_stream_dropped_by_the_service_ends_with_a_refusal() {
    let (link, _server) = memory_link(
        link_config(),
        server_config(),
        service(|_, request| request.reply.send(vec![Bytes::from_static(b"one")])),
    );
    let mut answers = open(&link).await;
    assert!(answers.next().await.unwrap().is_ok());
    assert!(matches!(answers.next().await, Some(Err(CallError::Refused(_)))));
    assert!(answers.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_gets_backpressure_and_nothing_grows() {
    const ANSWER_BYTES: usize = 10_000;
    let sent = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&sent);
    let mut config = server_config();
    config.stream_bytes_max = 100_000;
    let metrics = Arc::clone(&config.metrics);
    let server = weir_transport::Server::new(
        config,
        service(move |_, request| {
            let sent = Arc::clone(&counter);
            tokio::spawn(async move {
                let answer = Bytes::from(vec![1; ANSWER_BYTES]);
                while request.reply.send_when_ready(vec![answer.clone()]).await.is_ok() {
                    sent.fetch_add(1, Ordering::SeqCst);
                }
            });
        }),
    );
    let mut caller = played_caller(&server);
    introduce(&mut caller, &hello()).await.unwrap();
    write_frame(&mut caller, request_head(Method::Subscribe as u16, 1), b"").await;
    // With the clock paused this returns once every task waits.
    tokio::time::sleep(Duration::from_millis(10)).await;
    let stuck = sent.load(Ordering::SeqCst);
    let pipe_bytes = 64 * 1024;
    assert!(stuck * ANSWER_BYTES <= 2 * 100_000 + pipe_bytes, "{stuck} answers for a peer that reads none");
    let seen = metrics.snapshot();
    assert!(seen.queued_bytes <= 2 * 100_000, "{seen:?}");
    assert!(seen.backpressure_waits > 0, "{seen:?}");

    for _ in 0..100 {
        let (head, body) = read_frame(&mut caller).await.unwrap();
        assert_eq!((head.kind, body.len()), (FrameKind::Answer, ANSWER_BYTES));
    }
    assert!(sent.load(Ordering::SeqCst) > stuck, "reading makes room");
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_overruns_its_callers_buffer_is_ended_and_others_live() {
    let mut config = link_config();
    config.answers_bytes_max = 10_000;
    let metrics = Arc::clone(&config.metrics);
    let (link, _server) = memory_link(
        config,
        server_config(),
        service(|_, request| {
            if request.method == Method::Read {
                return request.reply.finish(Vec::new());
            }
            for _ in 0..20 {
                request.reply.send(vec![Bytes::from(vec![0; 1_000])]);
            }
            request.reply.finish(vec![Bytes::from_static(b"end")]);
        }),
    );
    let mut answers = open(&link).await;
    call(&link, "behind it").await.unwrap();
    let mut whole = 0;
    let error = loop {
        match answers.next().await.unwrap() {
            Ok(_) => whole += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, CallError::Unknown), "{error:?}");
    assert_eq!(whole, 9, "what fits 10,000 bytes at 1,064 each");
    assert!(answers.next().await.is_none());
    assert_eq!(metrics.snapshot().overruns, 1);
    assert_eq!(metrics.snapshot().calls_in_flight, 0);
}
