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
    /// The batch may have reached a node.
    is_sent: bool,
    is_over: bool,
}

impl Ticket {
    /// A ticket whose confirms go to `answers`; the byte permits of what is under way bound that queue.
    pub(crate) fn new(answers: mpsc::UnboundedSender<Confirm>, number: u64) -> Self {
        Self { answers, number, is_sent: false, is_over: false }
    }

    /// From now on the outcome is unknown unless it is answered; `false`: it is certain again that no node has it.
    pub(super) fn set_sent(&mut self, is_sent: bool) {
        self.is_sent = is_sent;
    }

    /// A level was reached.
    pub(super) fn reached(&mut self, level: Level, placed: Placed, stages: Option<Stages>, trip: TripEnd) {
        self.answer(Confirm {
            ticket: self.number,
            level,
            result: Ok(placed),
            stages,
            round_trip: trip.round_trip,
            is_last: trip.is_last,
        });
    }

    /// It was refused, or failed.
    pub(super) fn failed(mut self, failure: Failure) {
        self.fail(failure);
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
            let outcome = if self.is_sent { Outcome::Unknown } else { Outcome::None };
            let code = if self.is_sent { ErrorCode::OutcomeUnknown } else { ErrorCode::Draining };
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
            ticket.set_sent(is_sent);
            drop(ticket);
            let confirm = answers.try_recv().unwrap();
            assert_eq!((confirm.ticket, confirm.is_last), (7, true));
            assert_eq!(confirm.result.unwrap_err().effect(), outcome);
            assert!(answers.try_recv().is_err());
        }
    }
}
