//! What `weir dev`, `weir node` and `weir gateway` are told. The help texts here are the manual: each says
//! what a setting means, its unit and its range; clap adds the variable and the default.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use clap::Args as ClapArgs;
use clap::builder::BoolishValueParser;
use clap::value_parser;

use weir_gateway::Gateway;
use weir_protocol::limits::{HTTP_BATCH_BYTES_MAX, RECORD_BYTES_MAX};
use weir_storage_node::{Backend, NodeConfig, PackCodec, SyncMode};

use super::gateway_config;
use super::prices::PriceArgs;
use crate::limit::{Limit, bytes_in, parse_size, size};

/// Most of anything that is counted in bytes: no machine has more, and sums stay far from overflow.
const BYTES_MAX: u64 = 1 << 40;
/// What a message may have at most, all that belongs to it included.
const RECORD_BYTES: RangeInclusive<u64> = 1..=RECORD_BYTES_MAX as u64;
/// At least one batch of a request must fit.
const REQUEST_BYTES: RangeInclusive<u64> = HTTP_BATCH_BYTES_MAX as u64..=BYTES_MAX;
/// A page of the largest messages must fit a quarter of it.
const ANSWER_BYTES: RangeInclusive<u64> = 32 << 20..=BYTES_MAX;
/// At least one batch of a request must fit as it is stored, with the headers of its parts.
const PUBLISH_BYTES: RangeInclusive<u64> = 16 << 20..=BYTES_MAX;
/// At least one window of a subscription must fit.
const READ_CREDIT_BYTES: RangeInclusive<u64> = 1 << 20..=BYTES_MAX;
const FEED_BYTES: RangeInclusive<u64> = 0..=BYTES_MAX;

const _: () = assert!(HTTP_BATCH_BYTES_MAX as u64 == 10 << 20, "the help text says so");
const _: () = assert!(RECORD_BYTES_MAX as u64 == 3 << 20, "the help text says so");
const _: () = assert!(HTTP_BATCH_BYTES_MAX < 16 << 20, "a batch of a request can be published");

/// Where a server listens. Names are not looked up: they may be several addresses.
fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "expected an IP address and a port, as 127.0.0.1:8080 or [::1]:8080".to_owned())
}

/// Where a server is, by name or address.
fn host_and_port(text: &str) -> Result<String, String> {
    let is_whole = text.rsplit_once(':').is_some_and(|(host, port)| {
        let has_host = !host.is_empty() && (!host.contains(':') || host.starts_with('['));
        has_host && port.parse::<u16>().is_ok_and(|port| port > 0)
    });
    let why = || "expected a host and a port, as 127.0.0.1:7070 or node-1.internal:7070".to_owned();
    if is_whole { Ok(text.to_owned()) } else { Err(why()) }
}

