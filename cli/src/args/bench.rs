//! What can be typed about measurements.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Subcommand, ValueEnum};
use serde::{Deserialize, Serialize};

use crate::limit::bytes_in;

/// What can be measured.
#[derive(Debug, Clone, Subcommand)]
pub(crate) enum BenchCommand {
    /// A thousand messages a second for five seconds, with everything checked
    Smoke(BenchTarget),
    /// Writers and readers over the WebSocket at given rates
    Steady(SteadyArgs),
    /// The same with messages of several sizes
    Payload(PayloadArgs),
    /// As many messages as credit allows, then until the last is delivered
    Burst(BurstArgs),
    /// One topic, many readers
    FanOut(FanOutArgs),
    /// Many readers of one topic, and then half of them stop reading: what that costs the others, and memory
    Frozen(FrozenArgs),
    /// The three tiers of a topic: committed, speculative, ephemeral
    StreamTiers(StreamTiersArgs),
    /// A topic as a work queue: lease, some come back later, a few are given up, the rest is acknowledged
    QueueLifecycle(QueueArgs),
    /// Readers that come when everything is written, all at once
    CatchUp(CatchUpArgs),
    /// kill -9, then the time to the first confirm, and everything read back
    Recovery(RecoveryArgs),
    /// One POST after the other on each connection, over many topics in turn, everything read back
    ManyTopics(ManyTopicsArgs),
    /// One message per POST on keep-alive HTTP, beside the same server answering an empty 204
    Http(HttpArgs),
    /// One POST at a time, beside the disk's own write and sync
    Lone(LoneArgs),
    /// Many topics that nobody uses, and many WebSockets that say nothing
    Idle(IdleArgs),
    /// The load generator of `http` against any server, e.g. one to compare with
    Post(PeerArgs),
    /// A named set of the above, one after the other
    Matrix(MatrixArgs),
    /// Result files as a Markdown table
    Table(TableArgs),
    /// A process of `--clients`
    #[command(hide = true)]
    Client,
}

impl BenchCommand {
    /// What it measures; `None` if that is nothing of ours.
    pub(crate) fn target_mut(&mut self) -> Option<&mut BenchTarget> {
        Some(match self {
            Self::Smoke(target) => target,
            Self::ManyTopics(args) => &mut args.target,
            Self::Http(args) => &mut args.target,
            Self::Lone(args) => &mut args.target,
            Self::Idle(args) => &mut args.target,
            Self::Matrix(args) => &mut args.target,
            streaming => return streaming.stream_mut().map(|stream| &mut stream.target),
        })
    }

    /// The same for a second and in small numbers: shows that it works.
    pub(crate) fn shorten(&mut self) {
        if let Some(stream) = self.stream_mut() {
            (stream.seconds, stream.warmup) = (1, 1);
        }
        match self {
            Self::Payload(args) => args.rate = Rate::PerSecond(50),
            Self::Burst(args) => args.messages = args.messages.min(20_000),
            Self::FanOut(args) => args.readers.iter_mut().for_each(|readers| *readers = (*readers).min(20)),
            Self::Frozen(args) => args.readers = args.readers.min(20),
            Self::CatchUp(args) => {
                args.size = 4 << 20;
                args.readers.iter_mut().for_each(|readers| *readers = (*readers).min(20));
            }
            Self::Recovery(args) => args.size = 8 << 20,
            Self::ManyTopics(args) => {
                args.seconds = 1;
                args.topics.iter_mut().for_each(|topics| *topics = (*topics).min(100));
            }
            Self::Http(args) => (args.seconds, args.rounds) = (1, 1),
            Self::Lone(args) => args.seconds = 1,
            Self::Idle(args) => {
                (args.seconds, args.topics) = (1, args.topics.min(100));
                (args.sockets, args.connections) = (args.sockets.min(100), args.connections.min(100));
            }
            _ => {}
        }
    }

    fn stream_mut(&mut self) -> Option<&mut StreamArgs> {
        Some(match self {
            Self::Steady(args) => &mut args.stream,
            Self::Payload(args) => &mut args.stream,
            Self::Burst(args) => &mut args.stream,
            Self::FanOut(args) => &mut args.stream,
            Self::Frozen(args) => &mut args.stream,
            Self::StreamTiers(args) => &mut args.stream,
            Self::QueueLifecycle(args) => &mut args.stream,
            Self::CatchUp(args) => &mut args.stream,
            Self::Recovery(args) => &mut args.stream,
            _ => return None,
        })
    }

