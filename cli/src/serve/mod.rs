//! The long-running commands: `weir dev` is a storage node and a gateway in one process, which speak the
//! internal protocol through memory; `weir node` and `weir gateway` are one of them each.
//!
//! All of them log to standard error, write a ready file for scripts, drain on SIGTERM and SIGINT, and end with an
//! error if they stopped by themselves.

mod admin;
mod args;
mod descriptors;
mod dev;
mod gateway;
mod limits;
mod log;
mod node;
mod prices;

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::time::Duration;

use anyhow::Context as _;
use prometheus::Registry;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use weir_gateway::{ClientLimits, GatewayConfig, RunningGateway, TlsSource, WsDeflate};
use weir_protocol::ws::Secret;
use weir_storage_node::{Node, NodeConfig, RunningNode, StartError, Surroundings};

pub(crate) use args::{DevArgs, GatewayArgs, NodeArgs};
pub(crate) use dev::run as dev;
pub(crate) use gateway::run as gateway;
pub(crate) use node::run as node;

use crate::output;

/// What is in flight may take this long to finish at the end.
const DRAIN_TIME: Duration = Duration::from_secs(5);
/// Longest secret of a cluster.
const SECRET_BYTES_MAX: usize = 1 << 10;

/// What the operating system asks for. Caught from the start: nobody who asks for the certificate to be read anew
/// means to end the process.
struct Signals {
    hangup: Signal,
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Starts logging and catches signals. Must be called within a runtime.
    fn catch() -> anyhow::Result<Self> {
        log::begin()?;
        Ok(Self {
            hangup: signal(SignalKind::hangup())?,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Waits until somebody wants it to stop. Until then `gateway`'s certificate is read anew at every SIGHUP.
    async fn stop(&mut self, gateway: Option<&RunningGateway>) {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return,
                _ = self.interrupt.recv() => return,
                Some(()) = self.hangup.recv() => match gateway.map(RunningGateway::reload_certificate) {
                    Some(Ok(())) => tracing::info!("read the certificate anew"),
                    Some(Err(error)) => tracing::error!(%error, "the certificate in use stays"),
                    None => {}
                },
            }
        }
    }
}

/// Whoever starts one is told one thing at a time.
fn first_of(faults: Vec<anyhow::Error>) -> anyhow::Result<()> {
    faults.into_iter().next().map_or(Ok(()), Err)
}

/// Starts a node; `None` if somebody wanted it to stop meanwhile, which ended it.
async fn start_node(
    signals: &mut Signals,
    config: NodeConfig,
    registry: Registry,
) -> anyhow::Result<Option<RunningNode>> {
    let data_dir = config.data_dir.clone();
    let (ask, stop) = watch::channel(false);
    let around = Surroundings { registry, stop, ..Surroundings::default() };
    let mut start = pin!(Node::start_in(config, around));
    let started = tokio::select! {
        started = &mut start => started,
        () = signals.stop(None) => {
            stopping();
            ask.send_replace(true);
            start.await
        }
    };
    match started {
        // It was just done when it was told.
        Ok(node) if *ask.borrow() => {
            node.shutdown(DRAIN_TIME).await;
            Ok(None)
        }
        Ok(node) => Ok(Some(node)),
        Err(StartError::Stopped) => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot start on {}", data_dir.display())),
    }
}

fn gateway_config(args: &args::EdgeArgs, prices: &prices::PriceArgs, storage: String) -> GatewayConfig {
    let tls = args.tls_cert.as_ref().zip(args.tls_key.as_ref());
    GatewayConfig {
        listen: args.listen,
        storage,
        insecure_public: args.insecure_public,
        behind_proxy: args.behind_proxy,
        base_path: args.base_path.clone(),
        hosts: args.host_names.clone(),
        origins: args.origins.clone(),
        console_prefix: args.console_prefix.clone(),
        record_bytes_max: usize::try_from(args.record_max).unwrap_or(usize::MAX),
        connections_max: usize::try_from(args.connections_max).unwrap_or(usize::MAX),
        request_bytes_max: usize::try_from(args.request_bytes_max).unwrap_or(usize::MAX),
        answer_bytes_max: args.answer_bytes_max,
        publish_bytes_max: usize::try_from(args.publish_bytes_max).unwrap_or(usize::MAX),
        read_credit_bytes_max: args.read_credit_bytes_max,
        feed_bytes_max: args.feed_bytes_max,
        topics_max: args.topics_max as usize,
        ws_deflate: match args.ws_deflate.as_str() {
            "off" => WsDeflate::Off,
            "all" => WsDeflate::All,
            _ => WsDeflate::Json,
        },
        storage_prices: prices.for_gateway(),
        limits: ClientLimits {
            handshake_time_max: Duration::from_millis(args.handshake_ms_max),
            ..ClientLimits::default()
        },
        tls: tls.map(|(cert, key)| TlsSource::Files { cert: cert.clone(), key: key.clone() }),
        ..GatewayConfig::default()
    }
}

/// The secret in a file, without the line feed at its end.
fn secret(path: Option<&Path>) -> anyhow::Result<Option<Secret>> {
    let Some(path) = path else { return Ok(None) };
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let secret = text.trim_end_matches(['\r', '\n']);
    anyhow::ensure!(
        !secret.is_empty() && secret.len() <= SECRET_BYTES_MAX,
        "{} holds no secret of 1 to {SECRET_BYTES_MAX} bytes",
        path.display()
    );
    Ok(Some(Secret(secret.to_owned())))
}

/// Sees to it, before anything is begun, that [`ready`] will be able to write. What is there stays: it may be
/// of somebody who runs.
fn check_ready_file(file: Option<&Path>) -> anyhow::Result<()> {
    let Some(path) = file.filter(|path| !is_special(path)) else { return Ok(()) };
    let is_new = !path.exists();
    // Whoever waits for the file must not see one that is tried.
    if is_new && !path.is_symlink() && try_beside(path).is_ok() {
        return Ok(());
    }
    OpenOptions::new().append(true).create(true).open(path).with_context(|| cannot_write(path))?;
    if !is_new {
        return Ok(());
    }
    // Of a link what it leads to.
    path.canonicalize().and_then(std::fs::remove_file).with_context(|| cannot_write(path))
}

/// Whether [`replace`] will be able to make its file.
fn try_beside(path: &Path) -> std::io::Result<()> {
    let beside = beside(path);
    let is_new = !beside.exists();
    OpenOptions::new().append(true).create(true).open(&beside)?;
    if is_new { std::fs::remove_file(&beside) } else { Ok(()) }
}

/// Tells scripts that everything answers. Whoever sees the file sees all of it, unless nothing can take its
/// place: it is a link, say one to what a shell made of standard output, or was mounted there, or lies in
/// somebody else's directory.
fn ready(file: Option<&Path>, text: &str) -> anyhow::Result<()> {
    let Some(path) = file else { return Ok(()) };
    let written = if is_special(path) || path.is_symlink() {
        std::fs::write(path, text)
    } else {
        replace(path, text).or_else(|_| std::fs::write(path, text))
    };
    written.with_context(|| cannot_write(path))
}

/// Puts a file in its place as a whole.
fn replace(path: &Path, text: &str) -> std::io::Result<()> {
    let beside = beside(path);
    let replaced = std::fs::write(&beside, text).and_then(|()| std::fs::rename(&beside, path));
    replaced.inspect_err(|_| _ = std::fs::remove_file(&beside))
}

fn beside(path: &Path) -> PathBuf {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    beside.into()
}

/// A pipe or a terminal is written as it is.
fn is_special(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|found| !found.is_file() && !found.is_dir())
}

