//! The way to other voters. There are none until clusters exist, so every peer is unreachable; a cluster's
//! transport goes behind [`Peers`] and nothing else changes.

use std::future::Future;

use openraft::alias::{SnapshotOf, VoteOf};
use openraft::errors::{RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::{RPCOption, RaftNetworkFactory, v2::RaftNetworkV2};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse,
};
use openraft::{BasicNode, OptionalSend};
use weir_protocol::ids::ShardId;

use super::machine::SnapshotBytes;
use super::types::TypeConfig;

/// Makes connections to the other voters of one shard.
#[derive(Debug, Clone)]
pub struct Peers {
    shard: ShardId,
}

impl Peers {
    /// The peers of `shard`.
    #[must_use]
    pub fn new(shard: ShardId) -> Self {
        Self { shard }
    }
}

/// A peer that cannot be reached.
#[derive(Debug)]
pub struct Peer {
    shard: ShardId,
    node: u64,
}

#[derive(Debug, thiserror::Error)]
#[error("shard {shard}: node {node} cannot be reached, this build has no transport between nodes")]
struct NoTransport {
    shard: ShardId,
    node: u64,
}

impl Peer {
    fn unreachable(&self) -> Unreachable<TypeConfig> {
        Unreachable::new(&NoTransport { shard: self.shard, node: self.node })
    }
}

impl RaftNetworkFactory<TypeConfig> for Peers {
    type Network = Peer;

    async fn new_client(&mut self, target: u64, _node: &BasicNode) -> Peer {
        Peer { shard: self.shard, node: target }
    }
}

// Every method is written out: the defaults of `pre_vote` (grants) and of adapters that forward only some of them
// would hide a peer that is away.
impl RaftNetworkV2<TypeConfig> for Peer {
    type SnapshotData = SnapshotBytes;

    async fn append_entries(
        &mut self,
        _rpc: AppendEntriesRequest<TypeConfig>,
        _option: RPCOption,
    ) -> Result<AppendEntriesResponse<TypeConfig>, RPCError<TypeConfig>> {
        Err(self.unreachable().into())
    }

    async fn vote(
        &mut self,
        _rpc: VoteRequest<TypeConfig>,
        _option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RPCError<TypeConfig>> {
        Err(self.unreachable().into())
    }

    async fn pre_vote(
        &mut self,
        _rpc: VoteRequest<TypeConfig>,
        _option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RPCError<TypeConfig>> {
        Err(self.unreachable().into())
    }

    async fn full_snapshot(
        &mut self,
        _vote: VoteOf<TypeConfig>,
        _snapshot: SnapshotOf<TypeConfig, SnapshotBytes>,
        _cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<TypeConfig>, StreamingError<TypeConfig>> {
        Err(self.unreachable().into())
    }
}
