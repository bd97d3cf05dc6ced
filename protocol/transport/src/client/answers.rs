//! The answers of a call that has several.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use tokio::task::coop::cooperative;
use weir_protocol::rpc::{Credit, RaiseCredit};

use super::connection::Connection;
use super::error::CallError;
use super::link::Link;

/// What a buffered answer costs beyond its body, in bytes: so that empty answers are bounded too.
const ANSWER_OVERHEAD_BYTES: usize = 64;
/// Room for so many answers is kept when all are taken.
const ROOM_KEPT: usize = 32;

/// An error is boxed, and comes at most once: answers wait in the room of the small ones.
type Answer = Result<Bytes, Box<CallError>>;

/// What a connection has put in and the caller has not taken. A queue of its own, because those of the
/// runtime have room for 32 from their start, 1.5 KiB: many streams wait for days.
#[derive(Debug, Default)]
struct Buffered {
    answers: VecDeque<Answer>,
    bytes: usize,
    waiting: Option<Waker>,
    /// No answer follows.
    is_over: bool,
    /// Nobody takes any more.
    is_given_up: bool,
}

#[derive(Debug, Default)]
struct Buffer(Mutex<Buffered>);

impl Buffer {
    fn lock(&self) -> MutexGuard<'_, Buffered> {
        self.0.lock().expect("no code panics while it holds the answers")
    }

    fn change(&self, change: impl FnOnce(&mut Buffered) -> bool) -> bool {
        let mut buffered = self.lock();
        let is_done = change(&mut buffered);
        let waiting = buffered.waiting.take();
        drop(buffered);
        waiting.into_iter().for_each(Waker::wake);
        is_done
    }
}

/// Where a connection puts answers, bounded by bytes. With its last clone the answers are over.
#[derive(Debug, Clone)]
pub(super) struct AnswerSink(Arc<Sink>);

#[derive(Debug)]
struct Sink {
    buffer: Arc<Buffer>,
    bytes_max: usize,
}

/// Where a caller takes them.
#[derive(Debug)]
pub(super) struct AnswerSource(Arc<Buffer>);

/// A buffer of at most `bytes_max`.
pub(super) fn answer_buffer(bytes_max: usize) -> (AnswerSink, AnswerSource) {
    let buffer = Arc::<Buffer>::default();
    (AnswerSink(Arc::new(Sink { buffer: Arc::clone(&buffer), bytes_max })), AnswerSource(buffer))
}

fn cost(answer: &Answer) -> usize {
    ANSWER_OVERHEAD_BYTES + answer.as_ref().map_or(0, Bytes::len)
}

impl AnswerSink {
    /// Buffers an answer; false if it does not fit.
    pub(super) fn push(&self, answer: Result<Bytes, CallError>) -> bool {
        self.put(answer, self.0.bytes_max)
    }

    /// Buffers the last answer or error, whether it fits or not: there is at most one, of at most a frame.
    pub(super) fn push_last(&self, answer: Result<Bytes, CallError>) {
        self.put(answer, usize::MAX);
    }

    fn put(&self, answer: Result<Bytes, CallError>, bytes_max: usize) -> bool {
        let answer = answer.map_err(Box::new);
        let cost = cost(&answer);
        self.0.buffer.change(|buffered| {
            // Who dropped the answers has cancelled the call.
            if buffered.is_given_up {
                return true;
            }
            if buffered.bytes + cost > bytes_max {
                return false;
            }
            buffered.bytes += cost;
            buffered.answers.push_back(answer);
            true
        })
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.buffer.change(|buffered| std::mem::replace(&mut buffered.is_over, true));
    }
}

impl AnswerSource {
    fn poll_next(&mut self, cx: &Context<'_>) -> Poll<Option<Answer>> {
        let mut buffered = self.0.lock();
        let Some(answer) = buffered.answers.pop_front() else {
            if buffered.is_over {
                return Poll::Ready(None);
            }
            if !buffered.waiting.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
                buffered.waiting = Some(cx.waker().clone());
            }
            return Poll::Pending;
        };
        buffered.bytes -= cost(&answer);
        if buffered.answers.is_empty() {
            buffered.answers.shrink_to(ROOM_KEPT);
        }
        Poll::Ready(Some(answer))
    }
}