    /// The file that results are appended to.
    pub(crate) fn out(&mut self) -> Option<PathBuf> {
        match self {
            Self::Post(args) => args.output.out.clone(),
            other => other.target_mut()?.output.out.clone(),
        }
    }
}

/// What is measured, and where the result goes.
#[derive(Debug, Clone, Default, ClapArgs)]
pub(crate) struct BenchTarget {
    /// Measure the gateway that --url names instead of starting one
    #[arg(long)]
    pub(crate) running: bool,
    /// With --running on this machine: process whose CPU time and memory are read
    #[arg(long, value_name = "PID", requires = "running")]
    pub(crate) pid: Option<u32>,
    /// Directory on the disk to measure; data goes into a new one below it, removed at the end [default: .]
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// The results
    #[command(flatten)]
    pub(crate) output: Output,
}

/// Where results go besides the terminal.
#[derive(Debug, Clone, Default, ClapArgs)]
pub(crate) struct Output {
    /// Append each result to this file, a line of JSON; `weir bench table` reads it
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
}

/// What runs of writers and readers have in common.
#[derive(Debug, Clone, ClapArgs)]
pub(crate) struct StreamArgs {
    /// What is measured
    #[command(flatten)]
    pub(crate) target: BenchTarget,
    /// Level to wait for
    #[arg(long, default_value = "quorum", value_name = "LEVEL", value_parser = ["none", "memory", "durable", "quorum"])]
    pub(crate) confirm: String,
    /// How messages travel
    #[arg(long, value_enum, default_value_t = Transport::Ws, value_name = "HOW")]
    pub(crate) transport: Transport,
    /// Processes that writers and readers are spread over; 1: all in this one
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) clients: u32,
    /// Messages that a writer sends together at least: it waits until so many are due, and each counts from when it was
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    pub(crate) together: u32,
    /// Seconds before what counts
    #[arg(long, default_value_t = 3, value_name = "S")]
    pub(crate) warmup: u64,
    /// Seconds that count
    #[arg(long, default_value_t = 10, value_name = "S", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) seconds: u64,
    /// Object store that messages go to after a second, as `weir dev` takes it; each run has a folder of its own
    /// there, `bench-…`, which stays (but for `local`, which is in the run's data directory) [default: none]
    #[arg(long, value_name = "URL", conflicts_with = "running")]
    pub(crate) object_store: Option<String>,
}

/// How messages travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub(crate) enum Transport {
    /// WebSocket, binary frames
    Ws,
    /// WebSocket, JSON frames
    WsJson,
    /// Published over the binary WebSocket, read as server-sent events
    Sse,
    /// Past the gateway, straight to a storage node in the words that gateways use: what a gateway costs shows by
    /// difference
    Internal,
}

/// How workers of a queue get messages and settle them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub(crate) enum Over {
    /// WebSocket, binary frames, settled in ranges
    Ws,
    /// WebSocket, JSON frames, settled in ranges
    WsJson,
    /// Pulled and settled with a request each
    Http,
}

impl std::fmt::Display for Over {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Ws => "WebSocket binary",
            Self::WsJson => "WebSocket JSON",
            Self::Http => "HTTP",
        })
    }
}

/// How `weir bench stream-tiers` runs: once per tier, which says where publishers are answered.
#[derive(Debug, Clone, ClapArgs)]
pub(crate) struct StreamTiersArgs {
    /// What all have in common
    #[command(flatten)]
    pub(crate) stream: StreamArgs,
    /// Messages per second of all writers together
    #[arg(long, value_name = "RATE", default_value = "10k", value_parser = parse_rate)]
    pub(crate) rate: Rate,
}

