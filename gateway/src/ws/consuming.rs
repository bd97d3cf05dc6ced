//! One channel that consumes a subscription: delivery numbers, credit, and what becomes of deliveries. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_protocol::ids::{Name, PartitionId};
use weir_protocol::limits::SETTLE_ITEMS_MAX;
use weir_protocol::rpc::{Credit, GrantRun, NotDone, SettleAction, SettleOutcome, SettleRun};
use weir_protocol::ws::{
    Extended, LeaseLost, LeaseRef, Limit, Lost, LostResult, NumberRange, ServerFrame, Settled, Takeover,
};

use super::amount::Amount;
use super::window::Window;

/// Runs of deliveries that a channel remembers; beyond, the oldest are told as lost.
const OPEN_MAX: usize = 8_192;
/// Settles of one channel under way at once; what comes meanwhile goes together.
const CALLS_MAX: usize = 32;
/// Leases that are settled together in one run.
const RUN_MAX: u32 = 4_096;
/// Bytes of one settle, well below what a frame to a node carries.
const CALL_BYTES_MAX: usize = 1 << 20;
/// What a run takes of them, besides its reason.
const RUN_BYTES: usize = 64;

const _: () = assert!((RUN_MAX as usize) < SETTLE_ITEMS_MAX, "a run fits a call");

/// ```text
///   sent ≤ limit        in messages; in bytes the last record may overshoot
///   open                deliveries of which it is not decided yet what becomes, by number
///   pending ─▶ calls    what was asked for them, on its way to their partitions
/// ```
/// Numbers below the first open one are settled or lost. What is asked twice is done once.
#[derive(Debug)]
pub(super) struct Consuming {
    n: u64,
    sent: Amount,
    limit: Amount,
    open: BTreeMap<u64, Open>,
    pending: BTreeMap<u32, Vec<Asked>>,
    pending_runs: usize,
    calls: Window<Call>,
    told: Told,
    told_upto: u64,
    /// Names of the subscription's parts by number, once they are known: nothing is settled before. There may be more
    /// later, and a topic that was deleted and created again has another.
    parts: BTreeMap<u32, PartName>,
    is_started: bool,
    /// What is acknowledged covers all before it of its part.
    is_stream: bool,
    /// Leases that were named before.
    early: Vec<(LeaseRef, Arc<What>)>,
    /// The client has closed it: forgotten when everything it asked for is done.
    pub(super) is_leaving: bool,
}

/// A part as clients name it: the topic, if there are several, and the partition.
pub(super) type PartName = (Option<Name>, PartitionId);

/// Consecutive deliveries with consecutive offsets and fences.
#[derive(Debug, Clone, Copy)]
struct Open {
    count: u64,
    part: u32,
    offset: u64,
    fence: u64,
    /// What becomes of it is on its way.
    is_settling: bool,
}

/// What was asked for some leases.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Asked {
    /// Number of the first, if they were named by numbers.
    n: Option<u64>,
    offset: u64,
    fence: u64,
    count: u32,
    what: Arc<What>,
}

/// What shall become of leases.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct What {
    pub(super) action: SettleAction,
    pub(super) ms: Option<u64>,
    pub(super) reason: String,
}

/// Which leases.
#[derive(Debug, Clone, Copy)]
pub(super) struct Which<'a> {
    pub(super) n: &'a [NumberRange],
    /// Everything up to the highest of them as well.
    pub(super) cum: bool,
    pub(super) leases: &'a [LeaseRef],
}

/// A settle under way.
#[derive(Debug)]
struct Call {
    part: u32,
    asked: Vec<Asked>,
}

/// A settle to be sent.
#[derive(Debug)]
pub(super) struct Sent {
    pub(super) call: u64,
    pub(super) part: u32,
    pub(super) runs: Vec<SettleRun>,
}

/// What there is to tell at the end of a turn.
#[derive(Debug, Default)]
struct Told {
    settled: Settled,
    lost: Vec<Lost>,
    extended: BTreeMap<u64, Extended>,
}

