//! What can be typed about subscriptions and pulls.

use std::ops::RangeInclusive;

use clap::{Args as ClapArgs, Subcommand, value_parser};
use weir_protocol::limits::{LEASE_MS_MAX, LEASE_MS_MIN, PULL_RECORDS_MAX, WAIT_MS_MAX};

use crate::limit::{ms_in, parse_ms};

/// How long messages may be leased.
const LEASE_MS: RangeInclusive<u64> = LEASE_MS_MIN as u64..=LEASE_MS_MAX as u64;

/// What can be done with subscriptions.
#[derive(Debug, Subcommand)]
pub(crate) enum SubscriptionCommand {
    /// Create a subscription; does nothing if it exists with the same configuration
    #[command(
        after_help = "Each message of the topics is then leased to one worker, and comes again unless it is \
        acknowledged in time; a stream is read in order instead, from a cursor that is kept under its name.\n\nExamples:\n  weir subscription create billing --topic orders\n  \
        weir subscription create billing --topic orders --lease 2m --max-attempts 5 \\\n    \
        --backoff 1s,10s,5m --dlq orders.dlq\n  \
        weir subscription create shipping --topic orders --topic returns\n  \
        weir subscription create audit --pattern 'orders.*'    # later topics as well\n  \
        weir subscription create ledger --topic orders --mode stream --start tail:100\n  \
        weir pull billing --ack    # take and acknowledge what there is"
    )]
    Create(CreateArgs),
    /// Show a subscription: configuration, what is ready, leased and delayed, and how many messages died so far
    #[command(visible_alias = "show")]
    Get {
        /// Name
        name: String,
    },
    /// List subscriptions and what waits in them
    #[command(visible_alias = "ls")]
    List {
        /// Only names that contain this text
        #[arg(long, value_name = "TEXT")]
        query: Option<String>,
        /// Stop after this many
        #[arg(long, default_value_t = 1000, value_name = "N")]
        limit: u32,
    },
    /// Change configuration fields of a subscription; the others stay as they are
    #[command(after_help = "What it consumes, its mode, start and order are for life.\n\nExamples:\n  \
        weir subscription set billing --max-attempts 5 --dlq orders.dlq\n  \
        weir subscription set billing --filter ''    # none; --dlq, --fair-by likewise")]
    Set {
        /// Name
        name: String,
        /// What is changed
        #[command(flatten)]
        fields: SubscriptionFields,
    },
    /// Delete a subscription with its leases; the topic's messages stay
    #[command(visible_alias = "rm")]
    Delete {
        /// Name
        name: String,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
    /// Move a subscription: deliver messages again, or skip them
    #[command(
        after_help = "Everything from there on is delivered, also what was settled or dead; everything before it is \
        settled. Leases end, and attempts begin anew. What stood before is kept and can be brought back.\n\nExamples:\n  \
        weir subscription seek billing ts:2026-01-31T12:00:00Z --dry-run  # only count\n  \
        weir subscription seek billing latest                       # drop what waits"
    )]
    Seek {
        /// Name
        name: String,
        /// Where to: earliest, latest, ts:TIME (RFC 3339 or ms), or, if there is one partition in all, an offset
        to: String,
        /// Only say what it would do
        #[arg(long)]
        dry_run: bool,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
    /// Settle everything that waits, without delivering it
    #[command(
        after_help = "What is ready, leased, delayed and dead is done with, for this subscription alone: the messages stay in \
        their topic. Leases end. What stood before is kept and can be brought back; messages that the topic's until_settled \
        has removed since cannot. What went to the dlq stays there. A purge of dead letters alone can be taken back until the \
        next seek or other purge.\n\nExamples:\n  \
        weir subscription purge billing --dry-run      # how many would go\n  \
        weir subscription purge billing\n  \
        weir subscription purge billing --what dead    # only forget dead letters"
    )]
    Purge {
        /// Name
        name: String,
        /// all, or dead: only dead letters
        #[arg(long, default_value = "all", value_name = "WHAT", value_parser = ["all", "dead"])]
        what: String,
        /// Only say what it would do
        #[arg(long)]
        dry_run: bool,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
    /// Take a seek or purge back: what stood before it, with what was settled since the last one
    #[command(
        after_help = "What was settled since the last seek or purge stays settled, not what was since any before; after an undo, only of what \
        was published later: to repeat an undo delivers again what was settled before the first. Of each partition the latest four \
        seeks and purges can be undone, an undo as well; a purge of dead letters alone only until the next seek or other purge. \
        Leases end.\n\nExample:\n  \
        weir subscription undo billing snap_00c0ffee00c0ffee --dry-run"
    )]
    Undo {
        /// Name
        name: String,
        /// What the seek or purge answered: snap_ and 16 digits
        undo: String,
        /// Only say what it would do
        #[arg(long)]
        dry_run: bool,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
    /// Create a subscription that begins as this one stands, or stood before a seek; both go on by themselves
    #[command(
        after_help = "Nothing is copied: the fork begins with what was settled, dead and tried at that instant, and is pulled \
        from beside the first one. Flags say what is configured otherwise.\n\nExamples:\n  \
        weir subscription fork billing shadow                         # as it stands\n  \
        weir subscription fork billing old --at snap_00c0ffee00c0ffee # before a seek\n  \
        weir subscription fork billing old --at ts:2026-01-31T02:00:00Z   # as of then\n  \
        weir subscription fork billing replay --dlq replay.dlq --max-attempts 1"
    )]
    Fork {
        /// Subscription that is forked
        name: String,
        /// Name of the new one
        fork: String,
        /// As it stood when: now, ts:TIME (RFC 3339 or ms; about an hour is kept), or what a seek answered:
        /// snap_ and 16 digits
        #[arg(long, default_value = "now", value_name = "WHEN")]
        at: String,
        /// What is configured otherwise
        #[command(flatten)]
        fields: SubscriptionFields,
    },
    /// Say where one message stands, who has it, and what keeps it from being leased
    #[command(after_help = "Changes nothing.\n\nExamples:\n  weir subscription explain billing 0:76531\n  \
        weir subscription explain billing 0:76531 --json | jq .reasons")]
    Explain {
        /// Name
        name: String,
        /// Partition and offset of the message, as 0:76531; of several topics with its topic, as orders:0:76531
        id: String,
    },
    /// List the messages that are in one state
    #[command(
        after_help = "Changes nothing.\n\nExamples:\n  weir subscription state billing                 # what could be leased\n  \
        weir subscription state billing --of leased     # who has what\n  \
        weir subscription state billing --of dead --json | jq -r .id"
    )]
    State(StateArgs),
    /// Deliver dead letters once more, to this subscription alone
    #[command(
        after_help = "They are unsettled again where they are, in the topic; attempts begin anew. What went to the dead letter \
        topic stays there. It stops by itself when some of them are dead again.\n\nExamples:\n  \
        weir subscription redrive billing --dry-run                # which they are\n  \
        weir subscription redrive billing 0:7 0:9\n  \
        weir subscription redrive billing --max 10000 --rate 50 \\\n    \
        --filter \"header.region == 'eu*'\""
    )]
    Redrive(RedriveArgs),
    /// Lease no more messages; leases that are held can still be settled
    Pause {
        /// Name
        name: String,
    },
    /// Lease messages again
    Resume {
        /// Name
        name: String,
    },
}

