//! What all readers do, wherever their messages come from: take what comes until everything is there.

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::watch;

use super::{DRAIN_QUIET_MAX, Shared};
use crate::bench::check::{Check, Faults};
use crate::bench::schedule::Window;
use crate::bench::tally::Tally;

/// Where the messages of a reader come from.
pub(super) trait Source: Send {
    /// Waits for what comes next and has it checked.
    ///
    /// # Cancel safety
    /// It waits before it takes, so nothing is lost if it is dropped.
    fn take(&mut self, check: &mut Check, window: &Window)
    -> impl Future<Output = anyhow::Result<()>> + Send;

    /// Takes what came along, and asks for more. Not dropped before its end.
    fn finish_turn(
        &mut self,
        _check: &mut Check,
        _window: &Window,
    ) -> impl Future<Output = anyhow::Result<()>> + Send {
        std::future::ready(Ok(()))
    }
}

/// Reads until everything that the writers of reader `number` sent has arrived, or nothing comes any more.
pub(super) async fn read_all(
    mut source: impl Source,
    (number, started): (u32, Instant),
    shared: Arc<Shared>,
    window: Window,
    mut all_written: watch::Receiver<bool>,
) -> anyhow::Result<Tally> {
    let sent = |writer| shared.sent_by(writer);
    let mut check = Check::new(shared.writers_of(number), window);
    let freezes = shared.shape.freezes(number);
    let (mut knows_end, mut quiet_since) = (false, Instant::now());
    while !(knows_end && check.has_all(sent)) {
        if freezes && window.counts(window.now_ns()) {
            return frozen(source, check, all_written).await;
        }
        let before = check.delivered();
        tokio::select! {
            biased;
            taken = source.take(&mut check, &window) => taken?,
            written = all_written.wait_for(|written| *written), if !knows_end => {
                drop(written?);
                knows_end = true;
            }
            () = tokio::time::sleep(DRAIN_QUIET_MAX), if knows_end => {}
        }
        source.finish_turn(&mut check, &window).await?;
        // What keeps a stream alive is no message.
        if check.delivered() > before || !knows_end {
            quiet_since = Instant::now();
        } else if quiet_since.elapsed() >= DRAIN_QUIET_MAX {
            break;
        }
    }
    let mut tally = Tally::new();
    tally.replay.record_time(started.elapsed());
    tally.read(&check, sent);
    Ok(tally)
}

/// Nothing is read any more, and the connection stays. What came until then was in order and came once; how
/// long it took is not told, since who is frozen later is not what is asked.
async fn frozen(
    source: impl Source,
    check: Check,
    mut all_written: watch::Receiver<bool>,
) -> anyhow::Result<Tally> {
    all_written.wait_for(|written| *written).await?;
    drop(source);
    let mut tally = Tally::new();
    tally.faults = Faults { missing: 0, ..check.faults(|_| 0) };
    Ok(tally)
}