/// A number that was never delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NeverDelivered(pub(super) u64);

impl Consuming {
    /// A channel with its first limit; numbers go on after `last`.
    pub(super) fn new(limit: Limit, last: u64) -> Self {
        Self {
            n: last,
            sent: Amount::default(),
            limit: Amount { msgs: limit.msgs, bytes: limit.bytes },
            open: BTreeMap::new(),
            pending: BTreeMap::new(),
            pending_runs: 0,
            calls: Window::default(),
            told: Told::default(),
            told_upto: last,
            parts: BTreeMap::new(),
            is_started: false,
            is_stream: false,
            early: Vec::new(),
            is_leaving: false,
        }
    }

    /// The subscription was found.
    pub(super) fn started(&mut self, parts: &[PartName], is_stream: bool) {
        self.parts = (0..).zip(parts.iter().cloned()).collect();
        (self.is_started, self.is_stream) = (true, is_stream);
        for (lease, what) in std::mem::take(&mut self.early) {
            self.pending_runs -= 1;
            self.ask_lease(&lease, &what);
        }
    }

    /// Nothing but acknowledgements makes sense.
    pub(super) fn is_stream(&self) -> bool {
        self.is_stream
    }

    pub(super) fn credit(&self) -> Credit {
        Credit { records: self.limit.msgs, bytes: self.limit.bytes }
    }

    /// Raises the limit; false if it was as high before.
    pub(super) fn raise(&mut self, limit: Limit) -> bool {
        let raised =
            Amount { msgs: self.limit.msgs.max(limit.msgs), bytes: self.limit.bytes.max(limit.bytes) };
        std::mem::replace(&mut self.limit, raised) != raised
    }

    /// Numbers deliveries; the number of the first. `None` if there is no credit for them, which is a defect of
    /// whoever sent them. `last_bytes` gives the size of the last record; asked for only if it matters.
    pub(super) fn deliver(
        &mut self,
        (part, name): (u32, PartName),
        runs: &[GrantRun],
        amount: Amount,
        last_bytes: impl FnOnce() -> u64,
    ) -> Option<u64> {
        let after = self.sent.plus(amount);
        if !self.limit.allows(after, last_bytes) {
            return None;
        }
        let first = self.n + 1;
        self.parts.entry(part).or_insert(name);
        for run in runs {
            let open = Open {
                count: run.count.into(),
                part,
                offset: run.offset,
                fence: run.fence,
                is_settling: false,
            };
            self.open_run(open);
        }
        self.sent = after;
        self.forget_oldest();
        Some(first)
    }

    fn open_run(&mut self, open: Open) {
        let n = self.n + 1;
        self.n += open.count;
        // Who acknowledges now and then shall not be told that the oldest are lost.
        if let Some(mut last) = self.open.last_entry().filter(|_| self.is_stream) {
            let (first, last) = (*last.key(), last.get_mut());
            let follows = (first + last.count, last.offset + last.count, last.fence + last.count)
                == (n, open.offset, open.fence);
            if follows && last.part == open.part && !last.is_settling {
                last.count += open.count;
                return;
            }
        }
        self.open.insert(n, open);
    }

    /// What is told as lost can still be settled by its lease.
    fn forget_oldest(&mut self) {
        while self.open.len() > OPEN_MAX {
            let Some((n, open)) =
                self.open.iter().find(|(_, open)| !open.is_settling).map(|(n, open)| (*n, *open))
            else {
                return;
            };
            self.open.remove(&n);
            let (topic, p) = self.name_of(open.part);
            let lost = |at: u64| Lost {
                n: Some(n + at),
                topic: topic.clone(),
                p,
                o: open.offset + at,
                fence: open.fence + at,
                result: LostResult::Unknown,
                current: None,
            };
            self.told.lost.extend((0..open.count).map(lost));
        }
    }