fn cannot_write(path: &Path) -> String {
    format!("--ready-file: cannot write {}", path.display())
}

fn stopping() {
    output::note("stopping: finishing what is in flight");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ready_file_is_there_whole_when_everything_is_and_a_place_for_none_is_refused_before() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ready");
        check_ready_file(Some(&path)).unwrap();
        assert!(!path.exists(), "not yet");
        for text in ["http://127.0.0.1:1", "http://127.0.0.1:2"] {
            ready(Some(&path), text).unwrap();
            check_ready_file(Some(&path)).unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "nothing beside it");
        for nowhere in [dir.path().join("missing/ready"), dir.path().to_owned()] {
            let error = check_ready_file(Some(&nowhere)).unwrap_err();
            assert!(error.to_string().starts_with("--ready-file: cannot write "), "{error}");
        }
        let (link, elsewhere) = (dir.path().join("link"), dir.path().join("elsewhere"));
        std::os::unix::fs::symlink(&elsewhere, &link).unwrap();
        for text in ["http://127.0.0.1:1", "http://127.0.0.1:2"] {
            check_ready_file(Some(&link)).unwrap();
            ready(Some(&link), text).unwrap();
            assert!(link.is_symlink(), "it is somebody's, who looks where it leads");
            assert_eq!(std::fs::read_to_string(&elsewhere).unwrap(), text);
        }
        let device = Path::new("/dev/null");
        check_ready_file(Some(device)).and_then(|()| ready(Some(device), "x")).unwrap();
        assert!(is_special(device), "what is no file is left as it is");
    }

    #[test]
    fn who_waits_for_a_ready_file_sees_none_before_everything_is_ready() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ready");
        let is_over = std::sync::atomic::AtomicBool::new(false);
        let seen = std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                    if path.exists() {
                        return true;
                    }
                }
                false
            });
            (0..2_000).for_each(|_| check_ready_file(Some(&path)).unwrap());
            is_over.store(true, std::sync::atomic::Ordering::Relaxed);
            waiting.join().unwrap()
        });
        assert!(!seen, "a file that says nothing");
    }

    #[test]
    fn a_secret_is_the_files_text_and_an_empty_or_missing_file_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secret");
        assert!(secret(Some(&path)).is_err());
        for (text, expected) in [("s3cret\r\n", Some("s3cret")), (" x ", Some(" x ")), ("\n", None)] {
            std::fs::write(&path, text).unwrap();
            let found = secret(Some(&path)).ok().flatten().map(|secret| secret.0);
            assert_eq!(found.as_deref(), expected, "{text:?}");
        }
        assert_eq!(secret(None).unwrap(), None);
    }
}
