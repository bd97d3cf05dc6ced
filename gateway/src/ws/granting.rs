//! The credit of one channel that publishes: a window that follows what it sends and what all together may have under
//! way. Pure but for the counters of the [`Pool`](super::pool::Pool).

use std::time::Duration;

use tokio::time::Instant;

use super::amount::Amount;
use super::pool::Share;

/// A window is measured by what was sent within this, which is the way to any client and back: a shorter one would hold
/// up those who are far away, a longer one would let who has sent much keep it.
pub(super) const ROUND: Duration = Duration::from_millis(250);
/// A window that is halved because storage was busy gets this part of the largest back each round.
const RECOVERED_PART: u64 = 16;

/// ```text
///   done ≤ sent ≤ limit                          in messages; in bytes the last record may overshoot
///   window_min ≤ window ≤ allowed ≤ window_max   allowed: halved when storage is busy, grows again
///   agreed = ¾ window_min                        told when the channel is opened, never changed
///   done + ¾ window ≤ limit                      at the end of each turn, in messages and bytes
///   limit only rises
/// ```
/// Why nobody waits for ever: a window shrinks by granting less than was confirmed, so `limit` may be beyond
/// `done + window` and never more than a quarter below it. When all that is under way has been answered, `sent = done`,
/// so there is credit for `limit - sent ≥ ¾ window ≥ ¾ window_min = agreed`: whoever sends batches of at most what was
/// agreed may send the next one. That everything under way is answered is the promise of tickets.
#[derive(Debug)]
pub(super) struct Granting {
    share: Share,
    /// No window has more messages.
    msgs_max: u64,
    /// In bytes; messages follow from it.
    window: u64,
    allowed: u64,
    sent: Amount,
    done: Amount,
    limit: Amount,
    round: Round,
    /// Storage refused something for want of room since the last turn.
    was_busy: bool,
    /// `sent` when the window was halved for that: what was under way by then says nothing new.
    halved_at: Option<u64>,
}

/// Since when it is measured what the channel sends, and what was sent and answered by then.
#[derive(Debug, Clone, Copy)]
struct Round {
    began: Instant,
    sent: Amount,
    done: Amount,
}

impl Granting {
    /// With credit for what is agreed. No window has more than `msgs_max` messages.
    pub(super) fn new(now: Instant, share: Share, msgs_max: u64) -> Self {
        let (window, allowed) = (share.window_min(), share.window_max());
        let mut granting = Self {
            share,
            msgs_max,
            window,
            allowed,
            sent: Amount::default(),
            done: Amount::default(),
            limit: Amount::default(),
            round: Round { began: now, sent: Amount::default(), done: Amount::default() },
            was_busy: false,
            halved_at: None,
        };
        granting.limit = granting.agreed();
        granting
    }

    /// What may be sent together at any time, once what was sent before is answered.
    fn agreed(&self) -> Amount {
        let least = self.amount(self.share.window_min());
        Amount { msgs: least.msgs - least.msgs.div_ceil(4), bytes: least.bytes - least.bytes.div_ceil(4) }
    }

    pub(super) fn limit(&self) -> Amount {
        self.limit
    }

    /// Counts records that the client sent, of which the last has `last_bytes`, which matters only if they do not fit.
    /// False: it had no credit for them.
    pub(super) fn spend(&mut self, amount: Amount, last_bytes: u64) -> bool {
        let fits = self.fits(amount);
        let before_last = Amount { msgs: amount.msgs - 1, bytes: amount.bytes - last_bytes };
        let reached = self.sent.plus(before_last);
        self.sent = self.sent.plus(amount);
        fits || (reached.msgs < self.limit.msgs && reached.bytes < self.limit.bytes)
    }

    /// True if `amount` fits the limit without overshoot: then nobody needs to know how long its last record is.
    pub(super) fn fits(&self, amount: Amount) -> bool {
        let after = self.sent.plus(amount);
        after.msgs <= self.limit.msgs && after.bytes <= self.limit.bytes
    }

    /// What was sent has been answered: its room is free again.
    pub(super) fn finished(&mut self, amount: Amount) {
        self.done = self.done.plus(amount);
        assert!(
            self.done.msgs <= self.sent.msgs && self.done.bytes <= self.sent.bytes,
            "more is done than was sent: {:?} of {:?}",
            self.done,
            self.sent
        );
    }

