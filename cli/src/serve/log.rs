//! What is logged, and to where.

use std::ffi::OsStr;
use std::io::IsTerminal as _;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use tracing::{Event, Metadata};
use tracing_subscriber::layer::{Context, Filter};
use tracing_subscriber::prelude::*;
use tracing_subscriber::{EnvFilter, fmt};

/// What is logged unless `WEIR_LOG` says otherwise.
const LOGGED: &str = "warn,weir=info,openraft=error";
/// The library of the cache on disk says of each block that it could not write or read that it could not, with
/// all functions that led there: some KiB, on what may be the very disk that is full. It is heard once …
const TALKATIVE: &str = "foyer";
/// … in so long.
const QUIET_FOR: Duration = Duration::from_secs(60);

/// Logs to standard error from here on.
///
/// # Errors
/// `WEIR_LOG` says nothing to log by.
pub(super) fn begin() -> anyhow::Result<()> {
    let filter = log_filter(std::env::var_os("WEIR_LOG").as_deref())?;
    // Colours are for people: a file or a collector of logs would get their codes within every field.
    let is_colourful = is_colourful(std::io::stderr().is_terminal(), std::env::var_os("NO_COLOR").as_deref());
    let lines = fmt::layer().with_writer(std::io::stderr).with_ansi(is_colourful);
    // A line that nobody takes is lost. To say so on standard error too would panic.
    let lines = lines.log_internal_errors(false).with_filter(Seldom::default());
    tracing_subscriber::registry().with(lines).with(filter).init();
    Ok(())
}

/// People may not want them either, and say so for all programs in one variable (no-color.org).
fn is_colourful(is_terminal: bool, no_color: Option<&OsStr>) -> bool {
    is_terminal && no_color.is_none_or(OsStr::is_empty)
}

/// What is logged. Whoever misspells it would look in vain for what they asked for.
fn log_filter(wanted: Option<&OsStr>) -> anyhow::Result<EnvFilter> {
    let Some(wanted) = wanted.filter(|wanted| !wanted.is_empty()) else { return Ok(EnvFilter::new(LOGGED)) };
    let text = wanted.to_str().context("it is not UTF-8");
    let filter = text.and_then(|text| EnvFilter::try_new(text).map_err(Into::into));
    filter.with_context(|| {
        format!("WEIR_LOG={wanted:?} says nothing to log by; levels are error, warn, info, debug and trace, as in \"{LOGGED}\"")
    })
}

/// Lets through what a talkative library says once in a while, and everything else.
#[derive(Debug, Default)]
struct Seldom {
    heard: Mutex<Option<Instant>>,
}

impl Seldom {
    fn is_heard(&self, now: Instant) -> bool {
        let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        let is_heard = heard.is_none_or(|last| now.saturating_duration_since(last) >= QUIET_FOR);
        if is_heard {
            *heard = Some(now);
        }
        is_heard
    }
}

impl<S> Filter<S> for Seldom {
    fn enabled(&self, _: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        true
    }

    fn event_enabled(&self, event: &Event<'_>, _: &Context<'_, S>) -> bool {
        !event.metadata().target().starts_with(TALKATIVE) || self.is_heard(Instant::now())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_log_is_coloured_on_a_terminal_unless_that_is_not_wanted() {
        let on = |is_terminal, no_color: Option<&str>| is_colourful(is_terminal, no_color.map(OsStr::new));
        assert!(on(true, None) && on(true, Some("")), "a variable that is empty is none");
        assert!(!on(true, Some("1")) && !on(true, Some("0")) && !on(false, None));
    }

    #[test]
    fn a_filter_of_the_log_that_says_nothing_is_refused_by_name() {
        for wanted in [None, Some(""), Some("debug"), Some("warn,weir_gateway=trace")] {
            assert!(log_filter(wanted.map(OsStr::new)).is_ok(), "{wanted:?}");
        }
        for wanted in ["weir=loud", "warn,=", "weir=debug=trace"] {
            let error = log_filter(Some(OsStr::new(wanted))).unwrap_err();
            assert!(error.to_string().starts_with(&format!("WEIR_LOG={wanted:?}")), "{error}");
        }
    }

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn who_says_the_same_of_every_block_is_heard_once_and_everybody_else_always() {
        let lines = Lines::default();
        let to = lines.clone();
        let layer = fmt::layer().with_writer(move || to.clone()).with_filter(Seldom::default());
        let log = tracing_subscriber::registry().with(layer).with(EnvFilter::new(LOGGED));
        tracing::subscriber::with_default(log, || {
            for _ in 0..9 {
                tracing::error!(target: "foyer_storage::engine::block::flusher", "no space left");
                tracing::warn!(target: "weir_storage_node::server::room", "no room");
                tracing::debug!(target: "weir_storage_node::server::room", "not asked for");
            }
        });
        let said = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        let count = |what: &str| said.matches(what).count();
        assert_eq!((count("no space left"), count("no room"), count("not asked for")), (1, 9, 0), "{said}");
    }

    #[test]
    fn it_is_heard_again_after_a_while() {
        let (seldom, began) = (Seldom::default(), Instant::now());
        let heard = |seconds| seldom.is_heard(began + Duration::from_secs(seconds));
        assert_eq!([0, 59, 60, 61, 119, 120].map(heard), [true, false, true, false, false, true]);
    }
}
