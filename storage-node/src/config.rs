//! What a storage node is told. Every field has a default that suits a laptop.

use std::fmt::Display;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use weir_journal::JournalConfig;
use weir_journal::format::{BLOCK_HEADER_BYTES, FRAME_HEADER_BYTES};
use weir_protocol::limits::{
    DEDUPE_ENTRIES_MAX, ENTRY_BYTES_MAX, JOURNAL_BLOCK_BYTES_MAX, JOURNAL_FRAME_BYTES_MAX,
    NODE_FRAME_BYTES_MAX,
};
use weir_protocol::prices::Prices;
use weir_protocol::ws::Secret;
use weir_tier::cold::DISK_BYTES_MIN;

/// The journal's blocks, as nodes are started with them.
const BLOCK_BYTES: usize = JournalConfig::MAX_BLOCK_BYTES as usize;

const _: () =
    assert!(BLOCK_BYTES == JOURNAL_BLOCK_BYTES_MAX, "what the protocol promises is what the journal does");
const _: () = assert!(
    ENTRY_BYTES_MAX + FRAME_HEADER_BYTES <= JOURNAL_FRAME_BYTES_MAX,
    "the largest entry fits a frame with its header"
);
const _: () = assert!(
    BLOCK_HEADER_BYTES + JOURNAL_FRAME_BYTES_MAX <= BLOCK_BYTES,
    "the largest frame fits a block of its own: an entry that does not would never be written"
);
const _: () =
    assert!(BLOCK_BYTES < NODE_FRAME_BYTES_MAX, "the entries of a block fit one call to another node");
const _: () = assert!(
    *NodeConfig::JOURNAL_FILE_BYTES.start() >= 4 * JournalConfig::MAX_BLOCK_BYTES,
    "the journal takes no smaller files"
);
const _: () = assert!(
    *NodeConfig::JOURNAL_PENDING_BYTES.start() >= BLOCK_BYTES as u64,
    "the journal admits at least a block"
);

/// When an answered publish is safe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SyncMode {
    /// Every commit is synced before it is answered. The default.
    Always,
    /// The operating system has the bytes: survives the end of the process, not of the machine. Such a node confirms
    /// at most `memory`.
    Os,
}

/// How the journal writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Backend {
    /// As `direct` where that works and commits are synced, else as `buffered`. The default.
    Auto,
    /// Through the page cache, then a sync.
    Buffered,
    /// Past the page cache, each write durable by itself. Needs a file system with direct I/O.
    Direct,
}

/// How blocks of packs are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PackCodec {
    /// Not at all: batches keep what the gateway made of them.
    None,
    /// LZ4.
    Lz4,
    /// Zstandard, its fastest level. The default.
    Zstd,
}

