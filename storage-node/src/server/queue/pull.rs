//! Leases records and sends them.

use std::ops::Range;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, sleep_until, timeout};
use weir_protocol::error::{ErrorCode, Outcome};
use weir_protocol::ids::{Offset, TimestampMs};
use weir_protocol::limits::{CLIENT_ID_BYTES_MAX, LEASE_MS_MAX, LEASE_MS_MIN, PULL_RECORDS_MAX, WAIT_MS_MAX};
use weir_protocol::rpc::{PullAnswer, PullRequest, Refusal, encode_packet};
use weir_transport::{CreditHandle, Reply};

use super::find::{Found, find};
use super::lapse::dead;
use super::stream::Streamer;
use super::{PartHandle, was_moved};
use crate::clock;
use crate::read::{Allowance, Reader};
use crate::replica::{Queue, ShardHandle, Turn};
use crate::server::Room;
use crate::server::decode::decode;
use crate::subscription::{Ask, Fence, Grant, Leases, Part, PartEvent, PullKey, Taken};

/// Encoded bytes that one pull gives at most, but for a single larger batch.
pub(super) const PULL_BYTES_MAX: u64 = 3 << 20;

/// Leases whose records are being read begin anew no more often than this: well within the shortest.
const HOLD_TIME_MIN: Duration = Duration::from_millis(LEASE_MS_MIN as u64 / 4);

/// A pull that finds only what is not to be delivered looks on for this long after its wait is over.
const AGAIN_TIME_MAX: Duration = Duration::from_secs(1);

/// Answers one pull, waiting for records if asked to: as long as somebody wants them.
pub(in crate::server) async fn pull(shard: ShardHandle, room: Room, body: Bytes, reply: Reply) {
    match pull_once(shard, &room, body, reply.credit()).await {
        Ok(Given { answer, payload, .. }) => {
            if reply.finish_when_ready(encode_packet(&answer, payload)).await.is_err() {
                tracing::debug!("a consumer went away before its answer; its leases end by themselves");
            }
        }
        Err(refusal) => reply.refuse(refusal),
    }
}

/// What is sent.
#[derive(Default)]
pub(super) struct Given {
    pub(super) answer: PullAnswer,
    pub(super) payload: Vec<Bytes>,
    /// Encoded bytes of the records.
    pub(super) bytes: u64,
}

async fn pull_once(
    shard: ShardHandle,
    room: &Room,
    body: Bytes,
    mut call: CreditHandle,
) -> Result<Given, Refusal> {
    let request: PullRequest = decode(body)?;
    check(&request)?;
    let part = PartHandle::new(shard.clone(), request.part);
    let reader = Reader::new(shard, part.key.1);
    // Nothing is read on for this answer once that is used up.
    let max_bytes = request.max_bytes.clamp(1, PULL_BYTES_MAX);
    reader.may_give(Allowance { records: request.max_records.into(), bytes: max_bytes });
    let deadline = Instant::now() + Duration::from_millis(request.wait_ms.min(WAIT_MS_MAX));
    let mut turn = Turn::of(part.queue(&part.view()?));
    loop {
        let view = part.view()?;
        let queue = part.queue(&view);
        if !Arc::ptr_eq(turn.queue(), &queue) {
            turn = Turn::of(Arc::clone(&queue));
        }
        // Taken before the state is looked at: what comes meanwhile wakes it.
        let (published, changed) = (reader.changed.notified(), queue.changed.notified());
        let gone = queue.gone.notified();
        // Of a stream only its reader has something to wait for: whose turn it is, the cursor knows.
        let is_listening = view.held.config.is_stream || turn.try_take();
        let puller = Puller {
            part: &part,
            room,
            reader: &reader,
            queue: &queue,
            turn: &turn,
            call: &call,
            request: &request,
        };
        let step = if view.held.config.is_stream {
            let (part, reader, queue, request) = (&part, &reader, &*queue, &request);
            Streamer { part, room, reader, queue, request, connection: None }.give().await?
        } else {
            puller.give().await?
        };
        match step {
            Step::Given(given) => return Ok(given),
            Step::Again if call.latest().is_cancelled => return Ok(Given::default()),
            Step::Again if Instant::now() >= deadline + AGAIN_TIME_MAX => {
                let answer = PullAnswer { is_more: true, ..PullAnswer::default() };
                return Ok(Given { answer, ..Given::default() });
            }
            Step::Again => {}
            Step::Nothing { wake_ms } => {
                let wake = wake_ms.map(|ms| Instant::now() + Duration::from_millis(ms));
                let until = wake.map_or(deadline, |wake| wake.min(deadline));
                if call.latest().is_cancelled || Instant::now() >= deadline || request.only_repeat {
                    return Ok(Given::default());
                }
                tokio::select! {
                    () = published, if is_listening => {}
                    () = changed, if is_listening => {}
                    () = turn.take(), if !is_listening => {}
                    () = gone => {}
                    _ = call.changed() => {}
                    () = sleep_until(if is_listening { until } else { deadline }) => {}
                }
            }
        }
    }
}