/// A subscription to be created.
#[derive(Debug, Default, ClapArgs)]
pub(crate) struct CreateArgs {
    /// Name: A-Z a-z 0-9 . _ ~ -
    pub(crate) name: String,
    /// Topic whose messages are worked on; may be repeated
    #[arg(long, value_name = "TOPIC", required_unless_present = "pattern")]
    pub(crate) topic: Vec<String>,
    /// Work on all topics whose names begin so, also those created later: a prefix and *
    #[arg(long, value_name = "PREFIX*", conflicts_with = "topic")]
    pub(crate) pattern: Option<String>,
    /// queue, or stream: each partition is read in order by one at a time, and acknowledged up to a message
    #[arg(long, default_value = "queue", value_name = "MODE", value_parser = ["queue", "stream"])]
    pub(crate) mode: String,
    /// Where it starts: earliest, latest or ts:TIME (RFC 3339 or ms); a stream also an offset or tail:N
    /// [default: earliest]
    #[arg(long, value_name = "POSITION")]
    pub(crate) start: Option<String>,
    /// `key`: of the messages of one key, one is leased only when those before it are settled [default: none]
    #[arg(long, value_name = "none|key")]
    pub(crate) order: Option<String>,
    /// What may be left out
    #[command(flatten)]
    pub(crate) fields: SubscriptionFields,
}

