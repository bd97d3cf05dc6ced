//! What is in flight, on top of the applied state: lets the proposer answer early.
//!
//! Apply repeats every check and its verdict is final. What is said here holds unless the term is lost: an entry
//! that is in flight is applied exactly behind those before it.

use std::collections::{HashMap, HashSet};

use weir_protocol::batch::BatchHeader;
use weir_protocol::ids::{Epoch, Offset, ProducerKey, Seq, TimestampMs};

use super::entry::SubBatch;
use super::state::{Check, Dedupe, PartitionKey, ShardState, Verdict, known};

/// What becomes of a publish, as far as it can be told before its entry is applied.
#[derive(Debug, Clone, PartialEq)]
pub enum Outlook {
    /// It gets this offset, unless the term is lost.
    Accepted(Offset),
    /// Final already, from applied state: a duplicate, or refused. It need not be logged.
    Settled(Box<Verdict>),
    /// It depends on something in flight: apply will tell.
    Unclear,
}

/// A publish to be judged.
#[derive(Debug, Clone, Copy)]
pub struct Publish<'a> {
    /// Its partition.
    pub key: PartitionKey,
    /// Its sub-batch.
    pub sub: &'a SubBatch,
    /// Header of its batch.
    pub header: &'a BatchHeader,
    /// Time of its entry.
    pub ts: TimestampMs,
}

/// Ends, producers and keys in flight, by partition. Empty while nothing is in flight.
#[derive(Debug, Default)]
pub struct Staged {
    partitions: HashMap<PartitionKey, InFlight>,
    /// Batches in flight, of all partitions.
    batches: usize,
    /// Changes of topics in flight; while there are any, nothing is told early.
    changes: usize,
}

#[derive(Debug)]
struct InFlight {
    batches: usize,
    /// One past the newest staged record; `None` once something unclear was staged.
    end: Option<Offset>,
    /// The newest in flight of each.
    producers: HashMap<ProducerKey, (Epoch, Seq)>,
    keys: HashSet<u128>,
}

impl Staged {
    /// Judges a publish and counts it in if it is to be logged. `state` was read after `self` was locked.
    pub fn publish(&mut self, state: &ShardState, on: &Publish<'_>) -> Outlook {
        let Publish { key, sub, header, .. } = *on;
        let outlook = self.judge(state, on);
        if matches!(outlook, Outlook::Settled(_)) {
            return outlook;
        }
        let flying = self.partitions.entry(key).or_insert_with(|| InFlight {
            batches: 0,
            end: state.partition(key).ok().map(|partition| partition.end),
            producers: HashMap::new(),
            keys: HashSet::new(),
        });
        flying.batches += 1;
        self.batches += 1;
        match outlook {
            Outlook::Accepted(base) => flying.end = Some(base.plus(u64::from(header.count))),
            _ => flying.end = None,
        }
        if !header.producer.is_none() {
            flying.producers.insert(header.producer, newest_of(header));
        }
        flying.keys.extend(sub.idempotency.map(|used| used.key));
        outlook
    }

    /// Whether a record under way may have this offset. Where that cannot be told yet, it may.
    #[must_use]
    pub fn may_hold(&self, key: PartitionKey, offset: Offset) -> bool {
        self.partitions.get(&key).is_some_and(|flying| flying.end.is_none_or(|end| offset < end))
    }

    /// Counts a change of topics in.
    pub fn change(&mut self) {
        self.changes += 1;
    }

    /// A publish that was counted in was applied, or is known to be lost. They land in the order they were counted in.
    pub fn landed(&mut self, sub: &SubBatch, header: &BatchHeader) {
        let key = (sub.incarnation, sub.partition);
        let Some(flying) = self.partitions.get_mut(&key) else { return };
        flying.batches -= 1;
        self.batches -= 1;
        if flying.batches == 0 {
            self.partitions.remove(&key);
            return;
        }
        // The state says from now on what was seen of them. A partition may be busy for days without a pause.
        if let Some(used) = &sub.idempotency {
            flying.keys.remove(&used.key);
        }
        if flying.producers.get(&header.producer) == Some(&newest_of(header)) {
            flying.producers.remove(&header.producer);
        }
    }

    /// A change of topics was applied, or is known to be lost.
    pub fn change_landed(&mut self) {
        self.changes -= 1;
    }

