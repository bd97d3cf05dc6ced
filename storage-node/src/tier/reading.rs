//! Batches of packs.

use std::sync::atomic::Ordering;

use futures_util::future::BoxFuture;
use weir_protocol::batch::Batch;
use weir_protocol::error::ErrorCode;
use weir_protocol::ids::{Incarnation, Offset, PartitionId};
use weir_protocol::rpc::Refusal;
use weir_tier::cold::{Ahead, ColdError, PackRef};
use weir_tier::pack::{Footer, PartitionRow, batches};

use super::{Lost, Tier};
use crate::clock;
use crate::shard::state::{BatchRow, PartitionKey};

/// When to ask again while the store does not answer.
const RETRY_AFTER_MS: u64 = 1_000;

/// Why batches of packs are not there.
pub(crate) struct NotRead {
    pub(crate) refusal: Refusal,
    /// What is to be told of the object, if it is gone or damaged; see [`Tier::lost`].
    pub(crate) lost: Option<Lost>,
}

impl Tier {
    /// The batches that `rows` of `key` describe, with nothing stamped; each row comes with the pack that
    /// holds it. Those `ahead` of the last one begin to be fetched. Fewer, if one of them but not the first
    /// cannot be read: those in front of it.
    ///
    /// # Errors
    /// `corrupt` if an object is gone or damaged, `unavailable` if the store does not answer; both name the object.
    pub(crate) fn batches<'a>(
        &'a self,
        key: PartitionKey,
        rows: &'a [(PackRef, BatchRow)],
        ahead: Ahead,
    ) -> BoxFuture<'a, Result<Vec<Batch>, NotRead>> {
        // Boxed: next to a request to a store it costs nothing, and callers' futures stay small.
        Box::pin(async move {
            let mut found = Vec::with_capacity(rows.len());
            let mut rest = rows;
            while let Some((pack, _)) = rest.first() {
                let (run, behind) = rest.split_at(rest.partition_point(|(of, _)| of == pack));
                match self.of_one_pack(key, pack, run, ahead, &mut found).await {
                    // Whoever wants what comes then asks for it alone, and is told.
                    Err(_) if !found.is_empty() => return Ok(found),
                    read => read.map_err(|error| self.may_come_back(error))?,
                }
                let records = run[0].1.base_offset..run[run.len() - 1].1.end();
                self.damaged.read(key, &pack.name, &records);
                rest = behind;
            }
            Ok(found)
        })
    }

    /// Tells of an object that could not be read and is still what the partition is read from.
    pub(crate) fn lost(&self, key: PartitionKey, lost: Lost) {
        let (object, why) = (lost.object, lost.why.clone());
        if self.damaged.failed(key, lost, clock::now()) {
            let (Incarnation(incarnation), PartitionId(partition)) = key;
            tracing::warn!(%object, why, incarnation, partition, "messages in an object cannot be read");
        }
    }

    /// While the store is not the one that was used, what is missing there is not gone.
    fn may_come_back(&self, error: NotRead) -> NotRead {
        if error.lost.is_none() || !self.is_emptied.load(Ordering::Acquire) {
            return error;
        }
        let refusal = Refusal::new(ErrorCode::Unavailable, error.refusal.detail);
        NotRead { refusal: Refusal { retry_after_ms: Some(RETRY_AFTER_MS), ..refusal }, lost: None }
    }

    async fn of_one_pack(
        &self,
        key: PartitionKey,
        pack: &PackRef,
        rows: &[(PackRef, BatchRow)],
        ahead: Ahead,
        found: &mut Vec<Batch>,
    ) -> Result<(), NotRead> {
        let (key, all) = (pack.packed(key), (rows[0].1.base_offset, None));
        let footer = self.cold.footer(pack).await.map_err(|error| not_read(pack, &error, all))?;
        let partition = footer.partition(key).copied();
        let partition = partition.ok_or_else(|| wrong(pack, all, "it does not hold the partition"))?;
        let mut places = Vec::with_capacity(rows.len());
        for (_, row) in rows {
            let place = footer.block_at(&partition, row.base_offset);
            let records = (row.base_offset, Some(row.end()));
            places.push(place.ok_or_else(|| wrong(pack, records, "it does not hold the offsets"))?);
        }
        if let (Some(first), Some(last)) = (places.first(), places.last()) {
            // All that is needed is under way at once, and then waited for in order. A single block is asked
            // for by who waits.
            let needed = if first == last && ahead.blocks == 0 { 0..0 } else { *first..last + 1 };
            self.cold.read_ahead(pack, &footer, key, needed, ahead);
        }
        let mut next = 0;
        while next < rows.len() {
            let place = places[next];
            let records = || records_of(&footer, &partition, place);
            let upto = next + places[next..].partition_point(|of| *of == place);
            let wanted = rows[next].1.base_offset..rows[upto - 1].1.end();
            let raw = self.cold.block(pack, &footer, key, place, &wanted).await;
            let raw = raw.map_err(|error| not_read(pack, &error, records()))?;
            let before = next;
            for batch in batches(raw, &footer.blocks(&partition)[place], key) {
                let batch = batch.map_err(|error| wrong(pack, records(), &error.to_string()))?;
                let Some((_, row)) = rows.get(next) else { break };
                if row.base_offset != batch.header().base_offset {
                    continue;
                }
                if batch.header().count != row.count {
                    return Err(wrong(pack, records(), "a batch is not the one that was sealed"));
                }
                found.push(batch.unplaced());
                next += 1;
            }
            if next == before {
                return Err(wrong(pack, records(), "a batch is not where it was sealed"));
            }
        }
        Ok(())
    }
}

/// Which records: the first, and one past the last, as [`Lost`] has them.
type Records = (Offset, Option<Offset>);

/// Those of the block at `place` among those of `partition`.
fn records_of(footer: &Footer, partition: &PartitionRow, place: usize) -> Records {
    let blocks = footer.blocks(partition);
    (blocks[place].first, Some(blocks.get(place + 1).map_or(partition.end, |next| next.first)))
}

fn wrong(pack: &PackRef, records: Records, what: &str) -> NotRead {
    not_read(pack, &ColdError::damaged(&pack.name, what), records)
}

fn not_read(pack: &PackRef, error: &ColdError, (from, end): Records) -> NotRead {
    let why = error.why.clone();
    if error.is_damage {
        let refusal = Refusal::new(ErrorCode::Corrupt, why.clone());
        return NotRead { refusal, lost: Some(Lost { object: pack.name, from, end, why }) };
    }
    let refusal =
        Refusal { retry_after_ms: Some(RETRY_AFTER_MS), ..Refusal::new(ErrorCode::Unavailable, why) };
    NotRead { refusal, lost: None }
}
