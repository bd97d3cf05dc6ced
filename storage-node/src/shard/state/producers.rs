//! Producers: what each has sent to a partition, so that a retry is recognised and an old epoch fenced.

use weir_protocol::batch::BatchHeader;
use weir_protocol::error::{ErrorCode, Outcome};
use weir_protocol::ids::{Epoch, Offset, Seq, TimestampMs};
use weir_protocol::limits::PRODUCER_WINDOW;
use weir_protocol::rpc::Refusal;

use super::dedupe::{Check, Placement};

/// Runs of which the placement is remembered. A run is one batch, or any number that followed one another both in
/// sequence and in the partition: a lone producer has one run.
const RUNS: usize = 8;
const WINDOW_WORDS: usize = 16;

const _: () = assert!(WINDOW_WORDS as u64 * 64 == PRODUCER_WINDOW, "the window is what is published");

/// A producer on one partition.
///
/// On a topic of one partition its sequence is contiguous: `last_seq` says all. On several, a partition sees some of
/// the numbers, and not always in order: then `window` says which of the 1,024 up to `last_seq` it saw.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Producer {
    /// Its epoch; lower ones are fenced.
    pub epoch: Epoch,
    /// Highest sequence number accepted.
    pub last_seq: Seq,
    /// Offset of the record with that number.
    pub last_offset: Offset,
    /// When it was last heard of.
    pub seen: TimestampMs,
    pub(super) runs: Vec<Run>,
    pub(super) window: Option<Box<Window>>,
}

/// Which of the numbers up to `last_seq` were seen.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Window {
    /// Bit `i % 64` of word `i / 64`: number `last_seq - i` was seen.
    pub(super) seen: [u64; WINDOW_WORDS],
    /// Below it a bit says only that the number may have been seen: a restore went back to where nobody remembers.
    pub(super) sure_from: Seq,
}

/// Records that follow one another in sequence and in the partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) first: Seq,
    pub(super) base_offset: Offset,
    pub(super) count: u64,
    /// When its newest batch was accepted.
    pub(super) ts: TimestampMs,
}

/// The sequence numbers of one batch, `first..=last`.
#[derive(Debug, Clone, Copy)]
struct Span {
    first: u64,
    last: u64,
}

/// How a batch relates to what `known` has sent. `dense`: the topic has one partition.
///
/// One partition, the rules of Durable Streams: a new producer or epoch starts at 0, the next batch follows the last
/// one, what was seen is a duplicate. Several partitions: unseen numbers inside the window are accepted in any order,
/// seen ones are duplicates, older ones cannot be told apart and are refused unless it is remembered where they went.
/// Partly seen batches are refused whole.
pub(super) fn check(known: Option<&Producer>, header: &BatchHeader, dense: bool) -> Check {
    let first = header.base_seq.0;
    let Some(last) = first.checked_add(u64::from(header.count) - 1).filter(|last| *last < u64::MAX) else {
        return refuse(ErrorCode::InvalidBatch, format!("sequence number {first} is too high"));
    };
    let span = Span { first, last };
    match known {
        Some(known) if known.epoch > header.epoch => {
            let detail = format!("epoch {} is fenced by epoch {}", header.epoch, known.epoch);
            let refusal = Refusal::new(ErrorCode::StaleEpoch, detail);
            Check::Refused(Refusal { epoch: Some(known.epoch.0), ..refusal })
        }
        Some(known) if known.epoch == header.epoch => match &known.window {
            None => check_dense(known, span),
            Some(window) => check_window(known, window, span),
        },
        _ if dense && first != 0 => {
            let (code, what) = match known {
                Some(_) => (ErrorCode::EpochStart, "epoch"),
                None => (ErrorCode::ProducerGap, "producer"),
            };
            let refusal =
                Refusal::new(code, format!("a new {what} starts at sequence number 0, not {first}"));
            Check::Refused(Refusal { expected_seq: Some(0), ..refusal })
        }
        _ => Check::New,
    }
}

