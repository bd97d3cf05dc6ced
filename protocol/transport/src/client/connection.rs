//! One connection of a link, past its handshake.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use prost::Message;
use tokio::sync::oneshot;
use tokio::time::{MissedTickBehavior, interval_at};
use tokio_util::sync::CancellationToken;
use weir_protocol::frame::{BODY_BYTES_MAX, FLAG_END, FLAG_REFUSED, FrameHead, FrameKind};
use weir_protocol::ids::ShardId;
use weir_protocol::rpc::{Method, RaiseCredit, Refusal};

use super::answers::{AnswerSource, answer_buffer};
use super::calls::{After, Calls, NoPlace, Waiter};
use super::config::LinkConfig;
use super::error::{CallError, NotSent};
use crate::liveness::{Liveness, Verdict};
use crate::metrics;
use crate::outbox::{Outbox, OutboxLimits, Weight};
use crate::splitter::Frame;
use crate::wire::{FrameReader, ReadError};

/// Cancels, credits, pings and pongs that may wait beyond one per call in flight.
const SMALL_FRAMES_EXTRA: usize = 4_096;

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum EndReason {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("{0}")]
    Violation(&'static str),
    #[error("silent for {0:?} though pinged")]
    Silent(Duration),
    #[error("writing failed")]
    Write,
    #[error("does not read what it is sent")]
    Unread,
}

/// A connection that calls can be made on. Answers and waiting calls keep it; its supervisor ends it.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) outbox: Arc<Outbox>,
    calls: Mutex<Calls>,
    config: Arc<LinkConfig>,
    overfull: CancellationToken,
}

/// A unary call that waits. Dropping it before its answer tells the peer to stop.
pub(super) struct Waiting {
    connection: Arc<Connection>,
    call: u64,
    pub(super) answer: oneshot::Receiver<Result<Bytes, CallError>>,
    is_answered: bool,
}

impl Waiting {
    /// Waits for the answer.
    pub(super) async fn wait(&mut self) -> Result<Bytes, CallError> {
        let answer = (&mut self.answer).await;
        self.is_answered = true;
        answer.unwrap_or(Err(CallError::Unknown))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if !self.is_answered {
            self.connection.cancel(self.call);
        }
    }
}

impl Connection {
    pub(super) fn new(config: Arc<LinkConfig>) -> Self {
        let limits = OutboxLimits {
            stream_bytes_max: 0,
            small_frames_max: config.calls_max.saturating_add(SMALL_FRAMES_EXTRA),
        };
        Self {
            outbox: Arc::new(Outbox::new(limits, Arc::clone(&config.metrics))),
            calls: Mutex::new(Calls::new()),
            config,
            overfull: CancellationToken::new(),
        }
    }

    /// Sends a call for one answer, if fewer than `calls_max` are in flight.
    pub(super) fn call(
        self: &Arc<Self>,
        calls_max: usize,
        method: Method,
        shard: ShardId,
        segments: Vec<Bytes>,
    ) -> Result<Waiting, NotSent> {
        let (sender, answer) = oneshot::channel();
        let call = self.send((Waiter::One(sender), calls_max), method, shard, segments)?;
        Ok(Waiting { connection: Arc::clone(self), call, answer, is_answered: false })
    }

    /// Sends a call for several answers, if fewer than `calls_max` are in flight.
    pub(super) fn open(
        &self,
        calls_max: usize,
        method: Method,
        shard: ShardId,
        segments: Vec<Bytes>,
    ) -> Result<(u64, AnswerSource), NotSent> {
        let (sink, source) = answer_buffer(self.config.answers_bytes_max);
        Ok((self.send((Waiter::Many(sink), calls_max), method, shard, segments)?, source))
    }

    fn send(
        &self,
        (waiter, calls_max): (Waiter, usize),
        method: Method,
        shard: ShardId,
        segments: Vec<Bytes>,
    ) -> Result<u64, NotSent> {
        let bytes: usize = segments.iter().map(Bytes::len).sum();
        if bytes > BODY_BYTES_MAX {
            return Err(NotSent::TooLarge(bytes));
        }
        if self.outbox.queued_bytes() > self.config.queued_bytes_max {
            return Err(NotSent::Full);
        }
        let call = self.lock().insert(waiter, calls_max).map_err(|no_place| match no_place {
            NoPlace::Full => NotSent::Full,
            NoPlace::Closed => NotSent::Ended,
        })?;
        metrics::add(&self.config.metrics.calls_in_flight, 1);
        let head = FrameHead {
            kind: FrameKind::Request,
            flags: FLAG_END,
            method: method as u16,
            shard: shard.0,
            call,
        };
        if self.outbox.push(head, segments, Weight::Plain).is_err() {
            self.forget(call);
            return Err(NotSent::Ended);
        }
        Ok(call)
    }

    /// Raises a stream's limit.
    pub(super) fn grant(&self, call: u64, credit: RaiseCredit) {
        self.push_small(FrameKind::Credit, call, vec![Bytes::from(credit.encode_to_vec())]);
    }

