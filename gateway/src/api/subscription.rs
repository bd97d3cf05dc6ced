//! Subscriptions and their configuration, as JSON.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use weir_protocol::error::ErrorCode;
use weir_protocol::filter::{Field, Filter, FilterError};
use weir_protocol::ids::Name;
use weir_protocol::limits::{
    BACKOFF_STEPS_MAX, DELAY_MS_MAX, LEASE_MS_MAX, LEASE_MS_MIN, SUBSCRIPTION_TOPICS_MAX, UNACKED_MAX,
};
use weir_protocol::rpc::{self, At};
use weir_protocol::start::{Start, parse_from};

use super::topic::some;
use super::{ForkedFrom, Problem};

/// How the messages of a topic reach those who take them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Each message is leased to one worker, until somebody acknowledges it.
    Queue,
    /// Each partition is read in order by one consumer at a time, which acknowledges up to a message.
    Stream,
}

/// In which order messages are leased.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// About in the order of offsets; no message waits for another.
    None,
    /// Of the messages of one key, one is leased only when those before it are settled.
    Key,
}

/// What an application sets. Fields that are left out take their default.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({
    "mode": "queue", "topics": ["orders"], "lease_ms": 30000, "max_attempts": 8,
    "backoff_ms": [1000, 5000, 30000], "dlq": "orders.dlq", "start": "earliest", "max_unacked": 10000
}))]
pub struct SubscriptionConfig {
    /// A queue, or a stream. Cannot be changed later.
    #[schema(required = false, default = "queue")]
    pub mode: Mode,
    /// The topics, in the subscription's namespace; or one pattern, a prefix and `*`: every topic whose name begins so,
    /// now and later. Cannot be changed later.
    #[schema(min_items = 1, max_items = 100)]
    pub topics: Vec<String>,
    /// How long a message is leased unless a pull says otherwise, milliseconds. Of a stream: how long a consumer that
    /// pulls may be silent before another takes its place.
    #[schema(required = false, minimum = 1000, maximum = 43_200_000, default = 30_000)]
    pub lease_ms: u32,
    /// Deliveries of a message after which it is a dead letter; 0: no limit.
    #[schema(required = false, default = 16)]
    pub max_attempts: u32,
    /// Milliseconds before delivery 2, 3, …; the last one repeats. Empty: at once. `[1000, 5000, 30000]` by default.
    #[schema(required = false, max_items = 32)]
    pub backoff_ms: Vec<u64>,
    /// Topic that dead letters go to, in the subscription's namespace; `null`: they are settled and counted.
    #[schema(required = false)]
    pub dlq: Option<String>,
    /// In which order messages are leased. Cannot be changed later.
    #[schema(required = false, default = "none")]
    pub order: Order,
    /// Where it starts, in every partition: `earliest`, `latest`, or `ts:` and RFC 3339 or milliseconds; of a
    /// stream also an offset, or `tail:` and a number of messages. In a topic that is created later and
    /// matches a pattern it starts at the beginning. Cannot be changed later; `:seek` moves a subscription.
    #[schema(required = false, default = "earliest")]
    pub start: String,
    /// Most messages of one topic leased at once, all its partitions together.
    #[schema(required = false, minimum = 1, maximum = 1_000_000, default = 10_000)]
    pub max_unacked: u32,
    /// No message is leased.
    #[schema(required = false, default = false)]
    pub paused: bool,
    /// Only messages that this expression over headers, `key` and `content_type` matches are leased; the others are
    /// settled without being delivered. `null`: all.
    #[schema(
        required = false,
        max_length = 1024,
        example = "header.region == 'eu*' and not header.test == '1'"
    )]
    pub filter: Option<String>,
    /// Messages that differ in this header (or in `key`, `content_type`) take turns; `null`: about in the
    /// order of offsets.
    #[schema(required = false, max_length = 1024, example = "header.tenant")]
    pub fair_by: Option<String>,
}

impl From<&rpc::SubscriptionConfig> for SubscriptionConfig {
    fn from(config: &rpc::SubscriptionConfig) -> Self {
        let start = config.start.at.unwrap_or(At::Earliest(true));
        Self {
            mode: if config.is_stream { Mode::Stream } else { Mode::Queue },
            topics: config.topics().cloned().collect(),
            lease_ms: config.lease_ms,
            max_attempts: config.max_attempts,
            backoff_ms: config.backoff_ms.clone(),
            dlq: config.dead_letter_topic.clone(),
            order: if config.is_by_key { Order::Key } else { Order::None },
            start: Start::At(start).to_string(),
            max_unacked: config.max_unacked,
            paused: config.paused,
            filter: config.filter.clone(),
            fair_by: config.fair_by.clone(),
        }
    }
}