/// What a storage node keeps, and where.
#[derive(Debug, ClapArgs)]
pub(crate) struct StoreArgs {
    /// Directory of the data; made if missing
    #[arg(long, env = "WEIR_DATA_DIR", default_value = "./weir-data", value_name = "DIR")]
    pub(crate) data_dir: PathBuf,
    /// Data shards of a new data directory [range: 1 to 64 shards]
    #[arg(long, env = "WEIR_DATA_SHARDS", default_value_t = 4, value_name = "N",
        value_parser = value_parser!(u32).range(i64::from(*NodeConfig::DATA_SHARDS.start())..=i64::from(*NodeConfig::DATA_SHARDS.end())))]
    pub(crate) data_shards: u32,
    /// Size at which the journal refuses publishes until retention has freed some, at least two journal files
    /// [range: 32MiB to 1TiB, or unlimited]
    #[arg(long, env = "WEIR_JOURNAL_MAX", default_value = "8GiB", value_name = "SIZE", value_parser = journal_size)]
    pub(crate) journal_max: Limit,
    /// Size of one journal file, in steps of 4KiB [default: 128MiB, or a sixteenth of --journal-max if that is less]
    /// [range: 16MiB to 2GiB]
    #[arg(long, env = "WEIR_JOURNAL_FILE", value_name = "SIZE",
        value_parser = bytes_in(u64::from(*NodeConfig::JOURNAL_FILE_BYTES.start())..=u64::from(*NodeConfig::JOURNAL_FILE_BYTES.end())))]
    pub(crate) journal_file: Option<u64>,
    /// Bytes a second at which messages that outlive their journal files are carried out of them, where there is no
    /// object store; more once the journal is 85 % full [range: 1MiB to 16GiB]
    #[arg(long, env = "WEIR_CARRY_RATE", default_value = "64MiB", value_name = "SIZE",
        value_parser = bytes_in(NodeConfig::CARRY_BYTES_PER_S))]
    pub(crate) carry_rate: u64,
    /// Publishes that are admitted and not answered; what finds no room is refused with `busy` [range: 4MiB to 64GiB]
    #[arg(long, env = "WEIR_JOURNAL_PENDING", default_value = "64MiB", value_name = "SIZE",
        value_parser = bytes_in(NodeConfig::JOURNAL_PENDING_BYTES))]
    pub(crate) journal_pending: u64,
    /// Memory for the journal's index, about 80 bytes an entry; from half of it on the oldest entries are looked up on
    /// disk [range: 1MiB to 64GiB]
    #[arg(long, env = "WEIR_JOURNAL_INDEX", default_value = "128MiB", value_name = "SIZE",
        value_parser = bytes_in(NodeConfig::JOURNAL_INDEX_BYTES))]
    pub(crate) journal_index: u64,
    /// When an answered publish is safe: `always`, when it is synced; `os`, when the operating system has it, and then
    /// confirms reach `memory` at most
    #[arg(long, env = "WEIR_SYNC", default_value = "always", value_name = "WHEN", value_parser = ["always", "os"])]
    pub(crate) sync: String,
    /// Shortest time between two syncs: fewer syncs, and everybody waits longer [range: 0 to 1000000 microseconds]
    #[arg(long, env = "WEIR_MIN_SYNC_INTERVAL_US", default_value_t = 0, value_name = "US",
        value_parser = value_parser!(u64).range(NodeConfig::MIN_SYNC_INTERVAL_US))]
    pub(crate) min_sync_interval_us: u64,
    /// A message that comes alone is written by whoever serves it, without waking the journal's thread, if
    /// the disk takes no longer than this; 0: never [range: 0 to 10000 microseconds]
    #[arg(long, env = "WEIR_INLINE_COMMIT_MAX_US", default_value_t = 1_000, value_name = "US",
        value_parser = value_parser!(u64).range(NodeConfig::INLINE_COMMIT_MAX_US))]
    pub(crate) inline_commit_max_us: u64,
    /// How the journal writes: `buffered`, through the page cache; `direct`, past it; or `auto`: direct where the file
    /// system can and commits are synced
    #[arg(long, env = "WEIR_BACKEND", default_value = "auto", value_name = "HOW", value_parser = ["auto", "buffered", "direct"])]
    pub(crate) backend: String,
    /// Growth of a shard's log after which a checkpoint is written; more where the last one was larger than a quarter
    /// of this [range: 1KiB to 1TiB]
    #[arg(long, env = "WEIR_CHECKPOINT", default_value = "64MiB", value_name = "SIZE",
        value_parser = bytes_in(NodeConfig::CHECKPOINT_BYTES))]
    pub(crate) checkpoint: u64,
    /// Memory for the newest messages of all shards, which live readers are served from; of it a quarter for older ones
    /// that were read from the journal and may be wanted again, an eighth for nacked ones that come again soon
    /// [range: 0B to 1TiB]
    #[arg(long, env = "WEIR_TAIL_RING", default_value = "64MiB", value_name = "SIZE",
        value_parser = bytes_in(NodeConfig::TAIL_RING_BYTES))]
    pub(crate) tail_ring: u64,
    /// Producers, and as many idempotency keys, that a shard of a new data directory remembers; beyond it publishes
    /// with new ones are refused with `dedupe_full` [range: 1000 to 10000000 rows]
    #[arg(long, env = "WEIR_DEDUPE_ROWS", default_value_t = 1_000_000, value_name = "N",
        value_parser = value_parser!(u32).range(i64::from(*NodeConfig::DEDUPE_ROWS.start())..=i64::from(*NodeConfig::DEDUPE_ROWS.end())))]
    pub(crate) dedupe_rows: u32,
    /// Where old messages go: s3://BUCKET/PREFIX, gs://…, az://…, file:///FOLDER, or `local` for a folder in the data
    /// directory; credentials come from the store's own environment variables. Without it all messages stay in the
    /// journal [default: none]
    #[arg(long, env = "WEIR_OBJECT_STORE", value_name = "URL")]
    pub(crate) object_store: Option<String>,
    /// Age at which messages go to the object store; earlier when the journal is half full
    /// [range: 100 to 86400000 milliseconds]
    #[arg(long, env = "WEIR_SEAL_AFTER_MS", default_value_t = 30_000, value_name = "MS",
        value_parser = value_parser!(u64).range(NodeConfig::SEAL_AFTER_MS))]
    pub(crate) seal_after_ms: u64,
    /// Messages in one object, about, before they are compressed [range: 1MiB to 1GiB]
    #[arg(long, env = "WEIR_SEAL_SIZE", default_value = "64MiB", value_name = "SIZE",
        value_parser = bytes_in(NodeConfig::SEAL_BYTES))]
    pub(crate) seal_size: u64,
    /// While something changes, the states of all shards go to the object store this often: `weir restore` starts from
    /// the newest [range: 100 to 86400000 milliseconds]
    #[arg(long, env = "WEIR_SNAPSHOT_EVERY_MS", default_value_t = 30_000, value_name = "MS",
        value_parser = value_parser!(u64).range(NodeConfig::SNAPSHOT_EVERY_MS))]
    pub(crate) snapshot_every_ms: u64,
    /// How objects are compressed: `zstd`, `lz4` or `none`
    #[arg(long, env = "WEIR_PACK_CODEC", default_value = "zstd", value_name = "HOW", value_parser = ["zstd", "lz4", "none"])]
    pub(crate) pack_codec: String,
    /// An object of whose messages less than this share still exists is replaced by one with those alone; 0 for never
    /// [range: 0 to 50 percent]
    #[arg(long, env = "WEIR_REWRITE_BELOW_PERCENT", default_value_t = 25, value_name = "N",
        value_parser = value_parser!(u32).range(i64::from(*NodeConfig::REWRITE_BELOW_PERCENT.start())..=i64::from(*NodeConfig::REWRITE_BELOW_PERCENT.end())))]
    pub(crate) rewrite_below_percent: u32,
    /// Memory for what was read from the object store [range: 16MiB to 1TiB]
    #[arg(long, env = "WEIR_CACHE_MEMORY", default_value = "64MiB", value_name = "SIZE",
        value_parser = bytes_in(NodeConfig::CACHE_MEMORY_BYTES))]
    pub(crate) cache_memory: u64,
    /// Disk for what was read from the object store, in the data directory; 0B for none
    /// [range: 64MiB to 16TiB, or 0B]
    #[arg(long, env = "WEIR_CACHE_DISK", default_value = "2GiB", value_name = "SIZE", value_parser = cache_disk)]
    pub(crate) cache_disk: u64,
}

