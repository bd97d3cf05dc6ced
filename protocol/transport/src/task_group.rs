//! Tasks that take their turns within one task of the runtime.
//!
//! Where little is to do, waking a second worker costs more than what there is to do, and the runtime wakes one once
//! three tasks in a row have handed over to each other. A message goes through eight on its way into a shard's log and
//! back to who sent it. In a group those are one: what it costs them is that no two of them run at once.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use async_executor::{Executor, FallibleTask};
use futures_util::FutureExt as _;
use tokio::task::{AbortHandle, JoinHandle, coop};

tokio::task_local! {
    /// The group that the running task is part of.
    static GROUP: Weak<Group>;
}

/// A handle to a group. With the last one the group ends, and its tasks are dropped where they stand.
#[derive(Debug, Clone)]
pub struct TaskGroup(Arc<Group>);

#[derive(Debug)]
struct Group {
    executor: Arc<Executor<'static>>,
    /// The task of the runtime in which they take their turns.
    turns: AbortHandle,
}

impl Drop for Group {
    fn drop(&mut self) {
        self.turns.abort();
    }
}

impl TaskGroup {
    /// A group without tasks. Must be called within a tokio runtime.
    #[must_use]
    pub fn start() -> Self {
        let executor = Arc::new(Executor::new());
        Self(Arc::new_cyclic(|group| {
            let turns = tokio::spawn(GROUP.scope(Weak::clone(group), take_turns(Arc::clone(&executor))));
            Group { executor, turns: turns.abort_handle() }
        }))
    }

    /// Whatever `start` spawns by [`spawn`] becomes part of the group, and so does what those tasks spawn.
    pub fn enter<T>(&self, start: impl FnOnce() -> T) -> T {
        GROUP.sync_scope(Arc::downgrade(&self.0), start)
    }

    /// The same of a future.
    pub async fn enter_async<T>(&self, start: impl Future<Output = T>) -> T {
        GROUP.scope(Arc::downgrade(&self.0), start).await
    }
}

async fn take_turns(executor: Arc<Executor<'static>>) {
    loop {
        executor.tick().await;
        // Others have their turns too, however much there is to do here.
        coop::consume_budget().await;
    }
}

/// Runs `task` in the group that the caller is part of, or by itself if it is part of none. Must be called within a
/// tokio runtime.
pub fn spawn<F>(task: F) -> GroupTask<F::Output>
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    let Some(group) = GROUP.try_with(Weak::upgrade).ok().flatten() else {
        return GroupTask(Running::Alone(tokio::spawn(task)));
    };
    // As the runtime does it: who panics takes nobody along.
    let caught = AssertUnwindSafe(task).catch_unwind().map(|ended| ended.map_err(|_| TaskEnded::Panicked));
    GroupTask(Running::InGroup(Some(group.executor.spawn(caught).fallible())))
}

/// A task that was spawned: a future of what it returns. Dropping it lets the task go on.
#[derive(Debug)]
pub struct GroupTask<T>(Running<T>);

#[derive(Debug)]
enum Running<T> {
    /// There until it is dropped or aborted.
    InGroup(Option<FallibleTask<Result<T, TaskEnded>>>),
    Alone(JoinHandle<T>),
}

/// Why a task returned nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TaskEnded {
    /// It panicked.
    #[error("the task panicked")]
    Panicked,
    /// It was aborted, or its group or the runtime ended.
    #[error("the task was dropped before its end")]
    Dropped,
}

impl<T> GroupTask<T> {
    /// Drops the task where it stands, now or when its turn is over.
    pub fn abort(&mut self) {
        match &mut self.0 {
            Running::InGroup(task) => drop(task.take()),
            Running::Alone(task) => task.abort(),
        }
    }
}

impl<T> Drop for GroupTask<T> {
    fn drop(&mut self) {
        if let Running::InGroup(task) = &mut self.0
            && let Some(task) = task.take()
        {
            task.detach();
        }
    }
}

