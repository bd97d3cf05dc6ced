//! The property that a stream is shared evenly and loses nothing: whoever comes, leaves, dies, lacks credit,
//! learns late of its share, or acknowledges late, and whenever the home shard or a part changes its leader.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use weir_protocol::ids::{Incarnation, Offset, PartitionId, TimestampMs};

use super::*;

const CONSUMERS: usize = 5;
const END: u64 = 12;
const PATIENCE_MS: u64 = 1_000;
const GRACE_MS: u64 = 3_000;

#[derive(Debug, Clone)]
enum Step {
    /// Comes, or asks again, and learns of its share.
    Attend {
        who: usize,
    },
    Leave {
        who: usize,
    },
    /// Is not heard of any more.
    Die {
        who: usize,
    },
    Credit {
        who: usize,
        on: bool,
    },
    Read {
        who: usize,
        part: usize,
        count: u64,
    },
    /// Acknowledges one of the records that it was ever shown.
    Ack {
        who: usize,
        which: prop::sample::Index,
    },
    /// The first acknowledgement of a part that waits is committed.
    Commit {
        part: usize,
    },
    Wait {
        ms: u64,
    },
    /// Another leader of the home shard: nothing of the roster is left.
    HomeMoves,
    /// Another leader of a part's shard.
    PartMoves {
        part: usize,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let (who, part) = (|| 0..CONSUMERS, || 0..9usize);
    let step = prop_oneof![
        6 => who().prop_map(|who| Step::Attend { who }),
        1 => who().prop_map(|who| Step::Leave { who }),
        1 => who().prop_map(|who| Step::Die { who }),
        2 => (who(), any::<bool>()).prop_map(|(who, on)| Step::Credit { who, on }),
        12 => (who(), part(), 1u64..4).prop_map(|(who, part, count)| Step::Read { who, part, count }),
        8 => (who(), any::<prop::sample::Index>()).prop_map(|(who, which)| Step::Ack { who, which }),
        6 => part().prop_map(|part| Step::Commit { part }),
        3 => (0u64..1_500).prop_map(|ms| Step::Wait { ms }),
        1 => Just(Step::HomeMoves),
        1 => part().prop_map(|part| Step::PartMoves { part }),
    ];
    proptest::collection::vec(step, 1..200)
}

/// One consumer, as far as it knows.
struct Member {
    holder: Arc<str>,
    is_alive: bool,
    /// Its newest call.
    call: u64,
    has_credit: bool,
    portion: Portion,
    /// By part, the call that reads it and the lot of the call.
    calls: BTreeMap<usize, (Connection, Lot)>,
    /// Part, offset and fence of what it was shown.
    shown: Vec<(usize, Offset, Fence)>,
}

/// One part at its leader.
struct Place {
    part: Part,
    cursor: Cursor,
    term: u64,
    waiting: Vec<(Offset, Reading)>,
    /// Acknowledged by somebody who was shown it.
    acked: Vec<bool>,
    /// The highest lot that anybody came with.
    came: Lot,
}

struct World {
    now: TimestampMs,
    home_term: u64,
    roster: Roster,
    members: Vec<Member>,
    places: Vec<Place>,
}

fn part_of(place: usize) -> SharedPart {
    (Incarnation(1), PartitionId(u32::try_from(place).expect("few")))
}

impl World {
    fn new(parts: usize) -> Self {
        let member = |name: &str| Member {
            holder: name.into(),
            is_alive: false,
            call: 0,
            has_credit: true,
            portion: Portion::default(),
            calls: BTreeMap::new(),
            shown: Vec::new(),
        };
        let place = |_| Place {
            part: Part::new(Offset(0)),
            cursor: Cursor::new(Fence(1 << 32 | 1)),
            term: 1,
            waiting: Vec::new(),
            acked: vec![false; END as usize],
            came: Lot(0),
        };
        Self {
            now: TimestampMs(0),
            home_term: 1,
            roster: Roster::new(Lot(1 << 32 | 1)),
            members: ["a", "b", "c", "d", "e"].map(member).into(),
            places: (0..parts).map(place).collect(),
        }
    }

    fn step(&mut self, step: &Step) -> Result<(), TestCaseError> {
        match *step {
            Step::Attend { who } => self.attend(who)?,
            Step::Leave { who } => self.leave(who)?,
            Step::Die { who } => self.dies(who)?,
            Step::Credit { who, on } => self.members[who].has_credit = on,
            Step::Read { who, part, count } if part < self.places.len() => self.read(who, part, count)?,
            Step::Ack { who, which } => self.ack(who, which)?,
            Step::Commit { part } if part < self.places.len() => self.places[part].commit(),
            Step::PartMoves { part } if part < self.places.len() => {
                self.places[part].moves();
                for member in &mut self.members {
                    member.calls.remove(&part);
                }
            }
            Step::Read { .. } | Step::Commit { .. } | Step::PartMoves { .. } => {}
            Step::Wait { ms } => self.now.0 += ms,
            Step::HomeMoves => {
                self.home_term += 1;
                self.roster = Roster::new(Lot(self.home_term << 32 | 1));
            }
        }
        self.is_even()
    }

