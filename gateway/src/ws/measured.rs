//! What the benches measure of this room: credit, and frames as WebSocket messages.

use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio::time::Instant;
use weir_protocol::rpc::{Level, Placed};
use weir_protocol::ws::{Channel, Limit, StageMicros};

use super::amount::Amount;
use super::following::Following;
use super::granting::Granting;
use super::output::{Form, Outgoing, Output};
use super::pool::{Pool, Sizes};
use super::publishing::{Found, Publishing, Reached};
use crate::service::read::{Parcel, RecordSlice};

/// A channel that publishes.
#[derive(Debug)]
pub struct PublishCredit {
    channel: Publishing,
    now: Instant,
    next: u64,
}

impl PublishCredit {
    /// With a window of `msgs` messages of a KiB.
    #[must_use]
    pub fn new(msgs: u64) -> Self {
        let (now, window) = (Instant::now(), msgs << 10);
        let sizes = Sizes {
            pool_max: 4 * window,
            promised_max: 4 * window,
            window_min: window..=window,
            window_max: window,
            bytes_per_msg: 1 << 10,
        };
        let budget = (Arc::new(Semaphore::new(0)), 0);
        let granting = Granting::new(now, Pool::with_sizes(sizes, budget).open(), msgs);
        let found = Found {
            last_seq: None,
            highest: None,
            incarnation: 1,
            partitions: 1,
            levels: Level::Quorum.bit(),
            has_producer: true,
        };
        Self { channel: Publishing::new(found, granting), now, next: 0 }
    }

    /// A batch of `count` messages comes, is stored and confirmed; the frames that tell so.
    ///
    /// # Panics
    /// If there was no room for it.
    pub fn batch(&mut self, count: u32) -> usize {
        let (channel, msgs) = (&mut self.channel, u64::from(count));
        let amount = Amount { msgs, bytes: msgs << 10 };
        let credit = &mut channel.granting;
        assert!(credit.fits(amount) && credit.spend(amount, 1 << 10), "the window is larger than a batch");
        channel.take_seq(self.next, msgs).expect("numbers follow each other");
        let placed = Placed { base_offset: self.next, is_final: true, ..Placed::default() };
        let reached = Reached { level: Level::Quorum, partition: 0, placed, us: StageMicros::default() };
        channel.reached(self.next, std::slice::from_ref(&(0..count)), reached);
        channel.granting.finished(amount);
        self.next += msgs;
        channel.take_confirms().count() + usize::from(channel.granting.take_limit(self.now).is_some())
    }
}

/// A channel that follows.
#[derive(Debug)]
pub struct FollowCredit {
    channel: Following,
    limit: Limit,
}

impl FollowCredit {
    /// With credit for `msgs` messages of a KiB.
    #[must_use]
    pub fn new(msgs: u64) -> Self {
        let limit = Limit { msgs, bytes: msgs << 10 };
        Self { channel: Following::new(limit, None, None), limit }
    }

    /// A batch of `count` messages is delivered and the client raises its limit by as many; the first's number.
    ///
    /// # Panics
    /// If there was no credit for it.
    pub fn batch(&mut self, count: u32) -> u64 {
        let msgs = u64::from(count);
        let amount = Amount { msgs, bytes: msgs << 10 };
        let first = self.channel.deliver(amount, || 1 << 10).expect("the limit is raised after each");
        self.limit = Limit { msgs: self.limit.msgs + msgs, bytes: self.limit.bytes + (msgs << 10) };
        self.channel.raise(self.limit);
        first
    }
}

/// Records as the messages that a socket sends; how many bytes they have.
///
/// # Panics
/// If they are damaged.
#[must_use]
pub fn deliveries(slices: Vec<RecordSlice>, is_binary: bool) -> usize {
    let mut output = Output::new(if is_binary { Form::Binary } else { Form::Json });
    output.deliver(Channel(1), 1, Parcel::Own(slices)).expect("the bench's records are sound");
    output.take().iter().map(Outgoing::len).sum()
}
