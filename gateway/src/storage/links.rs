//! One link per node and priority; to shards of this process one each.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use rustls_pki_types::ServerName;
use weir_protocol::ids::ShardId;
use weir_protocol::rpc::Hello;
use weir_transport::{
    ClientTls, Connect, InProcess, Link, LinkConfig, Metrics, Priority, TaskGroup, TcpConnect,
};

use super::stay::CALLS_MAX;

/// How a node's address becomes a connection. The seam for faults and memory in tests.
pub trait Dial: Send + Sync + 'static {
    /// A way to the node at `address` (`host:port`).
    fn dial(&self, address: &str) -> Arc<dyn Connect>;

    /// Where the tasks of a shard run, if that is in this process, and they are a group.
    fn group(&self, _shard: ShardId) -> Option<&TaskGroup> {
        None
    }
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

    fn group(&self, shard: ShardId) -> Option<&TaskGroup> {
        InProcess::group(self, shard)
    }
}

/// Address, what for, and the shard whose task group the link is part of.
type Key = (String, Priority, Option<ShardId>);

/// Links to nodes by address, made when first needed and kept: a cluster has few nodes.
pub(super) struct Links {
    dial: Arc<dyn Dial>,
    hello: Hello,
    /// `None` once they are closed.
    open: Mutex<Option<HashMap<Key, Link>>>,
    /// Of all links together.
    pub(super) metrics: Arc<Metrics>,
}

impl Links {
    pub(super) fn new(dial: Arc<dyn Dial>, hello: Hello) -> Self {
        Self { dial, hello, open: Mutex::new(Some(HashMap::new())), metrics: Arc::default() }
    }

    /// The link to `address`; `None` once they are closed.
    pub(super) fn to(&self, address: &str, priority: Priority) -> Option<Link> {
        self.take((address.to_owned(), priority, None), || self.connect(address, priority))
    }

    /// The link to `address` for the calls of `shard`; `None` once they are closed.
    pub(super) fn to_shard(&self, address: &str, shard: ShardId) -> Option<Link> {
        let Some(group) = self.dial.group(shard) else { return self.to(address, Priority::Bulk) };
        let connect = || group.enter(|| self.connect(address, Priority::Bulk));
        self.take((address.to_owned(), Priority::Bulk, Some(shard)), connect)
    }

    /// Where the tasks of `shard` run, if that is in this process, and they are a group.
    pub(super) fn group(&self, shard: ShardId) -> Option<&TaskGroup> {
        self.dial.group(shard)
    }

    fn take(&self, key: Key, connect: impl FnOnce() -> Link) -> Option<Link> {
        Some(self.open.lock().as_mut()?.entry(key).or_insert_with(connect).clone())
    }

    fn connect(&self, address: &str, priority: Priority) -> Link {
        let metrics = Arc::clone(&self.metrics);
        let defaults = LinkConfig::new(priority, self.hello.clone());
        let config = LinkConfig { peer: address.to_owned(), metrics, calls_max: CALLS_MAX, ..defaults };
        Link::new(config, self.dial.dial(address))
    }

    /// Closes them, but for what is still being answered, and opens no more.
    pub(super) fn close(&self) {
        self.open.lock().take();
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::pin::Pin;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use weir_transport::Wire;

    use super::*;

    /// Counts the ways it was asked for; shard 1 and 2 are in this process.
    #[derive(Default)]
    struct Counted {
        dialled: AtomicUsize,
        groups: HashMap<ShardId, TaskGroup>,
    }

    struct Nowhere;

    impl Connect for Nowhere {
        fn connect(&self) -> Pin<Box<dyn Future<Output = io::Result<Wire>> + Send + '_>> {
            Box::pin(std::future::pending())
        }
    }

    impl Dial for Counted {
        fn dial(&self, _: &str) -> Arc<dyn Connect> {
            self.dialled.fetch_add(1, Ordering::Relaxed);
            Arc::new(Nowhere)
        }

        fn group(&self, shard: ShardId) -> Option<&TaskGroup> {
            self.groups.get(&shard)
        }
    }

    #[tokio::test]
    async fn shards_of_this_process_have_a_link_each_and_others_share_one() {
        let groups = [1, 2].map(|shard| (ShardId(shard), TaskGroup::start()));
        let dial = Arc::new(Counted { groups: groups.into(), ..Counted::default() });
        let links = Links::new(Arc::clone(&dial) as _, Hello::default());
        let mut dialled = |shard| {
            assert!(links.to_shard("a:1", ShardId(shard)).is_some());
            dial.dialled.load(Ordering::Relaxed)
        };
        assert_eq!([1, 2, 1, 2, 3, 4].map(&mut dialled), [1, 2, 2, 2, 3, 3]);
        assert!(links.to("a:1", Priority::Bulk).is_some());
        assert_eq!(dial.dialled.load(Ordering::Relaxed), 3, "the one that is shared");
        links.close();
        assert!(links.to_shard("a:1", ShardId(1)).is_none() && links.to("a:1", Priority::Bulk).is_none());
    }
}
