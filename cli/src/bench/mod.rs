//! `weir bench`: how fast it is, measured from outside, with proof that nothing was lost.
//!
//! ```text
//!   target    the product under test: started for the run, or one that runs already
//!   schedule  when messages are due            identity  which message it is
//!   stream    writers and readers over the binary WebSocket, joined by
//!   tally     what was seen, in histograms     report    what is printed
//!   http      one message per POST, beside the same server's empty answer
//!   lone      one POST at a time, beside the disk's own sync
//!   idle      many topics that nobody uses
//! ```
//!
//! Latency counts from when a message was due, so a late generator or a slow server cannot hide.

mod http;
mod identity;
mod idle;
mod lone;
mod report;
mod schedule;
mod stream;
mod tally;
mod target;

use crate::args::{BenchCommand, Connect};

/// Runs one measurement.
pub(crate) async fn run(connect: &Connect, command: BenchCommand) -> anyhow::Result<()> {
    match command {
        BenchCommand::Smoke(target) => stream::run(connect, &target, &stream::Shape::smoke()).await,
        BenchCommand::Steady(args) => {
            let shape = stream::Shape::steady(&args)?;
            stream::run(connect, &args.target, &shape).await
        }
        BenchCommand::Http(args) => http::run(connect, &args).await,
        BenchCommand::Idle(args) => idle::run(connect, &args).await,
        BenchCommand::Lone(args) => lone::run(connect, &args).await,
    }
}
