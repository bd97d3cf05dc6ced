//! Writers and readers in processes of their own: what each is told and says, a line of JSON each way.
//!
//! ```text
//!   parent ─▶ Plan                    child: connects its members ─▶ Connected
//!          ─▶ Begin, at a time              writers are done      ─▶ Written
//!          ─▶ AllWritten, once all are      readers too           ─▶ Read, and ends
//!          ◀─▶ Taken, now and then: workers of a queue share what there is to take
//! ```

use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, bail};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::{mpsc, watch};

use super::Shared;
use super::crew::{Crew, Members};
use super::shape::Shape;
use crate::bench::schedule::Window;
use crate::bench::tally::Tally;
use crate::bench::target::Reach;
use crate::output;

/// How often a child says how much was taken.
const TAKEN_EVERY: Duration = Duration::from_millis(20);

/// What a child is told.
#[derive(Debug, Serialize, Deserialize)]
enum Told {
    Plan {
        reach: Reach,
        shape: Box<Shape>,
        run: String,
        client: u32,
        clients: u32,
    },
    /// On the clock of the day, in nanoseconds, since processes share no other; how long what counts lasts.
    Begin {
        at_ns: u64,
        measured: Duration,
    },
    /// Messages of every writer.
    AllWritten {
        sent: Vec<u64>,
    },
    /// Messages that others took so far.
    Taken {
        others: u64,
    },
}

/// What a child says.
#[derive(Debug, Serialize, Deserialize)]
enum Said {
    Connected,
    Written { sent: Vec<(u32, u64)>, tally: Box<Tally> },
    Taken { count: u64 },
    Read { tally: Box<Tally> },
}

/// The children of a run.
pub(super) struct Apart {
    shared: Arc<Shared>,
    children: Vec<One>,
    said: mpsc::UnboundedReceiver<(usize, anyhow::Result<Said>)>,
}

struct One {
    /// Ends with this.
    child: Child,
    stdin: ChildStdin,
    taken: u64,
}

impl Apart {
    /// Starts children and has them connect.
    pub(super) async fn connect(reach: &Reach, shared: &Arc<Shared>, clients: u32) -> anyhow::Result<Self> {
        // A line per client at a time, and few of them: nothing piles up.
        let (hears, said) = mpsc::unbounded_channel();
        let mut apart = Self { shared: Arc::clone(shared), children: Vec::new(), said };
        for client in 0..clients {
            let mut one = One::start(apart.children.len(), hears.clone())?;
            let shape = Box::new(shared.shape.clone());
            let (reach, run) = (reach.clone(), shared.run.clone());
            one.tell(&Told::Plan { reach, shape, run, client, clients }).await?;
            apart.children.push(one);
        }
        apart.each(|said| matches!(said, Said::Connected).then_some(())).await?;
        Ok(apart)
    }

    /// The processes.
    pub(super) fn pids(&self) -> Vec<u32> {
        self.children.iter().filter_map(|one| one.child.id()).collect()
    }

    /// Everybody begins at `start`; what counts lasts `measured` after the warm-up.
    pub(super) async fn begin(&mut self, start: Instant, measured: Duration) -> anyhow::Result<()> {
        let (now, clock) = (Instant::now(), SystemTime::now());
        let at = clock.duration_since(SystemTime::UNIX_EPOCH)? + start.saturating_duration_since(now);
        let at_ns = u64::try_from(at.as_nanos())?;
        self.tell_all(&Told::Begin { at_ns, measured }).await
    }

    /// Until all that was sent is confirmed; what the writers saw.
    pub(super) async fn write(&mut self) -> anyhow::Result<Tally> {
        let (mut all, shared) = (Tally::new(), Arc::clone(&self.shared));
        self.each(|said| {
            let Said::Written { sent, tally } = said else { return None };
            all.add(&tally);
            for (writer, sent) in sent {
                shared.sent[writer as usize].store(sent, Ordering::Release);
            }
            Some(())
        })
        .await?;
        Ok(all)
    }

    /// Tells readers that all is written.
    pub(super) async fn all_is_written(&mut self) -> anyhow::Result<()> {
        let sent = self.shared.sent.iter().map(|sent| sent.load(Ordering::Acquire)).collect();
        self.tell_all(&Told::AllWritten { sent }).await
    }

    /// Until the readers have got it all; what they saw.
    pub(super) async fn read(&mut self) -> anyhow::Result<Tally> {
        let mut all = Tally::new();
        self.each(|said| {
            let Said::Read { tally } = said else { return None };
            all.add(&tally);
            Some(())
        })
        .await?;
        Ok(all)
    }

    /// Until each has said what is expected, which `take` takes.
    async fn each(&mut self, mut take: impl FnMut(Said) -> Option<()>) -> anyhow::Result<()> {
        let mut left = self.children.len();
        while left > 0 {
            let (who, said) = self.said.recv().await.context("all clients are gone")?;
            match said? {
                Said::Taken { count } => self.taken(who, count).await,
                other => {
                    take(other).context("a client said something out of its turn")?;
                    left -= 1;
                }
            }
        }
        Ok(())
    }