/// How `weir bench steady` runs.
#[derive(Debug, Clone, ClapArgs)]
pub(crate) struct SteadyArgs {
    /// What all have in common
    #[command(flatten)]
    pub(crate) stream: StreamArgs,
    /// Messages per second of all writers together, e.g. 50k; several separated by commas run one after the
    /// other; `max` publishes as fast as the window lets
    #[arg(long, value_name = "RATE", value_delimiter = ',', default_value = "50k", value_parser = parse_rate)]
    pub(crate) rate: Vec<Rate>,
    /// Connections that publish
    #[arg(long, default_value_t = 10, value_name = "N")]
    pub(crate) writers: u32,
    /// Connections that subscribe
    #[arg(long, default_value_t = 10, value_name = "N")]
    pub(crate) readers: u32,
    /// Topics; members share them in turn [default: one per writer]
    #[arg(long, value_name = "N")]
    pub(crate) topics: Option<u32>,
    /// Bytes of a message, at least 24
    #[arg(long, default_value_t = 1_024, value_name = "BYTES")]
    pub(crate) payload: usize,
    /// Messages a writer may have unconfirmed
    #[arg(long, default_value_t = 1_024, value_name = "N")]
    pub(crate) window: u64,
    /// Messages a reader lets come before it has taken them
    #[arg(long, default_value_t = 16_384, value_name = "N")]
    pub(crate) credit: u64,
    /// Messages in one batch at most
    #[arg(long, default_value_t = 256, value_name = "N")]
    pub(crate) batch: u32,
}

/// How `weir bench payload` runs.
#[derive(Debug, Clone, ClapArgs)]
pub(crate) struct PayloadArgs {
    /// What all have in common
    #[command(flatten)]
    pub(crate) stream: StreamArgs,
    /// Sizes of messages
    #[arg(long, value_name = "SIZES", value_delimiter = ',', default_value = "100B,1KiB,8KiB,64KiB,512KiB,1MiB",
        value_parser = bytes_in(24..=1 << 20))]
    pub(crate) size: Vec<u64>,
    /// Messages per second; `max`: as fast as it goes
    #[arg(long, value_name = "RATE", default_value = "max", value_parser = parse_rate)]
    pub(crate) rate: Rate,
}

/// How `weir bench burst` runs.
#[derive(Debug, Clone, ClapArgs)]
pub(crate) struct BurstArgs {
    /// What all have in common
    #[command(flatten)]
    pub(crate) stream: StreamArgs,
    /// Messages, all together
    #[arg(long, default_value_t = 1_000_000, value_name = "N", value_parser = clap::value_parser!(u64).range(10..))]
    pub(crate) messages: u64,
}

/// How `weir bench fan-out` runs.
#[derive(Debug, Clone, ClapArgs)]
pub(crate) struct FanOutArgs {
    /// What all have in common
    #[command(flatten)]
    pub(crate) stream: StreamArgs,
    /// Readers of the one topic
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,8,32", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) readers: Vec<u32>,
    /// Messages published per second
    #[arg(long, value_name = "RATE", default_value = "10k", value_parser = parse_rate)]
    pub(crate) rate: Rate,
}

/// How `weir bench frozen` runs.
#[derive(Debug, Clone, ClapArgs)]
pub(crate) struct FrozenArgs {
    /// What all have in common; half of the readers freeze when the warm-up is over
    #[command(flatten)]
    pub(crate) stream: StreamArgs,
    /// Readers of the one topic
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(2..=10_000))]
    pub(crate) readers: u32,
    /// Messages published per second
    #[arg(long, value_name = "RATE", default_value = "50", value_parser = parse_rate)]
    pub(crate) rate: Rate,
}

/// How `weir bench queue-lifecycle` runs.
#[derive(Debug, Clone, ClapArgs)]
pub(crate) struct QueueArgs {
    /// What all have in common; --transport is of the writers
    #[command(flatten)]
    pub(crate) stream: StreamArgs,
    /// How workers get messages and settle them
    #[arg(long, value_enum, value_name = "HOW", value_delimiter = ',', default_value = "ws,ws-json,http")]
    pub(crate) over: Vec<Over>,
    /// Messages a worker has leased at once; a pull over HTTP gives 10,000 at most
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,64,16384", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub(crate) prefetch: Vec<u32>,
    /// Workers
    #[arg(long, default_value_t = 16, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) workers: u32,
    /// Partitions of the topic
    #[arg(long, default_value_t = 4, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_024))]
    pub(crate) partitions: u32,
    /// Messages published per second; `max` is not offered, since what is not worked off waits
    #[arg(long, value_name = "RATE", default_value = "1k", value_parser = parse_per_second)]
    pub(crate) rate: Rate,
    /// One in so many is given back at its first delivery, to come again after 200 ms; 0: none
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub(crate) nack_one_in: u64,
    /// One in so many is given up, which makes a dead letter of it; 0: none
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub(crate) dead_one_in: u64,
}

