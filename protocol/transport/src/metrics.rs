//! Counters of a transport endpoint. Plain atomics: what exports them reads a snapshot.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! metrics {
    ($($(#[$doc:meta])* $name:ident,)+) => {
        /// Counters and gauges shared by the connections of one endpoint. Each is exact; a snapshot is not one
        /// instant.
        #[derive(Debug, Default)]
        pub struct Metrics {
            $(pub(crate) $name: AtomicU64,)+
        }

        /// What [`Metrics`] said.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct MetricsSnapshot {
            $($(#[$doc])* pub $name: u64,)+
        }

        impl Metrics {
            /// Reads every counter.
            #[must_use]
            pub fn snapshot(&self) -> MetricsSnapshot {
                MetricsSnapshot { $($name: self.$name.load(Ordering::Relaxed),)+ }
            }
        }
    };
}

metrics! {
    /// Connections past their handshake, now.
    connections,
    /// Connections that passed their handshake, in total.
    connections_opened,
    /// Connections whose handshake failed or was refused, in total.
    handshakes_failed,
    /// Frames received, in total.
    frames_in,
    /// Frames written, in total.
    frames_out,
    /// Bytes received, in total.
    bytes_in,
    /// Bytes written, in total, headers included.
    bytes_out,
    /// Vectored writes, in total: `frames_out` divided by it is how well frames share a syscall.
    writes,
    /// Calls admitted and not completely answered, now.
    calls_in_flight,
    /// Bytes queued for writing, now.
    queued_bytes,
    /// Waits of a stream for room in the outbound queue, in total: a peer reads slower than it is sent to.
    backpressure_waits,
    /// Calls refused by the transport itself (limits, draining, unknown method), in total.
    refused,
    /// Streams ended because the caller granted more than its buffer holds, in total.
    overruns,
}

pub(crate) fn add(counter: &AtomicU64, n: usize) {
    counter.fetch_add(n as u64, Ordering::Relaxed);
}

pub(crate) fn sub(counter: &AtomicU64, n: usize) {
    counter.fetch_sub(n as u64, Ordering::Relaxed);
}
