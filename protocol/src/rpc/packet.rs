//! A message with record batches behind it.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use prost::Message;

use super::Body;

/// A message and the bytes that follow it: `u32 LE length of the message | message | payload`.
/// The message says how the payload is divided.
#[derive(Debug, Clone)]
pub struct Packet<M> {
    /// The message.
    pub message: M,
    /// What follows it.
    pub payload: Body,
}

/// Why a body is not the expected message. The call is refused as malformed.
#[derive(Debug, thiserror::Error)]
pub enum PacketError {
    /// Shorter than its own length field says.
    #[error("packet of {0} bytes is truncated")]
    Truncated(usize),
    /// Not the expected message.
    #[error("not the expected message")]
    Message(#[from] prost::DecodeError),
}

/// Body segments of `message` followed by `payload`, none of which is copied.
#[must_use]
pub fn encode_packet<M: Message>(message: &M, payload: impl IntoIterator<Item = Bytes>) -> Vec<Bytes> {
    let length = message.encoded_len();
    let mut head = BytesMut::with_capacity(4 + length);
    #[expect(
        clippy::cast_possible_truncation,
        reason = "bounded by the frame limit, which the frame asserts"
    )]
    head.put_u32_le(length as u32);
    message.encode(&mut head).expect("the buffer was sized by encoded_len and grows");
    let mut segments = vec![head.freeze()];
    segments.extend(payload);
    segments
}

impl<M: Message + Default> Packet<M> {
    /// Takes a body apart without copying the payload.
    ///
    /// # Errors
    /// [`PacketError`] if it is cut short or not an `M`.
    pub fn decode(body: impl Into<Body>) -> Result<Self, PacketError> {
        let mut body = body.into();
        let whole = body.len();
        if whole < 4 {
            return Err(PacketError::Truncated(whole));
        }
        let length = body.get_u32_le() as usize;
        if body.len() < length {
            return Err(PacketError::Truncated(whole));
        }
        let message = M::decode(body.split_to(length))?;
        Ok(Self { message, payload: body })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rpc::{ReadAnswer, Slice};

    #[test]
    fn a_packet_round_trips_and_every_truncation_of_its_message_is_refused() {
        let message =
            ReadAnswer { slices: vec![Slice { first: 7, take: 2, batch_bytes: 5 }], ..Default::default() };
        let whole = Bytes::from(encode_packet(&message, [Bytes::from_static(b"batch")]).concat());
        let packet = Packet::<ReadAnswer>::decode(whole.clone()).unwrap();
        assert_eq!((packet.message, &packet.payload.into_bytes()[..]), (message, &b"batch"[..]));
        for cut in 0..whole.len() - 5 {
            assert!(Packet::<ReadAnswer>::decode(whole.slice(..cut)).is_err(), "cut at {cut}");
        }
    }
}
