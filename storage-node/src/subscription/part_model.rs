//! A naive model of a part alone, and the property that the real one cannot be told from it: settles, dead letters, seeks, what
//! undoes them, redrives, trims, each followed by a checkpoint.

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
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Is {
    Unsettled,
    Settled,
    Dead,
}

struct Model {
    records: Vec<Is>,
    kept: Vec<(u64, Vec<Is>)>,
    moved_to: usize,
    start: usize,
}

impl Model {
    fn step(&mut self, step: &Step, name: u64) -> PartEvent {
        let mut event = PartEvent::default();
        let seek =
            |to, keep_as, back_to| Some(super::Seek { to: Offset(to), fence: Fence(1), keep_as, back_to });
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
                for (at, is) in self.records.iter_mut().enumerate() {
                    let stays = at < self.moved_to && *is == Is::Dead;
                    *is = match at < self.moved_to {
                        _ if stays => Is::Dead,
                        true => Is::Settled,
                        false => Is::Unsettled,
                    };
                }
            }
            Step::Undo { which } => {
                let Some((back_to, before)) = self.kept.get(which).cloned() else { return event };
                event.seek = seek(0, name, back_to);
                self.keep(name);
                let now = std::mem::replace(&mut self.records, before);
                for (at, is) in self.records.iter_mut().enumerate() {
                    if at >= self.moved_to && now[at] != Is::Unsettled {
                        *is = if *is == Is::Unsettled || now[at] == Is::Dead { now[at] } else { *is };
                    }
                }
                self.moved_to = END as usize;
                self.trim(self.start);
            }
            Step::Revive { from, len } => {
                event.revived.push(Offset(from)..Offset(from + len));
                for at in from..(from + len).min(END) {
                    let is = &mut self.records[at as usize];
                    *is = if *is == Is::Dead { Is::Unsettled } else { *is };
                }
            }
            Step::Trim { to } => self.trim((to as usize).max(self.start)),
        }
        event
    }

    fn keep(&mut self, name: u64) {
        if self.kept.len() == KEPT_MAX {
            self.kept.remove(0);
        }
        self.kept.push((name, self.records.clone()));
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
                Step::Undo { which } => model.kept.get(*which).map(|(name, _)| *name),
                _ => None,
            };
            let bounds = Offset(model.start as u64)..Offset(END);
            let preview = back.and_then(|name| Leases::undo_preview(&part, name, bounds.clone()));
            let before = model.records.clone();
            let event = model.step(step, name);
            let event = PartEvent::decode(&event.encode()).unwrap();
            let bounds = Offset(model.start as u64)..Offset(END);
            part.apply(&event, bounds.clone());
            for (at, is) in model.records.iter().enumerate() {
                let offset = Offset(at as u64);
                prop_assert_eq!(part.is_settled(offset), *is != Is::Unsettled, "{} after {:?}", at, step);
                prop_assert_eq!(part.is_given_up(offset), *is == Is::Dead, "{} after {:?}", at, step);
            }
            let count = |wanted: Is| model.records.iter().filter(|is| **is == wanted).count() as u64;
            prop_assert_eq!(part.count_unsettled(Offset(END)), count(Is::Unsettled));
            prop_assert_eq!(part.given_up(), count(Is::Dead));
            prop_assert!(part.kept().eq(model.kept.iter().map(|(name, _)| *name)));
            if let Some(preview) = preview {
                let pairs = || before.iter().zip(&model.records);
                let new = |(was, is): &(&Is, &Is)| **was != Is::Unsettled && **is == Is::Unsettled;
                let gone = |(was, is): &(&Is, &Is)| **was == Is::Unsettled && **is != Is::Unsettled;
                prop_assert_eq!(preview.redelivered, pairs().filter(new).count() as u64);
                prop_assert_eq!(preview.skipped, pairs().filter(gone).count() as u64);
            }
            let again = Part::decode(&part.encode(), bounds).unwrap();
            prop_assert_eq!(&again, &part);
            prop_assert_eq!(again.encode(), part.encode());
            part = again;
        }
    }
}
