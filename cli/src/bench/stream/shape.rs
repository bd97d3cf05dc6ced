//! Who does what in a run of writers and readers: one shape per case.

use std::time::Duration;

use anyhow::ensure;
use serde::{Deserialize, Serialize};
use weir_protocol::rpc::Level;
use weir_storage_node::tier::LOCAL;

use super::worker::{Fates, PULL_MAX};
use crate::args::{
    BurstArgs, CatchUpArgs, FanOutArgs, FrozenArgs, Over, PayloadArgs, QueueArgs, Rate, RecoveryArgs,
    SteadyArgs, StreamArgs, StreamTiersArgs, Transport,
};
use crate::bench::identity::IDENTITY_BYTES;
use crate::bench::target::Setup;

/// Bytes that a writer of large messages has unconfirmed at most.
const WINDOW_BYTES: u64 = 4 << 20;
/// Bytes of messages in one batch at most; a batch of more is refused.
const BATCH_BYTES: u64 = 1 << 20;
/// Bytes of a message, where nothing else is said.
const PAYLOAD: usize = 1_024;

/// One case.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(in crate::bench) struct Shape {
    pub(super) workload: String,
    pub(super) case: String,
    pub(super) rate: Rate,
    pub(super) writers: u32,
    /// Readers, or workers of a queue.
    pub(super) readers: u32,
    pub(super) topics: u32,
    pub(super) partitions: u32,
    pub(super) payload: usize,
    /// Messages a writer has unconfirmed at most.
    pub(super) window: u64,
    /// Messages a reader lets come before it has taken them.
    pub(super) credit: u64,
    /// Messages in a batch at most.
    pub(super) batch_max: u32,
    /// Messages that a writer waits for until it sends.
    pub(super) together: u32,
    /// `None`: publishes are not confirmed.
    pub(super) confirm: Option<Level>,
    /// Level from which readers are shown messages.
    pub(super) deliver_from: Level,
    pub(super) transport: Transport,
    /// Processes that writers and readers are spread over.
    pub(super) clients: u32,
    pub(super) warmup: Duration,
    pub(super) measured: Duration,
    /// Messages of one writer, after which it is done however long that takes.
    pub(super) messages: Option<u64>,
    pub(super) consumption: Consumption,
    /// What becomes of the messages of a queue.
    pub(super) fates: Fates,
    /// Readers that stop reading when the warm-up is over; the last ones.
    pub(super) frozen: u32,
    /// Object store of the product, a folder of this run.
    pub(super) object_store: Option<String>,
}

/// What readers do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Consumption {
    /// They follow while it is written.
    Follow,
    /// They come when all is written.
    Replay,
    /// The same, after the product was killed and started again.
    Crash,
    /// They come when all is in the object store and nothing anywhere else, after others did, and then once more.
    Cold,
    /// They lease up to this many messages at once, and settle them.
    Queue { prefetch: u32, over: Over },
}

impl Shape {
    fn new(workload: &str, case: String, args: &StreamArgs) -> Self {
        let confirm = match args.confirm.as_str() {
            "memory" => Some(Level::Memory),
            "durable" => Some(Level::Durable),
            "quorum" => Some(Level::Quorum),
            _ => None,
        };
        let case = match (confirm, args.transport) {
            (Some(Level::Quorum), _) => case,
            _ => format!("{case}, confirm {}", args.confirm),
        };
        let case = match args.transport {
            Transport::Ws => case,
            Transport::WsJson => format!("{case}, JSON frames"),
            Transport::Sse => format!("{case}, SSE"),
            Transport::Internal => format!("{case}, past the gateway"),
        };
        let case = if args.clients > 1 { format!("{case}, {} clients", args.clients) } else { case };
        let case = if args.together > 1 { format!("{case}, {} together", args.together) } else { case };
        let case = match args.object_store.as_deref() {
            None => case,
            Some(LOCAL) => format!("{case}, local object store"),
            Some(_) => format!("{case}, object store"),
        };
        Self {
            workload: workload.to_owned(),
            case,
            rate: Rate::Max,
            writers: 4,
            readers: 4,
            topics: 4,
            partitions: 1,
            payload: PAYLOAD,
            window: 1_024,
            credit: 16_384,
            batch_max: 256,
            together: args.together,
            confirm,
            deliver_from: Level::Quorum,
            transport: args.transport,
            clients: args.clients,
            warmup: Duration::from_secs(args.warmup),
            measured: Duration::from_secs(args.seconds),
            messages: None,
            consumption: Consumption::Follow,
            fates: Fates { nack_one_in: 0, dead_one_in: 0 },
            frozen: 0,
            object_store: args.object_store.as_deref().map(folder),
        }
    }