/// A size of the cache on disk.
fn cache_disk(text: &str) -> Result<u64, String> {
    match parse_size(text)? {
        Limit::At(0) => Ok(0),
        _ => bytes_in(NodeConfig::CACHE_DISK_BYTES)(text).map_err(|why| format!("{why}, or 0B")),
    }
}

/// A size of the journal.
fn journal_size(text: &str) -> Result<Limit, String> {
    match parse_size(text)? {
        Limit::Unlimited => Ok(Limit::Unlimited),
        Limit::At(_) => bytes_in(2 * u64::from(*NodeConfig::JOURNAL_FILE_BYTES.start())..=BYTES_MAX)(text)
            .map(Limit::At)
            .map_err(|why| format!("{why}, or `unlimited`")),
    }
}

impl StoreArgs {
    /// The node's settings.
    ///
    /// # Errors
    /// A sentence that names the setting and its range.
    pub(super) fn config(&self) -> anyhow::Result<NodeConfig> {
        self.check()?;
        let config = NodeConfig {
            data_dir: self.data_dir.clone(),
            data_shards: self.data_shards,
            sync: if self.sync == "os" { SyncMode::Os } else { SyncMode::Always },
            backend: match self.backend.as_str() {
                "direct" => Backend::Direct,
                "buffered" => Backend::Buffered,
                _ => Backend::Auto,
            },
            min_sync_interval_us: self.min_sync_interval_us,
            inline_commit_max_us: self.inline_commit_max_us,
            journal_max_bytes: match self.journal_max {
                Limit::At(bytes) => bytes,
                Limit::Unlimited => u64::MAX / 2,
            },
            journal_file_bytes: u32::try_from(self.journal_file_bytes()).unwrap_or(u32::MAX),
            carry_bytes_per_s: self.carry_rate,
            journal_pending_bytes: self.journal_pending,
            journal_index_bytes: self.journal_index,
            checkpoint_bytes: self.checkpoint,
            tail_ring_bytes: usize::try_from(self.tail_ring).unwrap_or(usize::MAX),
            dedupe_rows: self.dedupe_rows,
            object_store: self.object_store.clone(),
            seal_after_ms: self.seal_after_ms,
            seal_bytes: self.seal_size,
            snapshot_every_ms: self.snapshot_every_ms,
            pack_codec: match self.pack_codec.as_str() {
                "none" => PackCodec::None,
                "lz4" => PackCodec::Lz4,
                _ => PackCodec::Zstd,
            },
            rewrite_below_percent: self.rewrite_below_percent,
            cache_memory_bytes: usize::try_from(self.cache_memory).unwrap_or(usize::MAX),
            cache_disk_bytes: self.cache_disk,
            ..NodeConfig::default()
        };
        config.check().map_err(anyhow::Error::msg)?;
        self.object_store.as_deref().map_or(Ok(()), weir_storage_node::tier::check_url)?;
        Ok(config)
    }

