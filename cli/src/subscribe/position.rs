//! Where a subscription is, so that the next connection goes on there.

use std::collections::BTreeMap;

use weir_protocol::rpc::At;
use weir_protocol::start::Start;
use weir_protocol::ws::{ResumeChannel, Seen, Subscribed};

/// Positions on the partitions of one topic.
#[derive(Debug, Default)]
pub(super) struct Position {
    /// Number of the last delivery.
    n: Option<u64>,
    /// Next offset of each partition; empty before the first start.
    next: BTreeMap<u32, u64>,
    /// What came of a partition before it was committed: its term, and the end of what is firm.
    early: BTreeMap<u32, (u64, u64)>,
    /// Partitions whose end was not reached yet; `None` before the first start.
    behind: Option<BTreeMap<u32, u64>>,
    /// The topic's life.
    life: Option<u64>,
}

impl Position {
    /// The subscription has started; `only` is the partition that was asked for, if one was. True if
    /// something may be missing between what came before and what comes now: the gateway knows only of
    /// partitions that something came of.
    pub(super) fn started(&mut self, started: &Subscribed, only: Option<u32>) -> bool {
        let one = only.unwrap_or(0);
        let single = started.start.zip(started.tail).map(|(start, tail)| (one, start, tail));
        let several = started.parts.iter().map(|part| (part.p, part.start, part.tail));
        let parts: Vec<_> =
            if started.parts.is_empty() { single.into_iter().collect() } else { several.collect() };
        let misses = !started.recovered
            && (self.life != Some(started.inc)
                || parts.iter().any(|(partition, start, _)| *start > self.taken_to(*partition)));
        if self.life.replace(started.inc) != Some(started.inc) {
            // What came of another topic of that name says nothing of this one.
            self.next.clear();
            self.early.clear();
        }
        for &(partition, start, _) in &parts {
            // What may be lost is taken back by name, behind this.
            if !self.early.contains_key(&partition) {
                self.next.insert(partition, start);
            }
        }
        if self.behind.is_none() {
            let behind = parts.into_iter().filter(|(_, start, tail)| start < tail);
            self.behind = Some(behind.map(|(partition, _, tail)| (partition, tail)).collect());
        }
        misses
    }

    /// Everything of a partition below it has come for good.
    fn taken_to(&self, partition: u32) -> u64 {
        let next = self.next.get(&partition).copied().unwrap_or_default();
        self.early.get(&partition).map_or(next, |(_, firm)| *firm)
    }

    /// A record came; `term` is that of one that is not committed.
    pub(super) fn took(&mut self, n: u64, partition: u32, offset: u64, term: Option<u64>) {
        self.n = Some(n);
        let firm = self.early.get(&partition).map_or(offset, |(_, firm)| *firm);
        self.skipped(partition, offset + 1);
        self.early.extend(term.map(|term| (partition, (term, firm))));
    }

    /// What came below `upto` is committed.
    pub(super) fn firm(&mut self, partition: u32, upto: u64) {
        let next = self.next.get(&partition).copied().unwrap_or_default();
        if let Some((_, firm)) = self.early.get_mut(&partition) {
            *firm = upto.max(*firm);
        }
        self.early.retain(|at, (_, firm)| *at != partition || *firm < next);
    }

    /// What is below `next` is behind us.
    pub(super) fn skipped(&mut self, partition: u32, next: u64) {
        self.next.insert(partition, next);
        self.early.remove(&partition);
        if let Some(behind) = &mut self.behind {
            behind.retain(|at, tail| *at != partition || next < *tail);
        }
    }

    /// What a filter kept back below `upto` is behind us, and all of that is committed.
    pub(super) fn looked(&mut self, partition: u32, upto: u64) {
        if self.next.get(&partition).is_none_or(|next| *next < upto) {
            self.skipped(partition, upto);
        }
    }

    /// Everything below `end` has come, or was kept back by a filter.
    pub(super) fn caught_up(&mut self, partition: u32, end: u64) {
        self.looked(partition, end);
        if let Some(behind) = &mut self.behind {
            behind.retain(|at, tail| *at != partition || end < *tail);
        }
    }

    /// Everything that existed when it started has come.
    pub(super) fn is_caught_up(&self) -> bool {
        self.behind.as_ref().is_some_and(BTreeMap::is_empty)
    }

