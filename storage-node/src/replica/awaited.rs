//! Who waits for outputs of settles to arrive.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::mpsc;
use weir_protocol::rpc::{Placed, Refusal};

/// What has become of an output: where it is, `None` if it was there before this leader sent it; or why it is nowhere.
pub type Arrived = Result<Option<Placed>, Refusal>;

/// Outputs whose settles wait, by name. As many as are on their way, or about to be.
#[derive(Debug)]
pub struct AwaitedOutputs {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug)]
struct Inner {
    /// Names begin anywhere, so that none of another leader's is taken for one of this.
    next: u64,
    waiting: HashMap<u64, (usize, mpsc::UnboundedSender<(usize, Arrived)>)>,
}

/// Waits for the outputs of one settle. Dropped, nobody waits any more.
#[derive(Debug)]
pub struct OutputWait {
    first: u64,
    count: usize,
    inner: Arc<Mutex<Inner>>,
    arrived: mpsc::UnboundedReceiver<(usize, Arrived)>,
}

impl AwaitedOutputs {
    /// Names begin with `first`.
    pub(super) fn new(first: u64) -> Self {
        Self { inner: Arc::new(Mutex::new(Inner { next: first, waiting: HashMap::new() })) }
    }

    /// Names `count` outputs; called before they are proposed, so that none arrives unnoticed.
    #[must_use]
    pub fn wait(&self, count: usize) -> OutputWait {
        let (sender, arrived) = mpsc::unbounded_channel();
        let mut inner = self.inner.lock();
        let first = inner.next;
        inner.next = first.wrapping_add(count as u64);
        for at in 0..count {
            inner.waiting.insert(first.wrapping_add(at as u64), (at, sender.clone()));
        }
        drop(inner);
        OutputWait { first, count, inner: Arc::clone(&self.inner), arrived }
    }

    /// Tells who waits for an output, if somebody does.
    pub fn arrived(&self, name: u64, arrived: Arrived) {
        let waiting = self.inner.lock().waiting.remove(&name);
        if let Some((at, sender)) = waiting {
            drop(sender.send((at, arrived)));
        }
    }
}

impl OutputWait {
    /// Name of the settle's output `at`.
    #[must_use]
    pub fn name(&self, at: usize) -> u64 {
        self.first.wrapping_add(at as u64)
    }

    /// The next output that has arrived: its place in the settle, and what became of it. `None`: all have.
    ///
    /// # Cancel safety
    /// Nothing is lost if it is dropped.
    pub async fn next(&mut self) -> Option<(usize, Arrived)> {
        self.arrived.recv().await
    }
}

impl Drop for OutputWait {
    fn drop(&mut self) {
        let mut inner = self.inner.lock();
        for at in 0..self.count {
            inner.waiting.remove(&self.first.wrapping_add(at as u64));
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn outputs_are_told_to_who_waits_and_nobody_is_kept_who_does_not() {
        let awaited = AwaitedOutputs::new(u64::MAX);
        let (mut one, two) = (awaited.wait(2), awaited.wait(1));
        assert_eq!((one.name(0), one.name(1), two.name(0)), (u64::MAX, 0, 1));
        awaited.arrived(0, Ok(None));
        awaited.arrived(7, Ok(None));
        assert_eq!(one.next().now_or_never().flatten(), Some((1, Ok(None))));
        drop(two);
        assert_eq!(awaited.inner.lock().waiting.len(), 1);
        awaited.arrived(u64::MAX, Ok(None));
        assert_eq!(one.next().now_or_never().flatten(), Some((0, Ok(None))));
        assert_eq!(one.next().now_or_never(), Some(None), "that was all");
    }
}