    /// Sixteen files fit what the journal may have, or it could not keep half of that alive: files go one by one.
    fn journal_file_bytes(&self) -> u64 {
        let least = u64::from(*NodeConfig::JOURNAL_FILE_BYTES.start());
        let fits = match self.journal_max {
            Limit::At(max) => max / 16 / (4 << 10) * (4 << 10),
            Limit::Unlimited => u64::MAX,
        };
        let most = u64::from(NodeConfig::default().journal_file_bytes);
        self.journal_file.unwrap_or(fits.clamp(least, most))
    }

    /// What no flag's own range says, in the words in which it is typed; the node has others.
    fn check(&self) -> anyhow::Result<()> {
        let file = self.journal_file_bytes();
        anyhow::ensure!(
            file.is_multiple_of(4 << 10),
            "--journal-file is {}; only steps of 4KiB are allowed",
            size(file)
        );
        match self.journal_max {
            Limit::At(max) if max < 2 * file => anyhow::bail!(
                "--journal-max is {}; at least two journal files are needed, and --journal-file is {}",
                size(max),
                size(file)
            ),
            _ => Ok(()),
        }
    }
}

/// How a gateway meets its clients.
#[derive(Debug, ClapArgs)]
pub(crate) struct EdgeArgs {
    /// Where clients connect; port 0 takes a free one
    #[arg(long, env = "WEIR_LISTEN", default_value = "127.0.0.1:8080", value_name = "ADDR", value_parser = address)]
    pub(crate) listen: SocketAddr,
    /// Serve HTTPS and WSS with this certificate chain (PEM), read again on SIGHUP, … [default: none]
    #[arg(long, env = "WEIR_TLS_CERT", value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// … and this private key (PEM) [default: none]
    #[arg(long, env = "WEIR_TLS_KEY", value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Serve an address that other machines can reach although nobody is authenticated [default: false]
    #[arg(long, env = "WEIR_INSECURE_PUBLIC", value_parser = BoolishValueParser::new())]
    pub(crate) insecure_public: bool,
    /// All requests come through a proxy, which keeps out whoever may not do everything here; what it says in
    /// X-Forwarded-Host, -Proto and -Prefix is believed, so it must set or remove these. Without this, what comes
    /// through a proxy is refused [default: false]
    #[arg(long, env = "WEIR_BEHIND_PROXY", value_parser = BoolishValueParser::new())]
    pub(crate) behind_proxy: bool,
    /// Path below which a proxy serves this gateway, as /weir, whether the proxy takes it off or not;
    /// X-Forwarded-Prefix goes before it with --behind-proxy [default: none]
    #[arg(long, env = "WEIR_BASE_PATH", default_value = "", hide_default_value = true, value_name = "PATH")]
    pub(crate) base_path: String,
    /// Name that clients may address this gateway by, besides localhost and the listening address; repeatable, or
    /// separated by commas [default: none]
    #[arg(
        long = "host-name",
        id = "host_name",
        env = "WEIR_HOST_NAME",
        value_name = "NAME",
        value_delimiter = ','
    )]
    pub(crate) host_names: Vec<String>,
    /// Browser origin, `scheme://host[:port]` in lower case, whose pages may use this gateway; repeatable, or
    /// separated by commas [default: none]
    #[arg(
        long = "allow-origin",
        id = "allow_origin",
        env = "WEIR_ALLOW_ORIGIN",
        value_name = "ORIGIN",
        value_delimiter = ','
    )]
    pub(crate) origins: Vec<String>,
    /// Where the operator console is served: a path that starts and ends with a slash
    #[arg(long, env = "WEIR_CONSOLE_PREFIX", default_value = "/console/", value_name = "PATH")]
    pub(crate) console_prefix: String,
    /// Size of the largest message [range: 1B to 3MiB]
    #[arg(long, env = "WEIR_RECORD_MAX", default_value = "1MiB", value_name = "SIZE", value_parser = bytes_in(RECORD_BYTES))]
    pub(crate) record_max: u64,
    /// Connections at once; further ones are answered 503 [range: 1 to 1000000 connections]
    #[arg(long, env = "WEIR_CONNECTIONS_MAX", default_value_t = 10_000, value_name = "N",
        value_parser = value_parser!(u32).range(1..=1_000_000))]
    pub(crate) connections_max: u32,
    /// Memory for request bodies, all connections together; what finds no room is refused with `busy`
    /// [range: 10MiB to 1TiB]
    #[arg(long, env = "WEIR_REQUEST_BYTES_MAX", default_value = "256MiB", value_name = "SIZE",
        value_parser = bytes_in(REQUEST_BYTES))]
    pub(crate) request_bytes_max: u64,
    /// Memory for answers that clients have not taken, all connections together; a connection, and an address, gets a
    /// quarter. What finds no room is refused with `answers_full` [range: 32MiB to 1TiB]
    #[arg(long, env = "WEIR_ANSWER_BYTES_MAX", default_value = "256MiB", value_name = "SIZE",
        value_parser = bytes_in(ANSWER_BYTES))]
    pub(crate) answer_bytes_max: u64,
    /// Publishes on their way to storage, all shards together; further ones are refused with `busy`. Half of
    /// it is credit for WebSockets [range: 16MiB to 1TiB]
    #[arg(long, env = "WEIR_PUBLISH_BYTES_MAX", default_value = "64MiB", value_name = "SIZE",
        value_parser = bytes_in(PUBLISH_BYTES))]
    pub(crate) publish_bytes_max: u64,
    /// What storage may send for all readers together before they have taken it; beyond it readers wait their turn
    /// [range: 1MiB to 1TiB]
    #[arg(long, env = "WEIR_READ_CREDIT_BYTES_MAX", default_value = "256MiB", value_name = "SIZE",
        value_parser = bytes_in(READ_CREDIT_BYTES))]
    pub(crate) read_credit_bytes_max: u64,
    /// What is held of topics that several readers follow, for those who are slower than the fastest; beyond
    /// it they read from storage [range: 0B to 1TiB]
    #[arg(long, env = "WEIR_FEED_BYTES_MAX", default_value = "64MiB", value_name = "SIZE", value_parser = bytes_in(FEED_BYTES))]
    pub(crate) feed_bytes_max: u64,
    /// Topics whose description is remembered; the one unused for longest is asked for again when it is needed
    /// [range: 1 to 10000000 topics]
    #[arg(long, env = "WEIR_TOPICS_MAX", default_value_t = 100_000, value_name = "N",
        value_parser = value_parser!(u32).range(1..=10_000_000))]
    pub(crate) topics_max: u32,
    /// On which WebSockets messages are compressed, if the client offers permessage-deflate: `json`, those of
    /// `weir.v1.json`; `all`, those of `weir.v1.bin` too, whose batches may be compressed already; or `off`
    #[arg(long, env = "WEIR_WS_DEFLATE", default_value = "json", value_name = "WHICH", value_parser = ["json", "all", "off"])]
    pub(crate) ws_deflate: String,
    /// Time within which a TLS handshake must be done, waiting for its turn included; then the connection is closed
    /// [range: 100 to 60000 milliseconds]
    #[arg(long, env = "WEIR_HANDSHAKE_MS_MAX", default_value_t = 10_000, value_name = "MS",
        value_parser = value_parser!(u64).range(100..=60_000))]
    pub(crate) handshake_ms_max: u64,
}