    /// Nobody has two more than somebody who is there, and if anybody is, every part is one's.
    fn is_even(&self) -> Result<(), TestCaseError> {
        let known = || self.members.iter().filter(|member| self.roster.has(&member.holder));
        let size = |member: &Member| self.roster.portion(&member.holder).parts.len();
        let least = known().filter(|member| member.is_alive).map(size).min();
        if let (Some(least), Some(most)) = (least, known().map(size).max()) {
            let portions: Vec<_> = known().map(|member| self.roster.portion(&member.holder)).collect();
            prop_assert!(most <= least + 1, "{portions:?}");
            let mut given: Vec<_> = portions.iter().flat_map(|portion| &portion.parts).collect();
            given.sort_unstable();
            let parts: Vec<_> = given.iter().map(|(part, _)| *part).collect();
            prop_assert_eq!(parts, (0..self.places.len()).map(part_of).collect::<Vec<_>>());
        }
        Ok(())
    }

    /// Those that are gone go now. No more is moved than they had.
    fn expire(&mut self) -> Result<(), TestCaseError> {
        let before = self.shares();
        let shifted = self.roster.expire(self.now);
        let gone = before.iter().filter(|(holder, _)| !self.roster.has(holder)).map(|(_, share)| share);
        let freed = gone.sum::<usize>();
        prop_assert!(shifted.moved <= freed, "{shifted:?}, {freed} freed");
        Ok(())
    }

    /// Its call breaks off. It keeps what it has for a while, and gets nothing more.
    fn dies(&mut self, who: usize) -> Result<(), TestCaseError> {
        let member = &mut self.members[who];
        if std::mem::take(&mut member.is_alive) {
            let had = self.roster.portion(&member.holder);
            let until = TimestampMs(self.now.0 + GRACE_MS);
            self.roster.answered(&member.holder, member.call, until, true);
            prop_assert_eq!(self.roster.portion(&member.holder), had);
        }
        Ok(())
    }

    /// What those have that are away: it may become less, and never more.
    fn of_those_away(&self) -> BTreeMap<Arc<str>, usize> {
        let away = self.members.iter().filter(|member| !member.is_alive);
        away.map(|member| (Arc::clone(&member.holder), self.roster.portion(&member.holder).parts.len()))
            .collect()
    }

    fn shares(&self) -> BTreeMap<Arc<str>, usize> {
        let share =
            |member: &Member| (Arc::clone(&member.holder), self.roster.portion(&member.holder).parts.len());
        self.members.iter().map(share).collect()
    }

    fn attend(&mut self, who: usize) -> Result<(), TestCaseError> {
        self.expire()?;
        let is_here = self.members[who].is_alive && self.roster.has(&self.members[who].holder);
        let before = self.shares();
        let member = &mut self.members[who];
        member.is_alive = true;
        let knows = (0..self.places.len()).map(part_of).collect();
        let until = TimestampMs(self.now.0 + GRACE_MS);
        let ask = Attend { holder: &member.holder, takes_over: None, knows, until };
        let (call, shifted) = self.roster.attend(ask);
        member.call = call;
        member.portion = self.roster.portion(&member.holder);
        // Sticky: only what makes the newcomer's share moves, and from those who have more than it gets.
        let now = self.shares();
        let parts = if is_here { 0 } else { now[&self.members[who].holder] };
        prop_assert!(shifted.moved <= parts, "{shifted:?} of {before:?}");
        let newcomer = Arc::clone(&self.members[who].holder);
        let gains = |(holder, share): (&Arc<str>, &usize)| *holder != newcomer && now[holder] > *share;
        prop_assert!(!before.iter().any(gains), "nobody else gains");
        Ok(())
    }

    fn leave(&mut self, who: usize) -> Result<(), TestCaseError> {
        let had = self.roster.portion(&self.members[who].holder).parts.len();
        let member = &mut self.members[who];
        (member.is_alive, member.portion) = (false, Portion::default());
        member.calls.clear();
        for place in &mut self.places {
            place.cursor.left(&member.holder, None, self.now);
        }
        prop_assert!(self.roster.leave(&member.holder).moved <= had);
        Ok(())
    }

