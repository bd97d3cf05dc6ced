//! Looking ahead, and keys.

use weir_protocol::ids::{Offset, TimestampMs};

use super::*;

/// When a record is for those who pull.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Fated {
    Now,
    At(u64),
    Never,
}

impl Pair {
    /// Looks at the next records, as many as exist.
    pub(super) fn look(&mut self, count: u64) {
        let from = self.leases.look_from(&self.part, self.end(), usize::MAX);
        let is_wanted = |at: &u64| !self.records[*at as usize].settled;
        let next = (self.frontier..self.end().0).find(is_wanted);
        let leased =
            self.records.iter().filter(|it| !it.settled && matches!(it.is, Is::Leased { .. })).count();
        // With all places taken nothing is wanted.
        let has_room = leased < self.rules.max_unacked;
        let expected = next.filter(|_| self.rules.looks_ahead && (has_room || from.is_some()));
        assert_eq!(from.map(|offset| offset.0), expected);
        let Some(from) = from else { return };
        let upto = Offset(from.0 + count).min(self.end());
        let seen: Vec<Seen> = (from.0..upto.0).map(|at| self.seen(at)).collect();
        self.leases.looked(&self.part, from..upto, seen.clone());
        // What is told twice, or out of turn, changes nothing.
        self.leases.looked(&self.part, from..upto, seen.clone());
        let offset = self.part.next_unsettled(upto).plus(1);
        self.leases.looked(&self.part, offset..offset.plus(1), [Seen { offset, ..seen[0] }]);
        for at in from.0..upto.0 {
            self.look_at(at);
        }
        self.frontier = upto.0;
    }

    fn seen(&self, at: u64) -> Seen {
        let record = &self.records[at as usize];
        let fate = match record.fated {
            Fated::Now => Fate::Deliver,
            Fated::At(due) if due > self.now => Fate::DeliverAt(TimestampMs(due)),
            Fated::At(_) => Fate::Deliver,
            Fated::Never => Fate::Skip,
        };
        Seen { offset: Offset(at), key: Key(record.key.into()), lane: Lane(u64::from(record.key) % 2), fate }
    }

    fn look_at(&mut self, at: u64) {
        let record = self.records[at as usize];
        if record.settled {
            return;
        }
        let seen = self.seen(at);
        if record.is != Is::New {
            self.records[at as usize].in_line |= record.key > 0;
            return self.set(at, record.is);
        }
        if seen.fate == Fate::Skip {
            self.records[at as usize].is = Is::Skipped;
            return;
        }
        let had_all = self.rules.max_attempts > 0 && record.logged >= self.rules.max_attempts;
        let last_chance = had_all.then_some(self.begun + self.rules.lease_ms);
        let later = match seen.fate {
            Fate::DeliverAt(due) => Some(due.0),
            _ => None,
        };
        let until = record.due.or(last_chance).or(later);
        let record = &mut self.records[at as usize];
        (record.in_line, record.attempts) = (record.key > 0, record.logged);
        self.set(at, until.map_or(Is::Fresh, |until| Is::Waiting { until }));
    }

    /// The record is in a state, or blocked behind the one that holds its key.
    pub(super) fn set(&mut self, at: u64, is: Is) {
        let record = &mut self.records[at as usize];
        record.is = is;
        if !record.in_line {
            return;
        }
        let holder = *self.holders.entry(record.key).or_insert(at);
        record.is = match is {
            Is::Free | Is::Fresh if holder != at => Is::Blocked { until: None },
            Is::Waiting { until } if holder != at => Is::Blocked { until: Some(until) },
            other => other,
        };
    }

    /// A settled record is forgotten.
    pub(super) fn leave(&mut self, at: u64) {
        let record = &mut self.records[at as usize];
        if !std::mem::take(&mut record.in_line) || self.holders.get(&record.key) != Some(&at) {
            return;
        }
        let key = record.key;
        self.holders.remove(&key);
        let of_key = |(_, it): &(usize, &Record)| it.in_line && it.key == key;
        let in_line = || self.records.iter().enumerate().filter(of_key);
        let is_in_work = |is: Is| matches!(is, Is::Leased { .. } | Is::Settling { .. });
        if let Some((next, _)) = in_line().find(|(_, it)| !it.settled && is_in_work(it.is)) {
            self.holders.insert(key, next as u64);
            return;
        }
        let next = in_line().find(|(_, it)| matches!(it.is, Is::Blocked { .. }));
        let next = next.map(|(at, it)| (at as u64, it.is));
        if let Some((next, Is::Blocked { until })) = next {
            self.set(next, until.map_or(Is::Fresh, |until| Is::Waiting { until }));
        }
    }

    /// Of the records of one key, one is leased only when those before it are settled. A client that makes up
    /// a fence of a leader before, which this one cannot know, breaks that for the record that it names, and
    /// for no other; a fence that was given is older than any seek, or those before its record are settled in
    /// the log.
    pub(super) fn check_order(&self, grant: &Grant) {
        let at = grant.offset.0 as usize;
        let Record { key, is_made_up, .. } = self.records[at];
        if !self.rules.looks_ahead || key == 0 || is_made_up {
            return;
        }
        let before = self.records[..at].iter();
        let waits =
            |it: &&Record| it.key == key && !it.settled && !it.is_redriven && it.fated != Fated::Never;
        assert_eq!(before.filter(waits).count(), 0, "{grant:?} goes before others of its key");
    }

    pub(super) fn look_again(&mut self) {
        self.leases.look_again(&self.part);
        let is_ahead = |it: &Record| {
            let is = matches!(it.is, Is::Fresh | Is::Free | Is::Blocked { .. } | Is::Waiting { .. });
            !it.settled && (is && it.fence == 0 && it.attempts == 0 || it.is == Is::Skipped)
        };
        let ahead: Vec<u64> = (0..self.end().0).filter(|at| is_ahead(&self.records[*at as usize])).collect();
        for at in ahead.iter().rev() {
            self.leave(*at);
            self.records[*at as usize].is = Is::New;
        }
        self.frontier = self.frontier.min(ahead.first().copied().unwrap_or(u64::MAX));
    }

    pub(super) fn log_skips(&mut self, is_lost: bool) {
        let skips = self.leases.skips_to_log();
        assert!(self.leases.skips_to_log().is_empty(), "they are on their way");
        let told: u64 = skips.iter().map(|range| range.end.0 - range.start.0).sum();
        let is_skipped = |it: &&mut Record| !it.settled && it.is == Is::Skipped;
        if self.start == 0 {
            assert_eq!(told, self.records.iter_mut().filter(is_skipped).count() as u64);
        }
        if !is_lost {
            let event = PartEvent { settled: skips, ..PartEvent::default() };
            self.part.apply(&event, Offset(self.start)..self.end());
            self.records.iter_mut().filter(is_skipped).for_each(|record| record.settled = true);
        }
        // Whoever looks between the two counts each record once.
        self.check_counts();
        self.leases.skips_logged(&self.part);
    }
}
