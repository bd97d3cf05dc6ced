//! Looking at what is leased, without taking anything.

use weir_protocol::error::ErrorCode;
use weir_protocol::ids::{Offset, PartitionId};
use weir_protocol::rpc::{LeaseInfo, LeaseList, ListLeasesRequest, Method, Standing};

use super::Subscriptions;
use super::described::{Subscription, SubscriptionPath};
use crate::service::ServiceError;
use crate::service::page::Page;
use crate::service::token::{TokenReader, TokenWriter};
use crate::storage::Safety;

const VERSION: u8 = 1;

/// Which page.
#[derive(Debug, Clone)]
pub struct ListLeases {
    /// Only this partition; `None`: all.
    pub partition: Option<PartitionId>,
    /// Only offsets from here on, of the first partition.
    pub from: Offset,
    /// At most this many.
    pub limit: u32,
    /// As it stood before the seek of this name; 0: now.
    pub as_of: u64,
    /// Only what stands so; `Unset`: what is leased and what waits.
    pub standing: Standing,
    /// Cursor of the page before; then the two above are of no account.
    pub cursor: Option<String>,
}

/// A message that is leased, or that waits for its time.
#[derive(Debug, Clone, PartialEq)]
pub struct LeaseListing {
    /// Partition.
    pub partition: PartitionId,
    /// What its part knows.
    pub lease: LeaseInfo,
}

/// Where a list goes on, and whether it ends with that partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    partition: PartitionId,
    from: Offset,
    is_only: bool,
}

impl Subscriptions {
    /// A page of what is leased or delayed, by partition and offset.
    ///
    /// # Errors
    /// `partition_not_found`, `invalid_cursor`, `incarnation_gone` if the topic was deleted.
    pub async fn leases(
        &self,
        path: &SubscriptionPath,
        list: &ListLeases,
    ) -> Result<Page<LeaseListing>, ServiceError> {
        let first = match &list.cursor {
            Some(cursor) => Place::decode(cursor)?,
            None => Place {
                partition: list.partition.unwrap_or(PartitionId(0)),
                from: list.from,
                is_only: list.partition.is_some(),
            },
        };
        let deadline = self.storage.deadline();
        self.with_known(path, deadline, |known| async move {
            self.list_from(&known.subscription, first, (list.limit, list.standing, list.as_of), deadline)
                .await
        })
        .await
    }

    async fn list_from(
        &self,
        subscription: &Subscription,
        first: Place,
        (limit, standing, as_of): (u32, Standing, u64),
        deadline: tokio::time::Instant,
    ) -> Result<Page<LeaseListing>, ServiceError> {
        let (mut items, mut at) = (Vec::new(), first);
        loop {
            let left = limit.saturating_sub(u32::try_from(items.len()).unwrap_or(u32::MAX));
            if left == 0 {
                return Ok(Page { items, next: Some(at.encode()) });
            }
            let method = (Method::ListLeases, Safety::Repeatable);
            let call = self.call(subscription, at.partition, method, deadline)?;
            let part = subscription.part(at.partition);
            let (from, standing) = (at.from.0, standing.into());
            let request = ListLeasesRequest { part, from, limit: left, standing, as_of };
            let answer = self.storage.ask::<_, LeaseList>(call, &request).await;
            let answer = answer.map_err(|failure: ServiceError| failure.with_partition(at.partition))?;
            let partition = at.partition;
            items.extend(answer.leases.into_iter().map(|lease| LeaseListing { partition, lease }));
            if let Some(next) = answer.next {
                let next = Place { from: Offset(next), ..at };
                return Ok(Page { items, next: Some(next.encode()) });
            }
            at = Place { partition: PartitionId(partition.0 + 1), from: Offset(0), ..at };
            if at.is_only || at.partition.0 >= subscription.partitions() {
                return Ok(Page { items, next: None });
            }
        }
    }
}

impl Place {
    fn encode(self) -> String {
        TokenWriter::new(VERSION)
            .number(self.partition.0.into())
            .number(self.from.0)
            .byte(self.is_only.into())
            .finish()
    }

    fn decode(token: &str) -> Result<Self, ServiceError> {
        let read = || {
            let mut reader = TokenReader::new(VERSION, token)?;
            let place = Self {
                partition: PartitionId(reader.small()?),
                from: Offset(reader.number()?),
                is_only: reader.byte()? != 0,
            };
            reader.end()?;
            Some(place)
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
        let place = Place { partition: PartitionId(7), from: Offset(1 << 40), is_only: true };
        assert_eq!(Place::decode(&place.encode()).unwrap(), place);
        assert_eq!(Place::decode("x").unwrap_err().code(), ErrorCode::InvalidCursor);
    }
}