impl EdgeArgs {
    /// What belongs together, wherever it was set.
    fn check(&self) -> anyhow::Result<()> {
        let (cert, key) = (self.tls_cert.is_some(), self.tls_key.is_some());
        anyhow::ensure!(cert == key, "--tls-cert and --tls-key belong together");
        Ok(())
    }

    /// All that is wrong with them, which the gateway would be refused with at its start.
    fn faults(&self, prices: &PriceArgs) -> impl Iterator<Item = anyhow::Error> {
        let meant = Gateway::check(&gateway_config(self, prices, String::new()));
        [self.check(), meant.map_err(anyhow::Error::from)].into_iter().filter_map(Result::err)
    }
}

/// What serves.
#[derive(Debug, ClapArgs)]
pub(crate) struct ThreadArgs {
    /// Threads that serve, beside those of the journal and for reading files. Where others share two
    /// processors with it, one does more than two [range: 1 to 256 threads] [default: one per processor]
    #[arg(long, env = "WEIR_WORKERS", value_name = "N", value_parser = value_parser!(u16).range(1..=256))]
    pub(crate) workers: Option<u16>,
}

/// How `weir dev` runs.
#[derive(Debug, ClapArgs)]
pub(crate) struct DevArgs {
    /// What the node keeps.
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// How the gateway meets its clients.
    #[command(flatten)]
    pub(crate) edge: EdgeArgs,
    /// What the object store charges.
    #[command(flatten)]
    pub(crate) prices: PriceArgs,
    /// Serve HTTPS and WSS with a certificate made for this machine and kept in the data directory [default: false]
    #[arg(long, env = "WEIR_TLS_SELF_SIGNED", value_parser = BoolishValueParser::new())]
    pub(crate) tls_self_signed: bool,
    /// What serves.
    #[command(flatten)]
    pub(crate) threads: ThreadArgs,
    /// Write the gateway's URL into this file once everything answers (for scripts)
    #[arg(long, value_name = "FILE")]
    pub(crate) ready_file: Option<PathBuf>,
}

