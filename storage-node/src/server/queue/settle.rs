//! Ends leases: accepts at once, answers when it is in the log.

use bytes::Bytes;
use weir_protocol::error::{ErrorCode, Outcome};
use weir_protocol::ids::Offset;
use weir_protocol::limits::{
    DELAY_MS_MAX, LEASE_MS_MAX, LEASE_MS_MIN, SETTLE_ITEMS_MAX, SETTLE_REASON_BYTES_MAX,
};
use weir_protocol::rpc::{
    NotDone, Refusal, SettleAction, SettleAnswer, SettleItem, SettleOutcome, SettleRequest, SettleResult,
    SettleRun, SettleRunsAnswer, SettleRunsRequest,
};

use super::stream::acknowledge;
use super::{PartHandle, settle_ended, was_moved};
use crate::clock;
use crate::read::keep_returning;
use crate::replica::{Queue, ShardHandle};
use crate::server::Room;
use crate::server::decode::decode;
use crate::shard::entry::SUB_BATCHES_BYTES_MAX;
use crate::subscription::{Action, Dead, Effect, Fence, Nacked, PartEvent, Settle, Verdict};

/// Bytes of reasons that one entry carries, well below what fits.
const REASONS_BYTES_MAX: usize = 1 << 20;

/// What comes again after more than this need not be in memory until then.
const SOON_MS: u64 = 10_000;

const _: () = assert!(
    REASONS_BYTES_MAX + SETTLE_ITEMS_MAX * 64 < SUB_BATCHES_BYTES_MAX
        && SETTLE_REASON_BYTES_MAX <= REASONS_BYTES_MAX,
    "an entry carries what a call settles"
);

/// Settles leases of one part.
pub(in crate::server) async fn settle(
    shard: ShardHandle,
    room: Room,
    body: Bytes,
) -> Result<SettleAnswer, Refusal> {
    let request: SettleRequest = decode(body)?;
    check_count(request.items.len() as u64)?;
    let part = PartHandle::new(shard, request.part);
    let items = request.items.iter().map(Item::of).collect::<Result<Vec<_>, _>>()?;
    Ok(SettleAnswer { results: settle_items(&part, &room, &items).await? })
}

/// The same for runs of leases; answers only what was not done.
pub(in crate::server) async fn settle_runs(
    shard: ShardHandle,
    room: Room,
    body: Bytes,
) -> Result<SettleRunsAnswer, Refusal> {
    let request: SettleRunsRequest = decode(body)?;
    let total: u64 = request.runs.iter().map(|run| u64::from(run.count)).sum();
    check_count(total)?;
    let mut items = Vec::with_capacity(usize::try_from(total).expect("checked above"));
    for SettleRun { offset, fence, count, action, ms, reason } in &request.runs {
        let action = action_of(SettleAction::try_from(*action).unwrap_or_default(), *ms, reason)?;
        let item = |place: u64| Item {
            settle: Settle {
                offset: Offset(offset.saturating_add(place)),
                fence: Fence(fence.saturating_add(place)),
                action,
            },
            reason,
        };
        items.extend((0..u64::from(*count)).map(item));
    }
    let part = PartHandle::new(shard, request.part);
    let results = settle_items(&part, &room, &items).await?;
    let places = (0u32..).zip(&request.runs).flat_map(|(run, it)| (0..it.count).map(move |at| (run, at)));
    let not_done = places.zip(results).filter(|(_, result)| result.outcome() != SettleOutcome::Done);
    let not_done = not_done.map(|((run, place), SettleResult { outcome, current })| NotDone {
        run,
        place,
        outcome,
        current,
    });
    Ok(SettleRunsAnswer { not_done: not_done.collect() })
}

fn check_count(count: u64) -> Result<(), Refusal> {
    if count > SETTLE_ITEMS_MAX as u64 {
        let detail = format!("{count} leases; at most {SETTLE_ITEMS_MAX} are settled at once");
        return Err(Refusal::new(ErrorCode::TooLarge, detail));
    }
    Ok(())
}

/// What is asked for one lease.
struct Item<'a> {
    settle: Settle,
    reason: &'a str,
}

