//! `weir`: runs the product on one machine, manages topics from the public interface.
//!
//! ```text
//!   args                 what can be typed, with its help
//!   dev                  `weir dev`: node and gateway in one process
//!   topic, bench         one module per command, over
//!   client               HTTP as any user would speak it
//!   output               what is printed, for people and with --json
//! ```

mod args;
mod bench;
mod client;
mod dev;
mod output;
mod topic;

use std::process::ExitCode;

use clap::Parser as _;

use crate::args::{Args, Command};

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
    match args.command {
        Command::Dev(dev) => runtime.block_on(dev::run(dev)),
        Command::Bench(command) => runtime.block_on(bench::run(&args.connect, command)),
        Command::Topic(command) => runtime.block_on(topic::run(&args.connect, command)),
    }
}
