//! Whatever is answered as a whole, counted until it is taken.

use std::sync::Arc;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures_util::FutureExt as _;
use http::{Method, Version};
use http_body_util::BodyExt as _;
use hyper::body::Body as _;

use super::call::Call;
use super::pieces::WholeBody;
use crate::answers::Client;
use crate::api::Problem;
use crate::api::operations::Verb;
use crate::service::ServiceError;

/// Answers up to this are not counted in HTTP/1, where a connection has one of them at a time.
const SMALL_BYTES: u64 = 8 << 10;
/// Room that there must be before storage is asked for what may be longer than that: a list, say.
const ROOM_BYTES: u64 = 64 << 10;

/// A request, as far as it matters to how its answer is held.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked {
    /// It changes nothing: its answer may be refused when it is there.
    is_safe: bool,
    /// Of many at a time on one connection.
    is_multiplexed: bool,
}

/// Of an answer whose body is counted already.
#[derive(Debug, Clone, Copy)]
pub(super) struct IsCounted;

impl Asked {
    pub(super) fn new(method: &Method, version: Version) -> Self {
        Self {
            is_safe: matches!(*method, Method::GET | Method::HEAD),
            is_multiplexed: version >= Version::HTTP_2,
        }
    }

    /// Refuses a request while its connection, or all together, have not taken what was answered before.
    pub(super) fn check(self, client: &Client) -> Result<(), Problem> {
        if self.is_multiplexed { Ok(client.check(SMALL_BYTES).map_err(ServiceError::from)?) } else { Ok(()) }
    }

    /// The answer, whose room is held until it was taken.
    ///
    /// # Errors
    /// `answers_full`, of what changes nothing.
    pub(super) fn kept(self, client: &Arc<Client>, response: Response) -> Result<Response, Problem> {
        let least = if self.is_multiplexed { 1 } else { SMALL_BYTES + 1 };
        let len = response.body().size_hint().exact().unwrap_or(0);
        if len < least || response.extensions().get::<IsCounted>().is_some() {
            return Ok(response);
        }
        let room = if self.is_safe && len > SMALL_BYTES {
            client.hold(len).map_err(ServiceError::from)?
        } else {
            client.hold_anyway(len)
        };
        Ok(response.map(|body| Body::new(WholeBody::new(whole(body), room))))
    }
}

/// Room before storage is asked, of a request that changes nothing. What waits for messages holds its own.
///
/// # Errors
/// `answers_full`.
pub(super) async fn check_room(call: &Call) -> Result<(), Problem> {
    let id = call.route.operation.id;
    if call.route.operation.verb != Verb::Get || matches!(id, "readMessages" | "followEvents") {
        return Ok(());
    }
    let room = call.client.hold_soon(ROOM_BYTES).await.map_err(ServiceError::from)?;
    drop(room);
    Ok(())
}

/// The bytes of a body that is there.
fn whole(body: Body) -> Bytes {
    let collected = body.collect().now_or_never().and_then(Result::ok);
    collected.map(http_body_util::Collected::to_bytes).unwrap_or_default()
}