/// A subscription.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Subscription {
    /// Namespace.
    pub ns: String,
    /// Name.
    pub name: String,
    /// This life of it; a recreated subscription has another.
    pub id: u64,
    /// Version of the configuration, from 1. Also in the `ETag`.
    pub version: u32,
    /// When it was created, milliseconds since the epoch.
    pub created_ms: u64,
    /// The life of the topic that it belongs to: once that is deleted, nothing is leased any more. `null` of a
    /// subscription to several topics.
    pub topic_incarnation: Option<u64>,
    /// That life has ended, or those of all topics that it names: deleted, and perhaps created again. The subscription
    /// can only be deleted.
    pub topic_deleted: bool,
    /// Those of several topics that were deleted; what they are called now is consumed no more.
    pub topics_deleted: Vec<String>,
    /// Partitions that the pattern matches and that are not consumed, because there are more than
    /// `subscription_partitions` of `GET /v1`. A change of the configuration takes in as many as there is room for.
    pub partitions_left_out: u64,
    /// What it began as, if it is a fork.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub forked_from: Option<ForkedFrom>,
    /// Its configuration, complete.
    pub config: SubscriptionConfig,
    /// What it holds of each partition, by number; of several topics, in the order of their lives.
    pub parts: Vec<SubscriptionPart>,
    /// The same over all partitions that can be reached.
    pub totals: SubscriptionTotals,
}

/// What a subscription holds of one partition. Numbers are `null` while its shard cannot be reached, and once the
/// topic was deleted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SubscriptionPart {
    /// Its topic.
    pub topic: String,
    /// The partition's number, from 0.
    pub partition: u32,
    /// Everything below this offset is settled: of a stream, its cursor.
    pub floor: Option<u64>,
    /// End of the partition.
    pub end: Option<u64>,
    /// Messages that could be leased now.
    pub ready: Option<u64>,
    /// Messages that are leased: of a stream, that its reader was shown and has not acknowledged.
    pub leased: Option<u64>,
    /// Messages that wait for their time.
    pub delayed: Option<u64>,
    /// Messages that wait until others of their key are settled, as far as was looked ahead.
    pub blocked: Option<u64>,
    /// Messages that the partition's leader keeps in memory for this subscription.
    pub in_memory: Option<u64>,
    /// Messages settled above the floor.
    pub settled_above_floor: Option<u64>,
    /// Dead letters so far.
    pub dead: Option<u64>,
    /// Dead letters on their way to their topic.
    pub dead_pending: Option<u64>,
    /// Time of the oldest message that is not settled, milliseconds since the epoch; `null` too if there is none.
    pub oldest_ms: Option<u64>,
    /// Of a stream, who reads it now: its `holder`.
    pub reader: Option<String>,
    /// The shard that holds it.
    pub shard: u32,
    /// Of a fork, the instant that it began as, milliseconds since the epoch; absent where that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub forked_at_ms: Option<u64>,
}

/// Sums over the partitions that can be reached.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SubscriptionTotals {
    /// Messages that are not settled: ready, leased, delayed or on their way to the dead letter topic.
    pub unsettled: u64,
    /// Messages that could be leased now.
    pub ready: u64,
    /// Messages that are leased.
    pub leased: u64,
    /// Messages that wait for their time.
    pub delayed: u64,
    /// Messages that wait until others of their key are settled, as far as was looked ahead.
    pub blocked: u64,
    /// Dead letters so far.
    pub dead: u64,
    /// Dead letters on their way to their topic.
    pub dead_pending: u64,
    /// Time of the oldest message that is not settled, milliseconds since the epoch; `null` if there is none.
    pub oldest_ms: Option<u64>,
}

/// A page of subscriptions, in name order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SubscriptionPage {
    /// The subscriptions.
    pub items: Vec<Subscription>,
    /// Pass as `cursor` for the next page; `null` on the last.
    pub next: Option<String>,
}

/// Changes to a configuration. Fields that are left out stay; `null` removes the dead letter topic.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(example = json!({"lease_ms": 60000, "dlq": null}))]
pub struct SubscriptionPatch {
    /// `queue` or `stream`; must be what it is once the subscription exists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// Must be what it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topics: Option<Vec<String>>,
    /// How long a message is leased unless a pull says otherwise, milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1000, maximum = 43_200_000)]
    pub lease_ms: Option<u64>,
    /// Deliveries of a message after which it is a dead letter; 0: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 4_294_967_295_i64)]
    pub max_attempts: Option<u64>,
    /// Milliseconds before delivery 2, 3, …; the last one repeats. Empty: at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(max_items = 32)]
    pub backoff_ms: Option<Vec<u64>>,
    /// Topic that dead letters go to; `null`: none.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "some")]
    #[schema(value_type = Option<String>)]
    pub dlq: Option<Option<String>>,
    /// `none` or `key`; must be what it is once the subscription exists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order: Option<String>,
    /// Must be what it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<String>,
    /// Most messages of one topic leased at once, all its partitions together.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 1_000_000)]
    pub max_unacked: Option<u64>,
    /// No message is leased.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
    /// Which messages are leased; `null`: all.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "some")]
    #[schema(value_type = Option<String>, max_length = 1024)]
    pub filter: Option<Option<String>>,
    /// What messages take turns by; `null`: nothing.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "some")]
    #[schema(value_type = Option<String>, max_length = 1024)]
    pub fair_by: Option<Option<String>>,
}

