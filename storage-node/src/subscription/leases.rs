//! Who holds which record, in the memory of a partition's leader.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use weir_protocol::ids::{Offset, TimestampMs};

use super::ahead::{Key, Lines, Skipped};
use super::event::{Delivered, Fence, Redelivered};
use super::part::Part;
use super::pulls::{PullId, PullKey, Pulls};
use super::ready::{Lane, Ready};

/// Most records that one call finds exhausted or wakes; what is beyond comes with the next call.
const PER_CALL_MAX: usize = 4096;
/// Most records that [`Leases::expire`] finds exhausted.
pub const EXPIRED_MAX: usize = 2 * PER_CALL_MAX;

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
/// Records from `next` on were never leased here, nor looked at, and cost nothing, 10 million or none. Every other
/// unsettled record is in `known`, about 150 bytes each and 25 more in one of the orders: leased ones, at most
/// [`Rules::max_unacked`]; settling ones, as many as are on their way through the log; those that were leased before or
/// were nacked, at most [`COME_AGAIN_MAX`](super::COME_AGAIN_MAX) before no new ones are leased; those that were only
/// looked at, at most [`LOOK_AHEAD_MAX`](super::LOOK_AHEAD_MAX). Those that come again take turns with new ones.
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
    /// Free records that are known.
    pub(super) ready: Ready,
    pub(super) lines: Lines,
    pub(super) skipped: Skipped,
    pub(super) pulls: Pulls,
    /// When this leader began.
    pub(super) begun: TimestampMs,
    /// Records below may have been delivered by an earlier leader.
    pub(super) earlier_end: Offset,
    /// The last record that was chosen had been delivered before.
    was_again: bool,
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

