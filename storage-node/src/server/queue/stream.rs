//! Parts of streams: one reader at a time, in the order of offsets; acknowledgements up to a record.

use std::ops::Range;
use std::sync::Arc;

use weir_protocol::error::ErrorCode;
use weir_protocol::ids::Offset;
use weir_protocol::rpc::{Grant, PullAnswer, PullRequest, Refusal, SettleOutcome, SettleResult};

use super::find::find;
use super::pull::{Given, PULL_BYTES_MAX, Step};
use super::{PartHandle, View, was_moved};
use crate::clock;
use crate::read::Reader;
use crate::replica::Queue;
use crate::server::Room;
use crate::subscription::{Acked, Action, Connection, Lot, PartEvent, Reading, Settle, Wants};

/// One look for records to show.
pub(super) struct Streamer<'a> {
    pub(super) part: &'a PartHandle,
    pub(super) room: &'a Room,
    pub(super) reader: &'a Reader,
    pub(super) queue: &'a Queue,
    pub(super) request: &'a PullRequest,
    /// `None`: it pulls.
    pub(super) connection: Option<Connection>,
}

/// What there is for a reader.
struct Turn {
    from: Offset,
    view: View,
}

/// Refuses what only queues can do.
pub(super) fn refuse_stream(view: &View, what: &str) -> Result<(), Refusal> {
    if !view.held.config.is_stream {
        return Ok(());
    }
    let detail = format!("{what} is for queues: messages of a stream are only acknowledged");
    Err(Refusal::new(ErrorCode::NotSupported, detail))
}

impl Streamer<'_> {
    pub(super) async fn give(&self) -> Result<Step, Refusal> {
        if self.request.holder.is_empty() {
            let detail = "holder: a stream has one reader at a time, and knows it by its name";
            return Err(Refusal::new(ErrorCode::InvalidParameter, detail));
        }
        if self.request.only_repeat {
            // Whatever is not acknowledged is given again, under any key.
            return Ok(Step::Nothing { wake_ms: None });
        }
        let holder: Arc<str> = Arc::from(self.request.holder.as_str());
        let patience_ms = u64::from(match self.request.lease_ms {
            0 => self.part.view()?.held.config.lease_ms,
            asked => asked,
        });
        let lot = Lot(self.request.lot);
        let wants = Wants { holder: &holder, connection: self.connection, patience_ms, lot };
        match self.begin(wants)? {
            Ok(turn) => self.show(wants, turn).await,
            Err(step) => Ok(step),
        }
    }

    /// What there is for the reader; otherwise what to wait for.
    fn begin(&self, wants: Wants<'_>) -> Result<Result<Turn, Step>, Refusal> {
        let now = clock::now();
        let (mut held, view) = self.part.lock(self.queue)?;
        held.pulled = Some(now);
        if held.cursor.claim(wants, now) {
            // Whoever reads or waits under a lower one learns that it was displaced.
            self.queue.changed.notify_waiters();
        }
        let nothing = |wake_ms| Ok(Err(Step::Nothing { wake_ms }));
        if held.is_seeking || view.held.config.paused {
            return nothing(None);
        }
        let part = &view.held.part;
        let has_some = |from: Offset| part.next_unsettled(from) < view.end;
        match held.cursor.would_begin(wants, part.floor(), now) {
            Some(from) if has_some(from) && self.request.max_records == 0 => {
                let answer = PullAnswer { is_more: true, ..PullAnswer::default() };
                return Ok(Err(Step::Given(Given { answer, ..Given::default() })));
            }
            // Who finds nothing is not the reader yet; who is stays it.
            Some(from) if !has_some(from) && !held.cursor.is_read_by(wants, part.floor(), now) => {
                return nothing(None);
            }
            _ => {}
        }
        match held.cursor.begin(wants, part.floor(), now) {
            Ok(from) if has_some(from) => Ok(Ok(Turn { from: part.next_unsettled(from), view })),
            // Waiting is a sign of life.
            Ok(_) => nothing(Some(wants.patience_ms / 2)),
            Err(occupied) => nothing(occupied.until.map(|until| until.0.saturating_sub(now.0).max(1))),
        }
    }

    async fn show(&self, wants: Wants<'_>, Turn { from, view }: Turn) -> Result<Step, Refusal> {
        let part = &view.held.part;
        // Above the floor there is something settled after a seek was taken back.
        let runs = part.unsettled_from(from, view.end);
        let offsets = runs.flat_map(|run| (run.start.0..run.end.0).map(Offset));
        let offsets = offsets.take(self.request.max_records as usize);
        let max_bytes = self.request.max_bytes.clamp(1, PULL_BYTES_MAX);
        let found = match find(self.reader, offsets, max_bytes, None).await {
            // Retention was faster: what is left is looked at anew.
            Err(refusal) if refusal.error_code() == ErrorCode::OffsetTrimmed => return Ok(Step::Again),
            found => found?,
        };
        let Some(last) = found.records.last() else {
            self.settle_dropped(found.holes.first().cloned()).await?;
            return Ok(Step::Again);
        };
        let shown_end = last.offset.plus(1);
        if self.void_others(wants).await? {
            return Ok(Step::Again);
        }
        let first_fence = {
            let (mut held, now) = self.part.lock(self.queue)?;
            // Meanwhile there may have been a seek, retention, or another that took its place.
            if held.is_seeking || now.held.part.floor() > from {
                return Ok(Step::Again);
            }
            match held.cursor.shown(wants, from..shown_end) {
                Some(fence) => fence,
                None => return Ok(Step::Again),
            }
        };
        let grant = |offset: Offset| Grant {
            offset: offset.0,
            fence: first_fence.0 + (offset.0 - from.0),
            attempt: 1,
            expires_in_ms: wants.patience_ms,
        };
        let grants = found.records.iter().map(|record| grant(record.offset)).collect();
        let (slices, payload): (Vec<_>, Vec<_>) = found.slices.into_iter().unzip();
        let is_more = part.next_unsettled(shown_end) < view.end;
        let answer = PullAnswer { grants, slices, is_repeat: false, is_more };
        let payload = payload.into_iter().flatten().collect();
        Ok(Step::Given(Given { answer, payload, bytes: found.bytes }))
    }
}

