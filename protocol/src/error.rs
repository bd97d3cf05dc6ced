//! Every refusal Weir knows: its stable code, HTTP status, whether a retry can help, and its title.
//!
//! One exhaustive table. The gateway turns a row into an RFC 9457 problem, the WebSocket into an `err` or
//! `reject` frame, nodes send the number. A number is never reused.

macro_rules! error_codes {
    ($($(#[$doc:meta])* $variant:ident = $number:literal, $text:literal, $status:literal, $retry:ident, $title:literal;)+) => {
        /// Why a request was refused. See the module for what each consumer makes of it.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u16)]
        pub enum ErrorCode {
            $($(#[$doc])* $variant = $number,)+
        }

        impl ErrorCode {
            /// All codes, in numeric order of their table.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The stable text clients match on, e.g. `seq_overlap`.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }

            /// The HTTP status it is answered with.
            #[must_use]
            pub const fn status(self) -> u16 {
                match self { $(Self::$variant => $status,)+ }
            }

            /// True if the same request may succeed later without being changed.
            #[must_use]
            pub const fn retryable(self) -> bool {
                match self { $(Self::$variant => error_codes!(@$retry),)+ }
            }

            /// One line for people, the same for every occurrence.
            #[must_use]
            pub const fn title(self) -> &'static str {
                match self { $(Self::$variant => $title,)+ }
            }

            /// The code a peer sent as a number; `None` from a newer peer.
            #[must_use]
            pub const fn from_number(number: u16) -> Option<Self> {
                match number { $($number => Some(Self::$variant),)+ _ => None }
            }
        }
    };
    (@retry) => { true };
    (@final) => { false };
}

error_codes! {
    /// The request or frame cannot be parsed.
    Malformed = 1, "malformed", 400, final, "The request cannot be understood";
    /// A JSON field that Weir does not know.
    UnknownField = 2, "unknown_field", 400, final, "Unknown field";
    /// A query parameter that Weir does not know, or one of two that exclude each other.
    InvalidParameter = 3, "invalid_parameter", 400, final, "Invalid parameter";
    /// A header whose value is not what its grammar says.
    InvalidHeader = 4, "invalid_header", 400, final, "Invalid header";
    /// A name outside the grammar.
    InvalidName = 5, "invalid_name", 400, final, "Invalid name";
    /// A cursor, receipt or event id that Weir did not issue.
    InvalidCursor = 6, "invalid_cursor", 400, final, "Invalid cursor";
    /// A configuration value out of its range.
    InvalidConfig = 7, "invalid_config", 400, final, "Invalid configuration value";
    /// Content-Digest does not match the body.
    DigestMismatch = 8, "digest_mismatch", 400, final, "Content digest does not match the body";
    /// A record batch fails its own checks (checksum, counts, bounds).
    InvalidBatch = 9, "invalid_batch", 400, final, "Invalid record batch";

    /// No credential, or one that does not verify.
    Unauthorized = 20, "unauthorized", 401, final, "Authentication required";
    /// The principal may not do this.
    Forbidden = 21, "forbidden", 403, final, "Not allowed";
    /// A producer with a higher epoch has taken over.
    StaleEpoch = 22, "stale_epoch", 403, final, "Producer epoch is fenced";
    /// The Origin is not on the allow-list.
    OriginForbidden = 23, "origin_forbidden", 403, final, "Origin not allowed";
    /// The Host is not a name of this gateway.
    UnknownHost = 24, "unknown_host", 421, final, "Host is not served here";
    /// It came through a proxy, and this machine is trusted only because it is this machine.
    ProxyForbidden = 25, "proxy_forbidden", 403, final, "Came through a proxy";

    /// No such route.
    RouteNotFound = 30, "route_not_found", 404, final, "No such resource";
    /// No such namespace.
    NamespaceNotFound = 31, "namespace_not_found", 404, final, "Namespace does not exist";
    /// No such topic.
    TopicNotFound = 32, "topic_not_found", 404, final, "Topic does not exist";
    /// No such partition.
    PartitionNotFound = 33, "partition_not_found", 404, final, "Partition does not exist";
    /// No state for this producer.
    ProducerNotFound = 34, "producer_not_found", 404, final, "Producer is not known";
    /// No such subscription.
    SubscriptionNotFound = 35, "subscription_not_found", 404, final, "Subscription does not exist";
    /// Known path, other method.
    MethodNotAllowed = 36, "method_not_allowed", 405, final, "Method not allowed";
    /// None of the accepted media types can be produced.
    NotAcceptable = 37, "not_acceptable", 406, final, "No acceptable representation";
    /// The client took too long to send its request.
    RequestTimeout = 38, "request_timeout", 408, retry, "Request was not sent in time";

    /// It exists with another configuration.
    ConfigMismatch = 40, "config_mismatch", 409, final, "Exists with a different configuration";
    /// Known, but this build cannot do it.
    NotSupported = 41, "not_supported", 409, final, "Not supported";
    /// The confirm level or tier cannot be reached here.
    LevelUnavailable = 42, "level_unavailable", 409, final, "Confirm level is not available";
    /// A producer sequence number was skipped.
    ProducerGap = 43, "producer_gap", 409, final, "Producer sequence has a gap";
    /// A producer batch repeats a part of what was seen.
    SeqOverlap = 44, "seq_overlap", 409, final, "Producer batch overlaps what was accepted";
    /// A producer sequence number below the remembered window.
    SeqTooOld = 45, "seq_too_old", 409, final, "Producer sequence is too old to check";
    /// The topic is closed.
    TopicClosed = 46, "topic_closed", 409, final, "Topic is closed";
    // 47 is free and stays so: it said that an idempotency key is being processed, which is waited for instead.
    /// The namespace still has topics.
    NamespaceNotEmpty = 48, "namespace_not_empty", 409, final, "Namespace is not empty";
    /// A new producer epoch must start at sequence 0.
    EpochStart = 49, "epoch_start", 400, final, "A new producer epoch starts at sequence 0";
    /// The lease was lost to another delivery.
    LeaseLost = 50, "lease_lost", 409, final, "Lease no longer held";

    /// The offset was removed by retention.
    OffsetTrimmed = 60, "offset_trimmed", 410, final, "Offset was removed by retention";
    /// The cursor or tag belongs to a deleted topic of the same name.
    IncarnationGone = 61, "incarnation_gone", 410, final, "Topic or subscription was deleted";
    /// If-Match names another tail.
    TailMismatch = 62, "tail_mismatch", 412, final, "Tail has moved";
    /// If-Match names another version of the configuration.
    VersionMismatch = 63, "version_mismatch", 412, final, "Configuration was changed meanwhile";
    /// Larger than a published limit.
    TooLarge = 64, "too_large", 413, final, "Larger than the limit";
    /// The media type is not accepted here.
    UnsupportedMediaType = 65, "unsupported_media_type", 415, final, "Unsupported media type";
    /// A position beyond the tail.
    BeyondTail = 66, "beyond_tail", 416, final, "Position is beyond the tail";
    /// The idempotency key was used with another payload.
    KeyReused = 67, "key_reused", 422, final, "Idempotency key was used for another message";
    /// The header section is too large.
    HeadersTooLarge = 68, "headers_too_large", 431, final, "Header section is too large";
    /// What a subscription was at that instant is not kept, or not by all of its partitions.
    SnapshotGone = 69, "snapshot_gone", 410, final, "Snapshot is not kept";
    /// The offset was dropped by compaction: its key has a newer record, or was deleted.
    Compacted = 70, "compacted", 410, final, "Message was dropped by compaction";

    /// More than the admitted bytes are waiting to be committed.
    Busy = 80, "busy", 429, retry, "Too much is waiting to be committed";
    /// Too many connections, channels or requests of this client.
    TooManyRequests = 81, "too_many_requests", 429, retry, "Too many at once";
    /// The memory for producers and keys is full.
    DedupeFull = 82, "dedupe_full", 429, retry, "Deduplication memory is full";

    /// The journal reached its limit.
    JournalFull = 90, "journal_full", 503, retry, "Journal is full";
    /// The server is shutting down.
    Draining = 91, "draining", 503, retry, "Server is draining";
    /// The shard's leader cannot be reached.
    Unavailable = 92, "unavailable", 503, retry, "Temporarily unavailable";
    /// A write or sync failed; the node confirms nothing until it is restarted.
    StorageFailed = 93, "storage_failed", 503, final, "Storage failed";
    /// Nobody knows whether it took effect.
    OutcomeUnknown = 94, "outcome_unknown", 504, retry, "Outcome is unknown";
    /// Stored data fails its checksum.
    Corrupt = 95, "corrupt", 500, final, "Stored data is damaged";
    /// A defect in Weir.
    Internal = 96, "internal", 500, final, "Internal error";

    /// What clients have not taken of their answers leaves no room for another one.
    AnswersFull = 97, "answers_full", 503, retry, "Too much of earlier answers was not taken";

    /// Between rooms: this node does not lead the shard. Never shown to clients.
    NotLeader = 110, "not_leader", 503, retry, "Not the leader";
    /// Between rooms: the partition has not seen this configuration version yet. Never shown to clients.
    ConfigBehind = 111, "config_behind", 503, retry, "Configuration is on its way";
    /// Between rooms: the caller's configuration version is old; it refreshes and retries. Never shown to clients.
    ConfigStale = 112, "config_stale", 503, retry, "Configuration is old";
}

/// Whether a refused or failed request had an effect. Sent with every error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Provably no effect.
    None,
    /// It took effect, though the answer is an error.
    Applied,
    /// Not known; resolve it with the receipt or the producer's state.
    Unknown,
}

impl Outcome {
    /// The text clients see.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Applied => "applied",
            Self::Unknown => "unknown",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn numbers_and_texts_are_unique_and_round_trip() {
        let texts: HashSet<_> = ErrorCode::ALL.iter().map(|code| code.as_str()).collect();
        assert_eq!(texts.len(), ErrorCode::ALL.len());
        for &code in ErrorCode::ALL {
            assert_eq!(ErrorCode::from_number(code as u16), Some(code));
            assert!((400..=599).contains(&code.status()), "{code:?}");
        }
        assert_eq!(ErrorCode::from_number(0), None);
    }
}
