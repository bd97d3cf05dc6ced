//! Records as they come from a node.

use bytes::Bytes;
use weir_protocol::batch::{Batch, BatchError, Codec, Record};
use weir_protocol::error::{ErrorCode, Outcome};
use weir_protocol::ids::{Offset, PartitionId, Term};
use weir_protocol::rpc::Slice;

use crate::service::ServiceError;

/// Consecutive records of one batch. The batch may hold more than are meant.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordSlice {
    /// Partition.
    pub partition: PartitionId,
    /// The batch, stamped with its offsets.
    pub batch: Batch,
    /// Offset of the first record meant.
    pub first: Offset,
    /// Number of records meant, at least 1.
    pub take: u32,
    /// End of what is committed on the partition, as known when this was sent.
    pub committed_end: Offset,
    /// Term of the shard; names what lies beyond `committed_end`.
    pub term: Term,
}

impl RecordSlice {
    /// Offset after the last record meant.
    #[must_use]
    pub fn end(&self) -> Offset {
        self.first.plus(u64::from(self.take))
    }

    /// True if every record of the batch is meant.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        let header = self.batch.header();
        self.first == header.base_offset && self.take == header.count
    }

    /// The records meant, decompressed if need be.
    ///
    /// # Errors
    /// [`BatchError`] if the batch is damaged within its valid checksum; every item may be one too.
    pub fn records(&self) -> Result<impl Iterator<Item = Result<Record, BatchError>> + use<>, BatchError> {
        Ok(self.batch.records()?.within(self.first, self.take))
    }

    /// Encoded bytes of the records meant, uncompressed: what credit counts.
    ///
    /// # Errors
    /// `corrupt` as for [`RecordSlice::records`].
    pub fn size(&self) -> Result<u64, ServiceError> {
        if self.is_whole() {
            return Ok(u64::from(self.batch.header().raw_bytes));
        }
        let records = self.records().map_err(|error| corrupt(&error))?;
        records
            .map(|record| record.map(|record| record.size as u64))
            .sum::<Result<u64, _>>()
            .map_err(|error| corrupt(&error))
    }

    /// The longest prefix that may be sent with this much credit left, and its size: while there is any credit
    /// another record goes, and the last one may overshoot the bytes. `None`: not even one.
    pub(super) fn prefix(&self, records: u64, bytes: u64) -> Result<Option<(Self, u64)>, ServiceError> {
        if records == 0 || bytes == 0 {
            return Ok(None);
        }
        if self.is_whole() && u64::from(self.take) <= records {
            let size = self.size()?;
            if size <= bytes {
                return Ok(Some((self.clone(), size)));
            }
        }
        let (mut take, mut size) = (0, 0);
        for record in self.records().map_err(|error| corrupt(&error))? {
            let record = record.map_err(|error| corrupt(&error))?;
            take += 1;
            size += record.size as u64;
            if u64::from(take) == records || size >= bytes {
                break;
            }
        }
        Ok(Some((Self { take, ..self.clone() }, size)))
    }

    /// What is left behind a prefix of `take` records; `None` if nothing is.
    pub(super) fn after(mut self, take: u32) -> Option<Self> {
        self.first = self.first.plus(u64::from(take));
        self.take -= take;
        (self.take > 0).then_some(self)
    }
}

/// Memory that slices keep: their batches, and one of them decompressed at a time.
pub(crate) fn held_bytes(slices: &[RecordSlice]) -> u64 {
    let batches: u64 = slices.iter().map(|slice| slice.batch.bytes().len() as u64).sum();
    let raw = slices.iter().filter(|slice| slice.batch.header().codec != Codec::None);
    batches + raw.map(|slice| u64::from(slice.batch.header().raw_bytes)).max().unwrap_or(0)
}

/// What a node's records have in common.
#[derive(Debug, Clone, Copy)]
pub(in crate::service) struct Origin {
    pub(in crate::service) partition: PartitionId,
    pub(in crate::service) committed_end: Offset,
    pub(in crate::service) term: Term,
}

/// Divides a payload into its slices, checking every batch.
pub(in crate::service) fn unpack(
    slices: &[Slice],
    mut payload: Bytes,
    origin: Origin,
) -> Result<Vec<RecordSlice>, ServiceError> {
    let mut unpacked = Vec::with_capacity(slices.len());
    for slice in slices {
        let before = payload.len();
        let batch = Batch::take_from(&mut payload).map_err(|error| corrupt(&error))?;
        let header = batch.header();
        let end = header.base_offset.0 + u64::from(header.count);
        // Batches with holes stay on the node.
        let is_sound = header.left.is_none()
            && before - payload.len() == slice.batch_bytes as usize
            && slice.take > 0
            && slice.first >= header.base_offset.0
            && slice.first.checked_add(u64::from(slice.take)).is_some_and(|last| last <= end)
            && header.partition == origin.partition;
        if !is_sound {
            return Err(ServiceError::bad_answer("a slice does not fit its batch", Outcome::None));
        }
        unpacked.push(RecordSlice {
            partition: origin.partition,
            batch,
            first: Offset(slice.first),
            take: slice.take,
            committed_end: origin.committed_end,
            term: origin.term,
        });
    }
    if payload.is_empty() {
        Ok(unpacked)
    } else {
        Err(ServiceError::bad_answer("bytes behind the last batch", Outcome::None))
    }
}

pub(super) fn corrupt(error: &BatchError) -> ServiceError {
    ServiceError::new(ErrorCode::Corrupt, format!("a record batch from a storage node is damaged: {error}"))
}
