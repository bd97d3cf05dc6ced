//! Messages that came together and are written one after the other, the large ones in parts.

use std::fmt::Write as _;
use std::sync::Arc;
use std::vec;

use weir_protocol::batch::{BatchError, Record};
use weir_protocol::rpc::Credit;

use crate::answers::Held;
use crate::edge::record::Rest;
use crate::service::read::{Parcel, PartitionOf, RecordSlice};

/// Messages that came together, of which some are left to be written.
pub(super) struct Open {
    pub(super) of: PartitionOf,
    slices: vec::IntoIter<RecordSlice>,
    now: Option<(RecordSlice, Records)>,
    /// Of the message that is being written.
    pub(super) rest: Option<Rest>,
    pub(super) amount: Credit,
    /// Where they are held.
    _room: Option<Arc<Held>>,
}

type Records = Box<dyn Iterator<Item = Result<Record, BatchError>> + Send>;

impl Open {
    pub(super) fn new(of: PartitionOf, parcel: Parcel, amount: Credit) -> Self {
        let room = parcel.room().cloned();
        let slices = parcel.into_slices().into_iter();
        Self { of, slices, now: None, rest: None, amount, _room: room }
    }

    /// The next message, and what it is a part of.
    pub(super) fn next(&mut self) -> Result<Option<(Record, &RecordSlice)>, BatchError> {
        loop {
            let found = self.now.as_mut().and_then(|(_, records)| records.next());
            if let Some(record) = found.transpose()? {
                return Ok(self.now.as_ref().map(|(slice, _)| (record, slice)));
            }
            let Some(slice) = self.slices.next() else { return Ok(None) };
            let records = Box::new(slice.records()?);
            self.now = Some((slice, records));
        }
    }
}

/// Writes a part of a line of data, which may hold line breaks; a line may begin in each of two parts that divide one.
pub(super) fn push_part(out: &mut String, part: &[u8], is_last: bool) {
    let part = String::from_utf8_lossy(part);
    let mut lines = part.split('\n').flat_map(|line| line.strip_suffix('\r').unwrap_or(line).split('\r'));
    out.push_str(lines.next().unwrap_or_default());
    for line in lines {
        let _ = write!(out, "\ndata: {line}");
    }
    if is_last {
        out.push_str("\n\n");
    }
}
