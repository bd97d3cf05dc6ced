//! Confirms of a channel that wants to know what is archived.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join_all;
use tokio::sync::{OnceCell, mpsc};
use tokio::time::{Instant, sleep};
use weir_protocol::error::ErrorCode;
use weir_protocol::ids::{Offset, PartitionId};
use weir_protocol::rpc::Level;

use super::archivist::{Archivist, Ended, last_of};
use super::published::is_old_duplicate;
use crate::service::ServiceError;
use crate::storage::{Confirm, Topic};

/// When storage did not answer, it is asked again after this.
const PAUSE: Duration = Duration::from_secs(1);

/// What was accepted before a channel was opened. Its numbers go on behind that, and `upto` speaks of it too:
/// nothing is told to be archived before that is.
#[derive(Debug)]
pub(super) struct Before {
    archived: OnceCell<()>,
}

impl Before {
    /// `is_any`: something had been accepted.
    pub(super) fn new(is_any: bool) -> Self {
        Self { archived: OnceCell::new_with((!is_any).then_some(())) }
    }

    /// Waits until it is archived: all that the partitions hold by now, since where its numbers went is not
    /// known of all.
    async fn wait(&self, archivist: &Archivist, topic: &Topic) -> Result<(), ServiceError> {
        let all = || try_join_all(topic.partition_ids().map(|at| archivist.wait_for_all(topic, at)));
        self.archived.get_or_try_init(|| async { all().await.map(|_| ()) }).await.copied()
    }
}

/// Passes on the confirms of a batch, and one more when it is archived.
pub(super) struct Archiving {
    pub(super) archivist: Archivist,
    pub(super) topic: Arc<Topic>,
    pub(super) partition: PartitionId,
    pub(super) before: Arc<Before>,
    pub(super) answers: mpsc::UnboundedSender<Confirm>,
}

impl Archiving {
    pub(super) async fn run(self, mut confirms: mpsc::UnboundedReceiver<Confirm>) {
        while let Some(confirm) = confirms.recv().await {
            let is_old = confirm.result.as_ref().is_err_and(is_old_duplicate);
            if !(confirm.is_last && (is_old || confirm.level == Level::Quorum)) {
                // Who no longer waits does not want to know.
                let _ = self.answers.send(confirm);
                continue;
            }
            let (result, committed_after) = (confirm.result.clone(), confirm.round_trip);
            let (ticket, stages) = (confirm.ticket, confirm.stages);
            let _ = self.answers.send(Confirm { is_last: false, ..confirm });
            let began = Instant::now();
            let level = tokio::select! {
                level = self.wait(result.as_ref().ok().map(last_of)) => level,
                () = self.answers.closed() => return,
            };
            let round_trip = committed_after + began.elapsed();
            let _ = self.answers.send(Confirm { ticket, level, result, stages, round_trip, is_last: true });
        }
    }

    /// Until it is archived; [`Level::None`] if there is nothing to be archived any more, [`Level::Unset`] if
    /// nobody will know.
    async fn wait(&self, last: Option<Offset>) -> Level {
        loop {
            match self.ended(last).await {
                Ok(Ended::Archived) => return Level::Archived,
                Ok(Ended::Gone) => return Level::None,
                Err(failure) if failure.code() == ErrorCode::IncarnationGone => return Level::None,
                Err(failure) if failure.code().retryable() => sleep(PAUSE).await,
                Err(_) => return Level::Unset,
            }
        }
    }

    async fn ended(&self, last: Option<Offset>) -> Result<Ended, ServiceError> {
        self.before.wait(&self.archivist, &self.topic).await?;
        let Some(last) = last else {
            // A repeat of long ago, wherever it is.
            self.archivist.wait_for_all(&self.topic, self.partition).await?;
            return Ok(Ended::Archived);
        };
        let ended = self.archivist.wait(&self.topic, self.partition, last, None).await?;
        Ok(ended.expect("waited for without a limit"))
    }
}

#[cfg(test)]
mod tests;
