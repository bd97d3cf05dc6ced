//! What publishing is told.

use weir_protocol::batch::Compression;
use weir_protocol::limits::{RECORD_BYTES_DEFAULT, RECORD_BYTES_MAX};

/// Settings of publishing.
#[derive(Debug, Clone, Copy)]
pub struct PublishConfig {
    /// Largest payload of a record, in bytes; default 1 MiB, at most 3 MiB with all that belongs to the record.
    pub record_bytes_max: usize,
    /// How batches built here are compressed; default not at all: clients that care send batches of their own.
    pub compression: Compression,
}

impl Default for PublishConfig {
    fn default() -> Self {
        Self { record_bytes_max: RECORD_BYTES_DEFAULT, compression: Compression::None }
    }
}

const _: () =
    assert!(RECORD_BYTES_DEFAULT < RECORD_BYTES_MAX, "a record of the default size has room for its key");
