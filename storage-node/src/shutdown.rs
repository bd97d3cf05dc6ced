//! The tasks that a node owns, and how it stops.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use weir_protocol::ids::ShardId;
use weir_transport::task_group::{self, TaskEnded, TaskGroup};

/// Named tasks. One that ends before the node stops is a defect: it is logged and the node stops, rather than going
/// on without it.
#[derive(Debug)]
pub struct Tasks {
    tasks: Vec<(String, JoinHandle<()>)>,
    stopping: watch::Sender<bool>,
    /// Those of shards. They end with this, behind all tasks.
    groups: BTreeMap<ShardId, TaskGroup>,
}

impl Default for Tasks {
    fn default() -> Self {
        Self { tasks: Vec::new(), stopping: watch::channel(false).0, groups: BTreeMap::new() }
    }
}

impl Tasks {
    /// Tells tasks, and whoever owns the node, that it stops.
    #[must_use]
    pub fn stop(&self) -> watch::Receiver<bool> {
        self.stopping.subscribe()
    }

    /// Runs a task, in the task group that the caller is part of, if any, until it ends by itself, which it does once
    /// [`Tasks::stop`] says so or its work is gone.
    pub fn spawn(&mut self, name: String, task: impl Future<Output = ()> + Send + 'static) {
        let (stopping, named) = (self.stopping.clone(), name.clone());
        let running = task_group::spawn(task);
        let watched = tokio::spawn(async move {
            match running.await {
                Err(TaskEnded::Panicked) => {
                    tracing::error!(task = named, "a task ended by a panic; the node stops");
                }
                // A start that fails drops what runs already.
                _ if *stopping.borrow() => {}
                _ => tracing::error!(task = named, "a task ended unexpectedly; the node stops"),
            }
            stopping.send_replace(true);
        });
        self.tasks.push((name, watched));
    }

    /// Starts the group of a shard.
    pub fn start_group(&mut self, shard: ShardId) -> TaskGroup {
        self.groups.entry(shard).or_insert_with(TaskGroup::start).clone()
    }

    /// All groups.
    #[must_use]
    pub fn groups(&self) -> Arc<BTreeMap<ShardId, TaskGroup>> {
        Arc::new(self.groups.clone())
    }

    /// Says that the node stops.
    pub fn begin_stop(&self) {
        self.stopping.send_replace(true);
    }

    /// Waits for every task.
    pub async fn join(self) {
        for (name, task) in self.tasks {
            if let Err(error) = task.await {
                tracing::error!(task = name, %error, "a task could not be joined");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_unexpected_end_stops_the_rest() {
        let mut tasks = Tasks::default();
        let mut stop = tasks.stop();
        tasks.spawn("patient".to_owned(), async move {
            let _ = stop.wait_for(|stopping| *stopping).await;
        });
        tasks.spawn("hasty".to_owned(), async { panic!("a defect") });
        let mut stopped = tasks.stop();
        stopped.wait_for(|stopping| *stopping).await.unwrap();
        tasks.join().await;
    }
}
