//! A future that is polled again at once if it woke itself while it was polled.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::task::AtomicWaker;

/// Polls in a row, at most. Then others have their turn.
const POLLS_MAX: usize = 4;

/// Nobody polls it: who wakes it wakes the task.
const RESTING: u8 = 0;
/// It is being polled, and nobody has woken it since that began.
const POLLED: u8 = 1;
/// Somebody has, and it is polled once more; if it was resting, the task is woken.
const WOKEN: u8 = 2;

/// Runs `future` to its end. The runtime would put a task that has woken itself behind all others, and wake a worker
/// for it; the HTTP library does that between a request's body and its handler.
pub(crate) async fn at_once<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let own = Arc::new(Own::default());
    let waker = Waker::from(Arc::clone(&own));
    poll_fn(move |cx| {
        own.task.register(cx.waker());
        for _ in 0..POLLS_MAX {
            // Each change of it reads what it changes: what was done before a waking is seen by the poll behind it.
            own.state.swap(POLLED, Ordering::AcqRel);
            if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                return Poll::Ready(output);
            }
            let rests = own.state.compare_exchange(POLLED, RESTING, Ordering::AcqRel, Ordering::Acquire);
            if rests.is_ok() {
                return Poll::Pending;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await
}

/// What the future is woken by.
#[derive(Default)]
struct Own {
    task: AtomicWaker,
    state: AtomicU8,
}

impl Wake for Own {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.state.swap(WOKEN, Ordering::AcqRel) == RESTING {
            self.task.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use futures_util::task::noop_waker;
    use proptest::prelude::*;
    use tokio::sync::mpsc;

    use super::*;

    #[derive(Default)]
    struct Counted(AtomicUsize);

    impl Wake for Counted {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Ends with its `polls`th poll, and wakes itself in each before.
    async fn restless(polls: usize) -> usize {
        let mut polled = 0;
        poll_fn(|cx| {
            polled += 1;
            if polled == polls {
                return Poll::Ready(polled);
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        })
        .await
    }

    #[test]
    fn who_wakes_himself_is_polled_again_at_once_and_wakes_nobody() {
        let woken = Arc::<Counted>::default();
        let waker = Waker::from(Arc::clone(&woken));
        let future = pin!(at_once(restless(POLLS_MAX)));
        assert_eq!(future.poll(&mut Context::from_waker(&waker)), Poll::Ready(POLLS_MAX));
        assert_eq!(woken.0.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn after_some_polls_in_a_row_others_have_their_turn() {
        let woken = Arc::<Counted>::default();
        let waker = Waker::from(Arc::clone(&woken));
        let mut future = pin!(at_once(restless(2 * POLLS_MAX)));
        assert_eq!(future.as_mut().poll(&mut Context::from_waker(&waker)), Poll::Pending);
        assert_eq!(woken.0.load(Ordering::Relaxed), 1, "it comes back by itself");
        assert_eq!(future.poll(&mut Context::from_waker(&waker)), Poll::Ready(2 * POLLS_MAX));
    }

    #[test]
    fn who_is_woken_from_outside_wakes_the_task_that_polled_last() {
        let (sender, mut receiver) = mpsc::unbounded_channel();
        let mut future = pin!(at_once(async move { receiver.recv().await }));
        assert_eq!(future.as_mut().poll(&mut Context::from_waker(&noop_waker())), Poll::Pending);
        let woken = Arc::<Counted>::default();
        let waker = Waker::from(Arc::clone(&woken));
        assert_eq!(future.as_mut().poll(&mut Context::from_waker(&waker)), Poll::Pending);
        sender.send(7).unwrap();
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
        assert_eq!(future.poll(&mut Context::from_waker(&waker)), Poll::Ready(Some(7)));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]
        /// Two threads, so that wakings fall anywhere: between, within and at the end of polls.
        #[test]
        fn no_waking_is_lost(pauses in prop::collection::vec(0..200_u32, 200)) {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
            let (sender, mut receiver) = mpsc::channel(1);
            let count = pauses.len();
            let received = runtime.spawn(at_once(async move {
                let mut received = 0;
                while receiver.recv().await.is_some() {
                    received += 1;
                }
                received
            }));
            runtime.block_on(async move {
                for pause in pauses {
                    (0..pause).for_each(|_| std::hint::spin_loop());
                    sender.send(()).await.unwrap();
                }
            });
            prop_assert_eq!(runtime.block_on(received).unwrap(), count);
        }
    }
}
