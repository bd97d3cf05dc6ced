//! The promise that a publish is answered.

use std::time::Duration;

use tokio::sync::mpsc;
use weir_protocol::error::{ErrorCode, Outcome};
use weir_protocol::rpc::{Level, Placed, Stages};

use super::failure::Failure;

/// What became of one batch: a level was reached, or it was refused.
#[derive(Debug)]
pub(crate) struct Confirm {
    /// Number of the ticket.
    pub(crate) ticket: u64,
    /// The level reached; [`Level::Unset`] with a failure.
    pub(crate) level: Level,
    /// Where the records are, or why not.
    pub(crate) result: Result<Placed, Failure>,
    /// Where the time went at the node.
    pub(crate) stages: Option<Stages>,
    /// From writing the frame to its answer.
    pub(crate) round_trip: Duration,
    /// Nothing follows for this ticket.
    pub(crate) is_last: bool,
}

/// Travels with a batch and is answered at every level asked for, at the latest when it is dropped.
#[derive(Debug)]
pub(crate) struct Ticket {
    answers: mpsc::UnboundedSender<Confirm>,
    number: u64,
    reach: Reach,
    is_over: bool,
}

/// Which nodes may have the batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// None.
    Nowhere,
    /// The one that it is on its way to.
    Sent,
    /// One that did not answer, or that had accepted it: whatever later attempts say, it may have taken effect.
    Somewhere,
}

impl Ticket {
    /// A ticket whose confirms go to `answers`; the byte permits of what is under way bound that queue.
    pub(crate) fn new(answers: mpsc::UnboundedSender<Confirm>, number: u64) -> Self {
        Self { answers, number, reach: Reach::Nowhere, is_over: false }
    }

    /// It is on its way: from now on the outcome is unknown unless it is answered.
    pub(super) fn sent(&mut self) {
        if self.reach == Reach::Nowhere {
            self.reach = Reach::Sent;
        }
    }

    /// The last attempt provably had no effect.
    pub(super) fn returned(&mut self) {
        if self.reach == Reach::Sent {
            self.reach = Reach::Nowhere;
        }
    }

    /// The last attempt was not answered.
    pub(super) fn lost(&mut self) {
        self.reach = Reach::Somewhere;
    }

    /// A level was reached.
    pub(super) fn reached(&mut self, level: Level, placed: Placed, stages: Option<Stages>, trip: TripEnd) {
        self.reach = Reach::Somewhere;
        self.answer(Confirm {
            ticket: self.number,
            level,
            result: Ok(placed),
            stages,
            round_trip: trip.round_trip,
            is_last: trip.is_last,
        });
    }

    /// It was refused, or failed. A failure without effect says so only if no earlier attempt may have had one.
    pub(super) fn failed(mut self, failure: Failure) {
        let is_unsure = self.reach == Reach::Somewhere && failure.effect() == Outcome::None;
        self.fail(if is_unsure { failure.with_outcome(Outcome::Unknown) } else { failure });
    }

    fn fail(&mut self, failure: Failure) {
        self.answer(Confirm {
            ticket: self.number,
            level: Level::Unset,
            result: Err(failure),
            stages: None,
            round_trip: Duration::ZERO,
            is_last: true,
        });
    }

    fn answer(&mut self, confirm: Confirm) {
        self.is_over |= confirm.is_last;
        // Who no longer waits does not want to know.
        let _ = self.answers.send(confirm);
    }
}

/// The end of a round trip.
#[derive(Debug, Clone, Copy)]
pub(super) struct TripEnd {
    pub(super) round_trip: Duration,
    pub(super) is_last: bool,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.is_over {
            let (code, outcome) = match self.reach {
                Reach::Nowhere => (ErrorCode::Draining, Outcome::None),
                Reach::Sent | Reach::Somewhere => (ErrorCode::OutcomeUnknown, Outcome::Unknown),
            };
            self.fail(Failure::new(code, "the gateway is stopping").with_outcome(outcome));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_ticket_answers_by_itself_and_knows_whether_it_was_sent() {
        for (is_sent, outcome) in [(false, Outcome::None), (true, Outcome::Unknown)] {
            let (sender, mut answers) = mpsc::unbounded_channel();
            let mut ticket = Ticket::new(sender, 7);
            if is_sent {
                ticket.sent();
            }
            drop(ticket);
            let confirm = answers.try_recv().unwrap();
            assert_eq!((confirm.ticket, confirm.is_last), (7, true));
            assert_eq!(confirm.result.unwrap_err().effect(), outcome);
            assert!(answers.try_recv().is_err());
        }
    }
}
