//! The binary form: a message is bytes, frames follow each other. See `frame` for the layouts.

use bytes::{BufMut, Bytes, BytesMut};

use super::compact::{LIMIT_BYTES, confirm_bytes, put_confirm, put_limit, take_confirm, take_limit};
use super::frame::{FLAG_LEASED, FLAG_NOTHING_YET, FLAG_STAGED, FrameHead};
use super::json::{Head, client_body, read_client, read_server, server_body};
use super::{
    Channel, ClientFrame, Confirm, Deliveries, DeliveriesBody, FrameType, HEADER_BYTES, Limit, ServerFrame,
    WsError,
};
use crate::batch::Batch;
use crate::ids::Seq;
use crate::limits::WS_MESSAGE_BYTES_MAX;

/// Takes a client's frame off the front of a message; `None` at its end. A batch is checked as [`Batch::parse`]
/// does and not copied.
///
/// # Errors
/// [`WsError`]: close the connection. What is left of the message is unspecified.
pub fn take_client_frame(message: &mut Bytes) -> Result<Option<(Channel, ClientFrame)>, WsError> {
    let Some((head, body)) = take(message)? else { return Ok(None) };
    let frame = match head.frame {
        FrameType::Pub => {
            head.check_unused(0, true)?;
            let batch = Batch::parse(body).map_err(|error| WsError::Batch { frame: head.frame, error })?;
            ClientFrame::PubBatch { first_seq: Seq(head.arg), batch }
        }
        FrameType::Limit => ClientFrame::Limit(read_limit(&head, body)?),
        _ => read_client(head.frame, fields(&head, &body)?, Head::Outside)?,
    };
    Ok(Some((head.ch, frame)))
}

/// Takes a gateway's frame off the front of a message, likewise.
///
/// # Errors
/// As [`take_client_frame`].
pub fn take_server_frame(message: &mut Bytes) -> Result<Option<(Channel, ServerFrame)>, WsError> {
    let Some((head, body)) = take(message)? else { return Ok(None) };
    let frame = match head.frame {
        FrameType::Msgs => {
            // Leased records are committed: the two do not go together.
            head.check_unused(if head.flags & FLAG_LEASED != 0 { FLAG_LEASED } else { FLAG_STAGED }, true)?;
            ServerFrame::Deliveries(match head.flags {
                FLAG_LEASED => Deliveries::decode_leased(head.arg, body)?,
                flags => Deliveries::decode(head.arg, flags == FLAG_STAGED, body)?,
            })
        }
        FrameType::Confirm => ServerFrame::Confirm(read_confirm(&head, body)?),
        FrameType::PubLimit => ServerFrame::PubLimit(read_limit(&head, body)?),
        FrameType::Msg => return Err(WsError::Misplaced(head.frame)),
        _ => read_server(head.frame, fields(&head, &body)?, Head::Outside)?,
    };
    Ok(Some((head.ch, frame)))
}

/// Appends a client's frame.
///
/// # Panics
/// On [`ClientFrame::Pub`]: this form publishes batches.
pub fn put_client_frame(message: &mut BytesMut, ch: Channel, frame: &ClientFrame) {
    let head = FrameHead { frame: frame.frame_type(), flags: 0, ch, arg: 0 };
    match frame {
        ClientFrame::PubBatch { first_seq, batch } => {
            put(message, FrameHead { arg: first_seq.0, ..head }, batch.bytes());
        }
        ClientFrame::Limit(limit) => write_limit(message, head, *limit),
        ClientFrame::Pub(_) => panic!("the binary form publishes batches; got the record of a JSON `pub`"),
        _ => put(message, head, text(client_body(frame).as_deref())),
    }
}

