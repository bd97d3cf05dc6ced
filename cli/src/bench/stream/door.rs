//! Which way writers and readers take.

use super::node::NodeDoor;
use crate::args::{Connect, Transport};
use crate::bench::target::Reach;

/// How those of this process get to the product.
pub(super) enum Door {
    Gateway(Connect),
    /// Past the gateway: one connection for all, as a gateway would have.
    Node(NodeDoor),
}

impl Door {
    /// The way that a transport asks for.
    pub(super) async fn open(reach: &Reach, transport: Transport) -> anyhow::Result<Self> {
        Ok(match transport {
            Transport::Internal => Self::Node(NodeDoor::open(reach).await?),
            _ => Self::Gateway(reach.connect.clone()),
        })
    }

    /// For what only gateways do.
    pub(super) fn gateway(&self) -> anyhow::Result<&Connect> {
        match self {
            Self::Gateway(connect) => Ok(connect),
            Self::Node(_) => anyhow::bail!("a storage node is asked for what only a gateway does"),
        }
    }
}