impl Streamer<'_> {
    /// What another reader was shown before, and has not acknowledged, is this reader's alone from here on. That is in
    /// the log, so it stays so with any leader. True if the part was moved, or the reader replaced, meanwhile.
    async fn void_others(&self, wants: Wants<'_>) -> Result<bool, Refusal> {
        let (voided, decided) = {
            let (held, view) = self.part.lock(self.queue)?;
            let part = &view.held.part;
            if held.is_seeking || !held.cursor.is_read_by(wants, part.floor(), clock::now()) {
                return Ok(true);
            }
            let Some(voided) = held.cursor.voids(part) else { return Ok(false) };
            (voided, held.fence_end())
        };
        let event = PartEvent { voided, ..PartEvent::default() };
        let logged = self.part.commit(self.room, &event, decided).await;
        if was_moved(&logged) { Ok(true) } else { logged.map(|()| false) }
    }

    /// What compaction dropped is settled where it is next in line, with what follows and was dropped too.
    async fn settle_dropped(&self, hole: Option<Range<Offset>>) -> Result<(), Refusal> {
        let Some(hole) = hole else { return Ok(()) };
        let end = self.reader.next_there(hole.end).await?;
        let decided = {
            let (held, _) = self.part.lock(self.queue)?;
            if held.is_seeking {
                return Ok(());
            }
            held.fence_end()
        };
        let event = PartEvent { settled: vec![hole.start..end], ..PartEvent::default() };
        let logged = self.part.commit(self.room, &event, decided).await;
        // After a seek it is looked at again.
        if was_moved(&logged) { Ok(()) } else { logged }
    }
}

/// What becomes of acknowledgements, before they are committed.
struct Accepted {
    results: Vec<SettleResult>,
    /// Places of those that are to be committed, below what everything then is, and whose time it was.
    places: Vec<usize>,
    upto: Option<(Offset, Reading)>,
}

