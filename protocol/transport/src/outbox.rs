//! The outbound queue of a connection and the loop that writes it; in one process the other side takes frames from the
//! queue itself.
//!
//! What bounds it, so that a peer that does not read never makes it grow:
//! * answers of streams wait for room: at most `stream_bytes_max` of them are queued (default 8 MiB);
//! * unary requests and answers are bounded by the calls in flight, and a call is in flight until the last byte of
//!   its answer is written; above `queued_bytes_max` no further call is admitted;
//! * everything else (refusals, pongs, credit) is small and counted: above `small_frames_max` the connection is
//!   closed.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot};
use weir_protocol::frame::{BODY_BYTES_MAX, FrameHead, FrameKind, HEADER_BYTES};

use crate::metrics::{self, Metrics};
use crate::splitter::Frame;
use crate::staging::{SLICES_MAX, Staging};

/// What becomes of the bookkeeping when a frame is written.
#[derive(Debug)]
pub(crate) enum Weight {
    /// Not the last answer of a call, or a request.
    Plain,
    /// The last answer of a call: the call is in flight until it is written.
    EndsCall,
    /// Counted against `small_frames_max`.
    Small,
    /// An answer of a stream; holds its room until it is written.
    Stream { ends_call: bool, _room: OwnedSemaphorePermit },
}

/// A frame that waits to be written.
#[derive(Debug)]
pub(crate) struct Outbound {
    head: FrameHead,
    body: Vec<Bytes>,
    bytes: usize,
    weight: Weight,
}

/// Where frames go after the handshake.
pub(crate) enum FrameWriter {
    /// Into a stream, as bytes.
    Bytes(Box<dyn AsyncWrite + Send + Unpin>),
    /// Nowhere: the other side takes them.
    Shared(oneshot::Sender<Taker>),
}

/// The connection is closed: nothing was queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the connection is closed")]
pub struct ConnectionClosed;

/// Limits of an outbox.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OutboxLimits {
    pub(crate) stream_bytes_max: usize,
    pub(crate) small_frames_max: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Open,
    /// What is queued is still written.
    Finishing,
    Closed,
}

#[derive(Debug)]
struct Queue {
    frames: VecDeque<Outbound>,
    phase: Phase,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Outbox {
    queue: Mutex<Queue>,
    ready: Notify,
    room: Arc<Semaphore>,
    limits: OutboxLimits,
    queued_bytes: AtomicUsize,
    small_frames: AtomicUsize,
    calls_in_flight: AtomicUsize,
    idle: Notify,
    metrics: Arc<Metrics>,
}

/// Frames that are being written. Also if the writer is dropped among them, they are accounted for.
struct Batch<'a> {
    outbox: &'a Outbox,
    frames: VecDeque<Outbound>,
}

impl Batch<'_> {
    fn settle(&mut self) {
        self.frames.drain(..).for_each(|frame| self.outbox.account(&frame, true));
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        self.settle();
    }
}

enum Taken {
    Frames,
    Nothing,
    Finished,
}

impl Outbox {
    pub(crate) fn new(limits: OutboxLimits, metrics: Arc<Metrics>) -> Self {
        Self {
            queue: Mutex::new(Queue { frames: VecDeque::new(), phase: Phase::Open }),
            ready: Notify::new(),
            room: Arc::new(Semaphore::new(limits.stream_bytes_max)),
            limits,
            queued_bytes: AtomicUsize::new(0),
            small_frames: AtomicUsize::new(0),
            calls_in_flight: AtomicUsize::new(0),
            idle: Notify::new(),
            metrics,
        }
    }

    /// Queues a frame.
    ///
    /// # Errors
    /// [`ConnectionClosed`], also if a `Small` frame exceeds its limit: the caller closes the connection.
    ///
    /// # Panics
    /// If the body exceeds [`BODY_BYTES_MAX`]: builders check before they build.
    pub(crate) fn push(
        &self,
        head: FrameHead,
        body: Vec<Bytes>,
        weight: Weight,
    ) -> Result<(), ConnectionClosed> {
        if matches!(weight, Weight::Small)
            && self.small_frames.fetch_add(1, Ordering::Relaxed) >= self.limits.small_frames_max
        {
            self.small_frames.fetch_sub(1, Ordering::Relaxed);
            return Err(ConnectionClosed);
        }
        let body_bytes = body.iter().map(Bytes::len).sum::<usize>();
        assert!(body_bytes <= BODY_BYTES_MAX, "frame body of {body_bytes} bytes exceeds {BODY_BYTES_MAX}");
        let bytes = HEADER_BYTES + body_bytes;
        let frame = Outbound { head, body, bytes, weight };
        let mut queue = self.lock();
        if queue.phase != Phase::Open {
            drop(queue);
            self.account(&frame, false);
            return Err(ConnectionClosed);
        }
        self.queued_bytes.fetch_add(bytes, Ordering::Relaxed);
        metrics::add(&self.metrics.queued_bytes, bytes);
        let was_empty = queue.frames.is_empty();
        queue.frames.push_back(frame);
        drop(queue);
        if was_empty {
            self.ready.notify_one();
        }
        Ok(())
    }