impl Drop for AnswerSource {
    fn drop(&mut self) {
        let mut buffered = self.0.lock();
        buffered.is_given_up = true;
        let answers = std::mem::take(&mut buffered.answers);
        let waiting = buffered.waiting.take();
        // Dropped without the lock: what is in them is freed, which may be much.
        drop(buffered);
        drop((answers, waiting));
    }
}

/// The answers of one call, in order. Dropping it cancels the call.
#[derive(Debug)]
pub struct Answers {
    connection: Arc<Connection>,
    call: u64,
    source: AnswerSource,
    /// Keeps the link, and with it the connection.
    _link: Link,
}

impl Answers {
    pub(super) fn new(connection: Arc<Connection>, call: u64, source: AnswerSource, link: Link) -> Self {
        Self { connection, call, source, _link: link }
    }

    /// The next answer; `None` after the last one. An error is the last: refused, or
    /// [`CallError::Unknown`]/[`CallError::NotSent`] when the connection ended, or `Unknown` when more was
    /// granted than the buffer holds.
    ///
    /// # Cancel safety
    /// No answer is lost.
    pub async fn next(&mut self) -> Option<Result<Bytes, CallError>> {
        // As a queue of the runtime would: who never has to wait lets others go on now and then.
        let answer = cooperative(poll_fn(|cx| self.source.poll_next(cx))).await?;
        Some(answer.map_err(|error| *error))
    }

    /// Raises the call's limit to these absolute totals. Does nothing once the call is over.
    pub fn grant(&self, credit: Credit) {
        self.grant_towards(credit, None);
    }

    /// The same of a window: it will be raised to `reach`, as far as is known, when what came is taken.
    pub fn grant_towards(&self, credit: Credit, reach: Option<Credit>) {
        let Credit { records, bytes } = credit;
        let (reach_records, reach_bytes) = (reach.map(|it| it.records), reach.map(|it| it.bytes));
        self.connection.grant(self.call, RaiseCredit { records, bytes, reach_bytes, reach_records });
    }
}

impl Drop for Answers {
    fn drop(&mut self) {
        self.connection.cancel(self.call);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn next(source: &mut AnswerSource) -> Option<Bytes> {
        poll_fn(|cx| source.poll_next(cx)).await.map(Result::unwrap)
    }

    #[tokio::test]
    async fn the_buffer_is_bounded_in_bytes_and_counts_empty_answers() {
        let (sink, mut source) = answer_buffer(3 * ANSWER_OVERHEAD_BYTES);
        assert!((0..3).all(|_| sink.push(Ok(Bytes::new()))));
        assert!(!sink.push(Ok(Bytes::new())));
        assert_eq!(next(&mut source).await, Some(Bytes::new()));
        assert!(sink.push(Ok(Bytes::new())), "one was taken");
        sink.push_last(Ok(Bytes::from_static(b"last")));
        let (clone, bytes) = (sink.clone(), source.0.lock().bytes);
        assert_eq!(bytes, 4 * ANSWER_OVERHEAD_BYTES + 4);
        drop(sink);
        for expected in [&b""[..], b"", b"", b"last"] {
            assert_eq!(next(&mut source).await.unwrap(), expected);
        }
        assert_eq!(source.0.lock().bytes, 0);
        drop(clone);
        assert_eq!(next(&mut source).await, None, "nobody can put more in");
    }

    #[tokio::test]
    async fn who_waits_is_woken_by_an_answer_and_by_the_end() {
        let (sink, mut source) = answer_buffer(1_000);
        let taking = tokio::spawn(async move { (next(&mut source).await, next(&mut source).await) });
        tokio::task::yield_now().await;
        assert!(sink.push(Ok(Bytes::from_static(b"a"))));
        tokio::task::yield_now().await;
        drop(sink);
        assert_eq!(taking.await.unwrap(), (Some(Bytes::from_static(b"a")), None));
    }

    #[test]
    fn what_comes_for_who_is_gone_is_not_kept() {
        let (sink, source) = answer_buffer(1_000);
        let body = Bytes::from(vec![7; 10]);
        assert!(sink.push(Ok(body.clone())));
        drop(source);
        assert!(sink.push(Ok(body.clone())));
        assert!(body.is_unique(), "nothing but this test holds it");
    }
}