    /// Something shall become of some leases. Numbers of which it is decided, or on its way, are passed over.
    pub(super) fn ask(&mut self, which: Which<'_>, what: &What) -> Result<(), NeverDelivered> {
        let highest = which.n.iter().map(|range| range.last).max();
        if let Some(wrong) = highest.filter(|highest| *highest > self.n) {
            return Err(NeverDelivered(wrong));
        }
        let what = &Arc::new(what.clone());
        match highest.filter(|_| which.cum) {
            Some(highest) => self.ask_range(0, highest, what),
            None => {
                let mut ranges = joined(which.n);
                if self.is_stream {
                    ranges = self.covered(&ranges);
                }
                ranges.iter().for_each(|range| self.ask_range(range.first, range.last, what));
            }
        }
        which.leases.iter().for_each(|lease| self.ask_lease(lease, what));
        Ok(())
    }

    /// What these numbers acknowledge of a stream: with them, all before them of the same parts.
    fn covered(&self, ranges: &[NumberRange]) -> Vec<NumberRange> {
        let mut last_of = BTreeMap::new();
        for range in ranges {
            let before = self.open.range(..range.first).next_back().map_or(range.first, |(n, _)| *n);
            for (n, open) in self.open.range(before..=range.last) {
                let last = (n + open.count - 1).min(range.last);
                if last >= range.first {
                    last_of.insert(open.part, last);
                }
            }
        }
        let highest = last_of.values().copied().max().unwrap_or(0);
        let covered = self.open.range(..=highest).filter_map(|(n, open)| {
            let last = (n + open.count - 1).min(*last_of.get(&open.part)?);
            (*n <= last).then_some(NumberRange { first: *n, last })
        });
        covered.collect()
    }

    fn ask_lease(&mut self, lease: &LeaseRef, what: &Arc<What>) {
        if !self.is_started {
            self.pending_runs += 1;
            return self.early.push((lease.clone(), Arc::clone(what)));
        }
        let asked = Asked { n: None, offset: lease.o, fence: lease.fence, count: 1, what: Arc::clone(what) };
        let is_meant = |(topic, partition): &PartName| {
            *partition == PartitionId(lease.p) && topic.as_ref().map(Name::as_str) == lease.topic.as_deref()
        };
        // Of a topic that was created again the newest life is meant.
        match self.parts.iter().rev().find(|(_, name)| is_meant(name)) {
            Some((part, _)) => self.push(*part, asked),
            None => {
                let lost = Lost {
                    n: None,
                    topic: lease.topic.clone(),
                    p: lease.p,
                    o: lease.o,
                    fence: lease.fence,
                    result: LostResult::Unknown,
                    current: None,
                };
                self.told.lost.push(lost);
            }
        }
    }

    /// What clients call a part.
    fn name_of(&self, part: u32) -> (Option<String>, u32) {
        let (topic, partition) = self.parts.get(&part).cloned().unwrap_or((None, PartitionId(part)));
        (topic.map(|topic| topic.to_string()), partition.0)
    }

    fn ask_range(&mut self, first: u64, last: u64, what: &Arc<What>) {
        let before = self.open.range(..first).next_back().map_or(first, |(n, _)| *n);
        let touched: Vec<_> = self.open.range(before..=last).map(|(n, open)| (*n, *open)).collect();
        for (n, open) in touched {
            let (from, to) = (n.max(first), (n + open.count - 1).min(last));
            if open.is_settling || from > to {
                continue;
            }
            if what.action != SettleAction::Extend {
                self.carve(n, open, from, to);
            }
            let mut at = from;
            while at <= to {
                let count = (to - at + 1).min(RUN_MAX.into());
                let asked = Asked {
                    n: Some(at),
                    offset: open.offset + (at - n),
                    fence: open.fence + (at - n),
                    count: u32::try_from(count).expect("at most RUN_MAX"),
                    what: Arc::clone(what),
                };
                self.push(open.part, asked);
                at += count;
            }
        }
    }

