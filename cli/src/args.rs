//! What can be typed. The help texts here are the command line's manual.

mod bench;
mod namespace;
mod queue;

use std::path::PathBuf;

use clap::{Args as ClapArgs, Parser, Subcommand};
use weir_protocol::batch::{HeadersBuilder, is_header_text};

use crate::limit::{Limit, parse_age, parse_count, parse_ms, parse_size};
use crate::output::word;
use crate::serve::{DevArgs, GatewayArgs, NodeArgs};

pub(crate) use bench::{
    BenchCommand, BenchTarget, BurstArgs, CatchUpArgs, FanOutArgs, FrozenArgs, HttpArgs, IdleArgs, LoneArgs,
    ManyTopicsArgs, MatrixArgs, Over, PayloadArgs, PeerArgs, QueueArgs, Rate, RecoveryArgs, SteadyArgs,
    StreamArgs, StreamTiersArgs, TableArgs, Transport,
};
pub(crate) use namespace::{NamespaceCommand, NamespaceFields};
pub(crate) use queue::{
    CreateArgs, PullArgs, RedriveArgs, StateArgs, SubscriptionCommand, SubscriptionFields,
};

/// Confirm levels, as they are typed.
const LEVELS: [&str; 5] = ["none", "memory", "durable", "quorum", "archived"];

/// Durable messaging over plain HTTP and WebSocket.
#[derive(Debug, Parser)]
#[command(name = "weir", version, propagate_version = true, max_term_width = 100)]
pub(crate) struct Args {
    /// Where the gateway is.
    #[command(flatten)]
    pub(crate) connect: Connect,
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What most commands take is shown below what is each one's own.
const COMMON: &str = "Options of most commands";

/// How clients reach a gateway.
#[derive(Debug, Clone, ClapArgs, serde::Serialize, serde::Deserialize)]
pub(crate) struct Connect {
    /// Gateway to talk to, http:// or https://
    #[arg(
        long,
        env = "WEIR_URL",
        default_value = Self::URL,
        global = true,
        help_heading = COMMON,
        value_name = "URL"
    )]
    pub(crate) url: String,
    /// Namespace of the topics and subscriptions named
    #[arg(
        id = "ns",
        long = "ns",
        env = "WEIR_NS",
        default_value = Self::NAMESPACE,
        global = true,
        help_heading = COMMON,
        value_name = "NAME"
    )]
    pub(crate) namespace: String,
    /// Trust this certificate authority or self-signed certificate (PEM), in addition to the system's [default: none]
    #[arg(long, env = "WEIR_CA_CERT", global = true, help_heading = COMMON, value_name = "FILE")]
    pub(crate) ca_cert: Option<PathBuf>,
    /// Print JSON for programs instead of text for people
    #[arg(long, global = true, help_heading = COMMON)]
    pub(crate) json: bool,
    /// Read settings from this TOML file [env: WEIR_CONFIG] [default: weir.toml, if there is one]
    #[arg(long, global = true, help_heading = COMMON, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

impl Connect {
    const URL: &str = "http://127.0.0.1:8080";
    const NAMESPACE: &str = "default";

