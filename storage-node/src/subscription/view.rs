//! How a part stands, for operators.

use std::collections::BTreeSet;
use std::ops::Range;

use weir_protocol::ids::{Offset, TimestampMs};
use weir_protocol::rpc;

use super::event::Redelivered;
use super::leases::{Grant, Leases};
use super::part::{Part, SeekPreview};
use super::standing::LOOKED_AT_MAX;

/// So many leases, and pauses, that are over and that no pull has ended since are counted one by one, a
/// millisecond's work; more of them count as they stood.
const OVER_COUNTED_MAX: usize = 100_000;

/// How many records are where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// Could be leased now.
    pub ready: u64,
    /// Are leased.
    pub leased: u64,
    /// Wait for their time.
    pub delayed: u64,
    /// Wait until another of their key is settled, as far as was looked ahead.
    pub blocked: u64,
    /// Are settled, nacked or given up, on their way through the log.
    pub settling: u64,
}

/// Some of what is leased and what waits.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LeasePage {
    /// In the order of offsets.
    pub leases: Vec<rpc::LeaseInfo>,
    /// Where to go on; absent: that was all.
    pub next: Option<Offset>,
}

impl Leases {
    /// How many records are where at `now`; `end` is the partition's. A lease that is over is none, though nobody has
    /// pulled since. Costs the same with one record and with 10 million, and a little for each that is over, within
    /// `OVER_COUNTED_MAX`.
    #[must_use]
    pub fn counts(&mut self, part: &Part, end: Offset, now: TimestampMs) -> Counts {
        self.forget_settled(part);
        let blocked = self.lines.blocked_len() as u64;
        let settling = self.settling as u64 + self.skipped.count_unsettled(part);
        let later = self.later.len() - self.later.over(now);
        let (leased, delayed) = (not_over(&self.leased, now), not_over(&self.waiting, now) + later);
        let ready = part.count_unsettled(end).saturating_sub(leased + delayed + blocked + settling);
        Counts { ready, leased, delayed, blocked, settling }
    }

    /// Records that are held in memory, in whatever way: see [`Leases`].
    #[must_use]
    pub fn known_len(&self) -> usize {
        let in_sets = self.ready.len() - self.ready.again_len() + self.lines.queued_len() + self.unmet.len();
        // Those that hold a key and were only looked at are counted twice, and are few.
        self.known.len() + in_sets + usize::try_from(self.later.len()).unwrap_or(usize::MAX)
    }

    /// What going back to what was kept under a name would do; `None` if there is no going back to it.
    #[must_use]
    pub fn undo_preview(part: &Part, name: u64, bounds: Range<Offset>) -> Option<SeekPreview> {
        let back = part.gone_back(name, bounds.clone())?;
        let redelivered = back.unsettled_only_here(part, bounds.end);
        Some(SeekPreview {
            floor: back.floor(),
            redelivered,
            skipped: part.unsettled_only_here(&back, bounds.end),
        })
    }

    /// What a seek to `to` would do.
    #[must_use]
    pub fn seek_preview(&self, part: &Part, to: Offset, bounds: Range<Offset>) -> SeekPreview {
        // Whatever was looked at may not have been delivered, and behind a redriven record some were that are
        // held: what is in no log is told by what is known of each.
        let next = if self.rules.looks_ahead || self.has_looked { Offset(0) } else { self.next };
        let mut preview = part.seek_preview(to, next, bounds);
        let delivered = self.known.range(preview.floor.max(next)..).filter(|(offset, known)| {
            known.attempts > 0 && part.attempts(**offset) == 0 && !part.is_settled(**offset)
        });
        preview.redelivered += delivered.count() as u64;
        preview
    }

    /// What is leased at `now` and what waits, from an offset on. A page that looks at `LOOKED_AT_MAX`
    /// records ends there.
    #[must_use]
    pub fn list(&self, part: &Part, from: Offset, limit: usize, now: TimestampMs) -> LeasePage {
        let mut page = LeasePage::default();
        let mut known = self.known.range(from..).map(|(offset, _)| *offset).peekable();
        let mut later = self.later.from(from).peekable();
        // Nothing is in both.
        let both = std::iter::from_fn(|| match (known.peek(), later.peek()) {
            (Some(one), Some(other)) if one > other => later.next(),
            (None, _) => later.next(),
            _ => known.next(),
        });
        for (looked_at, offset) in both.enumerate() {
            if looked_at == LOOKED_AT_MAX {
                page.next = Some(offset);
                break;
            }
            // What is over is free for who asks next.
            let info = self.standing(part, offset, now);
            if !matches!(info.standing(), rpc::Standing::Leased | rpc::Standing::Delayed) {
                continue;
            }
            if page.leases.len() == limit {
                page.next = Some(offset);
                break;
            }
            page.leases.push(info);
        }
        page
    }
}

/// How many of these are still to come.
pub(super) fn not_over(times: &BTreeSet<(TimestampMs, Offset)>, now: TimestampMs) -> u64 {
    let over = times.range(..=(now, Offset(u64::MAX))).take(OVER_COUNTED_MAX).count();
    (times.len() - over) as u64
}

impl Grant {
    /// The grant as it is logged.
    pub(super) fn redelivered(&self) -> Redelivered {
        Redelivered { offset: self.offset, attempts: self.attempt, fence: self.fence }
    }

    /// The grant as it is sent.
    #[must_use]
    pub fn to_wire(&self, now: TimestampMs) -> rpc::Grant {
        rpc::Grant {
            offset: self.offset.0,
            fence: self.fence.0,
            attempt: self.attempt,
            expires_in_ms: self.deadline.0.saturating_sub(now.0),
        }
    }
}