    /// Something was refused because storage, or the way to it, has no room.
    pub(super) fn busy(&mut self) {
        self.was_busy = true;
    }

    /// The end of a turn: the raised limit, once it is worth a frame.
    pub(super) fn take_limit(&mut self, now: Instant) -> Option<Amount> {
        self.measure(now);
        let window = self.amount(self.window);
        let raised = self.done.plus(window).max(self.limit);
        let more = raised.less(self.limit);
        let is_worth_it = more.msgs > window.msgs.div_ceil(4) || more.bytes > window.bytes.div_ceil(4);
        // Whoever has spent it all waits for this, however little it is.
        let is_awaited = (more.msgs > 0 && self.sent.msgs >= self.limit.msgs)
            || (more.bytes > 0 && self.sent.bytes >= self.limit.bytes);
        if is_worth_it || is_awaited {
            self.limit = raised;
        }
        self.check();
        (is_worth_it || is_awaited).then_some(raised)
    }

    /// Between turns, when a round may be over. True if the channel need not be looked at until something comes or is
    /// answered: it rests, or it only waits.
    ///
    /// It rests when nothing is under way and nothing came for a round. What it was granted stays granted,
    /// but others may have as much; it begins anew when it sends again. It only waits when for a round
    /// nothing came and nothing was answered, its window no longer shrinks, and what was taken for a busy
    /// storage is given back: another look would find nothing to do. What it may have under way stays
    /// counted.
    pub(super) fn rest(&mut self, now: Instant) -> bool {
        if now < self.round.began + ROUND {
            return false;
        }
        let nothing_came = self.sent == self.round.sent;
        if nothing_came && self.sent == self.done {
            (self.window, self.allowed) = (self.share.window_min(), self.share.window_max());
            self.share.rest();
            return true;
        }
        let nothing_happened = nothing_came && self.done == self.round.done;
        let window = self.window;
        self.measure(now);
        nothing_happened && self.window >= window && self.allowed == self.share.window_max()
    }

    /// Finds the window: twice as large where more than half of it is used, half as large where hardly any of it is.
    fn measure(&mut self, now: Instant) {
        let (least, most) = (self.share.window_min(), self.share.window_max());
        let is_over = now >= self.round.began + ROUND;
        if is_over {
            self.allowed = (self.allowed + most / RECOVERED_PART).min(most);
        }
        // Once for all that was under way together.
        if std::mem::take(&mut self.was_busy) && self.halved_at.is_none_or(|at| self.done.bytes > at) {
            self.allowed = (self.window / 2).max(least);
            self.halved_at = Some(self.sent.bytes);
            self.share.halved();
        }
        let under_way = self.bytes_of(self.sent.less(self.done));
        let used = self.bytes_of(self.sent.less(self.round.sent)).max(under_way);
        let wanted = match used {
            _ if used > self.window / 2 => self.window * 2,
            _ if is_over && used < self.window / 8 => self.window / 2,
            _ => self.window,
        };
        let owed = self.bytes_of(self.limit.max(self.sent).less(self.done));
        let window = self.share.take(wanted.max(least).min(self.allowed), owed);
        if is_over || window > self.window {
            self.round = Round { began: now, sent: self.sent, done: self.done };
        }
        self.window = window;
    }

    /// A window of so many bytes.
    fn amount(&self, bytes: u64) -> Amount {
        Amount { msgs: (bytes / self.share.bytes_per_msg()).min(self.msgs_max), bytes }
    }

    /// How large a window holds that.
    fn bytes_of(&self, amount: Amount) -> u64 {
        amount.bytes.max(amount.msgs.saturating_mul(self.share.bytes_per_msg()))
    }

    /// Holds at the end of each turn.
    fn check(&self) {
        let (least, agreed, left) = (self.share.window_min(), self.agreed(), self.limit.less(self.done));
        debug_assert!(least <= self.window, "the window is {} of at least {least}", self.window);
        debug_assert!(left.max(agreed) == left, "{agreed:?} are agreed, and {left:?} granted");
        debug_assert!(self.bytes_of(left) <= self.share.counted(), "{left:?} are granted, and not counted");
    }
}

#[cfg(test)]
mod tests;