    fn judge(&self, state: &ShardState, on: &Publish<'_>) -> Outlook {
        // What comes from another shard has its turn only when it is applied.
        if self.changes > 0 || on.sub.across.is_some() || !has_room(state.dedupe(), self.batches) {
            return Outlook::Unclear;
        }
        let partition = match state.partition(on.key) {
            Ok(partition) => partition,
            Err(refusal) => return settled(Verdict::Refused(refusal)),
        };
        let Some(flying) = self.partitions.get(&on.key) else {
            return match state.judge(on.key, partition, on.sub, on.header, on.ts) {
                Check::New => Outlook::Accepted(partition.end),
                Check::Duplicate(seen) => settled(known(seen, 0, state.dedupe().last_seq(on.key, on.header))),
                Check::Refused(refusal) => settled(Verdict::Refused(refusal)),
            };
        };
        let dense = partition.config.partitions == 1;
        let is_accepted = !partition.config.closed
            && flying.continues(on.header, dense, |header| {
                state.dedupe().check_producer(on.key, header, dense, on.ts) == Check::New
            })
            && on.sub.idempotency.is_none_or(|used| {
                !flying.keys.contains(&used.key)
                    && state.dedupe().check_key(on.key, &used, on.ts) == Check::New
            });
        match flying.end {
            // What is in flight may still be lost, so nothing is refused because of it.
            Some(end) if is_accepted && on.sub.expected_end.is_none_or(|expected| expected == end) => {
                Outlook::Accepted(end)
            }
            _ => Outlook::Unclear,
        }
    }
}

impl InFlight {
    /// Whether a producer's batch is new, given what is in flight of it; `applied` judges by what is applied.
    /// Unless the topic is `dense`, numbers come in any order, and those behind what is in flight may have been
    /// applied before it.
    fn continues(&self, header: &BatchHeader, dense: bool, applied: impl Fn(&BatchHeader) -> bool) -> bool {
        match self.producers.get(&header.producer) {
            Some((epoch, last)) => {
                let follows = header.epoch == *epoch && Some(header.base_seq.0) == last.0.checked_add(1);
                follows && (dense || applied(header))
            }
            None => applied(header),
        }
    }
}

/// Epoch and last number of a batch.
fn newest_of(header: &BatchHeader) -> (Epoch, Seq) {
    (header.epoch, Seq(header.base_seq.0.saturating_add(u64::from(header.count) - 1)))
}

/// Each batch in flight may take a row of the deduplication tables; where one more might find none left,
/// nothing is told early.
fn has_room(dedupe: &Dedupe, in_flight: usize) -> bool {
    let (producers, keys) = dedupe.rows();
    producers.max(keys) + in_flight < dedupe.rows_max()
}

