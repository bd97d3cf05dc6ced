//! What the benches measure of this room: its JSON.

use bytes::Bytes;

use super::{input, read};
use crate::service::publish::Content;
use crate::service::read::RecordSlice;

/// How many messages a body of lines of JSON holds; `None` if it is refused.
#[must_use]
pub fn read_lines(body: &Bytes) -> Option<usize> {
    match input::Form::Lines.read(body, 0, &input::Trace::default()).ok()? {
        Content::Records(records) => Some(records.len()),
        Content::Batches(_) => None,
    }
}

/// Records as a page of JSON; `None` if they are damaged.
#[must_use]
pub fn page_as_json(slices: &[RecordSlice]) -> Option<Vec<u8>> {
    serde_json::to_vec(&read::json_messages(slices).ok()?).ok()
}

/// Records as lines of JSON; `None` if they are damaged.
#[must_use]
pub fn page_as_lines(slices: &[RecordSlice]) -> Option<Bytes> {
    read::lines(slices).ok()
}
