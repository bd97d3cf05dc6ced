//! Batches of at most what was agreed with the gateway: those always get credit.

use weir_protocol::batch::{Batch, BatchBuilder, BatchError, Compression, RecordParts};
use weir_protocol::ids::{Epoch, ProducerKey, Seq};
use weir_protocol::ws::Limit;

/// Most bytes that a record takes more where others stand before it: one for each of its two places, from 128 on, and one
/// for its length, if that has one more digit then.
const PLACE_BYTES: u64 = 3;

const _: () = assert!(weir_protocol::limits::BATCH_RECORDS_MAX < 1 << 14, "a place is at most two bytes");

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
}

impl Batches {
    /// Puts records into as few batches as may be; the first has the number `next_seq`, which is then the one behind the
    /// last.
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
            let is_taken =
                had_some && self.has_room(&builder, record.size() as u64) && builder.push(record).is_ok();
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

    /// The same records, in smaller batches if they are too many together.
    ///
    /// # Errors
    /// The batch is damaged.
    pub(super) fn cut_again(self, batch: Pending, done: &mut impl Extend<Pending>) -> Result<(), BatchError> {
        let header = batch.batch.header();
        let (count, bytes) = (u64::from(header.count), u64::from(header.raw_bytes));
        if count == 1 || (count <= self.agreed.msgs && bytes <= self.agreed.bytes) {
            done.extend([batch]);
            return Ok(());
        }
        let records = batch.batch.records()?.collect::<Result<Vec<_>, _>>()?;
        let parts = records.iter().map(|record| RecordParts {
            key: record.key.as_deref(),
            headers: &record.headers,
            value: &record.value,
        });
        self.cut(&mut (batch.end - count), parts, done)
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
    use weir_protocol::batch::Headers;
    use weir_protocol::limits::RECORD_BYTES_MAX;

    use super::*;

    fn batches(msgs: u64, bytes: u64) -> Batches {
        Batches { producer: ProducerKey::NONE, epoch: Epoch(0), agreed: Limit { msgs, bytes } }
    }

    fn cut(batches: Batches, values: &[Vec<u8>]) -> Vec<Pending> {
        let headers = Headers::default();
        let parts = values.iter().map(|value| RecordParts { key: None, headers: &headers, value });
        let (mut done, mut next) = (Vec::new(), 7);
        batches.cut(&mut next, parts, &mut done).unwrap();
        assert_eq!(next, 7 + values.len() as u64);
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
