//! Whose turn it is to wait for news of a queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::queues::Queue;

/// One who waits for records of a queue.
///
/// Of those who wait, one at a time listens for news, and the others stand in line behind it: a record is one's, and to
/// wake all for it costs as many looks as there are workers. Whoever finds something passes the turn on before it goes
/// to work on it, and the next one looks whether there is more. So there is never news that nobody has looked at while
/// somebody stands in line.
#[derive(Debug)]
pub struct Turn {
    queue: Arc<Queue>,
    is_held: AtomicBool,
}

impl Turn {
    /// Not in line yet.
    #[must_use]
    pub fn of(queue: Arc<Queue>) -> Self {
        Self { queue, is_held: AtomicBool::new(false) }
    }

    /// The queue that it is of.
    #[must_use]
    pub fn queue(&self) -> &Arc<Queue> {
        &self.queue
    }

    /// Takes the turn if nobody has it; true if it is held then.
    pub fn try_take(&self) -> bool {
        if !self.is_held.load(Ordering::Relaxed)
            && let Ok(permit) = self.queue.turn.try_acquire()
        {
            permit.forget();
            self.is_held.store(true, Ordering::Relaxed);
        }
        self.is_held.load(Ordering::Relaxed)
    }

    /// Waits in line for the turn. News may have come before: look first.
    ///
    /// # Cancel safety
    /// The place in line is lost.
    pub async fn take(&self) {
        if !self.is_held.load(Ordering::Relaxed) {
            self.queue.turn.acquire().await.expect("it is never closed").forget();
            self.is_held.store(true, Ordering::Relaxed);
        }
    }

    /// Lets the next one look; no effect on who does not have the turn.
    pub fn pass(&self) {
        if self.is_held.swap(false, Ordering::Relaxed) {
            self.queue.turn.add_permits(1);
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.pass();
    }
}