fn check(request: &PullRequest) -> Result<(), Refusal> {
    let wrong = |detail: String| Err(Refusal::new(ErrorCode::InvalidParameter, detail));
    if request.max_records > PULL_RECORDS_MAX {
        return wrong(format!(
            "{} records; at most {PULL_RECORDS_MAX} are leased at once",
            request.max_records
        ));
    }
    if request.lease_ms != 0 && !(LEASE_MS_MIN..=LEASE_MS_MAX).contains(&request.lease_ms) {
        return wrong(format!(
            "a lease of {} ms; {LEASE_MS_MIN} to {LEASE_MS_MAX} are allowed",
            request.lease_ms
        ));
    }
    if request.holder.len() > CLIENT_ID_BYTES_MAX {
        return wrong(format!("a holder has at most {CLIENT_ID_BYTES_MAX} bytes"));
    }
    Ok(())
}

pub(super) enum Step {
    Given(Given),
    /// What there was is not to be delivered; there may be more.
    Again,
    Nothing {
        /// When something may become ready by itself.
        wake_ms: Option<u64>,
    },
}

enum Looked {
    /// Leased under the same key before, with the next fence then.
    Repeat(Taken, Fence),
    Over(Step),
    /// With the topic's time to live of messages, and the next fence then.
    Taken(Taken, Option<u64>, Fence),
}

/// One look for records to lease.
pub(super) struct Puller<'a> {
    pub(super) part: &'a PartHandle,
    pub(super) room: &'a Room,
    pub(super) reader: &'a Reader,
    pub(super) queue: &'a Queue,
    pub(super) turn: &'a Turn,
    pub(super) call: &'a CreditHandle,
    pub(super) request: &'a PullRequest,
}