fn check_dense(known: &Producer, span: Span) -> Check {
    let last_seq = known.last_seq.0;
    if span.first == last_seq + 1 {
        return Check::New;
    }
    if span.first > last_seq {
        let detail = format!("sequence number {} after {last_seq}", span.first);
        let refusal = Refusal::new(ErrorCode::ProducerGap, detail);
        return Check::Refused(Refusal { expected_seq: Some(last_seq + 1), ..refusal });
    }
    if span.last > last_seq { overlap(known, span) } else { seen(known, span) }
}

fn check_window(known: &Producer, window: &Window, span: Span) -> Check {
    let last_seq = known.last_seq.0;
    if span.first > last_seq {
        return Check::New;
    }
    if last_seq - span.first >= PRODUCER_WINDOW {
        // One batch may be longer than the window.
        if let Some(placement) = placement(known, span) {
            return Check::Duplicate(placement);
        }
        let detail = format!("sequence number {} is too far below {last_seq} to tell", span.first);
        return too_old(known, detail, Outcome::Unknown);
    }
    let is_seen = |seq: u64| seq <= last_seq && bit(&window.seen, last_seq - seq);
    match (span.first..=span.last).filter(|seq| is_seen(*seq)).count() as u64 {
        0 => Check::New,
        n if n < span.last - span.first + 1 => overlap(known, span),
        _ if span.first < window.sure_from.0 && placement(known, span).is_none() => {
            let detail =
                format!("whether {} to {} were accepted is not known since a restore", span.first, span.last);
            too_old(known, detail, Outcome::Unknown)
        }
        _ => seen(known, span),
    }
}

fn too_old(known: &Producer, detail: String, outcome: Outcome) -> Check {
    let refusal = Refusal::new(ErrorCode::SeqTooOld, detail).with_outcome(outcome);
    Check::Refused(Refusal { last_seq: Some(known.last_seq.0), ..refusal })
}

fn overlap(known: &Producer, span: Span) -> Check {
    let last_seq = known.last_seq.0;
    let detail = format!("{} to {} overlap what was accepted up to {last_seq}", span.first, span.last);
    let refusal = Refusal::new(ErrorCode::SeqOverlap, detail);
    Check::Refused(Refusal { last_seq: Some(last_seq), ..refusal })
}

/// All of it was accepted before: where, if that is remembered. If not, the refusal says that it took effect.
fn seen(known: &Producer, span: Span) -> Check {
    if let Some(placement) = placement(known, span) {
        return Check::Duplicate(placement);
    }
    let Span { first, last } = span;
    let detail = format!("{first} to {last} were accepted, too long ago to know where");
    too_old(known, detail, Outcome::Applied)
}

/// Where it was accepted, if one of the remembered runs holds all of it.
fn placement(known: &Producer, Span { first, last }: Span) -> Option<Placement> {
    let holds = |run: &&Run| run.first.0 <= first && last < run.first.0 + run.count;
    let run = known.runs.iter().rev().find(holds)?;
    let base_offset = run.base_offset.plus(first - run.first.0);
    let count = u32::try_from(last - first + 1).expect("the span of a batch");
    Some(Placement { base_offset, count, ts: run.ts })
}

fn refuse(code: ErrorCode, detail: String) -> Check {
    Check::Refused(Refusal::new(code, detail))
}

impl Producer {
    /// The producer of a first batch, accepted at `placement`.
    pub(super) fn new(header: &BatchHeader, placement: Placement, dense: bool) -> Self {
        let mut producer = Self {
            epoch: header.epoch,
            last_seq: header.base_seq,
            last_offset: placement.base_offset,
            seen: placement.ts,
            runs: Vec::new(),
            window: (!dense).then(Box::default),
        };
        producer.accept(header, placement);
        producer
    }

    /// Its next batch was accepted at `placement`, in the same epoch.
    pub(super) fn accept(&mut self, header: &BatchHeader, placement: Placement) {
        let (first, count) = (header.base_seq.0, u64::from(header.count));
        let last = first + count - 1;
        self.seen = placement.ts;
        if last >= self.last_seq.0 {
            if let Some(window) = &mut self.window {
                shift(&mut window.seen, last - self.last_seq.0);
            }
            self.last_seq = Seq(last);
            self.last_offset = placement.base_offset.plus(count - 1);
        }
        if let Some(window) = &mut self.window {
            let oldest = self.last_seq.0.saturating_sub(PRODUCER_WINDOW - 1);
            for seq in first.max(oldest)..=last {
                mark(&mut window.seen, self.last_seq.0 - seq);
            }
        }
        self.remember(Run { first: Seq(first), base_offset: placement.base_offset, count, ts: placement.ts });
    }