/// Settings of a storage node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NodeConfig {
    /// Directory of journal and checkpoints, made if missing. Default `./weir-data`.
    pub data_dir: PathBuf,
    /// Where gateways connect. Default `127.0.0.1:0`, a free port.
    pub listen: SocketAddr,
    /// What gateways are told to connect to, `host:port`. Default: where it listens.
    pub advertise: Option<String>,
    /// Secret that gateways must present. Default none: it is not asked for.
    #[serde(skip)]
    pub credential: Option<Secret>,
    /// Data shards, [`NodeConfig::DATA_SHARDS`]; read when the data directory is made, fixed from then on. Default 4.
    pub data_shards: u32,
    /// Publishing to a topic that does not exist creates it, in the namespace `default`; read when the data directory
    /// is made. Default false.
    pub auto_create: bool,
    /// When an answered publish is safe. Default `always`.
    pub sync: SyncMode,
    /// How the journal writes. Default `auto`.
    pub backend: Backend,
    /// Shortest time in microseconds between two syncs of the journal, from the end of one to the start of the next
    /// commit, [`NodeConfig::MIN_SYNC_INTERVAL_US`]. Default 0: nobody waits for company.
    pub min_sync_interval_us: u64,
    /// A small append to a journal that rests is written by the worker that brings it, without the writer
    /// thread, if commits take no longer than this many microseconds, [`NodeConfig::INLINE_COMMIT_MAX_US`].
    /// Default 1,000; 0: never.
    pub inline_commit_max_us: u64,
    /// Bytes of journal at which publishes are refused until retention has freed some. Default 8 GiB, at least two
    /// journal files.
    pub journal_max_bytes: u64,
    /// Bytes of one journal file: [`NodeConfig::JOURNAL_FILE_BYTES`], a multiple of 4 KiB. Default 128 MiB. Files keep
    /// the size that they were made with.
    pub journal_file_bytes: u32,
    /// Bytes of publishes that are admitted and not answered: [`NodeConfig::JOURNAL_PENDING_BYTES`]. Default 64 MiB;
    /// beyond it publishes are refused with `busy`. Frames that wait for the writer take up to twice as much.
    pub journal_pending_bytes: u64,
    /// Memory for the index of the journal's entries, about 80 bytes each: [`NodeConfig::JOURNAL_INDEX_BYTES`]. Default
    /// 128 MiB; beyond it publishes are refused until some are purged.
    pub journal_index_bytes: u64,
    /// A checkpoint is written when a shard's log has grown by this many bytes since the last one, or by four times the
    /// size of that one if this is more; only what a checkpoint covers can be freed. Default 64 MiB, range
    /// [`NodeConfig::CHECKPOINT_BYTES`].
    pub checkpoint_bytes: u64,
    /// Bytes kept in memory for live readers: [`NodeConfig::TAIL_RING_BYTES`]. Default 64 MiB. Five eighths
    /// are for the newest entries of all data shards, of which the oldest go first; a quarter, in equal parts
    /// for each shard, is for those that were read from the journal since; the rest, likewise, for records
    /// that were nacked and come again within ten seconds. The newest entry is kept whatever its size.
    pub tail_ring_bytes: usize,
    /// Producers, and as many idempotency keys, that each shard remembers: [`NodeConfig::DEDUPE_ROWS`]; read when the
    /// data directory is made, fixed from then on, since verdicts depend on it. Default 1,000,000; beyond it publishes
    /// with a new producer or key are refused with `dedupe_full`.
    pub dedupe_rows: u32,
    /// Bytes a second at which messages are carried out of the oldest journal files where there is no object store:
    /// [`NodeConfig::CARRY_BYTES_PER_S`]. Default 64 MiB. Four times as many once the journal is 85 % full, and as many
    /// as the disk takes from 90 % on.
    pub carry_bytes_per_s: u64,
    /// Where cold messages go: a URL (`s3://bucket/prefix`, `gs://…`, `az://…`, `file:///folder`), or `local`
    /// for a folder in the data directory. Default none: all messages stay in the journal.
    pub object_store: Option<String>,
    /// Settings of that store by the names of its environment variables, which they win over.
    #[serde(skip)]
    pub object_store_options: Vec<(String, String)>,
    /// Messages leave for the store at this age in milliseconds, or when the journal is half full:
    /// [`NodeConfig::SEAL_AFTER_MS`]. Default 30,000.
    pub seal_after_ms: u64,
    /// Bytes of batches in one object, about: [`NodeConfig::SEAL_BYTES`]. Default 64 MiB.
    pub seal_bytes: u64,
    /// While something changes, the states of all shards go to the object store this often: what a restore starts from.
    pub snapshot_every_ms: u64,
    /// How objects are compressed. Default `zstd`.
    pub pack_codec: PackCodec,
    /// An object of whose messages less than this many percent still exist is replaced by one with those alone:
    /// [`NodeConfig::REWRITE_BELOW_PERCENT`]. Default 25; 0: never.
    pub rewrite_below_percent: u32,
    /// Memory for what was read from the store: [`NodeConfig::CACHE_MEMORY_BYTES`]. Default 64 MiB.
    pub cache_memory_bytes: usize,
    /// Disk for it: 0, or [`NodeConfig::CACHE_DISK_BYTES`]. Default 2 GiB.
    pub cache_disk_bytes: u64,
    /// What the store charges, for the metric that estimates what a day costs. Default S3 Standard's list prices.
    pub storage_prices: Prices,
    /// What these prices are in. Default `USD`.
    pub price_currency: String,
}

impl Default for NodeConfig {
    fn default() -> Self {
        Self {
            data_dir: PathBuf::from("./weir-data"),
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            advertise: None,
            credential: None,
            data_shards: 4,
            auto_create: false,
            sync: SyncMode::Always,
            backend: Backend::Auto,
            min_sync_interval_us: 0,
            inline_commit_max_us: 1_000,
            journal_max_bytes: 8 << 30,
            journal_file_bytes: 128 << 20,
            journal_pending_bytes: 64 << 20,
            journal_index_bytes: 128 << 20,
            checkpoint_bytes: 64 << 20,
            tail_ring_bytes: 64 << 20,
            dedupe_rows: u32::try_from(DEDUPE_ENTRIES_MAX).expect("a million"),
            carry_bytes_per_s: 64 << 20,
            object_store: None,
            object_store_options: Vec::new(),
            seal_after_ms: 30_000,
            seal_bytes: 64 << 20,
            snapshot_every_ms: 30_000,
            pack_codec: PackCodec::Zstd,
            rewrite_below_percent: 25,
            cache_memory_bytes: 64 << 20,
            cache_disk_bytes: 2 << 30,
            storage_prices: Prices::S3_STANDARD,
            price_currency: "USD".to_owned(),
        }
    }
}