impl DevArgs {
    /// What does not belong together or excludes each other, wherever it was set, and what means nothing.
    pub(crate) fn faults(&self) -> Vec<anyhow::Error> {
        let both = self.edge.tls_cert.is_some() && self.tls_self_signed;
        let both = both.then(|| anyhow::anyhow!("--tls-self-signed and --tls-cert exclude each other"));
        self.edge.faults(&self.prices).chain(self.store.config().err()).chain(both).collect()
    }
}

/// How `weir node` runs.
#[derive(Debug, ClapArgs)]
pub(crate) struct NodeArgs {
    /// What the node keeps.
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// What the object store charges.
    #[command(flatten)]
    pub(crate) prices: PriceArgs,
    /// Where the node listens for gateways; unless --advertise says otherwise, an address that they can reach.
    /// Port 0 takes a free one
    #[arg(long, env = "WEIR_NODE_LISTEN", default_value = "127.0.0.1:7070", value_name = "ADDR", value_parser = address)]
    pub(crate) listen: SocketAddr,
    /// What gateways are told to connect to, where that is not --listen: a host and a port that they can reach
    /// [default: --listen]
    #[arg(long, env = "WEIR_NODE_ADVERTISE", value_name = "HOST:PORT", value_parser = host_and_port)]
    pub(crate) advertise: Option<String>,
    /// Where /healthz, /readyz and /metrics are served, over HTTP; port 0 takes a free one
    #[arg(long, env = "WEIR_NODE_ADMIN", default_value = "127.0.0.1:7071", value_name = "ADDR", value_parser = address)]
    pub(crate) admin: SocketAddr,
    /// File with the secret that gateways must present, 1 to 1024 bytes [default: none]
    #[arg(long, env = "WEIR_CLUSTER_SECRET_FILE", value_name = "FILE")]
    pub(crate) cluster_secret: Option<PathBuf>,
    /// Listen where other machines can reach it although no secret is asked for [default: false]
    #[arg(long, env = "WEIR_INSECURE_PUBLIC", value_parser = BoolishValueParser::new())]
    pub(crate) insecure_public: bool,
    /// Publishing to a topic that does not exist creates it, in the namespace `default` of a new data directory
    /// [default: false]
    #[arg(long, env = "WEIR_AUTO_CREATE", value_parser = BoolishValueParser::new())]
    pub(crate) auto_create: bool,
    /// What serves.
    #[command(flatten)]
    pub(crate) threads: ThreadArgs,
    /// Write the address for gateways and that for operators into this file, a line each, once both answer
    #[arg(long, value_name = "FILE")]
    pub(crate) ready_file: Option<PathBuf>,
}