/// A subscription of which nothing was said but its topic, which is still missing.
#[must_use]
pub fn default_subscription_config() -> rpc::SubscriptionConfig {
    rpc::SubscriptionConfig {
        topic: String::new(),
        more_topics: Vec::new(),
        is_stream: false,
        lease_ms: 30_000,
        max_attempts: 16,
        backoff_ms: vec![1_000, 5_000, 30_000],
        dead_letter_topic: None,
        start: At::Earliest(true).into(),
        max_unacked: 10_000,
        paused: false,
        is_by_key: false,
        filter: None,
        fair_by: None,
    }
}

impl SubscriptionPatch {
    /// `config` with these changes.
    ///
    /// # Errors
    /// `not_supported` for what this build cannot do, `invalid_config` and `invalid_name` for what nobody can; each
    /// names the field.
    pub fn apply(self, mut config: rpc::SubscriptionConfig) -> Result<rpc::SubscriptionConfig, Problem> {
        if let Some(mode) = &self.mode {
            config.is_stream = is_stream(mode)?;
        }
        if config.is_stream {
            self.check_stream()?;
            config = stream_config(config);
        }
        if let Some(topics) = self.topics {
            (config.topic, config.more_topics) = topic_names(topics)?;
        }
        if config.topic.is_empty() {
            return Err(invalid("topics", "topics is required: the topic that is consumed"));
        }
        if let Some(dlq) = self.dlq {
            config.dead_letter_topic = dlq.map(|dlq| topic_name("dlq", dlq)).transpose()?;
        }
        if config.dead_letter_topic.as_ref().is_some_and(|dlq| config.consumes(dlq)) {
            let detail =
                "dlq is consumed by the subscription itself: its dead letters would come back for ever";
            return Err(invalid("dlq", detail));
        }
        if let Some(ms) = self.lease_ms {
            config.lease_ms = within("lease_ms", ms, LEASE_MS_MIN, LEASE_MS_MAX)?;
        }
        if let Some(attempts) = self.max_attempts {
            config.max_attempts = within("max_attempts", attempts, 0, u32::MAX)?;
        }
        if let Some(delays) = self.backoff_ms {
            config.backoff_ms = backoff(delays)?;
        }
        if let Some(start) = self.start {
            config.start = start_of(&start, config.is_stream)?.into();
        }
        if let Some(max) = self.max_unacked {
            config.max_unacked = within("max_unacked", max, 1, UNACKED_MAX)?;
        }
        if let Some(order) = self.order {
            config.is_by_key = order_of(&order)? == Order::Key;
        }
        if let Some(filter) = self.filter {
            config.filter = filter.map(|text| understood("filter", text, Filter::parse)).transpose()?;
        }
        if let Some(fair_by) = self.fair_by {
            config.fair_by = fair_by.map(|text| understood("fair_by", text, Field::parse)).transpose()?;
        }
        config.paused = self.paused.unwrap_or(config.paused);
        Ok(config)
    }

    /// A stream has no leases, attempts or dead letters. What says so, as a configuration that is shown does,
    /// may be said.
    fn check_stream(&self) -> Result<(), Problem> {
        let none = default_stream();
        let said = [
            (
                "max_attempts",
                self.max_attempts.is_some_and(|attempts| attempts != u64::from(none.max_attempts)),
            ),
            ("backoff_ms", self.backoff_ms.as_ref().is_some_and(|delays| *delays != none.backoff_ms)),
            ("dlq", matches!(self.dlq, Some(Some(_)))),
            ("order", self.order.as_deref().is_some_and(|order| order != "none")),
            ("max_unacked", self.max_unacked.is_some_and(|max| max != u64::from(none.max_unacked))),
            ("filter", matches!(self.filter, Some(Some(_)))),
            ("fair_by", matches!(self.fair_by, Some(Some(_)))),
        ];
        match said.iter().find(|(_, is_said)| *is_said) {
            Some((field, _)) => {
                let detail = format!(
                    "{field} is for queues; a stream is read in order and acknowledged up to a message"
                );
                Err(not_supported(field, &detail))
            }
            None => Ok(()),
        }
    }
}

fn is_stream(mode: &str) -> Result<bool, Problem> {
    match mode {
        "queue" => Ok(false),
        "stream" => Ok(true),
        "push" => Err(not_supported("mode", "mode: push is not there yet; queue or stream")),
        _ => Err(invalid("mode", "mode is queue or stream")),
    }
}

