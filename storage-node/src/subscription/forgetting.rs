//! Forgetting what was given up, and bringing that back.

use std::ops::Range;
use std::sync::Arc;

use weir_protocol::ids::Offset;

use super::event::Forgotten;
use super::offset_set::OffsetSet;
use super::part::Part;
use super::past::{Back, Kept};

/// What a purge would do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PurgePreview {
    /// Where the part would stand.
    pub floor: Offset,
    /// Unsettled records that would be settled.
    pub settled: u64,
    /// Dead letters that would not be known any more.
    pub dead: u64,
}

impl Part {
    /// What a purge would do: of everything below `end`, the partition's, or of dead letters alone.
    #[must_use]
    pub fn purge_preview(&self, is_dead_only: bool, end: Offset) -> PurgePreview {
        let dead = self.given_up();
        match is_dead_only {
            true => PurgePreview { floor: self.floor, settled: 0, dead },
            false => PurgePreview { floor: end, settled: self.count_unsettled(end), dead },
        }
    }

    /// With a name of its own nothing else changes: going back then is no move either. A snapshot of
    /// everything would do as well, but for what is settled until somebody goes back: the part does not know
    /// what was settled when.
    pub(super) fn forget_dead(&mut self, Forgotten { keep_as }: Forgotten) {
        if keep_as != 0 {
            self.keep(keep_as);
        }
        self.given_up.clear();
        if keep_as != 0 {
            self.only_dead_changed();
        }
    }

    /// What was kept last is what stood before a change of nothing but which records are known as dead.
    pub(super) fn only_dead_changed(&mut self) {
        if let Some(last) = Arc::make_mut(&mut self.kept).last_mut() {
            last.back = Back::DeadLetters(self.given_up.clone());
        }
    }

    /// Over a move nobody goes back in dead letters alone. Nor in everything: who takes back that they were
    /// forgotten does not mean what is settled.
    pub(super) fn moved(&mut self) {
        let is_of_dead = |kept: &Kept| matches!(kept.back, Back::DeadLetters(_));
        if self.kept.iter().any(is_of_dead) {
            let kept = Arc::make_mut(&mut self.kept).iter_mut();
            kept.filter(|kept| is_of_dead(kept)).for_each(|kept| kept.back = Back::Nothing);
        }
    }

    /// Dead letters are again those that were, and those that came after `after`. What is unsettled by now is none.
    pub(super) fn bring_back_dead(&mut self, dead: &OffsetSet, after: &OffsetSet, bounds: &Range<Offset>) {
        let (mut below, mut above) = (dead.to_map(), dead.to_map());
        below.remove_range(self.floor.0..);
        above.remove_range(..self.floor.0);
        let came = self.given_up.to_map() - after.to_map();
        let mut given_up = below | (above & self.settled.to_map()) | came;
        given_up.remove_range(..bounds.start.0);
        self.given_up = OffsetSet::new(given_up);
    }
}
