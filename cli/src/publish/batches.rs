//! Batches of at most what was agreed with the gateway: those always get credit.

use weir_protocol::batch::{Batch, BatchBuilder, BatchError, Compression, RecordParts};
use weir_protocol::ids::{Epoch, ProducerKey, Seq};
use weir_protocol::limits::PRODUCER_WINDOW;
use weir_protocol::ws::Limit;

/// Most bytes that a record takes more where others stand before it: one for each of its two places, from 128
/// on, and one for its length, if that has one more digit then.
const PLACE_BYTES: u64 = 3;

const _: () = assert!(weir_protocol::limits::BATCH_RECORDS_MAX < 1 << 14, "a place is at most two bytes");

/// On a topic of several partitions: below this number something may be stored of what was sent before, if the gateway
/// knows that all below `known` is. Its highest number is at most a window above that, and what is on its way still, at
/// most another window above.
pub(super) fn alone_below(known: u64) -> u64 {
    known.saturating_add(2 * PRODUCER_WINDOW)
}

/// A batch that is not confirmed yet.
pub(super) struct Pending {
    /// Number behind its last record.
    pub(super) end: u64,
    pub(super) batch: Batch,
    pub(super) input_bytes: u64,
}

/// Makes batches of one producer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Batches {
    pub(super) producer: ProducerKey,
    pub(super) epoch: Epoch,
    /// Most of a batch; a record that is larger is alone in its own.
    pub(super) agreed: Limit,
    /// Records with lower numbers may have been stored in other batches than these: each is alone in its own.
    pub(super) alone_below: u64,
}

impl Batches {
    /// Puts records into as few batches as may be; the first has the number `next_seq`, which is then the one
    /// behind the last.
    ///
    /// # Errors
    /// A record can be in no batch; those before it are in `done`.
    pub(super) fn cut<'a>(
        self,
        next_seq: &mut u64,
        records: impl IntoIterator<Item = RecordParts<'a>>,
        done: &mut impl Extend<Pending>,
    ) -> Result<(), BatchError> {
        let mut builder = BatchBuilder::new(self.producer, self.epoch, Seq(*next_seq));
        let mut input_bytes = 0;
        for record in records {
            let had_some = builder.count() > 0;
            // What no batch takes is refused by the next, empty one.
            let is_taken = had_some
                && *next_seq > self.alone_below
                && self.has_room(&builder, record.size() as u64)
                && builder.push(record).is_ok();
            if had_some && !is_taken {
                done.extend([pending(*next_seq, builder, input_bytes)?]);
                builder = BatchBuilder::new(self.producer, self.epoch, Seq(*next_seq));
                input_bytes = 0;
            }
            if !is_taken {
                builder.push(record)?;
            }
            input_bytes += record.value.len() as u64 + 1;
            *next_seq += 1;
        }
        if builder.count() > 0 {
            done.extend([pending(*next_seq, builder, input_bytes)?]);
        }
        Ok(())
    }

    /// The same records, in smaller batches if they are too many together or must be alone.
    ///
    /// # Errors
    /// The batch is damaged.
    pub(super) fn cut_again(self, batch: Pending, done: &mut impl Extend<Pending>) -> Result<(), BatchError> {
        let header = batch.batch.header();
        let (count, bytes) = (u64::from(header.count), u64::from(header.raw_bytes));
        let first = batch.end - count;
        let fits = count <= self.agreed.msgs && bytes <= self.agreed.bytes && first >= self.alone_below;
        if count == 1 || fits {
            done.extend([batch]);
            return Ok(());
        }
        let records = batch.batch.records()?.collect::<Result<Vec<_>, _>>()?;
        let parts = records.iter().map(|record| RecordParts {
            key: record.key.as_deref(),
            headers: &record.headers,
            value: &record.value,
        });
        self.cut(&mut { first }, parts, done)
    }

    fn has_room(&self, builder: &BatchBuilder, record_bytes: u64) -> bool {
        u64::from(builder.count()) < self.agreed.msgs
            && builder.size() as u64 + record_bytes + PLACE_BYTES <= self.agreed.bytes
    }
}

