//! One channel that follows: delivery numbers and credit. Pure.

use std::collections::BTreeMap;

use weir_protocol::ids::Offset;
use weir_protocol::rpc::Credit;
use weir_protocol::ws::{Limit, Part, ResumeChannel, Subscribed};

use super::amount::Amount;
use crate::service::read::{Seen, SeenPartition, Started};

/// ```text
///   sent ≤ limit       in messages; in bytes the last record may overshoot
/// ```
#[derive(Debug)]
pub(super) struct Following {
    /// Number of the last delivery.
    n: u64,
    sent: Amount,
    limit: Amount,
    /// What had been sent when the running subscription started: its own totals count from there.
    base: Amount,
    /// Where a resuming client stood: the start it must get, or something is missing.
    seen: Option<Seen>,
    /// It resumes: what is not in `seen` may be missing.
    is_resumed: bool,
    /// Ends of its partitions, as last heard.
    tails: BTreeMap<u32, u64>,
    /// `subscribed` was sent.
    pub(super) is_started: bool,
    /// The client wants nothing for now.
    pub(super) is_paused: bool,
}

impl Following {
    /// A channel with its first limit, continued where `resume` says.
    pub(super) fn new(limit: Limit, resume: Option<&ResumeChannel>, seen: Option<Seen>) -> Self {
        Self {
            n: resume.and_then(|resume| resume.n).unwrap_or(0),
            sent: Amount::default(),
            limit: Amount { msgs: limit.msgs, bytes: limit.bytes },
            base: Amount::default(),
            seen,
            is_resumed: resume.is_some(),
            tails: BTreeMap::new(),
            is_started: false,
            is_paused: false,
        }
    }

    /// A subscription that takes this one's place on the channel: numbers and totals go on.
    pub(super) fn moved(&mut self) {
        self.base = self.sent;
        self.seen = None;
        self.is_resumed = false;
        self.tails.clear();
        self.is_started = false;
    }

    /// The limit, as the running subscription counts.
    pub(super) fn credit(&self) -> Credit {
        Credit {
            records: self.limit.msgs.saturating_sub(self.base.msgs),
            bytes: self.limit.bytes.saturating_sub(self.base.bytes),
        }
    }

    /// Raises the limit; false if it was as high before.
    pub(super) fn raise(&mut self, limit: Limit) -> bool {
        let raised =
            Amount { msgs: self.limit.msgs.max(limit.msgs), bytes: self.limit.bytes.max(limit.bytes) };
        std::mem::replace(&mut self.limit, raised) != raised
    }

    /// All partitions have started.
    pub(super) fn started(&mut self, incarnation: u64, started: &[Started]) -> Subscribed {
        self.is_started = true;
        let recovered = !self.is_resumed
            || self.seen.as_ref().is_some_and(|seen| {
                seen.life.0 == incarnation && started.iter().all(|start| is_where_it_was(seen, start))
            });
        for start in started {
            self.tails.insert(start.of.partition.0, start.tail.0);
        }
        let mut subscribed = Subscribed { inc: incarnation, recovered, ..Subscribed::default() };
        if let [only] = started {
            subscribed.start = Some(only.from.0);
            subscribed.tail = Some(only.tail.0);
        } else {
            let part =
                |start: &Started| Part { p: start.of.partition.0, start: start.from.0, tail: start.tail.0 };
            subscribed.parts = started.iter().map(part).collect();
        }
        subscribed
    }

    /// Numbers deliveries; the number of the first. `None` if there is no credit for them, which is a defect of
    /// whoever sent them. `last_bytes` gives the size of the last record; asked for only if it matters.
    pub(super) fn deliver(&mut self, amount: Amount, last_bytes: impl FnOnce() -> u64) -> Option<u64> {
        let after = self.sent.plus(amount);
        if !self.limit.allows(after, last_bytes) {
            return None;
        }
        let first = self.n + 1;
        self.n += amount.msgs;
        self.sent = after;
        Some(first)
    }

    /// A partition's end was heard of.
    pub(super) fn set_tail(&mut self, partition: u32, tail: u64) {
        let known = self.tails.entry(partition).or_default();
        *known = tail.max(*known);
    }

    pub(super) fn tails(&self) -> impl Iterator<Item = (u32, u64)> + '_ {
        self.tails.iter().map(|(partition, tail)| (*partition, *tail))
    }
}

