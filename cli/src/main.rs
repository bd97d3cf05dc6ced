//! `weir`: runs the product on one machine, manages topics from the public interface.
//!
//! ```text
//!   args                 what can be typed, with its help
//!   dev                  `weir dev`: node and gateway in one process
//!   topic, publish, subscribe, bench    one module per command, over
//!   client               HTTP as any user would speak it
//!   output               what is printed, for people and with --json
//! ```

mod args;
mod bench;
mod client;
mod dev;
mod output;
mod publish;
mod subscribe;
mod topic;

use std::process::ExitCode;

use clap::Parser as _;

use crate::args::{Args, Command};

/// Batches are freed on other threads than they were made on, which the system's allocator is slow at (measured:
/// docs/performance/experiments.md).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let args = Args::parse();
    match run(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output::failure(&error);
            ExitCode::FAILURE
        }
    }
}

fn run(args: Args) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let Args { connect, command } = args;
    match command {
        Command::Dev(dev) => runtime.block_on(dev::run(dev)),
        Command::Pub(publish) => runtime.block_on(publish::run(&connect, &publish)),
        Command::Sub(subscribe) => runtime.block_on(subscribe::run(&connect, &subscribe)),
        Command::Bench(command) => runtime.block_on(bench::run(&connect, command)),
        Command::Topic(command) => runtime.block_on(topic::run(&connect, command)),
    }
}