    /// `weir` with the flags that lead to the same namespace of the same gateway, to be pasted.
    pub(crate) fn weir(&self) -> String {
        let ca_cert = self.ca_cert.as_ref().map(|path| path.to_string_lossy().into_owned());
        let flags = [
            ("--url", Some(self.url.clone()).filter(|url| url != Self::URL)),
            ("--ns", Some(self.namespace.clone()).filter(|name| name != Self::NAMESPACE)),
            ("--ca-cert", ca_cert),
        ];
        flags.into_iter().fold("weir".to_owned(), |line, (flag, value)| match value {
            Some(value) => format!("{line} {flag} {}", word(&value)),
            None => line,
        })
    }
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the product on this machine: gateway and storage node in one process
    Dev(DevArgs),
    /// Run a storage node by itself; gateways connect to it
    Node(NodeArgs),
    /// Run a gateway by itself, in front of a storage node; it keeps nothing and there may be several
    Gateway(GatewayArgs),
    /// Say where the journal of a node that does not run is damaged, and cut it off there if asked to
    ///
    /// A copy of the data directory is better: cutting loses everything that was confirmed behind the damage. What is
    /// cut is kept beside the journal, in files that end in `.damaged`.
    Repair(RepairArgs),
    /// Rebuild a data directory from the object store alone, when the node that had it is lost
    ///
    /// What had reached the object store is there again: archived messages, topics, subscriptions and what
    /// they had settled. What had not is lost; --dry-run says how much that is, as far as the store knows.
    /// From then on a node that still runs with the lost directory seals and archives nothing any more, and
    /// does not start again.
    #[command(
        after_help = "Examples:\n  weir restore --bucket s3://backups/weir --data-dir ./weir-data --dry-run\n  \
        weir restore --bucket s3://backups/weir --data-dir ./weir-data\n  \
        weir dev --object-store s3://backups/weir --data-dir ./weir-data"
    )]
    Restore(RestoreArgs),
    /// Create, list, change and delete topics
    #[command(subcommand)]
    Topic(TopicCommand),
    /// Create, list, show, change and delete namespaces: sets of topics that --ns chooses
    #[command(subcommand)]
    Namespace(NamespaceCommand),
    /// Create, list, change, explain, move, redrive, pause and delete subscriptions: topics as work queues
    #[command(subcommand)]
    Subscription(SubscriptionCommand),
    /// Publish a message, or every line of a file
    #[command(
        after_help = "Examples:\n  weir pub greetings 'hello'\n  weir pub logs --file app.log --lines\n  \
        weir pub orders --file orders.ndjson --lines --key-json .customer.id\n  \
        weir pub carts '{\"total\":10.50}' --content-type application/json -H region=eu\n  \
        weir pub logs --file app.log --lines --resume    # go on, without duplicates\n  \
        journalctl -f | weir pub journal --lines"
    )]
    Pub(PubArgs),
    /// Follow topics and print what comes
    #[command(
        after_help = "Examples:\n  weir sub greetings\n  weir sub logs --from earliest --no-follow > copy.log\n  \
        weir sub orders payments --from ts:2026-01-31T12:00:00Z --json | jq .data\n  weir sub logs --from tail:10\n  \
        weir sub orders --from earliest --no-follow --filter \"header.region == 'eu*'\"\n  \
        weir subscription create ledger --topic orders --mode stream\n  \
        weir sub --subscription ledger        # goes on where the last run stopped"
    )]
    Sub(SubArgs),
    /// Lease messages of a subscription, print them, and acknowledge them if told to
    #[command(
        after_help = "What is leased and not acknowledged comes again when its lease runs out, to whoever pulls next.\n\n\
        Examples:\n  weir pull billing                        # look at messages; they come again\n  \
        weir pull billing --max 1 --wait 60s --ack\n  \
        weir pull billing --follow --ack         # a worker that only prints\n  \
        weir pull billing --json | jq -r .lease  # leases, to settle over HTTP"
    )]
    Pull(PullArgs),
    /// Show and check settings: flags win over the environment, that over weir.toml
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Measure, with proof that nothing was lost
    ///
    /// Without --running each run starts the product in a process and a directory of its own, so that its CPU time
    /// and syncs can be told apart from the client's.
    #[command(subcommand)]
    Bench(BenchCommand),
}

impl Command {
    /// Threads that serve, if it serves and somebody says how many.
    pub(crate) fn workers(&self) -> Option<u16> {
        match self {
            Self::Dev(dev) => dev.threads.workers,
            Self::Node(node) => node.threads.workers,
            Self::Gateway(gateway) => gateway.threads.workers,
            _ => None,
        }
    }
}

