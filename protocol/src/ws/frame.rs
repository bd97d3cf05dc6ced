//! The frame of the binary form, and what frames there are.
//!
//! | offset | size | field | meaning (little-endian) |
//! |-------:|-----:|-------|-------------------------|
//! | 0      | 1    | type  | [`FrameType`] |
//! | 1      | 1    | flags | by type, see below; 0 elsewhere |
//! | 2      | 2    | ch    | channel; 0 where the frame is about the connection |
//! | 4      | 4    | len   | bytes of the body |
//! | 8      | 8    | arg   | by type, see below; 0 elsewhere |
//! | 16     | len  | body  | by type, see below; elsewhere the JSON object without `t` and `ch`, empty for `{}` |
//!
//! | type                | arg                         | flags | body |
//! |---------------------|-----------------------------|-------|------|
//! | `pub`               | sequence number of the first record | –     | one record batch |
//! | `msgs`              | delivery number of the first record | [`FLAG_STAGED`] or [`FLAG_LEASED`] | [`super::Deliveries`] |
//! | `confirm`           | `upto`                      | [`FLAG_NOTHING_YET`] | see `compact` |
//! | `limit`, `pub_limit`| –                           | –     | `msgs` u64, `bytes` u64 |

use super::WsError;
use crate::limits::WS_MESSAGE_BYTES_MAX;

/// Bytes of a frame header.
pub const HEADER_BYTES: usize = 16;
/// On `msgs`: the records are below quorum; the body starts with the term they were staged in.
pub(super) const FLAG_STAGED: u8 = 1;
/// On `msgs`: the records are leased; the body starts with the leases.
pub(super) const FLAG_LEASED: u8 = 2;
/// On `confirm`: no contiguous prefix is confirmed yet; `arg` is 0.
pub(super) const FLAG_NOTHING_YET: u8 = 1;

const _: () = assert!(WS_MESSAGE_BYTES_MAX < u32::MAX as usize, "a body's length fits its field");

/// Number of a channel, chosen by the client; 0 is the connection itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Channel(pub u16);

impl Channel {
    /// The connection itself.
    pub const CONNECTION: Self = Self(0);
}

/// What a frame is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// The connection: no channel.
    Connection,
    /// One channel.
    Channel,
    /// Either.
    Any,
}

