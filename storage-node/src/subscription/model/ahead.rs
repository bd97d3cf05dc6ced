//! Looking ahead, and keys.

use weir_protocol::ids::{Offset, TimestampMs};

use super::*;
use crate::subscription::later::met_at;

/// When a record is for those who pull.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Fated {
    Now,
    At(u64),
    Never,
}

impl Pair {
    /// Looks at the next records, as many as exist, or at some that waited.
    pub(super) fn look(&mut self, count: u64) {
        let looks = self.rules.looks_ahead || self.leases.sifts;
        let found = self.leases.look_from(&self.part, self.end(), usize::MAX);
        let is_wanted = |at: &u64| !self.records[*at as usize].settled;
        let next = (self.frontier..self.end().0).find(is_wanted);
        let unmet = (0..self.end().0).filter(is_wanted).find(|at| self.records[*at as usize].is == Is::Unmet);
        let leased =
            self.records.iter().filter(|it| !it.settled && matches!(it.is, Is::Leased { .. })).count();
        // With all places taken nothing is wanted.
        let has_room = leased < self.rules.max_unacked;
        let Some(found) = found else {
            let is_nothing = next.is_none() && unmet.is_none();
            assert!(!self.rules.looks_ahead || !has_room || is_nothing, "{next:?} {unmet:?}");
            return;
        };
        assert!(looks && has_room);
        let from = found.start;
        let is_next = match self.rules.looks_ahead {
            true => next == Some(from.0),
            // Behind what is redriven some is looked at twice, which changes nothing.
            false => matches!(self.records[from.0 as usize].is, Is::New | Is::Fresh),
        };
        assert!(is_next || unmet == Some(from.0), "{found:?}, not {next:?} or {unmet:?}");
        let upto = Offset(from.0 + count).min(found.end);
        let seen: Vec<Seen> = (from.0..upto.0).map(|at| self.seen(at)).collect();
        self.leases.looked(&self.part, from..upto, seen.clone());
        // What is told twice changes nothing.
        self.leases.looked(&self.part, from..upto, seen);
        for at in from.0..upto.0 {
            if at >= self.frontier || matches!(self.records[at as usize].is, Is::Unmet | Is::New) {
                self.look_at(at);
            }
        }
        if self.rules.looks_ahead {
            self.frontier = self.frontier.max(upto.0);
        }
    }

    fn seen(&self, at: u64) -> Seen {
        let record = &self.records[at as usize];
        let fate = match record.fated {
            Fated::Now => Fate::Deliver,
            Fated::At(due) if due > self.now => Fate::DeliverAt(TimestampMs(due)),
            Fated::At(_) => Fate::Deliver,
            Fated::Never => Fate::Skip,
        };
        // What is leased as it comes has no keys and lanes.
        let key = if self.rules.looks_ahead { u128::from(record.key) } else { 0 };
        Seen { offset: Offset(at), key: Key(key), lane: Lane(key % 2), fate }
    }

    fn look_at(&mut self, at: u64) {
        let record = self.records[at as usize];
        if record.settled {
            return;
        }
        let seen = self.seen(at);
        let has_key = seen.key != Key::NONE;
        let waits = match record.is {
            Is::New | Is::Unmet => None,
            Is::Later { met } if has_key && seen.fate != Fate::Skip => Some(met),
            // Nothing is known of it, and nothing need be.
            Is::Later { .. } | Is::Skipped => return,
            _ => {
                self.records[at as usize].in_line |= has_key;
                return self.set(at, record.is);
            }
        };
        if seen.fate == Fate::Skip {
            self.records[at as usize].is = Is::Skipped;
            return;
        }
        let later = match seen.fate {
            Fate::DeliverAt(due) => Some(due.0),
            _ => waits,
        };
        let logged = self.logged_until(at);
        let record = &mut self.records[at as usize];
        (record.in_line, record.attempts) = (has_key, record.logged);
        if has_key && *self.holders.entry(record.key).or_insert(at) != at {
            record.is = Is::Blocked { until: logged, is_queued: true };
            return;
        }
        self.set(at, logged.or(later).map_or(Is::Fresh, |until| Is::Waiting { until }));
    }

    /// Until when a record waits that nobody has had from this leader, as the log says.
    fn logged_until(&self, at: u64) -> Option<u64> {
        let record = self.records[at as usize];
        let had_all = self.rules.max_attempts > 0 && record.logged >= self.rules.max_attempts;
        record.due.or(had_all.then_some(self.begun + self.rules.lease_ms))
    }

    /// The record is in a state, or blocked behind the one that holds its key, or waits with others.
    pub(super) fn set(&mut self, at: u64, is: Is) {
        let is_waiting = |it: &&Record| !it.settled && matches!(it.is, Is::Waiting { .. });
        let waiting = self.records.iter().filter(is_waiting).count();
        let record = &mut self.records[at as usize];
        let did_wait = matches!(record.is, Is::Waiting { .. });
        record.is = is;
        if let Is::Waiting { until } = is
            && !record.in_line
            && until > self.clock
            && !did_wait
        {
            let is_far = until > self.clock + 3_600_000;
            let room = if is_far { self.near / 2 } else { self.near };
            if is_far && record.fence == 0 || waiting >= room {
                let met = met_at(TimestampMs(until), TimestampMs(self.clock)).0;
                (record.is, record.fence, record.attempts) = (Is::Later { met }, 0, record.logged);
            }
            return;
        }
        if !record.in_line {
            return;
        }
        let holder = *self.holders.entry(record.key).or_insert(at);
        record.is = match is {
            Is::Free | Is::Fresh if holder != at => Is::Blocked { until: None, is_queued: false },
            Is::Waiting { until } if holder != at => Is::Blocked { until: Some(until), is_queued: false },
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
        if let Some((next, Is::Blocked { until, .. })) = next {
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
        let is_ahead = |it: &Record| match it.is {
            Is::Skipped | Is::Unmet | Is::Blocked { is_queued: true, .. } => true,
            Is::Fresh => true,
            Is::Later { .. } => it.logged == 0,
            Is::Free | Is::Blocked { .. } | Is::Waiting { .. } => it.fence == 0 && it.attempts == 0,
            _ => false,
        };
        let unsettled: Vec<u64> =
            (0..self.end().0).filter(|at| !self.records[*at as usize].settled).collect();
        let is_touched = |at: &&u64| {
            let record = &self.records[**at as usize];
            is_ahead(record) || matches!(record.is, Is::Later { .. })
        };
        let first = unsettled.iter().find(is_touched).copied();
        for at in unsettled.iter().rev() {
            let record = self.records[*at as usize];
            if is_ahead(&record) {
                self.leave(*at);
                self.records[*at as usize].is = Is::New;
            } else if let Is::Later { met } = record.is {
                let due = record.due.unwrap_or(met);
                let met = met_at(TimestampMs(due), TimestampMs(self.clock)).0;
                self.records[*at as usize].is = if due > self.clock { Is::Later { met } } else { Is::Unmet };
            }
        }
        self.frontier = self.frontier.min(first.unwrap_or(u64::MAX));
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
