//! Request bodies in memory: each within its limit, all of them within one budget.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use weir_protocol::error::ErrorCode;

use crate::api::Problem;

/// Whoever finds no room may come back after this.
const RETRY_AFTER_MS: u64 = 500;

/// Bytes of bodies that may be held at once, over all connections.
#[derive(Debug, Clone)]
pub(crate) struct BodyBudget {
    bytes: Arc<Semaphore>,
    max: usize,
    /// A body must have arrived within this.
    time_max: Duration,
}

/// A body and its place in the budget.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) bytes: Bytes,
    /// Given back when the request is over.
    pub(super) permit: Option<OwnedSemaphorePermit>,
}

impl BodyBudget {
    pub(crate) fn new(max: usize, time_max: Duration) -> Self {
        let max = max.min(Semaphore::MAX_PERMITS);
        Self { bytes: Arc::new(Semaphore::new(max)), max, time_max }
    }

    /// Bytes held now.
    pub(crate) fn held(&self) -> u64 {
        self.max.saturating_sub(self.bytes.available_permits()) as u64
    }

    /// Most bytes held.
    pub(crate) fn max(&self) -> u64 {
        self.max as u64
    }

    /// Reads a body of at most `limit` bytes. Room is taken for what has arrived, not for what was announced.
    ///
    /// # Errors
    /// `too_large`, `busy` while others hold the budget, `malformed` if it breaks off, `request_timeout`.
    pub(super) async fn read(&self, body: Body, limit: usize) -> Result<Held, Problem> {
        let read = tokio::time::timeout(self.time_max, self.collect(body, limit)).await;
        read.unwrap_or_else(|_| {
            Err(Problem::new(ErrorCode::RequestTimeout, "the body did not arrive in time"))
        })
    }

    async fn collect(&self, mut body: Body, limit: usize) -> Result<Held, Problem> {
        let (mut first, mut rest) = (Bytes::new(), BytesMut::new());
        let mut permit: Option<OwnedSemaphorePermit> = None;
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| {
                Problem::new(ErrorCode::Malformed, format!("the body broke off: {error}"))
            })?;
            let Ok(data) = frame.into_data() else { continue };
            if first.len() + rest.len() + data.len() > limit {
                return Err(too_large(limit));
            }
            let more = self.take(data.len())?;
            match &mut permit {
                Some(permit) => permit.merge(more),
                none => *none = Some(more),
            }
            // One frame, as of a small body, is kept as it came.
            if rest.is_empty() && first.is_empty() {
                first = data;
            } else {
                rest.extend_from_slice(&std::mem::take(&mut first));
                rest.extend_from_slice(&data);
            }
        }
        Ok(Held { bytes: if rest.is_empty() { first } else { rest.freeze() }, permit })
    }

    /// Takes room until the permit is dropped.
    ///
    /// # Errors
    /// `busy`.
    pub(super) fn take(&self, bytes: usize) -> Result<OwnedSemaphorePermit, Problem> {
        let busy = || {
            Problem::new(ErrorCode::Busy, "too many bytes of other requests are being read")
                .with_limit(self.max as u64)
                .with_retry_after_ms(RETRY_AFTER_MS)
        };
        let wanted = u32::try_from(bytes).map_err(|_| busy())?;
        Arc::clone(&self.bytes).try_acquire_many_owned(wanted).map_err(|_| busy())
    }
}

pub(super) fn too_large(limit: usize) -> Problem {
    Problem::new(ErrorCode::TooLarge, format!("the body exceeds {limit} bytes")).with_limit(limit as u64)
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt as _;
    use futures_util::stream;

    use super::*;

    const SOON: Duration = Duration::from_secs(30);

    fn body(parts: &[&'static str]) -> Body {
        Body::from_stream(stream::iter(parts.to_vec()).map(Ok::<_, std::convert::Infallible>))
    }

    #[tokio::test]
    async fn a_body_comes_whole_and_its_room_is_given_back_with_it() {
        let budget = BodyBudget::new(10, SOON);
        for (parts, whole) in [(&[][..], ""), (&["abc"], "abc"), (&["ab", "", "cd", "e"], "abcde")] {
            let held = budget.read(body(parts), 10).await.unwrap();
            assert_eq!(&held.bytes[..], whole.as_bytes());
            assert_eq!(budget.held(), whole.len() as u64);
        }
        assert_eq!(budget.held(), 0);
    }

    #[tokio::test]
    async fn what_finds_no_room_is_refused_and_keeps_none() {
        let budget = BodyBudget::new(10, SOON);
        let held = budget.read(body(&["12345678"]), 10).await.unwrap();
        let refused = budget.read(body(&["ab", "cd"]), 10).await.unwrap_err();
        assert!(refused.is(ErrorCode::Busy) && refused.retryable);
        assert_eq!(budget.held(), 8);
        drop(held);
        assert!(budget.read(body(&["ab", "cd"]), 10).await.is_ok());
        assert!(budget.read(body(&["ab", "cd"]), 3).await.unwrap_err().is(ErrorCode::TooLarge));
        assert_eq!(budget.held(), 0);
    }
}