fn default_stream() -> rpc::SubscriptionConfig {
    stream_config(default_subscription_config())
}

/// A configuration without what a stream does not have.
fn stream_config(config: rpc::SubscriptionConfig) -> rpc::SubscriptionConfig {
    let queue = default_subscription_config();
    rpc::SubscriptionConfig {
        is_stream: true,
        max_attempts: 0,
        backoff_ms: Vec::new(),
        max_unacked: queue.max_unacked,
        ..config
    }
}

/// The first topic, or the pattern, and the others.
fn topic_names(mut topics: Vec<String>) -> Result<(String, Vec<String>), Problem> {
    if topics.is_empty() {
        return Err(invalid("topics", "topics names no topic"));
    }
    if topics.len() > SUBSCRIPTION_TOPICS_MAX {
        let detail = format!("topics names {}; {SUBSCRIPTION_TOPICS_MAX} are allowed", topics.len());
        return Err(invalid("topics", &detail).with_limit(SUBSCRIPTION_TOPICS_MAX as u64));
    }
    if let Some(pattern) = topics.iter().find(|topic| topic.contains('*')) {
        let prefix = pattern.strip_suffix('*').unwrap_or("*");
        // Some name begins so.
        if prefix.contains('*') || Name::new(&format!("{prefix}x")).is_err() {
            let detail =
                format!("topics: {pattern} is no pattern: the beginning of a name, and * at its end");
            return Err(Problem::new(ErrorCode::InvalidName, detail).with_field("topics"));
        }
        if topics.len() > 1 {
            return Err(invalid(
                "topics",
                "topics: a pattern stands alone; name topics, or use two subscriptions",
            ));
        }
        return Ok((topics.remove(0), Vec::new()));
    }
    let mut seen = BTreeSet::new();
    if let Some(twice) = topics.iter().find(|topic| !seen.insert(topic.as_str())) {
        return Err(invalid("topics", &format!("topics names {twice} twice")));
    }
    let mut names = topics.into_iter().map(|topic| topic_name("topics", topic));
    let first = names.next().expect("there is one")?;
    Ok((first, names.collect::<Result<_, _>>()?))
}

fn topic_name(field: &'static str, text: String) -> Result<String, Problem> {
    match Name::new(&text) {
        Ok(_) => Ok(text),
        Err(error) => {
            Err(Problem::new(ErrorCode::InvalidName, format!("{field}: {error}")).with_field(field))
        }
    }
}

fn within(field: &'static str, value: u64, min: u32, max: u32) -> Result<u32, Problem> {
    let small = u32::try_from(value).ok().filter(|value| (min..=max).contains(value));
    small.ok_or_else(|| invalid(field, &format!("{field} is {value}; {min} to {max} are allowed")))
}

fn backoff(delays: Vec<u64>) -> Result<Vec<u64>, Problem> {
    if delays.len() > BACKOFF_STEPS_MAX {
        let detail = format!("backoff_ms has {} delays; {BACKOFF_STEPS_MAX} are allowed", delays.len());
        return Err(invalid("backoff_ms", &detail));
    }
    match delays.iter().find(|delay| **delay > DELAY_MS_MAX) {
        Some(delay) => {
            Err(invalid("backoff_ms", &format!("backoff_ms holds {delay}; {DELAY_MS_MAX} is the most")))
        }
        None => Ok(delays),
    }
}

/// The text, if it can be read.
fn understood<T>(
    field: &'static str,
    text: String,
    read: impl FnOnce(&str) -> Result<T, FilterError>,
) -> Result<String, Problem> {
    match read(&text) {
        Ok(_) => Ok(text),
        Err(error) => Err(invalid(field, &format!("{field}: {error}"))),
    }
}

fn order_of(text: &str) -> Result<Order, Problem> {
    match text {
        "none" => Ok(Order::None),
        "key" => Ok(Order::Key),
        _ => Err(invalid("order", "order is none or key")),
    }
}

fn start_of(text: &str, is_stream: bool) -> Result<At, Problem> {
    match parse_from(text) {
        Ok(Start::At(at)) if is_stream => Ok(at),
        Ok(Start::At(at @ (At::Earliest(_) | At::Latest(_) | At::TimestampMs(_)))) => Ok(at),
        _ => Err(invalid("start", "start is earliest, latest, or ts: and RFC 3339 or milliseconds")),
    }
}

fn invalid(field: &'static str, detail: &str) -> Problem {
    Problem::new(ErrorCode::InvalidConfig, detail).with_field(field)
}

fn not_supported(field: &'static str, detail: &str) -> Problem {
    Problem::new(ErrorCode::NotSupported, detail).with_field(field)
}

#[cfg(test)]
mod tests;
