//! Looks at records before they are leased, where a subscription's rules need more than their offsets.

use std::hash::{BuildHasher as _, RandomState};
use std::ops::Range;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use weir_protocol::batch::Record;
use weir_protocol::error::ErrorCode;
use weir_protocol::filter::{Field, Filter, FilterError};
use weir_protocol::ids::{Offset, TimestampMs};
use weir_protocol::rpc::{Refusal, SubscriptionConfig};

use super::find::expires_at;
use super::pull::Puller;
use super::{View, was_moved};
use crate::clock;
use crate::read::{Allowance, ReadBatches};
use crate::subscription::{Fate, Key, Lane, PartEvent, Seen};

/// What one step looks at: then others have their turn.
const STEP: Allowance = Allowance { records: 1_024, bytes: 3 << 20 };
/// Steps of one pull: what it does not find in them, the next one may.
const STEPS_MAX: u32 = 16;
/// Records that are looked at for each that is asked for, where lanes take turns: so that who comes behind a
/// million others is found within a hundred deliveries.
const FAIR_RECORDS: u64 = 10_000;
/// No further step is begun for that after so long.
const FAIR_TIME_MAX: Duration = Duration::from_millis(200);

/// Where to look, and as which version of the configuration says.
struct Place {
    range: Range<Offset>,
    view: View,
}

impl Puller<'_> {
    /// Looks on until there is enough to lease, or nothing more to look at; where lanes take turns, as far
    /// beyond that as is due for what is asked for.
    pub(super) async fn look_ahead(&self) -> Result<(), Refusal> {
        let wanted = self.request.max_records.max(1) as usize;
        for _ in 0..STEPS_MAX {
            if !self.look_step(wanted, true).await? {
                break;
            }
        }
        if self.part.view()?.held.config.fair_by.is_some() {
            self.look_around(wanted as u64 * FAIR_RECORDS).await?;
        }
        if self.queue.lock().leases.is_full_of_what_was_looked_at() {
            self.part.shard.shared.metrics().look_ahead_full();
        }
        Ok(())
    }

    /// Looks for others whose turn it may be. Not if somebody else does.
    async fn look_around(&self, records: u64) -> Result<(), Refusal> {
        let begun = Instant::now();
        for _ in 0..records.div_ceil(STEP.records) {
            if begun.elapsed() >= FAIR_TIME_MAX || self.call.latest().is_cancelled {
                break;
            }
            if !self.look_step(usize::MAX, false).await? {
                break;
            }
        }
        Ok(())
    }

    /// Looks at some records, one at a time of all who look at a part; true if there may be more to look at.
    async fn look_step(&self, wanted: usize, waits: bool) -> Result<bool, Refusal> {
        if self.look_from(wanted)?.is_none() {
            return Ok(false);
        }
        let _alone = match self.queue.looks.try_lock() {
            Ok(alone) => alone,
            Err(_) if waits => self.queue.looks.lock().await,
            Err(_) => return Ok(false),
        };
        // Who looked meanwhile may have found enough.
        let Some(place) = self.look_from(wanted)? else { return Ok(false) };
        let read = match self.reader.look(place.range.start, place.range.end, STEP).await {
            Ok(read) => read,
            // Retention was faster: whatever is left is looked at next time.
            Err(refusal) if refusal.error_code() == ErrorCode::OffsetTrimmed => return Ok(false),
            Err(refusal) => return Err(refusal),
        };
        let mut seen = Sight::of(&place.view)?.look(&read, clock::now())?;
        let is_meant = |seen: &&Seen| seen.fate != Fate::Skip;
        self.reader.used(&read, seen.iter().filter(is_meant).count() as u64);
        let dropped = read.holes(place.range.start).flat_map(|hole| (hole.start.0..hole.end.0).map(Offset));
        seen.extend(dropped.map(Seen::dropped));
        seen.sort_unstable_by_key(|seen| seen.offset);
        if self.looked(&place, place.range.start..read.next, seen)? {
            self.log_skipped().await?;
        }
        // Nothing here waits where the log is in memory.
        tokio::task::yield_now().await;
        Ok(true)
    }

    /// Logs what was skipped, unless nothing was.
    pub(super) async fn log_skipped(&self) -> Result<(), Refusal> {
        let (settled, decided) = {
            let mut held = self.queue.lock();
            (held.leases.skips_to_log(), held.next_fence)
        };
        let mut event = PartEvent { settled, ..PartEvent::default() };
        if event.is_empty() {
            return Ok(());
        }
        event.coalesce();
        let logged = self.part.commit(self.room, &event, decided).await;
        let (mut held, view) = self.part.lock(self.queue)?;
        held.leases.skips_logged(&view.held.part);
        // After a seek they are looked at again.
        if was_moved(&logged) { Ok(()) } else { logged }
    }

    /// Where to look on.
    fn look_from(&self, wanted: usize) -> Result<Option<Place>, Refusal> {
        let (mut held, view) = self.part.lock(self.queue)?;
        let range = held.leases.look_from(&view.held.part, view.end, wanted);
        Ok(range.filter(|_| !held.is_seeking).map(|range| Place { range, view }))
    }

    /// Tells what was found; true if what is skipped should be logged.
    fn looked(&self, place: &Place, found: Range<Offset>, seen: Vec<Seen>) -> Result<bool, Refusal> {
        let (mut held, view) = self.part.lock(self.queue)?;
        // By another configuration it may be found otherwise.
        if view.held.version == place.view.held.version {
            held.leases.looked(&view.held.part, found, seen);
        }
        Ok(held.leases.has_skipped_much())
    }
}

