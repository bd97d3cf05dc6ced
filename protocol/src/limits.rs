//! Every size that crosses a room's wall, related to the others at compile time. Published at `GET /v1`.

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

/// Largest record value unless configured otherwise.
pub const RECORD_BYTES_DEFAULT: usize = MIB;
/// Largest record that any configuration may allow: its encoded length in a batch.
pub const RECORD_BYTES_MAX: usize = 3 * MIB;
/// Largest record batch, header included: one record of the largest size, or what a gateway packs together.
pub const BATCH_BYTES_MAX: usize = RECORD_BYTES_MAX + 16 * KIB;
/// A gateway splits larger HTTP batches into sub-batches of at most this many encoded bytes (or one record).
pub const SUB_BATCH_BYTES_TARGET: usize = MIB;
/// Most records in one record batch.
pub const BATCH_RECORDS_MAX: u32 = 10_000;
/// Largest payload of one Raft entry.
pub const ENTRY_BYTES_MAX: usize = 3 * MIB + 512 * KIB;
/// Largest frame in a journal block: an entry and its header. The journal knows no protocol, so the storage
/// node holds its real sizes against these at compile time.
pub const JOURNAL_FRAME_BYTES_MAX: usize = 3 * MIB + 768 * KIB;
/// Largest journal block (one group commit).
pub const JOURNAL_BLOCK_BYTES_MAX: usize = 4 * MIB;
/// Largest frame between gateway and node or node and node, its header included.
pub const NODE_FRAME_BYTES_MAX: usize = 4 * MIB + 64 * KIB;

const _: () = assert!(RECORD_BYTES_DEFAULT <= RECORD_BYTES_MAX, "the default obeys the hard limit");
const _: () = assert!(RECORD_BYTES_MAX < BATCH_BYTES_MAX, "the largest record fits a batch with its header");
const _: () =
    assert!(BATCH_BYTES_MAX + KIB < ENTRY_BYTES_MAX, "the largest batch fits an entry with its headers");
const _: () = assert!(ENTRY_BYTES_MAX < JOURNAL_FRAME_BYTES_MAX, "an entry fits a journal frame");
const _: () = assert!(JOURNAL_FRAME_BYTES_MAX < JOURNAL_BLOCK_BYTES_MAX, "a frame fits a block");
const _: () = assert!(JOURNAL_BLOCK_BYTES_MAX < NODE_FRAME_BYTES_MAX, "a block's entries fit one append RPC");

