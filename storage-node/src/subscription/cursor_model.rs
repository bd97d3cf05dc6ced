//! The property that a stream loses nothing: whoever reads, leaves, is silent, yields or is replaced,
//! whatever is acknowledged, late or twice, and wherever a seek, retention or a crash comes between.

use std::ops::Range;
use std::sync::Arc;

use proptest::prelude::*;
use weir_protocol::ids::{Offset, TimestampMs};

use super::*;

const END: u64 = 30;
const HOLDERS: usize = 3;
const PATIENCE_MS: u64 = 1_000;

#[derive(Debug, Clone)]
enum Step {
    /// Looks for up to so many records, by a pull or by its connection.
    Read {
        who: usize,
        is_connected: bool,
        count: u64,
    },
    /// Its call is made anew.
    Connect {
        who: usize,
    },
    /// Acknowledges one of the records that it was ever shown.
    Ack {
        who: usize,
        which: prop::sample::Index,
    },
    /// The first acknowledgement that waits is committed, with what was accepted since.
    Commit,
    /// The same is refused.
    Refuse,
    Leave {
        who: usize,
        grace_ms: u64,
    },
    /// The part is given to it, and others learn of it when it comes.
    Give {
        who: usize,
    },
    Wait {
        ms: u64,
    },
    Seek {
        to: u64,
    },
    Trim {
        to: u64,
    },
    /// Another leader: nothing in memory is left.
    Crash,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let who = || 0..HOLDERS;
    let step = prop_oneof![
        8 => (who(), any::<bool>(), 1u64..8).prop_map(|(who, is_connected, count)| Step::Read { who, is_connected, count }),
        2 => who().prop_map(|who| Step::Connect { who }),
        8 => (who(), any::<prop::sample::Index>()).prop_map(|(who, which)| Step::Ack { who, which }),
        6 => Just(Step::Commit),
        1 => Just(Step::Refuse),
        2 => (who(), 0u64..1_500).prop_map(|(who, grace_ms)| Step::Leave { who, grace_ms }),
        2 => who().prop_map(|who| Step::Give { who }),
        3 => (0u64..1_500).prop_map(|ms| Step::Wait { ms }),
        1 => (0..=END).prop_map(|to| Step::Seek { to }),
        1 => (0..=END).prop_map(|to| Step::Trim { to }),
        1 => Just(Step::Crash),
    ];
    proptest::collection::vec(step, 1..150)
}

/// What a client knows of a record that it was shown.
#[derive(Debug, Clone, Copy)]
struct Shown {
    offset: Offset,
    fence: Fence,
    /// Seeks until then: an acknowledgement of before is void.
    seeks: u32,
}

/// A leader with its part, and its clients.
struct World {
    part: Part,
    cursor: Cursor,
    now: TimestampMs,
    start: Offset,
    term: u64,
    /// The leader's next fence, which seeks raise.
    next_fence: Fence,
    seeks: u32,
    holders: Vec<Arc<str>>,
    connections: Vec<Option<Connection>>,
    /// Under which each reads.
    lots: Vec<Lot>,
    /// The highest that anybody came with.
    came: Lot,
    shown: Vec<Vec<Shown>>,
    /// What a connection was shown last: it goes on behind it.
    reached: Vec<Option<Offset>>,
    /// Accepted and not committed, with whose time it was and the leader's next fence then.
    waiting: Vec<(Offset, Reading, Fence)>,
    /// Something was refused beside what waits: until that is committed, it may be shown again as well.
    has_refused: bool,
    /// Records that somebody was shown and acknowledged, or a seek or retention has passed over.
    done: Vec<bool>,
}

impl World {
    fn new() -> Self {
        let next_fence = Fence(1 << 32 | 1);
        Self {
            part: Part::new(Offset(0)),
            cursor: Cursor::new(next_fence),
            now: TimestampMs(0),
            start: Offset(0),
            term: 1,
            next_fence,
            seeks: 0,
            holders: ["a", "b", "c"].into_iter().map(Into::into).collect(),
            connections: vec![None; HOLDERS],
            lots: vec![Lot(0); HOLDERS],
            came: Lot(0),
            shown: vec![Vec::new(); HOLDERS],
            reached: vec![None; HOLDERS],
            waiting: Vec::new(),
            has_refused: false,
            done: vec![false; END as usize],
        }
    }