/// How `weir bench catch-up` runs. With --object-store everything is restored from there before it is read, so nothing
/// of it is local; then it is read once more, from the cache.
#[derive(Debug, Clone, ClapArgs)]
pub(crate) struct CatchUpArgs {
    /// What all have in common
    #[command(flatten)]
    pub(crate) stream: StreamArgs,
    /// Readers, all at once
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,10,100", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) readers: Vec<u32>,
    /// What each reads
    #[arg(long, value_name = "SIZE", default_value = "100MiB", value_parser = bytes_in(1 << 20..=1 << 40))]
    pub(crate) size: u64,
}

/// How `weir bench recovery` runs.
#[derive(Debug, Clone, ClapArgs)]
pub(crate) struct RecoveryArgs {
    /// What all have in common
    #[command(flatten)]
    pub(crate) stream: StreamArgs,
    /// What is published before the kill
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = bytes_in(1 << 20..=1 << 40))]
    pub(crate) size: u64,
}

/// How `weir bench many-topics` runs.
#[derive(Debug, Clone, ClapArgs)]
pub(crate) struct ManyTopicsArgs {
    /// What is measured
    #[command(flatten)]
    pub(crate) target: BenchTarget,
    /// Topics
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "100,500,2000,10000", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) topics: Vec<u32>,
    /// Connections, each with one POST under way
    #[arg(long, default_value_t = 64, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) connections: u32,
    /// Bytes of a message, at least 24
    #[arg(long, default_value_t = 1_024, value_name = "BYTES", value_parser = bytes_in(24..=1 << 20))]
    pub(crate) payload: u64,
    /// Seconds that count, after a fifth as long that warms up
    #[arg(long, default_value_t = 5, value_name = "S", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) seconds: u64,
}

/// How `weir bench http` runs.
#[derive(Debug, Clone, ClapArgs)]
pub(crate) struct HttpArgs {
    /// What is measured
    #[command(flatten)]
    pub(crate) target: BenchTarget,
    /// Requests under way, each on a connection of its own with HTTP/1.1
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "64", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) connections: Vec<u32>,
    /// HTTP/2 without TLS, 16 requests under way on each connection
    #[arg(long)]
    pub(crate) http2: bool,
    /// Bytes of a message
    #[arg(long, default_value_t = 1_024, value_name = "BYTES")]
    pub(crate) payload: usize,
    /// Seconds of each kind per round
    #[arg(long, default_value_t = 3, value_name = "S")]
    pub(crate) seconds: u64,
    /// Rounds that count, after one that warms up
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rounds: u32,
}

/// How `weir bench lone` runs.
#[derive(Debug, Clone, ClapArgs)]
pub(crate) struct LoneArgs {
    /// What is measured
    #[command(flatten)]
    pub(crate) target: BenchTarget,
    /// POSTs a second, and as many syncs between them; `max`: one right behind the other
    #[arg(long, default_value = "50,1k,max", value_name = "RATE", value_delimiter = ',', value_parser = parse_rate)]
    pub(crate) rate: Vec<Rate>,
    /// Seconds per rate; at `max` as many as there are at 1k
    #[arg(long, default_value_t = 4, value_name = "S", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) seconds: u64,
    /// Bytes of a message
    #[arg(long, default_value_t = 1_024, value_name = "BYTES")]
    pub(crate) payload: usize,
}

/// How `weir bench idle` runs.
#[derive(Debug, Clone, ClapArgs)]
pub(crate) struct IdleArgs {
    /// What is measured
    #[command(flatten)]
    pub(crate) target: BenchTarget,
    /// Topics; with --running they are left behind
    #[arg(long, default_value_t = 10_000, value_name = "N")]
    pub(crate) topics: u32,
    /// WebSockets, each following one of the topics from its end; welcomed and no more if --topics is 0
    #[arg(long, default_value_t = 0, value_name = "N", value_parser = clap::value_parser!(u32).range(..=100_000))]
    pub(crate) sockets: u32,
    /// HTTP/1.1 connections that are kept open, each after one request that was answered
    #[arg(long, default_value_t = 0, value_name = "N", value_parser = clap::value_parser!(u32).range(..=100_000))]
    pub(crate) connections: u32,
    /// Seconds that count, of the topics alone and again with the WebSockets and the connections
    #[arg(long, default_value_t = 60, value_name = "S", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) seconds: u64,
}

