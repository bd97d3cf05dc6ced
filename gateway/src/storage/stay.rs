//! How long calls stay at a node, and the places that they leave to others.

use weir_protocol::rpc::Method;

/// Calls under way at once to one node, or to one shard of this process: the link has as many places.
pub(crate) const CALLS_MAX: usize = 6_144;
/// Calls under way beyond which nobody waits for what publishers and workers wait for.
pub(crate) const WORKING_MAX: usize = 5_120;
/// Calls under way beyond which nobody follows records or waits for some.
pub(crate) const READING_MAX: usize = 4_096;

/// Calls under way at once that wait until messages are archived: a store may be away for long.
pub(crate) const ARCHIVING_MAX: usize = 512;

const _: () = assert!(READING_MAX < WORKING_MAX && WORKING_MAX < CALLS_MAX, "each leaves places to the next");

/// How long a call stays at the node, and for whom. Who stays leaves places: else four readers of topics with 1,024
/// partitions would keep everybody on the gateway from publishing for as long as they wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stay {
    /// It is answered as soon as the node can.
    Brief,
    /// It waits for messages to lease, or until one is safe.
    Working,
    /// It follows records, or waits for some.
    Reading,
}

impl Stay {
    /// That of a call with one answer; `waits`: the node is asked to wait.
    pub(super) fn of_call(method: Method, waits: bool) -> Self {
        match method {
            _ if !waits => Self::Brief,
            Method::Read => Self::Reading,
            _ => Self::Working,
        }
    }

    /// That of a call with several answers.
    pub(super) fn of_stream(method: Method) -> Self {
        match method {
            Method::Publish => Self::Brief,
            Method::Subscribe => Self::Reading,
            _ => Self::Working,
        }
    }

    /// Calls under way beyond which it finds no place.
    pub(super) const fn calls_max(self) -> usize {
        match self {
            Self::Brief => CALLS_MAX,
            Self::Working => WORKING_MAX,
            Self::Reading => READING_MAX,
        }
    }
}