    /// Waits for room for a stream's answer of `bytes`. First come, first served.
    ///
    /// # Errors
    /// [`ConnectionClosed`].
    ///
    /// # Cancel safety
    /// Dropping it gives up the place in the line and nothing else.
    pub(crate) async fn room(&self, bytes: usize) -> Result<OwnedSemaphorePermit, ConnectionClosed> {
        // An answer larger than all the room waits for all of it.
        let permits = (bytes + HEADER_BYTES).min(self.limits.stream_bytes_max);
        let permits = u32::try_from(permits).unwrap_or(u32::MAX);
        if let Ok(permit) = Arc::clone(&self.room).try_acquire_many_owned(permits) {
            return Ok(permit);
        }
        metrics::add(&self.metrics.backpressure_waits, 1);
        Arc::clone(&self.room).acquire_many_owned(permits).await.map_err(|_| ConnectionClosed)
    }

    /// Bytes queued and not written.
    pub(crate) fn queued_bytes(&self) -> usize {
        self.queued_bytes.load(Ordering::Relaxed)
    }

    /// Counts a call in, unless `max` are.
    pub(crate) fn admit_call(&self, max: usize) -> bool {
        if self.calls_in_flight.fetch_add(1, Ordering::AcqRel) >= max {
            self.call_ended();
            return false;
        }
        metrics::add(&self.metrics.calls_in_flight, 1);
        true
    }

    /// Counts a call out that was admitted.
    pub(crate) fn uncount_call(&self) {
        metrics::sub(&self.metrics.calls_in_flight, 1);
        self.call_ended();
    }

    /// True if no call waits for its last answer to be written.
    pub(crate) fn is_idle(&self) -> bool {
        self.calls_in_flight.load(Ordering::Acquire) == 0
    }

    /// Wakes when the last call in flight ended; check [`Outbox::is_idle`] after it.
    pub(crate) async fn became_idle(&self) {
        self.idle.notified().await;
    }

    /// Refuses new frames; what is queued is still written.
    pub(crate) fn finish(&self) {
        let mut queue = self.lock();
        if queue.phase == Phase::Open {
            queue.phase = Phase::Finishing;
        }
        drop(queue);
        self.room.close();
        self.ready.notify_one();
    }

    /// Refuses new frames and drops what is queued. Returns the calls of the requests of which no byte was given
    /// to the stream. What else is queued says nothing of that: credit is for calls that are out.
    pub(crate) fn close(&self) -> Vec<u64> {
        let mut queue = self.lock();
        queue.phase = Phase::Closed;
        let frames = std::mem::take(&mut queue.frames);
        drop(queue);
        self.room.close();
        self.ready.notify_one();
        frames.iter().for_each(|frame| self.account(frame, true));
        let requests = frames.iter().filter(|frame| frame.head.kind == FrameKind::Request);
        requests.map(|frame| frame.head.call).collect()
    }

    /// Writes what is queued until [`Outbox::finish`] or [`Outbox::close`]: takes everything there is, one
    /// vectored write.
    ///
    /// # Errors
    /// The stream's error; the batch that was being written may have been received in part.
    pub(crate) async fn run(self: &Arc<Self>, writer: FrameWriter) -> io::Result<()> {
        match writer {
            FrameWriter::Bytes(writer) => self.write_all(writer).await,
            FrameWriter::Shared(to) => self.hand_over(to).await,
        }
    }

    async fn write_all(&self, mut writer: impl AsyncWrite + Unpin) -> io::Result<()> {
        let (mut batch, mut staging) = (Batch { outbox: self, frames: VecDeque::new() }, Staging::default());
        loop {
            match self.take(&mut batch.frames) {
                Taken::Nothing => self.ready.notified().await,
                Taken::Finished => return writer.shutdown().await,
                Taken::Frames => {
                    for frame in &batch.frames {
                        staging.push(&frame.head.encode(&frame.body), &frame.body);
                    }
                    self.write(&mut staging, &mut writer).await?;
                    staging.clear();
                    metrics::add(&self.metrics.frames_out, batch.frames.len());
                    batch.settle();
                }
            }
        }
    }