fn pending(end: u64, builder: BatchBuilder, input_bytes: u64) -> Result<Pending, BatchError> {
    Ok(Pending { end, batch: builder.build(Compression::Auto)?, input_bytes })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::ops::Range;

    use rand::rngs::StdRng;
    use rand::{Rng as _, SeedableRng as _};
    use weir_protocol::batch::Headers;
    use weir_protocol::limits::RECORD_BYTES_MAX;

    use super::*;
    use crate::publish::source::CHUNK_RECORDS;

    fn batches(msgs: u64, bytes: u64) -> Batches {
        Batches {
            producer: ProducerKey::NONE,
            epoch: Epoch(0),
            agreed: Limit { msgs, bytes },
            alone_below: 0,
        }
    }

    fn cut(batches: Batches, values: &[Vec<u8>]) -> Vec<Pending> {
        let headers = Headers::default();
        let parts = values.iter().map(|value| RecordParts { key: None, headers: &headers, value });
        let (mut done, mut next) = (Vec::new(), 7);
        batches.cut(&mut next, parts, &mut done).unwrap();
        assert_eq!(next, 7 + values.len() as u64);
        done
    }

    /// Those of `values` from number `first` on, chunk by chunk as they are read.
    fn cut_from(first: u64, batches: Batches, values: &[Vec<u8>]) -> Vec<Pending> {
        let headers = Headers::default();
        let (mut done, mut next) = (Vec::new(), first);
        for chunk in (0_u64..).zip(values).collect::<Vec<_>>().chunks(CHUNK_RECORDS) {
            let left = chunk.iter().filter(|(seq, _)| *seq >= first);
            let parts = left.map(|(_, value)| RecordParts { key: None, headers: &headers, value });
            batches.cut(&mut next, parts, &mut done).unwrap();
        }
        done
    }

    /// Numbers and payloads, and that each batch is within `agreed` unless it is one record.
    fn records(pending: &[Pending], agreed: Limit) -> Vec<(u64, Vec<u8>)> {
        let mut all = Vec::new();
        for one in pending {
            let header = one.batch.header();
            let (count, bytes) = (u64::from(header.count), u64::from(header.raw_bytes));
            assert!(count == 1 || (count <= agreed.msgs && bytes <= agreed.bytes), "{header:?}");
            assert_eq!(header.base_seq, Seq(one.end - count));
            let records = one.batch.records().unwrap().map(Result::unwrap);
            let values: Vec<_> = records.map(|record| record.value.to_vec()).collect();
            assert_eq!(one.input_bytes, values.iter().map(|value| value.len() as u64 + 1).sum::<u64>());
            all.extend((one.end - count..).zip(values));
        }
        all
    }

    #[test]
    fn no_batch_is_larger_than_agreed_and_a_large_record_is_alone() {
        let values: Vec<_> = (0..200).map(|at| vec![7; if at == 50 { 5_000 } else { at }]).collect();
        let expected: Vec<_> = (7..).zip(values.clone()).collect();
        for (msgs, bytes) in [(10, 1_000), (1, 1), (1_000, 1 << 20), (36, 4_000)] {
            let batches = batches(msgs, bytes);
            assert_eq!(records(&cut(batches, &values), batches.agreed), expected);
        }
        assert_eq!(cut(batches(1_000, 1 << 20), &values).len(), 1);
    }

    #[test]
    fn what_waits_is_cut_again_where_less_is_agreed_and_left_alone_where_it_fits() {
        let values: Vec<_> = (0..100).map(|at| vec![at; 100]).collect();
        let (large, small) = (batches(100, 1 << 20), batches(30, 2_000));
        let cut_again = |batches: Batches, from: Vec<Pending>| {
            let mut done = Vec::new();
            from.into_iter().for_each(|pending| batches.cut_again(pending, &mut done).unwrap());
            done
        };
        let smaller = cut_again(small, cut(large, &values));
        assert_eq!(records(&smaller, small.agreed), (7..).zip(values).collect::<Vec<_>>());
        let count = smaller.len();
        assert_eq!(cut_again(large, smaller).len(), count);
    }

    #[test]
    fn a_batch_that_is_full_to_the_byte_is_within_what_was_agreed_wherever_its_records_stand() {
        // Below a place of 128 their length is one byte, and two from there on.
        let values = vec![vec![7; 120]; 200];
        for bytes in 150 * 127..152 * 131 {
            let batches = batches(1_000, bytes);
            assert_eq!(records(&cut(batches, &values), batches.agreed).len(), values.len());
        }
    }

    /// The runs of one partition in a batch: the gateway makes a batch of each.
    fn runs(batch: &Pending, partition_of: &[usize]) -> Vec<Range<u64>> {
        let first = batch.end - u64::from(batch.batch.header().count);
        let mut runs: Vec<Range<u64>> = Vec::new();
        for seq in first..batch.end {
            let partition = |seq: u64| partition_of[usize::try_from(seq).unwrap()];
            match runs.last_mut() {
                Some(run) if partition(run.start) == partition(seq) => run.end += 1,
                _ => runs.push(seq..seq + 1),
            }
        }
        runs
    }

    /// What the gateway tells of a producer on two partitions, of which these numbers are stored.
    fn known(stored: &BTreeSet<u64>, partition_of: &[usize]) -> u64 {
        let highest_of = |partition| {
            let on_it = |seq: &&u64| partition_of[usize::try_from(**seq).unwrap()] == partition;
            stored.iter().rev().find(on_it).copied()
        };
        let by_window = stored.last().and_then(|highest| highest.checked_sub(PRODUCER_WINDOW));
        let by_partitions = highest_of(0).zip(highest_of(1)).map(|(one, other)| one.min(other));
        by_window.max(by_partitions).map_or(0, |last| last + 1)
    }

    #[test]
    fn over_several_partitions_nothing_is_stored_in_part_however_the_earlier_run_was_cut() {
        let mut random = StdRng::seed_from_u64(7);
        let values = vec![b"x".to_vec(); 6_000];
        for _ in 0..200 {
            let stickiness = random.random_range(1..100);
            let mut partition_of = vec![0];
            for at in 1..values.len() {
                let stays = random.random_range(0..100) < stickiness;
                partition_of.push(if stays { partition_of[at - 1] } else { random.random_range(0..2) });
            }
            let [earlier, now] = [0; 2].map(|_| batches(random.random_range(1..400), 1 << 20));
            // Below `all` everything is stored, up to `sent` what went to one partition; the rest is on its way still.
            let all = random.random_range(0..3_000);
            let sent = all + random.random_range(0..=896);
            let (mut stored, mut late) = (BTreeSet::new(), BTreeSet::new());
            for batch in cut_from(0, earlier, &values).iter().take_while(|batch| batch.end <= sent) {
                for run in runs(batch, &partition_of) {
                    let is_there = batch.end <= all || partition_of[usize::try_from(run.start).unwrap()] == 0;
                    if is_there { &mut stored } else { &mut late }.extend(run);
                }
            }
            let known = known(&stored, &partition_of);
            assert!((0..known).all(|seq| stored.contains(&seq)));
            let now = Batches { alone_below: alone_below(known), ..now };
            late.extend(&stored);
            for run in cut_from(known, now, &values).iter().flat_map(|batch| runs(batch, &partition_of)) {
                for there in [&stored, &late] {
                    let count = run.clone().filter(|seq| there.contains(seq)).count();
                    assert!(count == 0 || run.end - run.start == count as u64, "{run:?} from {known}");
                }
            }
        }
    }

    #[test]
    fn what_waits_is_cut_again_where_it_may_have_been_stored_otherwise() {
        let whole = batches(100, 1 << 20);
        let waiting = cut_from(0, whole, &vec![b"x".to_vec(); 300]);
        let (again, mut done) = (Batches { alone_below: 150, ..whole }, Vec::new());
        waiting.into_iter().for_each(|pending| again.cut_again(pending, &mut done).unwrap());
        let counts: Vec<_> = done.iter().map(|pending| pending.batch.header().count).collect();
        assert_eq!(counts, [vec![1; 150], vec![50, 56, 44]].concat());
    }

    #[test]
    fn a_record_that_is_in_no_batch_comes_after_those_before_it() {
        let (headers, huge) = (Headers::default(), vec![0; RECORD_BYTES_MAX]);
        let value = |value| RecordParts { key: None, headers: &headers, value };
        let (mut done, mut next) = (Vec::new(), 0);
        let refused = batches(10, 1_000).cut(&mut next, [value(b"a"), value(&huge)], &mut done);
        assert!(refused.is_err());
        assert_eq!((next, done.len()), (1, 1));
    }
}