/// Largest body of an HTTP batch request.
pub const HTTP_BATCH_BYTES_MAX: usize = 10 * MIB;
/// Most records in an HTTP batch request.
pub const HTTP_BATCH_RECORDS_MAX: u32 = 10_000;
/// Bytes that the record batches of one request may come to when they are decoded to be checked, which nobody
/// else's request can interrupt: a dozen times what a body may have. Zeros come to ten thousand times.
pub const BATCHES_DECODED_BYTES_MAX: usize = 128 * MIB;
/// Largest HTTP batch that may be atomic per partition.
pub const ATOMIC_BATCH_BYTES_MAX: usize = RECORD_BYTES_MAX;
/// Longest message key, in bytes.
pub const KEY_BYTES_MAX: usize = KIB;
/// Most user headers of one record.
pub const RECORD_HEADERS_MAX: usize = 64;
/// Names and values of one record's headers, in bytes together.
pub const RECORD_HEADERS_BYTES_MAX: usize = 16 * KIB;
/// Longest `Producer-Id` or `Idempotency-Key`, in bytes.
pub const CLIENT_ID_BYTES_MAX: usize = 255;
/// Longest time a read may wait for records, in milliseconds.
pub const WAIT_MS_MAX: u64 = 60_000;
/// Most records a read returns.
pub const READ_RECORDS_MAX: u32 = 10_000;
/// Most topics of one multi-topic event stream.
pub const SSE_TOPICS_MAX: usize = 100;
/// Most channels of one WebSocket.
pub const WS_CHANNELS_MAX: usize = 1_000;
/// Largest message a client may send over WebSocket: one batch of the largest size with its frame header.
pub const WS_MESSAGE_BYTES_MAX: usize = 4 * MIB;
/// Most partitions of one topic.
pub const PARTITIONS_MAX: u32 = 1_024;
/// Names of topics, subscriptions or namespaces that a shard looks at for one page of a list.
pub const LIST_NAMES_MAX: usize = 10_000;
/// Greatest number that a client may send, and that is told to one: JSON has none beyond it that everybody reads alike.
pub const INTEGER_MAX: u64 = (1 << 53) - 1;
/// Longest delay of a delayed message, in milliseconds (one year).
pub const DELAY_MS_MAX: u64 = 366 * 24 * 3600 * 1000;
/// Producers and idempotency keys remembered per shard; beyond it keyed publishes are refused.
pub const DEDUPE_ENTRIES_MAX: usize = 1_000_000;
/// How long an idempotency key is remembered unless the topic says otherwise, in milliseconds.
pub const DEDUPE_WINDOW_MS_DEFAULT: u64 = 600_000;
/// The shortest such time that a topic may say, in milliseconds.
pub const DEDUPE_WINDOW_MS_MIN: u64 = 1_000;
/// An idle producer is forgotten after this long, in milliseconds (seven days).
pub const PRODUCER_IDLE_MS: u64 = 7 * 24 * 3600 * 1000;
/// Sequence numbers remembered below a producer's highest on a topic of several partitions.
pub const PRODUCER_WINDOW: u64 = 1_024;
/// Shortest and longest time that a record is leased for.
pub const LEASE_MS_MIN: u32 = 1_000;
/// See [`LEASE_MS_MIN`]: 12 hours.
pub const LEASE_MS_MAX: u32 = 12 * 3600 * 1000;
/// Most records of one pull.
pub const PULL_RECORDS_MAX: u32 = 10_000;
/// Most parts that a consumer of a stream says it can read.
pub const SHARE_PARTS_MAX: usize = 65_536;
/// Most consumers that share one stream.
pub const SHARE_CONSUMERS_MAX: usize = 1_000;
/// Most leases of one settle request.
pub const SETTLE_ITEMS_MAX: usize = 10_000;
/// Most messages that one settle publishes.
pub const SETTLE_OUTPUTS_MAX: usize = 1_000;
/// Most bytes that a settle which publishes says: its outputs as record batches, and its leases with their reasons.
pub const SETTLE_OUTPUT_BYTES_MAX: usize = 3 * MIB;
/// Longest reason of a nack or a dead letter.
pub const SETTLE_REASON_BYTES_MAX: usize = KIB;
/// Most records that one redrive takes, or is asked about.
pub const REDRIVE_RECORDS_MAX: usize = 10_000;
/// Most records that a subscription may have leased at once.
pub const UNACKED_MAX: u32 = 1_000_000;
/// Most topics that a subscription names.
pub const SUBSCRIPTION_TOPICS_MAX: usize = 100;
/// Most partitions of the topics that a subscription names; of one with a pattern, in each shard.
pub const SUBSCRIPTION_PARTS_MAX: usize = 1_024;
/// Most subscriptions with a pattern in one namespace, of those that are at home in one shard.
pub const SUBSCRIPTION_PATTERNS_MAX: usize = 1_000;
/// Most objects that the description of a topic names as damaged.
pub const DAMAGED_OBJECTS_MAX: usize = 64;
/// Most delays of a subscription's back-off.
pub const BACKOFF_STEPS_MAX: usize = 32;

const _: () =
    assert!(SETTLE_OUTPUT_BYTES_MAX < ENTRY_BYTES_MAX, "what a settle publishes fits the entry that settles");
const _: () = assert!(BATCH_BYTES_MAX < WS_MESSAGE_BYTES_MAX, "the largest batch fits a WebSocket message");
