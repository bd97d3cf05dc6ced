//! Leases records of a part as they appear, for one consumer.

use std::sync::Arc;

use bytes::Bytes;
use tokio::time::{Duration, Instant, sleep_until};
use weir_protocol::error::ErrorCode;
use weir_protocol::ids::{Offset, TimestampMs};
use weir_protocol::limits::{CLIENT_ID_BYTES_MAX, LEASE_MS_MAX, LEASE_MS_MIN};
use weir_protocol::rpc::{
    ConsumeEvent, ConsumeRequest, Credit, Grant, GrantRun, LeaveRequest, Left, PullRequest, Refusal,
    encode_packet,
};
use weir_transport::{CallState, ConnectionClosed, CreditHandle, Reply};

use super::PartHandle;
use super::pull::{Given, Puller, Step};
use super::stream::Streamer;
use crate::clock;
use crate::read::{Allowance, Reader};
use crate::replica::{Queue, ShardHandle, Turn};
use crate::server::Room;
use crate::server::decode::decode;
use crate::subscription::{Connection, Fence, Lot};

/// Records that one step leases.
const STEP_RECORDS: u64 = 4_096;
/// Encoded bytes that one step leases.
const STEP_BYTES: u64 = 512 << 10;
/// Leases that waited longer than this for room in the connection begin anew when their bytes leave.
const LATE_MS: u64 = 10;
/// With nothing to wait for, it is looked again after this long.
const IDLE_TIME_MAX: Duration = Duration::from_secs(60);
/// Credit that may be kept is given back after so long without a record: another partition may have some for it.
const KEEP_TIME_MAX: Duration = Duration::from_millis(100);

/// Serves a consumer until it is gone.
pub(in crate::server) async fn consume(shard: ShardHandle, room: Room, body: Bytes, reply: Reply) {
    match serve(shard, room, body, &reply).await {
        Ok(()) => reply.finish(Vec::new()),
        Err(refusal) => reply.refuse(refusal),
    }
}

/// Ends what a holder holds.
pub(in crate::server) fn leave(shard: &ShardHandle, body: Bytes) -> Result<Left, Refusal> {
    let request: LeaveRequest = decode(body)?;
    let part = PartHandle::new(shard.clone(), request.part);
    let queue = part.queue(&part.view()?);
    Ok(Left { ended: leave_within(&part, &queue, (&request.holder, None), 0)? as u64 })
}

fn leave_within(
    part: &PartHandle,
    queue: &Queue,
    (holder, connection): (&str, Option<Connection>),
    grace_ms: u64,
) -> Result<usize, Refusal> {
    let deadline = TimestampMs(clock::now().0.saturating_add(grace_ms));
    let ended = {
        let (mut held, _) = part.lock(queue)?;
        let has_left = held.cursor.left(holder, connection, deadline);
        usize::from(has_left) + held.leases.holder_left(holder, deadline)
    };
    // Others wait for what ends, or for the new time at which it does.
    queue.changed.notify_waiters();
    Ok(ended)
}

async fn serve(shard: ShardHandle, room: Room, body: Bytes, reply: &Reply) -> Result<(), Refusal> {
    let request: ConsumeRequest = decode(body)?;
    check(&request)?;
    let _counted = shard.shared.metrics().subscription();
    let part = PartHandle::new(shard.clone(), request.part);
    let queue = part.queue(&part.view()?);
    let connection = {
        let (mut held, _) = part.lock(&queue)?;
        if let Some(old) = &request.takes_over {
            let (new, now) = (Arc::from(request.holder.as_str()), clock::now());
            held.leases.take_over(old, &new, now);
            // The call that it comes in the place of may have got here, and have taken them over before it broke.
            held.leases.take_over(&request.holder, &new, now);
        }
        held.cursor.connect(&request.holder, request.takes_over.as_deref())
    };
    let mut consumer = Consumer {
        reader: Reader::new(shard, part.key.1),
        credit: reply.credit(),
        limit: request.limit,
        reach: request.reach,
        gone: Credit::default(),
        was_told: false,
        used: Instant::now(),
        connection,
        part,
        room,
        reply,
        request,
    };
    let served = consumer.run().await;
    // Another term, or another life of the part, has forgotten them anyhow.
    let Consumer { part, request, .. } = &consumer;
    let queue = part.queue(&part.view()?);
    leave_within(part, &queue, (&request.holder, Some(connection)), request.grace_ms.into())?;
    served
}

