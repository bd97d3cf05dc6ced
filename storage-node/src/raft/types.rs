//! The types that openraft is built with, and the bytes of a membership entry and a vote.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use openraft::BasicNode;
use openraft::raft::responder::Responder;
use openraft::vote::{RaftLeaderId, RaftVote as _};
use prost::Message as _;

use super::machine::Machine;
use crate::shard::state::Verdict;

/// What a Raft entry carries: the payload described in [`crate::shard::entry`]. Shared, never copied.
#[derive(Clone, PartialEq, Eq)]
pub struct EntryData(pub Bytes);

impl fmt::Debug for EntryData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for EntryData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

/// What applying an entry answers to its proposer, on the same node and in the same process.
#[derive(Debug, Default)]
pub struct AppliedEntry {
    /// One per sub-batch, in order.
    pub verdicts: Vec<Verdict>,
    /// Where the entry's time went, if its commit is known.
    pub synced: Option<weir_journal::Synced>,
}

/// Calls back where the entry is applied: no task has to wake up between apply and the answer.
pub struct Callback<T>(Box<dyn FnOnce(T) + Send>);

impl<T> Callback<T> {
    /// `call` must be short: the shard's apply stands behind it.
    pub fn new(call: impl FnOnce(T) + Send + 'static) -> Self {
        Self(Box::new(call))
    }
}

impl<T> fmt::Debug for Callback<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Callback")
    }
}

impl<C: openraft::RaftTypeConfig, T: 'static> Responder<C, T> for Callback<T> {
    fn on_complete(self, result: T) {
        (self.0)(result);
    }
}

/// The types openraft is built with. One leader per term (`leader_id_std`), so that a term names what lies beyond
/// the committed end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct TypeConfig;

impl openraft::RaftTypeConfig for TypeConfig {
    type D = EntryData;
    type R = AppliedEntry;
    type NodeId = u64;
    type Node = BasicNode;
    type Term = u64;
    type LeaderId = LeaderId;
    type Vote = openraft::impls::Vote<LeaderId>;
    type Payload = openraft::EntryPayload<EntryData, u64, BasicNode>;
    type Entry = openraft::Entry<<LeaderId as RaftLeaderId>::Committed, Self::Payload>;
    type AsyncRuntime = super::runtime::GroupRuntime;
    type Responder<T>
        = Callback<T>
    where
        T: openraft::OptionalSend + 'static;
    type Batch<T>
        = openraft::impls::InlineBatch<T>
    where
        T: openraft::OptionalSend + 'static;
    type ErrorSource = openraft::impls::BoxedErrorSource;
}

type LeaderId = openraft::impls::leader_id_std::LeaderId<u64, u64>;

/// One shard's Raft group.
pub type ShardRaft = openraft::Raft<TypeConfig, Machine>;
/// Name of a log entry.
pub type LogId = openraft::alias::LogIdOf<TypeConfig>;
/// A log entry.
pub type LogEntry = openraft::alias::EntryOf<TypeConfig>;
/// A vote.
pub type Vote = openraft::alias::VoteOf<TypeConfig>;
/// The members of a group.
pub type Membership = openraft::Membership<u64, BasicNode>;
/// The members and the entry that made them so.
pub type StoredMembership = openraft::alias::StoredMembershipOf<TypeConfig>;

/// Bytes that are not a vote or membership of this build.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a {0} that this build can read")]
pub struct CodecError(&'static str);

/// A log id of `term` and `index`.
#[must_use]
pub fn log_id(term: u64, index: u64) -> LogId {
    let leader = LeaderId::new(term, 0);
    LogId::new(leader.to_committed(), index)
}

/// Term of a log id.
#[must_use]
pub fn term_of(id: &LogId) -> u64 {
    id.leader_id.term
}

/// A vote for `node` in `term` that has won nothing yet: the next election is in a higher term.
#[must_use]
pub fn vote_for(node: u64, term: u64) -> Vote {
    Vote::from_leader_id(LeaderId::new(term, node), false)
}

/// A vote as bytes: `u8 1 | u8 committed | u64 term | u64 node`, little-endian.
#[must_use]
pub fn encode_vote(vote: &Vote) -> Bytes {
    let mut bytes = BytesMut::with_capacity(18);
    bytes.put_u8(1);
    bytes.put_u8(u8::from(vote.committed));
    bytes.put_u64_le(vote.leader_id.term);
    bytes.put_u64_le(vote.leader_id.voted_for);
    bytes.freeze()
}

/// The vote in bytes of [`encode_vote`].
///
/// # Errors
/// [`CodecError`]: the node must not start, it could vote twice.
pub fn decode_vote(mut bytes: Bytes) -> Result<Vote, CodecError> {
    if bytes.len() != 18 || bytes[0] != 1 || bytes[1] > 1 {
        return Err(CodecError("vote"));
    }
    bytes.advance(1);
    let committed = bytes.get_u8() == 1;
    let (term, node) = (bytes.get_u64_le(), bytes.get_u64_le());
    Ok(Vote::from_leader_id(LeaderId::new(term, node), committed))
}

#[derive(Clone, PartialEq, prost::Message)]
struct StoredMembers {
    #[prost(message, repeated, tag = "1")]
    configs: Vec<Voters>,
    #[prost(message, repeated, tag = "2")]
    nodes: Vec<Member>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Voters {
    #[prost(uint64, repeated, tag = "1")]
    nodes: Vec<u64>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Member {
    #[prost(uint64, tag = "1")]
    node: u64,
    #[prost(string, tag = "2")]
    address: String,
}

/// The payload of a membership entry.
#[must_use]
pub fn encode_membership(membership: &Membership) -> Bytes {
    let voters = |config: &BTreeSet<u64>| Voters { nodes: config.iter().copied().collect() };
    let member = |(node, info): (&u64, &BasicNode)| Member { node: *node, address: info.addr.clone() };
    let stored = StoredMembers {
        configs: membership.get_joint_config().iter().map(voters).collect(),
        nodes: membership.nodes().map(member).collect(),
    };
    stored.encode_to_vec().into()
}

/// The membership in bytes of [`encode_membership`].
///
/// # Errors
/// [`CodecError`]: the shard must not go on without knowing its members.
pub fn decode_membership(bytes: &Bytes) -> Result<Membership, CodecError> {
    let stored = StoredMembers::decode(bytes.clone()).map_err(|_| CodecError("membership"))?;
    let configs = stored.configs.into_iter().map(|voters| voters.nodes.into_iter().collect()).collect();
    let nodes: BTreeMap<u64, BasicNode> =
        stored.nodes.into_iter().map(|member| (member.node, BasicNode::new(member.address))).collect();
    Membership::new(configs, nodes).map_err(|_| CodecError("membership"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn votes_and_memberships_round_trip_and_damage_is_refused() {
        let leader = LeaderId::new(7, 3);
        for committed in [false, true] {
            let vote = Vote::from_leader_id(leader, committed);
            let bytes = encode_vote(&vote);
            assert_eq!(decode_vote(bytes.clone()), Ok(vote));
            assert_eq!(decode_vote(bytes.slice(1..)), Err(CodecError("vote")));
        }
        let nodes = BTreeMap::from([(1, BasicNode::new("a:1")), (2, BasicNode::new("b:2"))]);
        let joint = vec![BTreeSet::from([1]), BTreeSet::from([1, 2])];
        let membership = Membership::new(joint, nodes).unwrap();
        assert_eq!(decode_membership(&encode_membership(&membership)), Ok(membership));
        assert!(decode_membership(&Bytes::from_static(&[0xff])).is_err());
    }
}