impl Puller<'_> {
    pub(super) async fn give(&self) -> Result<Step, Refusal> {
        self.look_ahead().await?;
        let (taken, topic_ttl_ms, decided) = match self.take()? {
            Looked::Repeat(taken, decided) => return self.repeat(taken, decided).await,
            Looked::Over(step) => {
                // Nothing else may come that takes them along.
                return match self.log_skipped().await {
                    // Whoever logs next does.
                    Err(refusal) if has_no_room(&refusal) => Ok(step),
                    logged => logged.map(|()| step),
                };
            }
            Looked::Taken(taken, topic_ttl_ms, decided) => (taken, topic_ttl_ms, decided),
        };
        // What is left is for the next one, while this one logs and reads.
        self.turn.pass();
        let is_moved = self.holding(&taken.grants, self.log(&taken, decided)).await?;
        if taken.grants.is_empty() || is_moved {
            return Ok(Step::Again);
        }
        let max_bytes = self.request.max_bytes.clamp(1, PULL_BYTES_MAX);
        let offsets = taken.grants.iter().map(|grant| grant.offset);
        let found = find(self.reader, offsets, max_bytes, topic_ttl_ms);
        match self.unless_gone(self.holding(&taken.grants, found)).await {
            None => {
                self.release(&taken.grants);
                Ok(Step::Again)
            }
            Some(Ok(found)) => self.send(taken.grants, found).await,
            Some(Err(refusal)) => {
                self.release(&taken.grants);
                // Retention was faster: what it left is leased next.
                if refusal.error_code() == ErrorCode::OffsetTrimmed { Ok(Step::Again) } else { Err(refusal) }
            }
        }
    }

    fn take(&self) -> Result<Looked, Refusal> {
        let now = clock::now();
        let key = self.request.key.map(|key| PullKey(key.into()));
        let (mut held, view) = self.part.lock(self.queue)?;
        let (held, part) = (&mut *held, &view.held.part);
        held.pulled = Some(now);
        // Looked at under the lock: who gives back what a caller held looks after the caller was cancelled.
        if held.is_seeking || self.call.latest().is_cancelled {
            return Ok(Looked::Over(Step::Nothing { wake_ms: None }));
        }
        let repeated = key.map(|key| held.leases.repeat(key, now)).unwrap_or_default();
        if !repeated.is_empty() {
            let redelivered = held.leases.unlogged(part, &repeated);
            let taken = Taken { grants: repeated, redelivered, exhausted: Vec::new() };
            return Ok(Looked::Repeat(taken, held.next_fence));
        }
        if self.request.only_repeat {
            return Ok(Looked::Over(Step::Nothing { wake_ms: None }));
        }
        if self.request.max_records > 0 {
            let new = held.leases.takes_new_from(part, view.end, now);
            let ask = Ask {
                now,
                end: new.map_or(view.end, |new| self.worth_taking(new).min(view.end)),
                max_records: self.request.max_records as usize,
                lease_ms: u64::from(self.request.lease_ms),
                holder: Arc::from(self.request.holder.as_str()),
                key,
            };
            let taken = held.leases.take(part, &ask, &mut held.next_fence);
            if !taken.grants.is_empty() || !taken.exhausted.is_empty() {
                return Ok(Looked::Taken(taken, view.ttl_ms, held.next_fence));
            }
        } else if held.leases.ready(part, view.end, now) {
            let answer = PullAnswer { is_more: true, ..PullAnswer::default() };
            return Ok(Looked::Over(Step::Given(Given { answer, ..Given::default() })));
        }
        if held.leases.look_from(part, view.end, 1).is_some() {
            return Ok(Looked::Over(Step::Again));
        }
        let wake_ms = held.leases.next_event().map(|at| at.0.saturating_sub(now.0).max(1));
        Ok(Looked::Over(Step::Nothing { wake_ms }))
    }

    /// The end of what is leased from a place on: no more than will be read, so that it need not be given back.
    fn worth_taking(&self, (new, room): (Offset, usize)) -> Offset {
        let most = room.min(self.request.max_records as usize) as u64;
        let max_bytes = self.request.max_bytes.clamp(1, PULL_BYTES_MAX);
        let state = self.part.shard.state.read();
        let Ok(partition) = state.partition(self.part.key.1) else { return new };
        let (mut end, mut bytes) = (new, 0);
        for row in partition.batches_from(new) {
            if bytes >= max_bytes || end.0 - new.0 >= most {
                break;
            }
            end = row.end();
            bytes += u64::from(row.len);
        }
        end
    }

    /// Logs deliveries that may not be the first ones, before any byte of them leaves, and records
    /// that have had all theirs. True if the part was moved meanwhile: then nothing of it holds any more.
    async fn log(&self, taken: &Taken, decided: Fence) -> Result<bool, Refusal> {
        if taken.redelivered.is_empty() && taken.exhausted.is_empty() {
            return Ok(false);
        }
        let (delivered, dead) = (taken.redelivered.clone(), dead(&taken.exhausted));
        let event = PartEvent { delivered, dead, ..PartEvent::default() };
        let records = (taken.grants.len() + taken.exhausted.len()) as u64;
        let logged = self.part.commit_for(self.room, &event, decided, records).await;
        let exhausted = || taken.exhausted.iter().map(|delivered| delivered.offset);
        if let Ok((mut held, view)) = self.part.lock(self.queue) {
            match &logged {
                Ok(()) => held.leases.committed(&view.held.part, exhausted()),
                Err(_) => held.leases.failed(&view.held.part, exhausted(), clock::now()),
            }
        }
        let logged = match logged {
            Err(refusal) if is_of_letters(&refusal, taken) => {
                self.log_without_dead(event, decided, &refusal).await
            }
            logged => logged,
        };
        if logged.is_err() {
            self.release(&taken.grants);
        }
        if was_moved(&logged) { Ok(true) } else { logged.map(|()| false) }
    }

    /// Dead letters that find no room are tried again, and keep nobody from what is delivered beside them.
    async fn log_without_dead(
        &self,
        event: PartEvent,
        decided: Fence,
        refusal: &Refusal,
    ) -> Result<(), Refusal> {
        let (shard, why) = (self.part.shard.shard, &refusal.detail);
        tracing::warn!(%shard, why, "dead letters were not given up; it is tried again");
        let event = PartEvent { dead: Vec::new(), ..event };
        if event.is_empty() { Ok(()) } else { self.part.commit(self.room, &event, decided).await }
    }

    /// Does what comes before the bytes leave, and holds the leases until it is done: however long a store
    /// takes, that is no delivery that failed, and others would not get the bytes earlier.
    async fn holding<T>(&self, grants: &[Grant], before: impl Future<Output = T>) -> T {
        let mut until = grants.first().map(|first| first.deadline);
        let mut before = pin!(before);
        while let Some(end) = until {
            let left = Duration::from_millis(end.0.saturating_sub(clock::now().0));
            match timeout((left / 2).max(HOLD_TIME_MIN), &mut before).await {
                Ok(done) => return done,
                Err(_) => until = self.hold(grants),
            }
        }
        before.await
    }

    /// The time of leases begins anew. When the first of them ends; `None` if all have.
    fn hold(&self, grants: &[Grant]) -> Option<TimestampMs> {
        let now = clock::now();
        let (mut held, _) = self.part.lock(self.queue).ok()?;
        grants.iter().filter_map(|grant| held.leases.renew(grant.offset, grant.fence, now)).min()
    }

    /// `None` if the caller has gone before: what it would have been sent is for others, at once.
    async fn unless_gone<T>(&self, read: impl Future<Output = T>) -> Option<T> {
        let mut call = self.call.clone();
        tokio::select! {
            biased;
            done = read => Some(done),
            () = async { while !call.changed().await.is_cancelled {} } => None,
        }
    }

    /// Gives back what was not sent.
    fn release(&self, grants: &[Grant]) {
        self.of_each(grants, Leases::give_back);
    }

    fn of_each(&self, grants: &[Grant], release: impl Fn(&mut Leases, &Part, Offset, Fence)) {
        if let Ok((mut held, view)) = self.part.lock(self.queue) {
            for grant in grants.iter().rev() {
                release(&mut held.leases, &view.held.part, grant.offset, grant.fence);
            }
        }
        self.queue.changed.notify_waiters();
    }

    /// Starts the leases of what was found and is to be delivered now; the rest is given back, postponed or settled.
    async fn send(&self, grants: Vec<Grant>, found: Found) -> Result<Step, Refusal> {
        let now = clock::now();
        let (mut kept, mut expired, mut unread) = (Vec::new(), Vec::new(), Vec::new());
        let mut dropped = Vec::new();
        let mut is_postponed = false;
        {
            let (mut held, _) = self.part.lock(self.queue)?;
            // Nobody waits for them any more: as if they had not been read.
            let is_gone = self.call.latest().is_cancelled;
            let read = if is_gone { &[][..] } else { &found.records };
            let mut records = read.iter().peekable();
            for grant in grants {
                while records.next_if(|record| record.offset < grant.offset).is_some() {}
                match records.next_if(|record| record.offset == grant.offset) {
                    None if found.is_hole(grant.offset) && !is_gone => dropped.push(grant),
                    None => unread.push(grant),
                    Some(record) if record.expires_at.is_some_and(|at| at <= now) => expired.push(grant),
                    Some(record) => match record.deliver_at.filter(|at| *at > now) {
                        Some(due) => {
                            held.leases.postpone(grant.offset, grant.fence, due);
                            is_postponed = true;
                        }
                        None => {
                            let started = held.leases.started(grant.offset, grant.fence, now);
                            kept.extend(started.map(|deadline| Grant { deadline, ..grant }));
                        }
                    },
                }
            }
        }
        if !unread.is_empty() {
            self.release(&unread);
        } else if is_postponed {
            // Whoever listens by now may have thought that nothing is due.
            self.queue.changed.notify_waiters();
        }
        if !expired.is_empty() {
            self.queue.lock().leases.sift();
        }
        let settled = match dropped.is_empty() {
            true => self.settle_unsent(&expired, None, kept.len()).await,
            false => self.settle_dropped(expired, dropped, kept.len()).await,
        };
        if let Err(refusal) = settled {
            // They are not sent either, though they have been started.
            self.of_each(&kept, Leases::release);
            return Err(refusal);
        }
        if kept.is_empty() {
            return Ok(Step::Again);
        }
        Ok(Step::Given(self.answer(&kept, found, false)?))
    }

    /// Records that compaction dropped are settled, and with them those that follow and were dropped too,
    /// which nobody was offered yet.
    async fn settle_dropped(
        &self,
        mut unsent: Vec<Grant>,
        dropped: Vec<Grant>,
        kept: usize,
    ) -> Result<(), Refusal> {
        let next = {
            let (held, _) = self.part.lock(self.queue)?;
            held.leases.next()
        };
        let ends_there = dropped.last().is_some_and(|last| last.offset.plus(1) == next);
        let beyond = if ends_there { Some(next..self.reader.next_there(next).await?) } else { None };
        unsent.extend(dropped);
        unsent.sort_unstable_by_key(|grant| grant.offset);
        self.settle_unsent(&unsent, beyond, kept).await
    }

    /// Records whose time to live is over, or that are not there any more, are settled without being
    /// delivered; `beyond` them is a range of which nothing is there. So many others are `kept`.
    async fn settle_unsent(
        &self,
        unsent: &[Grant],
        beyond: Option<Range<Offset>>,
        kept: usize,
    ) -> Result<(), Refusal> {
        let (settling, decided) = {
            let (mut held, view) = self.part.lock(self.queue)?;
            let settling = held.leases.settle_unsent(&view.held.part, view.end, unsent, clock::now());
            (settling, held.next_fence)
        };
        let mut event = PartEvent::default();
        settling.iter().for_each(|offset| event.settle(*offset));
        event.settled.extend(beyond.clone().filter(|beyond| !beyond.is_empty()));
        // Others may have settled all of it meanwhile.
        let logged = if event.is_empty() {
            Ok(())
        } else {
            event.coalesce();
            self.part.commit_for(self.room, &event, decided, event.records() + kept as u64).await
        };
        let (mut held, view) = self.part.lock(self.queue)?;
        let is_its = |grant: &&Grant| settling.binary_search(&grant.offset).is_ok();
        let logged = match logged {
            Ok(()) => {
                held.leases.committed(&view.held.part, settling);
                Ok(())
            }
            Err(refusal) if has_no_room(&refusal) => {
                let its: Vec<Grant> = unsent.iter().filter(is_its).copied().collect();
                held.leases.skip_unsent(&view.held.part, &its).then_some(()).ok_or(refusal)
            }
            Err(refusal) => {
                held.leases.failed(&view.held.part, settling, clock::now());
                Err(refusal)
            }
        };
        // Of what two pulls held, or of what lies beyond, the one may have settled what the other has leased:
        // to no end.
        let each = unsent.iter().map(|grant| grant.offset..grant.offset.plus(1));
        each.chain(beyond).for_each(|range| held.leases.forget_settled_in(&view.held.part, range));
        if was_moved(&logged) { Ok(()) } else { logged }
    }

    /// What was leased under the same key before.
    async fn repeat(&self, taken: Taken, decided: Fence) -> Result<Step, Refusal> {
        if self.log(&taken, decided).await? {
            return Ok(Step::Again);
        }
        let grants = taken.grants;
        let max_bytes = self.request.max_bytes.clamp(1, PULL_BYTES_MAX);
        let found = match find(self.reader, grants.iter().map(|grant| grant.offset), max_bytes, None).await {
            // Retention was faster: of what it removed nothing is held any more.
            Err(refusal) if refusal.error_code() == ErrorCode::OffsetTrimmed => return Ok(Step::Again),
            found => found?,
        };
        let (dropped, grants): (Vec<_>, Vec<_>) =
            grants.into_iter().partition(|grant| found.is_hole(grant.offset));
        self.settle_unsent(&dropped, None, grants.len()).await?;
        let kept = self.still_held(grants)?;
        if kept.is_empty() {
            return Ok(Step::Again);
        }
        Ok(Step::Given(self.answer(&kept, found, true)?))
    }

    /// What of these leases did not end while they were read, and leaves now. The pull that leased them may
    /// have been on its way still, and have given them back because its caller went.
    fn still_held(&self, grants: Vec<Grant>) -> Result<Vec<Grant>, Refusal> {
        let (mut held, _) = self.part.lock(self.queue)?;
        let is_gone = self.call.latest().is_cancelled;
        let leaves = |grant: Grant| {
            let deadline = held.leases.leaves(grant.offset, grant.fence)?;
            Some(Grant { deadline, ..grant })
        };
        Ok(grants.into_iter().filter(|_| !is_gone).filter_map(leaves).collect())
    }

    fn answer(&self, grants: &[Grant], found: Found, is_repeat: bool) -> Result<Given, Refusal> {
        let (now, bytes) = (clock::now(), found.bytes);
        let is_held = |offset: Offset| grants.binary_search_by_key(&offset, |grant| grant.offset).is_ok();
        let (mut slices, mut payload) = (Vec::new(), Vec::new());
        for (slice, body) in found.slices {
            if (slice.first..slice.first + u64::from(slice.take)).any(|offset| is_held(Offset(offset))) {
                slices.push(slice);
                payload.extend(body);
            }
        }
        let is_more = {
            let (mut held, view) = self.part.lock(self.queue)?;
            held.leases.ready(&view.held.part, view.end, now)
        };
        let grants = grants.iter().map(|grant| grant.to_wire(now)).collect();
        Ok(Given { answer: PullAnswer { grants, slices, is_repeat, is_more }, payload, bytes })
    }
}

/// It was refused, and nothing but room was missing.
fn has_no_room(refusal: &Refusal) -> bool {
    let is_of_room = matches!(refusal.error_code(), ErrorCode::JournalFull | ErrorCode::Busy);
    is_of_room && refusal.effect() == Outcome::None
}

/// Nothing but letters may be what was refused, and there is something else to deliver.
fn is_of_letters(refusal: &Refusal, taken: &Taken) -> bool {
    let is_full = refusal.error_code() == ErrorCode::Busy && refusal.effect() == Outcome::None;
    is_full && !taken.exhausted.is_empty() && !taken.grants.is_empty()
}
