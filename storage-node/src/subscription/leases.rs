//! Who holds which record, in the memory of a partition's leader.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use weir_protocol::ids::{Offset, TimestampMs};

use super::event::{Delivered, Fence};
use super::part::Part;
use super::pulls::{PullId, PullKey, Pulls};

/// Most records that one call finds exhausted or wakes; what is beyond comes with the next call.
const PER_CALL_MAX: usize = 4096;

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
}

/// A pull.
#[derive(Debug, Clone)]
pub struct Ask {
    /// Now.
    pub now: TimestampMs,
    /// End of the partition: only records below are leased.
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
    /// Those of them that were delivered before: to be logged before any byte of them leaves.
    pub redelivered: Vec<Delivered>,
    /// Records that have had all their deliveries: to be logged as dead, then [`Leases::committed`].
    pub exhausted: Vec<Delivered>,
}

/// The leases of one part. They begin empty with every term of a leader and end with it.
///
/// ```text
///   free, never leased ──take──▶ leased ──settle──▶ settling ──committed──▶ settled: forgotten
///                                 │  ▲                 │ failed     └─ nacked: waiting ──due──▶ free again
///                    expired ─▶ free again ◀───────────┘
/// ```
///
/// Records from `next` on were never leased here and cost nothing, 10 million or none. Every other unsettled record
/// is in `known`, about 120 bytes each and 25 more in one of the three orders: leased ones, at most
/// [`Rules::max_unacked`]; settling ones, as many as are on their way through the log; free ones, which were leased
/// before and go before all others; waiting ones, as many as the part has nacked ([`Part::retries_len`]).
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
    /// Records to lease before all others, by the time since which they are free.
    pub(super) free: BTreeSet<(TimestampMs, Offset)>,
    pub(super) pulls: Pulls,
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
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Leased(Lease),
    /// What was decided is on its way through the log.
    Settling,
    Waiting(TimestampMs),
    Free(TimestampMs),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lease {
    pub(super) deadline: TimestampMs,
    pub(super) taken: TimestampMs,
    pub(super) lease_ms: u64,
    /// The delivery before: what holds again if this one is not sent.
    pub(super) previous: Fence,
    pub(super) pull: PullId,
}

/// A record about to be leased.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Chosen {
    offset: Offset,
    attempts: u32,
    previous: Fence,
}

