//! Who waits for which answer. Pure: frames in, who to tell out.

use bytes::Bytes;
use slab::Slab;
use tokio::sync::oneshot;
use weir_protocol::rpc::Refusal;

use super::answers::AnswerSink;
use super::error::CallError;

/// Who waits for the answers of a call.
#[derive(Debug)]
pub(super) enum Waiter {
    /// For one.
    One(oneshot::Sender<Result<Bytes, CallError>>),
    /// For several.
    Many(AnswerSink),
}

/// What the connection does after an answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum After {
    /// Nothing.
    Nothing,
    /// Tells the peer to stop: nobody waits for the rest.
    Cancel,
    /// The same, and counts an overrun: the stream's buffer is full.
    CancelOverrun,
}

#[derive(Debug)]
struct Entry {
    generation: u32,
    waiter: Waiter,
}

/// The calls of one connection that are not over. A call's number is its place in the slab and, above it, a
/// generation, so that a late answer never reaches the next call in the same place.
#[derive(Debug)]
pub(super) struct Calls {
    entries: Slab<Entry>,
    generation: u32,
    is_closed: bool,
}

/// Why a call cannot start.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NoPlace {
    Full,
    Closed,
}

impl Calls {
    pub(super) fn new() -> Self {
        Self { entries: Slab::new(), generation: 0, is_closed: false }
    }

    /// Takes one of the first `max` places; returns the call's number.
    pub(super) fn insert(&mut self, waiter: Waiter, max: usize) -> Result<u64, NoPlace> {
        if self.is_closed {
            return Err(NoPlace::Closed);
        }
        if self.entries.len() >= max.min(u32::MAX as usize) {
            return Err(NoPlace::Full);
        }
        self.generation = self.generation.wrapping_add(1);
        let generation = self.generation;
        let place = self.entries.insert(Entry { generation, waiter });
        Ok(u64::from(generation) << 32 | place as u64)
    }

    /// Takes a call out; `None` if it is over.
    pub(super) fn remove(&mut self, call: u64) -> Option<Waiter> {
        let place = self.place(call)?;
        Some(self.entries.remove(place).waiter)
    }

    /// Finds the waiter of an answer. Out of the lock, give the answer to what is returned.
    pub(super) fn answered(&mut self, call: u64, is_last: bool) -> Option<Answered> {
        let place = self.place(call)?;
        // A call for one answer is over with the first.
        let is_over = is_last || matches!(self.entries[place].waiter, Waiter::One(_));
        if is_over {
            return Some(Answered::Over(self.entries.remove(place).waiter));
        }
        match &self.entries[place].waiter {
            Waiter::Many(sink) => Some(Answered::Going(sink.clone())),
            Waiter::One(_) => None,
        }
    }

    /// Takes every call out and refuses new ones.
    pub(super) fn close(&mut self) -> Vec<(u64, Waiter)> {
        self.is_closed = true;
        let numbered =
            |(place, entry): (usize, Entry)| (u64::from(entry.generation) << 32 | place as u64, entry.waiter);
        std::mem::take(&mut self.entries).into_iter().map(numbered).collect()
    }

    fn place(&self, call: u64) -> Option<usize> {
        let place = (call & u64::from(u32::MAX)) as usize;
        let entry = self.entries.get(place)?;
        (u64::from(entry.generation) == call >> 32).then_some(place)
    }
}

/// Whom an answer is for.
#[derive(Debug)]
pub(super) enum Answered {
    /// The call is over.
    Over(Waiter),
    /// More answers come.
    Going(AnswerSink),
}

impl Answered {
    /// Gives the answer to who waits.
    pub(super) fn deliver(self, answer: Result<Bytes, Refusal>, is_last: bool) -> After {
        let answer = answer.map_err(CallError::Refused);
        match self {
            Self::Over(Waiter::One(sender)) => {
                // Who no longer waits has told the peer itself.
                let _ = sender.send(answer);
                if is_last { After::Nothing } else { After::Cancel }
            }
            Self::Over(Waiter::Many(sink)) => {
                match answer {
                    Ok(body) if body.is_empty() => {}
                    answer => {
                        sink.push_last(answer);
                    }
                }
                After::Nothing
            }
            Self::Going(sink) => {
                if sink.push(answer) {
                    After::Nothing
                } else {
                    After::CancelOverrun
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one() -> (Waiter, oneshot::Receiver<Result<Bytes, CallError>>) {
        let (sender, receiver) = oneshot::channel();
        (Waiter::One(sender), receiver)
    }

    #[test]
    fn a_late_answer_does_not_reach_the_next_call_in_its_place() {
        let mut calls = Calls::new();
        let first = calls.insert(one().0, 8).unwrap();
        assert!(calls.remove(first).is_some());
        let second = calls.insert(one().0, 8).unwrap();
        assert_eq!(first as u32, second as u32, "the place is used again");
        assert!(calls.answered(first, true).is_none());
        assert!(calls.answered(second, true).is_some());
    }

    #[test]
    fn calls_beyond_the_limit_or_after_the_end_find_no_place() {
        let mut calls = Calls::new();
        let first = calls.insert(one().0, 1).unwrap();
        assert_eq!(calls.insert(one().0, 1), Err(NoPlace::Full));
        let second = calls.insert(one().0, 2).unwrap();
        assert_eq!(calls.insert(one().0, 1), Err(NoPlace::Full), "whatever kind of call has the places");
        let mut left: Vec<_> = calls.close().into_iter().map(|(call, _)| call).collect();
        left.sort_unstable();
        assert_eq!(left, [first, second]);
        assert_eq!(calls.insert(one().0, 2), Err(NoPlace::Closed));
    }

    #[test]
    fn a_call_for_one_answer_is_over_with_the_first_and_cancels_the_rest() {
        let mut calls = Calls::new();
        let (waiter, mut receiver) = one();
        let call = calls.insert(waiter, 8).unwrap();
        let answered = calls.answered(call, false).unwrap();
        assert_eq!(answered.deliver(Ok(Bytes::from_static(b"a")), false), After::Cancel);
        assert_eq!(&receiver.try_recv().unwrap().unwrap()[..], b"a");
        assert!(calls.answered(call, true).is_none());
    }
}
