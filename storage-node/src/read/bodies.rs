//! Where a batch's bytes are: the newest in memory, then in the journal, the oldest in packs.

use weir_protocol::batch::Batch;
use weir_protocol::error::ErrorCode;
use weir_protocol::rpc::Refusal;
use weir_tier::cold::{Ahead, PackRef};

use super::log::from_log;
use crate::replica::ShardHandle;
use crate::shard::state::{BatchRow, DeadLetter, PartitionKey};
use crate::tier::{NotRead, Tier};

/// The rows' batches, with nothing stamped, in order; blocks of a pack `ahead` of the last may be asked for. What is
/// compacted comes from packs, also where the log still has it: it has records that were dropped.
///
/// # Errors
/// `corrupt`, `offset_trimmed`, and `unavailable` if the object store does not answer.
pub(super) async fn of(
    shard: &ShardHandle,
    key: PartitionKey,
    rows: &[BatchRow],
    ahead: Ahead,
) -> Result<Vec<Batch>, Refusal> {
    let Some(tier) = &shard.tier else { return from_log(shard, rows).await };
    let log_start = || shard.journal.entries(shard.stream()).start;
    let compacted_to = shard.state.read().partition(key)?.compacted_to();
    let mut in_log = log_start();
    let (cold, hot) = loop {
        // Entries leave the log from the front, and partitions are compacted from theirs.
        let is_cold = |row: &BatchRow| row.base_offset < compacted_to || row.index.0 < in_log;
        let (cold, hot) = rows.split_at(rows.partition_point(is_cold));
        if !cold.is_empty() {
            break (cold, hot);
        }
        match from_log(shard, hot).await {
            // Some left between the two looks; those behind them may be in no pack yet.
            Err(refusal) if refusal.error_code() == ErrorCode::OffsetTrimmed && log_start() > in_log => {
                in_log = log_start();
            }
            Err(refusal) if refusal.error_code() == ErrorCode::Corrupt => {
                return past_the_log(shard, tier, key, rows, ahead).await.unwrap_or(Err(refusal));
            }
            read => return read,
        }
    };
    let mut batches = from_packs(shard, tier, key, cold, ahead).await?;
    if !hot.is_empty() && batches.len() == cold.len() {
        // What has just left is read by the next call: this one has something to give.
        batches.extend(from_log(shard, hot).await.unwrap_or_default());
    }
    Ok(batches)
}

/// What packs hold of rows whose copies in the log are damaged: those in front of the first that no pack has,
/// if there are any.
async fn past_the_log(
    shard: &ShardHandle,
    tier: &Tier,
    key: PartitionKey,
    rows: &[BatchRow],
    ahead: Ahead,
) -> Option<Result<Vec<Batch>, Refusal>> {
    let sealed_end = shard.state.read().partition(key).ok()?.unsealed_from();
    let (packed, _) = rows.split_at(rows.partition_point(|row| row.base_offset < sealed_end));
    if packed.is_empty() { None } else { Some(from_packs(shard, tier, key, packed, ahead).await) }
}

/// The rows' batches from the packs that hold them, or those in front of the first that cannot be read. An
/// object that is gone may have been replaced by another since it was looked up: then that one is read.
pub(crate) async fn from_packs(
    shard: &ShardHandle,
    tier: &Tier,
    key: PartitionKey,
    rows: &[BatchRow],
    ahead: Ahead,
) -> Result<Vec<Batch>, Refusal> {
    let mut from = packed(shard, tier, key, rows)?;
    loop {
        match tier.batches(key, &from, ahead).await {
            Err(NotRead { refusal, lost: Some(lost) }) => {
                let now = packed(shard, tier, key, rows)?;
                if now == from {
                    tier.lost(key, lost);
                    return Err(refusal);
                }
                from = now;
            }
            Err(NotRead { refusal, lost: None }) => return Err(refusal),
            Ok(batches) => return Ok(batches),
        }
    }
}

/// The batch of a dead letter.
///
/// # Errors
/// As `of`.
pub async fn batch_of_letter(shard: &ShardHandle, letter: &DeadLetter) -> Result<Batch, Refusal> {
    let row = letter.batch;
    let pack = letter.pack.zip(shard.tier.as_ref()).and_then(|(no, tier)| {
        let pack = *shard.state.read().packs().get(no)?;
        Some((tier, tier.pack_ref(shard.shard, &pack)))
    });
    let mut batches = match pack {
        Some((tier, pack)) => {
            let read = tier.batches(letter.from, &[(pack, row)], Ahead::NONE).await;
            read.map_err(|NotRead { refusal, lost }| {
                lost.into_iter().for_each(|lost| tier.lost(letter.from, lost));
                refusal
            })?
        }
        None => from_log(shard, &[row]).await?,
    };
    batches.pop().ok_or_else(|| Refusal::new(ErrorCode::Internal, "the batch is not there"))
}

/// The rows with the packs that hold them.
fn packed(
    shard: &ShardHandle,
    tier: &Tier,
    key: PartitionKey,
    rows: &[BatchRow],
) -> Result<Vec<(PackRef, BatchRow)>, Refusal> {
    let state = shard.state.read();
    let partition = state.partition(key)?;
    let with_pack = |row: &BatchRow| {
        let no = partition.pack_of(row.base_offset.max(partition.start))?;
        Some((tier.pack_ref(shard.shard, state.packs().get(no)?), *row))
    };
    let packed: Option<Vec<_>> = rows.iter().map(with_pack).collect();
    packed.ok_or_else(|| Refusal::new(ErrorCode::OffsetTrimmed, "removed by retention while it was read"))
}
