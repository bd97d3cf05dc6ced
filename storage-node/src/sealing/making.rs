//! What making a pack takes, whatever goes into it.

use bytes::Bytes;
use prost::Message as _;
use weir_journal::{Class, Permit};
use weir_protocol::batch::Batch;
use weir_protocol::error::ErrorCode;
use weir_protocol::rpc::Refusal;
use weir_tier::cold::ColdError;
use weir_tier::pack::{PackSummary, PackWriter, PushError};
use weir_tier::store::{PackName, StoreError, Upload};

use super::exporter::ExporterError;
use crate::read::FromLog;
use crate::replica::ShardHandle;
use crate::shard::command::{Change, Command, Seal, SealedPart};
use crate::shard::entry::{ENTRY_OVERHEAD_BYTES, SubBatch};
use crate::shard::state::{BatchRow, PartitionKey, Verdict};
use crate::tier::Tier;

/// Partitions of one pack: bounds its footer and the command that commits it.
pub(super) const PARTITIONS_MAX: usize = 8_192;

/// Encoded bytes of a partition in the change that commits a pack, and of that without them: more than they are.
const PART_BYTES: usize = 64;
const COMMIT_BYTES: usize = 4 << 10;

/// Why no pack was made.
#[derive(Debug, thiserror::Error)]
pub(super) enum SealError {
    /// The store; the next attempt makes another object.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The records could not be read, or the pack not committed.
    #[error("{}", .0.detail)]
    Refused(Refusal),
    /// A message cannot be read from the log; packs are made without its partition from here on.
    #[error("{0}")]
    Unreadable(String),
    /// An older pack could not be read.
    #[error(transparent)]
    Cold(#[from] ColdError),
    /// The batches are not in order: the state contradicts itself.
    #[error(transparent)]
    Push(#[from] PushError),
    /// The states of the shards did not get into the store.
    #[error(transparent)]
    Export(#[from] ExporterError),
}

impl From<Refusal> for SealError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// Closes a pack and its upload; on return the object is verified. Its last block is compressed, and its
/// footer made, on the background thread: that takes milliseconds.
pub(super) async fn finish(
    tier: &Tier,
    writer: PackWriter,
    mut upload: Upload,
) -> Result<PackSummary, SealError> {
    let (rest, summary) = match tier.background.run(move || writer.finish()).await {
        Ok(finished) => finished,
        Err(panicked) => {
            upload.abort().await;
            return Err(panicked.into());
        }
    };
    if let Err(error) = send(&mut upload, rest).await {
        upload.abort().await;
        return Err(error.into());
    }
    let uploaded = upload.finish().await?;
    if (summary.pack_bytes, summary.crc32c) != (uploaded.bytes, uploaded.crc32c) {
        return Err(Refusal::new(ErrorCode::Internal, "a pack was sent that was not made").into());
    }
    Ok(summary)
}

/// Adds the next pieces of a pack to its upload.
pub(super) async fn send(upload: &mut Upload, pieces: Vec<Bytes>) -> Result<(), StoreError> {
    for piece in pieces {
        upload.write(piece).await?;
    }
    Ok(())
}

/// A writer, and what it has ready to be sent.
pub(super) type Packed = (PackWriter, Result<Vec<Bytes>, SealError>);

/// Compresses on the background thread: it takes milliseconds.
pub(super) async fn pack(
    tier: &Tier,
    writer: PackWriter,
    rows: Vec<(PartitionKey, BatchRow)>,
    batches: Vec<Batch>,
) -> Result<Packed, Refusal> {
    tier.background.run(move || push(writer, &rows, &batches)).await
}

/// Reads from the journal what is not in memory, and compresses, on the background thread.
pub(super) async fn pack_from_log(
    tier: &Tier,
    shard: &ShardHandle,
    writer: PackWriter,
    rows: Vec<(PartitionKey, BatchRow)>,
) -> Result<Packed, Refusal> {
    let reading = FromLog::begin(shard, rows.iter().map(|(_, row)| *row).collect());
    let packed = move || match reading.load() {
        Ok(batches) => push(writer, &rows, &batches),
        Err(refusal) => (writer, Err(refusal.into())),
    };
    tier.background.run(packed).await
}

fn push(mut writer: PackWriter, rows: &[(PartitionKey, BatchRow)], batches: &[Batch]) -> Packed {
    let pushed = rows.iter().zip(batches);
    let mut pushed = pushed.map(|((key, row), batch)| writer.push(*key, row.base_offset, row.ts, batch));
    let result = pushed.try_for_each(|pushed| pushed.map_err(SealError::from));
    let ready = result.map(|()| writer.take_ready());
    (writer, ready)
}

pub(super) fn seal_of(name: &PackName, summary: &PackSummary) -> Seal {
    let parts = summary.partitions.iter().map(|row| SealedPart {
        incarnation: row.partition.0.0,
        partition: row.partition.1.0,
        start: row.start.0,
        end: row.end.0,
    });
    Seal {
        first: name.first.0,
        last: name.last.0,
        term: name.term.0,
        attempt: name.attempt.0.into(),
        bytes: summary.pack_bytes,
        tail_bytes: summary.tail_bytes,
        crc32c: summary.crc32c,
        parts: parts.collect(),
        batch_bytes: summary.partitions.iter().map(|row| row.bytes).sum(),
    }
}

/// Room in the journal for the change that commits a pack of so many partitions. It is taken before the pack is
/// made: while there is none, each attempt would send a pack that nothing can name.
///
/// # Errors
/// `busy`.
pub(super) fn room_for(shard: &ShardHandle, partitions: usize) -> Result<Permit, Refusal> {
    admit(shard, COMMIT_BYTES + partitions * PART_BYTES)
}

/// Commits a change that names a new pack. False if the log refused it: then the object is removed.
pub(super) async fn commit(
    shard: &ShardHandle,
    tier: &Tier,
    name: &PackName,
    change: Change,
    room: Permit,
) -> Result<bool, Refusal> {
    let sub = sub_batch(change);
    let Verdict::Refused(refusal) = decided(shard, sub, room).await? else { return Ok(true) };
    // Trimmed or deleted meanwhile, or made by another leader: the log has the last word.
    tracing::info!(pack = %name, why = refusal.detail, "a pack is not needed");
    if let Err(error) = tier.cold.store().delete(&name.to_string()).await {
        tracing::warn!(%error, "it stays until it is swept");
    }
    Ok(false)
}

/// Commits one change and gives its verdict.
pub(super) async fn propose(shard: &ShardHandle, change: Change) -> Result<Verdict, Refusal> {
    let sub = sub_batch(change);
    let room = admit(shard, sub.encoded_bytes() + ENTRY_OVERHEAD_BYTES)?;
    decided(shard, sub, room).await
}

fn sub_batch(change: Change) -> SubBatch {
    SubBatch::command(Command { change: Some(change) }.encode_to_vec().into())
}

fn admit(shard: &ShardHandle, bytes: usize) -> Result<Permit, Refusal> {
    let permit = shard.journal.try_admit(bytes as u64, Class::Relief);
    permit.map_err(|full| Refusal::new(ErrorCode::Busy, full.to_string()))
}

async fn decided(shard: &ShardHandle, sub: SubBatch, room: Permit) -> Result<Verdict, Refusal> {
    let verdict = shard.change(vec![sub], room).await?.pop();
    verdict.ok_or_else(|| Refusal::new(ErrorCode::Internal, "the change has no verdict"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shard::command::{CompactedPart, Rewrite};

    #[test]
    fn a_change_that_names_a_pack_has_the_room_that_was_taken_for_it() {
        let most = u64::MAX;
        let part = SealedPart { incarnation: most, partition: u32::MAX, start: most, end: most };
        let pack = Seal {
            first: most,
            last: most,
            term: most,
            attempt: u128::MAX.into(),
            bytes: most,
            tail_bytes: most,
            crc32c: u32::MAX,
            parts: vec![part; 100],
            batch_bytes: most,
        };
        let compacted = vec![CompactedPart { incarnation: most, partition: u32::MAX, upto: most }];
        let rewrite = Rewrite { pack, replaced: vec![most; 64], compacted };
        let bytes = sub_batch(Change::Rewrite(rewrite)).encoded_bytes() + ENTRY_OVERHEAD_BYTES;
        assert!(bytes <= COMMIT_BYTES + 100 * PART_BYTES, "{bytes}");
    }
}
