//! `weir bench`: how fast it is, measured from outside, with proof that nothing was lost.
//!
//! ```text
//!   target    the product under test: started for the run, or one that runs already
//!   schedule  when messages are due            identity  which message it is
//!   arrived   which of them came               check     a reader's check: each once, in order
//!   stream    writers and readers: steady, payload, burst, fan-out, frozen, stream-tiers, queue-lifecycle, catch-up,
//!             recovery
//!   topics    one POST after the other over many topics
//!   http      one message per POST, beside the same server's empty answer; the same load against others
//!   lone      one POST at a time, beside the disk's own sync     disk    what that takes
//!   idle      many topics that nobody uses, many WebSockets that say nothing
//!   tally     what was seen                    latencies times, in a histogram
//!   process, meter  what it cost              noise     bytes that do not compress
//!   result    a run's result                   table     results as Markdown
//!   matrix    runs named sets of all these     sets      what is in them
//!   poster    a lean HTTP client
//! ```
//!
//! Latency counts from when a message was due, so a late generator or a slow server cannot hide.

mod arrived;
mod check;
mod disk;
mod http;
mod identity;
mod idle;
mod latencies;
mod lone;
mod matrix;
mod meter;
mod noise;
mod poster;
mod process;
mod result;
mod schedule;
mod sets;
mod stream;
mod table;
mod tally;
mod target;
mod topics;

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;

use self::result::RunResult;
use self::stream::Shape;
use crate::args::{BenchCommand, Connect};
use crate::client::Stop;
use crate::output;

/// How long it may take to remove the data of a run that was interrupted.
const CLEAN_TIME_MAX: Duration = Duration::from_secs(60);

/// Where results go, and whether they are any good.
struct Bench {
    connect: Connect,
    out: Option<PathBuf>,
    /// What repeats the run, and which repetition of a set it is.
    command: String,
    repetition: u32,
    /// Results of a set's line that is not done yet: all of them are kept, or none.
    held: Option<Vec<String>>,
    void: Vec<String>,
}

/// Runs what was asked for.
///
/// # Errors
/// If something could not be measured, or messages were lost, repeated or out of order.
pub(crate) async fn run(connect: &Connect, mut command: BenchCommand) -> anyhow::Result<()> {
    if let BenchCommand::Client = command {
        return stream::client().await;
    }
    let out = command.out();
    if let Some(out) = &out {
        // What is measured for an hour is not to be lost for a name that was misspelt.
        appended(out)?;
    }
    let mut bench = Bench {
        connect: connect.clone(),
        out,
        command: typed(std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned())),
        repetition: 0,
        held: None,
        void: Vec::new(),
    };
    let mut stop = Stop::catch_for(CLEAN_TIME_MAX)?;
    let measuring = async {
        match command {
            BenchCommand::Table(args) => table::run(&args),
            BenchCommand::Matrix(args) => matrix::run(&mut bench, &args).await,
            command => one(&mut bench, command).await,
        }
    };
    // What was started for a run, and its data, go with it.
    tokio::select! {
        biased;
        () = stop.wanted() => anyhow::bail!("interrupted: what is printed is all that was measured"),
        measured = measuring => measured?,
    }
    anyhow::ensure!(
        bench.void.is_empty(),
        "void: messages were lost, repeated or out of order in {}",
        bench.void.join(", ")
    );
    Ok(())
}

/// One measurement.
async fn one(bench: &mut Bench, command: BenchCommand) -> anyhow::Result<()> {
    match command {
        BenchCommand::Smoke(target) => stream::run(bench, &target, vec![Shape::smoke()]).await,
        BenchCommand::Steady(args) => stream::run(bench, &args.stream.target, Shape::steady(&args)?).await,
        BenchCommand::Payload(args) => stream::run(bench, &args.stream.target, Shape::payload(&args)?).await,
        BenchCommand::Burst(args) => stream::run(bench, &args.stream.target, Shape::burst(&args)?).await,
        BenchCommand::FanOut(args) => stream::run(bench, &args.stream.target, Shape::fan_out(&args)?).await,
        BenchCommand::Frozen(args) => stream::run(bench, &args.stream.target, Shape::frozen(&args)?).await,
        BenchCommand::StreamTiers(args) => {
            stream::run(bench, &args.stream.target, Shape::tiers(&args)?).await
        }
        BenchCommand::QueueLifecycle(args) => {
            stream::run(bench, &args.stream.target, Shape::queue(&args)?).await
        }
        BenchCommand::CatchUp(args) => stream::run(bench, &args.stream.target, Shape::catch_up(&args)?).await,
        BenchCommand::Recovery(args) => {
            stream::run(bench, &args.stream.target, Shape::recovery(&args)?).await
        }
        BenchCommand::ManyTopics(args) => topics::run(bench, &args).await,
        BenchCommand::Http(args) => http::run(bench, &args).await,
        BenchCommand::Idle(args) => idle::run(bench, &args).await,
        BenchCommand::Lone(args) => lone::run(bench, &args).await,
        BenchCommand::Post(args) => http::post(bench, &args).await,
        BenchCommand::Matrix(_) | BenchCommand::Table(_) | BenchCommand::Client => {
            anyhow::bail!("a set holds measurements, not sets or tables")
        }
    }
}

impl Bench {
    /// Prints a result and appends it to the file.
    fn emit(&mut self, mut result: RunResult) -> anyhow::Result<()> {
        result.command.clone_from(&self.command);
        result.repetition = self.repetition;
        result.judge_machine();
        if result.is_faulty() {
            self.void.push(format!("{} {}", result.workload, result.case));
        }
        let line = serde_json::to_string(&result)?;
        match &mut self.held {
            Some(held) => held.push(line.clone()),
            None => self.keep(&line)?,
        }
        if self.connect.json {
            output::line(line);
        } else {
            result.print();
        }
        Ok(())
    }

    /// Appends to the file.
    fn keep(&self, line: &str) -> anyhow::Result<()> {
        let Some(out) = &self.out else { return Ok(()) };
        let written = appended(out)?.write_all(format!("{line}\n").as_bytes());
        written.with_context(|| format!("cannot append to {}", out.display()))
    }
}

/// A file of results, made if it is missing.
fn appended(out: &Path) -> anyhow::Result<File> {
    let file = OpenOptions::new().create(true).append(true).open(out);
    file.with_context(|| format!("cannot append to {}", out.display()))
}

/// The command line, as it would be typed anywhere: without directories, files and how it is shown.
fn typed(mut rest: impl Iterator<Item = String>) -> String {
    let mut words = vec!["weir".to_owned()];
    while let Some(word) = rest.next() {
        let (flag, value) =
            word.split_once('=').map_or((word.as_str(), None), |(flag, value)| (flag, Some(value)));
        match (flag, value) {
            ("--json", _) | ("--dir" | "--out" | "--url" | "--pid", Some(_)) => {}
            ("--dir" | "--out" | "--url" | "--pid", None) => drop(rest.next()),
            _ => words.push(word),
        }
    }
    words.join(" ")
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_command_line_is_kept_without_what_is_of_this_machine() {
        for (line, kept) in [
            ("bench http --dir /d --rounds 2 --json", "weir bench http --rounds 2"),
            ("bench http --dir=/d --rounds=2 --out=r.json --url=http://h", "weir bench http --rounds=2"),
            ("--url http://h bench lone --rate 50 --pid 7", "weir bench lone --rate 50"),
        ] {
            assert_eq!(super::typed(line.split(' ').map(str::to_owned)), kept);
        }
    }
}