    /// What the next connection says of channel `ch`; `None` before the first start.
    pub(super) fn resume(&self, ch: u16) -> Option<ResumeChannel> {
        // A partition of which nothing exists yet has no last record; `from` says where it starts.
        let seen = self.next.iter().filter(|(_, next)| **next > 0);
        let early = |p| self.early.get(p);
        let seen = seen.map(|(p, next)| Seen {
            p: *p,
            o: next - 1,
            term: early(p).map(|(term, _)| *term),
            firm: early(p).map(|(_, firm)| *firm),
        });
        let seen = seen.collect();
        let channel = ResumeChannel { ch, inc: self.life, n: self.n, seen, ..ResumeChannel::default() };
        (!self.next.is_empty()).then_some(channel)
    }

    /// Where the next connection starts what `resume` does not name.
    pub(super) fn from(&self, asked: &Start) -> Start {
        if self.next.is_empty() { asked.clone() } else { Start::At(At::Earliest(true)) }
    }
}

#[cfg(test)]
mod tests {
    use weir_protocol::ws::Part;

    use super::*;

    #[test]
    fn a_resumed_subscription_starts_behind_what_was_taken_on_every_partition() {
        let latest = Start::At(At::Latest(true));
        let mut position = Position::default();
        assert_eq!(position.resume(1), None);
        assert_eq!(position.from(&latest), latest);
        let parts = vec![Part { p: 0, start: 5, tail: 5 }, Part { p: 1, start: 0, tail: 0 }];
        position.started(&Subscribed { parts, recovered: true, ..Subscribed::default() }, None);
        position.took(1, 0, 5, None);
        let resume = position.resume(7).unwrap();
        assert_eq!((resume.ch, resume.n), (7, Some(1)));
        assert_eq!(resume.seen, [Seen { p: 0, o: 5, ..Seen::default() }]);
        assert_eq!(
            position.from(&latest),
            Start::At(At::Earliest(true)),
            "nothing of partition 1 may be left out"
        );
    }

    #[test]
    fn what_is_not_firm_is_named_until_it_is_or_is_taken_back() {
        let mut position = Position::default();
        let seen = |position: &Position| position.resume(1).unwrap().seen[0];
        position.started(&Subscribed::default(), None);
        position.took(1, 0, 5, None);
        position.took(2, 0, 6, Some(3));
        position.took(3, 0, 7, Some(3));
        assert_eq!(seen(&position), Seen { p: 0, o: 7, term: Some(3), firm: Some(6) });
        position.firm(0, 7);
        assert_eq!(seen(&position), Seen { p: 0, o: 7, term: Some(3), firm: Some(7) });
        // A new connection starts where the gateway takes back from, and says so next.
        position.started(&Subscribed { start: Some(7), tail: Some(7), ..Subscribed::default() }, None);
        assert_eq!(seen(&position).o, 7);
        position.skipped(0, 7);
        assert_eq!(seen(&position), Seen { p: 0, o: 6, ..Seen::default() });
        position.took(4, 0, 7, Some(4));
        position.firm(0, 8);
        assert_eq!(seen(&position), Seen { p: 0, o: 7, ..Seen::default() });
    }

    #[test]
    fn something_is_missing_only_where_it_does_not_go_on_where_it_was() {
        let of = |inc, starts: [u64; 2]| {
            let part = |(p, start)| Part { p, start, tail: 9 };
            let parts = (0..).zip(starts).map(part).collect();
            Subscribed { inc, parts, ..Subscribed::default() }
        };
        let followed = || {
            let mut position = Position::default();
            assert!(!position.started(&Subscribed { recovered: true, ..of(1, [5, 0]) }, None));
            position.took(1, 0, 5, None);
            position
        };
        // Nothing came of partition 1, so that the gateway was told nothing of it.
        assert!(!followed().started(&of(1, [6, 0]), None));
        assert!(followed().started(&of(1, [6, 1]), None), "retention took what was first");
        assert!(followed().started(&of(1, [7, 0]), None));
        assert!(followed().started(&of(2, [6, 0]), None), "it is another topic of that name");
        let mut early = followed();
        early.took(2, 0, 6, Some(3));
        assert!(!early.started(&of(1, [6, 0]), None), "what may be lost comes again");
        assert!(followed().started(&of(1, [8, 0]), None));
    }

    #[test]
    fn it_has_caught_up_when_every_partition_has() {
        let mut position = Position::default();
        assert!(!position.is_caught_up(), "nothing is known yet");
        position.started(&Subscribed { start: Some(3), tail: Some(5), ..Subscribed::default() }, Some(2));
        assert!(!position.is_caught_up());
        position.took(1, 2, 3, None);
        assert!(!position.is_caught_up());
        position.took(2, 2, 4, None);
        assert!(position.is_caught_up());
    }
}
