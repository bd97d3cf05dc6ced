//! `weir`: runs the product on one machine, manages topics from the public interface.
//!
//! ```text
//!   args                 what can be typed, with its help
//!   serve                `weir dev`, `weir node`, `weir gateway`: what runs until it is stopped
//!   repair               what is damaged in a data directory, and cutting it off
//!   restore              a data directory from the object store alone
//!   config               settings from a file          limit   sizes, ages and counts as they are typed
//!   topic, namespace, subscription, publish, subscribe, pull, bench    one module per command, over
//!   client               HTTP as any user would speak it
//!   output               what is printed, for people and with --json
//! ```

mod args;
mod bench;
mod client;
mod config;
mod limit;
mod listing;
mod memory;
mod namespace;
mod output;
mod publish;
mod pull;
mod repair;
mod restore;
mod serve;
mod subscribe;
mod subscription;
mod topic;

use std::process::ExitCode;

use clap::FromArgMatches as _;

use crate::args::{Args, Command, ConfigCommand};
use crate::config::FileConfig;

/// Batches are freed on other threads than they were made on, which the system's allocator is slow at (measured:
/// docs/performance/experiments.md).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    match configured() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output::failure(&error);
            ExitCode::FAILURE
        }
    }
}

/// The file's settings are the defaults of the command line.
fn configured() -> anyhow::Result<()> {
    let file = FileConfig::find(std::env::args_os());
    let command = match file.command() {
        Ok(command) => command,
        Err(error) => {
            // The one command that is for a file with which nothing else can be done, or for another one.
            let args = typed(FileConfig::default().command()?, &FileConfig::default());
            let is_check = matches!(args.command, Command::Config(ConfigCommand::Check { .. }));
            return if is_check { run(args, &file) } else { Err(error) };
        }
    };
    run(typed(command, &file), &file)
}

/// What was typed; ends the process if it is not understood, or asks for help alone.
fn typed(command: clap::Command, file: &FileConfig) -> Args {
    let args = command.try_get_matches().and_then(|matches| Args::from_arg_matches(&matches));
    args.unwrap_or_else(|error| {
        if error.kind() == clap::error::ErrorKind::InvalidUtf8 {
            // Which of them it was, the parser does not say.
            let variables =
                std::env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"WEIR_"));
            let words = std::env::args_os().skip(1).chain(variables.map(|(_, value)| value));
            let odd: Vec<_> = words.filter(|word| word.to_str().is_none()).collect();
            output::failure(&anyhow::anyhow!(
                "only names of files may be something else than UTF-8: {odd:?}"
            ));
            std::process::exit(2);
        }
        // It is no use to look for it in the line.
        if let Some(elsewhere) = file.refusal(&error) {
            output::failure(&anyhow::anyhow!(elsewhere));
            std::process::exit(2);
        }
        error.exit()
    })
}

fn run(args: Args, file: &FileConfig) -> anyhow::Result<()> {
    let Args { connect, command } = args;
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    if let Some(workers) = command.workers() {
        runtime.worker_threads(workers.into());
    }
    let runtime = runtime.enable_all().build()?;
    if matches!(command, Command::Dev(_) | Command::Node(_) | Command::Gateway(_)) {
        config::warn_of_variables();
        memory::give_back()?;
    }
    match command {
        Command::Config(command) => config::run(&connect, file, &command),
        Command::Repair(args) => repair::run(&args, connect.json),
        Command::Restore(args) => runtime.block_on(restore::run(&args, connect.json)),
        Command::Dev(dev) => runtime.block_on(serve::dev(dev)),
        Command::Node(node) => runtime.block_on(serve::node(node)),
        Command::Gateway(gateway) => runtime.block_on(serve::gateway(gateway)),
        Command::Pub(publish) => runtime.block_on(publish::run(&connect, &publish)),
        Command::Sub(subscribe) => runtime.block_on(subscribe::run(&connect, &subscribe)),
        Command::Bench(command) => runtime.block_on(bench::run(&connect, command)),
        Command::Pull(pull) => runtime.block_on(pull::run(&connect, &pull)),
        Command::Subscription(command) => runtime.block_on(subscription::run(&connect, command)),
        Command::Namespace(command) => runtime.block_on(namespace::run(&connect, command)),
        Command::Topic(command) => runtime.block_on(topic::run(&connect, command)),
    }
}