fn check(request: &ConsumeRequest) -> Result<(), Refusal> {
    let wrong = |detail: String| Err(Refusal::new(ErrorCode::InvalidParameter, detail));
    if request.lease_ms != 0 && !(LEASE_MS_MIN..=LEASE_MS_MAX).contains(&request.lease_ms) {
        let ms = request.lease_ms;
        return wrong(format!("a lease of {ms} ms; {LEASE_MS_MIN} to {LEASE_MS_MAX} are allowed"));
    }
    if request.holder.is_empty() || request.holder.len() > CLIENT_ID_BYTES_MAX {
        return wrong(format!("a holder has 1 to {CLIENT_ID_BYTES_MAX} bytes"));
    }
    Ok(())
}

/// ```text
///   gone ≤ limit     in records; in bytes the last record may overshoot
///   gone             was used, or was given back because nothing was there for it
/// ```
struct Consumer<'a> {
    part: PartHandle,
    room: Room,
    reader: Reader,
    reply: &'a Reply,
    request: ConsumeRequest,
    credit: CreditHandle,
    limit: Credit,
    /// What the limit will be raised to, if that is known.
    reach: Option<Credit>,
    gone: Credit,
    /// It was told that there is something and no credit for it.
    was_told: bool,
    /// When credit came or was used last.
    used: Instant,
    /// What a stream knows it by.
    connection: Connection,
}

/// What a consumer does next.
enum Next {
    Again,
    /// There is nothing to do without more credit.
    WaitForCredit,
    /// There is nothing to lease before this long.
    Wait(Option<Duration>),
    /// Another reads from now on.
    Displaced,
}