impl<T> Future for GroupTask<T> {
    type Output = Result<T, TaskEnded>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            Running::InGroup(None) => Poll::Ready(Err(TaskEnded::Dropped)),
            Running::InGroup(Some(task)) => {
                task.poll_unpin(cx).map(|ended| ended.unwrap_or(Err(TaskEnded::Dropped)))
            }
            Running::Alone(task) => task
                .poll_unpin(cx)
                .map_err(|error| if error.is_panic() { TaskEnded::Panicked } else { TaskEnded::Dropped }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::sync::{mpsc, oneshot};
    use tokio::task::{Id, id, yield_now};

    use super::*;

    /// Far longer than anything here takes.
    const WAIT: Duration = Duration::from_secs(30);

    async fn where_it_runs() -> Id {
        id()
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_is_spawned_in_a_group_and_by_its_tasks_is_one_task_of_the_runtime() {
        let group = TaskGroup::start();
        let first = group.enter(|| spawn(where_it_runs())).await.unwrap();
        let second = group.enter(|| spawn(async { spawn(where_it_runs()).await })).await.unwrap().unwrap();
        let third = group.enter_async(async { spawn(where_it_runs()).await }).await.unwrap();
        assert_eq!((first, first), (second, third));
        assert_ne!(spawn(where_it_runs()).await.unwrap(), first, "outside it is a task of its own");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn who_panics_is_told_of_and_takes_nobody_along() {
        let group = TaskGroup::start();
        for started in
            [group.enter(|| spawn(async { panic!("a defect") })), spawn(async { panic!("another") })]
        {
            assert_eq!(started.await, Err::<(), _>(TaskEnded::Panicked));
        }
        assert_eq!(group.enter(|| spawn(async { 7 })).await, Ok(7));
    }

    #[tokio::test]
    async fn with_its_last_handle_a_group_drops_its_tasks_and_whoever_waits_for_one_is_told() {
        let group = TaskGroup::start();
        let (held, lost) = oneshot::channel::<()>();
        let waiting = group.enter(|| {
            spawn(async move {
                let _held = held;
                std::future::pending::<()>().await;
            })
        });
        yield_now().await;
        drop(group.clone());
        drop(group);
        assert_eq!(tokio::time::timeout(WAIT, waiting).await.unwrap(), Err(TaskEnded::Dropped));
        assert!(tokio::time::timeout(WAIT, lost).await.unwrap().is_err(), "what it had is dropped");
    }

    #[tokio::test]
    async fn a_task_goes_on_without_its_handle_and_ends_when_it_is_aborted() {
        let group = TaskGroup::start();
        for is_aborted in [false, true] {
            let (done, ended) = oneshot::channel();
            let (go, wait) = oneshot::channel::<()>();
            let mut task = group.enter(|| {
                spawn(async move {
                    let _ = wait.await;
                    let _ = done.send(());
                })
            });
            if is_aborted {
                task.abort();
                assert_eq!(task.await, Err(TaskEnded::Dropped));
            } else {
                drop(task);
            }
            let _ = go.send(());
            assert_eq!(tokio::time::timeout(WAIT, ended).await.unwrap().is_err(), is_aborted);
        }
    }

    /// With one worker, whom it would keep from everybody else.
    #[test]
    fn tasks_that_always_have_something_to_do_let_others_have_their_turns() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let within = runtime.enter();
        let group = TaskGroup::start();
        let (numbers, mut received) = mpsc::unbounded_channel::<u64>();
        numbers.send(0).unwrap();
        let counting = async move {
            while let Some(number) = received.recv().await {
                let _ = numbers.send(number + 1);
            }
        };
        let _busy = group.enter(|| (spawn(counting), spawn(async { while wake_at_once().await {} })));
        let (done, had) = std::sync::mpsc::channel();
        for place in ["in the group", "beside it"] {
            let done = done.clone();
            let turn = async move { done.send(place).unwrap() };
            if place == "beside it" { drop(spawn(turn)) } else { drop(group.enter(|| spawn(turn))) }
        }
        let mut had: Vec<_> = (0..2).map_while(|_| had.recv_timeout(WAIT).ok()).collect();
        had.sort_unstable();
        drop(within);
        runtime.shutdown_background();
        assert_eq!(had, ["beside it", "in the group"]);
    }

    /// Wakes its task again at once, in the group alone.
    async fn wake_at_once() -> bool {
        let mut is_first = true;
        std::future::poll_fn(|cx| {
            if std::mem::take(&mut is_first) {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            Poll::Ready(true)
        })
        .await
    }
}
