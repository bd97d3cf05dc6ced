//! Named sets of measurements: what documents quote, so that one command repeats it.

use anyhow::Context as _;
use clap::Parser;

use super::Bench;
use crate::args::{BenchCommand, BenchTarget, MatrixArgs};
use crate::output;

/// A set: its name, what it is for, and its commands.
struct Set {
    name: &'static str,
    about: &'static str,
    lines: &'static [&'static str],
}

const SETS: [Set; 6] = [
    Set {
        name: "quick",
        about: "everything once, in about a minute: shows that all of it works",
        lines: &[
            "smoke",
            "payload --size 100B,1MiB --seconds 1 --warmup 1",
            "burst --messages 20000",
            "fan-out --readers 4 --rate 1k --seconds 1 --warmup 1",
            "fan-out --readers 4 --rate 1k --seconds 1 --warmup 1 --transport sse",
            "queue-lifecycle --prefetch 64 --rate 500 --seconds 2 --warmup 1",
            "catch-up --readers 2 --size 4MiB",
            "recovery --size 8MiB",
            "many-topics --topics 100 --seconds 1",
            "http --seconds 1 --rounds 1 --connections 16",
            "http --seconds 1 --rounds 1 --connections 16 --http2",
            "lone --seconds 1",
        ],
    },
    Set {
        name: "targets",
        about: "the figures of the targets that one machine can show, in about four minutes",
        lines: &[
            "steady --rate 50k,150k,250k,400k,max --seconds 6 --warmup 2",
            "lone --seconds 4",
            "http --connections 64,256,1024 --seconds 2 --rounds 3",
            "queue-lifecycle --rate 5k --prefetch 64 --seconds 6 --warmup 2",
            "fan-out --readers 1,8,32 --rate 10k --seconds 4 --warmup 1",
            "many-topics --topics 64,500,2000,10000 --seconds 4",
            "recovery --size 2GiB",
        ],
    },
    Set {
        name: "low-rate",
        about: "confirm and delivery at 50, 1,000 and 10,000 a second, beside the disk of the same minute",
        lines: &[
            "lone --rate 50,1k --seconds 5",
            "steady --rate 50,1k,10k --writers 1 --readers 1 --seconds 5 --warmup 2",
        ],
    },
    Set {
        name: "stream",
        about: "writers and readers in every shape",
        lines: &[
            "steady --rate 50k,150k,250k,400k,max --seconds 8 --warmup 2",
            "steady --rate 150k --confirm none --seconds 8 --warmup 2",
            "steady --rate 20k --transport ws-json --seconds 8 --warmup 2",
            "payload --seconds 4 --warmup 1",
            "burst",
            "fan-out --readers 1,8,32 --rate 10k --seconds 5 --warmup 1",
            "fan-out --readers 32,256,1000 --rate 100 --seconds 5 --warmup 1",
            "fan-out --readers 1,8,32 --rate 1k --seconds 5 --warmup 1 --transport sse",
            "catch-up --readers 1,10,100",
        ],
    },
    Set {
        name: "queue",
        about: "the life of queued messages, at each prefetch",
        lines: &[
            "queue-lifecycle --rate 1k --seconds 8 --warmup 2",
            "queue-lifecycle --rate 5k --prefetch 64,10000 --seconds 8 --warmup 2",
        ],
    },
    Set {
        name: "scale",
        about: "many topics, many connections, a large journal, an idle node",
        lines: &[
            "many-topics --topics 100,500,2000,10000 --seconds 5",
            "http --connections 1,16,64,256,1024 --seconds 2",
            "http --connections 64,256,1024 --seconds 2 --http2",
            "recovery --size 4GiB",
            "idle",
        ],
    },
];

/// A line of a set.
#[derive(Debug, Parser)]
#[command(no_binary_name = true)]
struct Line {
    #[command(subcommand)]
    command: BenchCommand,
}

/// Runs a set, or lists them.
pub(super) async fn run(bench: &mut Bench, args: &MatrixArgs) -> anyhow::Result<()> {
    let Some(name) = &args.name else {
        for set in SETS {
            output::line(format_args!("{}: {}", set.name, set.about));
            set.lines.iter().for_each(|line| output::line(format_args!("  weir bench {line}")));
        }
        return Ok(());
    };
    let set = SETS.into_iter().find(|set| set.name == name);
    let names = SETS.map(|set| set.name).join(", ");
    let set = set.with_context(|| format!("no set named {name}; there are: {names}"))?;
    for number in 0..args.runs {
        for (at, line) in set.lines.iter().enumerate() {
            output::note(format_args!(
                "run {} of {}, {} of {}: weir bench {line}",
                number + 1,
                args.runs,
                at + 1,
                set.lines.len()
            ));
            bench.command = format!("weir bench {line}");
            let command = parsed(line, &args.target)?;
            Box::pin(super::one(bench, command)).await.with_context(|| format!("weir bench {line}"))?;
        }
    }
    Ok(())
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
        for line in SETS.iter().flat_map(|set| set.lines) {
            let mut command = parsed(line, &target).unwrap_or_else(|error| panic!("{line}: {error}"));
            let its = command.target_mut().unwrap_or_else(|| panic!("{line} measures nothing of ours"));
            assert_eq!(its.dir, target.dir, "{line}");
        }
    }
}
