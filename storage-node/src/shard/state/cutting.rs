//! A state without what is in no pack: what a restore starts from, when the log that held the rest is gone.

use std::collections::BTreeSet;
use std::sync::Arc;

use weir_protocol::ids::{Offset, ShardId, TimestampMs};

use super::apply::ShardState;
use super::cow_map::BUCKETS;
use super::dead_letters::{DeadLetter, DeadLetters};
use super::dedupe::PartitionKey;

/// What a restored shard holds, and what of its state is gone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Restorable {
    /// Records in packs.
    pub records: u64,
    /// Bytes of the batches that hold them.
    pub bytes: u64,
    /// When the newest of them was accepted.
    pub newest: Option<TimestampMs>,
    /// Records that the state knew of and no pack holds.
    pub lost_records: u64,
    /// Dead letters on their way whose records no pack holds.
    pub lost_letters: u64,
    /// What settles published and had not arrived: never in a pack.
    pub lost_outputs: u64,
    /// Producers, by partition, of whose batches none that is remembered is in a pack: nothing is known of
    /// them any more, not even their epoch.
    pub forgotten_producers: u64,
}

impl ShardState {
    /// Forgets all records that no pack holds, and what is known of them: partitions end where their packs
    /// do, floors of subscriptions are at most there, producers and keys remember nothing behind. `arrived`
    /// says how many outputs of this shard another has taken.
    pub fn cut_to_packs(&mut self, arrived: impl Fn(ShardId) -> u64) -> Restorable {
        let mut told = Restorable::default();
        let keys: Vec<PartitionKey> = self.partitions.iter().map(|(key, _)| *key).collect();
        let mut cut = BTreeSet::new();
        for key in keys {
            let shared = self.partitions.get_mut(&key).expect("listed above");
            let lost = Arc::make_mut(shared).cut_to_packs();
            let partition = Arc::clone(shared);
            told.lost_records += lost;
            told.records += partition.end.0 - partition.start.0;
            told.bytes += partition.bytes;
            let newest = partition.end.0.checked_sub(1).and_then(|last| partition.batch_at(Offset(last)));
            told.newest = told.newest.max(newest.map(|row| row.ts));
            if lost > 0 {
                cut.insert(key);
                for subscription in self.parts.of(key) {
                    self.parts.change(&(subscription, key), |held| held.part.cut(partition.end));
                }
            }
        }
        told.forgotten_producers = self.cut_dedupe(&cut);
        told.lost_letters = self.cut_letters();
        told.lost_outputs = Arc::make_mut(&mut self.outputs).cut(arrived);
        let references = self.count_references();
        Arc::make_mut(&mut self.packs).recount(&references);
        self.floors = self.floors_of_partitions();
        told
    }

    /// Returns how many producers are forgotten.
    fn cut_dedupe(&mut self, cut: &BTreeSet<PartitionKey>) -> u64 {
        let end = |key: &PartitionKey| self.partitions.get(key).map(|partition| partition.end);
        let ends: Vec<_> = cut.iter().filter_map(|key| Some((*key, end(key)?))).collect();
        let end_of =
            |key: &PartitionKey| ends.binary_search_by_key(key, |(key, _)| *key).ok().map(|at| ends[at].1);
        let behind: Vec<_> = self
            .dedupe
            .producers
            .iter()
            .filter_map(|((at, producer), row)| {
                let end = end_of(at).filter(|end| row.reaches(*end))?;
                Some(((*at, *producer), row.cut(end)))
            })
            .collect();
        let mut forgotten = 0;
        for (key, row) in behind {
            match row {
                Some(row) => self.dedupe.producers.insert(key, row),
                None => {
                    forgotten += 1;
                    self.dedupe.producers.remove(&key)
                }
            };
        }
        for bucket in 0..BUCKETS {
            self.dedupe.keys.sweep(bucket, |(at, _), used| {
                let placed = used.placement.base_offset.plus(u64::from(used.placement.count));
                end_of(at).is_none_or(|end| placed <= end)
            });
        }
        forgotten
    }