/// Acknowledges, each up to and with its record. On return it is committed.
pub(super) async fn acknowledge(
    part: &PartHandle,
    room: &Room,
    items: &[Settle],
) -> Result<Vec<SettleResult>, Refusal> {
    if items.iter().any(|item| !matches!(item.action, Action::Ack)) {
        refuse_stream(&part.view()?, "nack, extend and dead")?;
    }
    let queue = part.queue(&part.view()?);
    let Accepted { mut results, places, upto } = loop {
        // Taken before it is looked: a seek that ends meanwhile is not missed.
        let changed = queue.changed.notified();
        match accept(part, &queue, items)? {
            Some(accepted) => break accepted,
            None => changed.await,
        }
    };
    if let Some(upto) = upto
        && !commit(part, room, &queue, upto).await?
    {
        let lost = outcome(SettleOutcome::LeaseLost);
        places.into_iter().for_each(|place| results[place] = lost);
    }
    Ok(results)
}

/// Decides about each; `None` while a seek is on its way.
fn accept(part: &PartHandle, queue: &Queue, items: &[Settle]) -> Result<Option<Accepted>, Refusal> {
    let (mut held, view) = part.lock(queue)?;
    if held.is_seeking {
        return Ok(None);
    }
    let (now, results) = (clock::now(), Vec::with_capacity(items.len()));
    let mut accepted = Accepted { results, places: Vec::new(), upto: None };
    for item in items {
        let acked = held.cursor.ack(item.offset, item.fence, &view.held.part, view.end, now);
        accepted.results.push(outcome(match acked {
            Acked::Upto(_) => SettleOutcome::Done,
            Acked::Lost => SettleOutcome::LeaseLost,
            Acked::Already => SettleOutcome::AlreadySettled,
            Acked::Unknown => SettleOutcome::Unknown,
        }));
        if let Acked::Upto(upto) = acked {
            accepted.places.push(accepted.results.len() - 1);
            let upto = accepted.upto.map_or(upto, |(before, _)| before.max(upto));
            accepted.upto = Some((upto, held.cursor.reading()));
        }
    }
    Ok(Some(accepted))
}

fn outcome(outcome: SettleOutcome) -> SettleResult {
    SettleResult { outcome: outcome as i32, current: None }
}

/// Commits what is acknowledged, together with what others have acknowledged meanwhile; false if another
/// reader began, or a seek came, before.
///
/// # Errors
/// Nothing is acknowledged, as far as is known: it is shown again to whoever pulls.
async fn commit(
    part: &PartHandle,
    room: &Room,
    queue: &Queue,
    (upto, reading): (Offset, Reading),
) -> Result<bool, Refusal> {
    let _turn = queue.commits.lock().await;
    let (range, decided) = loop {
        // Taken before it is looked: a seek that ends meanwhile is not missed.
        let changed = queue.changed.notified();
        {
            let (mut held, view) = part.lock(queue)?;
            if !held.is_seeking {
                match held.cursor.to_settle(upto, reading, view.held.part.floor()) {
                    Some(range) => break (range, held.fence_end()),
                    None => return Ok(false),
                }
            }
        }
        // It may be refused, and what was shown is acknowledged as ever.
        changed.await;
    };
    if range.start >= range.end {
        return Ok(true);
    }
    let end = range.end;
    let event = PartEvent { settled: vec![range], ..PartEvent::default() };
    let logged = part.commit(room, &event, decided).await;
    if logged.is_err() {
        if let Ok((mut held, view)) = part.lock(queue) {
            held.cursor.failed(end, view.held.part.floor());
        }
        // Who waits for what is behind it has something before it.
        queue.changed.notify_waiters();
    } else if queue.lock().cursor.is_yielding() {
        // It may have been the last that another waits for.
        queue.changed.notify_waiters();
    }
    if was_moved(&logged) { Ok(false) } else { logged.map(|()| true) }
}
