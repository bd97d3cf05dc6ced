//! One connection of a server: reads requests, calls the service, keeps the calls that are not answered.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use bytes::Bytes;
use prost::Message;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval_at};
use tokio_util::sync::CancellationToken;
use weir_protocol::error::ErrorCode;
use weir_protocol::frame::{FLAG_END, FLAG_REFUSED, FrameHead, FrameKind};
use weir_protocol::ids::ShardId;
use weir_protocol::rpc::{Credit, Method, RaiseCredit, Refusal};

use super::config::ServerConfig;
use super::reply::{CallState, Reply};
use super::service::{Peer, Request, Service};
use crate::liveness::{Liveness, Verdict};
use crate::metrics;
use crate::outbox::{ConnectionClosed, Outbox, OutboxLimits, Weight};
use crate::splitter::Frame;
use crate::wire::{FrameReader, ReadError};

/// Methods from here on are for nodes: a gateway is refused.
const NODE_METHODS_FROM: u16 = 100;
/// Refusals, pongs and the like that may wait beyond one per call in flight.
const SMALL_FRAMES_EXTRA: usize = 1_024;

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum EndReason {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("{0}")]
    Violation(&'static str),
    #[error("silent for {0:?} though pinged")]
    Silent(std::time::Duration),
    #[error("writing failed")]
    Write,
    #[error("does not read its answers")]
    Unread,
    #[error("drained")]
    Drained,
}

/// What replies share with the connection they answer on.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) outbox: Arc<Outbox>,
    /// Calls without a last answer. The state exists once anybody asked or the caller said something.
    calls: Mutex<HashMap<u64, Option<watch::Sender<CallState>>>>,
    is_draining: AtomicBool,
}

impl Shared {
    pub(super) fn new(config: &ServerConfig) -> Self {
        let limits = OutboxLimits {
            stream_bytes_max: config.stream_bytes_max,
            small_frames_max: config.calls_max.saturating_add(SMALL_FRAMES_EXTRA),
        };
        Self {
            outbox: Arc::new(Outbox::new(limits, Arc::clone(&config.metrics))),
            calls: Mutex::default(),
            is_draining: AtomicBool::new(false),
        }
    }

    /// Sends an answer; the call is over after one with `ends_call`.
    pub(super) fn answer(&self, call: u64, body: Vec<Bytes>, ends_call: bool) {
        let weight = if ends_call { Weight::EndsCall } else { Weight::Plain };
        if ends_call {
            self.forget(call);
        }
        // If the connection is closed, nobody waits for it.
        let _ = self.outbox.push(answer_head(call, if ends_call { FLAG_END } else { 0 }), body, weight);
    }

    /// [`Shared::answer`] once the outbox has room. If it fails, the call is as before.
    pub(super) async fn answer_when_ready(
        &self,
        call: u64,
        body: Vec<Bytes>,
        ends_call: bool,
    ) -> Result<(), ConnectionClosed> {
        let room = self.outbox.room(body.iter().map(Bytes::len).sum()).await?;
        if ends_call {
            self.forget(call);
        }
        let flags = if ends_call { FLAG_END } else { 0 };
        let sent =
            self.outbox.push(answer_head(call, flags), body, Weight::Stream { ends_call, _room: room });
        // A last answer that could not be queued ended the call's bookkeeping all the same.
        if ends_call { Ok(()) } else { sent }
    }

    /// Answers with a refusal; the call is over.
    pub(super) fn refuse(&self, call: u64, refusal: &Refusal) {
        self.forget(call);
        let body = vec![Bytes::from(refusal.encode_to_vec())];
        let _ = self.outbox.push(answer_head(call, FLAG_END | FLAG_REFUSED), body, Weight::EndsCall);
    }

    /// The state of a call that is not over.
    pub(super) fn state_of(&self, call: u64) -> watch::Receiver<CallState> {
        match self.lock().get_mut(&call) {
            Some(state) => state.get_or_insert_with(Self::new_state).subscribe(),
            None => watch::channel(CallState { is_cancelled: true, ..CallState::default() }).1,
        }
    }

    fn new_state() -> watch::Sender<CallState> {
        watch::channel(CallState::default()).0
    }

    /// Changes a call's state and wakes who follows it; a call that is over is ignored.
    fn change(&self, call: u64, change: impl FnOnce(&mut CallState) -> bool) {
        if let Some(state) = self.lock().get_mut(&call) {
            state.get_or_insert_with(Self::new_state).send_if_modified(change);
        }
    }

    /// Tells every running call to end.
    pub(super) fn cancel_all(&self) {
        for state in self.lock().values_mut() {
            state.get_or_insert_with(Self::new_state).send_if_modified(cancel);
        }
    }

    fn forget(&self, call: u64) {
        let state = self.lock().remove(&call);
        drop(state);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Option<watch::Sender<CallState>>>> {
        self.calls.lock().expect("no code panics while it holds the calls")
    }
}

fn cancel(state: &mut CallState) -> bool {
    !std::mem::replace(&mut state.is_cancelled, true)
}

fn raise(state: &mut CallState, to: RaiseCredit) -> bool {
    let credit =
        Credit { records: state.credit.records.max(to.records), bytes: state.credit.bytes.max(to.bytes) };
    let reach_bytes = state.reach_bytes.max(to.reach_bytes);
    let reach_records = state.reach_records.max(to.reach_records);
    let raised = CallState { credit, reach_bytes, reach_records, ..*state };
    std::mem::replace(state, raised) != raised
}

fn answer_head(call: u64, flags: u8) -> FrameHead {
    FrameHead { kind: FrameKind::Answer, flags, method: 0, shard: 0, call }
}

/// The reading side.
pub(super) struct Connection<'a> {
    pub(super) shared: Arc<Shared>,
    pub(super) config: &'a ServerConfig,
    pub(super) service: &'a dyn Service,
    pub(super) peer: Peer,
}

