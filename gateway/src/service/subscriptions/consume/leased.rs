//! What a partition's answers hold.

use tokio::time::Instant;
use weir_protocol::batch::{BatchError, Record};
use weir_protocol::error::{ErrorCode, Outcome};
use weir_protocol::ids::{Name, Offset, PartitionId, Term};
use weir_protocol::rpc::{ConsumeEvent, Credit, GrantRun, Packet};

use crate::service::ServiceError;
use crate::service::read::{Origin, RecordSlice, unpack};

/// Messages that were leased, of one partition.
#[derive(Debug)]
pub struct Leased {
    /// Number of the part among those that the consumer has had: what a settle of the leases names.
    pub part: u32,
    /// Its topic, of a subscription to several.
    pub topic: Option<Name>,
    /// The partition.
    pub partition: PartitionId,
    /// Where the records are. A slice may hold records that were not leased.
    pub slices: Vec<RecordSlice>,
    /// The leases, in offset order; every record of them is in a slice.
    pub runs: Vec<GrantRun>,
    /// When they came: leases run out that much later.
    pub received: Instant,
    /// Number of leases.
    pub count: u64,
    /// Encoded bytes of their records: what credit counts.
    pub bytes: u64,
}

impl Leased {
    /// Bytes of the last record: while there is any credit another record goes, and this one may overshoot.
    #[must_use]
    pub fn last_bytes(&self) -> u64 {
        let last = self.runs.last().map(|run| run.offset + u64::from(run.count) - 1);
        let records = self.slices.last().and_then(|slice| slice.records().ok());
        let is_last = |record: &Record| Some(record.offset.0) == last;
        let found = records.and_then(|mut records| records.find_map(|record| record.ok().filter(is_last)));
        found.map_or(0, |record| record.size as u64)
    }

    pub(super) fn credit(&self) -> Credit {
        Credit { records: self.count, bytes: self.bytes }
    }
}

/// Takes an answer apart; what is leased must be there.
pub(super) fn read(
    partition: PartitionId,
    body: bytes::Bytes,
) -> Result<(ConsumeEvent, Option<Leased>), ServiceError> {
    let bad = |what: &str| ServiceError::bad_answer(what, Outcome::None).with_partition(partition);
    let packet = Packet::<ConsumeEvent>::decode(body).map_err(|error| bad(&error.to_string()))?;
    let mut event = packet.message;
    let origin = Origin { partition, committed_end: Offset(u64::MAX), term: Term(0) };
    let slices = unpack(&event.slices, packet.payload.into_bytes(), origin)?;
    let runs = std::mem::take(&mut event.runs);
    if runs.is_empty() {
        return Ok((event, None));
    }
    let count = runs.iter().map(|run| u64::from(run.count)).sum();
    let (found, bytes) = sizes(&slices, &runs)?;
    if found != count {
        return Err(bad("leases of records that did not come"));
    }
    let received = Instant::now();
    Ok((event, Some(Leased { part: 0, topic: None, partition, slices, runs, received, count, bytes })))
}

/// Number and size of the leased records that are there.
fn sizes(slices: &[RecordSlice], runs: &[GrantRun]) -> Result<(u64, u64), ServiceError> {
    let corrupt = |error: BatchError| {
        let detail = format!("a record batch from a storage node is damaged: {error}");
        ServiceError::new(ErrorCode::Corrupt, detail)
    };
    let end = |run: &GrantRun| run.offset + u64::from(run.count);
    let mut runs = runs.iter().peekable();
    let (mut count, mut bytes) = (0, 0);
    for slice in slices {
        while runs.next_if(|run| end(run) <= slice.first.0).is_some() {}
        // Records are looked at only where not all of them are leased.
        if runs.peek().is_some_and(|run| run.offset <= slice.first.0 && end(run) >= slice.end().0) {
            count += u64::from(slice.take);
            bytes += slice.size()?;
            continue;
        }
        for record in slice.records().map_err(corrupt)? {
            let record = record.map_err(corrupt)?;
            while runs.next_if(|run| end(run) <= record.offset.0).is_some() {}
            if runs.peek().is_some_and(|run| run.offset <= record.offset.0) {
                count += 1;
                bytes += record.size as u64;
            }
        }
    }
    Ok((count, bytes))
}
