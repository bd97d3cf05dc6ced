//! Looks at records before they are leased, where a subscription's rules need more than their offsets.

use std::hash::{DefaultHasher, Hasher as _};
use std::ops::Range;

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
use crate::subscription::{Fate, Key, LOOK_AHEAD_MAX, Lane, PartEvent, Seen};

/// What one step looks at.
const STEP: Allowance = Allowance { records: 1_024, bytes: 3 << 20 };
/// Steps of one pull: what it does not find in them, the next one may.
const STEPS_MAX: u32 = 16;

/// Where to look, and as which version of the configuration says.
struct Place {
    from: Offset,
    view: View,
}

impl Puller<'_> {
    /// Looks on until there is enough to lease, or nothing more to look at.
    pub(super) async fn look_ahead(&self) -> Result<(), Refusal> {
        for step in 0..STEPS_MAX {
            let Some(place) = self.look_from(step == 0)? else { return Ok(()) };
            let read = match self.reader.look(place.from, place.view.end, STEP).await {
                Ok(read) => read,
                // Retention was faster: whatever is left is looked at next time.
                Err(refusal) if refusal.error_code() == ErrorCode::OffsetTrimmed => return Ok(()),
                Err(refusal) => return Err(refusal),
            };
            let mut seen = Sight::of(&place.view)?.look(&read, clock::now())?;
            let is_meant = |seen: &&Seen| seen.fate != Fate::Skip;
            self.reader.used(&read, seen.iter().filter(is_meant).count() as u64);
            let dropped = read.holes(place.from).flat_map(|hole| (hole.start.0..hole.end.0).map(Offset));
            seen.extend(dropped.map(Seen::dropped));
            seen.sort_unstable_by_key(|seen| seen.offset);
            if self.looked(&place, place.from..read.next, seen)? {
                self.log_skipped().await?;
            }
        }
        Ok(())
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

    /// Where to look on. To be fair to all, the first step of a pull looks further than what it asks for.
    fn look_from(&self, is_first: bool) -> Result<Option<Place>, Refusal> {
        let (mut held, view) = self.part.lock(self.queue)?;
        let is_further = is_first && view.held.config.fair_by.is_some();
        let wanted = if is_further { LOOK_AHEAD_MAX } else { self.request.max_records.max(1) as usize };
        let from = held.leases.look_from(&view.held.part, view.end, wanted);
        Ok(from.filter(|_| !held.is_seeking).map(|from| Place { from, view }))
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

/// Tells values apart in memory, never 0. Two that collide are treated as one, which only orders more than was asked.
fn hash(value: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(value);
    hasher.finish().max(1)
}
