//! The product under test, and what the operating system and its metrics say of it.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde::Serialize;
use tokio::process::{Child, Command};

use crate::args::{BenchTarget, Connect};
use crate::client::Api;

/// Clock ticks per second of `/proc`: Linux reports CPU time in hundredths of a second to every program.
const CLOCK_TICKS: f64 = 100.0;
const START_TIME_MAX: Duration = Duration::from_secs(30);

/// The product under test; one that was started for the run ends with this.
pub(super) struct Target {
    pub(super) connect: Connect,
    pid: Option<u32>,
    /// Where its data is, or a directory on the disk that shall be compared with.
    pub(super) dir: PathBuf,
    _started: Option<(Child, tempfile::TempDir)>,
}

/// What had been used up to some moment.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Usage {
    /// `None` if it is not known which process serves.
    pub(super) server: Option<Server>,
    pub(super) client_cpu_s: f64,
    pub(super) syncs: f64,
}

/// What the process that serves has used, and uses.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(super) struct Server {
    pub(super) cpu_s: f64,
    pub(super) rss_bytes: u64,
    pub(super) rss_max_bytes: u64,
    pub(super) threads: u64,
}

impl Server {
    fn of(pid: u32) -> Self {
        Self {
            cpu_s: cpu_seconds(pid),
            rss_bytes: status(pid, "VmRSS:") * 1024,
            rss_max_bytes: status(pid, "VmHWM:") * 1024,
            threads: status(pid, "Threads:"),
        }
    }
}

impl Target {
    /// The one that `--url` names, or one started for the run in a new directory below `--dir`.
    pub(super) async fn start(connect: &Connect, args: &BenchTarget) -> anyhow::Result<Self> {
        let dir = args.dir.clone().unwrap_or_else(|| PathBuf::from("."));
        if args.running {
            return Ok(Self { connect: connect.clone(), pid: args.pid, dir, _started: None });
        }
        let data = tempfile::Builder::new().prefix("weir-bench-").tempdir_in(&dir);
        let data = data.with_context(|| format!("cannot make a directory in {}", dir.display()))?;
        let ready = data.path().join("ready");
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["dev", "--listen", "127.0.0.1:0", "--journal-max", "64GiB", "--data-dir"]);
        command.arg(data.path().join("data")).arg("--ready-file").arg(&ready);
        let mut child = command
            .stdout(Stdio::null())
            .stderr(Stdio::inherit())
            .env("WEIR_LOG", "error")
            .kill_on_drop(true)
            .spawn()?;
        let url = url_in(&ready, &mut child).await?;
        let connect = Connect { url, ..connect.clone() };
        Ok(Self { connect, pid: child.id(), dir: data.path().to_owned(), _started: Some((child, data)) })
    }

    /// Uses so far. Zero where nothing can be known, as of a process on another machine.
    pub(super) async fn usage(&self) -> Usage {
        let metrics = match Api::new(&self.connect) {
            Ok(api) => api.get("/metrics").await.map(|reply| reply.body).unwrap_or_default(),
            Err(_) => bytes::Bytes::new(),
        };
        let metrics = String::from_utf8_lossy(&metrics).into_owned();
        let own = std::process::id();
        Usage {
            server: self.pid.map(Server::of),
            client_cpu_s: cpu_seconds(own),
            syncs: metric(&metrics, "weir_journal_syncs_total"),
        }
    }
}

impl Usage {
    /// What was used since `before`; sizes are those of now.
    pub(super) fn since(self, before: Self) -> Self {
        let server = self.server.zip(before.server);
        Self {
            server: server.map(|(now, before)| Server { cpu_s: now.cpu_s - before.cpu_s, ..now }),
            client_cpu_s: self.client_cpu_s - before.client_cpu_s,
            syncs: self.syncs - before.syncs,
        }
    }
}

async fn url_in(ready: &Path, child: &mut Child) -> anyhow::Result<String> {
    let until = Instant::now() + START_TIME_MAX;
    loop {
        match tokio::fs::read_to_string(ready).await {
            Ok(url) if !url.is_empty() => return Ok(url),
            _ if child.try_wait()?.is_some() => {
                anyhow::bail!("the product ended before it was ready; its log is above")
            }
            _ if Instant::now() > until => anyhow::bail!("the product did not start within 30 s"),
            _ => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

fn metric(text: &str, name: &str) -> f64 {
    let values = text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    values.filter_map(|value| value.trim().parse::<f64>().ok()).sum()
}

/// User and system time, from `/proc/<pid>/stat`.
fn cpu_seconds(pid: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The command's name may hold spaces; it ends with the last parenthesis.
    let after = stat.rsplit_once(')').map_or("", |(_, after)| after);
    let ticks: f64 =
        after.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<f64>().ok()).sum();
    ticks / CLOCK_TICKS
}

/// A number of `/proc/<pid>/status`, in the unit that stands there.
fn status(pid: u32, field: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_found_by_their_whole_name() {
        let text = "# HELP a_total x\na_total 3\na_total_more 9\n";
        assert!((metric(text, "a_total") - 3.0).abs() < 1e-9);
    }

    #[test]
    fn a_process_has_used_memory() {
        let own = Server::of(std::process::id());
        assert!(own.rss_bytes > 0 && own.threads > 0, "{own:?}");
    }
}
