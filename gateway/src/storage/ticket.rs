//! The promise that a publish is answered.

use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, mpsc};
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
    /// The batch's bytes of the gateway's budget. They are free before who waits hears the last of the batch: who
    /// sends the next one only then finds them free.
    permit: Option<OwnedSemaphorePermit>,
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
    /// A ticket whose confirms go to `answers`; the byte permits of what is under way bound that queue. `permit` is
    /// given back with the last of them.
    pub(crate) fn new(
        answers: mpsc::UnboundedSender<Confirm>,
        number: u64,
        permit: OwnedSemaphorePermit,
    ) -> Self {
        Self { answers, number, permit: Some(permit), reach: Reach::Nowhere, is_over: false }
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
        if self.is_over {
            drop(self.permit.take());
        }
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
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Wake, Waker};

    use tokio::sync::Semaphore;

    use super::*;

    fn permit(budget: &Arc<Semaphore>) -> OwnedSemaphorePermit {
        Arc::clone(budget).try_acquire_owned().unwrap()
    }

    #[test]
    fn a_dropped_ticket_answers_by_itself_and_knows_whether_it_was_sent() {
        for (is_sent, outcome) in [(false, Outcome::None), (true, Outcome::Unknown)] {
            let (sender, mut answers) = mpsc::unbounded_channel();
            let mut ticket = Ticket::new(sender, 7, permit(&Arc::new(Semaphore::new(1))));
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

    /// What is free of a budget when somebody is woken, who may be at work before the waker goes on.
    struct FreeWhenWoken {
        budget: Arc<Semaphore>,
        free: AtomicUsize,
    }

    impl Wake for FreeWhenWoken {
        fn wake(self: Arc<Self>) {
            self.free.store(self.budget.available_permits(), Ordering::Relaxed);
        }
    }

    #[test]
    fn whoever_hears_the_last_of_a_batch_finds_its_bytes_free() {
        let reached = |ticket: &mut Ticket, level, is_last| {
            ticket.reached(level, Placed::default(), None, TripEnd { round_trip: Duration::ZERO, is_last });
        };
        let ways: [(&dyn Fn(Ticket), usize); 4] = [
            (&|mut ticket| reached(&mut ticket, Level::Quorum, true), 1),
            (&|ticket| ticket.failed(Failure::new(ErrorCode::Busy, "as told")), 1),
            (&drop, 1),
            // Nothing is over at the first of two levels.
            (
                &|mut ticket| {
                    reached(&mut ticket, Level::Memory, false);
                    std::mem::forget(ticket);
                },
                0,
            ),
        ];
        for (way, (end, expected)) in ways.into_iter().enumerate() {
            let budget = Arc::new(Semaphore::new(1));
            let seen =
                Arc::new(FreeWhenWoken { budget: Arc::clone(&budget), free: AtomicUsize::new(usize::MAX) });
            let (sender, mut answers) = mpsc::unbounded_channel();
            let ticket = Ticket::new(sender, 7, permit(&budget));
            let waker = Waker::from(Arc::clone(&seen));
            assert!(answers.poll_recv(&mut Context::from_waker(&waker)).is_pending());
            end(ticket);
            assert_eq!(seen.free.load(Ordering::Relaxed), expected, "way {way}");
        }
    }
}
