//! File descriptors: as many as the system allows, and of these a share that connections leave to the journal.
//!
//! A connection for which there is none is only not accepted; a journal that cannot open its next file takes no
//! publish.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// What a process has open besides connections and files of the journal: the log, sockets, the runtime, checkpoints,
/// and connections that are being turned away.
const BASE: u64 = 160;
/// Of those of the store: its connections, and files of the cache.
const STORE: u64 = 128;
/// Open for each file that the journal may have: itself, another handle or its sidecar, and as much for a carried file.
const PER_JOURNAL_FILE: u64 = 4;
/// Files of a journal without a bound that are reckoned with.
const JOURNAL_FILES_MAX: u64 = 1_024;
/// Connections have this part at least of few descriptors: then the journal has as many files as it needs now.
const CONNECTIONS_PART: u64 = 4;

/// Raises the number of files that the process may open to the most that it may ask for; gives what it is then.
pub(super) fn raise() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    // An unlimited hard limit is more than some systems take: then it stays what it was.
    if limit.current != limit.maximum
        && let Err(error) = setrlimit(Resource::Nofile, raised)
    {
        tracing::info!(%error, "the limit of open files stays as it is");
    }
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// What a node with a journal of so many bytes, in files of so many, may need.
pub(super) fn of_node(journal_bytes: u64, file_bytes: u32, has_store: bool) -> u64 {
    let files = (journal_bytes / u64::from(file_bytes)).min(JOURNAL_FILES_MAX) + 3;
    BASE + PER_JOURNAL_FILE * files + if has_store { STORE } else { 0 }
}

/// Connections for which there are descriptors: at most as many as are `asked` for.
pub(super) fn connections(limit: u64, own: u64, asked: usize) -> usize {
    let left = limit.saturating_sub(own).max(limit / CONNECTIONS_PART).max(1);
    let fit = usize::try_from(left).unwrap_or(usize::MAX);
    if fit < asked {
        tracing::warn!(
            limit,
            needed = own.saturating_add(asked as u64),
            connections = fit,
            "too few file descriptors for --connections-max: fewer connections are accepted; raise the limit (ulimit -n, LimitNOFILE)"
        );
    }
    asked.min(fit)
}

/// What a gateway alone has open besides connections of its clients.
pub(super) const OF_GATEWAY: u64 = BASE;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_the_journal_its_files() {
        let own = of_node(8 << 30, 128 << 20, false);
        assert_eq!(own, 160 + 4 * 67);
        assert_eq!(connections(1 << 20, own, 10_000), 10_000);
        assert_eq!(connections(1_024, own, 10_000), 1_024 - 428);
        assert_eq!(connections(1_024, own, 500), 500);
        // The journal has not as many files yet as it may have.
        assert_eq!(connections(256, of_node(8 << 30, 16 << 20, false), 10_000), 64);
        assert_eq!(
            (of_node(u64::MAX / 2, 128 << 20, true), connections(0, 1, 5)),
            (160 + 4 * 1_027 + 128, 1)
        );
    }

    #[test]
    fn the_process_may_open_as_many_files_as_it_may_ask_for() {
        let now = raise();
        let limit = getrlimit(Resource::Nofile);
        assert_eq!(limit.current.unwrap_or(u64::MAX), now);
        assert!(limit.maximum.is_none() || limit.current == limit.maximum, "{limit:?}");
    }
}
