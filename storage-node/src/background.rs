//! A thread for work that nobody waits for: it has the processors when those who serve leave them.

use std::sync::Mutex;
use std::thread::JoinHandle;

use tokio::sync::{mpsc, oneshot};
use weir_protocol::error::ErrorCode;
use weir_protocol::rpc::Refusal;

/// Pieces of work that wait at most; who has more waits to hand it over.
const WAITING_MAX: usize = 4;
/// How much more than the process the thread gives way: with Linux's weights the others get nine times its share.
const NICE: i32 = 10;
/// There is nothing below it.
#[cfg(target_os = "linux")]
const NICE_MAX: i32 = 19;

type Work = Box<dyn FnOnce() + Send>;

/// Runs pieces of work one after the other, on a thread of its own with a lower priority.
///
/// Of its own, because a thread without privileges can lower its priority and never raise it again: one of
/// the runtime's blocking threads would be slow for whoever had it next. Reads of clients must not go through
/// here.
#[derive(Debug)]
pub(crate) struct Background {
    queue: Option<mpsc::Sender<Work>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Background {
    /// Starts the thread, with a name of at most 15 bytes.
    ///
    /// # Errors
    /// If the system gives no thread.
    pub(crate) fn start(name: &str) -> std::io::Result<Self> {
        let (queue, mut waiting) = mpsc::channel::<Work>(WAITING_MAX);
        let run = move || {
            give_way();
            while let Some(work) = waiting.blocking_recv() {
                // Who waits for it is told: its answer is dropped.
                if std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).is_err() {
                    tracing::error!("a piece of background work panicked");
                }
            }
        };
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(run)?;
        Ok(Self { queue: Some(queue), thread: Mutex::new(Some(thread)) })
    }

    /// Runs `work` when those before it are done.
    ///
    /// # Errors
    /// `internal` if it panicked.
    ///
    /// # Cancel safety
    /// Work that was handed over runs, and its result is dropped.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Refusal> {
        let (answer, answered) = oneshot::channel();
        let work = Box::new(move || drop(answer.send(work())));
        let queue = self.queue.as_ref().expect("it is closed when this is dropped only");
        let ended = || Refusal::new(ErrorCode::Internal, "background work ended by a panic");
        queue.send(work).await.map_err(|_| ended())?;
        answered.await.map_err(|_| ended())
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.queue = None;
        let thread = self.thread.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        // What is still to be done takes milliseconds. Its last user may be a piece of work itself.
        if let Some(thread) = thread.filter(|thread| thread.thread().id() != std::thread::current().id()) {
            // A panic was told where it happened.
            let _ = thread.join();
        }
    }
}

/// Lowers the priority of the calling thread for good: on Linux alone priorities are a thread's, not a process's.
/// Where that is refused it goes on as it was.
fn give_way() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::getpriority_process(None)
        // Whoever gave the process another priority meant its work as well: ours is below that, never above.
        .and_then(|found| rustix::process::setpriority_process(None, lowered(found)))
    {
        tracing::info!(%error, "background work keeps its priority");
    }
}

#[cfg(target_os = "linux")]
fn lowered(found: i32) -> i32 {
    found.saturating_add(NICE).min(NICE_MAX)
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[cfg(target_os = "linux")]
    fn nice() -> i32 {
        rustix::process::getpriority_process(None).unwrap()
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn it_gives_way_and_nobody_else_does() {
        let before = nice();
        let background = Background::start("weir-test").unwrap();
        assert_eq!(background.run(nice).await.unwrap(), lowered(before));
        let shared = tokio::task::spawn_blocking(nice).await.unwrap();
        assert_eq!((nice(), shared), (before, before));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn it_gives_way_to_its_own_process_whatever_that_gives_way_to() {
        // Of a process that root began with `nice -n 12`, and of one that may not be lowered any more.
        assert_eq!([-5, 0, 12, 19].map(lowered), [5, 10, 19, 19]);
        let lower = std::thread::spawn(|| {
            rustix::process::setpriority_process(None, 12).unwrap();
            give_way();
            nice()
        });
        assert_eq!(lower.join().unwrap(), 19);
    }

    #[tokio::test]
    async fn work_that_panics_is_told_to_who_waits_and_ends_nothing() {
        let background = Background::start("weir-test").unwrap();
        let panicked = background.run(|| assert_eq!(1, 2, "on purpose")).await.unwrap_err();
        assert_eq!(panicked.error_code(), ErrorCode::Internal);
        assert_eq!(background.run(|| 3).await.unwrap(), 3);
    }

    #[tokio::test]
    async fn what_was_handed_over_is_done_before_it_ends() {
        let background = Background::start("weir-test").unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        let (release, held) = std::sync::mpsc::channel::<()>();
        // Polled once: handed over, and nobody waits.
        assert!(background.run(move || held.recv()).now_or_never().is_none());
        for number in 0..3 {
            let tell = tell.clone();
            assert!(background.run(move || tell.send(number).unwrap()).now_or_never().is_none());
        }
        let ending = std::thread::spawn(move || drop(background));
        drop(release);
        ending.join().unwrap();
        assert_eq!(told.try_iter().collect::<Vec<_>>(), [0, 1, 2]);
    }
}
