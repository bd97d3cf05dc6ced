//! What a subscription says.

use weir_protocol::ids::{Offset, PartitionId, Term};

use super::parcel::Parcel;
use super::stream::PartitionEvent;

/// A partition of a subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PartitionOf {
    /// Place of the topic in [`Subscription::topics`](super::Subscription::topics).
    pub topic: usize,
    /// The partition.
    pub partition: PartitionId,
}

/// Where a partition starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Started {
    /// Which.
    pub of: PartitionOf,
    /// First offset that will come.
    pub from: Offset,
    /// Its end at that moment.
    pub tail: Offset,
}

/// What happens on a subscription.
#[derive(Debug)]
pub enum SubscriptionEvent {
    /// Always first, and once: all partitions have started.
    Started(Vec<Started>),
    /// Records, per partition in offset order, each exactly once.
    Records {
        /// Of which partition.
        of: PartitionOf,
        /// The records.
        parcel: Parcel,
        /// Their number.
        count: u64,
        /// Their encoded bytes: what credit counts.
        bytes: u64,
    },
    /// Offsets `[from, to)` no longer exist and were skipped.
    Gap {
        /// Of which partition.
        of: PartitionOf,
        /// First missing offset.
        from: Offset,
        /// First that exists.
        to: Offset,
        /// `retention` or `corrupt`.
        why: String,
    },
    /// A partition's end was reached.
    CaughtUp {
        /// Which partition.
        of: PartitionOf,
        /// Its end.
        end: Offset,
        /// The topic is closed: nothing follows unless it is opened again, which is told by another of these.
        closed: bool,
        /// Every partition has reached its end at least once since the last time this was true.
        all: bool,
    },
    /// Nothing below matches the filter but what came.
    Looked {
        /// Of which partition.
        of: PartitionOf,
        /// Exclusive.
        upto: Offset,
    },
    /// Everything below is committed (readers below quorum).
    Firm {
        /// Of which partition.
        of: PartitionOf,
        /// Exclusive.
        upto: Offset,
    },
    /// Offsets `[from, to)` may be lost and shall be forgotten (readers below quorum); what has them now follows.
    Retract {
        /// Of which partition.
        of: PartitionOf,
        /// First offset that is taken back.
        from: Offset,
        /// One past the last that was delivered.
        to: Offset,
        /// The term that they were delivered with.
        term: Term,
    },
}

pub(super) fn records_event(of: PartitionOf, parcel: Parcel, bytes: u64) -> SubscriptionEvent {
    let count = parcel.slices().iter().map(|slice| u64::from(slice.take)).sum();
    SubscriptionEvent::Records { of, parcel, count, bytes }
}

/// Events that are the same for one partition and for several.
pub(super) fn small_event(of: PartitionOf, event: PartitionEvent) -> SubscriptionEvent {
    match event {
        PartitionEvent::Gap { from, to, why } => SubscriptionEvent::Gap { of, from, to, why },
        PartitionEvent::Looked { upto } => SubscriptionEvent::Looked { of, upto },
        PartitionEvent::Firm { upto } => SubscriptionEvent::Firm { of, upto },
        PartitionEvent::Retract { from, to, term } => SubscriptionEvent::Retract { of, from, to, term },
        PartitionEvent::CaughtUp { end, closed } => {
            SubscriptionEvent::CaughtUp { of, end, closed, all: true }
        }
        PartitionEvent::Started { from, tail, .. } => {
            SubscriptionEvent::Started(vec![Started { of, from, tail }])
        }
        PartitionEvent::Records { parcel, bytes } => records_event(of, parcel, bytes),
    }
}
