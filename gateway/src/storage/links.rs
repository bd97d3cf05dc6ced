//! One link per node.

use std::collections::HashMap;
use std::sync::Arc;

use super::stay::CALLS_MAX;
use parking_lot::Mutex;
use rustls_pki_types::ServerName;
use weir_protocol::rpc::Hello;
use weir_transport::{ClientTls, Connect, InProcess, Link, LinkConfig, Metrics, Priority, TcpConnect};

/// How a node's address becomes a connection. The seam for faults and memory in tests.
pub trait Dial: Send + Sync + 'static {
    /// A way to the node at `address` (`host:port`).
    fn dial(&self, address: &str) -> Arc<dyn Connect>;
}

/// Dials by TCP, with TLS if a configuration is given; the certificate must carry the host of the address.
#[derive(Debug, Clone, Default)]
pub struct TcpDial {
    /// What to trust and what to present; `None`: plain TCP.
    pub tls: Option<Arc<rustls::ClientConfig>>,
}

impl Dial for TcpDial {
    fn dial(&self, address: &str) -> Arc<dyn Connect> {
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let tls = self.tls.as_ref().map(|config| ClientTls {
            config: Arc::clone(config),
            // A host that is no name fails every handshake, which is logged; it never falls back to plain TCP.
            server_name: ServerName::try_from(host.to_owned())
                .unwrap_or_else(|_| ServerName::try_from("invalid.").expect("a valid name")),
        });
        Arc::new(TcpConnect { address: address.to_owned(), tls })
    }
}

/// There is one node, and it runs in this process: whatever its address.
impl Dial for InProcess {
    fn dial(&self, _: &str) -> Arc<dyn Connect> {
        Arc::new(self.clone())
    }
}

/// Links to nodes by address, made when first needed and kept: a cluster has few nodes.
pub(super) struct Links {
    dial: Arc<dyn Dial>,
    hello: Hello,
    /// `None` once they are closed.
    open: Mutex<Option<HashMap<(String, Priority), Link>>>,
    /// Of all links together.
    pub(super) metrics: Arc<Metrics>,
}

impl Links {
    pub(super) fn new(dial: Arc<dyn Dial>, hello: Hello) -> Self {
        Self { dial, hello, open: Mutex::new(Some(HashMap::new())), metrics: Arc::default() }
    }

    /// The link to `address`; `None` once they are closed.
    pub(super) fn to(&self, address: &str, priority: Priority) -> Option<Link> {
        let mut open = self.open.lock();
        let link = open.as_mut()?.entry((address.to_owned(), priority)).or_insert_with(|| {
            let metrics = Arc::clone(&self.metrics);
            let peer = address.to_owned();
            let defaults = LinkConfig::new(priority, self.hello.clone());
            let config = LinkConfig { peer, metrics, calls_max: CALLS_MAX, ..defaults };
            Link::new(config, self.dial.dial(address))
        });
        Some(link.clone())
    }

    /// Closes them, but for what is still being answered, and opens no more.
    pub(super) fn close(&self) {
        self.open.lock().take();
    }
}