/// What `weir repair` looks at, and whether it changes it.
#[derive(Debug, ClapArgs)]
pub(crate) struct RepairArgs {
    /// Directory of the data
    #[arg(long, env = "WEIR_DATA_DIR", default_value = "./weir-data", value_name = "DIR")]
    pub(crate) data_dir: PathBuf,
    /// Cut the journal off; without it nothing is changed
    #[arg(long)]
    pub(crate) truncate: bool,
}

/// What `weir restore` reads, and where it writes.
#[derive(Debug, ClapArgs)]
pub(crate) struct RestoreArgs {
    /// The object store, as --object-store of the lost node named it; credentials come from the environment
    #[arg(long, env = "WEIR_OBJECT_STORE", value_name = "URL")]
    pub(crate) bucket: String,
    /// Directory to make; it must be empty or missing
    #[arg(long, env = "WEIR_DATA_DIR", default_value = "./weir-data", value_name = "DIR")]
    pub(crate) data_dir: PathBuf,
    /// Which cluster, where the store holds several [default: the only one]
    #[arg(long, value_name = "ID")]
    pub(crate) cluster: Option<String>,
    /// Say what would be there, and write nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// If what is newest is damaged, go back to the newest that is not: more is lost then
    #[arg(long)]
    pub(crate) skip_damaged: bool,
}

/// What can be done with settings.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print every setting with its meaning, value and where that comes from, as a file that can be read again
    Print {
        /// Leave out the file and print the defaults
        #[arg(long)]
        defaults: bool,
        /// Only what this command would run with, flags included, e.g. `dev --data-shards 8`
        #[arg(
            value_name = "COMMAND",
            trailing_var_arg = true,
            allow_hyphen_values = true,
            conflicts_with = "defaults"
        )]
        command: Vec<String>,
    },
    /// Check a file; the one that would be read if none is named
    Check {
        /// The file
        file: Option<PathBuf>,
    },
}

/// A content type that whoever reads the message by itself can be told.
fn parse_content_type(text: &str) -> Result<String, String> {
    match text {
        "" => Err("empty: leave it out".to_owned()),
        _ if is_header_text(text.as_bytes()) => Ok(text.to_owned()),
        _ => Err("not visible ASCII".to_owned()),
    }
}

/// A header of a message.
fn parse_header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE")?;
    match HeadersBuilder::default().user(name, b"") {
        Ok(_) => Ok((name.to_owned(), value.to_owned())),
        Err(_) => Err("the name is empty, or starts with a control character".to_owned()),
    }
}

/// How `weir pub` publishes.
#[derive(Debug, Clone, ClapArgs)]
pub(crate) struct PubArgs {
    /// Topic
    pub(crate) topic: String,
    /// The message; without it standard input, or --file, is published
    #[arg(conflicts_with = "file")]
    pub(crate) message: Option<String>,
    /// Read from this file; `-` is standard input
    #[arg(long, short, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Each line is a message
    #[arg(long, short, conflicts_with = "message")]
    pub(crate) lines: bool,
    /// Key of every message
    #[arg(long, value_name = "KEY", conflicts_with = "key_json")]
    pub(crate) key: Option<String>,
    /// Messages are JSON, and this member is the key, e.g. .customer.id
    #[arg(long, value_name = "PATH")]
    pub(crate) key_json: Option<String>,
    /// Header of every message, which filters can ask for; may be repeated
    #[arg(long, short = 'H', value_name = "NAME=VALUE", value_parser = parse_header)]
    pub(crate) header: Vec<(String, String)>,
    /// Content type [default: text/plain, or application/json with --key-json]
    #[arg(long, value_name = "TYPE", value_parser = parse_content_type)]
    pub(crate) content_type: Option<String>,
    /// Level to wait for [default: the topic's]
    #[arg(long, value_name = "LEVEL", value_parser = LEVELS)]
    pub(crate) confirm: Option<String>,
    /// Go on where an earlier run of the same command stopped: as many messages as the topic has of it are
    /// skipped, if the last of them is what the input has there
    #[arg(long, requires = "lines")]
    pub(crate) resume: bool,
    /// Name of the producer [default: made from namespace, topic and the file's path]
    #[arg(long, value_name = "ID")]
    pub(crate) producer: Option<String>,
    /// Create the topic if it does not exist
    #[arg(long)]
    pub(crate) create: bool,
}