    /// It sent something that was placed at `end` or behind.
    pub(super) fn reaches(&self, end: Offset) -> bool {
        self.last_offset >= end || self.runs.iter().any(|run| run.base_offset.plus(run.count) > end)
    }

    /// What would be known of it if everything from `end` on had not been accepted; `None` if that is not
    /// remembered: it begins anew then.
    pub(super) fn cut(&self, end: Offset) -> Option<Self> {
        let is_cut = |seq: u64| {
            let run =
                self.runs.iter().rev().find(|run| (run.first.0..run.first.0 + run.count).contains(&seq));
            run.is_some_and(|run| run.base_offset.plus(seq - run.first.0) >= end)
        };
        let left = self.runs.iter().filter(|run| run.base_offset < end);
        let runs: Vec<Run> =
            left.map(|run| Run { count: run.count.min(end.0 - run.base_offset.0), ..*run }).collect();
        // The newest that is left was accepted last: whatever was cut came behind it, and is in the runs.
        let newest = runs.last()?;
        let highest = runs.iter().map(|run| run.first.0 + run.count - 1).max()?;
        let mut cut = Self { seen: newest.ts, runs: Vec::new(), window: None, ..self.clone() };
        let mut last_seq = highest;
        if let Some(window) = &self.window {
            let seen = |age: &u64| *age <= self.last_seq.0 && bit(&window.seen, *age);
            let seen: Vec<u64> = (0..PRODUCER_WINDOW).filter(seen).map(|age| self.last_seq.0 - age).collect();
            let kept = || seen.iter().copied().filter(|seq| !is_cut(*seq));
            last_seq = kept().next().map_or(highest, |kept| kept.max(highest));
            let mut kept_window = Window { sure_from: window.sure_from, ..Window::default() };
            // It reaches lower than before: what was below it then, the runs alone may know.
            let oldest = |last: u64| last.saturating_sub(PRODUCER_WINDOW - 1);
            let of_runs =
                runs.iter().flat_map(|run| run.first.0.max(oldest(last_seq))..run.first.0 + run.count);
            kept().chain(of_runs).for_each(|seq| mark(&mut kept_window.seen, last_seq - seq));
            // What no run knows any more was placed before all that they know, and is still there.
            if self.runs.len() == RUNS || window.sure_from > Seq(0) {
                let below = oldest(last_seq)..oldest(self.last_seq.0).min(last_seq + 1);
                let forgotten = below.clone().filter(|seq| !is_cut(*seq));
                forgotten.for_each(|seq| mark(&mut kept_window.seen, last_seq - seq));
                kept_window.sure_from = Seq(below.end.max(window.sure_from.0.min(last_seq + 1)));
            }
            cut.window = Some(Box::new(kept_window));
        }
        let holds = |run: &&Run| (run.first.0..run.first.0 + run.count).contains(&last_seq);
        let at = runs.iter().rev().find(holds);
        cut.last_offset = at.map_or(newest.base_offset, |run| run.base_offset.plus(last_seq - run.first.0));
        cut.last_seq = Seq(last_seq);
        cut.runs = runs;
        Some(cut)
    }

    fn remember(&mut self, run: Run) {
        if let Some(newest) = self.runs.last_mut()
            && newest.first.0 + newest.count == run.first.0
            && newest.base_offset.plus(newest.count) == run.base_offset
        {
            newest.count += run.count;
            newest.ts = run.ts;
            return;
        }
        if self.runs.len() == RUNS {
            self.runs.remove(0);
        }
        self.runs.reserve_exact(1);
        self.runs.push(run);
    }
}

fn bit(window: &[u64; WINDOW_WORDS], age: u64) -> bool {
    age < PRODUCER_WINDOW && window[(age / 64) as usize] >> (age % 64) & 1 == 1
}

fn mark(window: &mut [u64; WINDOW_WORDS], age: u64) {
    window[(age / 64) as usize] |= 1 << (age % 64);
}

