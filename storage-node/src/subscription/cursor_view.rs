//! How a part of a stream stands, for operators. Looking changes nothing.

use std::ops::Range;
use std::sync::Arc;

use weir_protocol::ids::{Offset, TimestampMs};
use weir_protocol::rpc::{Grant, LeaseInfo, Standing};

use super::cursor::{Cursor, Reader};
use super::part::{Part, SeekPreview};
use super::view::LeasePage;

impl Cursor {
    /// Who reads now.
    #[must_use]
    pub fn holder(&self, now: TimestampMs) -> Option<&Arc<str>> {
        self.reader(now).map(|reader| &reader.holder)
    }

    fn reader(&self, now: TimestampMs) -> Option<&Reader> {
        self.reader.as_ref().filter(|reader| !reader.is_over(now))
    }

    /// Records that are not shown to anybody, and those that are with the reader. `end` is the partition's.
    #[must_use]
    pub fn counts(&self, part: &Part, end: Offset, now: TimestampMs) -> (u64, u64) {
        let count = |standing| part.count_unsettled_in(self.stands_as(part, end, standing, now));
        (count(Standing::Ready), count(Standing::Leased))
    }

    /// Where records may be that stand so.
    fn stands_as(&self, part: &Part, end: Offset, standing: Standing, now: TimestampMs) -> Range<Offset> {
        let floor = part.floor();
        let accepted = self.accepted.clamp(floor, end.max(floor));
        let shown = self.reader(now).map_or(accepted, |reader| reader.shown.clamp(accepted, end.max(floor)));
        match standing {
            Standing::Settling => floor..accepted,
            Standing::Leased => accepted..shown,
            Standing::Ready => shown..end.max(shown),
            _ => floor..floor,
        }
    }

    /// Where a record below the partition's end stands, and who has it.
    #[must_use]
    pub fn standing(&self, part: &Part, offset: Offset, end: Offset, now: TimestampMs) -> LeaseInfo {
        let mut info = LeaseInfo { offset: offset.0, ..LeaseInfo::default() };
        let stands_as = |standing: &Standing| self.stands_as(part, end, *standing, now).contains(&offset);
        let standing = [Standing::Settling, Standing::Leased].into_iter().find(stands_as);
        info.set_standing(match standing {
            _ if part.is_settled(offset) => Standing::Settled,
            Some(standing) => standing,
            None => Standing::Ready,
        });
        if let (Standing::Leased, Some(reader)) = (info.standing(), self.reader(now)) {
            let left = reader.until.map_or(reader.patience_ms, |until| until.0.saturating_sub(now.0));
            let fence = reader.fence_of(offset).0;
            info.grant = Some(Grant { offset: offset.0, fence, attempt: 1, expires_in_ms: left });
            (info.attempts, info.holder) = (1, reader.holder.as_ref().to_owned());
            info.age_ms = now.0.saturating_sub(reader.begun.0);
        }
        info
    }

    /// Records of a range that stand as asked; `Unset`: those that are with the reader.
    #[must_use]
    pub fn standing_as(
        &self,
        part: &Part,
        range: Range<Offset>,
        as_asked: Standing,
        limit: usize,
        now: TimestampMs,
    ) -> LeasePage {
        let as_asked = if as_asked == Standing::Unset { Standing::Leased } else { as_asked };
        let they = self.stands_as(part, range.end, as_asked, now);
        let look = |offset| self.standing(part, offset, range.end, now);
        part.page(they.start.max(range.start)..they.end, as_asked, limit, look)
    }

    /// What a seek to `to` would do.
    #[must_use]
    pub fn seek_preview(&self, part: &Part, to: Offset, bounds: Range<Offset>) -> SeekPreview {
        let shown = self.reader.as_ref().map_or(part.floor(), |reader| reader.shown);
        part.seek_preview(to, shown.max(part.floor()), bounds)
    }
}
