//! Connections to a server of the same process.

use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::Arc;

use weir_protocol::ids::ShardId;

use crate::client::Connect;
use crate::server::Server;
use crate::task_group::TaskGroup;
use crate::wire::Wire;

/// Connects to a server of this process through memory: the handshake is that of any connection, and so are the frames,
/// their limits and their order, but no byte is copied into a stream and out of it again: each side takes the other's
/// frames from where they are queued, and who is sent something is woken by who sends it.
#[derive(Debug, Clone)]
pub struct InProcess {
    server: Server,
    groups: Arc<BTreeMap<ShardId, TaskGroup>>,
}

impl InProcess {
    /// Connects to `server`.
    #[must_use]
    pub fn new(server: Server) -> Self {
        Self { server, groups: Arc::default() }
    }

    /// The same, with the task group of each shard that has one.
    #[must_use]
    pub fn with_groups(self, groups: Arc<BTreeMap<ShardId, TaskGroup>>) -> Self {
        Self { groups, ..self }
    }

    /// Where the tasks of a shard run, if they are a group: what its clients in this process do for it belongs
    /// there.
    #[must_use]
    pub fn group(&self, shard: ShardId) -> Option<&TaskGroup> {
        self.groups.get(&shard)
    }
}

impl Connect for InProcess {
    fn connect(&self) -> Pin<Box<dyn Future<Output = io::Result<Wire>> + Send + '_>> {
        let (ours, theirs) = Wire::in_process();
        self.server.attach(theirs);
        Box::pin(std::future::ready(Ok(ours)))
    }
}