/// What a subscription wants to know of records.
pub(super) struct Sight<'a> {
    config: &'a SubscriptionConfig,
    filter: Option<Filter>,
    fair_by: Option<Field>,
    topic_ttl_ms: Option<u64>,
}

impl<'a> Sight<'a> {
    /// Reads what the configuration says; once per step.
    pub(super) fn of(view: &'a View) -> Result<Self, Refusal> {
        let config = &*view.held.config;
        let wrong = |error: FilterError| {
            let detail =
                format!("this build does not understand the subscription's filter or fair_by: {error}");
            Refusal::new(ErrorCode::Internal, detail)
        };
        let filter = config.filter.as_deref().map(Filter::parse).transpose().map_err(wrong)?;
        let fair_by = config.fair_by.as_deref().map(Field::parse).transpose().map_err(wrong)?;
        Ok(Self { config, filter, fair_by, topic_ttl_ms: view.ttl_ms })
    }

    /// What is to be done with each record.
    pub(super) fn look(&self, read: &ReadBatches, now: TimestampMs) -> Result<Vec<Seen>, Refusal> {
        let corrupt = |error: &dyn std::fmt::Display| Refusal::new(ErrorCode::Corrupt, error.to_string());
        let mut seen = Vec::with_capacity(usize::try_from(read.records).unwrap_or(0));
        for (slice, (row, batch)) in read.slices.iter().zip(&read.batches) {
            let skip = usize::try_from(slice.first - row.base_offset.0).expect("a slice lies in its batch");
            let records = batch.records().map_err(|error| corrupt(&error))?.skip(skip);
            for (offset, record) in (slice.first..).map(Offset).zip(records.take(slice.take as usize)) {
                let record = record.map_err(|error| corrupt(&error))?;
                seen.push(self.see(offset, &record, row.ts, now));
            }
        }
        Ok(seen)
    }

    /// As if every record were meant.
    pub(super) fn without_filter(self) -> Self {
        Self { filter: None, ..self }
    }

    fn see(&self, offset: Offset, record: &Record, ts: TimestampMs, now: TimestampMs) -> Seen {
        let is_over = expires_at(&record.headers, ts, self.topic_ttl_ms).is_some_and(|at| at <= now);
        let record_key = record.key.as_deref();
        let is_meant = self.filter.as_ref().is_none_or(|it| it.matches(record_key, &record.headers));
        let deliver_at = record.headers.deliver_at().filter(|at| *at > now);
        let fate = match deliver_at {
            _ if is_over || !is_meant => Fate::Skip,
            Some(at) => Fate::DeliverAt(at),
            None => Fate::Deliver,
        };
        let whose = self.fair_by.as_ref().and_then(|field| field.value(record_key, &record.headers));
        let lane = whose.map_or(Lane::default(), |value| Lane(hash(value)));
        let key = match record_key {
            Some(key) if self.config.is_by_key => Key(hash(key)),
            _ => Key::NONE,
        };
        Seen { offset, key, lane, fate }
    }
}

/// Tells values apart in memory, never 0. Two that are the same here would hold each other up, so nobody may be able
/// to find such: 128 bits, with keys that no other process has.
fn hash(value: &[u8]) -> u128 {
    static KEYS: LazyLock<[RandomState; 2]> = LazyLock::new(Default::default);
    let [high, low] = KEYS.each_ref().map(|keys| u128::from(keys.hash_one(value)));
    (high << 64 | low).max(1)
}
