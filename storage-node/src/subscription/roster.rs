//! Which consumer of a stream reads which of its parts: in the memory of the subscription's home shard's
//! leader only. Pure: no clock, no I/O.
//!
//! ```text
//!   Roster (home shard): whose each part is to be          Cursor (each part's shard): who reads it
//!     attend, leave, expire ─▶ lot ──▶ consumer ──▶ begin under the lot ─▶ who has a lower one yields
//! ```
//! What is given here is advice: that one reads at a time is the [`Cursor`](super::Cursor)'s. So a roster may
//! be lost or begun anew at any time, and a consumer that learns late of a change only reads a little longer.
//!
//! Shares are even and sticky: a part moves only if its consumer is gone, or has at least two more than the
//! one that gets it. A consumer whose call broke off is in its grace: it keeps what it has until that is over, and
//! gets nothing more before it asks again.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use weir_protocol::ids::{Incarnation, PartitionId, TimestampMs};
use weir_protocol::limits::SHARE_CONSUMERS_MAX;

/// A part of the subscription.
pub type SharedPart = (Incarnation, PartitionId);

/// Names one giving of one part; higher for each that follows, across leaders of the home shard. 0: parts are
/// not given.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lot(pub u64);

/// The consumers of one stream, and what each is to read.
#[derive(Debug)]
pub struct Roster {
    next_lot: Lot,
    /// Calls take no lots: those of a term are to last.
    next_call: u64,
    consumers: BTreeMap<Arc<str>, Consumer>,
    given: BTreeMap<SharedPart, Given>,
    /// Those that another came in the place of, and until when that is remembered: a connection may hang and
    /// go on asking.
    replaced: BTreeMap<Arc<str>, TimestampMs>,
}

#[derive(Debug)]
struct Consumer {
    /// What it can read, sorted.
    knows: Arc<[SharedPart]>,
    /// It is gone then, unless it has asked again.
    until: TimestampMs,
    /// Its newest call.
    call: u64,
    /// That call broke off: nobody knows whether it comes back.
    is_away: bool,
    /// Lot of the newest change of its share.
    version: Lot,
}

#[derive(Debug)]
struct Given {
    to: Arc<str>,
    lot: Lot,
}

/// A consumer asks for its share.
#[derive(Debug)]
pub struct Attend<'a> {
    /// Who; nobody else.
    pub holder: &'a Arc<str>,
    /// It has what holders with names that begin so had.
    pub takes_over: Option<&'a str>,
    /// What it can read, sorted.
    pub knows: Arc<[SharedPart]>,
    /// It is gone then, unless it has asked again.
    pub until: TimestampMs,
}

/// What a consumer is to read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Portion {
    /// Another one has a higher number.
    pub version: Lot,
    /// The parts, each with the lot to read it under.
    pub parts: Vec<(SharedPart, Lot)>,
}

/// What a change came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Shifted {
    /// Somebody's share is another now.
    pub is_changed: bool,
    /// Parts that went from one consumer to another.
    pub moved: usize,
}

impl Roster {
    /// Nobody reads. Lots begin at `next_lot`, above all that were given before.
    #[must_use]
    pub fn new(next_lot: Lot) -> Self {
        let (consumers, given, replaced) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { next_lot, next_call: 1, consumers, given, replaced }
    }

    /// A consumer comes, or asks again. Returns its call, for [`Roster::answered`].
    pub fn attend(&mut self, ask: Attend<'_>) -> (u64, Shifted) {
        let Attend { holder, takes_over, knows, until } = ask;
        let call = self.next_call;
        self.next_call += 1;
        if let Some(remembered) = self.replaced.get_mut(holder) {
            *remembered = until;
            return (call, Shifted::default());
        }
        let mut is_changed = takes_over.is_some_and(|old| self.take_over(old, holder, until));
        match self.consumers.get_mut(holder) {
            Some(known) => {
                is_changed |= known.knows != knows || known.is_away;
                *known = Consumer { knows, until, call, is_away: false, version: known.version };
            }
            None => {
                is_changed = true;
                let consumer = Consumer { knows, until, call, is_away: false, version: self.take_lot() };
                self.consumers.insert(Arc::clone(holder), consumer);
            }
        }
        let shifted = if is_changed { self.level() } else { Shifted::default() };
        (call, Shifted { is_changed: is_changed || shifted.is_changed, ..shifted })
    }