    async fn taken(&mut self, who: usize, count: u64) {
        self.children[who].taken = count;
        let all: u64 = self.children.iter().map(|one| one.taken).sum();
        self.shared.taken.store(all, Ordering::Relaxed);
        for one in &mut self.children {
            // One that has read all is gone, and need not know.
            let _ = one.tell(&Told::Taken { others: all - one.taken }).await;
        }
    }

    async fn tell_all(&mut self, what: &Told) -> anyhow::Result<()> {
        for one in &mut self.children {
            one.tell(what).await?;
        }
        Ok(())
    }
}

impl One {
    fn start(
        number: usize,
        hears: mpsc::UnboundedSender<(usize, anyhow::Result<Said>)>,
    ) -> anyhow::Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["bench", "client"])
            // Each is to be one more thread that makes load, not as many as there are processors.
            .env("TOKIO_WORKER_THREADS", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let stdin = child.stdin.take().context("it is piped")?;
        let mut lines = BufReader::new(child.stdout.take().context("it is piped")?).lines();
        tokio::spawn(async move {
            loop {
                let said = hear::<Said>(&mut lines).await;
                let is_over = said.as_ref().is_ok_and(|said| matches!(said, Said::Read { .. }));
                let is_over = is_over || said.is_err();
                if hears.send((number, said)).is_err() || is_over {
                    return;
                }
            }
        });
        Ok(Self { child, stdin, taken: 0 })
    }

    async fn tell(&mut self, what: &Told) -> anyhow::Result<()> {
        let mut line = serde_json::to_vec(what)?;
        line.push(b'\n');
        self.stdin.write_all(&line).await.context("a client is gone")
    }
}

async fn hear<T: DeserializeOwned>(
    lines: &mut Lines<BufReader<impl tokio::io::AsyncRead + Unpin>>,
) -> anyhow::Result<T> {
    let line = lines.next_line().await?.context("a client process ended; what it says is above")?;
    Ok(serde_json::from_str(&line)?)
}

fn say(what: &Said) -> anyhow::Result<()> {
    output::line(serde_json::to_string(what)?);
    Ok(())
}

/// `weir bench client`: one of the children.
pub(in crate::bench) async fn client() -> anyhow::Result<()> {
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    let Told::Plan { reach, shape, run, client, clients } = hear(&mut lines).await? else {
        bail!("`weir bench client` is what `--clients` starts, and nothing by itself");
    };
    let shared = Arc::new(Shared::new(*shape, run));
    let mut crew = Crew::connect(&reach, &shared, Members { client, clients }).await?;
    say(&Said::Connected)?;
    let Told::Begin { at_ns, measured } = hear(&mut lines).await? else { bail!("no beginning") };
    let at = SystemTime::UNIX_EPOCH + Duration::from_nanos(at_ns);
    let start = Instant::now() + at.duration_since(SystemTime::now()).unwrap_or_default();
    crew.begin(start, Window::new(start, shared.shape.warmup, measured));
    let heard = tokio::spawn(listen(lines, Arc::clone(&shared), crew.written()));
    let progress = tokio::spawn(progress(Arc::clone(&shared)));
    let tally = Box::new(crew.write().await?);
    let sent = (0..).zip(&shared.sent).map(|(writer, sent)| (writer, sent.load(Ordering::Acquire)));
    let sent = sent.filter(|(_, sent)| *sent < u64::MAX).collect();
    say(&Said::Written { sent, tally })?;
    let tally = Box::new(crew.read().await?);
    progress.abort();
    heard.abort();
    say(&Said::Read { tally })
}

/// What the parent tells while it runs.
async fn listen(
    mut lines: Lines<BufReader<tokio::io::Stdin>>,
    shared: Arc<Shared>,
    written: watch::Sender<bool>,
) -> anyhow::Result<()> {
    loop {
        match hear(&mut lines).await {
            Ok(Told::AllWritten { sent }) => {
                for (writer, sent) in sent.into_iter().enumerate() {
                    shared.sent[writer].store(sent, Ordering::Release);
                }
                written.send_replace(true);
            }
            Ok(Told::Taken { others }) => shared.taken_by_others.store(others, Ordering::Release),
            Ok(other) => bail!("{other:?} comes too late"),
            // Whoever started it is gone.
            Err(_) => std::process::exit(1),
        }
    }
}

/// Says how much was taken whenever that changed.
async fn progress(shared: Arc<Shared>) -> anyhow::Result<()> {
    let mut said = 0;
    loop {
        tokio::time::sleep(TAKEN_EVERY).await;
        let count = shared.taken.load(Ordering::Relaxed);
        if count != said {
            said = count;
            say(&Said::Taken { count })?;
        }
    }
}