    fn bounds(&self) -> Range<Offset> {
        self.start..Offset(END)
    }

    fn step(&mut self, step: &Step) -> Result<(), TestCaseError> {
        let floor = self.part.floor();
        match *step {
            Step::Read { who, is_connected, count } => self.read(who, is_connected, count)?,
            Step::Connect { who } => {
                self.connections[who] = Some(self.cursor.connect(&self.holders[who], None));
                self.reached[who] = None;
            }
            Step::Ack { who, which } => self.ack(who, which)?,
            Step::Commit => self.commit(false),
            Step::Refuse => self.commit(true),
            Step::Leave { who, grace_ms } => {
                let deadline = TimestampMs(self.now.0 + grace_ms);
                self.cursor.left(&self.holders[who], None, deadline);
            }
            Step::Give { who } => {
                self.lots[who] = Lot(self.lots.iter().max().expect("three").0 + 1);
            }
            Step::Wait { ms } => self.now.0 += ms,
            Step::Seek { to } => self.seek(Offset(to)),
            Step::Trim { to } => self.trim(Offset(to)),
            Step::Crash => self.crash(),
        }
        if !matches!(step, Step::Seek { .. }) {
            prop_assert!(self.part.floor() >= floor, "the cursor went back from {}", floor);
        }
        for (offset, is_done) in (0..).zip(&self.done) {
            let is_settled = self.part.is_settled(Offset(offset));
            prop_assert!(!is_settled || *is_done, "{offset} was acknowledged by nobody who was shown it");
        }
        Ok(())
    }

    fn read(&mut self, who: usize, is_connected: bool, count: u64) -> Result<(), TestCaseError> {
        let connection = self.connections[who].filter(|_| is_connected);
        if is_connected && connection.is_none() {
            return Ok(());
        }
        let holder = Arc::clone(&self.holders[who]);
        let wants = Wants { holder: &holder, connection, patience_ms: PATIENCE_MS, lot: self.lots[who] };
        prop_assert_eq!(self.cursor.claim(wants, self.now), wants.lot > self.came);
        self.came = self.came.max(wants.lot);
        let floor = self.part.floor();
        let is_same = self.cursor.is_read_by(wants, floor, self.now);
        let would = self.cursor.would_begin(wants, floor, self.now);
        let reading = self.cursor.reading();
        let accepted = self.waiting.iter().filter(|(_, of, _)| *of == reading).map(|(upto, ..)| *upto).max();
        let began = self.cursor.begin(wants, floor, self.now);
        prop_assert_eq!(would, began.ok(), "what was said before");
        let Ok(from) = began else { return Ok(()) };
        prop_assert!(wants.lot == self.came, "it was given to another");
        match self.reached[who].filter(|_| is_same && is_connected) {
            Some(reached) => prop_assert_eq!(from, reached.max(floor), "in order, each once"),
            None if is_same => {
                let behind = accepted.map_or(floor, |accepted| accepted.max(floor));
                let is_again = self.has_refused && (floor..behind).contains(&from);
                prop_assert!(from == behind || is_again, "{} is not behind what it acknowledged", from);
            }
            None => prop_assert_eq!(from, floor, "all that was not acknowledged, and nothing else"),
        }
        let upto = Offset((from.0 + count).min(END).max(from.0));
        // Logged before anything is shown.
        if let Some(voided) = self.cursor.voids(&self.part).filter(|_| from < upto) {
            self.part.apply(&PartEvent { voided, ..PartEvent::default() }, self.bounds());
        }
        let first = self.cursor.shown(wants, from..upto).expect("it reads");
        for offset in (from.0..upto.0).map(Offset) {
            let fence = Fence(first.0 + (offset.0 - from.0));
            let is_higher =
                self.shown.iter().flatten().all(|other| other.offset != offset || other.fence <= fence);
            prop_assert!(is_higher, "fences of a record grow");
            self.shown[who].push(Shown { offset, fence, seeks: self.seeks });
        }
        if is_connected {
            self.reached[who] = Some(upto);
        }
        Ok(())
    }

