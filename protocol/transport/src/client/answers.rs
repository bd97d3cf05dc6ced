//! The answers of a call that has several.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use tokio::sync::mpsc;
use weir_protocol::rpc::Credit;

use super::connection::Connection;
use super::error::CallError;
use super::link::Link;

/// What a buffered answer costs beyond its body, in bytes: so that empty answers are bounded too.
const ANSWER_OVERHEAD_BYTES: usize = 64;

/// An error is boxed, and comes at most once: a queue has room for 32 answers from its start, and a stream that says
/// nothing shall not hold 6 KiB for them.
type Answer = Result<Bytes, Box<CallError>>;

/// Where a connection puts answers. Bounded by bytes; the queue itself needs no other bound.
#[derive(Debug, Clone)]
pub(super) struct AnswerSink {
    queue: mpsc::UnboundedSender<Answer>,
    buffered_bytes: Arc<AtomicUsize>,
    bytes_max: usize,
}

/// Where a caller takes them.
#[derive(Debug)]
pub(super) struct AnswerSource {
    queue: mpsc::UnboundedReceiver<Answer>,
    buffered_bytes: Arc<AtomicUsize>,
}

/// A buffer of at most `bytes_max`.
pub(super) fn answer_buffer(bytes_max: usize) -> (AnswerSink, AnswerSource) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let buffered_bytes = Arc::new(AtomicUsize::new(0));
    let sink = AnswerSink { queue: sender, buffered_bytes: Arc::clone(&buffered_bytes), bytes_max };
    (sink, AnswerSource { queue: receiver, buffered_bytes })
}

fn cost(answer: &Answer) -> usize {
    ANSWER_OVERHEAD_BYTES + answer.as_ref().map_or(0, Bytes::len)
}

impl AnswerSink {
    /// Buffers an answer; false if it does not fit.
    pub(super) fn push(&self, answer: Result<Bytes, CallError>) -> bool {
        let answer = answer.map_err(Box::new);
        let cost = cost(&answer);
        if self.buffered_bytes.fetch_add(cost, Ordering::Relaxed) + cost > self.bytes_max {
            self.buffered_bytes.fetch_sub(cost, Ordering::Relaxed);
            return false;
        }
        // Who dropped the answers has cancelled the call.
        let _ = self.queue.send(answer);
        true
    }

    /// Buffers the last answer or error, whether it fits or not: there is at most one, of at most a frame.
    pub(super) fn push_last(&self, answer: Result<Bytes, CallError>) {
        let answer = answer.map_err(Box::new);
        self.buffered_bytes.fetch_add(cost(&answer), Ordering::Relaxed);
        let _ = self.queue.send(answer);
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
        let answer = self.source.queue.recv().await?;
        self.source.buffered_bytes.fetch_sub(cost(&answer), Ordering::Relaxed);
        Some(answer.map_err(|error| *error))
    }

    /// Raises the call's limit to these absolute totals. Does nothing once the call is over.
    pub fn grant(&self, credit: Credit) {
        self.connection.grant(self.call, credit);
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

    #[test]
    fn the_buffer_is_bounded_in_bytes_and_counts_empty_answers() {
        let (sink, source) = answer_buffer(3 * ANSWER_OVERHEAD_BYTES);
        assert!((0..3).all(|_| sink.push(Ok(Bytes::new()))));
        assert!(!sink.push(Ok(Bytes::new())));
        assert_eq!(source.buffered_bytes.load(Ordering::Relaxed), 3 * ANSWER_OVERHEAD_BYTES);
    }
}
