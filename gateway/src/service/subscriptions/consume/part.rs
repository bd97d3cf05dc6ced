//! One partition's stream of leases, across changes of its leader.

use std::time::Duration;

use bytes::Bytes;
use prost::Message as _;
use tokio::sync::watch;
use tokio::time::Instant;
use weir_protocol::ids::{PartitionId, ShardId};
use weir_protocol::rpc::{ConsumeRequest, Credit, Method};
use weir_transport::{Answers, CallError};

use crate::service::ServiceError;
use crate::storage::{Attempts, Storage};

/// How long a consumer looks for a partition's new leader before it ends with an error.
const PATIENCE: Duration = Duration::from_secs(30);

/// What a partition may send, as absolute totals since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Granted {
    pub(super) limit: Credit,
    /// What the limit would be if the partition were granted all that the client's credit leaves.
    pub(super) reach: Credit,
}

/// What comes from a partition.
#[derive(Debug)]
pub(super) enum PartEvent {
    /// An answer; its totals count from `base`.
    Answer { body: Bytes, base: Credit },
    /// The stream is gone, and with it what was granted; the next one begins with [`Part::restart`].
    Lost,
}

/// Leases of one partition come and go with its streams; who holds them stays.
pub(super) struct Part {
    pub(super) storage: Storage,
    pub(super) shard: ShardId,
    pub(super) partition: PartitionId,
    /// As the first stream asks; its limit is filled in.
    pub(super) request: ConsumeRequest,
    pub(super) granted: watch::Receiver<Granted>,
    base: Credit,
    told: Granted,
    stream: Option<Answers>,
    failed: Option<CallError>,
    attempts: Option<Attempts>,
}

impl Part {
    pub(super) fn new(
        storage: Storage,
        (shard, partition): (ShardId, PartitionId),
        request: ConsumeRequest,
        granted: watch::Receiver<Granted>,
    ) -> Self {
        Self {
            storage,
            shard,
            partition,
            request,
            granted,
            base: Credit::default(),
            told: Granted::default(),
            stream: None,
            failed: None,
            attempts: None,
        }
    }

    /// The next stream's totals count from here; it takes over what the last one left.
    pub(super) fn restart(&mut self, base: Credit) {
        self.base = base;
        come_back(&mut self.request);
    }

    /// Its stream is over, and no other is looked for.
    pub(super) fn rest(&mut self) {
        (self.stream, self.failed, self.attempts) = (None, None, None);
    }

    /// What comes next.
    ///
    /// # Errors
    /// The consumer is over: refused, or no leader in time.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub(super) async fn next(&mut self) -> Result<PartEvent, ServiceError> {
        if let Some(error) = self.failed.take() {
            self.recover(error).await?;
        }
        loop {
            let granted = self.latest();
            let Some(answers) = &mut self.stream else {
                self.open(granted).await?;
                continue;
            };
            if std::mem::replace(&mut self.told, granted) != granted {
                answers.grant_towards(granted.limit, Some(granted.reach));
            }
            let answer = tokio::select! {
                // Grants first: they let the node send while what came is handled.
                biased;
                Ok(()) = self.granted.changed() => continue,
                answer = answers.next() => answer,
            };
            return Ok(match answer {
                Some(Ok(body)) => {
                    self.attempts = None;
                    PartEvent::Answer { body, base: self.base }
                }
                error => {
                    self.stream = None;
                    // A node that ends a stream without a reason is going away.
                    self.failed = Some(error.map_or(CallError::Unknown, |error| match error {
                        Err(error) => error,
                        Ok(_) => CallError::Unknown,
                    }));
                    PartEvent::Lost
                }
            });
        }
    }

    fn latest(&mut self) -> Granted {
        let Granted { limit, reach } = *self.granted.borrow_and_update();
        let from_base = |credit: Credit| Credit {
            records: credit.records.saturating_sub(self.base.records),
            bytes: credit.bytes.saturating_sub(self.base.bytes),
        };
        Granted { limit: from_base(limit), reach: from_base(reach) }
    }

    async fn open(&mut self, granted: Granted) -> Result<(), ServiceError> {
        (self.request.limit, self.request.reach) = (granted.limit, Some(granted.reach));
        let segments = vec![Bytes::from(self.request.encode_to_vec())];
        match self.storage.stream(self.shard, Method::Consume, segments).await {
            Ok(answers) => {
                (self.stream, self.told) = (Some(answers), granted);
                Ok(())
            }
            Err(error) => self.recover(error).await,
        }
    }

    /// Does what the retry policy says; then a new stream may be opened.
    async fn recover(&mut self, error: CallError) -> Result<(), ServiceError> {
        let storage = self.storage.clone();
        let attempts = self.attempts.get_or_insert_with(|| storage.attempts(Instant::now() + PATIENCE));
        let recovered = storage.recover(self.shard, error, attempts).await;
        recovered.map_err(|failure| failure.with_partition(self.partition))
    }
}

/// The next call of a consumer takes over what the one before left, and what that one was to take over: it may not
/// have got so far.
fn come_back(request: &mut ConsumeRequest) {
    let own = request.holder.clone();
    request.takes_over.get_or_insert(own);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_comes_back_takes_over_its_own_and_what_it_was_to_take_over() {
        let mut request = ConsumeRequest { holder: "tab (new/1/0)".into(), ..ConsumeRequest::default() };
        come_back(&mut request);
        assert_eq!(request.takes_over.as_deref(), Some("tab (new/1/0)"));
        // The node takes over what is its own besides.
        request.takes_over = Some("tab (old/1/".into());
        come_back(&mut request);
        assert_eq!(request.takes_over.as_deref(), Some("tab (old/1/"));
    }
}