impl NodeConfig {
    /// What [`NodeConfig::data_shards`] may be.
    pub const DATA_SHARDS: RangeInclusive<u32> = 1..=64;
    /// What [`NodeConfig::min_sync_interval_us`] may be: up to a second.
    pub const MIN_SYNC_INTERVAL_US: RangeInclusive<u64> = 0..=1_000_000;
    /// What [`NodeConfig::inline_commit_max_us`] may be: up to a hundredth of a second, for which a worker
    /// serves nobody else.
    pub const INLINE_COMMIT_MAX_US: RangeInclusive<u64> = 0..=10_000;
    /// What [`NodeConfig::journal_file_bytes`] may be: four of the largest blocks to 2 GiB, in steps of 4 KiB.
    pub const JOURNAL_FILE_BYTES: RangeInclusive<u32> = 16 << 20..=2 << 30;
    /// What [`NodeConfig::journal_pending_bytes`] may be: one of the largest blocks to 64 GiB.
    pub const JOURNAL_PENDING_BYTES: RangeInclusive<u64> = 4 << 20..=64 << 30;
    /// What [`NodeConfig::journal_index_bytes`] may be: 1 MiB to 64 GiB.
    pub const JOURNAL_INDEX_BYTES: RangeInclusive<u64> = 1 << 20..=64 << 30;
    /// What [`NodeConfig::checkpoint_bytes`] may be: 1 KiB to 1 TiB.
    pub const CHECKPOINT_BYTES: RangeInclusive<u64> = 1 << 10..=1 << 40;
    /// What [`NodeConfig::tail_ring_bytes`] may be: nothing to 1 TiB.
    pub const TAIL_RING_BYTES: RangeInclusive<u64> = 0..=1 << 40;
    /// What [`NodeConfig::dedupe_rows`] may be.
    pub const DEDUPE_ROWS: RangeInclusive<u32> = 1_000..=10_000_000;
    /// What [`NodeConfig::carry_bytes_per_s`] may be: 1 MiB to 16 GiB.
    pub const CARRY_BYTES_PER_S: RangeInclusive<u64> = 1 << 20..=16 << 30;
    /// What [`NodeConfig::seal_after_ms`] may be: a tenth of a second to a day.
    pub const SEAL_AFTER_MS: RangeInclusive<u64> = 100..=86_400_000;
    /// What [`NodeConfig::seal_bytes`] may be: 1 MiB to 1 GiB.
    pub const SEAL_BYTES: RangeInclusive<u64> = 1 << 20..=1 << 30;
    /// What [`NodeConfig::snapshot_every_ms`] may be: a tenth of a second to a day.
    pub const SNAPSHOT_EVERY_MS: RangeInclusive<u64> = 100..=86_400_000;
    /// What [`NodeConfig::rewrite_below_percent`] may be: above a half, more would be copied than is freed.
    pub const REWRITE_BELOW_PERCENT: RangeInclusive<u32> = 0..=50;
    /// What [`NodeConfig::cache_memory_bytes`] may be: a few blocks to 1 TiB.
    pub const CACHE_MEMORY_BYTES: RangeInclusive<u64> = 16 << 20..=1 << 40;
    /// What [`NodeConfig::cache_disk_bytes`] may be, unless it is 0: a few of the cache's files to 16 TiB.
    pub const CACHE_DISK_BYTES: RangeInclusive<u64> = DISK_BYTES_MIN..=16 << 40;