    /// A call of a consumer is over, with an answer or because it broke off: it is gone then, unless it has asked
    /// again or does.
    pub fn answered(&mut self, holder: &str, call: u64, until: TimestampMs, is_away: bool) {
        if let Some(consumer) = self.consumers.get_mut(holder).filter(|consumer| consumer.call == call) {
            (consumer.until, consumer.is_away) = (until, is_away);
        }
    }

    /// A consumer leaves: what it had is others' at once.
    pub fn leave(&mut self, holder: &str) -> Shifted {
        match self.consumers.remove(holder) {
            Some(_) => Shifted { is_changed: true, ..self.level() },
            None => Shifted::default(),
        }
    }

    /// Those that did not ask again in time are gone.
    pub fn expire(&mut self, now: TimestampMs) -> Shifted {
        let before = self.consumers.len();
        self.replaced.retain(|_, until| *until > now);
        self.consumers.retain(|_, consumer| consumer.until > now);
        if self.consumers.len() == before {
            return Shifted::default();
        }
        Shifted { is_changed: true, ..self.level() }
    }

    /// When the next one is gone if it does not ask again.
    #[must_use]
    pub fn next_expiry(&self) -> Option<TimestampMs> {
        self.consumers.values().map(|consumer| consumer.until).min()
    }

    /// What a consumer is to read.
    #[must_use]
    pub fn portion(&self, holder: &str) -> Portion {
        let Some(consumer) = self.consumers.get(holder) else { return Portion::default() };
        let its = self.given.iter().filter(|(_, given)| *given.to == *holder);
        Portion { version: consumer.version, parts: its.map(|(part, given)| (*part, given.lot)).collect() }
    }

    /// Number of consumers.
    #[must_use]
    pub fn len(&self) -> usize {
        self.consumers.len()
    }

