//! A handle to one peer.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};
use weir_protocol::ids::ShardId;
use weir_protocol::rpc::{Method, Welcome};

use super::answers::Answers;
use super::config::LinkConfig;
use super::connect::Connect;
use super::connection::Connection;
use super::error::{CallError, NotSent};
use super::supervisor::{LinkState, supervise};
use crate::task_group;

/// One peer at one priority, connected in the background and again whenever the connection ends. Clones share
/// the connection; it is closed when the last clone and the last [`Answers`] are gone.
///
/// While an attempt to connect is under way calls wait for it; between attempts they fail at once with
/// [`NotSent::Down`].
#[derive(Clone)]
pub struct Link {
    state: watch::Receiver<LinkState>,
    config: Arc<LinkConfig>,
    /// Calls in flight beyond which this handle's are not sent.
    calls_max: usize,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("priority", &self.config.priority).finish_non_exhaustive()
    }
}

impl Link {
    /// Starts connecting, in the task group that the caller is part of, if any. Must be called within a tokio runtime.
    #[must_use]
    pub fn new(config: LinkConfig, connect: Arc<dyn Connect>) -> Self {
        let config = Arc::new(config);
        let (sender, state) = watch::channel(LinkState::Connecting);
        drop(task_group::spawn(supervise(Arc::clone(&config), connect, Arc::new(sender))));
        Self { state, calls_max: config.calls_max, config }
    }

    /// The same link for calls that leave places to others: they are not sent while `calls_max` are in flight,
    /// whoever made them. For what is not answered soon, so that what is always finds a place.
    #[must_use]
    pub fn leaving_places(&self, calls_max: usize) -> Self {
        Self { calls_max: calls_max.min(self.config.calls_max), ..self.clone() }
    }

    /// Calls, and waits for the one answer at most `deadline`, connecting included.
    ///
    /// # Errors
    /// [`CallError`]; the caller decides what a retry means.
    ///
    /// # Cancel safety
    /// If it is dropped, the peer is told to stop; the outcome is unknown.
    pub async fn call(
        &self,
        method: Method,
        shard: ShardId,
        segments: Vec<Bytes>,
        deadline: Duration,
    ) -> Result<Bytes, CallError> {
        let until = Instant::now() + deadline;
        let connection = self.connection(until).await?;
        let mut waiting = connection.call(self.calls_max, method, shard, segments)?;
        match timeout_at(until, waiting.wait()).await {
            Ok(answer) => answer,
            Err(_) => Err(CallError::Deadline),
        }
    }

    /// Calls a method with several answers.
    ///
    /// # Errors
    /// [`CallError::NotSent`]; everything later is an item of the answers.
    pub async fn open(
        &self,
        method: Method,
        shard: ShardId,
        segments: Vec<Bytes>,
    ) -> Result<Answers, CallError> {
        let until = Instant::now() + self.config.connect_timeout + self.config.handshake_deadline;
        let connection = self.connection(until).await?;
        let (call, source) = connection.open(self.calls_max, method, shard, segments)?;
        Ok(Answers::new(connection, call, source, self.clone()))
    }

    /// What the peer said of itself, if the link is up now.
    #[must_use]
    pub fn welcome(&self) -> Option<Arc<Welcome>> {
        match &*self.state.borrow() {
            LinkState::Up(_, welcome) => Some(Arc::clone(welcome)),
            LinkState::Connecting | LinkState::Down(_) => None,
        }
    }

    /// Waits until the link is up and returns what the peer said of itself.
    ///
    /// # Errors
    /// [`NotSent::Down`] if an attempt fails, [`NotSent::Connecting`] at the deadline.
    pub async fn connected(&self, deadline: Duration) -> Result<Arc<Welcome>, NotSent> {
        self.up(Instant::now() + deadline).await.map(|(_, welcome)| welcome)
    }

    async fn connection(&self, until: Instant) -> Result<Arc<Connection>, NotSent> {
        if let LinkState::Up(connection, _) = &*self.state.borrow() {
            return Ok(Arc::clone(connection));
        }
        self.up(until).await.map(|(connection, _)| connection)
    }

    async fn up(&self, until: Instant) -> Result<(Arc<Connection>, Arc<Welcome>), NotSent> {
        let mut state = self.state.clone();
        let settled = state.wait_for(|state| !matches!(state, LinkState::Connecting));
        match timeout_at(until, settled).await {
            Err(_) => Err(NotSent::Connecting),
            // The supervisor is gone: the runtime is shutting down.
            Ok(Err(_)) => Err(NotSent::Ended),
            Ok(Ok(state)) => match &*state {
                LinkState::Up(connection, welcome) => Ok((Arc::clone(connection), Arc::clone(welcome))),
                LinkState::Down(error) => Err(NotSent::Down(Arc::clone(error))),
                LinkState::Connecting => unreachable!("waited for another state"),
            },
        }
    }
}