/// How `weir sub` follows.
#[derive(Debug, Clone, ClapArgs)]
pub(crate) struct SubArgs {
    /// Topics, at most 100
    #[arg(required_unless_present = "subscription", num_args = 1..=100, value_name = "TOPIC")]
    pub(crate) topics: Vec<String>,
    /// Not topics but a subscription, from where it stands: each message is acknowledged once it is printed, and the
    /// next run goes on behind it
    #[arg(long, value_name = "NAME",
        conflicts_with_all = ["topics", "from", "no_follow", "partition", "filter", "min_level"])]
    pub(crate) subscription: Option<String>,
    /// Where to start: earliest, latest, an offset, ts:TIME (RFC 3339 or ms), tail:N or cursor:C
    #[arg(long, default_value = "latest", value_name = "POSITION")]
    pub(crate) from: String,
    /// Stop after this many messages
    #[arg(long, short = 'n', value_name = "N")]
    pub(crate) count: Option<u64>,
    /// Stop once everything that existed at the start has been printed; interrupted before that, it fails
    #[arg(long)]
    pub(crate) no_follow: bool,
    /// Only this partition
    #[arg(long, value_name = "N")]
    pub(crate) partition: Option<u32>,
    /// Only messages that match, as "header.region == 'eu*' and not key == 'test'"; the rest is left at the server
    #[arg(long, value_name = "EXPRESSION")]
    pub(crate) filter: Option<String>,
    /// `memory`: print messages before they are committed, with lines that say what is firm and what is taken back
    /// (with --json; otherwise on standard error) [default: as the topic says]
    #[arg(long, value_name = "LEVEL", value_parser = ["memory", "quorum"])]
    pub(crate) min_level: Option<String>,
    /// Messages that may come before the last ones are printed
    #[arg(long, default_value_t = 4_096, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(crate) credit: u64,
}

