//! The retry policy: what an error means for the next attempt. Pure, and the only place that decides it.

use std::time::Duration;

use weir_protocol::error::{ErrorCode, Outcome};
use weir_protocol::ids::NodeId;
use weir_protocol::rpc::Refusal;
use weir_transport::{CallError, NotSent};

use super::failure::Failure;

/// Whether a call may be made twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Safety {
    /// Twice is the same as once: reads, and publishes that a producer triple or an idempotency key protects.
    Repeatable,
    /// It must not be made twice: an unknown outcome is answered as unknown.
    Once,
}

/// What comes before the next attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing: this node leads.
    Leader(NodeId),
    /// The cluster map and a pause.
    Refresh,
    /// A pause.
    Pause,
}

/// What an error means.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Verdict {
    /// Try again after this; the failure stands if there is no time left.
    Again(Step, Failure),
    /// That is the answer.
    Final(Failure),
}

/// Judges the error of a call.
pub(super) fn judge(error: CallError, safety: Safety) -> Verdict {
    match error {
        CallError::Refused(refusal) => judge_refusal(refusal),
        CallError::NotSent(NotSent::TooLarge(bytes)) => {
            Verdict::Final(Failure::new(ErrorCode::TooLarge, format!("{bytes} bytes do not fit a frame")))
        }
        CallError::NotSent(NotSent::Full) => {
            let busy = Failure::new(ErrorCode::Busy, "too much is in flight to the storage node");
            Verdict::Again(Step::Pause, busy.with_retry_after_ms(50))
        }
        CallError::NotSent(why) => Verdict::Again(Step::Refresh, unavailable(&why.to_string())),
        CallError::Unknown | CallError::Deadline => {
            let unknown = Failure::unknown(format!("the storage node did not answer: {error}"));
            match safety {
                Safety::Repeatable => Verdict::Again(Step::Refresh, unknown),
                Safety::Once => Verdict::Final(unknown),
            }
        }
    }
}

/// Judges a refusal, of a call or of one of its items.
pub(super) fn judge_refusal(refusal: Refusal) -> Verdict {
    let (code, effect, leader) = (refusal.error_code(), refusal.effect(), refusal.leader_node);
    let failure = Failure::from(refusal);
    if effect != Outcome::None {
        return Verdict::Final(failure);
    }
    match code {
        ErrorCode::NotLeader => match leader.filter(|node| *node != 0) {
            Some(node) => Verdict::Again(Step::Leader(NodeId(node)), failure),
            None => Verdict::Again(Step::Refresh, failure),
        },
        ErrorCode::ConfigBehind => Verdict::Again(Step::Pause, failure),
        // A draining or starting node: another one may lead soon.
        ErrorCode::Draining | ErrorCode::Unavailable => Verdict::Again(Step::Refresh, failure),
        _ => Verdict::Final(failure),
    }
}

/// Nobody was reached.
pub(super) fn unavailable(why: &str) -> Failure {
    Failure::new(ErrorCode::Unavailable, format!("no leader is reached: {why}")).with_retry_after_ms(500)
}

/// Growing pauses. `random` in [0, 1] spreads many gateways over the upper half of each pause.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pauses {
    next: Duration,
    max: Duration,
}

impl Pauses {
    pub(super) fn new(min: Duration, max: Duration) -> Self {
        Self { next: min, max }
    }

    /// How long to wait now.
    pub(super) fn take(&mut self, random: f64) -> Duration {
        let pause = self.next / 2 + (self.next / 2).mul_f64(random.clamp(0.0, 1.0));
        self.next = (self.next * 2).min(self.max);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(code: ErrorCode) -> CallError {
        CallError::Refused(Refusal::new(code, ""))
    }

    fn step(verdict: Verdict) -> Option<Step> {
        match verdict {
            Verdict::Again(step, _) => Some(step),
            Verdict::Final(_) => None,
        }
    }

    #[test]
    fn what_provably_had_no_effect_is_tried_again_and_an_unknown_outcome_only_where_that_is_safe() {
        assert_eq!(step(judge(NotSent::Ended.into(), Safety::Once)), Some(Step::Refresh));
        for unknown in [CallError::Unknown, CallError::Deadline] {
            assert_eq!(step(judge(unknown.clone(), Safety::Repeatable)), Some(Step::Refresh));
            let Verdict::Final(failure) = judge(unknown, Safety::Once) else { panic!("tried twice") };
            assert_eq!((failure.code(), failure.effect()), (ErrorCode::OutcomeUnknown, Outcome::Unknown));
        }
    }

    #[test]
    fn a_refusal_with_an_effect_or_a_verdict_is_never_tried_again() {
        let applied = Refusal::new(ErrorCode::NotLeader, "").with_outcome(Outcome::Unknown);
        assert_eq!(step(judge_refusal(applied)), None);
        for &code in ErrorCode::ALL {
            let again = step(judge(refused(code), Safety::Repeatable)).is_some();
            let expected = matches!(
                code,
                ErrorCode::NotLeader | ErrorCode::ConfigBehind | ErrorCode::Draining | ErrorCode::Unavailable
            );
            assert_eq!(again, expected, "{code:?}");
        }
    }

    #[test]
    fn a_known_leader_is_asked_at_once() {
        let refusal = Refusal { leader_node: Some(4), ..Refusal::new(ErrorCode::NotLeader, "") };
        assert_eq!(step(judge_refusal(refusal)), Some(Step::Leader(NodeId(4))));
        assert_eq!(step(judge(refused(ErrorCode::NotLeader), Safety::Once)), Some(Step::Refresh));
    }

    #[test]
    fn pauses_double_up_to_their_limit() {
        let mut pauses = Pauses::new(Duration::from_millis(10), Duration::from_millis(30));
        let taken: Vec<_> = (0..4).map(|_| pauses.take(1.0).as_millis()).collect();
        assert_eq!(taken, [10, 20, 30, 30]);
    }
}