    /// Lets the other side take frames until it leaves.
    async fn hand_over(self: &Arc<Self>, to: oneshot::Sender<Taker>) -> io::Result<()> {
        let left = Arc::new(Notify::new());
        let taker = Taker { outbox: Arc::clone(self), frames: VecDeque::new(), left: Arc::clone(&left) };
        to.send(taker).map_err(|_| io::ErrorKind::BrokenPipe)?;
        left.notified().await;
        let queue = self.lock();
        let is_all_taken = queue.phase != Phase::Open && queue.frames.is_empty();
        if is_all_taken { Ok(()) } else { Err(io::ErrorKind::BrokenPipe.into()) }
    }

    fn take(&self, batch: &mut VecDeque<Outbound>) -> Taken {
        debug_assert!(batch.is_empty(), "what was taken before is dealt with");
        let mut queue = self.lock();
        if !queue.frames.is_empty() {
            // The queue gets the emptied batch back, so neither is allocated again.
            std::mem::swap(&mut queue.frames, batch);
            return Taken::Frames;
        }
        if queue.phase == Phase::Open { Taken::Nothing } else { Taken::Finished }
    }

    async fn write(&self, staging: &mut Staging, writer: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
        while !staging.is_done() {
            let written = poll_fn(|context| {
                let mut slices = [IoSlice::new(&[]); SLICES_MAX];
                let used = staging.fill(&mut slices);
                Pin::new(&mut *writer).poll_write_vectored(context, &slices[..used])
            })
            .await?;
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            metrics::add(&self.metrics.bytes_out, written);
            metrics::add(&self.metrics.writes, 1);
            staging.advance(written);
        }
        writer.flush().await
    }

    fn account(&self, frame: &Outbound, was_queued: bool) {
        if was_queued {
            self.queued_bytes.fetch_sub(frame.bytes, Ordering::Relaxed);
            metrics::sub(&self.metrics.queued_bytes, frame.bytes);
        }
        match frame.weight {
            Weight::Plain | Weight::Stream { ends_call: false, .. } => {}
            Weight::Small => {
                self.small_frames.fetch_sub(1, Ordering::Relaxed);
            }
            Weight::EndsCall | Weight::Stream { ends_call: true, .. } => {
                self.uncount_call();
            }
        }
    }

    fn call_ended(&self) {
        if self.calls_in_flight.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.idle.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().expect("no code panics while it holds the queue")
    }
}

/// The other side of an outbox in the same process: takes frames as they were queued, neither encoded nor
/// checksummed. What it has taken counts as written. When it is dropped, the outbox's side learns of it.
#[derive(Debug)]
pub(crate) struct Taker {
    outbox: Arc<Outbox>,
    /// Taken together and not yet handed out: still on the outbox's account.
    frames: VecDeque<Outbound>,
    left: Arc<Notify>,
}

impl Taker {
    /// The next frame of those that are there, and its bytes as they would be on a wire.
    pub(crate) fn take(&mut self) -> Option<(Frame, usize)> {
        let frame = self.frames.pop_front()?;
        metrics::add(&self.outbox.metrics.frames_out, 1);
        metrics::add(&self.outbox.metrics.bytes_out, frame.bytes);
        self.outbox.account(&frame, true);
        Some((Frame { head: frame.head, body: frame.body.into() }, frame.bytes))
    }

    /// Waits until there are frames; false if no more will come. Only when all that were there are taken.
    ///
    /// # Cancel safety
    /// No frame is lost.
    pub(crate) async fn fill(&mut self) -> bool {
        loop {
            match self.outbox.take(&mut self.frames) {
                Taken::Frames => return true,
                Taken::Finished => return false,
                Taken::Nothing => self.outbox.ready.notified().await,
            }
        }
    }
}

impl Drop for Taker {
    fn drop(&mut self) {
        self.frames.drain(..).for_each(|frame| self.outbox.account(&frame, true));
        self.left.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_is_out_is_not_taken_back_with_what_was_said_of_it_later() {
        let limits = OutboxLimits { stream_bytes_max: 0, small_frames_max: 9 };
        let outbox = Outbox::new(limits, Arc::default());
        let push = |kind, call, weight| {
            let head = FrameHead { kind, flags: 0, method: 0, shard: 0, call };
            outbox.push(head, Vec::new(), weight).unwrap();
        };
        push(FrameKind::Request, 7, Weight::Plain);
        let mut written = Batch { outbox: &outbox, frames: VecDeque::new() };
        assert!(matches!(outbox.take(&mut written.frames), Taken::Frames));
        push(FrameKind::Credit, 7, Weight::Small);
        push(FrameKind::Request, 8, Weight::Plain);
        push(FrameKind::Credit, 8, Weight::Small);
        assert_eq!(outbox.close(), [8]);
    }
}