fn settled(verdict: Verdict) -> Outlook {
    Outlook::Settled(Box::new(verdict))
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;
    use prost::Message as _;
    use weir_protocol::batch::{Batch, BatchBuilder, Compression, Headers, RecordParts};
    use weir_protocol::ids::{Incarnation, LogIndex, PartitionId, ShardId};
    use weir_protocol::rpc::{Placed, TopicConfig, TopicName};

    use super::super::command::{Change, Command, CreateTopic};
    use super::super::entry::{EntryBuilder, Idempotency, Kind};
    use super::*;

    const KEY: PartitionKey = (Incarnation(1 << 40 | 1), PartitionId(0));

    fn apply(state: &mut ShardState, index: u64, subs: &[SubBatch]) -> Vec<Verdict> {
        let mut entry = EntryBuilder::new(TimestampMs(1_000 + index), 0);
        subs.iter().for_each(|sub| entry.push(sub));
        state.apply(LogIndex(index), 1, &entry.build()).unwrap().verdicts
    }

    fn with_topic() -> ShardState {
        with_topic_and_rows(1_000)
    }

    fn with_topic_and_rows(rows_max: usize) -> ShardState {
        with(ShardState::with_dedupe_rows(ShardId(1), rows_max), 1)
    }

    fn with(mut state: ShardState, partitions: u32) -> ShardState {
        let name = TopicName { tenant: "t".into(), namespace: "n".into(), topic: "a".into() };
        let config = TopicConfig { partitions, dedupe_window_ms: 60_000, ..TopicConfig::default() };
        let change =
            Change::CreateTopic(CreateTopic { name, config, accept_existing: false, shards: Vec::new() });
        let command = Command { change: Some(change) }.encode_to_vec();
        apply(&mut state, 0, &[SubBatch::command(command.into())]);
        state
    }

    fn batch(producer: u128, seq: u64) -> Batch {
        batch_of(producer, 0, seq, 1)
    }

    fn batch_of(producer: u128, epoch: u32, seq: u64, records: u32) -> Batch {
        let mut builder = BatchBuilder::new(ProducerKey(producer), Epoch(epoch), Seq(seq));
        for _ in 0..records {
            builder.push(RecordParts { key: None, headers: &Headers::default(), value: b"v" }).unwrap();
        }
        builder.build(Compression::None).unwrap()
    }

    fn sub(batch: &Batch) -> SubBatch {
        SubBatch {
            incarnation: KEY.0,
            partition: KEY.1,
            kind: Kind::Publish,
            expected_end: None,
            idempotency: None,
            across: None,
            body: batch.bytes().clone(),
        }
    }

    fn header(sub: &SubBatch) -> BatchHeader {
        Batch::parse(sub.body.clone()).unwrap().header()
    }

    fn stage(staged: &mut Staged, state: &ShardState, sub: &SubBatch) -> Outlook {
        staged.publish(state, &Publish { key: KEY, sub, header: &header(sub), ts: TimestampMs(2_000) })
    }

    fn land(staged: &mut Staged, sub: &SubBatch) {
        staged.landed(sub, &header(sub));
    }

    #[test]
    fn what_is_told_early_is_what_apply_says() {
        let mut state = with_topic();
        let mut staged = Staged::default();
        let subs: Vec<SubBatch> =
            [batch(0, 0), batch(7, 0), batch(7, 1), batch(0, 0)].iter().map(sub).collect();
        let told: Vec<Outlook> = subs.iter().map(|sub| stage(&mut staged, &state, sub)).collect();
        let verdicts = apply(&mut state, 1, &subs);
        for (told, verdict) in told.iter().zip(&verdicts) {
            let Verdict::Placed(placed) = verdict else { panic!("{verdict:?}") };
            assert_eq!(*told, Outlook::Accepted(Offset(placed.base_offset)));
        }
        subs.iter().for_each(|sub| land(&mut staged, sub));
        let again = stage(&mut staged, &state, &subs[1]);
        let Outlook::Settled(verdict) = again else { panic!("{again:?}") };
        assert!(matches!(*verdict, Verdict::Placed(Placed { duplicate: true, base_offset: 1, .. })));
    }

    #[test]
    fn what_depends_on_something_in_flight_is_left_to_apply() {
        let state = with_topic();
        let mut staged = Staged::default();
        let once = Idempotency { key: 5, fingerprint: 6 };
        let keyed = SubBatch { idempotency: Some(once), ..sub(&batch(0, 0)) };
        assert_eq!(stage(&mut staged, &state, &keyed), Outlook::Accepted(Offset(0)));
        assert_eq!(stage(&mut staged, &state, &keyed), Outlook::Unclear, "the key is in flight");
        assert_eq!(stage(&mut staged, &state, &sub(&batch(0, 0))), Outlook::Unclear, "so the end is unclear");
        [&keyed, &keyed, &sub(&batch(0, 0))].into_iter().for_each(|sub| land(&mut staged, sub));
        assert_eq!(stage(&mut staged, &state, &sub(&batch(0, 0))), Outlook::Accepted(Offset(0)));
        staged.change();
        assert_eq!(stage(&mut staged, &state, &sub(&batch(0, 0))), Outlook::Unclear, "the topic may go");
    }

    /// A call is never divided, so there may be tens of thousands: they are counted.
    #[test]
    fn nothing_is_told_early_that_the_deduplication_tables_may_have_no_room_for() {
        let mut state = with_topic_and_rows(8);
        apply(&mut state, 1, &[sub(&batch(100, 0)), sub(&batch(101, 0))]);
        let mut staged = Staged::default();
        for n in 0..6 {
            let told = stage(&mut staged, &state, &sub(&batch(1 + n, 0)));
            assert_eq!(told, Outlook::Accepted(Offset(2 + u64::try_from(n).unwrap())));
        }
        assert_eq!(
            stage(&mut staged, &state, &sub(&batch(7, 0))),
            Outlook::Unclear,
            "two rows and six on their way"
        );
        (1..8).for_each(|n| land(&mut staged, &sub(&batch(n, 0))));
        assert_eq!((staged.batches, staged.partitions.len()), (0, 0));
        assert_eq!(stage(&mut staged, &state, &sub(&batch(7, 0))), Outlook::Accepted(Offset(2)));
    }

    #[test]
    fn a_condition_on_the_tail_is_refused_only_by_what_is_applied() {
        let state = with_topic();
        let mut staged = Staged::default();
        let at = |end| SubBatch { expected_end: Some(Offset(end)), ..sub(&batch(0, 0)) };
        assert!(matches!(stage(&mut staged, &state, &at(9)), Outlook::Settled(_)));
        assert_eq!(stage(&mut staged, &state, &at(0)), Outlook::Accepted(Offset(0)));
        assert_eq!(stage(&mut staged, &state, &at(1)), Outlook::Accepted(Offset(1)));
        assert_eq!(stage(&mut staged, &state, &at(0)), Outlook::Unclear);
    }

    #[test]
    fn a_number_that_was_applied_before_the_one_in_flight_is_not_told_as_new() {
        let mut state = with(ShardState::new(ShardId(1)), 3);
        // A partition of several sees numbers in any order.
        apply(&mut state, 1, &[sub(&batch(7, 6))]);
        let mut staged = Staged::default();
        let (behind, again) = (sub(&batch(7, 5)), sub(&batch(7, 6)));
        assert_eq!(stage(&mut staged, &state, &behind), Outlook::Accepted(Offset(1)));
        assert_eq!(stage(&mut staged, &state, &again), Outlook::Unclear);
        let verdicts = apply(&mut state, 2, &[behind, again]);
        let placed = |verdict: &Verdict| match verdict {
            Verdict::Placed(placed) => (placed.base_offset, placed.duplicate),
            other => panic!("{other:?}"),
        };
        assert_eq!(verdicts.iter().map(placed).collect::<Vec<_>>(), [(1, false), (0, true)]);
    }

    #[test]
    fn a_partition_that_is_never_idle_keeps_only_what_is_in_flight() {
        let (mut state, mut staged) = (with_topic(), Staged::default());
        let keyed = |n: u64| SubBatch {
            idempotency: Some(Idempotency { key: n.into(), fingerprint: 0 }),
            ..sub(&batch(1 + u128::from(n), 0))
        };
        assert_eq!(stage(&mut staged, &state, &keyed(0)), Outlook::Accepted(Offset(0)));
        for n in 0..400 {
            assert_eq!(stage(&mut staged, &state, &keyed(n + 1)), Outlook::Accepted(Offset(n + 1)));
            apply(&mut state, n + 1, &[keyed(n)]);
            land(&mut staged, &keyed(n));
            let flying = &staged.partitions[&KEY];
            assert_eq!((flying.batches, flying.producers.len(), flying.keys.len()), (1, 1, 1));
        }
    }

    /// Producer, epoch, sequence number, records, and an idempotency key.
    type Sent = (u128, u32, u64, u32, Option<u8>);

    #[derive(Debug, Clone)]
    enum Step {
        Stage(Sent),
        /// What was staged since becomes an entry.
        Propose,
        /// The oldest entry is applied.
        Land,
    }

    fn any_step() -> impl Strategy<Value = Step> {
        let key = prop_oneof![3 => Just(None), 1 => (0u8..4).prop_map(Some)];
        prop_oneof![
            4 => (0u128..3, 0u32..2, 0u64..12, 1u32..4, key).prop_map(Step::Stage),
            2 => Just(Step::Propose),
            2 => Just(Step::Land),
        ]
    }

    fn any_sub((producer, epoch, seq, records, key): Sent) -> SubBatch {
        let idempotency = key.map(|key| Idempotency { key: key.into(), fingerprint: 0 });
        SubBatch { idempotency, ..sub(&batch_of(producer, epoch, seq, records)) }
    }

    proptest! {
        #[test]
        fn whatever_is_told_early_apply_says_too(
            steps in proptest::collection::vec(any_step(), 1..80), partitions in 1u32..3,
        ) {
            let mut state = with(ShardState::new(ShardId(1)), partitions);
            let (mut staged, mut index) = (Staged::default(), 0);
            let (mut next, mut flying) = (Vec::new(), VecDeque::new());
            let mut steps = VecDeque::from(steps);
            // In the end all lands.
            while !(steps.is_empty() && next.is_empty() && flying.is_empty()) {
                match steps.pop_front().unwrap_or(if next.is_empty() { Step::Land } else { Step::Propose }) {
                    Step::Stage(sent) => {
                        let sub = any_sub(sent);
                        let told = stage(&mut staged, &state, &sub);
                        if !matches!(told, Outlook::Settled(_)) {
                            next.push((sub, told));
                        }
                    }
                    Step::Propose => flying.push_back(std::mem::take(&mut next)),
                    Step::Land => {
                        let entry: Vec<(SubBatch, Outlook)> = flying.pop_front().unwrap_or_default();
                        let (subs, told): (Vec<_>, Vec<_>) = entry.into_iter().unzip();
                        index += 1;
                        let verdicts = apply(&mut state, index, &subs);
                        subs.iter().for_each(|sub| land(&mut staged, sub));
                        for (told, verdict) in told.iter().zip(&verdicts) {
                            let Outlook::Accepted(base) = told else { continue };
                            let Verdict::Placed(placed) = verdict else { panic!("{told:?}: {verdict:?}") };
                            prop_assert_eq!((placed.base_offset, placed.duplicate), (base.0, false));
                        }
                    }
                }
                let of = staged.partitions.get(&KEY);
                let kept = of.map_or((0, 0), |of| (of.producers.len(), of.keys.len()));
                prop_assert!(kept.0.max(kept.1) <= staged.batches, "{kept:?}");
            }
            prop_assert!(staged.partitions.is_empty() && staged.batches == 0);
        }
    }
}
