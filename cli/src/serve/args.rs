//! What `weir dev`, `weir node` and `weir gateway` are told. The help texts here are the manual.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args as ClapArgs;

use weir_protocol::limits::{HTTP_BATCH_BYTES_MAX, RECORD_BYTES_MAX};
use weir_storage_node::{Backend, NodeConfig, SyncMode};

use crate::limit::{Limit, parse_bytes, parse_size};

/// What a storage node keeps, and where.
#[derive(Debug, ClapArgs)]
pub(crate) struct StoreArgs {
    /// Directory of the data; made if missing
    #[arg(long, env = "WEIR_DATA_DIR", default_value = "./weir-data", value_name = "DIR")]
    pub(crate) data_dir: PathBuf,
    /// Data shards of a new data directory, 1 to 64
    #[arg(long, default_value_t = 4, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) data_shards: u32,
    /// Size at which the journal refuses publishes until retention has freed some, e.g. 8GiB
    #[arg(long, default_value = "8GiB", value_name = "SIZE", value_parser = parse_size)]
    pub(crate) journal_max: Limit,
    /// Size of one journal file, 16MiB to 2GiB
    #[arg(long, default_value = "128MiB", value_name = "SIZE", value_parser = parse_bytes)]
    pub(crate) journal_file: u64,
    /// When an answered publish is safe: `always`, when it is synced; `os`, when the operating system has it, and then
    /// confirms reach `memory` at most
    #[arg(long, default_value = "always", value_name = "WHEN", value_parser = ["always", "os"])]
    pub(crate) sync: String,
    /// Shortest time between two syncs, up to a second: fewer syncs, and everybody waits longer
    #[arg(long, default_value_t = 0, value_name = "US", value_parser = clap::value_parser!(u64).range(0..=1_000_000))]
    pub(crate) min_sync_interval_us: u64,
    /// How the journal writes: `buffered`, through the page cache, or `direct`, past it
    #[arg(long, default_value = "buffered", value_name = "HOW", value_parser = ["buffered", "direct"])]
    pub(crate) backend: String,
    /// Growth of a shard's log after which a checkpoint is written
    #[arg(long, default_value = "64MiB", value_name = "SIZE", value_parser = parse_bytes)]
    pub(crate) checkpoint: u64,
    /// Memory for the newest messages, which live readers are served from
    #[arg(long, default_value = "64MiB", value_name = "SIZE", value_parser = parse_bytes)]
    pub(crate) tail_ring: u64,
}

impl StoreArgs {
    /// The node's settings.
    ///
    /// # Errors
    /// A sentence that names the setting and its range.
    pub(super) fn config(&self) -> anyhow::Result<NodeConfig> {
        let config = NodeConfig {
            data_dir: self.data_dir.clone(),
            data_shards: self.data_shards,
            sync: if self.sync == "os" { SyncMode::Os } else { SyncMode::Always },
            backend: if self.backend == "direct" { Backend::Direct } else { Backend::Buffered },
            min_sync_interval_us: self.min_sync_interval_us,
            journal_max_bytes: match self.journal_max {
                Limit::At(bytes) => bytes,
                Limit::Unlimited => u64::MAX / 2,
            },
            journal_file_bytes: u32::try_from(self.journal_file).unwrap_or(u32::MAX),
            checkpoint_bytes: self.checkpoint,
            tail_ring_bytes: usize::try_from(self.tail_ring).unwrap_or(usize::MAX),
            ..NodeConfig::default()
        };
        config.check().map_err(anyhow::Error::msg)?;
        Ok(config)
    }
}

/// How a gateway meets its clients.
#[derive(Debug, ClapArgs)]
pub(crate) struct EdgeArgs {
    /// Where clients connect; port 0 takes a free one
    #[arg(long, env = "WEIR_LISTEN", default_value = "127.0.0.1:8080", value_name = "ADDR")]
    pub(crate) listen: SocketAddr,
    /// Serve HTTPS and WSS with this certificate chain (PEM), read again on SIGHUP …
    #[arg(long, env = "WEIR_TLS_CERT", value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// … and this private key (PEM)
    #[arg(long, env = "WEIR_TLS_KEY", value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Serve an address that other machines can reach although nobody is authenticated
    #[arg(long)]
    pub(crate) insecure_public: bool,
    /// Name that clients may address this gateway by, besides localhost and the listening address; repeatable
    #[arg(long = "host-name", id = "host_name", value_name = "NAME")]
    pub(crate) host_names: Vec<String>,
    /// Browser origin, scheme and host, whose pages may use this gateway; repeatable
    #[arg(long = "allow-origin", id = "allow_origin", value_name = "ORIGIN")]
    pub(crate) origins: Vec<String>,
    /// Where the operator console is served: a path that starts and ends with a slash
    #[arg(long, env = "WEIR_CONSOLE_PREFIX", default_value = "/console/", value_name = "PATH")]
    pub(crate) console_prefix: String,
    /// Size of the largest message, at most 3MiB
    #[arg(long, default_value = "1MiB", value_name = "SIZE", value_parser = parse_bytes)]
    pub(crate) record_max: u64,
    /// Connections at once; further ones are answered 503
    #[arg(long, default_value_t = 10_000, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) connections_max: u32,
    /// Memory for request bodies, all connections together; what finds no room is refused with `busy`
    #[arg(long, default_value = "256MiB", value_name = "SIZE", value_parser = parse_bytes)]
    pub(crate) request_bytes_max: u64,
}

