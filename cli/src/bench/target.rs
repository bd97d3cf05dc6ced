//! The product under test, started for the run or found running, and its metrics.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use http::{HeaderMap, Method};
use serde::{Deserialize, Serialize};
use tokio::process::{Child, Command};

use crate::args::{BenchTarget, Connect};
use crate::client::Api;

const START_TIME_MAX: Duration = Duration::from_secs(30);
/// From the last message to when all are in the object store.
const ARCHIVE_TIME_MAX: Duration = Duration::from_secs(120);
const ARCHIVE_LOOK_EVERY: Duration = Duration::from_millis(500);
/// Data directories.
const HOME: &str = "data";
const RESTORED: &str = "restored";

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
    /// Below `data`: its data directory. A restore makes another.
    home: &'static str,
    options: Vec<String>,
}

/// How the product that is started is set up.
#[derive(Debug, Clone, Default)]
pub(super) struct Setup {
    /// Past the gateway there is a storage node alone.
    pub(super) is_node_alone: bool,
    /// Further options of its command.
    pub(super) options: Vec<String>,
}

impl Target {
    /// The one that `--url` names, or one started for the run in a new directory below `--dir`.
    pub(super) async fn start(connect: &Connect, args: &BenchTarget) -> anyhow::Result<Self> {
        Self::start_as(connect, args, Setup::default()).await
    }

    /// The same, set up in some way.
    pub(super) async fn start_as(
        connect: &Connect,
        args: &BenchTarget,
        setup: Setup,
    ) -> anyhow::Result<Self> {
        let dir = args.dir.clone().unwrap_or_else(|| PathBuf::from("."));
        let has_gateway = !setup.is_node_alone;
        if args.running {
            anyhow::ensure!(has_gateway, "past the gateway only what is started for the run is measured");
            let reach = Reach { connect: connect.clone(), node: None };
            return Ok(Self { reach, pid: args.pid, dir, started: None });
        }
        let data = tempfile::Builder::new().prefix("weir-bench-").tempdir_in(&dir);
        let data = data.with_context(|| format!("cannot make a directory in {}", dir.display()))?;
        let (child, says) = spawn(data.path(), HOME, &setup).await?;
        let reach = match says.split_once('\n') {
            None => Reach { connect: Connect { url: says, ..connect.clone() }, node: None },
            // What a node says of itself stands where a gateway's metrics are.
            Some((node, admin)) => Reach {
                connect: Connect { url: format!("http://{}", admin.trim()), ..connect.clone() },
                node: Some(node.to_owned()),
            },
        };
        let (pid, dir) = (child.id(), data.path().to_owned());
        let started = Started { child, data, home: HOME, options: setup.options };
        Ok(Self { reach, pid, dir, started: Some(started) })
    }

    /// Kills the product as a crash would, starts it again on the same data, and returns once it says that it is
    /// ready: the time from the new start until then.
    pub(super) async fn crash(&mut self) -> anyhow::Result<Duration> {
        let started = self.started.as_mut().context("only what was started for the run is killed")?;
        started.child.kill().await?;
        let start = Instant::now();
        let setup = Setup { is_node_alone: false, options: started.options.clone() };
        let (child, url) = spawn(started.data.path(), started.home, &setup).await?;
        let ready = start.elapsed();
        (self.pid, started.child) = (child.id(), child);
        self.reach.connect.url = url;
        Ok(ready)
    }

    /// Kills the product, rebuilds its data directory from the object store at `url` alone once `messages` are there,
    /// and starts it on that.
    pub(super) async fn restore(&mut self, url: &str, messages: u64) -> anyhow::Result<()> {
        let started = self.started.as_mut().context("only what was started for the run is restored")?;
        let until = Instant::now() + ARCHIVE_TIME_MAX;
        let restorable = async |more: &[&str]| restore(started.data.path(), url, more).await;
        while restorable(&["--dry-run"]).await.unwrap_or(0) < messages {
            anyhow::ensure!(Instant::now() < until, "{messages} messages are not in {url} after 2 minutes");
            tokio::time::sleep(ARCHIVE_LOOK_EVERY).await;
        }
        started.child.kill().await?;
        anyhow::ensure!(
            restorable(&[]).await? >= messages,
            "what could be restored a moment ago cannot be now"
        );
        started.home = RESTORED;
        self.crash().await?;
        Ok(())
    }

    /// The process that serves, if it is known.
    pub(super) fn pid(&self) -> Option<u32> {
        self.pid
    }

    /// Takes away a topic of a run: what runs already goes on without it.
    pub(super) async fn remove_topic(&self, name: &str) -> anyhow::Result<()> {
        let api = Api::new(&self.reach.connect)?;
        let path = api.path(&format!("topics/{name}"));
        api.send(Method::DELETE, &path, HeaderMap::new(), "").await.context("cannot clean up")?;
        Ok(())
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

/// Restores what is at `url` into `dir`; how many messages that are.
async fn restore(dir: &Path, url: &str, more: &[&str]) -> anyhow::Result<u64> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["restore", "--json", "--bucket", url, "--data-dir"]).arg(dir.join(RESTORED)).args(more);
    let done = command.stdin(Stdio::null()).kill_on_drop(true).output().await?;
    anyhow::ensure!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let report: serde_json::Value = serde_json::from_slice(&done.stdout)?;
    report["messages"].as_u64().context("`weir restore` tells no messages")
}

/// Starts the product with its data in `home` below `dir`, or its storage node alone; the process, and where
/// it listens.
async fn spawn(dir: &Path, home: &str, setup: &Setup) -> anyhow::Result<(Child, String)> {
    let ready = dir.join("ready");
    match std::fs::remove_file(&ready) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    let mut command = Command::new(std::env::current_exe()?);
    if !setup.is_node_alone {
        // Room for as many idle connections as are measured.
        command.args(["dev", "--listen", "127.0.0.1:0", "--connections-max", "100000"]);
    } else {
        command.args(["node", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]);
    }
    command.args(["--journal-max", "64GiB"]).args(&setup.options).arg("--data-dir");
    command.arg(dir.join(home)).arg("--ready-file").arg(&ready);
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
