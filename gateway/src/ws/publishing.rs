//! One channel that publishes: numbers and confirms; its credit is [`Granting`]. Pure.

use std::ops::Range;

use weir_protocol::limits::{INTEGER_MAX, PRODUCER_WINDOW};
use weir_protocol::rpc::{Level, Placed};
use weir_protocol::ws::{Base, Confirm, StageMicros};

use super::amount::Amount;
use super::granting::Granting;
use super::prefix::Prefix;
use crate::service::publish::NewRecord;

/// What the gateway found when it opened the channel.
#[derive(Debug, Clone, Copy)]
#[cfg_attr(test, derive(Default))]
pub(super) struct Found {
    /// Last number of the producer's accepted prefix.
    pub(super) last_seq: Option<u64>,
    /// Highest number that any partition knew of the producer.
    pub(super) highest: Option<u64>,
    /// The topic's life.
    pub(super) incarnation: u64,
    pub(super) partitions: u32,
    /// Set of level bits that are told.
    pub(super) levels: u32,
    pub(super) has_producer: bool,
}

/// Why a number is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BadSeq {
    /// A number was left out; this one was expected.
    Gap(u64),
    /// A channel without a producer cannot tell repeats apart; this was the last.
    Repeat(u64),
    /// JSON cannot tell it.
    TooHigh,
}

/// A channel that publishes.
#[derive(Debug)]
pub(super) struct Publishing {
    found: Found,
    next_seq: u64,
    /// Lower numbers may be known, each for itself: see [`Publishing::run_end`].
    known_to: u64,
    /// Some number was taken.
    has_begun: bool,
    pub(super) granting: Granting,
    levels: Vec<Told>,
    /// Records that wait to become one batch at the end of the turn, and the number of the first.
    pub(super) waiting: Vec<NewRecord>,
    pub(super) waiting_from: u64,
    pub(super) waiting_amount: Amount,
    /// Calls whose last confirm is still to come.
    pub(super) in_flight: usize,
    /// The client closed it: forgotten with the last confirm.
    pub(super) is_closing: bool,
}

/// What is told of one level.
#[derive(Debug)]
struct Told {
    level: Level,
    prefix: Prefix,
    draft: Option<Confirm>,
}

impl Told {
    /// Confirms without a place.
    fn pass(&mut self, first: u64, records: &[Range<u32>]) {
        self.draft.get_or_insert_with(|| Confirm { level: self.level, ..Confirm::default() });
        for range in records {
            self.prefix.add(first + u64::from(range.start), first + u64::from(range.end));
        }
    }
}

/// Where part of a call went, and how long it took.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reached {
    pub(super) level: Level,
    pub(super) partition: u32,
    pub(super) placed: Placed,
    pub(super) us: StageMicros,
}

impl Publishing {
    pub(super) fn new(found: Found, granting: Granting) -> Self {
        let told = [Level::Memory, Level::Durable, Level::Quorum, Level::Archived]
            .into_iter()
            .filter(|level| found.levels & level.bit() != 0)
            .map(|level| Told { level, prefix: Prefix::after(found.last_seq), draft: None })
            .collect();
        Self {
            found,
            next_seq: found.last_seq.map_or(0, |last| last + 1),
            known_to: found.highest.map_or(0, |highest| highest + 1),
            has_begun: false,
            granting,
            levels: told,
            waiting: Vec::new(),
            waiting_from: 0,
            waiting_amount: Amount::default(),
            in_flight: 0,
            is_closing: false,
        }
    }

    /// Takes `count` numbers from `seq` on. Producers may repeat numbers, since repeats are recognised.
    pub(super) fn take_seq(&mut self, seq: u64, count: u64) -> Result<(), BadSeq> {
        if seq.saturating_add(count) > INTEGER_MAX + 1 {
            return Err(BadSeq::TooHigh);
        }
        if seq > self.next_seq {
            if !self.may_know_more(seq) {
                return Err(BadSeq::Gap(self.next_seq));
            }
            self.levels.iter_mut().for_each(|told| told.prefix.add(self.next_seq, seq));
        }
        self.has_begun = true;
        if seq < self.next_seq && !self.found.has_producer {
            return Err(BadSeq::Repeat(self.next_seq - 1));
        }
        if seq < self.next_seq {
            self.known_to = self.known_to.max(self.next_seq);
        }
        self.next_seq = seq + count;
        Ok(())
    }

    /// How far numbers from `seq` on may go together: exclusive. A batch that is known in part is refused as a whole,
    /// so that the rest would never be stored. What is certainly known goes together, and what is certainly new; in
    /// between each number goes alone, until the client has sent what it repeats.
    pub(super) fn run_end(&self, seq: u64) -> u64 {
        let sure_to = self.found.last_seq.map_or(0, |last| last + 1);
        match seq {
            _ if !self.found.has_producer || seq >= self.known_to.max(sure_to) => u64::MAX,
            _ if seq < sure_to => sure_to,
            _ => seq + 1,
        }
    }

    /// A batch was refused because its producer is known up to `last_seq`: more had been accepted than was known when
    /// the channel was opened.
    pub(super) fn overlapped(&mut self, last_seq: u64) {
        self.known_to = self.known_to.max(last_seq.saturating_add(1));
    }

