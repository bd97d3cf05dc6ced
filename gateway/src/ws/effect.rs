//! What a session wants done.

use weir_protocol::ids::Seq;
use weir_protocol::rpc::Credit;
use weir_protocol::ws::{Channel, CloseCode, ServerFrame};

use crate::service::publish::{Content, OpenChannel};
use crate::service::read::{RecordSlice, Subscribe};

/// Which use of a channel number: the number may be used again while something of its last use is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Use {
    pub(super) ch: Channel,
    pub(super) generation: u64,
}

/// To be done in this order.
#[derive(Debug)]
pub(super) enum Effect {
    /// Send a frame.
    Send(Channel, ServerFrame),
    /// Send records, the first as delivery `n`.
    Deliver { of: Use, n: u64, slices: Vec<RecordSlice> },
    /// Open a channel for publishing; answered by `opened`.
    Open { of: Use, open: OpenChannel },
    /// Publish; answered by `sent` or `refused`.
    Publish { of: Use, call: u64, seq: Seq, content: Content },
    /// Follow; answered by `subscribed` or `ended`.
    Subscribe { of: Use, subscribe: Subscribe },
    /// Raise a subscription's limit.
    Raise { of: Use, limit: Credit },
    /// Hold a subscription's events back, or let them go on.
    Hold { of: Use, on: bool },
    /// Forget a channel.
    Forget { of: Use },
    /// Close the socket: nothing follows.
    Close(Closing),
}

/// How a socket is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Closing {
    /// With one of Weir's codes.
    Code(CloseCode),
    /// The client said goodbye.
    Normal,
}
