//! What a session wants done.

use weir_protocol::ids::Seq;
use weir_protocol::rpc::Credit;
use weir_protocol::ws::{Channel, CloseCode, ServerFrame};

use super::consuming::Sent;
use crate::service::publish::{Content, OpenChannel};
use crate::service::read::{Parcel, Subscribe};
use crate::service::subscriptions::{Consume, Leased, SubscriptionPath};

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
    /// Put frames of one turn together, as far as a message goes.
    Batch,
    /// Send a ping below the frames, which every WebSocket library answers by itself.
    Ping,
    /// Send records, the first as delivery `n`.
    Deliver { of: Use, n: u64, parcel: Parcel },
    /// Open a channel for publishing; answered by `opened`.
    Open { of: Use, open: OpenChannel },
    /// Publish; answered by `sent` or `refused`.
    Publish { of: Use, call: u64, seq: Seq, content: Content },
    /// Follow; answered by `subscribed` or `ended`.
    Subscribe { of: Use, subscribe: Subscribe },
    /// Consume a subscription; answered by `consuming` or `ended`.
    Consume { of: Use, path: SubscriptionPath, consume: Consume },
    /// Send leased records, the first as delivery `n`.
    DeliverLeased { of: Use, n: u64, leased: Box<Leased> },
    /// Settle leases; answered by `settled`.
    Settle { of: Use, sent: Sent },
    /// Forget a channel that consumed: what it holds is others' at once.
    Leave { of: Use },
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
    /// The client broke the rules below our frames: with the code that RFC 6455, section 7.4.1, names.
    Violation(Violation),
}

/// Which rule of RFC 6455 a client broke.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Violation {
    /// How frames are made and follow each other.
    Protocol,
    /// Text is UTF-8.
    Text,
    /// A message is no larger than allowed.
    Size,
}

impl Closing {
    /// Code and reason of the close frame.
    pub(super) fn frame(self) -> (u16, &'static str) {
        match self {
            Self::Code(code) => (code.number(), code.as_str()),
            Self::Normal => (1000, "bye"),
            Self::Violation(Violation::Protocol) => (1002, "protocol-error"),
            Self::Violation(Violation::Text) => (1007, "invalid-text"),
            Self::Violation(Violation::Size) => (1009, "message-too-big"),
        }
    }
}
