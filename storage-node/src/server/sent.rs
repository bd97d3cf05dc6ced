//! What a reader that does not wait for the commit knows of what it was sent. Pure.

use weir_protocol::ids::Offset;
use weir_protocol::rpc::{Event, Firm, Retract};

use crate::replica::early::EarlyLook;

/// ```text
///   firm ≤ next        firm ≤ committed_end        what lies between firm and next was sent in `term`
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Sent {
    /// End of what it knows to be committed.
    pub(super) firm: Offset,
    /// How often staged records had been lost when what lies beyond was sent.
    pub(super) losses: u64,
    /// With what term.
    pub(super) term: u64,
}

impl Sent {
    /// What is to be told before anything else: that what was sent is firm, or may be lost; `next` moves back then.
    /// `committed_end` and `look` are of one moment.
    pub(super) fn news(
        &mut self,
        next: &mut Offset,
        committed_end: Offset,
        look: &EarlyLook,
    ) -> Option<Event> {
        let before = std::mem::replace(self, Self { losses: look.losses, term: look.term, ..*self });
        if self.firm >= *next {
            return None;
        }
        if before.losses != look.losses {
            let to = std::mem::replace(next, self.firm);
            return Some(Event::Retract(Retract { from: self.firm.0, to: to.0, term: before.term }));
        }
        let firm = committed_end.min(*next);
        let is_news = firm > self.firm;
        self.firm = self.firm.max(firm);
        is_news.then_some(Event::Firm(Firm { upto: firm.0 }))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Arc;

    use bytes::Bytes;
    use prometheus::Registry;
    use proptest::prelude::*;
    use weir_protocol::ids::{Incarnation, PartitionId, TimestampMs};

    use super::*;
    use crate::metrics::NodeMetrics;
    use crate::replica::{EarlyTail, EarlyWatch, StagedBatch};
    use crate::shard::state::PartitionKey;

    const KEY: PartitionKey = (Incarnation(1), PartitionId(0));

    /// A shard of one partition: records are numbers that never repeat.
    struct Shard {
        tail: Arc<EarlyTail>,
        committed: Vec<u32>,
        /// Entries in flight: their records, the bytes they were staged with, and whether they were lost.
        flying: VecDeque<(Vec<u32>, Bytes)>,
        staged_end: u64,
        is_lost: bool,
        term: u64,
        next_record: u32,
    }

    /// A reader and what it was told.
    struct Reader {
        _watch: EarlyWatch,
        sent: Sent,
        next: Offset,
        held: Vec<u32>,
        firm: usize,
    }

    impl Shard {
        fn new() -> Self {
            let metrics = NodeMetrics::register(&Registry::new(), 0).unwrap();
            let tail = Arc::new(EarlyTail::new(64, metrics));
            tail.entered(1);
            let flying = VecDeque::new();
            Self { tail, committed: vec![], flying, staged_end: 0, is_lost: false, term: 1, next_record: 0 }
        }

        fn propose(&mut self, count: u32) {
            let records: Vec<u32> = (self.next_record..self.next_record + count).collect();
            self.next_record += count;
            let body: Bytes =
                records.iter().flat_map(|record| record.to_le_bytes()).collect::<Vec<_>>().into();
            let batch =
                StagedBatch { base: Offset(self.staged_end), count, ts: TimestampMs(1), body: body.clone() };
            self.staged_end += u64::from(count);
            drop(self.tail.stage(vec![(KEY, batch)]));
            self.flying.push_back((records, body));
        }

        /// The oldest entry is applied. Behind a lost one it has another offset than it was told.
        fn land(&mut self) {
            if let Some((records, body)) = self.flying.pop_front() {
                let base = Offset(self.committed.len() as u64);
                self.committed.extend(records);
                self.tail.landed(KEY, &body, Some(base));
            }
        }

        fn lose(&mut self) {
            if self.flying.pop_front().is_some() {
                self.tail.lost();
                self.is_lost = true;
            }
        }

        /// What the proposer does after a loss: everything lands, then a new term.
        fn recover(&mut self) {
            while !self.flying.is_empty() {
                self.land();
            }
            self.term += 1;
            self.tail.entered(self.term);
            self.tail.regained();
            self.is_lost = false;
            self.staged_end = self.committed.len() as u64;
        }
    }

    impl Reader {
        fn new(shard: &Shard) -> Self {
            let watch = shard.tail.watch(KEY);
            Self { _watch: watch, sent: Sent::default(), next: Offset(0), held: vec![], firm: 0 }
        }

        /// One step, as a cursor takes it.
        fn step(&mut self, shard: &Shard) -> bool {
            let committed = || Ok::<_, ()>(Offset(shard.committed.len() as u64));
            let (end, look) = shard.tail.look(KEY, (self.next, 12), committed).unwrap();
            match self.sent.news(&mut self.next, end, &look) {
                Some(Event::Firm(firm)) => {
                    let upto = usize::try_from(firm.upto).unwrap();
                    assert!(upto > self.firm && upto <= self.held.len(), "{firm:?}");
                    assert_eq!(self.held[..upto], shard.committed[..upto], "firm is what is committed");
                    self.firm = upto;
                }
                Some(Event::Retract(retract)) => {
                    assert_eq!(retract.from, self.firm as u64, "what is firm is never taken back");
                    assert_eq!(retract.to, self.held.len() as u64);
                    self.held.truncate(self.firm);
                }
                Some(other) => panic!("{other:?}"),
                None if self.next < end => {
                    self.held.extend(&shard.committed[usize::try_from(self.next.0).unwrap()..]);
                    (self.next, self.sent.firm) = (end, end);
                    self.firm = self.held.len();
                }
                None => {
                    for batch in look.batches {
                        let skip = usize::try_from(self.next.0 - batch.base.0).unwrap();
                        let records =
                            batch.body.chunks(4).map(|le| u32::from_le_bytes(le.try_into().unwrap()));
                        self.held.extend(records.skip(skip));
                        self.next = batch.end();
                    }
                    return false;
                }
            }
            true
        }
    }

    #[derive(Debug, Clone, Copy)]
    enum Op {
        Propose(u32),
        Land,
        Lose,
        Recover,
        Step,
    }

    fn ops() -> impl Strategy<Value = Vec<Op>> {
        let op = prop_oneof![
            4 => (1u32..5).prop_map(Op::Propose),
            4 => Just(Op::Land),
            1 => Just(Op::Lose),
            1 => Just(Op::Recover),
            6 => Just(Op::Step),
        ];
        proptest::collection::vec(op, 0..120)
    }

    proptest! {
        #[test]
        fn a_reader_ahead_of_the_commit_is_never_told_firm_what_is_not_and_ends_with_what_is(ops in ops()) {
            let mut shard = Shard::new();
            let mut reader = Reader::new(&shard);
            for op in ops {
                match op {
                    Op::Propose(count) if !shard.is_lost && shard.flying.len() < 4 => shard.propose(count),
                    Op::Land => shard.land(),
                    Op::Lose => shard.lose(),
                    Op::Recover if shard.is_lost => shard.recover(),
                    Op::Step => { reader.step(&shard); }
                    Op::Propose(_) | Op::Recover => {}
                }
            }
            shard.recover();
            while reader.step(&shard) {}
            prop_assert_eq!(&reader.held, &shard.committed);
            prop_assert_eq!(reader.firm, reader.held.len());
        }
    }
}
