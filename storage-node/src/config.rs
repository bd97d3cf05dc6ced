//! What a storage node is told. Every field has a default that suits a laptop.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use weir_protocol::ws::Secret;

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
    /// Through the page cache, then a sync. The default.
    Buffered,
    /// Past the page cache, each write durable by itself. Needs a file system with direct I/O.
    Direct,
}

/// Settings of a storage node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NodeConfig {
    /// Directory of journal and checkpoints, made if missing. Default `./weir-data`.
    pub data_dir: PathBuf,
    /// Where gateways connect. Default `127.0.0.1:0`, a free port.
    pub listen: SocketAddr,
    /// Secret that gateways must present. Default none: it is not asked for.
    #[serde(skip)]
    pub credential: Option<Secret>,
    /// Data shards, 1 to 64; read when the data directory is made, fixed from then on. Default 4.
    pub data_shards: u32,
    /// Publishing to a topic that does not exist creates it, in the namespace `default`; read when the data directory
    /// is made. Default false.
    pub auto_create: bool,
    /// When an answered publish is safe. Default `always`.
    pub sync: SyncMode,
    /// How the journal writes. Default `buffered`.
    pub backend: Backend,
    /// Shortest time in microseconds between two syncs of the journal, from the end of one to the start of the next
    /// commit, up to a second. Default 0: nobody waits for company.
    pub min_sync_interval_us: u64,
    /// Bytes of journal at which publishes are refused until retention has freed some. Default 8 GiB, at least two
    /// journal files.
    pub journal_max_bytes: u64,
    /// Bytes of one journal file: 64 KiB to 2 GiB, a multiple of 4 KiB, at least 16 MiB for the largest messages.
    /// Default 128 MiB.
    pub journal_file_bytes: u32,
    /// A checkpoint is written when a shard's log has grown by this many bytes since the last one; only what a
    /// checkpoint covers can be freed. Default 64 MiB.
    pub checkpoint_bytes: u64,
    /// Bytes of the newest entries kept in memory for live readers, divided evenly among the data shards. Default
    /// 64 MiB; beyond it the oldest are read from the journal.
    pub tail_ring_bytes: usize,
}

impl Default for NodeConfig {
    fn default() -> Self {
        Self {
            data_dir: PathBuf::from("./weir-data"),
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            credential: None,
            data_shards: 4,
            auto_create: false,
            sync: SyncMode::Always,
            backend: Backend::Buffered,
            min_sync_interval_us: 0,
            journal_max_bytes: 8 << 30,
            journal_file_bytes: 128 << 20,
            checkpoint_bytes: 64 << 20,
            tail_ring_bytes: 64 << 20,
        }
    }
}

impl NodeConfig {
    /// Says which setting is out of its range.
    ///
    /// # Errors
    /// A sentence that names the setting and its range.
    pub fn check(&self) -> Result<(), String> {
        if !(1..=64).contains(&self.data_shards) {
            return Err(format!("data_shards is {}; 1 to 64 are allowed", self.data_shards));
        }
        let (file, max) = (self.journal_file_bytes, self.journal_max_bytes);
        if !(16 << 20..=2 << 30).contains(&file) || !file.is_multiple_of(4 << 10) {
            return Err(format!(
                "journal_file_bytes is {file}; 16 MiB to 2 GiB in steps of 4 KiB are allowed"
            ));
        }
        if max < 2 * u64::from(file) {
            return Err(format!("journal_max_bytes is {max}; at least two journal files are needed"));
        }
        if self.min_sync_interval_us > 1_000_000 {
            let interval = self.min_sync_interval_us;
            return Err(format!("min_sync_interval_us is {interval}; up to 1000000 are allowed"));
        }
        Ok(())
    }
}