    /// Nobody reads.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.consumers.is_empty()
    }

    /// Everybody is gone by now, also who was not expired yet.
    #[must_use]
    pub fn is_over(&self, now: TimestampMs) -> bool {
        self.consumers.values().all(|consumer| consumer.until <= now)
    }

    /// There is no place for one more, this one: it is none that is there, nor does it come in the place of any.
    #[must_use]
    pub fn is_full_for(&self, holder: &str, takes_over: Option<&str>) -> bool {
        let is_here = self.has(holder) || self.replaced.contains_key(holder);
        let goes = |name: &Arc<str>| takes_over.is_some_and(|old| name.starts_with(old));
        !is_here
            && self.len() >= SHARE_CONSUMERS_MAX
            && self.consumers.keys().filter(|name| !goes(name)).count() >= SHARE_CONSUMERS_MAX
    }

    /// Whether a consumer is known.
    #[must_use]
    pub fn has(&self, holder: &str) -> bool {
        self.consumers.contains_key(holder)
    }

    /// Lots from here on were not given.
    #[must_use]
    pub fn next_lot(&self) -> Lot {
        self.next_lot
    }

    fn take_lot(&mut self) -> Lot {
        let lot = self.next_lot;
        self.next_lot = Lot(lot.0 + 1);
        lot
    }

    /// What holders with names that begin with `old` have is the new one's; under new lots, for the old calls
    /// may still be there. True if there was such a holder.
    fn take_over(&mut self, old: &str, new: &Arc<str>, until: TimestampMs) -> bool {
        let from = (Bound::Included(old), Bound::Unbounded);
        let names = self.consumers.range::<str, _>(from).map(|(name, _)| Arc::clone(name));
        let names: Vec<_> =
            names.take_while(|name| name.starts_with(old)).filter(|name| name != new).collect();
        let mut next = self.next_lot.0;
        for name in &names {
            self.consumers.remove(name);
            self.replaced.insert(Arc::clone(name), until);
            for given in self.given.values_mut().filter(|given| given.to == *name) {
                *given = Given { to: Arc::clone(new), lot: Lot(next) };
                next += 1;
            }
        }
        // Who is forgotten too early counts as one more consumer, for as long as its connection hangs.
        while self.replaced.len() > SHARE_CONSUMERS_MAX {
            self.replaced.pop_first();
        }
        self.next_lot = Lot(next);
        !names.is_empty()
    }

    /// Gives away what is nobody's, and from who has more to who has at least two less, until there is no such pair.
    /// Who is away gets nothing: what only they could read waits until one of them is back.
    fn level(&mut self) -> Shifted {
        let Self { consumers, given, .. } = self;
        let is_good = |part: &SharedPart, given: &Given| {
            consumers.get(&given.to).is_some_and(|consumer| consumer.can_read(part))
        };
        let (kept, freed): (BTreeMap<_, _>, BTreeMap<_, _>) =
            std::mem::take(given).into_iter().partition(|(part, given)| is_good(part, given));
        *given = kept;
        let mut shares: BTreeMap<Arc<str>, Vec<SharedPart>> =
            consumers.keys().map(|holder| (Arc::clone(holder), Vec::new())).collect();
        for (part, given) in given.iter() {
            shares.get_mut(&given.to).expect("it was kept for its consumer").push(*part);
        }
        let parts: BTreeSet<SharedPart> =
            consumers.values().flat_map(|consumer| consumer.knows.iter().copied()).collect();
        let mut last = BTreeMap::new();
        for part in parts.into_iter().filter(|part| !given.contains_key(part)) {
            let able = shares.iter().filter(|(holder, _)| consumers[*holder].may_get(&part));
            let least = able.min_by_key(|(_, share)| share.len()).map(|(holder, _)| Arc::clone(holder));
            let Some(least) = least else { continue };
            shares.get_mut(&least).expect("one of them").push(part);
            last.insert(part, least);
        }
        // Of what is given and taken again in here the last word counts.
        last.extend(level(&mut shares, consumers));
        let before = |part| freed.get(part).or_else(|| given.get(part)).map(|given| &given.to);
        let moved = last.iter().filter(|(part, to)| before(part).is_some_and(|before| before != *to)).count();
        let is_changed = !last.is_empty() || !freed.is_empty();
        for Given { to, .. } in freed.into_values() {
            self.touch(&to);
        }
        for (part, to) in last {
            let lot = self.take_lot();
            if let Some(before) = self.given.insert(part, Given { to: Arc::clone(&to), lot }) {
                self.touch(&before.to);
            }
            self.touch(&to);
        }
        debug_assert!(self.check());
        Shifted { is_changed, moved }
    }

    /// Its share is another now.
    fn touch(&mut self, holder: &str) {
        if self.consumers.contains_key(holder) {
            let version = self.take_lot();
            self.consumers.get_mut(holder).expect("looked at just now").version = version;
        }
    }

    /// Every part is given to a consumer that knows it, under a lot of its own.
    fn check(&self) -> bool {
        let lots: BTreeSet<Lot> = self.given.values().map(|given| given.lot).collect();
        let is_known = |(part, given): (&SharedPart, &Given)| {
            self.consumers.get(&given.to).is_some_and(|consumer| consumer.can_read(part))
        };
        lots.len() == self.given.len()
            && lots.last().is_none_or(|lot| *lot < self.next_lot)
            && self.given.iter().all(is_known)
    }
}

impl Consumer {
    fn can_read(&self, part: &SharedPart) -> bool {
        self.knows.binary_search(part).is_ok()
    }

    fn may_get(&self, part: &SharedPart) -> bool {
        !self.is_away && self.can_read(part)
    }
}

/// Moves parts from who has most to who has least, while that makes them more even; of each the newest in the
/// order of parts.
fn level(
    shares: &mut BTreeMap<Arc<str>, Vec<SharedPart>>,
    consumers: &BTreeMap<Arc<str>, Consumer>,
) -> Vec<(SharedPart, Arc<str>)> {
    let mut moves = Vec::new();
    loop {
        let here = shares.iter().filter(|(holder, _)| !consumers[*holder].is_away);
        let least = here.min_by_key(|(_, share)| share.len());
        let most = shares.iter().max_by_key(|(_, share)| share.len());
        let (Some((least, few)), Some((most, many))) = (least, most) else { return moves };
        if many.len() < few.len() + 2 {
            return moves;
        }
        // Who has heard of a new topic first has it for a moment.
        let Some(place) = many.iter().rposition(|part| consumers[least].can_read(part)) else { return moves };
        let (least, most) = (Arc::clone(least), Arc::clone(most));
        let part = shares.get_mut(&most).expect("found just now").remove(place);
        shares.get_mut(&least).expect("found just now").push(part);
        moves.push((part, least));
    }
}