macro_rules! frame_types {
    ($($(#[$doc:meta])* $variant:ident = $number:literal, $text:literal, $scope:ident;)+) => {
        /// Every frame. A number is never reused; below 0x80 clients send it, `ping` and `pong` both sides.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum FrameType {
            $($(#[$doc])* $variant = $number,)+
        }

        impl FrameType {
            /// All types, ascending.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// Its `t` in JSON.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }

            /// The type of a header's first byte.
            #[must_use]
            pub const fn from_number(number: u8) -> Option<Self> {
                match number { $($number => Some(Self::$variant),)+ _ => None }
            }

            /// The type of a `t`.
            #[must_use]
            pub fn from_text(text: &str) -> Option<Self> {
                match text { $($text => Some(Self::$variant),)+ _ => None }
            }

            /// What it is about.
            #[must_use]
            pub const fn scope(self) -> Scope {
                match self { $(Self::$variant => Scope::$scope,)+ }
            }
        }
    };
}

frame_types! {
    /// Who is there; the first frame of a connection.
    Hello = 1, "hello", Connection;
    /// Opens a channel for publishing.
    Open = 2, "open", Channel;
    /// Publishes a record; in binary, a batch.
    Pub = 3, "pub", Channel;
    /// Opens a channel for receiving.
    Sub = 4, "sub", Channel;
    /// Raises the credit of a subscription.
    Limit = 5, "limit", Channel;
    /// Settles deliveries.
    Ack = 6, "ack", Channel;
    /// Gives deliveries back.
    Nack = 7, "nack", Channel;
    /// Keeps leases longer.
    Extend = 8, "extend", Channel;
    /// Continues elsewhere.
    Seek = 9, "seek", Channel;
    /// Stops or continues delivery.
    Pause = 10, "pause", Channel;
    /// Closes a subscription.
    Unsub = 11, "unsub", Channel;
    /// Closes a publishing channel.
    ClosePub = 12, "close_pub", Channel;
    /// Brings a fresh token.
    Auth = 13, "auth", Connection;
    /// Asks for a sign of life.
    Ping = 14, "ping", Connection;
    /// The sign of life.
    Pong = 15, "pong", Connection;
    /// The client leaves.
    Bye = 16, "bye", Connection;
    /// Gives deliveries up.
    Dead = 17, "dead", Channel;
    /// Answers `hello`.
    Welcome = 0x81, "welcome", Connection;
    /// Answers `open`.
    Opened = 0x82, "opened", Channel;
    /// Confirms publishes, cumulatively per level.
    Confirm = 0x83, "confirm", Channel;
    /// Refuses publishes.
    Reject = 0x84, "reject", Channel;
    /// Raises the credit of a publisher.
    PubLimit = 0x85, "pub_limit", Channel;
    /// Answers `sub` and `seek`.
    Subscribed = 0x86, "subscribed", Channel;
    /// Delivers a record.
    Msg = 0x87, "msg", Channel;
    /// Delivers records.
    Msgs = 0x88, "msgs", Channel;
    /// Settles took effect.
    Settled = 0x89, "settled", Channel;
    /// Leases were lost.
    LeaseLost = 0x8a, "lease_lost", Channel;
    /// Records that no longer exist were skipped.
    Gap = 0x8b, "gap", Channel;
    /// The end was reached.
    CaughtUp = 0x8c, "caught_up", Channel;
    /// Speculative deliveries are withdrawn.
    Retract = 0x8d, "retract", Channel;
    /// Speculative deliveries became final.
    Firm = 0x8e, "firm", Channel;
    /// Another gateway serves this.
    Moved = 0x8f, "moved", Any;
    /// The gateway will close soon.
    Goaway = 0x90, "goaway", Connection;
    /// The token's time is running out.
    AuthExpiring = 0x91, "auth_expiring", Connection;
    /// A request was refused.
    Err = 0x92, "err", Any;
    /// Leases last longer.
    Extended = 0x93, "extended", Channel;
    /// What a filter kept back was passed over.
    Looked = 0x94, "looked", Channel;
    /// Which partitions of a stream the client reads has changed.
    Share = 0x95, "share", Channel;
}

impl FrameType {
    /// Checks that a frame of this type goes with `ch`.
    pub(super) fn check_channel(self, ch: Channel) -> Result<Channel, WsError> {
        let fits = match self.scope() {
            Scope::Connection => ch == Channel::CONNECTION,
            Scope::Channel => ch != Channel::CONNECTION,
            Scope::Any => true,
        };
        if fits { Ok(ch) } else { Err(WsError::Channel { frame: self, ch: ch.0 }) }
    }
}

/// A header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FrameHead {
    pub(super) frame: FrameType,
    pub(super) flags: u8,
    pub(super) ch: Channel,
    pub(super) arg: u64,
}

impl FrameHead {
    /// The header of a frame with a body of `body_bytes`.
    pub(super) fn encode(&self, body_bytes: usize) -> [u8; HEADER_BYTES] {
        let len = u32::try_from(body_bytes).expect("a body is within a message, which fits a u32");
        let mut bytes = [0; HEADER_BYTES];
        bytes[0] = self.frame as u8;
        bytes[1] = self.flags;
        bytes[2..4].copy_from_slice(&self.ch.0.to_le_bytes());
        bytes[4..8].copy_from_slice(&len.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.arg.to_le_bytes());
        bytes
    }

    /// Reads a header and the length of the body that follows.
    pub(super) fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<(Self, usize), WsError> {
        let [kind, flags, ch @ ..] = *bytes;
        let frame = FrameType::from_number(kind).ok_or(WsError::UnknownType(kind))?;
        let [ch0, ch1, len0, len1, len2, len3, arg @ ..] = ch;
        let ch = frame.check_channel(Channel(u16::from_le_bytes([ch0, ch1])))?;
        let head = Self { frame, flags, ch, arg: u64::from_le_bytes(arg) };
        Ok((head, u32::from_le_bytes([len0, len1, len2, len3]) as usize))
    }

    /// Refuses flags and an argument that the frame's type does not have.
    pub(super) fn check_unused(&self, flags: u8, arg: bool) -> Result<(), WsError> {
        if self.flags & !flags != 0 {
            return Err(WsError::Flags { frame: self.frame, flags: self.flags });
        }
        if !arg && self.arg != 0 {
            return Err(WsError::Body(self.frame));
        }
        Ok(())
    }
}