/// A record about to be leased.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Chosen {
    offset: Offset,
    attempts: u32,
    previous: Fence,
    key: Key,
    lane: Lane,
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
        let mut leases = Self {
            fence_base,
            next: part.floor(),
            ahead_end: Offset(0),
            known: BTreeMap::new(),
            leased: BTreeSet::new(),
            waiting: BTreeSet::new(),
            ready: Ready::default(),
            lines: Lines::default(),
            skipped: Skipped::default(),
            pulls: Pulls::default(),
            begun: now,
            earlier_end: Offset(0),
            was_again: false,
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
        exhausted
    }

    /// Gives back a lease of which no byte was sent, as if it had never been. Releasing a pull's last records in
    /// falling order costs least. No effect on any other lease.
    pub fn release(&mut self, part: &Part, offset: Offset, fence: Fence) {
        let Some(known) = self.known.get(&offset).filter(|known| known.fence == fence) else { return };
        let State::Leased(lease) = known.state else { return };
        let attempts = known.attempts - 1;
        let is_new = lease.previous == Fence(0) && attempts == part.attempts(offset);
        if is_new && !self.rules.looks_ahead && offset.plus(1) == self.next {
            self.remove(offset);
            self.next = offset;
            return;
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
        has_room && (self.ready.len() > 0 || is_over(self.waiting.first()) || self.may_have_new(part, end))
    }

    fn may_have_new(&mut self, part: &Part, end: Offset) -> bool {
        if self.rules.looks_ahead {
            return self.look_from(part, end, usize::MAX).is_some();
        }
        self.may_take_new() && self.next_new(part) < end
    }

    /// When [`Leases::ready`] may become true by itself: a lease ends or, if there is room for it, a nacked record is
    /// due. Never while nothing may be leased.
    #[must_use]
    pub fn next_event(&self) -> Option<TimestampMs> {
        let max = self.rules.max_unacked;
        let lease = self.leased.first().filter(|_| max > 0);
        // Without room it waits for a lease to end, however long it has been due.
        let due = self.waiting.first().filter(|_| self.leased.len() < max);
        lease.into_iter().chain(due).map(|(at, _)| *at).min()
    }

    /// When the first lease ends, or the first record that waits is due, whether there is room for it or not: until
    /// then [`Leases::expire`] has nothing to do.
    #[must_use]
    pub fn ends_first(&self) -> Option<TimestampMs> {
        let (lease, due) = (self.leased.first(), self.waiting.first());
        lease.into_iter().chain(due).map(|(at, _)| *at).min()
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
    fn next_new(&mut self, part: &Part) -> Offset {
        loop {
            self.next = part.next_unsettled(self.next);
            if self.next >= self.ahead_end || !self.known.contains_key(&self.next) {
                return self.next;
            }
            self.next = self.next.plus(1);
        }
    }

    /// What comes again and what is new, in turns.
    fn choose(
        &mut self,
        part: &Part,
        room: usize,
        end: Offset,
        chosen: &mut Vec<Chosen>,
        exhausted: &mut Vec<Delivered>,
    ) {
        let has_new = !self.rules.looks_ahead;
        while chosen.len() < room && exhausted.len() < PER_CALL_MAX {
            if has_new && (self.was_again || self.ready.len() == 0) && self.may_take_new() {
                let offset = self.next_new(part);
                if offset < end {
                    self.was_again = false;
                    self.choose_new(part, offset, chosen, exhausted);
                    continue;
                }
            }
            let Some(offset) = self.ready.pop() else { return };
            self.was_again = true;
            self.choose_known(part, offset, chosen, exhausted);
        }
    }

    /// A record that was ready. It stays known, in no order for now, so that it is not chosen as a new one too.
    fn choose_known(
        &mut self,
        part: &Part,
        offset: Offset,
        chosen: &mut Vec<Chosen>,
        exhausted: &mut Vec<Delivered>,
    ) {
        let known = self.known.get_mut(&offset).expect("what is in an order is known");
        let Known { fence: previous, attempts, key, lane, .. } = *known;
        if part.is_settled(offset) {
            self.known.remove(&offset);
            self.leave_line(key, offset);
        } else if is_exhausted(&self.rules, attempts) {
            known.state = State::Settling(None);
            exhausted.push(Delivered { offset, attempts });
        } else {
            chosen.push(Chosen { offset, attempts, previous, key, lane });
        }
    }

    fn choose_new(
        &mut self,
        part: &Part,
        offset: Offset,
        chosen: &mut Vec<Chosen>,
        exhausted: &mut Vec<Delivered>,
    ) {
        self.next = offset.plus(1);
        let attempts = part.attempts(offset);
        if is_exhausted(&self.rules, attempts) {
            exhausted.push(Delivered { offset, attempts });
            self.put(offset, Known { attempts, ..Known::new(Arc::from(""), State::Settling(None)) });
        } else {
            let (previous, key, lane) = (Fence(0), Key::NONE, Lane::default());
            chosen.push(Chosen { offset, attempts, previous, key, lane });
        }
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
            self.remove(offset);
        }
    }

    /// Drops what the part has settled of a range, whoever holds it: of what is not there no delivery comes to an end
    /// by itself.
    pub fn forget_settled_in(&mut self, part: &Part, range: Range<Offset>) {
        let known = self.known.range(range).map(|(offset, _)| *offset);
        let settled: Vec<_> = known.filter(|offset| part.is_settled(*offset)).collect();
        settled.into_iter().for_each(|offset| _ = self.remove(offset));
    }

    /// Puts a record where its state says, or behind the one that holds its key. It must not be in an order.
    pub(super) fn put(&mut self, offset: Offset, mut known: Known) {
        known.state = self.lines.admit(known.key, offset, known.state);
        self.enter(offset, known.state, known.lane);
        if offset >= self.next {
            self.ahead_end = self.ahead_end.max(offset.plus(1));
        }
        self.known.insert(offset, known);
    }

    /// Takes a known record out; whoever waited for its key holds it.
    pub(super) fn remove(&mut self, offset: Offset) -> Known {
        let known = self.known.remove(&offset).expect("what is in an order is known");
        self.leave(offset, known.state, known.lane);
        self.leave_line(known.key, offset);
        known
    }

    /// Changes a known record in its place, and where it is found by.
    pub(super) fn change(&mut self, offset: Offset, change: impl FnOnce(&mut Known)) {
        self.change_known(offset, change).expect("what is in an order is known");
    }

    /// The same if it is known; its deliveries then.
    pub(super) fn change_known(&mut self, offset: Offset, change: impl FnOnce(&mut Known)) -> Option<u32> {
        let known = self.known.get_mut(&offset)?;
        let (old, old_lane) = (known.state, known.lane);
        change(known);
        if matches!(old, State::Blocked(_)) {
            self.lines.unblock(known.key, offset);
        }
        known.state = self.lines.admit(known.key, offset, known.state);
        let (new, lane, attempts) = (known.state, known.lane, known.attempts);
        match (old, new) {
            // The pull keeps it.
            (State::Leased(old), State::Leased(new)) if old.pull == new.pull => {
                self.leased.remove(&(old.deadline, offset));
            }
            _ => self.leave(offset, old, old_lane),
        }
        self.enter(offset, new, lane);
        Some(attempts)
    }

    fn enter(&mut self, offset: Offset, state: State, lane: Lane) {
        match state {
            State::Leased(lease) => _ = self.leased.insert((lease.deadline, offset)),
            State::Waiting(due) => _ = self.waiting.insert((due, offset)),
            State::Free(since) => self.ready.insert(lane, Some(since), offset),
            State::Fresh => self.ready.insert(lane, None, offset),
            State::Settling(_) | State::Blocked(_) => {}
        }
    }

    fn leave(&mut self, offset: Offset, state: State, lane: Lane) {
        match state {
            State::Leased(lease) => {
                self.leased.remove(&(lease.deadline, offset));
                self.pulls.end(lease.pull, offset);
            }
            State::Waiting(due) => _ = self.waiting.remove(&(due, offset)),
            State::Free(since) => self.ready.remove(lane, Some(since), offset),
            State::Fresh => self.ready.remove(lane, None, offset),
            State::Settling(_) | State::Blocked(_) => {}
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