impl Connection<'_> {
    /// Serves the peer until it leaves, breaks the protocol, falls silent, cannot be written to
    /// (`writer_ended`), or the server drained.
    pub(super) async fn run(
        &self,
        reader: &mut FrameReader,
        drain: &CancellationToken,
        writer_ended: &CancellationToken,
    ) -> EndReason {
        let mut liveness = Liveness::new(self.config.ping_timeout);
        let first = tokio::time::Instant::now() + self.config.ping_interval;
        let mut ticks = interval_at(first, self.config.ping_interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            if let Err(reason) = self.take_frames(reader) {
                return reason;
            }
            let is_draining = self.shared.is_draining.load(Ordering::Relaxed);
            if is_draining && self.shared.outbox.is_idle() {
                return EndReason::Drained;
            }
            // Biased: a dead writer and the order to drain come before more work; ticks come before reading so
            // that a peer that sends without pause is still pinged and drained. Every arm is cancel-safe.
            tokio::select! {
                biased;
                () = writer_ended.cancelled() => return EndReason::Write,
                () = drain.cancelled(), if !is_draining => self.start_draining(),
                () = self.shared.outbox.became_idle(), if is_draining => {}
                _ = ticks.tick() => {
                    let now = tokio::time::Instant::now().into_std();
                    match liveness.tick(now, reader.received_bytes()) {
                        Verdict::Alive => {}
                        Verdict::Ping => if let Err(reason) = self.push_small(FrameKind::Ping, 0) { return reason },
                        Verdict::Dead => return EndReason::Silent(self.config.ping_timeout),
                    }
                }
                filled = reader.fill() => if let Err(error) = filled { return error.into() },
            }
        }
    }

    fn start_draining(&self) {
        self.shared.is_draining.store(true, Ordering::Relaxed);
        self.shared.cancel_all();
    }

    fn take_frames(&self, reader: &mut FrameReader) -> Result<(), EndReason> {
        let received = Instant::now();
        while let Some(frame) = reader.take().map_err(ReadError::from)? {
            self.take_frame(frame, received)?;
        }
        Ok(())
    }

    fn take_frame(&self, frame: Frame, received: Instant) -> Result<(), EndReason> {
        let call = frame.head.call;
        match frame.head.kind {
            FrameKind::Request => self.take_request(frame, received),
            FrameKind::Credit => {
                let credit = RaiseCredit::decode(frame.body)
                    .map_err(|_| EndReason::Violation("a credit frame cannot be decoded"))?;
                self.shared.change(call, |state| raise(state, credit));
                Ok(())
            }
            FrameKind::Cancel => {
                self.shared.change(call, cancel);
                Ok(())
            }
            FrameKind::Ping => self.push_small(FrameKind::Pong, call),
            FrameKind::Pong => Ok(()),
            FrameKind::Hello | FrameKind::Welcome | FrameKind::Answer => {
                Err(EndReason::Violation("a frame of a kind that callers do not send"))
            }
        }
    }

    fn take_request(&self, frame: Frame, received: Instant) -> Result<(), EndReason> {
        let FrameHead { method: number, shard, call, .. } = frame.head;
        let method = match self.admit(number) {
            Ok(method) => method,
            Err(refusal) => {
                metrics::add(&self.config.metrics.refused, 1);
                let body = vec![Bytes::from(refusal.encode_to_vec())];
                let head = answer_head(call, FLAG_END | FLAG_REFUSED);
                return self.shared.outbox.push(head, body, Weight::Small).map_err(|_| EndReason::Unread);
            }
        };
        match self.shared.lock().entry(call) {
            Entry::Vacant(entry) => entry.insert(None),
            Entry::Occupied(_) => {
                self.shared.outbox.uncount_call();
                return Err(EndReason::Violation("two calls at once with the same number"));
            }
        };
        let reply = Reply::new(Arc::clone(&self.shared), call);
        let request = Request { method, shard: ShardId(shard), body: frame.body, reply, received };
        self.service.call(&self.peer, request);
        Ok(())
    }

    /// Decides whether a call may start, and counts it in.
    fn admit(&self, number: u16) -> Result<Method, Box<Refusal>> {
        if number >= NODE_METHODS_FROM && self.peer.node_id.is_none() {
            return Err(refusal(ErrorCode::Forbidden, format!("method {number} is for nodes")));
        }
        let method = Method::from_number(number)
            .ok_or_else(|| refusal(ErrorCode::NotSupported, format!("method {number} is not known")))?;
        if self.shared.is_draining.load(Ordering::Relaxed) {
            return Err(refusal(ErrorCode::Draining, "the node is shutting down"));
        }
        let (queued, max) = (self.shared.outbox.queued_bytes(), self.config.queued_bytes_max);
        if queued > max {
            let detail = format!("{queued} bytes of answers wait to be read, more than {max}");
            return Err(refusal(ErrorCode::TooManyRequests, detail));
        }
        if !self.shared.outbox.admit_call(self.config.calls_max) {
            let detail = format!("{} calls of this connection are in flight", self.config.calls_max);
            return Err(refusal(ErrorCode::TooManyRequests, detail));
        }
        Ok(method)
    }

    fn push_small(&self, kind: FrameKind, call: u64) -> Result<(), EndReason> {
        let head = FrameHead { kind, flags: 0, method: 0, shard: 0, call };
        self.shared.outbox.push(head, Vec::new(), Weight::Small).map_err(|_| EndReason::Unread)
    }
}

fn refusal(code: ErrorCode, detail: impl Into<String>) -> Box<Refusal> {
    Box::new(Refusal::new(code, detail))
}
