//! What the benches measure of this room: its JSON.

use std::sync::Arc;

use bytes::Bytes;
use weir_protocol::ids::{Name, TopicPath};
use weir_protocol::rpc::TopicConfig;

use super::input;
use super::page::{self, Form};
use crate::service::publish::Content;
use crate::service::read::RecordSlice;
use crate::storage::Topic;

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
    page::whole(slices.to_vec(), Form::Json, topic()).ok().map(Into::into)
}

/// Records as lines of JSON; `None` if they are damaged.
#[must_use]
pub fn page_as_lines(slices: &[RecordSlice]) -> Option<Bytes> {
    page::whole(slices.to_vec(), Form::Lines, topic()).ok()
}

/// Whose records they are, which these forms do not tell.
fn topic() -> Arc<Topic> {
    let name = Name::default_name;
    Arc::new(Topic::unmade(
        TopicPath { tenant: name(), namespace: name(), topic: name() },
        TopicConfig::default(),
    ))
}
