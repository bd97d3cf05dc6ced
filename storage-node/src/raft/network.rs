//! Where other nodes will be reached. A cluster of one has no peers: every target is unreachable.

use std::future::Future;

use openraft::alias::{SnapshotOf, VoteOf};
use openraft::errors::{RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::RPCOption;
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse,
};
use openraft::{AnyError, OptionalSend, RaftNetworkFactory, RaftNetworkV2};

use super::machine::CheckpointFile;
use super::types::TypeConfig;

/// A network without peers.
#[derive(Debug, Clone, Copy)]
pub struct NoPeers;

fn unreachable() -> Unreachable<TypeConfig> {
    Unreachable::new(&AnyError::error("this cluster has one node"))
}

impl RaftNetworkFactory<TypeConfig> for NoPeers {
    type Network = Self;

    async fn new_client(&mut self, _target: u64, _node: &openraft::impls::BasicNode) -> Self {
        *self
    }
}

impl RaftNetworkV2<TypeConfig> for NoPeers {
    type SnapshotData = CheckpointFile;

    async fn append_entries(
        &mut self,
        _rpc: AppendEntriesRequest<TypeConfig>,
        _option: RPCOption,
    ) -> Result<AppendEntriesResponse<TypeConfig>, RPCError<TypeConfig>> {
        Err(RPCError::Unreachable(unreachable()))
    }

    async fn vote(
        &mut self,
        _rpc: VoteRequest<TypeConfig>,
        _option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RPCError<TypeConfig>> {
        Err(RPCError::Unreachable(unreachable()))
    }

    async fn pre_vote(
        &mut self,
        _rpc: VoteRequest<TypeConfig>,
        _option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RPCError<TypeConfig>> {
        // openraft's default grants; a peer that cannot be reached grants nothing.
        Err(RPCError::Unreachable(unreachable()))
    }

    async fn full_snapshot(
        &mut self,
        _vote: VoteOf<TypeConfig>,
        _snapshot: SnapshotOf<TypeConfig, CheckpointFile>,
        _cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<TypeConfig>, StreamingError<TypeConfig>> {
        Err(StreamingError::Unreachable(unreachable()))
    }
}
