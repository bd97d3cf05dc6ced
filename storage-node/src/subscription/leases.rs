//! Who holds which record, in the memory of a partition's leader.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use weir_protocol::ids::{Offset, TimestampMs};

use super::ahead::{Key, Limits, Skipped};
use super::choosing::{Chosen, Source};
use super::event::{Delivered, Fence, Redelivered};
use super::later::Later;
use super::lines::Lines;
use super::offsets::Offsets;
use super::part::Part;
use super::pulls::{PullId, PullKey, Pulls};
use super::ready::{Lane, Ready};

/// Most records that one call finds exhausted or wakes; what is beyond comes with the next call.
pub(super) const PER_CALL_MAX: usize = 4096;
/// Most records that [`Leases::expire`] finds exhausted.
pub const EXPIRED_MAX: usize = 3 * PER_CALL_MAX;

/// What a subscription says of deliveries, for one part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// How long a lease lasts unless a pull says otherwise, in milliseconds.
    pub lease_ms: u64,
    /// Deliveries of a record after which it is a dead letter; 0: no limit.
    pub max_attempts: u32,
    /// Delay before delivery 2, 3, .. in milliseconds; the last one repeats. Empty: at once.
    pub backoff_ms: Arc<[u64]>,
    /// Most records of this part leased at once.
    pub max_unacked: usize,
    /// Records are looked at before they are leased; otherwise they are leased as they come.
    pub looks_ahead: bool,
}

/// A pull.
#[derive(Debug, Clone)]
pub struct Ask {
    /// Now.
    pub now: TimestampMs,
    /// Only records below are leased, of those that never were: the partition's end, or a place before it.
    pub end: Offset,
    /// At most this many.
    pub max_records: usize,
    /// How long they are held, in milliseconds; 0: as [`Rules::lease_ms`] says.
    pub lease_ms: u64,
    /// Who holds them.
    pub holder: Arc<str>,
    /// What [`Leases::repeat`] finds them by.
    pub key: Option<PullKey>,
}

/// A record that was leased.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grant {
    /// The record.
    pub offset: Offset,
    /// What settles it.
    pub fence: Fence,
    /// Deliveries of this record so far, this one included.
    pub attempt: u32,
    /// It may be delivered to another from then on.
    pub deadline: TimestampMs,
}

/// What [`Leases::take`] gave.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Taken {
    /// In the order of offsets and of fences.
    pub grants: Vec<Grant>,
    /// Those of them that were, or may have been, delivered before: to be logged before any byte of them leaves.
    pub redelivered: Vec<Redelivered>,
    /// Records that have had all their deliveries: to be logged as dead, then [`Leases::committed`].
    pub exhausted: Vec<Delivered>,
}

/// The leases of one part. They begin empty with every term of a leader and end with it.
///
/// ```text
///   free, never leased ──take──▶ leased ──settle──▶ settling ──committed──▶ settled: forgotten
///         │ looked             ▲  │  ▲                 │ failed     └─ nacked: waiting ──due──▶ free again
///         ▼                    │  │  └── free again ◀──┘
///    fresh, or blocked ──take──┘  └ expired ─▶ ▲
/// ```
///
/// Records from `next` on were never leased here, nor looked at, and cost nothing, 10 million or none. Of the
/// others, those of which more is known than where they wait are in `known`, about 150 bytes each and 25 more
/// in one of the orders: leased ones, at most [`Rules::max_unacked`]; settling ones, as many as are on their
/// way through the log; those that were leased before, at most [`COME_AGAIN_MAX`](super::COME_AGAIN_MAX) before
/// no new ones are leased; those that wait for a time, at most [`NEAR_MAX`](super::NEAR_MAX); those that hold a
/// key, at most [`LANES_MAX`](super::LANES_MAX). All others are in sets of offsets: what waits, in `later`;
/// what waited, in `unmet`; what was looked at, in `ready` and `lines`. Those that come again take turns with
/// new ones.
///
/// Every call takes the newest part there is: with one that is older than what a call before has seen, a record that
/// was settled meanwhile could be leased, and after a seek backwards `next` would jump over what is unsettled again.
///
/// Maps are ordered, not hashed, so that the same calls give the same answers in every run.
#[derive(Debug, Clone)]
pub struct Leases {
    pub(super) rules: Rules,
    /// Lower fences are from before this leader.
    pub(super) fence_base: Fence,
    pub(super) next: Offset,
    /// One past the highest record in `known` that was put there before `next` came by.
    pub(super) ahead_end: Offset,
    pub(super) known: BTreeMap<Offset, Known>,
    /// Leased records, by deadline.
    pub(super) leased: BTreeSet<(TimestampMs, Offset)>,
    /// Nacked records, by the time they are due.
    pub(super) waiting: BTreeSet<(TimestampMs, Offset)>,
    /// Unknown records that wait: for a time that is far away, or because too many do.
    pub(super) later: Later,
    /// Unknown records below `next` that waited there: leased as new ones, or looked at again.
    pub(super) unmet: Offsets,
    /// Free records that are known, and those that were looked at.
    pub(super) ready: Ready,
    pub(super) lines: Lines,
    pub(super) skipped: Skipped,
    pub(super) pulls: Pulls,
    /// When this leader began.
    pub(super) begun: TimestampMs,
    /// Records below may have been delivered by an earlier leader.
    pub(super) earlier_end: Offset,
    /// The latest time that it was told.
    pub(super) clock: TimestampMs,
    /// Records of which something was decided that is on its way through the log.
    pub(super) settling: usize,
    /// New records are looked at for a while, though the rules do not say so.
    pub(super) sifts: bool,
    /// The last look was at what is met again.
    pub(super) looked_back: bool,
    /// Something was looked at, so that not all below `next` was delivered.
    pub(super) has_looked: bool,
    pub(super) limits: Limits,
    /// Where the last record that was chosen came from.
    pub(super) last: Source,
}

