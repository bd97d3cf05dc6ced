//! What an event stream begins with: the topics that exist, and those that it waits for.
//!
//! A browser's `EventSource` never tries again after an answer other than 200, and its page sees none of it.
//! So a topic that the first publish will make is waited for, and of one that was made again since an event's
//! id an event says so.

use weir_protocol::error::ErrorCode;
use weir_protocol::ids::{Incarnation, PartitionId};

use crate::service::ServiceError;
use crate::service::read::{
    Awaited, Cursor, PartitionOf, Reader, StartAt, Subscribe, Subscription, SubscriptionEvent,
};

/// Times that topics are looked up while they are being deleted and made.
const ATTEMPTS: u32 = 3;

/// A stream's begin.
pub(super) struct Begun {
    /// Of the topics that exist; `None` if there is none of them.
    pub(super) subscription: Option<Subscription>,
    /// Topics to come.
    pub(super) awaited: Vec<Awaited>,
    /// Where it begins.
    pub(super) cursor: Cursor,
    /// Partitions of topics that were made again since.
    pub(super) renewed: Vec<(PartitionOf, Incarnation)>,
    /// Partitions that are followed.
    pub(super) partitions: usize,
}

/// Begins to follow. `goes_on`: `from` is where the client was, whatever happened to the topics since.
///
/// # Errors
/// As [`Reader::subscribe`] and [`Reader::awaits`].
pub(super) async fn begin(
    reader: &Reader,
    subscribe: &Subscribe,
    goes_on: bool,
) -> Result<Begun, ServiceError> {
    let mut attempts = ATTEMPTS;
    loop {
        attempts -= 1;
        let failure = match at_once(reader, subscribe.clone(), Vec::new(), Vec::new()).await {
            Ok(begun) => return Ok(begun),
            Err(failure) => failure,
        };
        let code = failure.code();
        if code != ErrorCode::TopicNotFound && !(goes_on && code == ErrorCode::IncarnationGone) {
            return Err(failure);
        }
        match of_those_that_exist(reader, subscribe, goes_on).await {
            Err(failure) if attempts > 0 && failure.code() == code => {}
            begun => return begun,
        }
    }
}

/// Follows topics that all exist.
async fn at_once(
    reader: &Reader,
    subscribe: Subscribe,
    awaited: Vec<Awaited>,
    renewed: Vec<(PartitionOf, Incarnation)>,
) -> Result<Begun, ServiceError> {
    let mut subscription = reader.subscribe(subscribe).await?;
    // A position that does not exist is a problem, not an event: so the start is awaited.
    match subscription.next().await? {
        SubscriptionEvent::Started(parts) => {
            let (cursor, partitions) = (subscription.cursor(), parts.len());
            Ok(Begun { subscription: Some(subscription), awaited, cursor, renewed, partitions })
        }
        other => Err(ServiceError::new(ErrorCode::Internal, format!("{other:?} before the start"))),
    }
}

async fn of_those_that_exist(
    reader: &Reader,
    subscribe: &Subscribe,
    goes_on: bool,
) -> Result<Begun, ServiceError> {
    let mut cursor = match &subscribe.from {
        StartAt::Cursor(cursor) => cursor.clone(),
        _ => Cursor::default(),
    };
    let (mut topics, mut awaited, mut renewed) = (Vec::new(), Vec::new(), Vec::new());
    for path in &subscribe.topics {
        let Some(topic) = reader.existing(path).await? else {
            awaited.push(reader.awaits(path).await?);
            cursor.awaits(path);
            continue;
        };
        if goes_on && cursor.renew(&topic) {
            let of = |partition| PartitionOf { topic: topics.len(), partition };
            let partitions =
                topic.partition_ids().filter(|it| subscribe.partition.is_none_or(|only| only == *it));
            renewed.extend(partitions.map(|partition: PartitionId| (of(partition), topic.incarnation)));
        }
        topics.push(path.clone());
    }
    if topics.is_empty() {
        return Ok(Begun { subscription: None, awaited, cursor, renewed, partitions: 0 });
    }
    let from = if goes_on { StartAt::Cursor(cursor.clone()) } else { subscribe.from.clone() };
    let begun = at_once(reader, Subscribe { topics, from, ..subscribe.clone() }, awaited, renewed).await?;
    cursor.take(begun.cursor);
    Ok(Begun { cursor, ..begun })
}