    /// A thousand messages a second for five seconds.
    pub(in crate::bench) fn smoke() -> Self {
        let args = StreamArgs {
            target: crate::args::BenchTarget::default(),
            confirm: "quorum".to_owned(),
            transport: Transport::Ws,
            clients: 1,
            together: 1,
            warmup: 1,
            seconds: 5,
            object_store: None,
        };
        Self { rate: Rate::PerSecond(1_000), ..Self::new("smoke", "1k/s, 1 KiB".to_owned(), &args) }
    }

    /// As asked for, once per rate.
    pub(in crate::bench) fn steady(args: &SteadyArgs) -> anyhow::Result<Vec<Self>> {
        ensure!(args.payload >= IDENTITY_BYTES, "--payload is at least {IDENTITY_BYTES} bytes");
        ensure!(args.writers > 0 && args.window > 0 && args.batch > 0, "nothing would be published");
        let topics = args.topics.unwrap_or(args.writers);
        ensure!(topics > 0 && topics <= args.writers, "--topics is from 1 to --writers");
        let of = |rate: &Rate| Self {
            rate: *rate,
            writers: args.writers,
            readers: args.readers,
            topics,
            payload: args.payload,
            window: args.window,
            credit: args.credit,
            batch_max: args.batch,
            ..Self::new(
                "steady",
                format!("{rate}, {} writers, {} readers, {} B", args.writers, args.readers, args.payload),
                &args.stream,
            )
        };
        Ok(args.rate.iter().map(of).collect())
    }

    /// Once per size.
    pub(in crate::bench) fn payload(args: &PayloadArgs) -> anyhow::Result<Vec<Self>> {
        let of = |size: &u64| {
            let shape =
                Self::new("payload", format!("{}, {}", crate::limit::size(*size), args.rate), &args.stream);
            Ok(Self {
                rate: args.rate,
                payload: usize::try_from(*size)?,
                window: (WINDOW_BYTES / size).clamp(2, shape.window),
                credit: (4 * WINDOW_BYTES / size).clamp(8, shape.credit),
                batch_max: u32::try_from((BATCH_BYTES / (size + 64)).clamp(1, u64::from(shape.batch_max)))?,
                ..shape
            })
        };
        args.size.iter().map(of).collect()
    }

    /// As fast as credit allows, without a window.
    pub(in crate::bench) fn burst(args: &BurstArgs) -> anyhow::Result<Vec<Self>> {
        let shape = Self::new("burst", format!("{} messages, 1 KiB", args.messages), &args.stream);
        let messages = args.messages / u64::from(shape.writers);
        Ok(vec![Self { window: u64::MAX, warmup: Duration::ZERO, messages: Some(messages), ..shape }])
    }

    /// Once per number of readers.
    pub(in crate::bench) fn fan_out(args: &FanOutArgs) -> anyhow::Result<Vec<Self>> {
        let of = |readers: &u32| Self {
            rate: args.rate,
            writers: 1,
            readers: *readers,
            topics: 1,
            ..Self::new("fan-out", format!("{} × {readers} readers, 1 KiB", args.rate), &args.stream)
        };
        Ok(args.readers.iter().map(of).collect())
    }

    /// All readers, then with half of them frozen.
    pub(in crate::bench) fn frozen(args: &FrozenArgs) -> anyhow::Result<Vec<Self>> {
        ensure!(args.stream.transport != Transport::Sse, "--transport: server-sent events are not frozen");
        let of = |frozen: u32| {
            let case = format!("{} × {} readers, {frozen} of them frozen, 1 KiB", args.rate, args.readers);
            let shape = Self::new("frozen", case, &args.stream);
            Self { rate: args.rate, writers: 1, readers: args.readers, topics: 1, frozen, ..shape }
        };
        Ok(vec![of(0), of(args.readers / 2)])
    }

    /// Once per tier.
    pub(in crate::bench) fn tiers(args: &StreamTiersArgs) -> anyhow::Result<Vec<Self>> {
        ensure!(args.stream.confirm == "quorum", "--confirm: each tier says where publishers are answered");
        let of = |(tier, confirm, deliver_from)| Self {
            rate: args.rate,
            confirm: Some(confirm),
            deliver_from,
            ..Self::new(
                "stream-tiers",
                format!("{tier}, {}, 4 writers, 4 readers, 1 KiB", args.rate),
                &args.stream,
            )
        };
        let tiers = [
            ("committed", Level::Quorum, Level::Quorum),
            ("speculative", Level::Quorum, Level::Memory),
            ("ephemeral", Level::Memory, Level::Memory),
        ];
        Ok(tiers.into_iter().map(of).collect())
    }

