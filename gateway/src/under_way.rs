//! Futures of one kind that a task drives.

use std::future::{Pending, pending};
use std::task::{Context, Waker};

use futures_util::StreamExt as _;
use futures_util::future::Either;
use futures_util::stream::FuturesUnordered;

/// Futures under way, in no order. Takes no memory before the first: most sockets have only some kinds of them.
///
/// A future that never ends is among them. Without it the library's set would give way whenever it has polled all that
/// it has: it wakes its own task, with one future each time, and with the task the runtime wakes another worker.
pub(crate) struct UnderWay<F: Future>(Option<FuturesUnordered<OneOf<F>>>);

type OneOf<F> = Either<F, Pending<<F as Future>::Output>>;

impl<F: Future> Default for UnderWay<F> {
    fn default() -> Self {
        Self(None)
    }
}

impl<F: Future> UnderWay<F> {
    /// Adds one.
    pub(crate) fn push(&mut self, future: F) {
        self.0.get_or_insert_with(with_one_that_never_ends).push(Either::Left(future));
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |futures| futures.len() - 1)
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What one of them gave; `None` if there is none.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub(crate) async fn next(&mut self) -> Option<F::Output> {
        if self.is_empty() {
            return None;
        }
        self.0.as_mut()?.next().await
    }

    /// Ends when all of them have.
    pub(crate) async fn all(mut self) {
        while self.next().await.is_some() {}
    }
}

fn with_one_that_never_ends<F: Future>() -> FuturesUnordered<OneOf<F>> {
    let mut futures = FuturesUnordered::from_iter([Either::Right(pending())]);
    // Polled here, and never again: later it would count among those that were.
    let _ = futures.poll_next_unpin(&mut Context::from_waker(Waker::noop()));
    futures
}

#[cfg(test)]
mod tests {
    use std::future::ready;
    use std::pin::pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    #[tokio::test]
    async fn without_a_future_there_is_nothing_to_wait_for_and_nothing_in_memory() {
        let mut none = UnderWay::default();
        assert_eq!(none.next().await, None);
        assert!(none.0.is_none());
        none.push(ready(1));
        none.push(ready(2));
        let mut given = [none.next().await.unwrap(), none.next().await.unwrap()];
        given.sort_unstable();
        assert_eq!((given, none.next().await), ([1, 2], None));
        none.all().await;
    }

    #[test]
    fn futures_that_wait_wake_nobody() {
        struct Count(AtomicUsize);
        impl Wake for Count {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        for count in 1..4 {
            let woken = Arc::new(Count(AtomicUsize::new(0)));
            let (waker, mut waiting) = (Waker::from(Arc::clone(&woken)), UnderWay::default());
            (0..count).for_each(|_| waiting.push(pending::<()>()));
            assert!(pin!(waiting.next()).poll(&mut Context::from_waker(&waker)).is_pending());
            assert_eq!(woken.0.load(Ordering::Relaxed), 0, "{count} futures");
            assert_eq!(waiting.len(), count);
        }
    }
}