impl Consumer<'_> {
    /// Ends when the consumer is gone, or cannot be served.
    async fn run(&mut self) -> Result<(), Refusal> {
        let mut turn = Turn::of(self.part.queue(&self.part.view()?));
        loop {
            let state = self.credit.latest();
            if state.is_cancelled {
                return Ok(());
            }
            self.raise(&state);
            let view = self.part.view()?;
            let queue = self.part.queue(&view);
            if !Arc::ptr_eq(turn.queue(), &queue) {
                turn = Turn::of(Arc::clone(&queue));
            }
            // Taken before anything is looked at: what comes meanwhile wakes it.
            let published = Arc::clone(&self.reader.changed).notified_owned();
            let (changed, gone) = (queue.changed.notified(), queue.gone.notified());
            // Of a stream only its reader has something to wait for: whose turn it is, the cursor knows.
            let is_stream = view.held.config.is_stream;
            let is_listening = is_stream || turn.try_take();
            let next = match self.step(&turn).await? {
                Ok(next) => next,
                Err(ConnectionClosed) => return Ok(()),
            };
            let wake = match next {
                Next::Again => continue,
                Next::Wait(wake) => wake,
                Next::Displaced => return self.say_displaced().await,
                Next::WaitForCredit => {
                    turn.pass();
                    tokio::select! {
                        () = gone => {}
                        () = changed, if is_stream => {}
                        _ = self.credit.changed() => {}
                        () = keep_vigil(&self.part, &self.reader, &queue) => {}
                    }
                    continue;
                }
            };
            let until = Instant::now() + wake.unwrap_or(IDLE_TIME_MAX);
            tokio::select! {
                () = published, if is_listening => {}
                () = changed, if is_listening => {}
                () = turn.take(), if !is_listening => {}
                () = gone => {}
                _ = self.credit.changed() => {}
                () = sleep_until(until) => {}
            }
        }
    }

    fn raise(&mut self, state: &CallState) {
        let raised = most(self.limit, state.credit);
        if let (Some(records), Some(bytes)) = (state.reach_records, state.reach_bytes) {
            self.reach = Some(most(self.reach.unwrap_or_default(), Credit { records, bytes }));
        }
        if std::mem::replace(&mut self.limit, raised) != raised {
            (self.was_told, self.used) = (false, Instant::now());
        }
    }

    fn left(&self) -> Credit {
        Credit {
            records: self.limit.records.saturating_sub(self.gone.records),
            bytes: self.limit.bytes.saturating_sub(self.gone.bytes),
        }
    }

    /// How far it may be read ahead.
    fn may_give(&self) {
        let Some(reach) = self.reach.map(|reach| most(reach, self.limit)) else { return };
        self.reader.may_give(Allowance {
            records: reach.records.saturating_sub(self.gone.records),
            bytes: reach.bytes.saturating_sub(self.gone.bytes),
        });
    }

    async fn step(&mut self, turn: &Turn) -> Result<Result<Next, ConnectionClosed>, Refusal> {
        if turn.queue().lock().cursor.is_displaced(Lot(self.request.lot)) {
            return Ok(Ok(Next::Displaced));
        }
        let left = self.left();
        if left.records == 0 || left.bytes == 0 {
            return self.without_credit(turn).await;
        }
        let (records, bytes) = (left.records.min(STEP_RECORDS), left.bytes.min(STEP_BYTES));
        self.may_give();
        match self.look(turn, records, bytes).await? {
            Step::Again => Ok(Ok(Next::Again)),
            Step::Given(given) => self.send(turn.queue(), given).await,
            Step::Nothing { wake_ms } => {
                let wake = wake_ms.map(Duration::from_millis);
                if self.request.keeps_credit {
                    return Ok(Ok(Next::Wait(wake)));
                }
                let kept_for = KEEP_TIME_MAX.saturating_sub(self.used.elapsed());
                if self.give_back(kept_for.is_zero()) {
                    return self.tell(false).await;
                }
                Ok(Ok(Next::Wait(Some(wake.map_or(kept_for, |wake| wake.min(kept_for))))))
            }
        }
    }

    /// Gives back credit that there is nothing for: what is more than may be kept, or all. True if there was some.
    fn give_back(&mut self, all: bool) -> bool {
        let keeps = self.request.keeps.filter(|_| !all).unwrap_or_default();
        let gone = Credit {
            records: self.gone.records.max(self.limit.records.saturating_sub(keeps.records)),
            bytes: self.gone.bytes.max(self.limit.bytes.saturating_sub(keeps.bytes)),
        };
        std::mem::replace(&mut self.gone, gone) != gone
    }

    /// Tells, once, that there is something to lease.
    async fn without_credit(&mut self, turn: &Turn) -> Result<Result<Next, ConnectionClosed>, Refusal> {
        if self.request.keeps_credit || self.was_told {
            return Ok(Ok(Next::WaitForCredit));
        }
        // Of no records it only says whether there are any.
        match self.look(turn, 0, 0).await? {
            Step::Again => Ok(Ok(Next::Again)),
            Step::Nothing { wake_ms } => Ok(Ok(Next::Wait(wake_ms.map(Duration::from_millis)))),
            Step::Given(_) => {
                self.was_told = true;
                turn.pass();
                self.tell(true).await
            }
        }
    }

    async fn look(&self, turn: &Turn, records: u64, max_bytes: u64) -> Result<Step, Refusal> {
        let request = PullRequest {
            part: self.request.part,
            max_records: u32::try_from(records).expect("a few thousand"),
            max_bytes,
            lease_ms: self.request.lease_ms,
            holder: self.request.holder.clone(),
            lot: self.request.lot,
            ..PullRequest::default()
        };
        let (part, room, reader, call) = (&self.part, &self.room, &self.reader, &self.credit);
        let queue = &**turn.queue();
        if part.view()?.held.config.is_stream {
            let connection = Some(self.connection);
            return Streamer { part, room, reader, queue, request: &request, connection }.give().await;
        }
        Puller { part, room, reader, queue, turn, call, request: &request }.give().await
    }

    /// What it was shown is on its way before this: nothing of it is lost.
    async fn say_displaced(&self) -> Result<(), Refusal> {
        let event = ConsumeEvent { gone: self.limit, is_displaced: true, ..ConsumeEvent::default() };
        let _gone = self.reply.send_when_ready(encode_packet(&event, [])).await;
        Ok(())
    }

    async fn tell(&self, is_ready: bool) -> Result<Result<Next, ConnectionClosed>, Refusal> {
        let event = ConsumeEvent { gone: self.gone, is_ready, ..ConsumeEvent::default() };
        let sent = self.reply.send_when_ready(encode_packet(&event, [])).await;
        Ok(sent.map(|()| Next::Again))
    }

    async fn send(&mut self, queue: &Queue, given: Given) -> Result<Result<Next, ConnectionClosed>, Refusal> {
        let Given { answer, payload, bytes } = given;
        self.used = Instant::now();
        self.gone.records += answer.grants.len() as u64;
        self.gone.bytes += bytes;
        let left = self.left();
        if !self.request.keeps_credit && (left.records == 0 || left.bytes == 0) {
            self.gone = Credit { records: self.limit.records, bytes: self.gone.bytes.max(self.limit.bytes) };
        }
        let (runs, given_at) = (runs(&answer.grants), clock::now());
        let event = ConsumeEvent { runs, slices: answer.slices, gone: self.gone, ..ConsumeEvent::default() };
        if let Err(closed) = self.reply.send_when_ready(encode_packet(&event, payload)).await {
            return Ok(Err(closed));
        }
        let now = clock::now();
        if now.0 > given_at.0 + LATE_MS {
            let (mut held, _) = self.part.lock(queue)?;
            // Looked at under the lock: who has left meanwhile has given them back.
            let is_here = !self.credit.latest().is_cancelled;
            for grant in answer.grants.iter().filter(|_| is_here) {
                held.leases.started(Offset(grant.offset), Fence(grant.fence), now);
            }
        }
        Ok(Ok(Next::Again))
    }
}

