//! What was seen by a run, or by one of its tasks: counts, latencies, and which messages arrived.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::arrived::Arrived;
use super::check::{Check, Faults};
use super::identity::Identity;
use super::latencies::Latencies;
use super::schedule::Window;

/// All of a run, or one task's share of it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Tally {
    /// From due to sent: how long messages waited, for whatever reason.
    pub(super) late: Latencies,
    /// From when a message was due and there was room for it, to sent: how late the generator itself was.
    pub(super) generator: Latencies,
    /// From due to confirmed.
    pub(super) confirm: Latencies,
    /// From due to delivered.
    pub(super) deliver: Latencies,
    /// From asking to settled, of a queue's workers.
    pub(super) settle: Latencies,
    /// From the start of a reader to its last message, of readers that come later.
    pub(super) replay: Latencies,
    pub(super) sent: u64,
    pub(super) confirmed: u64,
    /// Confirms that came while it counted, whenever their messages were due.
    pub(super) confirmed_in_window: u64,
    pub(super) batches: u64,
    pub(super) delivered: u64,
    /// Deliveries that came while it counted, of a queue first ones, whenever they were due.
    pub(super) delivered_in_window: u64,
    /// Leases that were given back to come again, and given up for good.
    pub(super) nacked: u64,
    pub(super) dead: u64,
    pub(super) faults: Faults,
    /// What a queue's workers settled, by writer; they share the messages.
    pub(super) settled: BTreeMap<u32, Arrived>,
}

impl Tally {
    pub(super) fn new() -> Self {
        let none = Latencies::new();
        Self {
            late: none.clone(),
            generator: none.clone(),
            confirm: none.clone(),
            deliver: none.clone(),
            settle: none.clone(),
            replay: none,
            sent: 0,
            confirmed: 0,
            confirmed_in_window: 0,
            batches: 0,
            delivered: 0,
            delivered_in_window: 0,
            nacked: 0,
            dead: 0,
            faults: Faults::default(),
            settled: BTreeMap::new(),
        }
    }

    /// What a reader saw of writers that sent so many.
    pub(super) fn read(&mut self, check: &Check, sent: impl Fn(u32) -> u64) {
        self.deliver.add(check.deliver());
        self.delivered = check.delivered();
        self.delivered_in_window = check.delivered_in_window();
        self.faults = check.faults(sent);
    }

    /// A queue's worker got a message for the first time.
    pub(super) fn first_delivery(&mut self, identity: Identity, now_ns: u64, window: &Window) {
        self.delivered_in_window += u64::from(window.counts(now_ns));
        if window.counts(identity.due_ns) {
            self.deliver.record(now_ns.saturating_sub(identity.due_ns) / 1_000, 1);
        }
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.late.add(&other.late);
        self.generator.add(&other.generator);
        self.confirm.add(&other.confirm);
        self.deliver.add(&other.deliver);
        self.settle.add(&other.settle);
        self.replay.add(&other.replay);
        self.sent += other.sent;
        self.confirmed += other.confirmed;
        self.confirmed_in_window += other.confirmed_in_window;
        self.batches += other.batches;
        self.delivered += other.delivered;
        self.delivered_in_window += other.delivered_in_window;
        self.nacked += other.nacked;
        self.dead += other.dead;
        self.faults.add(other.faults);
        for (writer, arrived) in &other.settled {
            self.settled.entry(*writer).or_default().merge(arrived);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_process_saw_comes_here_as_it_was() {
        let mut theirs = Tally::new();
        for us in [1, 7, 999, 12_345, 59_000_000, u64::MAX] {
            theirs.confirm.record(us, us % 5 + 1);
        }
        theirs.faults.missing = 3;
        let settled = theirs.settled.entry(2).or_default();
        assert!([0, 1, 64, 64, 200].into_iter().all(|seq| settled.take(seq)));
        let line = serde_json::to_string(&theirs).unwrap();
        let back: Tally = serde_json::from_str(&line).unwrap();
        assert_eq!(back.confirm, theirs.confirm);
        assert_eq!((back.faults, &back.settled), (theirs.faults, &theirs.settled));
        let mut both = Tally::new();
        both.add(&back);
        both.add(&theirs);
        assert_eq!(both.confirm.count(), 2 * theirs.confirm.count());
        assert_eq!(both.settled[&2].duplicates(), 2 + 4, "what two settled came twice");
    }
}
