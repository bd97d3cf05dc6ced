//! Seeks, purges and new leaders.

use weir_protocol::ids::Offset;

use super::*;

impl Pair {
    pub(super) fn seek(&mut self, to: u64) {
        while !self.in_flight.is_empty() {
            self.commit(true);
        }
        let to = to.clamp(self.start, self.end().0);
        let delivered = |record: &Record| record.settled || record.logged > 0 || record.attempts > 0;
        let redelivered =
            self.records[to as usize..].iter().filter(|record| delivered(record)).count() as u64;
        let skipped = self.records[..to as usize].iter().filter(|record| !record.settled).count() as u64;
        let bounds = Offset(self.start)..self.end();
        let preview = self.leases.seek_preview(&self.part, Offset(to), bounds.clone());
        assert_eq!((preview.floor.0, preview.skipped), (to, skipped));
        // Released records count as delivered, adopted ones do not.
        if self.records.iter().all(|record| record.is == Is::New || record.fence >= self.fence_base) {
            assert_eq!(preview.redelivered, redelivered);
        }
        let seek = Some(Seek { to: Offset(to), fence: self.next_fence, keep_as: 0, back_to: 0 });
        self.part.apply(&PartEvent { seek, ..PartEvent::default() }, bounds);
        for (offset, record) in self.records.iter_mut().enumerate() {
            let (key, fated, settled) = (record.key, record.fated, (offset as u64) < to);
            *record = Record { settled, is_dead: settled && record.is_dead, key, fated, ..NEW };
        }
        self.fence_min = self.next_fence.0;
        self.restart(self.next_fence);
    }

    /// Everything that is there is settled, delivered or not, and nothing is known as dead.
    pub(super) fn purge(&mut self) {
        while !self.in_flight.is_empty() {
            self.commit(true);
        }
        let end = self.end();
        let preview = self.part.purge_preview(false, end);
        let unsettled = self.records.iter().filter(|record| !record.settled).count() as u64;
        assert_eq!((preview.floor, preview.settled, preview.dead), (end, unsettled, self.part.given_up()));
        let seek = Some(Seek { to: end, fence: self.next_fence, keep_as: 0, back_to: 0 });
        let forgotten = Some(Forgotten { keep_as: 0 });
        self.part.apply(&PartEvent { seek, forgotten, ..PartEvent::default() }, Offset(self.start)..end);
        assert_eq!((self.part.count_unsettled(end), self.part.given_up()), (0, 0));
        for record in &mut self.records {
            let (key, fated) = (record.key, record.fated);
            *record = Record { settled: true, key, fated, ..NEW };
        }
        self.fence_min = self.next_fence.0;
        self.restart(self.next_fence);
    }

    /// What is dead from an offset on, and still there, is as if it had never been delivered.
    pub(super) fn redrive(&mut self, from: u64) {
        let from = from.max(self.start);
        let is_dead = |at: &u64| self.records[*at as usize].is_dead;
        let dead: Vec<u64> = (from..self.end().0).filter(is_dead).collect();
        let Some(first) = dead.first().copied() else { return };
        let revived = vec![Offset(from)..self.end()];
        let event = PartEvent { revived, ..PartEvent::default() };
        let applied = self.part.apply(&event, Offset(self.start)..self.end());
        assert_eq!(applied, Applied { revived: dead.len() as u64, ..Applied::default() });
        self.leases.revived(&self.part, Offset(first));
        for at in dead {
            let Record { key, fated, .. } = self.records[at as usize];
            self.records[at as usize] = Record { key, fated, is_redriven: true, is_revoked: true, ..NEW };
        }
        // What nobody is to have is looked at again, with all that is behind the first.
        let skipped =
            self.records[first as usize..].iter_mut().filter(|it| !it.settled && it.is == Is::Skipped);
        skipped.for_each(|record| record.is = Is::New);
        self.frontier = self.frontier.min(first);
    }

    /// Another leader, or this one after a move: from a checkpoint.
    pub(super) fn restart(&mut self, fence_base: Fence) {
        let bounds = Offset(self.start)..self.end();
        let again = Part::decode(&self.part.encode(), bounds).unwrap();
        assert_eq!(again, self.part);
        assert_eq!(again.encode(), self.part.encode());
        self.part = again;
        (self.next_fence, self.fence_base) = (fence_base, fence_base.0);
        let leases =
            Leases::within(limits(self.near), &self.part, self.rules.clone(), fence_base, self.now());
        self.earlier_end = self.end().0;
        self.leases = leases.after_leader_of(self.end());
        (self.frontier, self.begun, self.clock) = (self.part.floor().0, self.now, self.now);
        self.holders.clear();
        for record in &mut self.records {
            let Record { key, fated, settled, is_dead, logged, due, is_redriven, .. } = *record;
            let Record { logged_fence, is_revoked, .. } = *record;
            let base = Record { logged_fence, is_revoked, attempts: logged, ..NEW };
            *record = Record { key, fated, settled, is_dead, logged, due, is_redriven, ..base };
        }
        for at in 0..self.records.len() {
            let record = self.records[at];
            let has_had_all = self.rules.max_attempts > 0 && record.logged >= self.rules.max_attempts;
            let last_chance = has_had_all.then_some(self.now + self.rules.lease_ms);
            // Others that are to be looked at are met in their place.
            let waits = !record.settled && (has_had_all || !self.rules.looks_ahead);
            if let Some(until) = record.due.or(last_chance).filter(|_| waits) {
                self.set(at as u64, Is::Waiting { until });
            }
        }
    }
}