    /// Makes `[from, to]` of an open run a run of its own that is settling.
    fn carve(&mut self, n: u64, open: Open, from: u64, to: u64) {
        self.open.remove(&n);
        let part = |first: u64, last: u64, is_settling| Open {
            count: last + 1 - first,
            offset: open.offset + (first - n),
            fence: open.fence + (first - n),
            is_settling,
            ..open
        };
        if from > n {
            self.open.insert(n, part(n, from - 1, false));
        }
        self.open.insert(from, part(from, to, true));
        if to + 1 < n + open.count {
            self.open.insert(to + 1, part(to + 1, n + open.count - 1, false));
        }
    }

    fn push(&mut self, part: u32, asked: Asked) {
        let pending = self.pending.entry(part).or_default();
        let follows = |last: &&mut Asked| {
            let count = u64::from(last.count);
            last.n.is_some_and(|n| Some(n + count) == asked.n)
                && last.offset + count == asked.offset
                && last.fence + count == asked.fence
                && last.count + asked.count <= RUN_MAX
                && last.what == asked.what
        };
        if let Some(last) = pending.last_mut().filter(follows) {
            last.count += asked.count;
            return;
        }
        pending.push(asked);
        self.pending_runs += 1;
    }

    /// What is to be sent now.
    pub(super) fn take_calls(&mut self) -> Vec<Sent> {
        if !self.is_started {
            return Vec::new();
        }
        let mut sent = Vec::new();
        while self.calls.len() < CALLS_MAX
            && let Some((part, mut asked)) = self.pending.pop_first()
        {
            let (mut total, mut bytes) = (0, 0);
            let is_more = asked.iter().position(|asked| {
                total += asked.count as usize;
                bytes += RUN_BYTES + asked.what.reason.len();
                total > SETTLE_ITEMS_MAX || bytes > CALL_BYTES_MAX
            });
            if let Some(place) = is_more {
                self.pending.insert(part, asked.split_off(place));
            }
            self.pending_runs -= asked.len();
            let runs = asked.iter().map(Asked::run).collect();
            let call = self.calls.push(Call { part, asked });
            sent.push(Sent { call, part, runs });
        }
        sent
    }

    /// A settle is done but for these.
    pub(super) fn answered(&mut self, call: u64, not_done: &[NotDone]) {
        let Some(Call { part, asked }) = self.calls.take(call) else { return };
        let mut not_done = not_done.iter().peekable();
        for (run, asked) in (0u32..).zip(&asked) {
            let mut at = 0;
            while let Some(lost) = not_done.next_if(|lost| lost.run == run) {
                self.tell_done(part, asked, at, lost.place);
                self.tell_lost(part, asked, lost.place, why(lost));
                at = lost.place + 1;
            }
            self.tell_done(part, asked, at, asked.count);
            if let (Some(n), false) = (asked.n, asked.what.action == SettleAction::Extend) {
                self.forget(n, n + u64::from(asked.count) - 1);
            }
        }
    }

    /// The places `[from, to)` of a run are done.
    fn tell_done(&mut self, part: u32, asked: &Asked, from: u32, to: u32) {
        if from >= to {
            return;
        }
        let (topic, p) = self.name_of(part);
        let (numbers, leases) = if let (SettleAction::Extend, Some(ms)) = (asked.what.action, asked.what.ms) {
            let extended =
                self.told.extended.entry(ms).or_insert_with(|| Extended { ms, ..Extended::default() });
            (&mut extended.n, &mut extended.leases)
        } else {
            (&mut self.told.settled.n, &mut self.told.settled.leases)
        };
        match asked.n {
            Some(n) => add(numbers, n + u64::from(from), n + u64::from(to) - 1),
            None => leases.extend((from..to).map(|at| {
                let at = u64::from(at);
                LeaseRef { topic: topic.clone(), p, o: asked.offset + at, fence: asked.fence + at }
            })),
        }
    }

