//! What a node holds at most, as it runs: settings, and what was decided when its data directory was made.

use weir_journal::JournalConfig;

use crate::replica::early::STAGED_BYTES_MAX;
use crate::shard::state::{DEAD_LETTERS_MAX, OUTBOX_ROWS_MAX, OUTPUT_BYTES_MAX, OUTPUT_ROWS_MAX};

/// Bounds of a running node. What is bounded is in its metrics, with the bound beside it as `…_max`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of journal on disk beyond which publishes are refused.
    pub journal_bytes: u64,
    /// Bytes of publishes that are admitted and not answered, beyond which more are refused.
    pub admitted_bytes: u64,
    /// Bytes that wait for the journal's writer, beyond which appends are refused.
    pub queue_bytes: u64,
    /// Bytes of entries that the journal keeps in memory, those that wait included.
    pub memory_bytes: u64,
    /// Bytes of the journal's index, beyond which publishes are refused.
    pub index_bytes: u64,
    /// Bytes of the newest entries in memory, all shards together; beyond it the oldest go.
    pub tail_ring_bytes: usize,
    /// Bytes of staged batches kept for readers below quorum, all shards together; beyond it they read what
    /// is committed.
    pub staged_bytes: usize,
    /// Rows of one shard's outbox, beyond which changes of topics are refused.
    pub outbox_rows: usize,
    /// Outputs of one shard's settles on their way, beyond which settles that publish are refused.
    pub output_rows: usize,
    /// Bytes of them.
    pub output_bytes: u64,
    /// Dead letters of one shard on their way; no topic gets more of them than it leaves free.
    pub dead_letters: usize,
    /// Producers, and as many idempotency keys, of one shard, beyond which new ones are refused.
    pub dedupe_rows: usize,
}

impl Limits {
    pub(crate) fn new(
        journal: &JournalConfig,
        data_shards: u32,
        tail_ring_bytes: usize,
        dedupe_rows: usize,
    ) -> Self {
        Self {
            journal_bytes: journal.max_bytes,
            admitted_bytes: journal.pending_bytes_max,
            queue_bytes: journal.queue_bytes_max(),
            memory_bytes: journal.memory_bytes_max(),
            index_bytes: journal.index_bytes_max,
            tail_ring_bytes,
            staged_bytes: STAGED_BYTES_MAX * data_shards as usize,
            outbox_rows: OUTBOX_ROWS_MAX,
            output_rows: OUTPUT_ROWS_MAX,
            output_bytes: OUTPUT_BYTES_MAX,
            dead_letters: DEAD_LETTERS_MAX,
            dedupe_rows,
        }
    }
}