/// The higher of each.
fn most(one: Credit, other: Credit) -> Credit {
    Credit { records: one.records.max(other.records), bytes: one.bytes.max(other.bytes) }
}

/// Waits, after all who do so already, until something happens to the part: it may be gone, which nobody else
/// might notice.
async fn keep_vigil(part: &PartHandle, reader: &Reader, queue: &Queue) {
    let _alone = queue.vigil.acquire().await.expect("it is never closed");
    // Taken before it is looked.
    let touched = reader.changed.notified();
    if part.view().is_ok() {
        touched.await;
    }
}

/// Grants that follow each other in all respects as one.
fn runs(grants: &[Grant]) -> Vec<GrantRun> {
    let mut runs: Vec<GrantRun> = Vec::new();
    for grant in grants {
        let Grant { offset, fence, attempt, expires_in_ms } = *grant;
        let follows = |run: &&mut GrantRun| {
            let count = u64::from(run.count);
            run.offset + count == offset
                && run.fence + count == fence
                && run.attempt == attempt
                && run.expires_in_ms == expires_in_ms
        };
        match runs.last_mut().filter(follows) {
            Some(run) => run.count += 1,
            None => runs.push(GrantRun { offset, fence, count: 1, attempt, expires_in_ms }),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_follows_in_all_respects_is_one_run() {
        let grant = |offset, fence, attempt| Grant { offset, fence, attempt, expires_in_ms: 9 };
        let made = runs(&[grant(1, 5, 1), grant(2, 6, 1), grant(3, 7, 2), grant(4, 9, 2), grant(6, 10, 2)]);
        let seen: Vec<_> = made.iter().map(|run| (run.offset, run.fence, run.count, run.attempt)).collect();
        assert_eq!(seen, [(1, 5, 2, 1), (3, 7, 1, 2), (4, 9, 1, 2), (6, 10, 1, 2)]);
        assert_eq!(runs(&[]), []);
    }
}
