//! Reads what a call asks for.

use bytes::Bytes;
use prost::Message;
use weir_protocol::error::ErrorCode;
use weir_protocol::rpc::Refusal;

/// Reads a request's message.
pub(super) fn decode<M: Message + Default>(body: Bytes) -> Result<M, Refusal> {
    M::decode(body).map_err(|error| Refusal::new(ErrorCode::Malformed, error.to_string()))
}