    fn ack(&mut self, who: usize, which: prop::sample::Index) -> Result<(), TestCaseError> {
        if self.shown[who].is_empty() {
            return Ok(());
        }
        let Shown { offset, fence, seeks } = *which.get(&self.shown[who]);
        let floor = self.part.floor();
        match self.cursor.ack(offset, fence, &self.part, Offset(END), self.now) {
            Acked::Upto(upto) => {
                prop_assert!(upto > offset && seeks == self.seeks, "of before a seek");
                let is_last = |other: &Shown| other.offset != offset || other.fence <= fence;
                prop_assert!(self.shown.iter().flatten().all(is_last), "somebody was shown {offset} since");
                for before in floor.0..=offset.0 {
                    let is_its = self.shown[who].iter().any(|shown| shown.offset == Offset(before));
                    prop_assert!(is_its || self.done[before as usize], "{before} goes unseen");
                }
                self.done[..=offset.0 as usize].fill(true);
                let decided = self.next_fence.max(self.cursor.fence_end());
                self.waiting.push((upto, self.cursor.reading(), decided));
            }
            Acked::Already => prop_assert!(offset < floor),
            Acked::Lost => prop_assert!(offset >= floor),
            Acked::Unknown => prop_assert!(false, "{offset} was shown with {fence}"),
        }
        Ok(())
    }

    fn commit(&mut self, is_refused: bool) {
        if self.waiting.is_empty() {
            return;
        }
        let (upto, reading, decided) = self.waiting.remove(0);
        let floor = self.part.floor();
        let range = self.cursor.to_settle(upto, reading, floor);
        self.has_refused = (self.has_refused || is_refused) && !self.waiting.is_empty();
        if is_refused {
            range.into_iter().for_each(|range| self.cursor.failed(range.end, floor));
            // Nobody has acknowledged it any more.
            let waits = |offset| self.waiting.iter().any(|(upto, ..)| Offset(offset) < *upto);
            for (offset, is_done) in (floor.0..).zip(&mut self.done[floor.0 as usize..]) {
                *is_done = waits(offset) || self.part.is_settled(Offset(offset));
            }
            return;
        }
        let Some(range) = range else { return };
        if range.start < range.end && decided >= self.part.fence_min() {
            self.part.apply(&PartEvent { settled: vec![range], ..PartEvent::default() }, self.bounds());
        }
    }

    fn seek(&mut self, to: Offset) {
        self.next_fence = Fence(self.next_fence.max(self.cursor.fence_end()).0 + 1);
        let seek = Some(Seek { to, fence: self.next_fence, keep_as: 0, back_to: 0 });
        self.part.apply(&PartEvent { seek, ..PartEvent::default() }, self.bounds());
        self.cursor.begin_again(self.next_fence);
        self.reached.fill(None);
        self.seeks += 1;
        let floor = self.part.floor().0;
        for (offset, is_done) in (0..).zip(&mut self.done) {
            *is_done = offset < floor;
        }
    }

    fn trim(&mut self, to: Offset) {
        self.start = self.start.max(to);
        self.part.start_moved(self.start);
        self.done[..self.start.0 as usize].fill(true);
    }

    fn crash(&mut self) {
        self.term += 1;
        self.next_fence = Fence(self.term << 32 | 1);
        self.cursor = Cursor::new(self.next_fence).after_leader_of(Offset(END));
        self.waiting.clear();
        self.connections.fill(None);
        self.reached.fill(None);
        self.came = Lot(0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    #[test]
    fn what_is_not_acknowledged_comes_again_and_nothing_else_does(steps in steps()) {
        let mut world = World::new();
        for step in &steps {
            world.step(step)?;
        }
    }
}
