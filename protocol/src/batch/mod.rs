//! The record batch: one layout for disk, wire, binary HTTP and binary WebSocket.
//!
//! ```text
//!   header    72 bytes: what is stamped when serving, then what the checksum covers
//!   varint    LEB128 numbers
//!   record    one record, and the decoder that walks them
//!   headers   a record's headers, user and reserved
//!   builder   records in, batch out
//!   slice     a part of a batch as a batch of its own, and a batch without some of its records
//! ```
//!
//! A batch is built once, at the edge, and then only sliced: the journal stores its bytes, a reader gets the
//! same bytes behind a header stamped with their offsets. It is accepted or refused whole. Only in packs of
//! compacted partitions a batch may have holes, offsets without a record; readers get the runs between them
//! as batches of their own.

mod builder;
mod header;
mod headers;
mod record;
mod slice;
#[cfg(test)]
mod tests;
mod varint;

pub use builder::{BatchBuilder, Compression, RecordParts};
pub use header::{Batch, BatchError, BatchHeader, Codec, HEADER_BYTES};
pub use headers::{Headers, HeadersBuilder, Reserved, is_header_name, is_header_text, is_trace_parent};
pub use record::{Record, Records};
