//! Looking at what is leased, without taking anything.

use weir_protocol::error::ErrorCode;
use weir_protocol::ids::{Incarnation, Name, Offset, PartitionId};
use weir_protocol::rpc::{LeaseInfo, LeaseList, ListLeasesRequest, Method, Standing};

use super::described::{PartPlace, Subscription, SubscriptionPath};
use super::{Moment, Subscriptions};
use crate::service::ServiceError;
use crate::service::page::Page;
use crate::service::token::{TokenReader, TokenWriter};
use crate::storage::Safety;

const VERSION: u8 = 3;

/// Which page.
#[derive(Debug, Clone)]
pub struct ListLeases {
    /// Only this partition; `None`: all.
    pub partition: Option<PartitionId>,
    /// Its topic, or only partitions of this one; said of a subscription to several topics.
    pub topic: Option<Name>,
    /// Only offsets from here on, of the first partition.
    pub from: Offset,
    /// At most this many.
    pub limit: u32,
    /// As it stood then.
    pub as_of: Moment,
    /// Only what stands so; `Unset`: what is leased and what waits.
    pub standing: Standing,
    /// Cursor of the page before; then the two above are of no account.
    pub cursor: Option<String>,
}

/// A message that is leased, or that waits for its time.
#[derive(Debug, Clone, PartialEq)]
pub struct LeaseListing {
    /// Its topic, of a subscription to several.
    pub topic: Option<Name>,
    /// Partition.
    pub partition: PartitionId,
    /// What its part knows.
    pub lease: LeaseInfo,
}

/// Where a list goes on, and where it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    part: (Incarnation, PartitionId),
    from: Offset,
    until: Until,
}

/// Where a list ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Until {
    End = 0,
    EndOfPartition = 1,
    EndOfTopic = 2,
}

impl Subscriptions {
    /// A page of what is leased or delayed, by partition and offset; and of a moment that was, the earliest
    /// instant, milliseconds since the epoch, as of which a partition of the page is shown.
    ///
    /// # Errors
    /// `partition_not_found`, `invalid_cursor`, `incarnation_gone` if the topic was deleted.
    pub async fn leases(
        &self,
        path: &SubscriptionPath,
        list: &ListLeases,
    ) -> Result<(Page<LeaseListing>, Option<u64>), ServiceError> {
        let cursor = list.cursor.as_deref().map(Place::decode).transpose()?;
        let deadline = self.storage.deadline();
        self.with_known(path, deadline, |known| async move {
            let first = match cursor {
                Some(cursor) => cursor,
                None => first(&known.subscription, list)?,
            };
            let how = (list.limit, list.standing, list.as_of);
            self.list_from(&known.subscription, first, how, deadline).await
        })
        .await
    }

    async fn list_from(
        &self,
        subscription: &Subscription,
        first: Place,
        (limit, standing, moment): (u32, Standing, Moment),
        deadline: tokio::time::Instant,
    ) -> Result<(Page<LeaseListing>, Option<u64>), ServiceError> {
        let (mut items, mut instant) = (Vec::new(), None::<u64>);
        let (as_of, as_of_ms) = moment.asked();
        let mut place = subscription.parts.partition_point(|part| part.key() < first.part);
        let mut at = first;
        // What it would go on with is gone: the next one begins at its beginning.
        if subscription.parts.get(place).is_none_or(|part| part.key() != first.part) {
            at.from = Offset(0);
        }
        while let Some(part) = subscription.parts.get(place).filter(|part| first.reaches(part)) {
            at.part = part.key();
            let left = limit.saturating_sub(u32::try_from(items.len()).unwrap_or(u32::MAX));
            if left == 0 {
                return Ok((Page { items, next: Some(at.encode()) }, instant));
            }
            let method = (Method::ListLeases, Safety::Repeatable);
            let call = Self::call(subscription, place, method, deadline);
            let part = subscription.part(place);
            let (from, standing) = (at.from.0, standing.into());
            let request = ListLeasesRequest { part, from, limit: left, standing, as_of, as_of_ms };
            let answer = self.storage.ask::<_, LeaseList>(call, &request).await;
            let partition = at.part.1;
            let answer = answer.map_err(|failure: ServiceError| failure.with_partition(partition))?;
            instant = instant.into_iter().chain(answer.as_of_ms).min();
            let topic = subscription.topic_of(place);
            let listing = |lease| LeaseListing { topic: topic.clone(), partition, lease };
            items.extend(answer.leases.into_iter().map(listing));
            if let Some(next) = answer.next {
                let next = Place { from: Offset(next), ..at };
                return Ok((Page { items, next: Some(next.encode()) }, instant));
            }
            (place, at.from) = (place + 1, Offset(0));
        }
        Ok((Page { items, next: None }, instant))
    }
}

/// Where a list begins.
fn first(subscription: &Subscription, list: &ListLeases) -> Result<Place, ServiceError> {
    let topic = list.topic.as_ref().map(Name::as_str);
    let (place, until) = match (list.partition, topic) {
        (Some(partition), _) => (subscription.place_named(topic, partition)?, Until::EndOfPartition),
        (None, Some(_)) => (subscription.place_named(topic, PartitionId(0))?, Until::EndOfTopic),
        (None, None) => (0, Until::End),
    };
    let part = subscription.parts.get(place).map_or((Incarnation(0), PartitionId(0)), PartPlace::key);
    Ok(Place { part, from: list.from, until })
}

impl Place {
    fn reaches(self, part: &PartPlace) -> bool {
        match self.until {
            Until::End => true,
            Until::EndOfPartition => part.key() == self.part,
            Until::EndOfTopic => part.incarnation == self.part.0,
        }
    }

    fn encode(self) -> String {
        let (incarnation, partition) = self.part;
        TokenWriter::new(VERSION)
            .number(incarnation.0)
            .number(partition.0.into())
            .number(self.from.0)
            .byte(self.until as u8)
            .finish()
    }

    fn decode(token: &str) -> Result<Self, ServiceError> {
        let read = || {
            let mut reader = TokenReader::new(VERSION, token)?;
            let part = (Incarnation(reader.number()?), PartitionId(reader.small()?));
            let from = Offset(reader.number()?);
            let until = match reader.byte()? {
                0 => Until::End,
                1 => Until::EndOfPartition,
                2 => Until::EndOfTopic,
                _ => return None,
            };
            reader.end()?;
            Some(Self { part, from, until })
        };
        read().ok_or_else(|| {
            let failure = ServiceError::new(ErrorCode::InvalidCursor, "the cursor is not one of this list");
            failure.with_field("cursor")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_comes_back_and_nothing_else_is_one() {
        let part = (Incarnation(1 << 50), PartitionId(7));
        let place = Place { part, from: Offset(1 << 40), until: Until::EndOfTopic };
        assert_eq!(Place::decode(&place.encode()).unwrap(), place);
        assert_eq!(Place::decode("x").unwrap_err().code(), ErrorCode::InvalidCursor);
    }
}
