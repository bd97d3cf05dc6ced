//! Which records are leased next.

use std::sync::Arc;

use weir_protocol::ids::Offset;

use super::ahead::Key;
use super::event::{Delivered, Fence};
use super::leases::{Known, Leases, PER_CALL_MAX, State, is_exhausted};
use super::part::Part;
use super::ready::Lane;

/// Where records that are leased come from; they take turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// Known ones, and those that were looked at.
    Ready,
    /// Those that waited with others.
    Unmet,
    New,
}

/// A record about to be leased.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Chosen {
    pub(super) offset: Offset,
    pub(super) attempts: u32,
    pub(super) previous: Fence,
    pub(super) key: Key,
    pub(super) lane: Lane,
}

impl Leases {
    /// What comes again, what waited and what is new, in turns.
    pub(super) fn choose(
        &mut self,
        part: &Part,
        room: usize,
        end: Offset,
        chosen: &mut Vec<Chosen>,
        exhausted: &mut Vec<Delivered>,
    ) {
        while chosen.len() < room && exhausted.len() < PER_CALL_MAX {
            self.ready_len(part);
            let in_turn = match self.last {
                Source::New => [Source::Ready, Source::Unmet, Source::New],
                Source::Ready => [Source::Unmet, Source::New, Source::Ready],
                Source::Unmet => [Source::New, Source::Ready, Source::Unmet],
            };
            let Some(source) = in_turn.into_iter().find(|source| self.has(*source, part, end)) else {
                return;
            };
            self.last = source;
            match source {
                Source::Ready => {
                    let Some((lane, offset)) = self.ready.pop() else { return };
                    self.choose_ready(part, (lane, offset), chosen, exhausted);
                }
                Source::Unmet => {
                    let Some(offset) = self.unmet.pop_first() else { return };
                    self.choose_unknown(part, (Lane::default(), offset), chosen, exhausted);
                    self.hold_chosen(offset);
                }
                Source::New => {
                    let offset = self.next;
                    self.next = offset.plus(1);
                    self.choose_unknown(part, (Lane::default(), offset), chosen, exhausted);
                }
            }
        }
    }

    fn has(&mut self, source: Source, part: &Part, end: Offset) -> bool {
        match source {
            Source::Ready => self.ready.len() > 0,
            Source::Unmet => !self.looks() && !self.unmet.is_empty(),
            // Those that were looked at and are before it go first.
            Source::New => {
                let is_next = !self.rules.looks_ahead && self.ready.len() == self.ready.again_len();
                is_next && self.may_take_new() && self.next_new(part) < end
            }
        }
    }

    /// A record that was ready. It stays known, in no order for now, so that it is not chosen as a new one too.
    fn choose_ready(
        &mut self,
        part: &Part,
        (lane, offset): (Lane, Offset),
        chosen: &mut Vec<Chosen>,
        exhausted: &mut Vec<Delivered>,
    ) {
        let Some(known) = self.known.get_mut(&offset) else {
            self.choose_unknown(part, (lane, offset), chosen, exhausted);
            return self.hold_chosen(offset);
        };
        let Known { fence: previous, attempts, key, lane, .. } = *known;
        if part.is_settled(offset) {
            self.known.remove(&offset);
            self.leave_line(part, key, offset);
        } else if is_exhausted(&self.rules, attempts) {
            known.state = State::Settling(None);
            self.settling += 1;
            exhausted.push(Delivered { offset, attempts });
        } else {
            chosen.push(Chosen { offset, attempts, previous, key, lane });
        }
    }

    /// What was chosen is known, in no order for now, so that it is not chosen as a new one too.
    fn hold_chosen(&mut self, offset: Offset) {
        if !self.rules.looks_ahead {
            self.known.entry(offset).or_insert_with(|| Known::new(Arc::from(""), State::Fresh));
        }
    }

    /// A record of which nothing is known but what the log says, in no line.
    fn choose_unknown(
        &mut self,
        part: &Part,
        (lane, offset): (Lane, Offset),
        chosen: &mut Vec<Chosen>,
        exhausted: &mut Vec<Delivered>,
    ) {
        let attempts = part.attempts(offset);
        if is_exhausted(&self.rules, attempts) {
            exhausted.push(Delivered { offset, attempts });
            self.put(offset, Known { attempts, ..Known::new(Arc::from(""), State::Settling(None)) });
        } else {
            let (previous, key) = (Fence(0), Key::NONE);
            chosen.push(Chosen { offset, attempts, previous, key, lane });
        }
    }
}