    fn read(&mut self, who: usize, number: usize, count: u64) -> Result<(), TestCaseError> {
        let (member, place) = (&mut self.members[who], &mut self.places[number]);
        let lot = member.portion.parts.iter().find(|(part, _)| *part == part_of(number)).map(|(_, lot)| *lot);
        if !member.is_alive {
            return Ok(());
        }
        // A call goes on under its lot until it is told that it was displaced.
        if member.calls.get(&number).is_some_and(|(_, lot)| place.cursor.is_displaced(*lot)) {
            member.calls.remove(&number);
        }
        if let (None, Some(lot)) = (member.calls.get(&number), lot) {
            let connection = place.cursor.connect(&member.holder, None);
            member.calls.insert(number, (connection, lot));
        }
        let Some((connection, lot)) = member.calls.get(&number).copied() else { return Ok(()) };
        let (holder, connection) = (&member.holder, Some(connection));
        let wants = Wants { holder, connection, patience_ms: PATIENCE_MS, lot };
        place.cursor.claim(wants, self.now);
        place.came = place.came.max(lot);
        if !member.has_credit {
            return Ok(());
        }
        let Ok(from) = place.cursor.begin(wants, place.part.floor(), self.now) else { return Ok(()) };
        prop_assert_eq!(lot, place.came, "it was given to another since");
        let upto = Offset((from.0 + count).min(END));
        let first = place.cursor.shown(wants, from..upto).expect("it reads");
        for offset in (from.0..upto.0).map(Offset) {
            prop_assert!(!place.part.is_settled(offset), "{offset} was acknowledged");
            member.shown.push((number, offset, Fence(first.0 + (offset.0 - from.0))));
        }
        Ok(())
    }

    fn ack(&mut self, who: usize, which: prop::sample::Index) -> Result<(), TestCaseError> {
        let member = &self.members[who];
        if member.shown.is_empty() {
            return Ok(());
        }
        let (number, offset, fence) = *which.get(&member.shown);
        let place = &mut self.places[number];
        let floor = place.part.floor();
        match place.cursor.ack(offset, fence, &place.part, Offset(END), self.now) {
            Acked::Upto(upto) => {
                for before in floor.0..=offset.0 {
                    let is_its =
                        member.shown.iter().any(|(part, shown, _)| (*part, shown.0) == (number, before));
                    prop_assert!(is_its || place.acked[before as usize], "{before} goes unseen");
                    place.acked[before as usize] = true;
                }
                place.waiting.push((upto, place.cursor.reading()));
            }
            Acked::Already => prop_assert!(offset < floor),
            Acked::Lost => prop_assert!(offset >= floor),
            Acked::Unknown => prop_assert!(false, "{offset} was shown with {fence}"),
        }
        Ok(())
    }

    /// Everybody who lives goes on, and nobody else comes or goes: everything is read in the end.
    fn settle_down(&mut self) -> Result<(), TestCaseError> {
        for _ in 0..4 {
            for who in (0..CONSUMERS).filter(|who| self.members[*who].is_alive).collect::<Vec<_>>() {
                self.members[who].has_credit = true;
                self.attend(who)?;
            }
            self.now.0 += GRACE_MS - 1;
        }
        // What the last ones that died had is given by now, and their time at the parts is over.
        let live: Vec<_> = (0..CONSUMERS).filter(|who| self.members[*who].is_alive).collect();
        if live.is_empty() {
            return Ok(());
        }
        for round in 0..3 {
            for who in live.iter().copied() {
                self.attend(who)?;
                for part in 0..self.places.len() {
                    self.read(who, part, END)?;
                }
                for at in 0..self.members[who].shown.len() {
                    let (part, offset, fence) = self.members[who].shown[at];
                    let place = &mut self.places[part];
                    if let Acked::Upto(upto) =
                        place.cursor.ack(offset, fence, &place.part, Offset(END), self.now)
                    {
                        place.acked[..=offset.0 as usize].fill(true);
                        place.waiting.push((upto, place.cursor.reading()));
                    }
                }
                self.places.iter_mut().for_each(|place| {
                    while !place.waiting.is_empty() {
                        place.commit()
                    }
                });
            }
            self.now.0 += YIELD_MS_MAX.max(PATIENCE_MS) * u64::from(round < 2);
        }
        self.is_even()?;
        let shares = self.shares();
        let parts = self.places.len();
        for who in live.iter().copied() {
            let share = shares[&self.members[who].holder];
            prop_assert!((parts / live.len()..=parts.div_ceil(live.len())).contains(&share), "{:?}", shares);
        }
        for (number, place) in self.places.iter().enumerate() {
            prop_assert_eq!(place.part.floor(), Offset(END), "part {} is read by nobody", number);
        }
        Ok(())
    }
}

impl Place {
    fn commit(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        let (upto, reading) = self.waiting.remove(0);
        let Some(range) = self.cursor.to_settle(upto, reading, self.part.floor()) else { return };
        if range.start < range.end {
            let event = PartEvent { settled: vec![range], ..PartEvent::default() };
            self.part.apply(&event, Offset(0)..Offset(END));
        }
    }

