//! Opening a node's journal beside whoever may not want it any more: reading one may take minutes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use weir_journal::{Disk, Identity, Journal, JournalConfig, OpenError, Recovered};

use crate::config::{Backend, NodeConfig, SyncMode};

/// A journal, what it holds, and whose it is.
pub(crate) type Opened = (Journal, Recovered, Identity);

/// Returns once `stop` says so; never if nobody can say so any more.
pub(crate) async fn not_wanted(mut stop: watch::Receiver<bool>) {
    if stop.wait_for(|stop| *stop).await.is_err() {
        std::future::pending().await
    }
}

/// Opens the journal, or makes it for node `node_id` of a new cluster, where it may block.
///
/// # Errors
/// [`OpenError`]: `GivenUp` soon after `stop` says so.
///
/// # Cancel safety
/// It is opened all the same, and closed.
pub(crate) async fn open_journal(
    config: &NodeConfig,
    node_id: u64,
    disk: &Arc<dyn Disk>,
    stop: watch::Receiver<bool>,
) -> Result<Opened, OpenError> {
    let given_up = Arc::new(AtomicBool::new(false));
    let (config, disk, asked) = (config.clone(), Arc::clone(disk), Arc::clone(&given_up));
    let mut opening = tokio::task::spawn_blocking(move || open(&config, node_id, &disk, &asked));
    let opened = tokio::select! {
        opened = &mut opening => opened,
        () = not_wanted(stop) => {
            given_up.store(true, Ordering::Relaxed);
            opening.await
        }
    };
    opened.unwrap_or_else(|panicked| std::panic::resume_unwind(panicked.into_panic()))
}

fn open(
    config: &NodeConfig,
    node_id: u64,
    disk: &Arc<dyn Disk>,
    given_up: &AtomicBool,
) -> Result<Opened, OpenError> {
    let fresh = Identity { cluster_id: ulid::Ulid::new().0, node_id };
    let identity = Identity::of_dir(&config.data_dir, &**disk)?.unwrap_or(fresh);
    let journal = JournalConfig {
        file_bytes: config.journal_file_bytes,
        max_bytes: config.journal_max_bytes,
        control_reserve_bytes: (64 << 20).min(config.journal_max_bytes / 8),
        sync: match config.sync {
            SyncMode::Always => weir_journal::SyncMode::Always,
            SyncMode::Os => weir_journal::SyncMode::Os,
        },
        backend: match config.backend {
            Backend::Auto => weir_journal::Backend::Auto,
            Backend::Buffered => weir_journal::Backend::Pwrite,
            Backend::Direct => weir_journal::Backend::Direct,
        },
        min_fsync_interval: Duration::from_micros(config.min_sync_interval_us),
        inline_commit_max: Duration::from_micros(config.inline_commit_max_us),
        pending_bytes_max: config.journal_pending_bytes,
        index_bytes_max: config.journal_index_bytes,
        // The tail ring serves live readers; the journal's own memory is for what is in flight.
        recent_bytes_max: 1 << 20,
        ..JournalConfig::new(&config.data_dir, identity)
    };
    let (journal, recovered) = Journal::open_unless(journal, Arc::clone(disk), given_up)?;
    if let Some(torn) = &recovered.torn_tail {
        tracing::warn!(path = %torn.path.display(), pos = torn.pos, "cut an unacknowledged tail of the journal");
    }
    Ok((journal, recovered, identity))
}
