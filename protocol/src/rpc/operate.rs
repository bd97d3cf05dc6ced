//! What operators ask of subscriptions: why a record is where it is, and dead letters once more.

use super::{LeaseInfo, PartRef};

/// Asks why a record is where it is. Changes nothing.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ExplainRequest {
    /// The part.
    #[prost(message, required, tag = "1")]
    pub part: PartRef,
    /// The record.
    #[prost(uint64, tag = "2")]
    pub offset: u64,
}

/// Why a record that could be leased is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, prost::Enumeration)]
#[repr(i32)]
pub enum Hindrance {
    /// None that this build knows.
    Unset = 0,
    /// The subscription is paused.
    Paused = 1,
    /// As many are leased as may be.
    WindowFull = 2,
    /// Nobody has pulled for a minute, or since this leader began.
    NoConsumer = 3,
    /// Too many wait to come again: no new one is leased.
    ComesAgainFull = 4,
    /// The filter does not match it: it will be settled.
    Filtered = 5,
    /// Its time to live is over: it will be settled.
    Expired = 6,
    /// Its publisher wants it later.
    Scheduled = 7,
    /// Others go before it.
    InLine = 8,
    /// A seek is on its way.
    Seeking = 9,
    /// It was dropped, because its key has a newer record or was deleted: it will be settled.
    Compacted = 10,
    /// It has had all its deliveries: it will be given up, once there is room for its letter, or, if its last delivery
    /// was from before this leader, once the time of a lease is over.
    Exhausted = 11,
    /// So much was looked at that waits behind what may not run, that nothing further is.
    LookAheadFull = 13,
}

/// The answer to [`ExplainRequest`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct Explanation {
    /// Where it stands, and who has it.
    #[prost(message, required, tag = "1")]
    pub record: LeaseInfo,
    /// What keeps it from being leased, if it is unsettled and nobody has it.
    #[prost(enumeration = "Hindrance", repeated, tag = "2")]
    pub hindrances: Vec<i32>,
    /// Unsettled records before it.
    #[prost(uint64, tag = "3")]
    pub ahead: u64,
    /// How long ago somebody pulled; absent: not since this leader began.
    #[prost(uint64, optional, tag = "4")]
    pub pulled_ms_ago: Option<u64>,
    /// Bounds of the partition.
    #[prost(uint64, tag = "5")]
    pub start: u64,
    /// One past its newest record.
    #[prost(uint64, tag = "6")]
    pub end: u64,
}

/// Makes records that were given up unsettled again, with their attempts begun anew.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RedriveRequest {
    /// The part.
    #[prost(message, required, tag = "1")]
    pub part: PartRef,
    /// These; empty: the oldest from `from` on.
    #[prost(uint64, repeated, tag = "2")]
    pub offsets: Vec<u64>,
    /// Only from this offset on.
    #[prost(uint64, tag = "3")]
    pub from: u64,
    /// At most this many.
    #[prost(uint32, tag = "4")]
    pub limit: u32,
    /// Only those that this [filter](crate::filter::Filter) matches.
    #[prost(string, optional, tag = "5")]
    pub filter: Option<String>,
    /// Redriven before: how many of them are dead again is told, and with `give_up_at` of them nothing is done.
    #[prost(uint64, repeated, tag = "6")]
    pub watched: Vec<u64>,
    /// See `watched`; 0: whatever became of them.
    #[prost(uint32, tag = "7")]
    pub give_up_at: u32,
    /// Only say what would be redriven.
    #[prost(bool, tag = "8")]
    pub is_dry_run: bool,
}

/// The answer to [`RedriveRequest`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct RedriveAnswer {
    /// What is unsettled again, or would be, ascending.
    #[prost(uint64, repeated, tag = "1")]
    pub redriven: Vec<u64>,
    /// Where to go on; absent: there is nothing beyond.
    #[prost(uint64, optional, tag = "2")]
    pub next: Option<u64>,
    /// How many of the watched ones are dead again.
    #[prost(uint64, tag = "3")]
    pub dead_again: u64,
}

/// What stood before a seek, as it is named to people: `snap_` and 16 hexadecimal digits.
#[must_use]
pub fn snapshot_name(name: u64) -> String {
    format!("snap_{name:016x}")
}

/// The number that [`snapshot_name`] names; `None` of anything else.
#[must_use]
pub fn snapshot_named(text: &str) -> Option<u64> {
    let hex = text.strip_prefix("snap_").filter(|hex| hex.len() == 16)?;
    u64::from_str_radix(hex, 16).ok().filter(|name| *name > 0)
}
