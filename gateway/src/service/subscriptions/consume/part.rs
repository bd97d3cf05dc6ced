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
    /// Absolute totals since the start.
    pub(super) granted: watch::Receiver<Credit>,
    base: Credit,
    told: Credit,
    stream: Option<Answers>,
    failed: Option<CallError>,
    attempts: Option<Attempts>,
}

impl Part {
    pub(super) fn new(
        storage: Storage,
        (shard, partition): (ShardId, PartitionId),
        request: ConsumeRequest,
        granted: watch::Receiver<Credit>,
    ) -> Self {
        Self {
            storage,
            shard,
            partition,
            request,
            granted,
            base: Credit::default(),
            told: Credit::default(),
            stream: None,
            failed: None,
            attempts: None,
        }
    }

    /// The next stream's totals count from here; it takes over what the last one left.
    pub(super) fn restart(&mut self, base: Credit) {
        self.base = base;
        self.request.takes_over = Some(self.request.holder.clone());
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
            let limit = self.limit();
            let Some(answers) = &mut self.stream else {
                self.open(limit).await?;
                continue;
            };
            if std::mem::replace(&mut self.told, limit) != limit {
                answers.grant(limit);
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

    fn limit(&mut self) -> Credit {
        let granted = *self.granted.borrow_and_update();
        Credit {
            records: granted.records.saturating_sub(self.base.records),
            bytes: granted.bytes.saturating_sub(self.base.bytes),
        }
    }

    async fn open(&mut self, limit: Credit) -> Result<(), ServiceError> {
        self.request.limit = limit;
        let segments = vec![Bytes::from(self.request.encode_to_vec())];
        match self.storage.stream(self.shard, Method::Consume, segments).await {
            Ok(answers) => {
                (self.stream, self.told) = (Some(answers), limit);
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
