//! Named sets of measurements: what documents quote, so that one command repeats it.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use clap::Parser;

use super::sets::{SETS, Set};
use super::{Bench, result, table};
use crate::args::{BenchCommand, BenchTarget, MatrixArgs};
use crate::output;

/// What takes longer than this has stopped.
const LINE_TIME_MAX: Duration = Duration::from_secs(20 * 60);

/// A line of a set.
#[derive(Debug, Parser)]
#[command(no_binary_name = true)]
struct Line {
    #[command(subcommand)]
    command: BenchCommand,
}

/// Runs a set, or lists them. What fails is told and left out, the rest runs.
pub(super) async fn run(bench: &mut Bench, args: &MatrixArgs) -> anyhow::Result<()> {
    let Some(name) = &args.name else {
        for set in SETS {
            output::line(format_args!("{}: {}", set.name, set.about));
            for (runs, line) in set.lines() {
                output::line(format_args!("  {runs} × weir bench {line}"));
            }
        }
        return Ok(());
    };
    let set = SETS.iter().find(|set| set.name == name);
    let names = SETS.iter().map(|set| set.name).collect::<Vec<_>>().join(", ");
    let set = set.with_context(|| format!("no set named {name}; there are: {names}"))?;
    let done = match &bench.out {
        Some(out) if args.resume && out.exists() => done(out)?,
        _ => BTreeSet::new(),
    };
    let plan = plan(set, args.runs, &done);
    let mut failed = Vec::new();
    for (at, (repetition, line)) in plan.iter().enumerate() {
        output::note(format_args!("{} of {}, run {repetition}: weir bench {line}", at + 1, plan.len()));
        bench.command = format!("weir bench {line}");
        bench.repetition = *repetition;
        if let Err(error) = measure(bench, line, args).await {
            output::note(format_args!("weir bench {line} failed: {error:#}"));
            failed.push(format!("weir bench {line} (run {repetition}): {error:#}"));
        }
    }
    anyhow::ensure!(failed.is_empty(), "{} did not succeed:\n{}", failed.len(), failed.join("\n"));
    Ok(())
}

/// One line; its results are kept once all of them are there.
async fn measure(bench: &mut Bench, line: &str, args: &MatrixArgs) -> anyhow::Result<()> {
    let mut command = parsed(line, &args.target)?;
    if args.short {
        command.shorten();
    }
    bench.held = Some(Vec::new());
    let measured = tokio::time::timeout(LINE_TIME_MAX, Box::pin(super::one(bench, command))).await;
    let held = bench.held.take().unwrap_or_default();
    measured.context("it took more than 20 minutes")??;
    bench.keep(&held.join("\n"))
}

/// What is to be run: the first of everything, then the second, so that a machine that drifts does so for all alike.
fn plan(set: &Set, runs: Option<u32>, done: &BTreeSet<(String, u32)>) -> Vec<(u32, &'static str)> {
    let often = |of: u32| runs.unwrap_or(of);
    let most = set.lines().map(|(of, _)| often(of)).max().unwrap_or(0);
    let all = (1..=most).flat_map(|repetition| {
        set.lines().filter(move |(of, _)| repetition <= often(*of)).map(move |(_, line)| (repetition, line))
    });
    all.filter(|(repetition, line)| !done.contains(&(format!("weir bench {line}"), *repetition))).collect()
}

/// Commands and repetitions of which a file has the results, of this build.
fn done(out: &Path) -> anyhow::Result<BTreeSet<(String, u32)>> {
    let of_this = table::read(out)?.into_iter().filter(|it| it.build == result::build());
    Ok(of_this.map(|it| (it.command, it.repetition)).collect())
}

fn parsed(line: &str, target: &BenchTarget) -> anyhow::Result<BenchCommand> {
    let mut command = Line::try_parse_from(line.split_whitespace())?.command;
    if let Some(its) = command.target_mut() {
        its.clone_from(target);
    }
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_every_set_is_a_measurement_of_the_target_that_is_asked_for() {
        let target = BenchTarget { dir: Some("/d".into()), ..BenchTarget::default() };
        for (runs, line) in SETS.iter().flat_map(Set::lines) {
            let mut command = parsed(line, &target).unwrap_or_else(|error| panic!("{line}: {error}"));
            command.shorten();
            let its = command.target_mut().unwrap_or_else(|| panic!("{line} measures nothing of ours"));
            assert_eq!(its.dir, target.dir, "{line}");
            assert!(runs > 0, "{line}");
        }
    }

    #[test]
    fn a_set_takes_turns_and_goes_on_where_it_was_left() {
        const SET: Set = Set { name: "s", about: "", parts: &[&[(3, "a"), (1, "b")], &[(2, "c")]] };
        let nothing = BTreeSet::new();
        assert_eq!(plan(&SET, None, &nothing), [(1, "a"), (1, "b"), (1, "c"), (2, "a"), (2, "c"), (3, "a")]);
        assert_eq!(plan(&SET, Some(1), &nothing).len(), 3);
        let done = [("weir bench a", 1), ("weir bench c", 1), ("weir bench a", 3)];
        let done = done.map(|(command, repetition)| (command.to_owned(), repetition)).into();
        assert_eq!(plan(&SET, None, &done), [(1, "b"), (2, "a"), (2, "c")]);
    }
}
