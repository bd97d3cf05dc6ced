//! One partition: where its records lie in the shard's log.

use std::collections::VecDeque;

use weir_protocol::ids::{ConfigVersion, LogIndex, Offset, TimestampMs};
use weir_protocol::rpc::TopicConfig;

/// A record batch that was accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchRow {
    /// Offset of its first record.
    pub base_offset: Offset,
    /// Records in it.
    pub count: u32,
    /// Bytes of the batch.
    pub len: u32,
    /// When it was accepted.
    pub ts: TimestampMs,
    /// The entry that carries it.
    pub index: LogIndex,
    /// Where it starts in the entry's payload.
    pub pos: u32,
}

impl BatchRow {
    /// One past its last record.
    #[must_use]
    pub fn end(&self) -> Offset {
        self.base_offset.plus(u64::from(self.count))
    }
}

/// A partition. `start ≤ end`; rows cover `[start, end)` without holes, the first possibly from below `start`.
#[derive(Debug, Clone)]
pub struct Partition {
    /// Oldest record that exists.
    pub start: Offset,
    /// One past the newest committed record.
    pub end: Offset,
    /// Encoded bytes of the batches that hold live records.
    pub bytes: u64,
    /// The topic's configuration, as far as this partition has seen it.
    pub config: TopicConfig,
    /// Its version.
    pub version: ConfigVersion,
    /// Live batches in offset order.
    pub rows: VecDeque<BatchRow>,
}

impl Partition {
    /// An empty partition.
    #[must_use]
    pub fn new(config: TopicConfig, version: ConfigVersion) -> Self {
        Self { start: Offset(0), end: Offset(0), bytes: 0, config, version, rows: VecDeque::new() }
    }

    pub(super) fn push(&mut self, row: BatchRow) {
        debug_assert_eq!(row.base_offset, self.end, "offsets are dense");
        self.end = row.end();
        self.bytes += u64::from(row.len);
        self.rows.push_back(row);
    }

    /// Removes records below `upto`; batches go when their last record goes.
    pub(super) fn trim(&mut self, upto: Offset) {
        self.start = self.start.max(upto.min(self.end));
        while let Some(front) = self.rows.front().filter(|row| row.end() <= self.start) {
            self.bytes -= u64::from(front.len);
            self.rows.pop_front();
        }
        self.check();
    }

    /// The row that holds `offset`, or the next one; `rows.len()` if there is none.
    #[must_use]
    pub fn row_at(&self, offset: Offset) -> usize {
        self.rows.partition_point(|row| row.end() <= offset)
    }

    /// First record at or after `ts`; the end if there is none. Records of one batch share its time.
    #[must_use]
    pub fn offset_at(&self, ts: TimestampMs) -> Offset {
        let row = self.rows.partition_point(|row| row.ts < ts);
        self.rows.get(row).map_or(self.end, |row| row.base_offset.max(self.start))
    }

    /// How far retention allows to trim at `now`; `None` if nothing is due.
    #[must_use]
    pub fn due_trim(&self, now: TimestampMs) -> Option<Offset> {
        let mut upto = self.start;
        if let Some(age) = self.config.retention_age_ms {
            let oldest = TimestampMs(now.0.saturating_sub(age));
            upto = upto.max(self.offset_at(oldest));
        }
        if let Some(records) = self.config.retention_records {
            upto = upto.max(Offset(self.end.0.saturating_sub(records)));
        }
        if let Some(limit) = self.config.retention_bytes {
            let mut bytes = self.bytes;
            for row in &self.rows {
                if bytes <= limit {
                    break;
                }
                bytes -= u64::from(row.len);
                upto = upto.max(row.end());
            }
        }
        (upto > self.start).then_some(upto)
    }

    /// Checks the invariant in the type's description.
    ///
    /// # Panics
    /// If it does not hold: going on would invent or lose records.
    pub fn check(&self) {
        assert!(self.start <= self.end, "start {} beyond end {}", self.start, self.end);
        let covered = match (self.rows.front(), self.rows.back()) {
            (Some(first), Some(last)) => first.base_offset <= self.start && last.end() == self.end,
            _ => self.start == self.end,
        };
        assert!(covered, "rows do not cover {}..{}", self.start, self.end);
    }
}
