//! What openraft is told about Weir's entries, and how ids and membership look on disk.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use bytes::Bytes;
use openraft::alias::{LogIdOf, VoteOf};
use openraft::{Membership, Vote};
use prost::Message as _;
use weir_journal::LogPosition;

use crate::raft::machine::Machine;
use crate::shard::state::Verdict;

/// Payload of an entry: its bytes are the record's bytes on disk and on the wire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryData(pub Bytes);

impl fmt::Display for EntryData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

/// What applying an entry answered.
#[derive(Debug, Default)]
pub struct AppliedEntry {
    /// One per sub-batch.
    pub verdicts: Vec<Verdict>,
}

openraft::declare_raft_types!(
    /// Weir's shards.
    pub TypeConfig:
        D = EntryData,
        R = AppliedEntry,
        NodeId = u64,
        Node = openraft::impls::BasicNode,
);

/// One shard's Raft.
pub type ShardRaft = openraft::Raft<TypeConfig, Machine>;
/// Term and leader of an entry.
pub type LeaderId = openraft::impls::leader_id_adv::LeaderId<u64, u64>;
/// Members of a shard.
pub type Members = Membership<u64, openraft::impls::BasicNode>;

/// A log id as the journal keeps it.
#[must_use]
pub fn position(id: &LogIdOf<TypeConfig>) -> LogPosition {
    LogPosition { term: id.leader_id.term, leader: id.leader_id.node_id, index: id.index }
}

/// The inverse of [`position`].
#[must_use]
pub fn log_id(at: LogPosition) -> LogIdOf<TypeConfig> {
    LogIdOf::<TypeConfig>::new(LeaderId { term: at.term, node_id: at.leader }, at.index)
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
struct StoredVote {
    #[prost(uint64, tag = "1")]
    term: u64,
    #[prost(uint64, tag = "2")]
    node_id: u64,
    #[prost(bool, tag = "3")]
    committed: bool,
}

/// A vote as bytes.
#[must_use]
pub fn encode_vote(vote: &VoteOf<TypeConfig>) -> Bytes {
    let leader = vote.leader_id();
    let stored = StoredVote { term: leader.term, node_id: leader.node_id, committed: vote.is_committed() };
    stored.encode_to_vec().into()
}

/// The inverse of [`encode_vote`].
///
/// # Errors
/// If the bytes are not a vote.
pub fn decode_vote(bytes: &Bytes) -> Result<VoteOf<TypeConfig>, prost::DecodeError> {
    let stored = StoredVote::decode(bytes.clone())?;
    let vote = if stored.committed {
        Vote::new_committed(stored.term, stored.node_id)
    } else {
        Vote::new(stored.term, stored.node_id)
    };
    Ok(vote)
}

/// Members on disk and in checkpoints.
#[derive(Clone, PartialEq, prost::Message)]
pub struct StoredMembers {
    #[prost(message, repeated, tag = "1")]
    configs: Vec<StoredVoters>,
    #[prost(message, repeated, tag = "2")]
    nodes: Vec<StoredNode>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct StoredVoters {
    #[prost(uint64, repeated, tag = "1")]
    voters: Vec<u64>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct StoredNode {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(string, tag = "2")]
    address: String,
}

impl From<&Members> for StoredMembers {
    fn from(members: &Members) -> Self {
        let voters = |set: &BTreeSet<u64>| StoredVoters { voters: set.iter().copied().collect() };
        let node = |(id, node): (&u64, &openraft::impls::BasicNode)| StoredNode {
            id: *id,
            address: node.addr.clone(),
        };
        Self {
            configs: members.get_joint_config().iter().map(voters).collect(),
            nodes: members.nodes().map(node).collect(),
        }
    }
}

impl TryFrom<StoredMembers> for Members {
    type Error = String;
    fn try_from(stored: StoredMembers) -> Result<Self, String> {
        let configs = stored.configs.into_iter().map(|set| set.voters.into_iter().collect()).collect();
        let node = |node: StoredNode| (node.id, openraft::impls::BasicNode { addr: node.address });
        let nodes: BTreeMap<_, _> = stored.nodes.into_iter().map(node).collect();
        Self::new(configs, nodes).map_err(|error| error.to_string())
    }
}