    /// On several partitions what was found of the producer is a lower bound, by a window at most: whoever
    /// begins behind it was told that the numbers in between are confirmed, by the connection before, and
    /// cannot send them again.
    fn may_know_more(&self, seq: u64) -> bool {
        let found = &self.found;
        found.has_producer
            && found.partitions > 1
            && !self.has_begun
            && seq - self.next_seq <= PRODUCER_WINDOW
    }

    /// A batch of the numbers `first + records` has reached a level.
    pub(super) fn reached(&mut self, first: u64, records: &[Range<u32>], reached: Reached) {
        let Some(told) = self.levels.iter_mut().find(|told| told.level == reached.level) else { return };
        let draft = told.draft.get_or_insert_with(|| Confirm { level: reached.level, ..Confirm::default() });
        let mut offset = reached.placed.base_offset;
        for range in records {
            let (seq, n) = (first + u64::from(range.start), range.end - range.start);
            told.prefix.add(seq, seq + u64::from(n));
            push_base(&mut draft.base, Base { seq, n, p: reached.partition, o: offset });
            offset += u64::from(n);
        }
        if !reached.placed.is_final {
            draft.term = Some(reached.placed.term);
        }
        if reached.us.total >= draft.us.total {
            draft.us = reached.us;
        }
    }

    /// A repeated batch of the numbers `first + records` had been stored so long ago that nobody knows where: it is
    /// confirmed without a place, archived by itself.
    pub(super) fn stored_before(&mut self, first: u64, records: &[Range<u32>], is_archived: bool) {
        let meant = |told: &&mut Told| (told.level == Level::Archived) == is_archived;
        self.levels.iter_mut().filter(meant).for_each(|told| told.pass(first, records));
    }

    /// The numbers `first + records` were committed and are kept no longer: there is nothing to be archived,
    /// so the prefix goes on behind them.
    pub(super) fn gone(&mut self, first: u64, records: &[Range<u32>]) {
        let archived = self.levels.iter_mut().filter(|told| told.level == Level::Archived);
        archived.for_each(|told| told.pass(first, records));
    }

    /// Numbers that will not be confirmed. Without a producer nobody sends them again, so the prefix goes on behind
    /// them; a producer has to.
    pub(super) fn refused(&mut self, seq: u64, count: u64) {
        if !self.found.has_producer {
            self.levels.iter_mut().for_each(|told| told.prefix.add(seq, seq + count));
        }
    }

    /// What was confirmed since the last time, one frame per level.
    pub(super) fn take_confirms(&mut self) -> impl Iterator<Item = Confirm> {
        self.levels.iter_mut().filter_map(|told| {
            let draft = told.draft.take()?;
            Some(Confirm { upto: told.prefix.upto(), ..draft })
        })
    }
}