    /// Tells the peer to stop, unless the call is over.
    pub(super) fn cancel(&self, call: u64) {
        if self.forget(call) {
            self.push_small(FrameKind::Cancel, call, Vec::new());
        }
    }

    fn push_small(&self, kind: FrameKind, call: u64, body: Vec<Bytes>) {
        let head = FrameHead { kind, flags: 0, method: 0, shard: 0, call };
        if self.outbox.push(head, body, Weight::Small).is_err() {
            self.overfull.cancel();
        }
    }

    /// Takes a call out; false if it was over.
    fn forget(&self, call: u64) -> bool {
        let waiter = self.lock().remove(call);
        if waiter.is_some() {
            metrics::sub(&self.config.metrics.calls_in_flight, 1);
        }
        waiter.is_some()
    }

    /// Hands answers to their waiters until the peer leaves, breaks the protocol, falls silent or cannot be
    /// written to.
    pub(super) async fn run(&self, mut reader: FrameReader, writer_ended: &CancellationToken) -> EndReason {
        let mut liveness = Liveness::new(self.config.ping_timeout);
        let first = tokio::time::Instant::now() + self.config.ping_interval;
        let mut ticks = interval_at(first, self.config.ping_interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            if let Err(reason) = self.take_frames(&mut reader) {
                return reason;
            }
            // Biased: ends come before more work, ticks before reading so that a busy peer does not starve them.
            // Every arm is cancel-safe.
            tokio::select! {
                biased;
                () = writer_ended.cancelled() => return EndReason::Write,
                () = self.overfull.cancelled() => return EndReason::Unread,
                _ = ticks.tick() => {
                    let now = tokio::time::Instant::now().into_std();
                    match liveness.tick(now, reader.received_bytes()) {
                        Verdict::Alive => {}
                        Verdict::Ping => self.push_small(FrameKind::Ping, 0, Vec::new()),
                        Verdict::Dead => return EndReason::Silent(self.config.ping_timeout),
                    }
                }
                filled = reader.fill() => if let Err(error) = filled { return error.into() },
            }
        }
    }

    /// Ends every call: those of which no byte was given to the stream are not sent, the others are unknown.
    pub(super) fn close(&self) {
        // First no further call may be queued, then the queue is emptied: so each call is told exactly once.
        let waiters = self.lock().close();
        let unsent: HashSet<u64> = self.outbox.close().into_iter().collect();
        metrics::sub(&self.config.metrics.calls_in_flight, waiters.len());
        for (call, waiter) in waiters {
            let error =
                if unsent.contains(&call) { CallError::NotSent(NotSent::Ended) } else { CallError::Unknown };
            match waiter {
                Waiter::One(sender) => {
                    let _ = sender.send(Err(error));
                }
                Waiter::Many(sink) => sink.push_last(Err(error)),
            }
        }
    }

    fn take_frames(&self, reader: &mut FrameReader) -> Result<(), EndReason> {
        while let Some(frame) = reader.take().map_err(ReadError::from)? {
            match frame.head.kind {
                FrameKind::Answer => self.take_answer(frame)?,
                FrameKind::Ping => self.push_small(FrameKind::Pong, frame.head.call, Vec::new()),
                FrameKind::Pong => {}
                _ => return Err(EndReason::Violation("a frame of a kind that nodes do not send")),
            }
        }
        Ok(())
    }

    fn take_answer(&self, frame: Frame) -> Result<(), EndReason> {
        let FrameHead { flags, call, .. } = frame.head;
        // A refusal is the last answer, whether it says so or not.
        let is_last = flags & (FLAG_END | FLAG_REFUSED) != 0;
        let answer = if flags & FLAG_REFUSED == 0 {
            // What is kept of an answer is small beside what it may be a slice of.
            Ok(frame.body.into_bytes())
        } else {
            let refusal = Refusal::decode(frame.body);
            Err(refusal.map_err(|_| EndReason::Violation("a refusal cannot be decoded"))?)
        };
        let Some(answered) = self.lock().answered(call, is_last) else { return Ok(()) };
        let is_over = matches!(answered, super::calls::Answered::Over(_));
        if is_over {
            metrics::sub(&self.config.metrics.calls_in_flight, 1);
        }
        match answered.deliver(answer, is_last) {
            After::Nothing => {}
            After::Cancel => self.push_small(FrameKind::Cancel, call, Vec::new()),
            After::CancelOverrun => self.overrun(call),
        }
        Ok(())
    }

    fn overrun(&self, call: u64) {
        metrics::add(&self.config.metrics.overruns, 1);
        let waiter = self.lock().remove(call);
        if let Some(Waiter::Many(sink)) = waiter {
            metrics::sub(&self.config.metrics.calls_in_flight, 1);
            sink.push_last(Err(CallError::Unknown));
            self.push_small(FrameKind::Cancel, call, Vec::new());
        }
    }

    fn lock(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().expect("no code panics while it holds the calls")
    }
}
