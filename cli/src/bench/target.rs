//! The product under test, started for the run or found running, and its metrics.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use tokio::process::{Child, Command};

use crate::args::{BenchTarget, Connect, Transport};
use crate::client::Api;

const START_TIME_MAX: Duration = Duration::from_secs(30);

/// How clients get to the product.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Reach {
    pub(super) connect: Connect,
    /// Address of the storage node for gateways, where one was started by itself.
    pub(super) node: Option<String>,
}

/// The product under test; one that was started for the run ends with this.
pub(super) struct Target {
    pub(super) reach: Reach,
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
        Self::start_for(connect, args, Transport::Ws).await
    }

    /// The same for clients that come in some way: past the gateway there is a storage node alone.
    pub(super) async fn start_for(
        connect: &Connect,
        args: &BenchTarget,
        transport: Transport,
    ) -> anyhow::Result<Self> {
        let dir = args.dir.clone().unwrap_or_else(|| PathBuf::from("."));
        let has_gateway = transport != Transport::Internal;
        if args.running {
            anyhow::ensure!(has_gateway, "past the gateway only what is started for the run is measured");
            let reach = Reach { connect: connect.clone(), node: None };
            return Ok(Self { reach, pid: args.pid, dir, started: None });
        }
        let data = tempfile::Builder::new().prefix("weir-bench-").tempdir_in(&dir);
        let data = data.with_context(|| format!("cannot make a directory in {}", dir.display()))?;
        let (child, says) = spawn(data.path(), has_gateway).await?;
        let reach = match says.split_once('\n') {
            None => Reach { connect: Connect { url: says, ..connect.clone() }, node: None },
            // What a node says of itself stands where a gateway's metrics are.
            Some((node, admin)) => Reach {
                connect: Connect { url: format!("http://{}", admin.trim()), ..connect.clone() },
                node: Some(node.to_owned()),
            },
        };
        let (pid, dir) = (child.id(), data.path().to_owned());
        Ok(Self { reach, pid, dir, started: Some(Started { child, data }) })
    }

    /// Kills the product as a crash would, starts it again on the same data, and returns once it says that it is
    /// ready: the time from the new start until then.
    pub(super) async fn crash(&mut self) -> anyhow::Result<Duration> {
        let started = self.started.as_mut().context("only what was started for the run is killed")?;
        started.child.kill().await?;
        let start = Instant::now();
        let (child, url) = spawn(started.data.path(), true).await?;
        let ready = start.elapsed();
        (self.pid, started.child) = (child.id(), child);
        self.reach.connect.url = url;
        Ok(ready)
    }

    /// The process that serves, if it is known.
    pub(super) fn pid(&self) -> Option<u32> {
        self.pid
    }

    /// Metrics without labels; `None` where there is none of that name.
    pub(super) async fn metrics<const N: usize>(&self, names: [&str; N]) -> [Option<f64>; N] {
        let body = match Api::new(&self.reach.connect) {
            Ok(api) => api.get("/metrics").await.map(|reply| reply.body).unwrap_or_default(),
            Err(_) => return [None; N],
        };
        let text = String::from_utf8_lossy(&body);
        names.map(|name| metric(&text, name))
    }
}

/// Starts the product with its data below `dir`, or its storage node alone; the process, and where it listens.
async fn spawn(dir: &Path, has_gateway: bool) -> anyhow::Result<(Child, String)> {
    let ready = dir.join("ready");
    match std::fs::remove_file(&ready) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    let mut command = Command::new(std::env::current_exe()?);
    if has_gateway {
        // Room for as many idle connections as are measured.
        command.args(["dev", "--listen", "127.0.0.1:0", "--connections-max", "100000"]);
    } else {
        command.args(["node", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]);
    }
    command.args(["--journal-max", "64GiB", "--data-dir"]);
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
            // A node's has two lines, both ended.
            Ok(says) if is_whole(&says) => return Ok(says),
            _ if child.try_wait()?.is_some() => {
                anyhow::bail!("the product ended before it was ready; its log is above")
            }
            _ if Instant::now() > until => anyhow::bail!("the product did not start within 30 s"),
            _ => tokio::time::sleep(Duration::from_millis(1)).await,
        }
    }
}

fn is_whole(says: &str) -> bool {
    says.starts_with("http") || says.matches('\n').count() == 2
}

fn metric(text: &str, name: &str) -> Option<f64> {
    text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).next()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_found_by_their_whole_name() {
        let text = "# HELP a_total x\na_total 3\na_total_more 9\n";
        assert!((metric(text, "a_total").unwrap() - 3.0).abs() < 1e-9);
        assert_eq!(metric(text, "a"), None);
    }
}