impl<'a> Item<'a> {
    fn of(item: &'a SettleItem) -> Result<Self, Refusal> {
        let settle = Settle { offset: Offset(item.offset), fence: Fence(item.fence), action: action(item)? };
        Ok(Self { settle, reason: &item.reason })
    }
}

/// Items in runs of about [`REASONS_BYTES_MAX`].
fn steps<'a>(items: &'a [Item<'a>]) -> impl Iterator<Item = &'a [Item<'a>]> {
    let mut rest = items;
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let fits = |item: &&Item<'_>| {
            bytes += item.reason.len();
            bytes <= REASONS_BYTES_MAX
        };
        let count = rest.iter().take_while(fits).count();
        let (step, behind) = rest.split_at(count);
        rest = behind;
        (!step.is_empty()).then_some(step)
    })
}

/// Settles in the order of the items: what their reasons make too much for one entry goes into several. If
/// one of them is refused behind others, the call had an effect, and settling all of it again is safe.
async fn settle_items(
    part: &PartHandle,
    room: &Room,
    items: &[Item<'_>],
) -> Result<Vec<SettleResult>, Refusal> {
    if part.view()?.held.config.is_stream {
        let settles: Vec<Settle> = items.iter().map(|item| item.settle).collect();
        return acknowledge(part, room, &settles).await;
    }
    let queue = part.queue(&part.view()?);
    let mut results = Vec::with_capacity(items.len());
    for step in steps(items) {
        let mut settled = settle_step(part, room, &queue, step).await.map_err(|refusal| {
            if results.iter().any(is_done) { refusal.with_outcome(Outcome::Unknown) } else { refusal }
        })?;
        results.append(&mut settled);
    }
    Ok(results)
}

fn is_done(result: &SettleResult) -> bool {
    result.outcome() == SettleOutcome::Done
}

async fn settle_step(
    part: &PartHandle,
    room: &Room,
    queue: &Queue,
    items: &[Item<'_>],
) -> Result<Vec<SettleResult>, Refusal> {
    let Decided { mut event, offsets, mut results, places, decided, has_skips, is_news } = loop {
        // Taken before it is looked: a seek that ends meanwhile is not missed.
        let changed = queue.changed.notified();
        match decide(part, queue, items)? {
            Some(decided) => break decided,
            None => changed.await,
        }
    };
    // Their places are free from now on, before the log has them.
    if is_news {
        queue.changed.notify_waiters();
    }
    if !event.is_empty() {
        event.coalesce();
        let logged = part.commit(room, &event, decided).await;
        let is_news = {
            let (mut held, view) = part.lock(queue)?;
            let before = held.leases.next_event();
            settle_ended(&mut held.leases, &view.held.part, &logged, offsets);
            if has_skips {
                held.leases.skips_logged(&view.held.part);
            }
            held.leases.is_news(&view.held.part, view.end, before, clock::now())
        };
        if is_news {
            queue.changed.notify_waiters();
        }
        if was_moved(&logged) {
            let lost = Verdict::LeaseLost { current: None };
            places.into_iter().for_each(|place| results[place] = result(lost, clock::now()));
            return Ok(results);
        }
        logged.map_err(|refusal| {
            // What is held longer is, whatever became of the rest.
            let has_effect = results.iter().filter(|result| is_done(result)).count() > places.len();
            if has_effect { refusal.with_outcome(Outcome::Unknown) } else { refusal }
        })?;
        keep(part, &event.nacked);
    }
    Ok(results)
}

/// Keeps in memory what comes again soon: reading a whole batch for a few of its records would cost more than
/// its delivery did.
fn keep(part: &PartHandle, nacked: &[Nacked]) {
    let soon = clock::now().0.saturating_add(SOON_MS);
    let mut offsets: Vec<Offset> = nacked.iter().filter(|it| it.due.0 <= soon).map(|it| it.offset).collect();
    if !offsets.is_empty() {
        offsets.sort_unstable();
        keep_returning(&part.shard, part.key.1, &offsets);
    }
}

/// What is to be logged and answered.
#[derive(Default)]
struct Decided {
    event: PartEvent,
    /// Records in it.
    offsets: Vec<Offset>,
    results: Vec<SettleResult>,
    /// Places of these records among the results.
    places: Vec<usize>,
    /// The next fence then.
    decided: Fence,
    /// The event also settles records that were looked at and are for nobody.
    has_skips: bool,
    /// Who waits for records is to look.
    is_news: bool,
}

/// Decides about every lease; `None` while a seek is on its way.
fn decide(part: &PartHandle, queue: &Queue, items: &[Item<'_>]) -> Result<Option<Decided>, Refusal> {
    let (mut held, view) = part.lock(queue)?;
    if held.is_seeking {
        return Ok(None);
    }
    let (now, mut decided) = (clock::now(), Decided { decided: held.next_fence, ..Decided::default() });
    let before = held.leases.next_event();
    for Item { settle, reason } in items {
        let verdict = held.leases.settle(&view.held.part, view.end, settle, now);
        if note(&mut decided.event, verdict, settle.offset, reason) {
            decided.offsets.push(settle.offset);
            decided.places.push(decided.results.len());
        }
        decided.results.push(result(verdict, now));
    }
    if !decided.event.is_empty() {
        let mut skips = held.leases.skips_to_log();
        decided.has_skips = !skips.is_empty();
        decided.event.settled.append(&mut skips);
    }
    decided.is_news = held.leases.is_news(&view.held.part, view.end, before, now);
    Ok(Some(decided))
}

pub(super) fn action(item: &SettleItem) -> Result<Action, Refusal> {
    action_of(item.action(), item.ms, &item.reason)
}

fn action_of(action: SettleAction, ms: Option<u64>, reason: &str) -> Result<Action, Refusal> {
    let wrong = |detail: String| Err(Refusal::new(ErrorCode::InvalidParameter, detail));
    if reason.len() > SETTLE_REASON_BYTES_MAX {
        return wrong(format!("a reason has at most {SETTLE_REASON_BYTES_MAX} bytes"));
    }
    match action {
        SettleAction::Ack => Ok(Action::Ack),
        SettleAction::Dead => Ok(Action::Dead),
        SettleAction::Nack if ms.is_none_or(|ms| ms <= DELAY_MS_MAX) => Ok(Action::Nack { delay_ms: ms }),
        SettleAction::Nack => wrong(format!("a delay is at most {DELAY_MS_MAX} ms")),
        SettleAction::Extend => {
            let ms = ms.unwrap_or(0);
            if (u64::from(LEASE_MS_MIN)..=u64::from(LEASE_MS_MAX)).contains(&ms) {
                return Ok(Action::Extend { ms });
            }
            wrong(format!("a lease of {ms} ms; {LEASE_MS_MIN} to {LEASE_MS_MAX} are allowed"))
        }
        SettleAction::Unset => wrong("a lease is settled by ack, nack, extend or dead".to_owned()),
    }
}

/// Adds to the event what a verdict on `offset` asks for; true if it asks for something.
pub(super) fn note(event: &mut PartEvent, verdict: Verdict, offset: Offset, reason: &str) -> bool {
    let Verdict::Done(effect) = verdict else { return false };
    match effect {
        Effect::Settled => event.settle(offset),
        Effect::Nacked(nacked) => event.nacked.push(nacked),
        Effect::Dead(delivered) => {
            let (offset, attempts) = (delivered.offset, delivered.attempts);
            let said = Some(reason).filter(|reason| !reason.is_empty()).map(str::to_owned);
            let reason = said.unwrap_or_else(|| format!("failed in {attempts} deliveries"));
            event.dead.push(Dead { offset, attempts, reason });
        }
        Effect::Extended(_) | Effect::Waits(_) => return false,
    }
    true
}

fn result(verdict: Verdict, now: weir_protocol::ids::TimestampMs) -> SettleResult {
    let (outcome, current) = match verdict {
        Verdict::Done(_) => (SettleOutcome::Done, None),
        Verdict::LeaseLost { current } => (SettleOutcome::LeaseLost, current),
        Verdict::AlreadySettled => (SettleOutcome::AlreadySettled, None),
        Verdict::Unknown => (SettleOutcome::Unknown, None),
    };
    SettleResult { outcome: outcome as i32, current: current.map(|grant| grant.to_wire(now)) }
}