/// Makes all numbers `by` older.
fn shift(window: &mut [u64; WINDOW_WORDS], by: u64) {
    if by >= PRODUCER_WINDOW {
        *window = [0; WINDOW_WORDS];
        return;
    }
    let (words, bits) = ((by / 64) as usize, (by % 64) as u32);
    for to in (0..WINDOW_WORDS).rev() {
        let word = |at: Option<usize>| at.map_or(0, |at| window[at]);
        let (near, far) = (word(to.checked_sub(words)), word(to.checked_sub(words + 1)));
        window[to] = if bits == 0 { near } else { near << bits | far >> (64 - bits) };
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;
    use weir_protocol::batch::{BatchBuilder, Compression, Headers, RecordParts};
    use weir_protocol::ids::ProducerKey;

    use super::*;

    fn header(epoch: u32, first: u64, count: u32) -> BatchHeader {
        let mut builder = BatchBuilder::new(ProducerKey(1), Epoch(epoch), Seq(first));
        let headers = Headers::default();
        for _ in 0..count {
            builder.push(RecordParts { key: None, headers: &headers, value: b"" }).unwrap();
        }
        builder.build(Compression::None).unwrap().header()
    }

    fn at(base_offset: u64, count: u32) -> Placement {
        Placement { base_offset: Offset(base_offset), count, ts: TimestampMs(1) }
    }

    fn code(check: &Check) -> Option<ErrorCode> {
        match check {
            Check::Refused(refusal) => Some(refusal.error_code()),
            _ => None,
        }
    }

    proptest! {
        /// On several partitions: what the window says equals what a set of all numbers says.
        #[test]
        fn the_window_knows_what_a_set_knows(
            batches in proptest::collection::vec((0u64..3_000, 1u32..40), 1..120), jumps: bool,
        ) {
            let mut seen = BTreeSet::new();
            let mut producer: Option<Producer> = None;
            let mut end = 0;
            for (seq, count) in batches {
                let first = if jumps { seq * 7 } else { seq };
                let header = header(0, first, count);
                let numbers = first..first + u64::from(count);
                let check = check(producer.as_ref(), &header, false);
                let highest = seen.last().copied();
                let known = numbers.clone().filter(|seq| seen.contains(seq)).count();
                if highest.is_some_and(|highest| first + PRODUCER_WINDOW <= highest) {
                    let is_known = matches!(&check, Check::Duplicate(placed) if placed.count == count);
                    prop_assert!(code(&check) == Some(ErrorCode::SeqTooOld) || is_known && known as u32 == count);
                } else if known == 0 {
                    prop_assert_eq!(&check, &Check::New);
                } else if known as u32 == count {
                    let is_answered = matches!(&check, Check::Duplicate(placed) if placed.count == count)
                        || code(&check) == Some(ErrorCode::SeqTooOld);
                    prop_assert!(is_answered, "{check:?}");
                } else {
                    prop_assert_eq!(code(&check), Some(ErrorCode::SeqOverlap));
                }
                if check == Check::New {
                    seen.extend(numbers);
                    match &mut producer {
                        Some(producer) => producer.accept(&header, at(end, count)),
                        None => producer = Some(Producer::new(&header, at(end, count), false)),
                    }
                    end += u64::from(count);
                }
            }
        }
    }

    #[test]
    fn a_lone_producer_has_one_run_and_every_retry_gets_its_offsets() {
        let mut producer = Producer::new(&header(0, 0, 3), at(0, 3), true);
        for i in 1..1_000 {
            producer.accept(&header(0, i * 3, 3), at(i * 3, 3));
        }
        assert_eq!(producer.runs.len(), 1);
        assert_eq!(check(Some(&producer), &header(0, 6, 3), true), Check::Duplicate(at(6, 3)));
    }

    #[test]
    fn what_was_accepted_too_long_ago_is_refused_as_applied() {
        let mut producer = Producer::new(&header(0, 0, 1), at(0, 1), true);
        for i in 1..20 {
            producer.accept(&header(0, i, 1), at(i * 2, 1));
        }
        let Check::Refused(refusal) = check(Some(&producer), &header(0, 0, 1), true) else { panic!() };
        assert_eq!((refusal.error_code(), refusal.effect()), (ErrorCode::SeqTooOld, Outcome::Applied));
        assert_eq!(check(Some(&producer), &header(0, 12, 1), true), Check::Duplicate(at(24, 1)));
    }

    #[test]
    fn a_batch_longer_than_the_window_is_recognised_as_long_as_its_run_is_known() {
        let count = 2 * u32::try_from(PRODUCER_WINDOW).unwrap();
        let mut producer = Producer::new(&header(0, 0, count), at(0, count), false);
        assert_eq!(check(Some(&producer), &header(0, 0, count), false), Check::Duplicate(at(0, count)));
        assert_eq!(check(Some(&producer), &header(0, 3, 2), false), Check::Duplicate(at(3, 2)));
        for run in 1..=RUNS as u64 {
            let next = u64::from(count) + 2 * run;
            producer.accept(&header(0, next, 1), at(next, 1));
        }
        let forgotten = check(Some(&producer), &header(0, 0, count), false);
        assert_eq!(code(&forgotten), Some(ErrorCode::SeqTooOld));
    }

    #[test]
    fn a_cut_producer_knows_in_its_window_what_its_runs_know() {
        let mut producer = Producer::new(&header(0, 0, 10), at(0, 10), false);
        producer.accept(&header(0, 600, 10), at(10, 10));
        producer.accept(&header(0, 1_500, 1), at(20, 1));
        let left = producer.cut(Offset(20)).unwrap();
        assert_eq!(check(Some(&left), &header(0, 600, 10), false), Check::Duplicate(at(10, 10)));
        assert_eq!(check(Some(&left), &header(0, 0, 10), false), Check::Duplicate(at(0, 10)));
        assert_eq!(check(Some(&left), &header(0, 10, 1), false), Check::New);
        assert_eq!(check(Some(&left), &header(0, 1_500, 1), false), Check::New, "it is lost");
        // All that is left is below the window.
        producer.accept(&header(0, 9_000, 1), at(21, 1));
        let left = producer.cut(Offset(10)).unwrap();
        assert_eq!(left.last_seq, Seq(9));
        assert_eq!(check(Some(&left), &header(0, 0, 10), false), Check::Duplicate(at(0, 10)));
    }

    #[test]
    fn what_a_cut_producer_may_have_sent_before_all_that_is_remembered_is_never_taken_for_new() {
        let mut producer = Producer::new(&header(0, 500, 1), at(0, 1), false);
        let sent = [505, 1_020, 1_022, 1_024, 1_026, 1_028, 1_030, 1_032, 700, 3_000];
        for (offset, seq) in (1..).zip(sent) {
            producer.accept(&header(0, seq, 1), at(offset, 1));
        }
        let refused = |producer: &Producer, seq| match check(Some(producer), &header(0, seq, 1), false) {
            Check::Refused(refusal) => Some((refusal.error_code(), refusal.effect())),
            _ => None,
        };
        let unknown = Some((ErrorCode::SeqTooOld, Outcome::Unknown));
        assert_eq!(refused(&producer, 500), unknown);
        let mut left = producer.cut(Offset(9)).unwrap();
        assert_eq!(left.last_seq, Seq(1_032));
        assert_eq!(refused(&left, 500), unknown, "it is there, and nobody remembers it");
        assert_eq!(refused(&left, 501), unknown, "nobody knows of this one either");
        assert_eq!(check(Some(&left), &header(0, 1_030, 1), false), Check::Duplicate(at(7, 1)));
        for lost in [700, 3_000] {
            assert_eq!(check(Some(&left), &header(0, lost, 1), false), Check::New, "{lost} is lost");
        }
        // What comes later is known as ever, and another cut forgets nothing of this.
        left.accept(&header(0, 1_040, 1), at(9, 1));
        let left = left.cut(Offset(9)).unwrap();
        assert_eq!((refused(&left, 500), refused(&left, 700), refused(&left, 1_040)), (unknown, None, None));
    }

    #[test]
    fn sequence_numbers_that_would_overflow_are_refused() {
        for first in [u64::MAX, u64::MAX - 2] {
            let check = check(None, &header(0, first, 3), false);
            assert_eq!(code(&check), Some(ErrorCode::InvalidBatch));
        }
    }
}