impl Leases {
    /// The leases of a leader that begins: none. What the part has delayed waits on; everything else unsettled is
    /// free. `fence_base` is the first fence that it will give. After a seek was applied, begin again.
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
            free: BTreeSet::new(),
            pulls: Pulls::default(),
            rules,
        };
        let nobody: Arc<str> = Arc::from("");
        for (offset, retry) in part.retries() {
            let last_chance = leases.is_exhausted(retry.attempts).then(|| after(now, leases.rules.lease_ms));
            if let Some(due) = retry.due.or(last_chance) {
                let holder = Arc::clone(&nobody);
                let state = State::Waiting(due);
                leases.put(offset, Known { fence: Fence(0), attempts: retry.attempts, holder, state });
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

    /// Leases records: first those that were delivered before and are free again, the one that has been free longest
    /// first, then new ones; at most what [`Rules::max_unacked`] leaves. `next_fence` is the first fence to give and
    /// grows by the grants.
    ///
    /// Before a byte leaves, the caller logs [`Taken::redelivered`]; what it does not send it
    /// [releases](Leases::release), and when the bytes leave it says [`Leases::started`].
    pub fn take(&mut self, part: &Part, ask: &Ask, next_fence: &mut Fence) -> Taken {
        let mut taken = Taken { exhausted: self.expire(part, ask.now), ..Taken::default() };
        let room = self.rules.max_unacked.saturating_sub(self.leased.len()).min(ask.max_records);
        let mut chosen = Vec::with_capacity(room.min(PER_CALL_MAX));
        self.choose_free(part, room, &mut chosen, &mut taken.exhausted);
        self.choose_new(part, room, ask.end, &mut chosen, &mut taken.exhausted);
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
        for Chosen { offset, attempts, previous } in chosen {
            let (fence, attempt) = (*next_fence, attempts.saturating_add(1));
            next_fence.0 += 1;
            let state = State::Leased(Lease { deadline, taken: ask.now, lease_ms, previous, pull });
            self.put(offset, Known { fence, attempts: attempt, holder: Arc::clone(&ask.holder), state });
            taken.grants.push(Grant { offset, fence, attempt, deadline });
            if attempt >= 2 {
                taken.redelivered.push(Delivered { offset, attempts: attempt });
            }
        }
        taken
    }

    /// Ends the leases whose time is over and wakes what is due. Returns records that have had all their deliveries:
    /// to be logged as dead, then [`Leases::committed`]. [`Leases::take`] does it too.
    #[must_use = "exhausted records are settling until they are committed or failed"]
    pub fn expire(&mut self, part: &Part, now: TimestampMs) -> Vec<Delivered> {
        self.forget_settled(part);
        let mut exhausted = Vec::new();
        while let Some((at, offset)) = self.leased.first().copied().filter(|(at, _)| *at <= now) {
            self.free_again(offset, at, &mut exhausted);
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
        let (attempts, holder) = (known.attempts - 1, Arc::clone(&known.holder));
        self.remove(offset);
        if lease.previous == Fence(0) && attempts == part.attempts(offset) && offset.plus(1) == self.next {
            self.next = offset;
            return;
        }
        // Before all others: it was its turn.
        let state = State::Free(TimestampMs(0));
        self.put(offset, Known { fence: lease.previous, attempts, holder, state });
    }

    /// The bytes of a lease leave now, and its time begins. Returns its deadline; `None` if it ended meanwhile.
    pub fn started(&mut self, offset: Offset, fence: Fence, now: TimestampMs) -> Option<TimestampMs> {
        let known = self.known.get_mut(&offset).filter(|known| known.fence == fence)?;
        let State::Leased(lease) = &mut known.state else { return None };
        let deadline = after(now, lease.lease_ms);
        self.leased.remove(&(lease.deadline, offset));
        self.leased.insert((deadline, offset));
        lease.deadline = deadline;
        Some(deadline)
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
        has_room && (!self.free.is_empty() || is_over(self.waiting.first()) || self.next_new(part) < end)
    }

    /// When [`Leases::ready`] may become true by itself: a lease ends or a nacked record is due.
    #[must_use]
    pub fn next_event(&self) -> Option<TimestampMs> {
        let firsts = [self.leased.first(), self.waiting.first()];
        firsts.into_iter().flatten().map(|(at, _)| *at).min()
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

    fn choose_free(
        &mut self,
        part: &Part,
        room: usize,
        chosen: &mut Vec<Chosen>,
        exhausted: &mut Vec<Delivered>,
    ) {
        while chosen.len() < room && exhausted.len() < PER_CALL_MAX {
            let Some((_, offset)) = self.free.first().copied() else { return };
            let known = self.remove(offset);
            if part.is_settled(offset) {
                continue;
            }
            if self.is_exhausted(known.attempts) {
                exhausted.push(Delivered { offset, attempts: known.attempts });
                self.put(offset, Known { state: State::Settling, ..known });
            } else {
                chosen.push(Chosen { offset, attempts: known.attempts, previous: known.fence });
            }
        }
    }

    fn choose_new(
        &mut self,
        part: &Part,
        room: usize,
        end: Offset,
        chosen: &mut Vec<Chosen>,
        exhausted: &mut Vec<Delivered>,
    ) {
        while chosen.len() < room && exhausted.len() < PER_CALL_MAX {
            let offset = self.next_new(part);
            if offset >= end {
                return;
            }
            self.next = offset.plus(1);
            let attempts = part.attempts(offset);
            if self.is_exhausted(attempts) {
                exhausted.push(Delivered { offset, attempts });
                let (fence, holder) = (Fence(0), Arc::from(""));
                self.put(offset, Known { fence, attempts, holder, state: State::Settling });
            } else {
                chosen.push(Chosen { offset, attempts, previous: Fence(0) });
            }
        }
    }

    fn free_again(&mut self, offset: Offset, at: TimestampMs, exhausted: &mut Vec<Delivered>) {
        let known = self.remove(offset);
        let attempts = known.attempts;
        let is_exhausted = self.is_exhausted(attempts);
        if is_exhausted {
            exhausted.push(Delivered { offset, attempts });
        }
        let state = if is_exhausted { State::Settling } else { State::Free(at) };
        self.put(offset, Known { state, ..known });
    }

    pub(super) fn is_exhausted(&self, attempts: u32) -> bool {
        self.rules.max_attempts > 0 && attempts >= self.rules.max_attempts
    }

    /// Drops what lies below the part's floor, as after a trim.
    pub(super) fn forget_settled(&mut self, part: &Part) {
        self.next = self.next.max(part.floor());
        while let Some((offset, _)) =
            self.known.first_key_value().filter(|(offset, _)| **offset < part.floor())
        {
            let offset = *offset;
            self.remove(offset);
        }
    }

    /// Puts a record where its state says. It must not be known.
    pub(super) fn put(&mut self, offset: Offset, known: Known) {
        if let Some((order, at)) = self.order(known.state) {
            order.insert((at, offset));
        }
        if offset >= self.next {
            self.ahead_end = self.ahead_end.max(offset.plus(1));
        }
        let old = self.known.insert(offset, known);
        debug_assert!(old.is_none(), "{offset} was known as {old:?}");
    }

    /// Takes a known record out.
    pub(super) fn remove(&mut self, offset: Offset) -> Known {
        let known = self.known.remove(&offset).expect("what is in an order is known");
        if let Some((order, at)) = self.order(known.state) {
            order.remove(&(at, offset));
        }
        if let State::Leased(lease) = known.state {
            self.pulls.end(lease.pull, offset);
        }
        known
    }

    fn order(&mut self, state: State) -> Option<(&mut BTreeSet<(TimestampMs, Offset)>, TimestampMs)> {
        match state {
            State::Leased(lease) => Some((&mut self.leased, lease.deadline)),
            State::Waiting(due) => Some((&mut self.waiting, due)),
            State::Free(since) => Some((&mut self.free, since)),
            State::Settling => None,
        }
    }
}

impl Known {
    pub(super) fn grant(&self, offset: Offset, deadline: TimestampMs) -> Grant {
        Grant { offset, fence: self.fence, attempt: self.attempts, deadline }
    }
}

/// A time `ms` later.
pub(super) fn after(now: TimestampMs, ms: u64) -> TimestampMs {
    TimestampMs(now.0.saturating_add(ms))
}