/// An unsettled record that was leased, or waits.
#[derive(Debug, Clone)]
pub(super) struct Known {
    /// Its last delivery; 0: none by this leader that it knows of.
    pub(super) fence: Fence,
    /// Deliveries so far.
    pub(super) attempts: u32,
    /// Who has, or had, its last delivery.
    pub(super) holder: Arc<str>,
    pub(super) state: State,
    pub(super) key: Key,
    pub(super) lane: Lane,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Leased(Lease),
    /// What was decided is on its way through the log, of this lease if it was held.
    Settling(Option<Lease>),
    Waiting(TimestampMs),
    Free(TimestampMs),
    /// Looked at, and free for the first time.
    Fresh,
    /// Another record holds its key. Then it waits until this time, if there is one.
    Blocked(Option<TimestampMs>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lease {
    pub(super) deadline: TimestampMs,
    pub(super) taken: TimestampMs,
    pub(super) lease_ms: u64,
    /// The delivery before: what holds again if this one is not sent.
    pub(super) previous: Fence,
    pub(super) pull: PullId,
    /// Its bytes are on their way to whoever leased it, or were.
    pub(super) has_left: bool,
}

impl Leases {
    /// The leases of a leader that begins: none. What the part has delayed waits on; everything else unsettled is free.
    /// `fence_base` is the first fence that it will give. After a seek was applied, begin again; from its proposal
    /// until then nothing may be taken or settled, or the log would settle after the seek what was decided before.
    ///
    /// A record that has had all its deliveries may be in work with a client of the leader before: it becomes a dead
    /// letter only after the time of one lease. Takes a while with many retries, see [`Part::retries_len`].
    #[must_use]
    pub fn new(part: &Part, rules: Rules, fence_base: Fence, now: TimestampMs) -> Self {
        Self::within(Limits::default(), part, rules, fence_base, now)
    }

    /// The same within other limits.
    pub(super) fn within(
        limits: Limits,
        part: &Part,
        rules: Rules,
        fence_base: Fence,
        now: TimestampMs,
    ) -> Self {
        let mut leases = Self {
            fence_base,
            next: part.floor(),
            ahead_end: Offset(0),
            known: BTreeMap::new(),
            leased: BTreeSet::new(),
            waiting: BTreeSet::new(),
            later: Later::default(),
            unmet: Offsets::default(),
            ready: Ready::default(),
            lines: Lines::default(),
            skipped: Skipped::default(),
            pulls: Pulls::default(),
            begun: now,
            earlier_end: Offset(0),
            clock: now,
            settling: 0,
            sifts: false,
            looked_back: false,
            has_looked: false,
            limits,
            last: Source::New,
            rules,
        };
        let nobody: Arc<str> = Arc::from("");
        for (offset, retry) in part.retries() {
            let last_chance =
                is_exhausted(&leases.rules, retry.attempts).then(|| after(now, leases.rules.lease_ms));
            // Others that are to be looked at are met in their place.
            let waits = last_chance.is_some() || !leases.rules.looks_ahead;
            if let Some(due) = retry.due.or(last_chance).filter(|_| waits) {
                let holder = Arc::clone(&nobody);
                let state = State::Waiting(due);
                leases.put(offset, Known { attempts: retry.attempts, ..Known::new(holder, state) });
            }
        }
        leases
    }

    /// Follows a changed configuration, or share of it. Leases that are held stay as they are.
    pub fn set_rules(&mut self, rules: Rules) {
        self.rules = rules;
    }

    /// From here on nothing was leased by this leader.
    #[must_use]
    pub fn next(&self) -> Offset {
        self.next
    }

    /// Leases records, at most what [`Rules::max_unacked`] leaves: those that were delivered before and are free again,
    /// the one that has been free longest first, in turns with new ones. `next_fence` is the first fence to give and
    /// grows by the grants. With [`Rules::looks_ahead`] only records that were [looked at](Leases::looked) are leased.
    ///
    /// Before a byte leaves, the caller logs [`Taken::redelivered`]; what it does not send it
    /// [releases](Leases::release), and when the bytes leave it says [`Leases::started`], or [`Leases::leaves`].
    pub fn take(&mut self, part: &Part, ask: &Ask, next_fence: &mut Fence) -> Taken {
        let mut taken = Taken { exhausted: self.expire(part, ask.now), ..Taken::default() };
        let room = self.rules.max_unacked.saturating_sub(self.leased.len()).min(ask.max_records);
        let mut chosen = Vec::with_capacity(room.min(PER_CALL_MAX));
        self.choose(part, room, ask.end, &mut chosen, &mut taken.exhausted);
        chosen.sort_unstable();
        let pull = match ask.key {
            Some(key) if !chosen.is_empty() => {
                self.pulls.begin(key, chosen.iter().map(|chosen| chosen.offset).collect())
            }
            _ => PullId::NONE,
        };
        let lease_ms = if ask.lease_ms == 0 { self.rules.lease_ms } else { ask.lease_ms };
        let deadline = after(ask.now, lease_ms);
        taken.grants.reserve_exact(chosen.len());
        for Chosen { offset, attempts, previous, key, lane } in chosen {
            let (fence, attempt) = (*next_fence, attempts.saturating_add(1));
            next_fence.0 += 1;
            let state =
                State::Leased(Lease { deadline, taken: ask.now, lease_ms, previous, pull, has_left: false });
            let holder = Arc::clone(&ask.holder);
            self.put(offset, Known { fence, attempts: attempt, holder, state, key, lane });
            taken.grants.push(Grant { offset, fence, attempt, deadline });
            if self.is_logged(part, offset, attempt) {
                taken.redelivered.push(Redelivered { offset, attempts: attempt, fence });
            }
        }
        taken
    }

    /// Ends the leases whose time is over and wakes what is due. Returns records that have had all their deliveries: to
    /// be logged as dead, then [`Leases::committed`]. [`Leases::take`] does it too. A lease of which no byte has left
    /// is [released](Leases::release): nothing is given up that nobody was sent.
    #[must_use = "exhausted records are settling until they are committed or failed"]
    pub fn expire(&mut self, part: &Part, now: TimestampMs) -> Vec<Delivered> {
        self.clock = self.clock.max(now);
        self.forget_settled(part);
        let mut exhausted = Vec::new();
        while exhausted.len() < PER_CALL_MAX
            && let Some((at, offset)) = self.leased.first().copied().filter(|(at, _)| *at <= now)
        {
            let Known { fence, state, .. } = self.known[&offset];
            match state {
                // Nobody holds it while it is read any more, and nobody had it.
                State::Leased(lease) if !lease.has_left => self.release(part, offset, fence),
                _ => self.free_again(offset, at, &mut exhausted),
            }
        }
        for _ in 0..PER_CALL_MAX {
            let Some((at, offset)) = self.waiting.first().copied().filter(|(at, _)| *at <= now) else {
                break;
            };
            self.free_again(offset, at, &mut exhausted);
        }
        self.meet_again(part, now, &mut exhausted);
        exhausted
    }

    /// Meets records that waited with others. What is not due yet, as the log says, waits on; what only the record says
    /// is found out when it is read.
    fn meet_again(&mut self, part: &Part, now: TimestampMs, exhausted: &mut Vec<Delivered>) {
        for _ in 0..PER_CALL_MAX {
            let Some(offset) = self.later.pop(now) else { return };
            if part.is_settled(offset) {
                continue;
            }
            let retry = part.retry(offset);
            let attempts = retry.map_or(0, |retry| retry.attempts);
            let known = |state| Known { attempts, ..Known::new(Arc::from(""), state) };
            if let Some(due) = retry.and_then(|retry| retry.due).filter(|due| *due > now) {
                self.put(offset, known(State::Waiting(due)));
            } else if is_exhausted(&self.rules, attempts) {
                exhausted.push(Delivered { offset, attempts });
                self.put(offset, known(State::Settling(None)));
            } else {
                self.unmet.insert(offset);
                // Of what was never given back only the record says when it is due.
                self.sifts |= retry.is_none_or(|retry| retry.due.is_none());
            }
        }
    }

    /// Gives back a lease of which no byte was sent, as if it had never been. Releasing a pull's last records in
    /// falling order costs least. No effect on any other lease.
    pub fn release(&mut self, part: &Part, offset: Offset, fence: Fence) {
        let Some(known) = self.known.get(&offset).filter(|known| known.fence == fence) else { return };
        let State::Leased(lease) = known.state else { return };
        let attempts = known.attempts - 1;
        let is_new = lease.previous == Fence(0) && attempts == part.attempts(offset);
        if is_new && !self.rules.looks_ahead && offset.plus(1) == self.next {
            self.remove(part, offset);
            self.next = offset;
            return;
        }
        if is_new && self.rules.looks_ahead && known.key == Key::NONE {
            let Known { lane, .. } = self.remove(part, offset);
            return self.ready.insert(lane, None, offset);
        }
        // Before all others: it was its turn.
        let state = if is_new && self.rules.looks_ahead { State::Fresh } else { State::Free(TimestampMs(0)) };
        self.change(offset, |known| {
            (known.fence, known.attempts, known.state) = (lease.previous, attempts, state);
        });
    }

    /// The leases given under a key that are still held, in the order of offsets.
    #[must_use]
    pub fn repeat(&self, key: PullKey, now: TimestampMs) -> Vec<Grant> {
        let held = self.pulls.held(key).filter_map(|offset| {
            let known = &self.known[&offset];
            let State::Leased(lease) = known.state else { return None };
            (lease.deadline > now).then(|| known.grant(offset, lease.deadline))
        });
        held.collect()
    }

    /// Whether [`Leases::take`] would give or exhaust something.
    #[must_use]
    pub fn ready(&mut self, part: &Part, end: Offset, now: TimestampMs) -> bool {
        self.forget_settled(part);
        if self.rules.max_unacked == 0 {
            return false;
        }
        let is_over = |first: Option<&(TimestampMs, Offset)>| first.is_some_and(|(at, _)| *at <= now);
        if is_over(self.leased.first()) {
            return true;
        }
        let has_room = self.leased.len() < self.rules.max_unacked;
        let is_due = is_over(self.waiting.first()) || self.later.first().is_some_and(|at| at <= now);
        has_room && (self.ready_len(part) > 0 || is_due || self.may_have_new(part, end))
    }

    fn may_have_new(&mut self, part: &Part, end: Offset) -> bool {
        if self.rules.looks_ahead {
            return self.look_from(part, end, usize::MAX).is_some();
        }
        !self.unmet.is_empty() || self.may_take_new() && self.next_new(part) < end
    }

    /// When [`Leases::ready`] may become true by itself: a lease ends or, if there is room for it, a nacked record is
    /// due. Never while nothing may be leased.
    #[must_use]
    pub fn next_event(&self) -> Option<TimestampMs> {
        let max = self.rules.max_unacked;
        let lease = self.leased.first().filter(|_| max > 0);
        // Without room it waits for a lease to end, however long it has been due.
        let due = self.first_due().filter(|_| self.leased.len() < max);
        lease.map(|(at, _)| *at).into_iter().chain(due).min()
    }

    /// When the first record that waits is due, or met again.
    fn first_due(&self) -> Option<TimestampMs> {
        self.waiting.first().map(|(at, _)| *at).into_iter().chain(self.later.first()).min()
    }

    /// When the first lease ends, or the first record that waits is due, whether there is room for it or not: until
    /// then [`Leases::expire`] has nothing to do.
    #[must_use]
    pub fn ends_first(&self) -> Option<TimestampMs> {
        let lease = self.leased.first().map(|(at, _)| *at);
        lease.into_iter().chain(self.first_due()).min()
    }

    /// Whether who waits is to look again after a change, before which [`Leases::next_event`] said `before`: there is
    /// something to lease, or will be earlier than was known.
    #[must_use]
    pub fn is_news(
        &mut self,
        part: &Part,
        end: Offset,
        before: Option<TimestampMs>,
        now: TimestampMs,
    ) -> bool {
        let is_earlier = self.next_event().is_some_and(|at| before.is_none_or(|before| at < before));
        is_earlier || self.ready(part, end, now)
    }

    /// From where [`Leases::take`] leases what is new now, and how many at most; `None` if there is nothing new, or no
    /// room, or records are not leased as they come.
    #[must_use]
    pub fn takes_new_from(&mut self, part: &Part, end: Offset, now: TimestampMs) -> Option<(Offset, usize)> {
        if self.rules.looks_ahead || !self.may_take_new() {
            return None;
        }
        // Leases that are over are ended before records are leased.
        let is_over = self.leased.first().is_some_and(|(at, _)| *at <= now);
        let leased = if is_over { 0 } else { self.leased.len() };
        let room = self.rules.max_unacked.saturating_sub(leased);
        let next = self.next_new(part);
        (room > 0 && next < end).then_some((next, room))
    }

    /// Moves `next` to the first record that was never leased, which may not exist yet.
    pub(super) fn next_new(&mut self, part: &Part) -> Offset {
        loop {
            self.next = part.next_unsettled(self.next);
            if self.rules.looks_ahead || self.next >= self.ahead_end || !self.is_elsewhere(self.next) {
                return self.next;
            }
            self.next = self.next.plus(1);
        }
    }

    fn is_elsewhere(&self, offset: Offset) -> bool {
        self.known.contains_key(&offset) || self.later.contains(offset) || self.unmet.contains(offset)
    }

    fn free_again(&mut self, offset: Offset, at: TimestampMs, exhausted: &mut Vec<Delivered>) {
        let attempts = self.known[&offset].attempts;
        let is_exhausted = is_exhausted(&self.rules, attempts);
        if is_exhausted {
            exhausted.push(Delivered { offset, attempts });
        }
        let state = if is_exhausted { State::Settling(None) } else { State::Free(at) };
        self.change(offset, |known| known.state = state);
    }

    /// Drops what lies below the part's floor, as after a trim.
    pub(super) fn forget_settled(&mut self, part: &Part) {
        while let Some((offset, _)) =
            self.known.first_key_value().filter(|(offset, _)| **offset < part.floor())
        {
            let offset = *offset;
            self.remove(part, offset);
        }
        let floor = part.floor();
        self.later.forget_below(floor);
        self.lines.forget_below(floor);
        while self.unmet.first().is_some_and(|first| first < floor) {
            self.unmet.pop_first();
        }
    }

    /// Drops what the part has settled of a range, whoever holds it: of what is not there no delivery comes to an end
    /// by itself.
    pub fn forget_settled_in(&mut self, part: &Part, range: Range<Offset>) {
        let known = self.known.range(range.clone()).map(|(offset, _)| *offset);
        let waiting = self.later.from(range.start).take_while(|offset| *offset < range.end);
        let settled: Vec<_> = known.chain(waiting).filter(|offset| part.is_settled(*offset)).collect();
        for offset in settled {
            if !self.later.remove(offset) {
                self.remove(part, offset);
            }
        }
    }
}

impl Known {
    /// A record that nobody knew of, in no order and nobody's.
    pub(super) fn new(holder: Arc<str>, state: State) -> Self {
        let (key, lane) = (Key::NONE, Lane::default());
        Self { fence: Fence(0), attempts: 0, holder, state, key, lane }
    }

    pub(super) fn grant(&self, offset: Offset, deadline: TimestampMs) -> Grant {
        Grant { offset, fence: self.fence, attempt: self.attempts, deadline }
    }
}

/// Whether a record has had all its deliveries.
pub(super) fn is_exhausted(rules: &Rules, attempts: u32) -> bool {
    rules.max_attempts > 0 && attempts >= rules.max_attempts
}

/// A time `ms` later.
pub(super) fn after(now: TimestampMs, ms: u64) -> TimestampMs {
    TimestampMs(now.0.saturating_add(ms))
}
