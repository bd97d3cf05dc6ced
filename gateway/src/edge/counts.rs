//! What is counted of queues.

use prometheus::{IntCounter, IntCounterVec, Opts, Registry};

/// Pulls, leased messages, settled leases by result, and what settles have published.
#[derive(Debug, Clone)]
pub(crate) struct QueueCounts {
    pub(super) pulls: IntCounter,
    pub(super) leased: IntCounter,
    pub(super) settles: IntCounterVec,
    pub(super) outputs: IntCounter,
}

impl QueueCounts {
    /// Registers the counters.
    ///
    /// # Errors
    /// If a name is taken: a defect.
    pub(crate) fn new(registry: &Registry) -> prometheus::Result<Self> {
        let pulls = IntCounter::new("weir_gateway_pulls_total", "Pulls that were answered.")?;
        let leased = IntCounter::new("weir_gateway_leased_messages_total", "Messages leased by pulls.")?;
        let settles = Opts::new("weir_gateway_settled_leases_total", "Leases that were settled, by result.");
        let settles = IntCounterVec::new(settles, &["result"])?;
        let outputs =
            IntCounter::new("weir_gateway_settle_outputs_total", "Messages that settles have published.")?;
        registry.register(Box::new(outputs.clone()))?;
        registry.register(Box::new(pulls.clone()))?;
        registry.register(Box::new(leased.clone()))?;
        registry.register(Box::new(settles.clone()))?;
        Ok(Self { pulls, leased, settles, outputs })
    }
}
