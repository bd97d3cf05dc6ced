//! Futures of one kind that a socket drives.

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;

/// Futures under way, in no order. Takes no memory before the first: most sockets have only some kinds of them.
pub(super) struct UnderWay<F>(Option<FuturesUnordered<F>>);

impl<F> Default for UnderWay<F> {
    fn default() -> Self {
        Self(None)
    }
}

impl<F: Future> UnderWay<F> {
    /// Adds one.
    pub(super) fn push(&mut self, future: F) {
        self.0.get_or_insert_default().push(future);
    }

    /// What one of them gave; `None` if there is none.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub(super) async fn next(&mut self) -> Option<F::Output> {
        match &mut self.0 {
            Some(futures) => futures.next().await,
            None => None,
        }
    }

    /// Ends when all of them have.
    pub(super) async fn all(mut self) {
        while self.next().await.is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;

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
}
