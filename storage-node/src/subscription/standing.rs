//! Where one record stands, and lists of those that stand somewhere. Looking changes nothing.

use std::ops::Range;

use weir_protocol::ids::{Offset, TimestampMs};
use weir_protocol::rpc::{LeaseInfo, Standing};

use super::leases::{Leases, State, is_exhausted};
use super::part::Part;
use super::view::{LeasePage, not_over};

/// Most records that one page looks at; a page that finds less than it may says where to go on.
pub(super) const LOOKED_AT_MAX: usize = 65_536;

impl Leases {
    /// Where a record below the partition's end stands, and what is known of its delivery.
    #[must_use]
    pub fn standing(&self, part: &Part, offset: Offset, now: TimestampMs) -> LeaseInfo {
        let mut info = LeaseInfo { offset: offset.0, ..LeaseInfo::default() };
        if part.is_settled(offset) {
            let is_dead = part.is_given_up(offset);
            info.set_standing(if is_dead { Standing::Dead } else { Standing::Settled });
            return info;
        }
        let retry = part.retry(offset);
        info.attempts = retry.map_or(0, |retry| retry.attempts);
        let Some(known) = self.known.get(&offset) else {
            let due = retry.and_then(|retry| retry.due);
            let due = match self.later.contains(offset) {
                // It is met again earlier than it is due, or a little later.
                true => self
                    .later
                    .time_of(offset)
                    .filter(|met| *met > now)
                    .map(|met| due.map_or(met, |due| due.max(met))),
                false => due.filter(|due| *due > now),
            };
            info.delayed_ms = due.map(|due| due.0 - now.0);
            info.blocked_by = self.lines.holder_before(offset).map(|holder| holder.0);
            let standing = match due {
                _ if self.skipped.contains(offset) => Standing::Skipped,
                _ if info.blocked_by.is_some() => Standing::Blocked,
                Some(_) => Standing::Delayed,
                None => Standing::Ready,
            };
            info.set_standing(standing);
            return info;
        };
        info.attempts = known.attempts;
        match known.state {
            State::Leased(lease) if lease.deadline > now => {
                info.set_standing(Standing::Leased);
                info.grant = Some(known.grant(offset, lease.deadline).to_wire(now));
                info.holder = known.holder.as_ref().to_owned();
                info.age_ms = now.0.saturating_sub(lease.taken.0);
            }
            State::Waiting(due) if due > now => {
                info.set_standing(Standing::Delayed);
                info.delayed_ms = Some(due.0 - now.0);
            }
            State::Blocked(due) => {
                info.set_standing(Standing::Blocked);
                info.delayed_ms = due.map(|due| due.0.saturating_sub(now.0)).filter(|ms| *ms > 0);
                info.blocked_by = self.lines.holder(known.key).map(|offset| offset.0);
            }
            State::Settling(_) => info.set_standing(Standing::Settling),
            State::Leased(_) | State::Waiting(_) | State::Free(_) | State::Fresh => {
                info.set_standing(Standing::Ready);
            }
        }
        info
    }

    /// Records from `from` on that stand as asked, of all that exist below `end`.
    #[must_use]
    pub fn standing_as(
        &self,
        part: &Part,
        range: Range<Offset>,
        as_asked: Standing,
        limit: usize,
        now: TimestampMs,
    ) -> LeasePage {
        part.page(range, as_asked, limit, |offset| self.standing(part, offset, now))
    }

    /// Records from `from` on may be unsettled again, in the log: they are leased as new ones.
    pub fn revived(&mut self, part: &Part, from: Offset) {
        self.skipped.forget_from(from);
        self.go_back(part, from);
    }

    /// Whether records that come again keep new ones from being leased.
    #[must_use]
    pub fn is_full_of_what_comes_again(&self) -> bool {
        !self.may_take_new()
    }

    /// Whether a record with so many deliveries has had all of them: it waits to be given up, not to come again.
    #[must_use]
    pub fn is_exhausted(&self, attempts: u32) -> bool {
        is_exhausted(&self.rules, attempts)
    }

    /// Whether all places are taken at `now`, or there are none.
    #[must_use]
    pub fn is_full(&self, now: TimestampMs) -> bool {
        not_over(&self.leased, now) >= self.rules.max_unacked as u64
    }
}

impl Part {
    /// Records that stood as asked in a part that was kept; only the log is known of it, so nobody held any. `None` of
    /// states that are not in the log.
    #[must_use]
    pub fn stood_as(
        &self,
        range: Range<Offset>,
        as_asked: Standing,
        limit: usize,
        now: TimestampMs,
    ) -> Option<LeasePage> {
        let look = |offset: Offset| {
            let retry = self.retry(offset);
            let due = retry.and_then(|retry| retry.due).filter(|due| *due > now);
            let mut info = LeaseInfo {
                offset: offset.0,
                attempts: retry.map_or(0, |retry| retry.attempts),
                delayed_ms: due.map(|due| due.0 - now.0),
                ..LeaseInfo::default()
            };
            info.set_standing(match due {
                _ if self.is_given_up(offset) => Standing::Dead,
                Some(_) => Standing::Delayed,
                None => Standing::Ready,
            });
            info
        };
        let is_logged = matches!(as_asked, Standing::Ready | Standing::Delayed | Standing::Dead);
        is_logged.then(|| self.page(range, as_asked, limit, look))
    }

    /// The records of a range that stand as asked, as `look` says of each.
    pub(super) fn page(
        &self,
        range: Range<Offset>,
        as_asked: Standing,
        limit: usize,
        look: impl Fn(Offset) -> LeaseInfo,
    ) -> LeasePage {
        let mut page = LeasePage::default();
        let dead = (as_asked == Standing::Dead).then(|| self.given_up_from(range.start));
        let dead = dead.into_iter().flatten().take_while(|offset| *offset < range.end);
        let unsettled = (as_asked != Standing::Dead).then(|| self.unsettled_from(range.start, range.end));
        let unsettled = unsettled.into_iter().flatten();
        let unsettled = unsettled.flat_map(|run| (run.start.0..run.end.0).map(Offset));
        for (looked_at, offset) in dead.chain(unsettled).enumerate() {
            if page.leases.len() == limit || looked_at == LOOKED_AT_MAX {
                page.next = Some(offset);
                break;
            }
            let info = look(offset);
            if info.standing() == as_asked {
                page.leases.push(info);
            }
        }
        page
    }
}