/// What can be done with topics.
#[derive(Debug, Subcommand)]
pub(crate) enum TopicCommand {
    /// List topics with their rates
    #[command(visible_alias = "ls")]
    List {
        /// Only names that contain this text
        #[arg(long, value_name = "TEXT")]
        query: Option<String>,
        /// Stop after this many
        #[arg(long, default_value_t = 1000, value_name = "N")]
        limit: u32,
    },
    /// Create a topic; does nothing if it exists with the same configuration
    Create {
        /// Name: A-Z a-z 0-9 . _ ~ -
        name: String,
        /// Configuration fields
        #[command(flatten)]
        config: ConfigFields,
    },
    /// Show a topic's configuration, partitions and offsets
    #[command(visible_alias = "show")]
    Get {
        /// Name
        name: String,
    },
    /// Change configuration fields of a topic; the others stay as they are
    Set {
        /// Name
        name: String,
        /// Configuration fields
        #[command(flatten)]
        config: ConfigFields,
    },
    /// Remove the oldest messages for good
    #[command(
        after_help = "They go for all readers and subscriptions, on disk and in the object store; offsets do not change. This \
        cannot be undone.\n\nExamples:\n  \
        weir topic trim orders ts:2026-01-31T12:00:00Z --dry-run  # say how much goes\n  \
        weir topic trim orders 76400 --partition 3                # 76400 stays\n  \
        weir topic trim orders end                                # leave none"
    )]
    Trim {
        /// Name
        name: String,
        /// The first message that stays: an offset of one partition, ts:TIME (RFC 3339 or ms), or end, which
        /// leaves none
        before: String,
        /// Only this partition [default: all]
        #[arg(long, value_name = "N")]
        partition: Option<u32>,
        /// Only say what it would do
        #[arg(long)]
        dry_run: bool,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
    /// Delete a topic and all its messages
    #[command(visible_alias = "rm")]
    Delete {
        /// Name
        name: String,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
}

/// A topic's configuration, as flags. Absent flags leave the server's default (create) or value (set).
#[derive(Debug, Default, ClapArgs)]
pub(crate) struct ConfigFields {
    /// Number of partitions (create only) [default: 1]
    #[arg(long, value_name = "N")]
    pub(crate) partitions: Option<u32>,
    /// Remove messages older than this, e.g. 90s, 15m, 36h, 7d; `unlimited` keeps them
    #[arg(long, value_name = "AGE", value_parser = parse_age)]
    pub(crate) retention_age: Option<Limit>,
    /// Per partition, remove the oldest messages beyond this size, e.g. 512MiB, 20GiB; or `unlimited`
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) retention_bytes: Option<Limit>,
    /// Per partition, remove the oldest messages beyond this many; or `unlimited`
    #[arg(long, value_name = "N", value_parser = parse_count)]
    pub(crate) retention_records: Option<Limit>,
    /// Also remove the oldest messages that every subscription has settled (true), or keep them (false)
    #[arg(long, value_name = "BOOL")]
    pub(crate) until_settled: Option<bool>,
    /// Queues do not deliver a message that is older than this, unless it names a time of its own; or `unlimited`
    #[arg(long, value_name = "AGE", value_parser = parse_age)]
    pub(crate) ttl: Option<Limit>,
    /// How long idempotency keys are remembered, e.g. 10m
    #[arg(long, value_name = "AGE", value_parser = parse_ms)]
    pub(crate) dedupe_window: Option<u64>,
    /// `key`: keep only the newest message of each key, some time after it is in the object store; `none`: keep all
    #[arg(long, value_name = "HOW", value_parser = ["none", "key"])]
    pub(crate) compaction: Option<String>,
    /// `public`: proxies and CDNs may keep what never changes, and give it to whoever asks them; `private`: only
    /// clients may
    #[arg(long, value_name = "WHOSE", value_parser = ["private", "public"])]
    pub(crate) cache: Option<String>,
    /// Confirm level of publishes that name none
    #[arg(long, value_name = "LEVEL", value_parser = LEVELS)]
    pub(crate) default_confirm: Option<String>,
    /// Level from which readers are delivered a message: quorum, or memory, which may be taken back after a crash
    #[arg(long, value_name = "LEVEL", value_parser = ["memory", "quorum"])]
    pub(crate) deliver_from: Option<String>,
    /// Refuse publishes that ask for less than this level
    #[arg(long, value_name = "LEVEL", value_parser = LEVELS)]
    pub(crate) min_confirm: Option<String>,
    /// Content type of messages that name none
    #[arg(long, value_name = "TYPE", value_parser = parse_content_type)]
    pub(crate) content_type: Option<String>,
    /// Accept no more messages (true) or accept them again (false)
    #[arg(long, value_name = "BOOL")]
    pub(crate) closed: Option<bool>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        use clap::CommandFactory as _;
        Args::command().debug_assert();
    }

    /// A line that the terminal's width breaks in two is pasted as two commands.
    #[test]
    fn an_example_fits_on_one_line_of_a_terminal() {
        fn lines_of(command: &clap::Command) -> Vec<String> {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let examples = help.lines().skip_while(|line| !line.starts_with("Example"));
            let own = examples.map(str::to_owned).collect::<Vec<_>>();
            own.into_iter().chain(command.get_subcommands().flat_map(lines_of)).collect()
        }
        let lines = lines_of(&<Args as clap::CommandFactory>::command());
        assert!(lines.len() > 50, "{}", lines.len());
        let long: Vec<_> = lines.iter().filter(|line| line.len() > 80).collect();
        assert!(long.is_empty(), "{long:#?}");
    }
}