impl NodeArgs {
    /// What does not belong together or excludes each other, wherever it was set, and what means nothing.
    pub(crate) fn faults(&self) -> Vec<anyhow::Error> {
        let addresses = [self.check_listen(), self.check_admin()];
        self.store.config().err().into_iter().chain(addresses.into_iter().filter_map(Result::err)).collect()
    }

    fn check_listen(&self) -> anyhow::Result<()> {
        let listen = self.listen;
        anyhow::ensure!(
            !listen.ip().is_unspecified() || self.advertise.is_some(),
            "--listen is {listen}: gateways are told this address, so name one that they can reach, here or with \
             --advertise"
        );
        anyhow::ensure!(
            listen.ip().is_loopback() || self.cluster_secret.is_some() || self.insecure_public,
            "--listen is {listen}, which other machines can reach: give --cluster-secret FILE, or \
             --insecure-public to serve whoever connects"
        );
        Ok(())
    }

    fn check_admin(&self) -> anyhow::Result<()> {
        anyhow::ensure!(
            self.admin.ip().is_loopback() || self.insecure_public,
            "--admin is {}: metrics have no authentication; --insecure-public serves them anyway",
            self.admin
        );
        Ok(())
    }
}

/// How `weir gateway` runs.
#[derive(Debug, ClapArgs)]
pub(crate) struct GatewayArgs {
    /// Storage node to connect to, `host:port`
    #[arg(long, env = "WEIR_NODE", default_value = "127.0.0.1:7070", value_name = "ADDR", value_parser = host_and_port)]
    pub(crate) node: String,
    /// File with the secret that the node asks for, 1 to 1024 bytes [default: none]
    #[arg(long, env = "WEIR_CLUSTER_SECRET_FILE", value_name = "FILE")]
    pub(crate) cluster_secret: Option<PathBuf>,
    /// How it meets its clients.
    #[command(flatten)]
    pub(crate) edge: EdgeArgs,
    /// What the object store charges.
    #[command(flatten)]
    pub(crate) prices: PriceArgs,
    /// What serves.
    #[command(flatten)]
    pub(crate) threads: ThreadArgs,
    /// Write the gateway's URL into this file once it answers (for scripts)
    #[arg(long, value_name = "FILE")]
    pub(crate) ready_file: Option<PathBuf>,
}

impl GatewayArgs {
    /// What does not belong together, wherever it was set, and what means nothing.
    pub(crate) fn faults(&self) -> Vec<anyhow::Error> {
        self.edge.faults(&self.prices).collect()
    }
}
