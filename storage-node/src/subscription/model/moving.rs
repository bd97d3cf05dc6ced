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
            let (key, fated) = (record.key, record.fated);
            *record = Record { settled: (offset as u64) < to, key, fated, ..NEW };
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

    /// Another leader, or this one after a move: from a checkpoint.
    pub(super) fn restart(&mut self, fence_base: Fence) {
        let bounds = Offset(self.start)..self.end();
        let again = Part::decode(&self.part.encode(), bounds).unwrap();
        assert_eq!(again, self.part);
        assert_eq!(again.encode(), self.part.encode());
        self.part = again;
        (self.next_fence, self.fence_base) = (fence_base, fence_base.0);
        self.leases = Leases::new(&self.part, self.rules.clone(), fence_base, self.now());
        (self.frontier, self.begun) = (self.part.floor().0, self.now);
        self.holders.clear();
        for record in &mut self.records {
            let has_had_all = self.rules.max_attempts > 0 && record.logged >= self.rules.max_attempts;
            let last_chance = has_had_all.then_some(self.now + self.rules.lease_ms);
            if self.rules.looks_ahead {
                let (key, fated, settled, logged, due) =
                    (record.key, record.fated, record.settled, record.logged, record.due);
                let until = due.or(last_chance).filter(|_| has_had_all && !settled);
                let is = until.map_or(Is::New, |until| Is::Waiting { until });
                *record = Record { key, fated, settled, logged, attempts: logged, due, is, ..NEW };
                continue;
            }
            let until = record.due.or(last_chance);
            let is = until.map_or(Is::New, |until| Is::Waiting { until });
            *record = Record { is, fence: 0, attempts: record.logged, ..*record };
        }
    }
}
