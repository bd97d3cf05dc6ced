//! Those writers and readers of a run that live in this process.

use std::sync::Arc;
use std::time::Instant;

use anyhow::Context as _;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::door::Door;
use super::node::NodeReader;
use super::reader::Reader;
use super::shape::Consumption;
use super::sse::SseReader;
use super::worker::Worker;
use super::writer::Writer;
use super::ws_worker::WsWorker;
use super::{Shared, reader};
use crate::args::{Over, Transport};
use crate::bench::schedule::{self, Window};
use crate::bench::tally::Tally;
use crate::bench::target::Reach;
use crate::client::Encoding;

/// Which members are meant: those whose number leaves `client` when divided by `clients`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Members {
    pub(super) client: u32,
    pub(super) clients: u32,
}

impl Members {
    pub(super) const ALL: Self = Self { client: 0, clients: 1 };

    fn of(self, count: u32) -> impl Iterator<Item = u32> {
        (self.client..count).step_by(self.clients as usize)
    }
}

/// Connected writers and readers.
pub(super) struct Crew {
    waiting: (Vec<Writer>, Vec<Consumer>),
    written: watch::Sender<bool>,
    writing: JoinSet<anyhow::Result<Tally>>,
    reading: JoinSet<anyhow::Result<Tally>>,
}

impl Crew {
    pub(super) async fn connect(reach: &Reach, shared: &Arc<Shared>, who: Members) -> anyhow::Result<Self> {
        let shape = &shared.shape;
        let door = Door::open(reach, shape.transport).await?;
        let consumers = connected(who.of(shape.readers), |n| consumer(&door, shared, n)).await?;
        let writers = connected(who.of(shape.writers), |n| Writer::connect(&door, shared, n)).await?;
        Ok(Self {
            waiting: (writers, consumers),
            written: watch::Sender::new(false),
            writing: JoinSet::new(),
            reading: JoinSet::new(),
        })
    }

    /// Everybody begins at `start`.
    pub(super) fn begin(&mut self, start: Instant, window: Window) {
        let (writers, consumers) = std::mem::take(&mut self.waiting);
        for consumer in consumers {
            consumer.spawn(&mut self.reading, window, self.written.subscribe());
        }
        let ticks = schedule::ticks(start);
        for writer in writers {
            self.writing.spawn(writer.run(window, ticks.clone()));
        }
    }

    /// Until all that these writers sent is confirmed; what they saw.
    pub(super) async fn write(&mut self) -> anyhow::Result<Tally> {
        joined(&mut self.writing).await
    }

    /// Tells readers that all is written, by whomever: [`Shared::sent`] says what.
    pub(super) fn all_is_written(&self) {
        self.written.send_replace(true);
    }

    /// Until the readers have got it all; what they saw.
    pub(super) async fn read(&mut self) -> anyhow::Result<Tally> {
        joined(&mut self.reading).await
    }

    /// What [`Crew::all_is_written`] sets.
    pub(super) fn written(&self) -> watch::Sender<bool> {
        self.written.clone()
    }
}

/// What readers and workers have in common.
pub(super) enum Consumer {
    Reader(Box<Reader>),
    Node(Box<NodeReader>),
    Sse(SseReader),
    Worker(Worker),
    WsWorker(Box<WsWorker>),
}

impl Consumer {
    pub(super) fn spawn(
        self,
        tasks: &mut JoinSet<anyhow::Result<Tally>>,
        window: Window,
        written: watch::Receiver<bool>,
    ) {
        match self {
            Self::Reader(reader) => tasks.spawn(reader.run(window, written)),
            Self::Node(reader) => tasks.spawn(reader.run(window, written)),
            Self::Sse(reader) => tasks.spawn(reader.run(window, written)),
            Self::Worker(worker) => tasks.spawn(worker.run(window, written)),
            Self::WsWorker(worker) => tasks.spawn(worker.run(window, written)),
        };
    }
}

/// Connects one that reads or works.
pub(super) async fn consumer(door: &Door, shared: &Arc<Shared>, number: u32) -> anyhow::Result<Consumer> {
    let shape = &shared.shape;
    Ok(match (shape.consumption, door) {
        (Consumption::Queue { prefetch, over: Over::Http }, _) => {
            Consumer::Worker(Worker::connect(door.gateway()?, shared, prefetch).await?)
        }
        (Consumption::Queue { prefetch, over }, _) => {
            let encoding = if over == Over::Ws { Encoding::Binary } else { Encoding::Json };
            Consumer::WsWorker(Box::new(
                WsWorker::connect(door.gateway()?, shared, encoding, prefetch).await?,
            ))
        }
        (_, Door::Node(node)) => Consumer::Node(Box::new(NodeReader::connect(node, shared, number).await?)),
        (_, Door::Gateway(connect)) if shape.transport == Transport::Sse => {
            Consumer::Sse(SseReader::connect(connect, shared, number).await?)
        }
        (_, Door::Gateway(connect)) => {
            Consumer::Reader(Box::new(reader::Reader::connect(connect, shared, number).await?))
        }
    })
}

/// Connects all at once, since each waits for answers.
async fn connected<T, F>(
    numbers: impl Iterator<Item = u32>,
    connect: impl Fn(u32) -> F,
) -> anyhow::Result<Vec<T>>
where
    F: Future<Output = anyhow::Result<T>>,
{
    futures_util::future::try_join_all(numbers.map(connect)).await
}

/// What all tasks saw, once they are done.
pub(super) async fn joined(tasks: &mut JoinSet<anyhow::Result<Tally>>) -> anyhow::Result<Tally> {
    let mut tally = Tally::new();
    while let Some(task) = tasks.join_next().await {
        tally.add(&task.context("a task of the run failed")??);
    }
    Ok(tally)
}
