//! What the benches measure of reading: the credit that many streams share.

use std::sync::Arc;

use super::budget::{Budget, Share};
use super::config::ReadConfig;

/// Streams that share a budget.
#[derive(Debug)]
pub struct ReadCredit(Vec<Share>);

impl ReadCredit {
    /// As many streams.
    #[must_use]
    pub fn new(streams: usize) -> Self {
        let budget = Arc::new(Budget::new(ReadConfig::default()));
        Self((0..streams).map(|_| Share::new(Arc::clone(&budget))).collect())
    }

    /// Each stream in turn is granted what it may have, and hands a batch of `bytes` on; the sum of grants.
    pub fn turn(&mut self, bytes: u64) -> u64 {
        let grant = |share: &mut Share| {
            let granted = share.raise(u64::MAX);
            share.hand_on(bytes);
            granted
        };
        self.0.iter_mut().map(grant).fold(0, u64::wrapping_add)
    }
}
