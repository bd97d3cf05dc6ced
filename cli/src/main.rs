//! `weir`: runs the product on one machine, manages topics, publishes, subscribes and measures.
//!
//! ```text
//!   args                 what can be typed, with its help
//!   dev, settings        `weir dev`: node and gateway in one process; flags > environment > TOML
//!   topic, publish, subscribe, bench      one module per command, over
//!   client               HTTP and WebSocket as any user would speak them
//!   output               what is printed, for people and with --json
//! ```

mod args;
mod client;
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
        Command::Topic(command) => runtime.block_on(topic::run(&args.connect, command)),
    }
}