    /// Says which setting is out of its range.
    ///
    /// # Errors
    /// A sentence that names the setting and its range.
    pub fn check(&self) -> Result<(), String> {
        within("data_shards", self.data_shards, Self::DATA_SHARDS)?;
        within("min_sync_interval_us", self.min_sync_interval_us, Self::MIN_SYNC_INTERVAL_US)?;
        within("inline_commit_max_us", self.inline_commit_max_us, Self::INLINE_COMMIT_MAX_US)?;
        let (file, max) = (self.journal_file_bytes, self.journal_max_bytes);
        within("journal_file_bytes", file, Self::JOURNAL_FILE_BYTES)?;
        if !file.is_multiple_of(4 << 10) {
            return Err(format!("journal_file_bytes is {file}; only steps of 4096 are allowed"));
        }
        if max < 2 * u64::from(file) {
            return Err(format!("journal_max_bytes is {max}; at least two journal files are needed"));
        }
        within("journal_pending_bytes", self.journal_pending_bytes, Self::JOURNAL_PENDING_BYTES)?;
        within("journal_index_bytes", self.journal_index_bytes, Self::JOURNAL_INDEX_BYTES)?;
        within("checkpoint_bytes", self.checkpoint_bytes, Self::CHECKPOINT_BYTES)?;
        within("tail_ring_bytes", self.tail_ring_bytes as u64, Self::TAIL_RING_BYTES)?;
        within("dedupe_rows", self.dedupe_rows, Self::DEDUPE_ROWS)?;
        within("carry_bytes_per_s", self.carry_bytes_per_s, Self::CARRY_BYTES_PER_S)?;
        within("seal_after_ms", self.seal_after_ms, Self::SEAL_AFTER_MS)?;
        within("seal_bytes", self.seal_bytes, Self::SEAL_BYTES)?;
        within("snapshot_every_ms", self.snapshot_every_ms, Self::SNAPSHOT_EVERY_MS)?;
        within("rewrite_below_percent", self.rewrite_below_percent, Self::REWRITE_BELOW_PERCENT)?;
        within("cache_memory_bytes", self.cache_memory_bytes as u64, Self::CACHE_MEMORY_BYTES)?;
        if self.cache_disk_bytes == 0 {
            return Ok(());
        }
        within("cache_disk_bytes", self.cache_disk_bytes, Self::CACHE_DISK_BYTES)
    }
}

fn within<T: PartialOrd + Display>(setting: &str, value: T, range: RangeInclusive<T>) -> Result<(), String> {
    if range.contains(&value) {
        return Ok(());
    }
    Err(format!("{setting} is {value}; {} to {} are allowed", range.start(), range.end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_is_refused_out_of_its_range_and_named() {
        assert_eq!(NodeConfig::default().check(), Ok(()));
        let with = |change: fn(&mut NodeConfig)| {
            let mut config = NodeConfig::default();
            change(&mut config);
            config.check().unwrap_err()
        };
        for (error, named) in [
            (with(|c| c.data_shards = 65), "data_shards is 65; 1 to 64"),
            (with(|c| c.min_sync_interval_us = 1_000_001), "min_sync_interval_us is 1000001"),
            (with(|c| c.inline_commit_max_us = 10_001), "inline_commit_max_us is 10001; 0 to 10000"),
            (with(|c| c.journal_file_bytes = 64 << 10), "journal_file_bytes is 65536"),
            (with(|c| c.journal_file_bytes = (16 << 20) + 1), "steps of 4096"),
            (with(|c| c.journal_max_bytes = 255 << 20), "journal_max_bytes is 267386880"),
            (with(|c| c.journal_pending_bytes = (4 << 20) - 1), "journal_pending_bytes is 4194303"),
            (with(|c| c.journal_index_bytes = 0), "journal_index_bytes is 0"),
            (with(|c| c.checkpoint_bytes = 0), "checkpoint_bytes is 0"),
            (with(|c| c.tail_ring_bytes = usize::MAX), "tail_ring_bytes is 18446744073709551615"),
            (with(|c| c.dedupe_rows = 0), "dedupe_rows is 0; 1000 to 10000000"),
            (with(|c| c.carry_bytes_per_s = 0), "carry_bytes_per_s is 0; 1048576 to"),
            (with(|c| c.seal_after_ms = 99), "seal_after_ms is 99; 100 to 86400000"),
            (with(|c| c.seal_bytes = 2 << 30), "seal_bytes is 2147483648"),
            (with(|c| c.snapshot_every_ms = 0), "snapshot_every_ms is 0; 100 to 86400000"),
            (with(|c| c.rewrite_below_percent = 51), "rewrite_below_percent is 51; 0 to 50"),
            (with(|c| c.cache_memory_bytes = 0), "cache_memory_bytes is 0"),
            (with(|c| c.cache_disk_bytes = 1), "cache_disk_bytes is 1"),
        ] {
            assert!(error.contains(named), "{error}");
        }
    }
}
