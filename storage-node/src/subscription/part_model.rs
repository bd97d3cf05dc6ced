//! A naive model of a part alone, and the property that the real one cannot be told from it: settles, dead
//! letters, seeks, what undoes them, redrives, purges, trims, each followed by a checkpoint.

use proptest::prelude::*;
use weir_protocol::ids::Offset;

use super::part::KEPT_MAX;
use super::*;

const END: u64 = 40;

#[derive(Debug, Clone)]
enum Step {
    Settle {
        from: u64,
        len: u64,
    },
    Dead {
        at: u64,
    },
    Seek {
        to: u64,
        is_kept: bool,
    },
    /// The `which`th of what is kept.
    Undo {
        which: usize,
    },
    Revive {
        from: u64,
        len: u64,
    },
    Trim {
        to: u64,
    },
    /// Of everything, or of what is dead.
    Purge {
        is_dead_only: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Is {
    Unsettled,
    Settled,
    Dead,
}

#[derive(Debug, Clone)]
struct Snapshot {
    name: u64,
    records: Vec<Is>,
    /// What was dead right after, if that is all that changed.
    dead_after: Option<Vec<Is>>,
    /// That is all that changed, and something was moved since.
    is_overtaken: bool,
}

struct Model {
    records: Vec<Is>,
    kept: Vec<Snapshot>,
    moved_to: usize,
    start: usize,
}

fn seek(to: u64, keep_as: u64, back_to: u64) -> Option<Seek> {
    Some(Seek { to: Offset(to), fence: Fence(1), keep_as, back_to })
}

impl Model {
    fn step(&mut self, step: &Step, name: u64) -> PartEvent {
        let mut event = PartEvent::default();
        match *step {
            Step::Settle { from, len } => {
                event.settled.push(Offset(from)..Offset(from + len));
                for at in from..(from + len).min(END) {
                    let is = &mut self.records[at as usize];
                    *is = if *is == Is::Unsettled { Is::Settled } else { *is };
                }
            }
            Step::Dead { at } => {
                event.dead.push(Dead { offset: Offset(at), attempts: 1, reason: String::new() });
                let is = &mut self.records[at as usize];
                *is = if *is == Is::Unsettled { Is::Dead } else { *is };
            }
            Step::Seek { to, is_kept } => {
                event.seek = seek(to, if is_kept { name } else { 0 }, 0);
                if is_kept {
                    self.keep(name);
                } else {
                    self.kept.clear();
                }
                self.moved_to = (to as usize).clamp(self.start, END as usize);
                self.moved();
                for (at, is) in self.records.iter_mut().enumerate() {
                    let stays = at < self.moved_to && *is == Is::Dead;
                    *is = match at < self.moved_to {
                        _ if stays => Is::Dead,
                        true => Is::Settled,
                        false => Is::Unsettled,
                    };
                }
            }
            Step::Undo { which } => event.seek = self.undo(which, name),
            Step::Revive { from, len } => {
                event.revived.push(Offset(from)..Offset(from + len));
                for at in from..(from + len).min(END) {
                    let is = &mut self.records[at as usize];
                    *is = if *is == Is::Dead { Is::Unsettled } else { *is };
                }
            }
            Step::Trim { to } => self.trim((to as usize).max(self.start)),
            Step::Purge { is_dead_only } => return self.purge(is_dead_only, name),
        }
        event
    }

    fn undo(&mut self, which: usize, name: u64) -> Option<Seek> {
        let Snapshot { name: back_to, records: before, dead_after, is_overtaken } =
            self.kept.get(which)?.clone();
        if is_overtaken {
            return seek(0, name, back_to);
        }
        self.keep(name);
        if let Some(after) = dead_after {
            for (at, is) in self.records.iter_mut().enumerate().skip(self.start) {
                let (was, came) = (before[at] == Is::Dead, *is == Is::Dead && after[at] != Is::Dead);
                *is = match *is {
                    Is::Unsettled => Is::Unsettled,
                    _ if was || came => Is::Dead,
                    _ => Is::Settled,
                };
            }
            self.only_dead_changed();
            return seek(0, name, back_to);
        }
        self.moved();
        let now = std::mem::replace(&mut self.records, before);
        for (at, is) in self.records.iter_mut().enumerate() {
            if at >= self.moved_to && now[at] != Is::Unsettled {
                *is = if *is == Is::Unsettled || now[at] == Is::Dead { now[at] } else { *is };
            }
        }
        self.moved_to = END as usize;
        self.trim(self.start);
        seek(0, name, back_to)
    }

    fn purge(&mut self, is_dead_only: bool, name: u64) -> PartEvent {
        self.keep(name);
        let living = |is: &Is| if is_dead_only && *is == Is::Unsettled { *is } else { Is::Settled };
        self.records = self.records.iter().map(living).collect();
        if is_dead_only {
            self.only_dead_changed();
            return PartEvent { forgotten: Some(Forgotten { keep_as: name }), ..PartEvent::default() };
        }
        self.moved_to = END as usize;
        self.moved();
        let forgotten = Some(Forgotten { keep_as: 0 });
        PartEvent { seek: seek(END, name, 0), forgotten, ..PartEvent::default() }
    }

    fn moved(&mut self) {
        self.kept.iter_mut().for_each(|kept| kept.is_overtaken |= kept.dead_after.is_some());
    }

    fn only_dead_changed(&mut self) {
        self.kept.last_mut().unwrap().dead_after = Some(self.records.clone());
    }

    fn keep(&mut self, name: u64) {
        if self.kept.len() == KEPT_MAX {
            self.kept.remove(0);
        }
        self.kept.push(Snapshot {
            name,
            records: self.records.clone(),
            dead_after: None,
            is_overtaken: false,
        });
    }

    /// What is gone is settled, and cannot be revived.
    fn trim(&mut self, to: usize) {
        self.start = to;
        self.records[..to].fill(Is::Settled);
    }
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..END, 1u64..6).prop_map(|(from, len)| Step::Settle { from, len }),
        4 => (0..END).prop_map(|at| Step::Dead { at }),
        2 => (0..END + 3, any::<bool>()).prop_map(|(to, is_kept)| Step::Seek { to, is_kept }),
        2 => (0usize..6).prop_map(|which| Step::Undo { which }),
        3 => (0..END, 1u64..20).prop_map(|(from, len)| Step::Revive { from, len }),
        1 => (0u64..12).prop_map(|to| Step::Trim { to }),
        2 => any::<bool>().prop_map(|is_dead_only| Step::Purge { is_dead_only }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]
    #[test]
    fn a_part_cannot_be_told_from_its_model(steps in proptest::collection::vec(any_step(), 1..40)) {
        let mut part = Part::new(Offset(0));
        let records = vec![Is::Unsettled; END as usize];
        let mut model = Model { records, kept: Vec::new(), moved_to: 0, start: 0 };
        for (name, step) in (1u64..).zip(&steps) {
            let back = match step {
                Step::Undo { which } => model.kept.get(*which),
                _ => None,
            };
            let bounds = Offset(model.start as u64)..Offset(END);
            let is_refused = back.is_some_and(|kept| kept.is_overtaken);
            let back = back.map(|kept| kept.name);
            let preview = back.and_then(|name| Leases::undo_preview(&part, name, bounds.clone()));
            prop_assert_eq!(preview.is_none(), back.is_none() || is_refused);
            let before = model.records.clone();
            let purge = match step {
                Step::Purge { is_dead_only } => Some(part.purge_preview(*is_dead_only, Offset(END))),
                _ => None,
            };
            let event = model.step(step, name);
            let event = PartEvent::decode(&event.encode()).unwrap();
            let bounds = Offset(model.start as u64)..Offset(END);
            part.apply(&event, bounds.clone());
            let mut before_it = 0;
            for (at, is) in model.records.iter().enumerate() {
                let offset = Offset(at as u64);
                prop_assert_eq!(part.count_unsettled_before(offset), before_it, "{} after {:?}", at, step);
                before_it += u64::from(*is == Is::Unsettled);
                prop_assert_eq!(part.is_settled(offset), *is != Is::Unsettled, "{} after {:?}", at, step);
                prop_assert_eq!(part.is_given_up(offset), *is == Is::Dead, "{} after {:?}", at, step);
            }
            let count = |wanted: Is| model.records.iter().filter(|is| **is == wanted).count() as u64;
            prop_assert_eq!(part.count_unsettled(Offset(END)), count(Is::Unsettled));
            prop_assert_eq!(part.given_up(), count(Is::Dead));
            prop_assert!(part.kept().eq(model.kept.iter().map(|kept| kept.name)));
            if let Some(preview) = preview {
                let pairs = || before.iter().zip(&model.records);
                let new = |(was, is): &(&Is, &Is)| **was != Is::Unsettled && **is == Is::Unsettled;
                let gone = |(was, is): &(&Is, &Is)| **was == Is::Unsettled && **is != Is::Unsettled;
                prop_assert_eq!(preview.redelivered, pairs().filter(new).count() as u64);
                prop_assert_eq!(preview.skipped, pairs().filter(gone).count() as u64);
            }
            if let Some(preview) = purge {
                let of = |is: Is| before.iter().filter(|was| **was == is).count() as u64;
                let left = model.records.iter().filter(|is| **is == Is::Unsettled).count() as u64;
                prop_assert_eq!((preview.settled, preview.dead), (of(Is::Unsettled) - left, of(Is::Dead)));
                prop_assert_eq!(preview.floor, part.floor());
            }
            let again = Part::decode(&part.encode(), bounds).unwrap();
            prop_assert_eq!(&again, &part);
            prop_assert_eq!(again.encode(), part.encode());
            part = again;
        }
    }
}