/// Appends a gateway's frame.
///
/// # Panics
/// On [`ServerFrame::Msg`] and [`ServerFrame::Msgs`]: this form delivers batches.
pub fn put_server_frame(message: &mut BytesMut, ch: Channel, frame: &ServerFrame) {
    let head = FrameHead { frame: frame.frame_type(), flags: 0, ch, arg: 0 };
    match frame {
        ServerFrame::Deliveries(deliveries) => {
            message.reserve(HEADER_BYTES + deliveries.body_bytes());
            put_deliveries(message, ch, deliveries, |message, batch| message.put_slice(batch));
        }
        ServerFrame::Confirm(confirm) => {
            let flags = if confirm.upto.is_none() { FLAG_NOTHING_YET } else { 0 };
            let head = FrameHead { flags, arg: confirm.upto.unwrap_or(0), ..head };
            message.put_slice(&head.encode(confirm_bytes(confirm)));
            put_confirm(message, confirm);
        }
        ServerFrame::PubLimit(limit) => write_limit(message, head, *limit),
        ServerFrame::Msg(_) | ServerFrame::Msgs(_) => {
            panic!("the binary form delivers batches; got the records of a JSON `msgs`")
        }
        _ => put(message, head, text(server_body(frame).as_deref())),
    }
}

/// Adds what [`put_server_frame`] adds of a frame of records; the bytes of its batches go to `put`, in order: behind
/// what is in the message by then.
pub fn put_deliveries(
    message: &mut BytesMut,
    ch: Channel,
    frame: &Deliveries,
    put: impl FnMut(&mut BytesMut, &Bytes),
) {
    let flags = match (frame.leases.is_empty(), frame.staged) {
        (false, _) => FLAG_LEASED,
        (true, Some(_)) => FLAG_STAGED,
        (true, None) => 0,
    };
    let head = FrameHead { frame: FrameType::Msgs, flags, ch, arg: frame.n };
    message.put_slice(&head.encode(frame.body_bytes()));
    frame.encode(message, put);
}

/// The header in front of `body`, for a reader whose next delivery is `n` on `ch`: both together are what
/// [`put_server_frame`] writes of the same records.
#[must_use]
pub fn deliveries_head(ch: Channel, n: u64, body: &DeliveriesBody) -> [u8; HEADER_BYTES] {
    FrameHead { frame: FrameType::Msgs, flags: 0, ch, arg: n }.encode(body.bytes().len())
}

/// A JSON body as it is sent: `{}` is nothing.
fn text(body: Option<&str>) -> &[u8] {
    let body = body.expect("frames without JSON have a layout of their own");
    if body == "{}" { b"" } else { body.as_bytes() }
}

fn put(message: &mut BytesMut, head: FrameHead, body: &[u8]) {
    message.reserve(HEADER_BYTES + body.len());
    message.put_slice(&head.encode(body.len()));
    message.put_slice(body);
}

fn take(message: &mut Bytes) -> Result<Option<(FrameHead, Bytes)>, WsError> {
    let have = message.len();
    if have > WS_MESSAGE_BYTES_MAX {
        return Err(WsError::TooLarge(have));
    }
    let Some(head) = message.first_chunk::<HEADER_BYTES>() else {
        return if have == 0 { Ok(None) } else { Err(WsError::Truncated { have, want: HEADER_BYTES }) };
    };
    let (head, body_bytes) = FrameHead::decode(head)?;
    let want = HEADER_BYTES + body_bytes;
    if have < want {
        return Err(WsError::Truncated { have, want });
    }
    let mut frame = message.split_to(want);
    Ok(Some((head, frame.split_off(HEADER_BYTES))))
}

/// The JSON fields of a frame without a layout of its own.
fn fields<'a>(head: &FrameHead, body: &'a Bytes) -> Result<&'a str, WsError> {
    head.check_unused(0, false)?;
    if body.is_empty() {
        return Ok("{}");
    }
    std::str::from_utf8(body).map_err(|_| WsError::Body(head.frame))
}

fn write_limit(message: &mut BytesMut, head: FrameHead, limit: Limit) {
    message.put_slice(&head.encode(LIMIT_BYTES));
    put_limit(message, limit);
}

fn read_limit(head: &FrameHead, body: Bytes) -> Result<Limit, WsError> {
    head.check_unused(0, false)?;
    take_limit(body).ok_or(WsError::Body(head.frame))
}

fn read_confirm(head: &FrameHead, body: Bytes) -> Result<Confirm, WsError> {
    head.check_unused(FLAG_NOTHING_YET, head.flags != FLAG_NOTHING_YET)?;
    let upto = (head.flags != FLAG_NOTHING_YET).then_some(head.arg);
    take_confirm(upto, body).ok_or(WsError::Body(head.frame))
}
