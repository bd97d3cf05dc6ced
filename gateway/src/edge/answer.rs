//! Answers with a body, and without.

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, IF_NONE_MATCH};
use http::{HeaderMap, HeaderValue, StatusCode};
use serde::Serialize;
use weir_protocol::error::ErrorCode;

use crate::api::Problem;

/// An answer without a body.
pub(super) fn empty(status: StatusCode) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

/// An answer of a media type.
pub(super) fn with_type(media: &'static str, body: Bytes) -> Response {
    let mut response = Response::new(Body::from(body));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media));
    response
}

/// A JSON answer.
pub(super) fn json(status: StatusCode, value: &impl Serialize) -> Result<Response, Problem> {
    let body =
        serde_json::to_vec(value).map_err(|error| Problem::new(ErrorCode::Internal, error.to_string()))?;
    let mut response = with_type("application/json", body.into());
    *response.status_mut() = status;
    Ok(response)
}

/// Whether the client has what the tag names. Compared weakly, as `If-None-Match` asks for; `*` has anything.
pub(super) fn is_known(asked: &HeaderMap, tag: &str) -> bool {
    let lists = asked.get_all(IF_NONE_MATCH).iter().filter_map(|list| list.to_str().ok());
    // Tags with commas are compared whole, so a tag is looked for in the list rather than the list divided.
    lists.map(str::trim).any(|list| list == "*" || list.contains(tag))
}