/// What a subscription of any mode, and a fork, can be configured with. Absent flags leave the server's
/// default, or what is forked.
#[derive(Debug, Default, ClapArgs)]
pub(crate) struct SubscriptionFields {
    /// How long a message is leased unless a pull says otherwise, 1s to 12h; of a stream, how long who pulls may be
    /// silent before another reads in its place [default when created: 30s]
    #[arg(long, value_name = "TIME", value_parser = ms_in(LEASE_MS))]
    pub(crate) lease: Option<u64>,
    /// Deliveries of a message after which it is a dead letter; 0: no limit [default when created: 16]
    #[arg(long, value_name = "N")]
    pub(crate) max_attempts: Option<u32>,
    /// Pauses before delivery 2, 3, ..; the last one repeats [default when created: 1s,5s,30s]
    #[arg(long, value_name = "TIME", value_delimiter = ',', value_parser = parse_ms)]
    pub(crate) backoff: Option<Vec<u64>>,
    /// Topic that dead letters go to; without one they are settled and counted
    #[arg(long, value_name = "TOPIC")]
    pub(crate) dlq: Option<String>,
    /// Most messages of one topic leased at once [default when created: 10000]
    #[arg(long, value_name = "N")]
    pub(crate) max_unacked: Option<u32>,
    /// Lease only messages that match, as "header.region == 'eu*' and not header.test == '1'"
    /// [default when created: all]
    #[arg(long, value_name = "EXPRESSION")]
    pub(crate) filter: Option<String>,
    /// Let messages that differ in this take turns: header.NAME or key [default when created: by offset]
    #[arg(long, value_name = "FIELD")]
    pub(crate) fair_by: Option<String>,
    /// Lease nothing until it is resumed
    #[arg(long)]
    pub(crate) paused: bool,
}

/// Which messages `weir subscription state` lists.
#[derive(Debug, Clone, ClapArgs)]
pub(crate) struct StateArgs {
    /// Name
    pub(crate) name: String,
    /// ready, leased, delayed, blocked, settling, filtered or dead
    #[arg(long, default_value = "ready", value_name = "STATE",
        value_parser = ["ready", "leased", "delayed", "blocked", "settling", "filtered", "dead"])]
    pub(crate) of: String,
    /// As it was at ts:TIME (RFC 3339 or ms; about an hour is kept), or before a seek, by what the seek
    /// answered: snap_ and 16 digits; ready, delayed or dead
    #[arg(long, value_name = "WHEN")]
    pub(crate) as_of: Option<String>,
    /// Only this partition
    #[arg(long, value_name = "N")]
    pub(crate) partition: Option<u32>,
    /// Stop after this many
    #[arg(long, default_value_t = 1_000, value_name = "N")]
    pub(crate) limit: u64,
}

/// Which dead letters `weir subscription redrive` delivers again, and how fast.
#[derive(Debug, Clone, Default, ClapArgs)]
pub(crate) struct RedriveArgs {
    /// Name
    pub(crate) name: String,
    /// These messages, each as partition:offset, of several topics topic:partition:offset [default: the oldest]
    #[arg(value_name = "ID", conflicts_with = "max")]
    pub(crate) ids: Vec<String>,
    /// At most this many
    #[arg(long, default_value_t = 100, value_name = "N")]
    pub(crate) max: u64,
    /// Only those that match, as "header.region == 'eu*'"
    #[arg(long, value_name = "EXPRESSION")]
    pub(crate) filter: Option<String>,
    /// At most this many a second [default: at once]
    #[arg(long, value_name = "N")]
    pub(crate) rate: Option<u32>,
    /// Stop when this many of one partition are dead again; 0: never [default: 10]
    #[arg(long, value_name = "N")]
    pub(crate) stop_after: Option<u32>,
    /// Only say which they would be
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Do not ask
    #[arg(long)]
    pub(crate) yes: bool,
}

/// How `weir pull` leases.
#[derive(Debug, Clone, ClapArgs)]
pub(crate) struct PullArgs {
    /// Subscription
    pub(crate) subscription: String,
    /// Most messages
    #[arg(long, short = 'n', default_value_t = 32, value_name = "N",
        value_parser = value_parser!(u32).range(1..=i64::from(PULL_RECORDS_MAX)))]
    pub(crate) max: u32,
    /// With nothing to lease, wait this long for a message, at most 60s
    #[arg(long, default_value = "0s", value_name = "TIME", value_parser = ms_in(0..=WAIT_MS_MAX))]
    pub(crate) wait: u64,
    /// How long the messages are leased, 1s to 12h [default: as the subscription says]
    #[arg(long, value_name = "TIME", value_parser = ms_in(LEASE_MS))]
    pub(crate) lease: Option<u64>,
    /// Acknowledge every message once it is printed
    #[arg(long)]
    pub(crate) ack: bool,
    /// Pull again and again, until Ctrl-C: whatever comes is printed, and with --ack acknowledged
    #[arg(long, conflicts_with = "wait")]
    pub(crate) follow: bool,
    /// Who takes them, shown in the list of leases; of a stream, pulls with the same name are one reader
    /// [default: `weir pull` and the process]
    #[arg(long, value_name = "NAME")]
    pub(crate) holder: Option<String>,
}
