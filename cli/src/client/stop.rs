//! Commands that go on until they are told to stop: by Ctrl-C, or as supervisors do it, by SIGTERM.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Whether somebody wants the command to stop. From when it is made neither signal ends the process.
pub(crate) struct Stop {
    interrupt: Signal,
    terminate: Signal,
    is_wanted: bool,
}

impl Stop {
    /// Starts to listen.
    pub(crate) fn catch() -> std::io::Result<Self> {
        let (interrupt, terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        Ok(Self { interrupt, terminate, is_wanted: false })
    }

    /// Waits for it; from then on it answers at once.
    ///
    /// # Cancel safety
    /// Nothing is missed between two waits.
    pub(crate) async fn wanted(&mut self) {
        if self.is_wanted {
            return;
        }
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
        self.is_wanted = true;
    }
}