/// How `weir bench post` runs.
#[derive(Debug, Clone, ClapArgs)]
pub(crate) struct PeerArgs {
    /// Where to, http:// only; `{n}` stands for the number of the connection, from 0
    pub(crate) to: String,
    /// What the result is called
    #[arg(long, default_value = "post", value_name = "NAME")]
    pub(crate) name: String,
    /// Before anything, once per connection: `PUT` to the same URL without a body
    #[arg(long)]
    pub(crate) create: bool,
    /// A header of every request, `Name: value`
    #[arg(long, value_name = "HEADER")]
    pub(crate) header: Vec<String>,
    /// Connections, each with one request at a time
    #[arg(long, default_value_t = 64, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) connections: u32,
    /// Bytes of a message
    #[arg(long, default_value_t = 1_024, value_name = "BYTES")]
    pub(crate) payload: usize,
    /// Seconds that count, after a fifth as long that warms up
    #[arg(long, default_value_t = 5, value_name = "S", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) seconds: u64,
    /// The results
    #[command(flatten)]
    pub(crate) output: Output,
}

/// How `weir bench matrix` runs.
#[derive(Debug, Clone, ClapArgs)]
pub(crate) struct MatrixArgs {
    /// Name of the set; without one the sets are listed with their commands
    pub(crate) name: Option<String>,
    /// How often each is run [default: as often as the set says]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) runs: Option<u32>,
    /// Leave out what --out has already, of the same build (WEIR_BENCH_BUILD)
    #[arg(long)]
    pub(crate) resume: bool,
    /// Everything for a second and in small numbers: shows that a set works, and its figures mean nothing
    #[arg(long)]
    pub(crate) short: bool,
    /// What is measured
    #[command(flatten)]
    pub(crate) target: BenchTarget,
}

/// What `weir bench table` reads.
#[derive(Debug, Clone, ClapArgs)]
pub(crate) struct TableArgs {
    /// Files that --out wrote
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Only these figures and latencies, in this order, e.g. confirm,post_per_s [default: all]
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    pub(crate) only: Vec<String>,
}

/// Messages per second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Rate {
    /// This many.
    PerSecond(u64),
    /// As many as go.
    Max,
}

impl std::fmt::Display for Rate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::PerSecond(rate) if *rate >= 1_000 && rate.is_multiple_of(1_000) => {
                write!(f, "{}k/s", rate / 1_000)
            }
            Self::PerSecond(rate) => write!(f, "{rate}/s"),
            Self::Max => f.write_str("max"),
        }
    }
}

fn parse_rate(text: &str) -> Result<Rate, String> {
    if text == "max" {
        return Ok(Rate::Max);
    }
    let (digits, factor) = text.strip_suffix('k').map_or((text, 1), |digits| (digits, 1_000));
    match digits.parse::<u64>().ok().and_then(|number| number.checked_mul(factor)) {
        Some(rate) if rate > 0 => Ok(Rate::PerSecond(rate)),
        _ => Err("expected messages per second, e.g. 500 or 150k, or `max`".to_owned()),
    }
}

fn parse_per_second(text: &str) -> Result<Rate, String> {
    match parse_rate(text)? {
        Rate::Max => Err("expected messages per second, e.g. 500 or 150k".to_owned()),
        rate => Ok(rate),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_numbers_thousands_or_as_fast_as_it_goes() {
        assert_eq!(parse_rate("150k"), Ok(Rate::PerSecond(150_000)));
        assert_eq!(parse_rate("max"), Ok(Rate::Max));
        assert!(parse_rate("0").is_err());
        assert!(parse_per_second("max").is_err());
        for (rate, text) in [(150_000, "150k/s"), (50, "50/s"), (1_500, "1500/s")] {
            assert_eq!(Rate::PerSecond(rate).to_string(), text);
        }
    }
}