/// Adds a run, as part of the last one where it continues it.
fn push_base(bases: &mut Vec<Base>, base: Base) {
    if let Some(last) = bases.last_mut() {
        let n = u64::from(last.n);
        if last.p == base.p
            && last.seq + n == base.seq
            && last.o + n == base.o
            && last.n.checked_add(base.n).is_some()
        {
            last.n += base.n;
            return;
        }
    }
    bases.push(base);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::sync::Semaphore;
    use tokio::time::Instant;

    use super::*;
    use crate::ws::pool::Pool;

    fn found(last_seq: Option<u64>, has_producer: bool) -> Found {
        let (highest, levels) = (last_seq, Level::Quorum.bit());
        Found { last_seq, highest, incarnation: 1, partitions: 1, levels, has_producer }
    }

    fn channel(last_seq: Option<u64>, has_producer: bool) -> Publishing {
        publishing(found(last_seq, has_producer))
    }

    fn publishing(found: Found) -> Publishing {
        let pool = Pool::new((Arc::new(Semaphore::new(0)), 0));
        Publishing::new(found, Granting::new(Instant::now(), pool.open(), u64::MAX))
    }

    fn at(offset: u64) -> Reached {
        let placed = Placed { base_offset: offset, is_final: true, ..Placed::default() };
        Reached { level: Level::Quorum, partition: 0, placed, us: StageMicros::default() }
    }

    #[test]
    fn producers_may_repeat_numbers_and_nobody_may_skip_one() {
        let mut producer = channel(Some(117), true);
        assert_eq!(producer.take_seq(119, 1), Err(BadSeq::Gap(118)));
        assert_eq!(producer.take_seq(118, 5), Ok(()));
        assert_eq!(producer.take_seq(100, 2), Ok(()), "sent again");
        assert_eq!(producer.take_seq(102, 1), Ok(()));
        let mut anonymous = channel(None, false);
        assert_eq!(anonymous.take_seq(0, 3), Ok(()));
        assert_eq!(anonymous.take_seq(2, 1), Err(BadSeq::Repeat(2)));
        assert_eq!(anonymous.take_seq(4, INTEGER_MAX - 3), Err(BadSeq::Gap(3)), "the last that there is");
        for (seq, count) in [(3, u64::MAX), (INTEGER_MAX, 2), (INTEGER_MAX + 1, 1), (u64::MAX, 1)] {
            assert_eq!(anonymous.take_seq(seq, count), Err(BadSeq::TooHigh), "{seq}");
        }
    }

    #[test]
    fn a_producer_on_several_partitions_may_begin_behind_what_was_confirmed_before() {
        let begin = |partitions, seq| {
            let mut channel = publishing(Found { partitions, ..found(Some(2_047), true) });
            (channel.take_seq(seq, 2), channel)
        };
        let (taken, mut channel) = begin(2, 3_072);
        assert_eq!(taken, Ok(()));
        channel.reached(3_072, std::slice::from_ref(&(0..2)), at(9));
        assert_eq!(
            channel.take_confirms().next().unwrap().upto,
            Some(3_073),
            "nobody waits for those before"
        );
        assert_eq!(channel.take_seq(3_075, 1), Err(BadSeq::Gap(3_074)), "once it has begun none is left out");
        assert_eq!(channel.take_seq(2_048, 1), Ok(()), "sent again");
        assert_eq!(begin(2, 3_073).0, Err(BadSeq::Gap(2_048)), "more than a window was never unknown");
        assert_eq!(begin(1, 2_049).0, Err(BadSeq::Gap(2_048)), "on one partition all is known");
    }

    #[test]
    fn what_may_be_known_in_part_goes_one_by_one_and_the_rest_together() {
        let mut channel = publishing(Found { highest: Some(14), partitions: 2, ..found(Some(9), true) });
        let ends = |channel: &Publishing, seqs: [u64; 4]| seqs.map(|seq| channel.run_end(seq));
        assert_eq!(ends(&channel, [3, 9, 10, 14]), [10, 10, 11, 15]);
        assert_eq!(channel.run_end(15), u64::MAX);
        // What was sent on this connection may be known too once it is sent again.
        channel.take_seq(10, 20).unwrap();
        assert_eq!(channel.run_end(20), u64::MAX);
        channel.take_seq(18, 1).unwrap();
        assert_eq!(ends(&channel, [18, 29, 30, 31]), [19, 30, u64::MAX, u64::MAX]);
        channel.overlapped(40);
        assert_eq!(ends(&channel, [30, 40, 41, 42]), [31, 41, u64::MAX, u64::MAX]);
        assert_eq!(super::tests::channel(Some(9), false).run_end(3), u64::MAX, "nothing is recognised");
    }

    #[test]
    fn confirms_are_cumulative_and_runs_are_joined() {
        let mut channel = channel(Some(9), true);
        channel.reached(12, std::slice::from_ref(&(0..2)), at(102));
        let early: Vec<_> = channel.take_confirms().collect();
        assert_eq!(early[0].upto, Some(9), "10 and 11 are missing");
        channel.reached(10, std::slice::from_ref(&(0..1)), at(100));
        channel.reached(11, std::slice::from_ref(&(0..1)), at(101));
        let confirms: Vec<_> = channel.take_confirms().collect();
        assert_eq!(confirms.len(), 1);
        assert_eq!(confirms[0].upto, Some(13));
        assert_eq!(confirms[0].base, [Base { seq: 10, n: 2, p: 0, o: 100 }]);
        assert_eq!(channel.take_confirms().count(), 0);
    }

    #[test]
    fn a_repeat_too_old_to_be_placed_is_confirmed_all_the_same() {
        let mut channel = channel(Some(9), true);
        channel.stored_before(10, std::slice::from_ref(&(0..3)), false);
        let confirm = channel.take_confirms().next().unwrap();
        assert_eq!((confirm.upto, confirm.base), (Some(12), vec![]));
    }

    #[test]
    fn archived_is_told_of_an_old_repeat_by_itself_and_goes_on_behind_what_is_kept_no_longer() {
        let levels = Level::Quorum.bit() | Level::Archived.bit();
        let found = Found { levels, ..found(Some(9), true) };
        let mut channel = publishing(found);
        let told = |channel: &mut Publishing| -> Vec<_> {
            channel.take_confirms().map(|confirm| (confirm.level, confirm.upto)).collect()
        };
        channel.stored_before(10, std::slice::from_ref(&(0..2)), false);
        assert_eq!(told(&mut channel), [(Level::Quorum, Some(11))]);
        channel.reached(12, std::slice::from_ref(&(0..1)), Reached { level: Level::Archived, ..at(100) });
        assert_eq!(told(&mut channel), [(Level::Archived, Some(9))]);
        channel.stored_before(10, std::slice::from_ref(&(0..1)), true);
        channel.gone(11, std::slice::from_ref(&(0..1)));
        assert_eq!(told(&mut channel), [(Level::Archived, Some(12))]);
    }

    #[test]
    fn what_was_refused_holds_the_prefix_of_a_producer_only() {
        for (has_producer, upto) in [(true, None), (false, Some(1))] {
            let mut channel = channel(None, has_producer);
            channel.refused(0, 1);
            channel.reached(1, std::slice::from_ref(&(0..1)), at(0));
            assert_eq!(channel.take_confirms().next().unwrap().upto, upto);
        }
    }
}