/// Whether nothing is missing between what was seen and where a partition starts.
fn is_where_it_was(seen: &Seen, start: &Started) -> bool {
    let of = |seen: &&SeenPartition| seen.partition == start.of.partition;
    // What was seen and may be lost is taken back by name and comes again: nothing is missing.
    let is_there = |seen: &SeenPartition| {
        seen.next == start.from || seen.early.is_some_and(|early| early.firm_end == start.from)
    };
    // Before its first message a partition has no position that can be named; nothing is missing from its beginning on.
    seen.partitions.iter().find(of).map_or(start.from == Offset(0), is_there)
}

#[cfg(test)]
mod tests {
    use weir_protocol::ids::{Incarnation, PartitionId};
    use weir_protocol::ws;

    use super::*;
    use crate::service::read::PartitionOf;

    const LIMIT: Limit = Limit { msgs: 10, bytes: 100 };

    fn started(partition: u32, from: u64) -> Started {
        let of = PartitionOf { topic: 0, partition: PartitionId(partition) };
        Started { of, from: Offset(from), tail: Offset(50) }
    }

    fn resumed(positions: &[(u32, u64)]) -> Following {
        let seen = positions.iter().map(|&(p, o)| ws::Seen { p, o, ..ws::Seen::default() }).collect();
        let resume = ResumeChannel { ch: 1, inc: Some(1), n: Some(7), seen, ..ResumeChannel::default() };
        let next = |&(p, o): &(u32, u64)| SeenPartition {
            partition: PartitionId(p),
            next: Offset(o + 1),
            early: None,
        };
        let partitions = positions.iter().map(next).collect();
        Following::new(LIMIT, Some(&resume), Some(Seen { life: Incarnation(1), partitions }))
    }

    #[test]
    fn a_resume_is_recovered_only_where_every_partition_goes_on_where_it_was() {
        assert!(resumed(&[(0, 4), (1, 9)]).started(1, &[started(0, 5), started(1, 10)]).recovered);
        assert!(!resumed(&[(0, 4)]).started(1, &[started(0, 6)]).recovered, "retention took offset 5");
        assert!(!resumed(&[(0, 4)]).started(1, &[started(0, 5), started(1, 3)]).recovered);
        assert!(Following::new(LIMIT, None, None).started(1, &[started(0, 5)]).recovered);
    }

    #[test]
    fn a_partition_without_a_place_is_recovered_from_its_beginning_on() {
        assert!(resumed(&[(0, 4)]).started(1, &[started(0, 5), started(1, 0)]).recovered);
    }

    #[test]
    fn a_place_in_another_life_recovers_nothing() {
        assert!(!resumed(&[(0, 4)]).started(2, &[started(0, 5)]).recovered);
        assert!(!resumed(&[]).started(2, &[started(0, 0)]).recovered);
        let resume = ResumeChannel { ch: 1, ..ResumeChannel::default() };
        let unknown = || Following::new(LIMIT, Some(&resume), None);
        assert!(!unknown().started(1, &[started(0, 5)]).recovered, "nobody knows in which life it stood");
    }

    #[test]
    fn numbers_go_on_after_a_resume_and_the_last_record_may_overshoot() {
        let mut following = resumed(&[(0, 4)]);
        assert_eq!(following.deliver(Amount { msgs: 3, bytes: 30 }, || 10), Some(8));
        assert_eq!(
            following.deliver(Amount { msgs: 2, bytes: 500 }, || 430),
            None,
            "the first overshoots already"
        );
        assert_eq!(following.deliver(Amount { msgs: 2, bytes: 500 }, || 431), Some(11));
        assert_eq!(following.deliver(Amount { msgs: 1, bytes: 1 }, || 1), None);
    }

    #[test]
    fn limits_are_absolute_and_never_fall() {
        let mut following = Following::new(LIMIT, None, None);
        assert!(!following.raise(LIMIT));
        assert!(following.raise(Limit { msgs: 5, bytes: 200 }));
        assert_eq!(following.credit(), Credit { records: 10, bytes: 200 });
        assert!(following.deliver(Amount { msgs: 4, bytes: 40 }, || 10).is_some());
        following.moved();
        assert_eq!(following.credit(), Credit { records: 6, bytes: 160 }, "a moved subscription counts anew");
        assert_eq!(following.deliver(Amount { msgs: 7, bytes: 7 }, || 1), None, "the client's totals do not");
    }
}
