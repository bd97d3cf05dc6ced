//! Why something was not done.

use std::fmt;

use weir_protocol::error::{ErrorCode, Outcome};
use weir_protocol::ids::PartitionId;
use weir_protocol::rpc::Refusal;

use crate::answers::Full;

/// A refusal, by a node or by this gateway, that becomes one problem body for the client. Cheap to move.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub struct Failure {
    refusal: Box<Refusal>,
    /// Partition that the refusal's numbers are of.
    pub partition: Option<PartitionId>,
    /// Parameter, header or field that is to blame.
    pub field: Option<&'static str>,
    /// The limit that was exceeded.
    pub limit: Option<u64>,
}

impl Failure {
    /// One that provably had no effect.
    #[must_use]
    pub fn new(code: ErrorCode, detail: impl Into<String>) -> Self {
        Refusal::new(code, detail).into()
    }

    /// A request that may or may not have taken effect.
    #[must_use]
    pub fn unknown(detail: impl Into<String>) -> Self {
        Self::new(ErrorCode::OutcomeUnknown, detail).with_outcome(Outcome::Unknown)
    }

    /// A node's answer that is not what the method promises.
    #[must_use]
    pub fn bad_answer(what: &str, outcome: Outcome) -> Self {
        Self::new(ErrorCode::Internal, format!("a storage node's answer makes no sense: {what}"))
            .with_outcome(outcome)
    }

    /// The same with another outcome.
    #[must_use]
    pub fn with_outcome(mut self, outcome: Outcome) -> Self {
        *self.refusal = std::mem::take(&mut *self.refusal).with_outcome(outcome);
        self
    }

    /// The same, about this partition.
    #[must_use]
    pub fn with_partition(mut self, partition: PartitionId) -> Self {
        self.partition = Some(partition);
        self
    }

    /// The same, naming what is to blame.
    #[must_use]
    pub fn with_field(mut self, field: &'static str) -> Self {
        self.field = Some(field);
        self
    }

    /// The same, naming the limit that was exceeded.
    #[must_use]
    pub fn with_limit(mut self, limit: u64) -> Self {
        self.limit = Some(limit);
        self
    }

    /// The same, naming when a retry makes sense, in milliseconds from now.
    #[must_use]
    pub fn with_retry_after_ms(mut self, retry_after_ms: u64) -> Self {
        self.refusal.retry_after_ms = Some(retry_after_ms);
        self
    }

    /// The stable code. Codes between rooms stand as [`ErrorCode::Unavailable`]: all that is left of them for a
    /// client is that the leader was not reached.
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match self.refusal.error_code() {
            ErrorCode::NotLeader | ErrorCode::ConfigBehind | ErrorCode::ConfigStale => ErrorCode::Unavailable,
            code => code,
        }
    }

    /// What a node said, unaltered: [`Failure::code`] hides codes between rooms.
    #[must_use]
    pub fn refusal(&self) -> &Refusal {
        &self.refusal
    }

    /// Whether it had an effect.
    #[must_use]
    pub fn effect(&self) -> Outcome {
        self.refusal.effect()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code().as_str(), self.refusal.detail)
    }
}

impl From<Full> for Failure {
    fn from(full: Full) -> Self {
        let detail = if full.is_own {
            "this connection, or its address, has too many unread bytes of answers: read them, or ask for less at a time"
        } else {
            "the gateway holds too many bytes of answers that clients have not read: try again later, or ask for less"
        };
        Self::new(ErrorCode::AnswersFull, detail).with_limit(full.limit)
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self { refusal: Box::new(refusal), partition: None, field: None, limit: None }
    }
}