impl EdgeArgs {
    /// What belongs together, wherever it was set.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        let (cert, key) = (self.tls_cert.is_some(), self.tls_key.is_some());
        anyhow::ensure!(cert == key, "tls_cert and tls_key belong together");
        let (record, most) = (self.record_max, RECORD_BYTES_MAX as u64);
        anyhow::ensure!(
            (1..=most).contains(&record),
            "record_max is {record}; 1 to {most} bytes are allowed"
        );
        anyhow::ensure!(
            self.request_bytes_max >= HTTP_BATCH_BYTES_MAX as u64,
            "request_bytes_max is {}; at least one batch, {HTTP_BATCH_BYTES_MAX} bytes, must fit",
            self.request_bytes_max
        );
        Ok(())
    }
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
    /// Serve HTTPS and WSS with a certificate made for this machine and kept in the data directory
    #[arg(long, conflicts_with = "tls_cert")]
    pub(crate) tls_self_signed: bool,
    /// Write the gateway's URL into this file once everything answers (for scripts)
    #[arg(long, value_name = "FILE")]
    pub(crate) ready_file: Option<PathBuf>,
}

impl DevArgs {
    /// What belongs together or excludes each other, wherever it was set.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        self.edge.check()?;
        self.store.config()?;
        let both = self.edge.tls_cert.is_some() && self.tls_self_signed;
        anyhow::ensure!(!both, "tls_self_signed and tls_cert exclude each other");
        Ok(())
    }
}

/// How `weir node` runs.
#[derive(Debug, ClapArgs)]
pub(crate) struct NodeArgs {
    /// What the node keeps.
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Where gateways connect, an address that they can reach; port 0 takes a free one
    #[arg(long, env = "WEIR_NODE_LISTEN", default_value = "127.0.0.1:7070", value_name = "ADDR")]
    pub(crate) listen: SocketAddr,
    /// Where /healthz, /readyz and /metrics are served, over HTTP; port 0 takes a free one
    #[arg(long, env = "WEIR_NODE_ADMIN", default_value = "127.0.0.1:7071", value_name = "ADDR")]
    pub(crate) admin: SocketAddr,
    /// File with the secret that gateways must present
    #[arg(long, env = "WEIR_CLUSTER_SECRET_FILE", value_name = "FILE")]
    pub(crate) cluster_secret: Option<PathBuf>,
    /// Listen where other machines can reach it although no secret is asked for
    #[arg(long)]
    pub(crate) insecure_public: bool,
    /// Publishing to a topic that does not exist creates it, in the namespace `default` of a new data directory
    #[arg(long)]
    pub(crate) auto_create: bool,
    /// Write the address for gateways and that for operators into this file, a line each, once both answer
    #[arg(long, value_name = "FILE")]
    pub(crate) ready_file: Option<PathBuf>,
}

impl NodeArgs {
    /// What belongs together or excludes each other, wherever it was set.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        self.store.config()?;
        let listen = self.listen;
        anyhow::ensure!(
            !listen.ip().is_unspecified(),
            "listen is {listen}: gateways are told this address, so name one that they can reach"
        );
        anyhow::ensure!(
            listen.ip().is_loopback() || self.cluster_secret.is_some() || self.insecure_public,
            "listen is {listen}, which other machines can reach: give --cluster-secret FILE, or \
             --insecure-public to serve whoever connects"
        );
        anyhow::ensure!(
            self.admin.ip().is_loopback() || self.insecure_public,
            "admin is {}: metrics have no authentication; --insecure-public serves them anyway",
            self.admin
        );
        Ok(())
    }
}

/// How `weir gateway` runs.
#[derive(Debug, ClapArgs)]
pub(crate) struct GatewayArgs {
    /// Storage node to connect to, `host:port`
    #[arg(long, env = "WEIR_NODE", default_value = "127.0.0.1:7070", value_name = "ADDR")]
    pub(crate) node: String,
    /// File with the secret that the node asks for
    #[arg(long, env = "WEIR_CLUSTER_SECRET_FILE", value_name = "FILE")]
    pub(crate) cluster_secret: Option<PathBuf>,
    /// How it meets its clients.
    #[command(flatten)]
    pub(crate) edge: EdgeArgs,
    /// Write the gateway's URL into this file once it answers (for scripts)
    #[arg(long, value_name = "FILE")]
    pub(crate) ready_file: Option<PathBuf>,
}

impl GatewayArgs {
    /// What belongs together, wherever it was set.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        self.edge.check()
    }
}
