//! The task behind a link: connects, serves, backs off, until nobody holds the link.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use weir_protocol::rpc::Welcome;

use super::config::LinkConfig;
use super::connect::Connect;
use super::connection::Connection;
use super::error::ConnectError;
use crate::handshake::{self, EARLY_BODY_BYTES_MAX, HandshakeError};
use crate::metrics;
use crate::outbox::FrameWriter;
use crate::wire::{FrameReader, Wire, after_handshake};

/// What a link is.
#[derive(Debug, Clone)]
pub(super) enum LinkState {
    /// An attempt is under way.
    Connecting,
    /// Connected.
    Up(Arc<Connection>, Arc<Welcome>),
    /// The last attempt failed; the next one comes after a pause.
    Down(Arc<ConnectError>),
}

struct Opened {
    reader: FrameReader,
    writer: FrameWriter,
    welcome: Welcome,
}

/// Keeps `state` true until every receiver of it is gone, then closes the connection.
pub(super) async fn supervise(
    config: Arc<LinkConfig>,
    connect: Arc<dyn Connect>,
    state: Arc<watch::Sender<LinkState>>,
) {
    let abandoned = Arc::clone(&state);
    tokio::select! {
        () = abandoned.closed() => {}
        () = keep_connected(&config, &*connect, &state) => {}
    }
}

async fn keep_connected(config: &Arc<LinkConfig>, connect: &dyn Connect, state: &watch::Sender<LinkState>) {
    let mut pause = config.backoff_min;
    let mut was_up = true;
    loop {
        let error = match open(config, connect).await {
            Ok(opened) => {
                if !was_up {
                    tracing::info!(peer = config.peer, priority = ?config.priority, "peer is connected");
                }
                was_up = true;
                pause = config.backoff_min;
                serve(config, opened, state).await
            }
            Err(error) => error,
        };
        // The first failure in a row is told, the others repeat it. Nobody is told who has let go of the link.
        if was_up && !state.is_closed() {
            tracing::warn!(peer = config.peer, priority = ?config.priority, %error, "peer is not connected");
        }
        was_up = false;
        state.send_replace(LinkState::Down(Arc::new(error)));
        sleep(jittered(pause, rand::random())).await;
        pause = (pause * 2).min(config.backoff_max);
        state.send_replace(LinkState::Connecting);
    }
}

/// A pause from the upper half of `pause`, by a random number.
fn jittered(pause: Duration, random: u32) -> Duration {
    pause / 2 + (pause / 2).mul_f64(f64::from(random) / f64::from(u32::MAX))
}

async fn open(config: &LinkConfig, connect: &dyn Connect) -> Result<Opened, ConnectError> {
    let wire = timeout(config.connect_timeout, connect.connect()).await;
    let Wire { reader, mut writer, crossing } =
        wire.map_err(|_| ConnectError::Timeout(config.connect_timeout))?.map_err(ConnectError::Io)?;
    let mut reader = FrameReader::new(reader, EARLY_BODY_BYTES_MAX, Arc::clone(&config.metrics));
    let introduced = handshake::introduce(&mut reader, &mut writer, &config.hello);
    let welcome = match timeout(config.handshake_deadline, introduced).await {
        Ok(welcome) => welcome,
        Err(_) => Err(HandshakeError::Deadline(config.handshake_deadline)),
    };
    let welcome = welcome.map_err(|error| {
        metrics::add(&config.metrics.handshakes_failed, 1);
        ConnectError::Handshake(error)
    })?;
    let writer = after_handshake(crossing, &mut reader, writer);
    Ok(Opened { reader, writer, welcome })
}

/// Serves calls until the connection ends; returns why.
async fn serve(config: &Arc<LinkConfig>, opened: Opened, state: &watch::Sender<LinkState>) -> ConnectError {
    let Opened { reader, writer, welcome } = opened;
    let connection = Arc::new(Connection::new(Arc::clone(config)));
    metrics::add(&config.metrics.connections, 1);
    metrics::add(&config.metrics.connections_opened, 1);
    let writer_ended = CancellationToken::new();
    let (written, ended) = (Arc::clone(&connection), writer_ended.clone().drop_guard());
    let writing = tokio::spawn(async move {
        let _ended = ended;
        written.outbox.run(writer).await
    });
    let _end = EndOfConnection { connection: &connection, config, writing };
    state.send_replace(LinkState::Up(Arc::clone(&connection), Arc::new(welcome)));
    let reason = connection.run(reader, &writer_ended).await;
    ConnectError::Ended(reason.to_string())
}

/// However serving ends, also by being dropped with its link, every waiter is told.
struct EndOfConnection<'a> {
    connection: &'a Connection,
    config: &'a LinkConfig,
    writing: tokio::task::JoinHandle<std::io::Result<()>>,
}

impl Drop for EndOfConnection<'_> {
    fn drop(&mut self) {
        self.connection.close();
        self.writing.abort();
        metrics::sub(&self.config.metrics.connections, 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_are_drawn_from_the_upper_half_of_their_range() {
        let pause = Duration::from_millis(100);
        assert_eq!(jittered(pause, 0), Duration::from_millis(50));
        assert_eq!(jittered(pause, u32::MAX), Duration::from_millis(100));
    }
}
