//! A refusal between rooms.

use super::Grant;
use crate::error::{ErrorCode, Outcome};

/// Why a call or one of its items was refused, with the numbers that let the client go on.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Refusal {
    /// [`ErrorCode`] as its number.
    #[prost(uint32, tag = "1")]
    pub code: u32,
    /// For people: which topic, offset, limit.
    #[prost(string, tag = "2")]
    pub detail: String,
    /// [`Outcome`]: 0 none, 1 applied, 2 unknown.
    #[prost(uint32, tag = "3")]
    pub outcome: u32,
    /// When a retry makes sense, in milliseconds from now.
    #[prost(uint64, optional, tag = "4")]
    pub retry_after_ms: Option<u64>,
    /// Current end of the partition (`beyond_tail`, `tail_mismatch`).
    #[prost(uint64, optional, tag = "5")]
    pub tail: Option<u64>,
    /// Earliest offset that still exists (`offset_trimmed`).
    #[prost(uint64, optional, tag = "6")]
    pub earliest: Option<u64>,
    /// Sequence number the producer was expected to send (`producer_gap`).
    #[prost(uint64, optional, tag = "7")]
    pub expected_seq: Option<u64>,
    /// Highest sequence number accepted (`seq_overlap`, `seq_too_old`).
    #[prost(uint64, optional, tag = "8")]
    pub last_seq: Option<u64>,
    /// The producer's current epoch (`stale_epoch`).
    #[prost(uint32, optional, tag = "9")]
    pub epoch: Option<u32>,
    /// Who leads, if known (`not_leader`).
    #[prost(uint64, optional, tag = "10")]
    pub leader_node: Option<u64>,
    /// Current incarnation (`incarnation_gone`), or which topic of the call it is (`config_stale`, `config_behind`).
    #[prost(uint64, optional, tag = "11")]
    pub incarnation: Option<u64>,
    /// Current configuration version (`version_mismatch`, `config_stale`).
    #[prost(uint32, optional, tag = "12")]
    pub config_version: Option<u32>,
    /// The delivery that took a lost lease's place (`lease_lost`).
    #[prost(message, optional, tag = "13")]
    pub lease: Option<Grant>,
}

impl Refusal {
    /// A refusal that provably had no effect.
    #[must_use]
    pub fn new(code: ErrorCode, detail: impl Into<String>) -> Self {
        Self { code: code as u32, detail: detail.into(), ..Self::default() }
    }

    /// The same with another outcome.
    #[must_use]
    pub fn with_outcome(mut self, outcome: Outcome) -> Self {
        self.outcome = match outcome {
            Outcome::None => 0,
            Outcome::Applied => 1,
            Outcome::Unknown => 2,
        };
        self
    }

    /// The code; [`ErrorCode::Internal`] for one this build does not know.
    #[must_use]
    pub fn error_code(&self) -> ErrorCode {
        u16::try_from(self.code).ok().and_then(ErrorCode::from_number).unwrap_or(ErrorCode::Internal)
    }

    /// Whether it had an effect; an unknown number counts as unknown.
    #[must_use]
    pub fn effect(&self) -> Outcome {
        match self.outcome {
            0 => Outcome::None,
            1 => Outcome::Applied,
            _ => Outcome::Unknown,
        }
    }
}