    /// Once per way to consume and prefetch.
    pub(in crate::bench) fn queue(args: &QueueArgs) -> anyhow::Result<Vec<Self>> {
        let of = |(over, prefetch): (Over, u32)| {
            let prefetch = if over == Over::Http { prefetch.min(PULL_MAX) } else { prefetch };
            let case = format!(
                "{}, {over}, prefetch {prefetch}, {} workers, {} partitions, 1 KiB{}",
                args.rate,
                args.workers,
                args.partitions,
                unusual(args)
            );
            Self {
                rate: args.rate,
                readers: args.workers,
                topics: 1,
                partitions: args.partitions,
                consumption: Consumption::Queue { prefetch, over },
                fates: Fates { nack_one_in: args.nack_one_in, dead_one_in: args.dead_one_in },
                ..Self::new("queue-lifecycle", case, &args.stream)
            }
        };
        let each = args.over.iter().flat_map(|over| args.prefetch.iter().map(|prefetch| (*over, *prefetch)));
        Ok(each.map(of).collect())
    }

    /// Once per number of readers; one topic.
    pub(in crate::bench) fn catch_up(args: &CatchUpArgs) -> anyhow::Result<Vec<Self>> {
        let of = |readers: &u32| {
            let case = format!("{} × {readers} readers, 1 KiB", crate::limit::size(args.size));
            let shape = Self::new("catch-up", case, &args.stream);
            let messages = args.size / PAYLOAD as u64 / u64::from(shape.writers);
            let (topics, warmup, readers) = (1, Duration::ZERO, *readers);
            ensure!(args.stream.clients == 1, "--clients is for readers that follow; these come later");
            let is_cold = args.stream.object_store.is_some();
            let is_internal = args.stream.transport == Transport::Internal;
            ensure!(!(is_cold && is_internal), "--transport: the product is restored with its gateway");
            let is_local = args.stream.object_store.as_deref() == Some(LOCAL);
            ensure!(
                !is_local,
                "--object-store: a restore is from outside of the data directory; name a folder as file:///FOLDER"
            );
            let consumption = if is_cold { Consumption::Cold } else { Consumption::Replay };
            let messages = Some(messages);
            Ok(Self { topics, warmup, readers, messages, consumption, ..shape })
        };
        args.readers.iter().map(of).collect()
    }

    /// Everything is read back, by one reader per topic.
    pub(in crate::bench) fn recovery(args: &RecoveryArgs) -> anyhow::Result<Vec<Self>> {
        let shape =
            Self::new("recovery", format!("{} of 1 KiB", crate::limit::size(args.size)), &args.stream);
        ensure!(shape.confirm.is_some(), "what is not confirmed may be lost; ask for another --confirm");
        ensure!(shape.clients == 1, "--clients is for readers that follow; these come later");
        ensure!(
            shape.transport != Transport::Internal,
            "--transport: the product is killed with its gateway"
        );
        let messages = Some(args.size / PAYLOAD as u64 / u64::from(shape.writers));
        Ok(vec![Self { warmup: Duration::ZERO, messages, consumption: Consumption::Crash, ..shape }])
    }

    /// Whether a reader stops reading when the warm-up is over.
    pub(super) fn freezes(&self, reader: u32) -> bool {
        reader >= self.readers - self.frozen
    }

    /// How the product is started for it.
    pub(super) fn setup(&self) -> Setup {
        let mut options = Vec::new();
        if let Some(url) = &self.object_store {
            options.extend(["--object-store", url, "--seal-after-ms", "1000"].map(str::to_owned));
        }
        if self.consumption == Consumption::Cold {
            // A restore finds what a manifest names, which is waited for.
            options.extend(["--snapshot-every-ms", "1000"].map(str::to_owned));
            // What is read the second time is all in memory then, and what was read before it is not: blocks
            // carry what a message carries besides its payload.
            let bytes = 5 * self.messages.unwrap_or(0) * u64::from(self.writers) * self.payload as u64;
            options.extend(["--cache-memory".to_owned(), format!("{}MiB", (bytes >> 22).max(64))]);
        }
        Setup { is_node_alone: self.transport == Transport::Internal, options }
    }

    /// Name of the topic that a writer writes or a reader reads.
    pub(super) fn topic(&self, run: &str, member: u32) -> String {
        format!("bench-{run}-{}", member % self.topics)
    }
}

/// What of the fates of messages is not as usual.
fn unusual(args: &QueueArgs) -> String {
    match (args.nack_one_in, args.dead_one_in) {
        (20, 100) => String::new(),
        (0, 0) => ", all acknowledged".to_owned(),
        (nacked, dead) => format!(", 1 in {nacked} nacked, 1 in {dead} dead"),
    }
}

/// A folder in an object store that no other run has; one in the data directory is the run's own.
fn folder(url: &str) -> String {
    if url == LOCAL {
        return url.to_owned();
    }
    let run = ulid::Ulid::new().to_string().to_lowercase();
    format!("{}/bench-{run}", url.trim_end_matches('/'))
}
