//! What became of a publish.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use weir_protocol::error::{ErrorCode, Outcome};
use weir_protocol::ids::{Offset, PartitionId, Term, TimestampMs};
use weir_protocol::rpc::{Level, Placed, Stages};

use super::receipt::Receipt;
use crate::service::ServiceError;
use crate::storage::Topic;

/// The answer to a request that was admitted. Parts may have been refused; see [`Published::results`].
#[derive(Debug, Clone)]
pub struct Published {
    /// The topic it went to.
    pub topic: Arc<Topic>,
    /// One per record batch.
    pub parts: Vec<PublishedPart>,
    /// Number of records of the request.
    pub records: u32,
    /// The level that was asked for, or the topic's default.
    pub asked: Level,
    /// The level that all accepted parts have reached; [`Level::None`] if nothing was placed yet.
    pub level: Level,
    /// Where the time went.
    pub timing: Timing,
}

/// What became of one record batch.
#[derive(Debug, Clone)]
pub struct PublishedPart {
    /// Partition it went to.
    pub partition: PartitionId,
    /// Places of its records in the request, half-open and ascending.
    pub records: Vec<Range<u32>>,
    /// What became of it.
    pub outcome: Result<Confirmed, ServiceError>,
}

/// How far a batch came.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Confirmed {
    /// The level reached.
    pub level: Level,
    /// Where the records are; `None` at [`Level::None`].
    pub placed: Option<Placed>,
}

/// What became of one record.
#[derive(Debug, Clone, Copy)]
pub enum RecordResult<'a> {
    /// It was accepted.
    Accepted {
        /// Partition.
        partition: PartitionId,
        /// Its offset; `None` at [`Level::None`], and of a duplicate so old that nobody knows where it is.
        offset: Option<Offset>,
        /// When it was accepted; `None` at [`Level::None`].
        ts: Option<TimestampMs>,
        /// Its batch had been accepted before; nothing was added.
        duplicate: bool,
    },
    /// It was refused.
    Refused(&'a ServiceError),
}

/// Where the time of a publish went.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Timing {
    /// In this gateway: everything but the round trip.
    pub gw: Duration,
    /// On the way to the node and back.
    pub net: Duration,
    /// At the node; `None` if it did not say.
    pub stages: Option<Stages>,
    /// From the request to now.
    pub total: Duration,
}

/// Refused, although it took effect: the same batch was accepted so long ago that nobody knows where.
pub(crate) fn is_old_duplicate(failure: &ServiceError) -> bool {
    failure.code() == ErrorCode::SeqTooOld && failure.effect() == Outcome::Applied
}

impl Published {
    /// One result per record, in the order of the request.
    #[must_use]
    pub fn results(&self) -> Vec<RecordResult<'_>> {
        let mut results: Vec<Option<RecordResult<'_>>> = vec![None; self.records as usize];
        for part in &self.parts {
            for (place, index) in part.records.iter().cloned().flatten().enumerate() {
                let result = match &part.outcome {
                    Err(failure) if is_old_duplicate(failure) => RecordResult::Accepted {
                        partition: part.partition,
                        offset: None,
                        ts: None,
                        duplicate: true,
                    },
                    Err(failure) => RecordResult::Refused(failure),
                    Ok(confirmed) => RecordResult::Accepted {
                        partition: part.partition,
                        offset: confirmed.placed.map(|placed| Offset(placed.base_offset).plus(place as u64)),
                        ts: confirmed.placed.map(|placed| TimestampMs(placed.ts_ms)),
                        duplicate: confirmed.placed.is_some_and(|placed| placed.duplicate),
                    },
                };
                results[index as usize] = Some(result);
            }
        }
        results.into_iter().map(|result| result.expect("every record is in one part")).collect()
    }

    /// True if what was asked for was reached.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.level >= self.asked
    }

    /// The receipt of a part that was placed.
    #[must_use]
    pub fn receipt(&self, part: &PublishedPart) -> Option<Receipt> {
        let confirmed = part.outcome.as_ref().ok()?;
        let placed = confirmed.placed?;
        Some(Receipt {
            incarnation: self.topic.incarnation,
            partition: part.partition,
            offset: Offset(placed.base_offset),
            term: Term(placed.term),
            level: confirmed.level,
        })
    }
}