    /// A letter is found in the pack that took its record since, or lost with it.
    fn cut_letters(&mut self) -> u64 {
        let (next, mut kept, mut lost) = (self.dead_letters.next(), Vec::new(), Vec::new());
        for letter in self.dead_letters.iter() {
            let pack = letter.pack.or_else(|| self.partitions.get(&letter.from)?.pack_of(letter.offset));
            match pack {
                Some(_) => kept.push(DeadLetter { pack, ..letter.clone() }),
                None => lost.push((letter.subscription, letter.from)),
            }
        }
        let letters = DeadLetters::restored(next, kept).expect("fewer than there were");
        self.dead_letters = Arc::new(letters);
        for part in &lost {
            self.parts.change(part, |held| held.part.dead_forwarded(1));
        }
        lost.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use prost::Message as _;
    use weir_protocol::error::{ErrorCode, Outcome};
    use weir_protocol::ids::{Incarnation, LogIndex, PartitionId};
    use weir_protocol::rpc::TopicConfig;

    use super::super::super::command::{Change, Command, CreateTopic, Seal, SealedPart};
    use super::super::super::entry::{EntryBuilder, Idempotency, Kind, SubBatch};
    use super::super::tests::{batch, config, name};
    use super::super::{LIVES_PER_EPOCH, Verdict};
    use super::*;

    const SHARD: ShardId = ShardId(3);

    struct Log {
        state: ShardState,
        index: u64,
        key: PartitionKey,
    }

    impl Log {
        fn new(partitions: u32) -> Self {
            let key = (Incarnation(0), PartitionId(0));
            let mut log = Self { state: ShardState::new(SHARD), index: 0, key };
            let create = CreateTopic {
                name: name("t"),
                // Long enough for all that is sent here to be remembered.
                config: TopicConfig { dedupe_window_ms: 3_600_000, ..config(partitions) },
                accept_existing: false,
                shards: Vec::new(),
            };
            let made = log.change(Change::CreateTopic(create));
            let Verdict::TopicCreated(made) = made else { panic!("{made:?}") };
            log.key.0 = Incarnation(made.topic.unwrap().incarnation);
            log
        }

        fn apply(&mut self, sub: &SubBatch) -> Verdict {
            self.index += 1;
            let mut entry = EntryBuilder::new(TimestampMs(1_000 * self.index), 0);
            entry.push(sub);
            let applied = self.state.apply(LogIndex(self.index), 1, &entry.build());
            applied.unwrap().verdicts.remove(0)
        }

        fn change(&mut self, change: Change) -> Verdict {
            self.apply(&SubBatch::command(Command { change: Some(change) }.encode_to_vec().into()))
        }

        fn publish(&mut self, producer: u128, seq: u64, count: u32, key: Option<u128>) -> Verdict {
            let sub = SubBatch {
                incarnation: self.key.0,
                partition: self.key.1,
                kind: Kind::Publish,
                idempotency: key.map(|key| Idempotency { key, fingerprint: 1 }),
                ..SubBatch::command(batch(producer, 0, seq, count))
            };
            self.apply(&sub)
        }

        fn seal(&mut self, end: u64) {
            let start = self.state.partition(self.key).unwrap().unsealed_from().0;
            if start < end {
                let (incarnation, partition) = (self.key.0.0, self.key.1.0);
                let parts = vec![SealedPart { incarnation, partition, start, end }];
                let attempt = u128::from(self.index).into();
                let seal = Seal { term: 1, attempt, parts, ..Seal::default() };
                assert_eq!(self.change(Change::Seal(seal)), Verdict::Done);
            }
        }
    }

    fn restored(state: &ShardState, epochs: u64) -> (ShardState, Restorable) {
        let mut state = ShardState::decode(SHARD, &state.encode()).unwrap();
        let told = state.cut_to_packs(|_| 0);
        state.check();
        let state = state.with_new_lives(SHARD, epochs).unwrap();
        state.check();
        (state, told)
    }

    #[test]
    fn what_no_pack_holds_is_gone_and_may_be_sent_again_and_what_is_packed_may_not() {
        let mut log = Log::new(1);
        for seq in 0..6 {
            log.publish(7, seq * 2, 2, Some(u128::from(seq)));
        }
        log.seal(8);
        let (state, told) = restored(&log.state, 1);
        assert_eq!((told.records, told.lost_records, told.newest), (8, 4, Some(TimestampMs(5_000))));
        let first_life = log.key.0.0;
        let life = Incarnation(first_life + LIVES_PER_EPOCH);
        assert!(state.partition(log.key).is_err(), "the old life is over");
        let index = log.index + 10;
        let mut log = Log { state, index, key: (life, PartitionId(0)) };
        let partition = log.state.partition(log.key).unwrap();
        assert_eq!((partition.start, partition.end), (Offset(0), Offset(8)));
        let topic = log.state.topics().life(life).unwrap();
        assert_eq!(topic.first_incarnation, first_life, "whose producers it knows");
        let Verdict::Placed(again) = log.publish(7, 6, 2, None) else { panic!() };
        assert_eq!((again.base_offset, again.duplicate), (6, true), "it is in a pack");
        let Verdict::Placed(lost) = log.publish(7, 8, 2, Some(4)) else { panic!() };
        assert_eq!((lost.base_offset, lost.duplicate), (8, false), "it was lost");
        let Verdict::Placed(key) = log.publish(9, 0, 1, Some(3)) else { panic!() };
        assert_eq!((key.base_offset, key.duplicate), (6, true), "the key of what is in a pack");
        // Restored once more: lives differ by two epochs, and the packs are still those of the first.
        log.state.check();
        let (state, _) = restored(&log.state, 1);
        assert!(state.partition((Incarnation(life.0 + LIVES_PER_EPOCH), PartitionId(0))).is_ok());
        assert_eq!(
            state.packs().live().map(|(_, pack)| pack.life_shift).collect::<Vec<_>>(),
            [2 * LIVES_PER_EPOCH]
        );
    }

    #[test]
    fn what_nobody_remembers_since_a_restore_is_refused_as_unknown_and_what_is_lost_is_accepted() {
        let mut log = Log::new(2);
        // None continues the one before, so that the first is forgotten when the last ones come.
        for seq in [500, 505, 1_020, 1_022, 1_024, 1_026, 1_028, 1_030, 1_032] {
            log.publish(7, seq, 1, None);
        }
        log.seal(9);
        let lost = [700, 3_000];
        for seq in lost {
            log.publish(7, seq, 1, None);
        }
        let (state, told) = restored(&log.state, 1);
        assert_eq!((told.records, told.lost_records), (9, 2));
        let life = Incarnation(log.key.0.0 + LIVES_PER_EPOCH);
        let mut log = Log { state, index: log.index + 10, key: (life, PartitionId(0)) };
        let Verdict::Refused(refusal) = log.publish(7, 500, 1, None) else { panic!("it is in a pack") };
        assert_eq!((refusal.error_code(), refusal.effect()), (ErrorCode::SeqTooOld, Outcome::Unknown));
        for seq in lost {
            let Verdict::Placed(again) = log.publish(7, seq, 1, None) else { panic!("{seq} was lost") };
            assert!(!again.duplicate, "{seq}");
        }
    }

    #[test]
    fn an_empty_state_and_one_that_is_packed_whole_lose_nothing() {
        let (state, told) = restored(&ShardState::new(SHARD), 1);
        assert_eq!((told, state.topics().len()), (Restorable::default(), 0));
        let mut log = Log::new(2);
        log.publish(0, 0, 3, None);
        log.seal(3);
        let (_, told) = restored(&log.state, 0);
        assert_eq!((told.records, told.lost_records), (3, 0));
        let (unchanged, _) = restored(&log.state, 0);
        assert_eq!(unchanged.encode(), log.state.encode(), "nothing but lost records and lives is touched");
    }

    #[test]
    fn letters_and_outputs_whose_bytes_were_in_the_log_alone_are_lost_and_counted() {
        let golden = bytes::Bytes::from_static(include_bytes!("golden/v7.checkpoint"));
        let mut state = ShardState::decode(ShardId(5), &golden).unwrap();
        let packed = state.dead_letters.iter().find(|letter| letter.pack.is_some());
        let letter = packed.unwrap().clone();
        let first = DeadLetter { seq: 8, ..letter.clone() };
        state.dead_letters = Arc::new(DeadLetters::restored(9, [first]).unwrap());
        let sealed_end = state.partition(letter.from).unwrap().unsealed_from();
        // Two more that were in no pack when they were given up: one is since.
        for offset in [Offset(sealed_end.0 - 1), sealed_end] {
            Arc::make_mut(&mut state.dead_letters).push(DeadLetter { offset, pack: None, ..letter.clone() });
        }
        let outputs = state.outputs.len() as u64;
        assert!(outputs > 0);
        let told = state.cut_to_packs(|target| 40 + u64::from(target.0));
        state.check();
        assert_eq!((told.lost_letters, told.lost_outputs), (1, outputs));
        assert_eq!((state.dead_letters.next(), state.dead_letters.len()), (11, 2));
        assert!(state.dead_letters.iter().all(|letter| letter.pack.is_some()));
        assert!(state.outputs.is_empty() && !state.outputs.lanes.is_empty());
        for (target, lane) in &state.outputs.lanes {
            assert_eq!(lane.next, 40 + u64::from(target.0), "what its target expects next");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
        /// Producers, partitions and packs after a cut are those of a log that never had what was cut.
        #[test]
        fn a_cut_state_is_that_of_the_records_that_are_left(
            sizes in proptest::collection::vec((1u32..5, 0u128..4), 1..40), sealed in 0usize..41, partitions in 1u32..3,
        ) {
            let (mut log, mut left) = (Log::new(partitions), Log::new(partitions));
            let (mut seqs, mut end) = ([0u64; 4], 0);
            for (at, (count, producer)) in sizes.iter().enumerate() {
                let seq = &mut seqs[usize::try_from(*producer).unwrap()];
                for log in [Some(&mut log), (at < sealed).then_some(&mut left)].into_iter().flatten() {
                    log.publish(*producer, *seq, *count, Some(at as u128));
                }
                *seq += u64::from(*count);
                end += if at < sealed { u64::from(*count) } else { 0 };
            }
            log.seal(end);
            let ((state, told), mut forgotten) = (restored(&log.state, 0), 0);
            for producer in 0..4u128 {
                let of = |state: &ShardState| {
                    let found = state.dedupe().producers.get(&(log.key, weir_protocol::ids::ProducerKey(producer)));
                    found.map(|found| (found.last_seq, found.last_offset, found.window.clone()))
                };
                let (cut, expected) = (of(&state), of(&left.state));
                let known = (log.key, weir_protocol::ids::ProducerKey(producer));
                let row = log.state.dedupe().producers.get(&known);
                // With none of its newest batches in a pack it begins anew.
                let is_forgotten =
                    row.is_some_and(|row| row.runs.iter().all(|run| run.base_offset >= Offset(end)));
                forgotten += u64::from(is_forgotten);
                prop_assert_eq!(cut, expected.filter(|_| !is_forgotten), "{}", producer);
            }
            prop_assert_eq!(told.forgotten_producers, forgotten);
            prop_assert_eq!(state.partition(log.key).unwrap().end, left.state.partition(log.key).unwrap().end);
            prop_assert_eq!(state.dedupe().keys.len(), left.state.dedupe().keys.len());
        }
    }
}
