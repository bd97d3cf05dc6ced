//! The product under test, started for the run or found running, and its metrics.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use tokio::process::{Child, Command};

use crate::args::{BenchTarget, Connect};
use crate::client::Api;

const START_TIME_MAX: Duration = Duration::from_secs(30);

/// The product under test; one that was started for the run ends with this.
pub(super) struct Target {
    pub(super) connect: Connect,
    /// Where its data is, or a directory on the disk that shall be compared with.
    pub(super) dir: PathBuf,
    pid: Option<u32>,
    started: Option<Started>,
}

struct Started {
    child: Child,
    data: tempfile::TempDir,
}

impl Target {
    /// The one that `--url` names, or one started for the run in a new directory below `--dir`.
    pub(super) async fn start(connect: &Connect, args: &BenchTarget) -> anyhow::Result<Self> {
        let dir = args.dir.clone().unwrap_or_else(|| PathBuf::from("."));
        if args.running {
            return Ok(Self { connect: connect.clone(), pid: args.pid, dir, started: None });
        }
        let data = tempfile::Builder::new().prefix("weir-bench-").tempdir_in(&dir);
        let data = data.with_context(|| format!("cannot make a directory in {}", dir.display()))?;
        let (child, url) = spawn(data.path()).await?;
        let connect = Connect { url, ..connect.clone() };
        let (pid, dir) = (child.id(), data.path().to_owned());
        Ok(Self { connect, pid, dir, started: Some(Started { child, data }) })
    }

    /// Kills the product as a crash would, starts it again on the same data, and returns once it says that it is
    /// ready: the time from the new start until then.
    pub(super) async fn crash(&mut self) -> anyhow::Result<Duration> {
        let started = self.started.as_mut().context("only what was started for the run is killed")?;
        started.child.kill().await?;
        let start = Instant::now();
        let (child, url) = spawn(started.data.path()).await?;
        let ready = start.elapsed();
        (self.pid, started.child) = (child.id(), child);
        self.connect.url = url;
        Ok(ready)
    }

    /// The process that serves, if it is known.
    pub(super) fn pid(&self) -> Option<u32> {
        self.pid
    }

    /// A metric without labels; 0 if there is none of that name.
    pub(super) async fn metric(&self, name: &str) -> f64 {
        let reply = match Api::new(&self.connect) {
            Ok(api) => api.get("/metrics").await,
            Err(_) => return 0.0,
        };
        let body = reply.map(|reply| reply.body).unwrap_or_default();
        metric(&String::from_utf8_lossy(&body), name)
    }
}

/// Starts the product with its data below `dir`; the process, and where it listens.
async fn spawn(dir: &Path) -> anyhow::Result<(Child, String)> {
    let ready = dir.join("ready");
    match std::fs::remove_file(&ready) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["dev", "--listen", "127.0.0.1:0", "--journal-max", "64GiB", "--data-dir"]);
    command.arg(dir.join("data")).arg("--ready-file").arg(&ready);
    let mut child = command
        .stdout(Stdio::null())
        .stderr(Stdio::inherit())
        .env("WEIR_LOG", "error")
        .kill_on_drop(true)
        .spawn()?;
    let url = url_in(&ready, &mut child).await?;
    Ok((child, url))
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
            _ => tokio::time::sleep(Duration::from_millis(1)).await,
        }
    }
}

fn metric(text: &str, name: &str) -> f64 {
    let values = text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    values.filter_map(|value| value.trim().parse::<f64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_found_by_their_whole_name() {
        let text = "# HELP a_total x\na_total 3\na_total_more 9\n";
        assert!((metric(text, "a_total") - 3.0).abs() < 1e-9);
    }
}
