//! What a server calls.

use std::net::SocketAddr;
use std::time::Instant;

use weir_protocol::ids::{NodeId, ShardId};
use weir_protocol::rpc::{Body, Method};

use super::reply::Reply;

/// Who is on the other side of a connection, after its handshake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// Number of the connection, unique in this listener: calls with the same number arrived in their order.
    pub connection: u64,
    /// Its node id; `None` for a gateway. Node-only methods never arrive from a gateway.
    pub node_id: Option<NodeId>,
    /// Its address; `None` in memory.
    pub address: Option<SocketAddr>,
    /// Protocol version spoken.
    pub version: u32,
}

/// A call that arrived.
#[derive(Debug)]
pub struct Request {
    /// What is asked.
    pub method: Method,
    /// The shard it is for.
    pub shard: ShardId,
    /// The message. A slice of a read buffer of up to 256 KiB (or one large frame), which lives as long as any
    /// slice of it: what is kept long and is small is better copied. In one process, the caller's own pieces.
    pub body: Body,
    /// Answers it.
    pub reply: Reply,
    /// When it was read from the socket.
    pub received: Instant,
}

/// Takes calls. One instance serves all connections.
pub trait Service: Send + Sync + 'static {
    /// Takes one call. Runs on the task that reads the peer's connection: it must not block, and hands longer
    /// work with its [`Reply`] to others. Calls of one connection come in the order they were sent.
    fn call(&self, peer: &Peer, request: Request);
}