    fn moves(&mut self) {
        self.term += 1;
        self.cursor = Cursor::new(Fence(self.term << 32 | 1));
        self.waiting.clear();
        self.came = Lot(0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    #[test]
    fn shares_are_even_and_nothing_is_lost_or_comes_again(parts in 1usize..9, steps in steps()) {
        let mut world = World::new(parts);
        for step in &steps {
            let before = world.of_those_away();
            world.step(step)?;
            let now = world.of_those_away();
            let gains = before.iter().find(|(holder, had)| now.get(*holder).is_some_and(|now| now > had));
            prop_assert!(gains.is_none(), "{:?} is away and gains", gains);
        }
        world.settle_down()?;
    }
}

#[test]
fn who_is_away_keeps_its_share_gets_none_of_others_and_its_own_is_free_after_the_grace() {
    let mut world = World::new(6);
    (0..3).for_each(|who| world.attend(who).unwrap());
    assert_eq!(world.shares().into_values().collect::<Vec<_>>(), [2, 2, 2, 0, 0]);
    world.dies(1).unwrap();
    world.leave(2).unwrap();
    assert_eq!(world.shares().into_values().collect::<Vec<_>>(), [4, 2, 0, 0, 0], "nothing for the dead");
    world.now.0 += GRACE_MS;
    world.attend(0).unwrap();
    assert_eq!(world.shares().into_values().collect::<Vec<_>>(), [6, 0, 0, 0, 0]);
    world.attend(1).unwrap();
    assert_eq!(world.shares().into_values().collect::<Vec<_>>(), [3, 3, 0, 0, 0]);
}

#[test]
fn three_more_share_eight_parts_with_one_and_take_over_what_one_leaves() {
    let mut world = World::new(8);
    world.attend(0).unwrap();
    assert_eq!(world.shares().into_values().collect::<Vec<_>>(), [8, 0, 0, 0, 0]);
    (1..4).for_each(|who| world.attend(who).unwrap());
    assert_eq!(world.shares().into_values().collect::<Vec<_>>(), [2, 2, 2, 2, 0]);
    let before: Vec<_> = world.members.iter().map(|member| world.roster.portion(&member.holder)).collect();
    world.attend(1).unwrap();
    let asked_again = world.roster.portion("b");
    assert_eq!(asked_again, before[1], "nothing changes by asking");
    world.leave(3).unwrap();
    assert_eq!(world.shares().into_values().collect::<Vec<_>>(), [3, 3, 2, 0, 0]);
    for (member, before) in world.members.iter().zip(&before).take(3) {
        let now = world.roster.portion(&member.holder);
        assert!(
            before.parts.iter().all(|part| now.parts.contains(part)),
            "what it had it keeps, under its lot"
        );
    }
}

#[test]
fn who_comes_back_has_what_it_had_and_who_knows_less_gets_only_that() {
    let mut roster = Roster::new(Lot(1));
    let parts = |numbers: std::ops::Range<usize>| numbers.map(part_of).collect::<Arc<[_]>>();
    let mut attend = |holder: &str, takes_over, knows| {
        let holder: Arc<str> = holder.into();
        let until = TimestampMs(1_000);
        roster.attend(Attend { holder: &holder, takes_over, knows, until });
        roster.portion(&holder).parts
    };
    let of = |given: &[(SharedPart, Lot)]| given.iter().map(|(part, _)| part.1.0).collect::<Vec<_>>();
    attend("a (1/2/0)", None, parts(0..4));
    let first = attend("b", None, parts(0..4));
    let old = attend("a (1/2/0)", None, parts(0..4));
    let again = attend("a (9/2/0)", Some("a (1/2/"), parts(0..4));
    assert_eq!(of(&again), of(&old));
    assert!(again.iter().zip(&old).all(|(again, old)| again.1 > old.1), "its old calls are displaced");
    assert_eq!(attend("b", None, parts(0..4)), first);
    assert_eq!(attend("a (1/2/0)", None, parts(0..4)), [], "its connection hangs");
    // A topic that only one has heard of is its for a moment; others get of what they know.
    assert_eq!(of(&attend("b", None, parts(0..8))), [4, 5, 6, 7]);
    assert_eq!(of(&attend("a (9/2/0)", None, parts(0..8))), [0, 1, 2, 3]);
    assert_eq!(of(&attend("b", None, parts(0..4))), [0, 1, 2, 3], "only what it knows");
    assert_eq!(of(&attend("a (9/2/0)", None, parts(0..8))), [4, 5, 6, 7]);
}
