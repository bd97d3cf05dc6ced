//! Who is there: `Hello` and `Welcome`, before anything else is read.

use std::time::Duration;

use bytes::Bytes;
use prost::Message;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use weir_protocol::error::ErrorCode;
use weir_protocol::frame::{FLAG_END, FLAG_REFUSED, FrameHead, FrameKind};
use weir_protocol::ids::{ClusterId, NodeId};
use weir_protocol::rpc::{Hello, PROTOCOL_VERSION, Refusal, Welcome};

use crate::wire::{FrameReader, ReadError};

/// Largest body that is buffered of a peer that is not known yet, in bytes.
pub(crate) const EARLY_BODY_BYTES_MAX: usize = 4 * 1024;
/// Longest detail of a refused `Hello`, so that the refusal fits the other side's limit.
const DETAIL_BYTES_MAX: usize = 512;

/// Who this node is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// Its cluster; a peer that means another is refused.
    pub cluster_id: ClusterId,
    /// Itself.
    pub node_id: NodeId,
}

/// Why a connection did not come to be.
#[derive(Debug, thiserror::Error)]
pub enum HandshakeError {
    /// The peer refused; waiting does not change its mind.
    #[error("refused by the peer: {}", .0.detail)]
    Refused(Refusal),
    /// This side refused the peer, which was told.
    #[error("refused the peer: {}", .0.detail)]
    RefusedPeer(Refusal),
    /// Not done within the deadline.
    #[error("not done within {0:?}")]
    Deadline(Duration),
    /// Another frame, or not the expected message.
    #[error("{0}")]
    Unexpected(&'static str),
    /// The stream ended or carried no frames.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// Writing failed.
    #[error("writing failed")]
    Write(#[from] std::io::Error),
}

/// Says hello and waits for the welcome.
pub(crate) async fn introduce(
    reader: &mut FrameReader,
    writer: &mut (impl AsyncWrite + Unpin),
    hello: &Hello,
) -> Result<Welcome, HandshakeError> {
    write(writer, FrameKind::Hello, 0, hello).await?;
    let frame = reader.next().await?;
    if frame.head.kind != FrameKind::Welcome {
        return Err(HandshakeError::Unexpected("the answer to hello is not a welcome"));
    }
    if frame.head.flags & FLAG_REFUSED != 0 {
        let refusal = Refusal::decode(frame.body)
            .map_err(|_| HandshakeError::Unexpected("the refusal of hello cannot be decoded"))?;
        return Err(HandshakeError::Refused(refusal));
    }
    let welcome = Welcome::decode(frame.body)
        .map_err(|_| HandshakeError::Unexpected("the welcome cannot be decoded"))?;
    if welcome.version == 0 || welcome.version > hello.version {
        return Err(HandshakeError::Unexpected("the welcome names a version that was not offered"));
    }
    if let (Some(meant), Some(met)) = (hello.cluster_id, welcome.cluster_id)
        && meant != met
    {
        return Err(HandshakeError::Unexpected("the node belongs to another cluster"));
    }
    reader.lift_limit();
    Ok(welcome)
}

/// Waits for the hello and answers it.
pub(crate) async fn receive(
    reader: &mut FrameReader,
    writer: &mut (impl AsyncWrite + Unpin),
    identity: &Identity,
    credential: Option<&Bytes>,
) -> Result<(Hello, Welcome), HandshakeError> {
    let frame = reader.next().await?;
    if frame.head.kind != FrameKind::Hello {
        return Err(HandshakeError::Unexpected("the first frame is not a hello"));
    }
    let hello =
        Hello::decode(frame.body).map_err(|_| HandshakeError::Unexpected("the hello cannot be decoded"))?;
    match judge(&hello, identity, credential) {
        Ok(welcome) => {
            write(writer, FrameKind::Welcome, 0, &welcome).await?;
            reader.lift_limit();
            Ok((hello, welcome))
        }
        Err(refusal) => {
            refuse(writer, &refusal).await?;
            Err(HandshakeError::RefusedPeer(*refusal))
        }
    }
}

/// Tells a peer that it is not welcome.
pub(crate) async fn refuse(
    writer: &mut (impl AsyncWrite + Unpin),
    refusal: &Refusal,
) -> Result<(), HandshakeError> {
    debug_assert!(refusal.detail.len() <= DETAIL_BYTES_MAX, "details of refused hellos are short");
    write(writer, FrameKind::Welcome, FLAG_REFUSED | FLAG_END, refusal).await?;
    Ok(writer.shutdown().await?)
}

fn judge(hello: &Hello, identity: &Identity, credential: Option<&Bytes>) -> Result<Welcome, Box<Refusal>> {
    if let Some(expected) = credential {
        // Constant time: how long it takes says nothing about how much of a guess is right.
        aws_lc_rs::constant_time::verify_slices_are_equal(expected, &hello.credential)
            .map_err(|_| refusal(ErrorCode::Unauthorized, "the cluster credential does not match"))?;
    }
    if hello.version == 0 {
        return Err(refusal(ErrorCode::NotSupported, "protocol version 0 does not exist"));
    }
    if let Some(meant) = hello.cluster_id.map(|id| ClusterId(id.into()))
        && meant != identity.cluster_id
    {
        let detail = format!("this node belongs to cluster {}, not {meant}", identity.cluster_id);
        return Err(refusal(ErrorCode::ConfigMismatch, detail));
    }
    Ok(Welcome {
        version: hello.version.min(PROTOCOL_VERSION),
        cluster_id: Some(identity.cluster_id.0.into()),
        node_id: identity.node_id.0,
        // None are defined.
        features: 0,
    })
}

fn refusal(code: ErrorCode, detail: impl Into<String>) -> Box<Refusal> {
    Box::new(Refusal::new(code, detail))
}

async fn write(
    writer: &mut (impl AsyncWrite + Unpin),
    kind: FrameKind,
    flags: u8,
    message: &impl Message,
) -> std::io::Result<()> {
    let body = Bytes::from(message.encode_to_vec());
    let head = FrameHead { kind, flags, method: 0, shard: 0, call: 0 };
    let mut bytes = head.encode(std::slice::from_ref(&body)).to_vec();
    bytes.extend_from_slice(&body);
    writer.write_all(&bytes).await?;
    writer.flush().await
}