    fn tell_lost(
        &mut self,
        part: u32,
        asked: &Asked,
        place: u32,
        (result, current): (LostResult, Option<Takeover>),
    ) {
        let at = u64::from(place);
        let n = asked.n.map(|n| n + at);
        let (o, fence) = (asked.offset.saturating_add(at), asked.fence.saturating_add(at));
        let (topic, p) = self.name_of(part);
        self.told.lost.push(Lost { n, topic, p, o, fence, result, current });
        // Of what cannot be extended nothing will become here.
        if let (Some(n), SettleAction::Extend) = (n, asked.what.action) {
            let found = self.open.range(..=n).next_back().map(|(first, open)| (*first, *open));
            if let Some((first, open)) =
                found.filter(|(first, open)| !open.is_settling && n < first + open.count)
            {
                self.carve(first, open, n, n);
                self.forget(n, n);
            }
        }
    }

    /// It is decided what becomes of these numbers.
    fn forget(&mut self, first: u64, last: u64) {
        let decided: Vec<u64> = self.open.range(first..=last).map(|(n, _)| *n).collect();
        for n in decided {
            self.open.remove(&n);
        }
    }

    /// What there is to say.
    pub(super) fn take_frames(&mut self) -> Vec<ServerFrame> {
        let Told { mut settled, lost, extended } = std::mem::take(&mut self.told);
        let upto = self.open.first_key_value().map_or(self.n, |(n, _)| n - 1);
        let (mut frames, has_lost) = (Vec::new(), !lost.is_empty());
        // Losses first: whoever is told of a number knows what became of everything up to it.
        if has_lost {
            let mut n = Vec::new();
            lost.iter().filter_map(|lost| lost.n).for_each(|number| add(&mut n, number, number));
            frames.push(ServerFrame::LeaseLost(LeaseLost { n, lost }));
        }
        if !settled.n.is_empty() || !settled.leases.is_empty() || (has_lost && upto > self.told_upto) {
            (settled.upto, self.told_upto) = (upto, upto);
            frames.push(ServerFrame::Settled(settled));
        }
        frames.extend(extended.into_values().map(ServerFrame::Extended));
        frames
    }

    /// Everything that was asked for is done and told.
    pub(super) fn is_idle(&self) -> bool {
        self.calls.len() == 0 && self.pending.is_empty() && self.early.is_empty()
    }

    /// Some deliveries wait for the client, or for their partition.
    pub(super) fn is_busy(&self) -> bool {
        !self.open.is_empty() || !self.is_idle()
    }

    /// Runs that wait for earlier settles.
    pub(super) fn pending_runs(&self) -> usize {
        self.pending_runs
    }
}

impl Asked {
    fn run(&self) -> SettleRun {
        SettleRun {
            offset: self.offset,
            fence: self.fence,
            count: self.count,
            action: self.what.action as i32,
            ms: self.what.ms,
            reason: self.what.reason.clone(),
        }
    }
}

fn why(lost: &NotDone) -> (LostResult, Option<Takeover>) {
    let result = match lost.outcome() {
        SettleOutcome::LeaseLost => LostResult::LeaseLost,
        SettleOutcome::AlreadySettled => LostResult::AlreadySettled,
        SettleOutcome::Unknown | SettleOutcome::Done => LostResult::Unknown,
    };
    (result, lost.current.map(|grant| Takeover { attempt: grant.attempt, fence: grant.fence }))
}

/// The same numbers, each once, in order: however often a client names one, it costs one look.
fn joined(ranges: &[NumberRange]) -> Vec<NumberRange> {
    let mut ranges = ranges.to_vec();
    ranges.sort_unstable_by_key(|range| range.first);
    ranges.dedup_by(|next, last| {
        let is_joined = next.first <= last.last.saturating_add(1);
        if is_joined {
            last.last = last.last.max(next.last);
        }
        is_joined
    });
    ranges
}

/// Adds numbers behind those that are there.
fn add(ranges: &mut Vec<NumberRange>, first: u64, last: u64) {
    match ranges.last_mut() {
        Some(range) if range.last + 1 == first => range.last = last,
        _ => ranges.push(NumberRange { first, last }),
    }
}

#[cfg(test)]
mod tests;
