//! Batches of packs.

use futures_util::future::BoxFuture;
use weir_protocol::batch::Batch;
use weir_protocol::error::ErrorCode;
use weir_protocol::rpc::Refusal;
use weir_tier::cold::{ColdError, PackRef};
use weir_tier::pack::batches;

use super::Tier;
use crate::shard::state::{BatchRow, PartitionKey};

/// When to ask again while the store does not answer.
const RETRY_AFTER_MS: u64 = 1_000;

impl Tier {
    /// The batches that `rows` of `key` describe, with nothing stamped; each row comes with the pack that holds it. Up to
    /// `ahead` blocks behind the last one begin to be fetched. Fewer, if one of them but not the first cannot be read: those in
    /// front of it.
    ///
    /// # Errors
    /// `corrupt` if an object is gone or damaged, `unavailable` if the store does not answer; both name the object.
    pub fn batches<'a>(
        &'a self,
        key: PartitionKey,
        rows: &'a [(PackRef, BatchRow)],
        ahead: usize,
    ) -> BoxFuture<'a, Result<Vec<Batch>, Refusal>> {
        // Boxed: next to a request to a store it costs nothing, and callers' futures stay small.
        Box::pin(async move {
            let mut found = Vec::with_capacity(rows.len());
            let mut rest = rows;
            while let Some((pack, _)) = rest.first() {
                let (run, behind) = rest.split_at(rest.partition_point(|(of, _)| of == pack));
                match self.of_one_pack(key, pack, run, ahead, &mut found).await {
                    // Whoever wants what comes then asks for it alone, and is told.
                    Err(_) if !found.is_empty() => return Ok(found),
                    read => read?,
                }
                rest = behind;
            }
            Ok(found)
        })
    }

    async fn of_one_pack(
        &self,
        key: PartitionKey,
        pack: &PackRef,
        rows: &[(PackRef, BatchRow)],
        ahead: usize,
        found: &mut Vec<Batch>,
    ) -> Result<(), Refusal> {
        let key = pack.packed(key);
        let footer = self.cold.footer(pack).await.map_err(|error| refusal(&error))?;
        let partition = footer.partition(key).copied();
        let partition = partition.ok_or_else(|| wrong(pack, "it does not hold the partition"))?;
        let mut places = Vec::with_capacity(rows.len());
        for (_, row) in rows {
            let place = footer.block_at(&partition, row.base_offset);
            places.push(place.ok_or_else(|| wrong(pack, "it does not hold the offsets"))?);
        }
        if let (Some(first), Some(last)) = (places.first(), places.last()) {
            // All that is needed is under way at once, and then waited for in order. A single block is asked for by who waits.
            let needed = if first == last && ahead == 0 { 0..0 } else { *first..last + 1 };
            self.cold.read_ahead(pack, &footer, key, needed, ahead);
        }
        let mut next = 0;
        while next < rows.len() {
            let place = places[next];
            let raw = self.cold.block(pack, &footer, key, place).await.map_err(|error| refusal(&error))?;
            let before = next;
            for batch in batches(raw, &footer.blocks(&partition)[place], key) {
                let batch = batch.map_err(|error| wrong(pack, &error.to_string()))?;
                let Some((_, row)) = rows.get(next) else { break };
                if row.base_offset != batch.header().base_offset {
                    continue;
                }
                if batch.header().count != row.count {
                    return Err(wrong(pack, "a batch is not the one that was sealed"));
                }
                found.push(batch.unplaced());
                next += 1;
            }
            if next == before {
                return Err(wrong(pack, "a batch is not where it was sealed"));
            }
        }
        Ok(())
    }
}

fn wrong(pack: &PackRef, what: &str) -> Refusal {
    Refusal::new(ErrorCode::Corrupt, format!("object {}: {what}", pack.name))
}

fn refusal(error: &ColdError) -> Refusal {
    if error.is_damage {
        return Refusal::new(ErrorCode::Corrupt, error.why.clone());
    }
    let refusal = Refusal::new(ErrorCode::Unavailable, error.why.clone());
    Refusal { retry_after_ms: Some(RETRY_AFTER_MS), ..refusal }
}
