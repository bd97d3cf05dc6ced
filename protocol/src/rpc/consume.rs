//! Subscriptions consumed as a stream: leases as records appear, settles and their results in runs.

use super::{Credit, Grant, PartRef, SettleAction, SettleOutcome, Slice};

/// Leases records of a part as they appear, within the credit granted. When it ends, for whatever reason, what its
/// holder still holds of the part is leased no longer than [`ConsumeRequest::grace_ms`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct ConsumeRequest {
    /// The part.
    #[prost(message, required, tag = "1")]
    pub part: PartRef,
    /// First credit.
    #[prost(message, required, tag = "2")]
    pub limit: Credit,
    /// Credit that nothing is there for is kept; otherwise it is given back, see [`ConsumeEvent::gone`], but for
    /// [`keeps`](ConsumeRequest::keeps).
    #[prost(bool, tag = "3")]
    pub keeps_credit: bool,
    /// How long records are held; 0: as the subscription says.
    #[prost(uint32, tag = "4")]
    pub lease_ms: u32,
    /// Who holds them: nobody else of this part, at most 255 bytes.
    #[prost(string, tag = "5")]
    pub holder: String,
    /// What holders with names that begin so hold is held by the new one from now on, for the time of a lease.
    #[prost(string, optional, tag = "6")]
    pub takes_over: Option<String>,
    /// How long leases last beyond the end of the stream, at most; a client that comes back takes them over.
    #[prost(uint32, tag = "7")]
    pub grace_ms: u32,
    /// Of credit that nothing is there for, this much is given back only after a while without a record; absent: none.
    #[prost(message, optional, tag = "8")]
    pub keeps: Option<Credit>,
    /// Of a stream, [`GivenPart::lot`](super::GivenPart::lot) under which it reads; 0: parts are not given.
    #[prost(uint64, tag = "9")]
    pub lot: u64,
    /// What the limit will be raised to as what is sent is taken, as far as is known, in the same totals;
    /// raised by credit frames. Nothing behind it is prepared to be sent. Absent: that is not known, and any
    /// of it may be.
    #[prost(message, optional, tag = "10")]
    pub reach: Option<Credit>,
}

/// Consecutive records that were leased, with consecutive fences.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct GrantRun {
    /// The first record.
    #[prost(uint64, tag = "1")]
    pub offset: u64,
    /// Its fence.
    #[prost(uint64, tag = "2")]
    pub fence: u64,
    /// How many.
    #[prost(uint32, tag = "3")]
    pub count: u32,
    /// Deliveries of each of them so far, this one included.
    #[prost(uint32, tag = "4")]
    pub attempt: u32,
    /// How long they are held from now on.
    #[prost(uint64, tag = "5")]
    pub expires_in_ms: u64,
}

/// An answer to [`ConsumeRequest`]; payload: the batches of `slices`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ConsumeEvent {
    /// What was leased, in offset order; may be nothing.
    #[prost(message, repeated, tag = "1")]
    pub runs: Vec<GrantRun>,
    /// Where the records are, in offset order. A slice may hold records that were not leased.
    #[prost(message, repeated, tag = "2")]
    pub slices: Vec<Slice>,
    /// Credit that is gone, in absolute totals: used, and given back.
    #[prost(message, required, tag = "3")]
    pub gone: Credit,
    /// There is something to lease and no credit for it. Told once until credit comes.
    #[prost(bool, tag = "4")]
    pub is_ready: bool,
    /// The part was given to another, under a higher lot: nothing more comes.
    #[prost(bool, tag = "5")]
    pub is_displaced: bool,
}

/// Consecutive leases with consecutive fences, to settle all in the same way.
#[derive(Clone, PartialEq, prost::Message)]
pub struct SettleRun {
    /// The first record.
    #[prost(uint64, tag = "1")]
    pub offset: u64,
    /// Its fence.
    #[prost(uint64, tag = "2")]
    pub fence: u64,
    /// How many.
    #[prost(uint32, tag = "3")]
    pub count: u32,
    /// What becomes of them.
    #[prost(enumeration = "SettleAction", tag = "4")]
    pub action: i32,
    /// Nack: the delay, absent as the subscription says. Extend: the new time from now.
    #[prost(uint64, optional, tag = "5")]
    pub ms: Option<u64>,
    /// Nack and dead: why, at most 1 KiB.
    #[prost(string, tag = "6")]
    pub reason: String,
}

/// Settles leases of a part. Answered when it is committed.
#[derive(Clone, PartialEq, prost::Message)]
pub struct SettleRunsRequest {
    /// The part.
    #[prost(message, required, tag = "1")]
    pub part: PartRef,
    /// At most [`crate::limits::SETTLE_ITEMS_MAX`] leases in all.
    #[prost(message, repeated, tag = "2")]
    pub runs: Vec<SettleRun>,
}

/// A lease for which nothing was done.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct NotDone {
    /// Place of its run in the request.
    #[prost(uint32, tag = "1")]
    pub run: u32,
    /// Its place in the run.
    #[prost(uint32, tag = "2")]
    pub place: u32,
    /// Why: not `Done`.
    #[prost(enumeration = "SettleOutcome", tag = "3")]
    pub outcome: i32,
    /// With `LeaseLost`: the delivery that took its place.
    #[prost(message, optional, tag = "4")]
    pub current: Option<Grant>,
}

/// The answer to [`SettleRunsRequest`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct SettleRunsAnswer {
    /// In the order of the request; everything else is done.
    #[prost(message, repeated, tag = "1")]
    pub not_done: Vec<NotDone>,
}

/// Ends what a holder holds of a part now.
#[derive(Clone, PartialEq, prost::Message)]
pub struct LeaveRequest {
    /// The part.
    #[prost(message, required, tag = "1")]
    pub part: PartRef,
    /// The holder.
    #[prost(string, tag = "2")]
    pub holder: String,
}

/// The answer to [`LeaveRequest`].
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Left {
    /// Leases that ended.
    #[prost(uint64, tag = "1")]
    pub ended: u64,
}
