//! Commands that go on until they are told to stop: by Ctrl-C, or as supervisors do it, by SIGTERM.

use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

/// A command that was told to stop ends within this, whatever keeps it, unless it says otherwise.
const END_TIME_MAX: Duration = Duration::from_secs(5);

/// Whether somebody wants the command to stop. From when it is made the first of either signal does not end
/// the process; the second does, and so does time: a command that waits in vain for its output to be taken
/// hears of nothing.
pub(crate) struct Stop(watch::Receiver<bool>);

impl Stop {
    /// Starts to listen. Must be called within a runtime.
    pub(crate) fn catch() -> std::io::Result<Self> {
        Self::catch_for(END_TIME_MAX)
    }

    /// The same for who may need so long to clean up.
    pub(crate) fn catch_for(end_time_max: Duration) -> std::io::Result<Self> {
        let (interrupt, terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        let (tell, wanted) = watch::channel(false);
        tokio::spawn(listen(interrupt, terminate, tell, end_time_max));
        Ok(Self(wanted))
    }

    /// Waits for it; from then on it answers at once.
    ///
    /// # Cancel safety
    /// Nothing is missed between two waits.
    pub(crate) async fn wanted(&mut self) {
        let told = self.0.wait_for(|is_wanted| *is_wanted).await;
        drop(told.expect("who listens does so as long as the process lives"));
    }
}

/// On a thread of its own, since the one of the command may be held up by whoever does not read what it
/// prints. For the same reason nothing is said.
async fn listen(
    mut interrupt: Signal,
    mut terminate: Signal,
    tell: watch::Sender<bool>,
    end_time_max: Duration,
) {
    let mut next = async || {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    };
    next().await;
    tell.send_replace(true);
    let _ = tokio::time::timeout(end_time_max, next()).await;
    std::process::exit(1);
}
