//! Removing a partition's oldest records by hand.

use bytes::Bytes;
use weir_journal::Class;
use weir_protocol::error::ErrorCode;
use weir_protocol::ids::{Incarnation, Offset, PartitionId};
use weir_protocol::rpc::{At, Position, Refusal, TrimAnswer, TrimRequest};

use super::decode::decode;
use super::room::Room;
use crate::read::Reader;
use crate::replica::ShardHandle;
use crate::shard::entry::{ENTRY_OVERHEAD_BYTES, Kind, SubBatch};
use crate::shard::state::Verdict;

/// Trims a partition, or says what that would do, by the entry that retention trims with. On return it is committed.
///
/// # Errors
/// `beyond_tail` for an offset beyond the end, `topic_closed`, `incarnation_gone`, `partition_not_found`: no effect.
pub(super) async fn trim(shard: ShardHandle, room: Room, body: Bytes) -> Result<TrimAnswer, Refusal> {
    let TrimRequest { partition, before, is_dry_run } = decode(body)?;
    let key = (Incarnation(partition.incarnation), PartitionId(partition.partition));
    let partition = shard.state.read().shared_partition(key)?;
    if partition.config.closed {
        let detail =
            "the topic is closed: it takes no messages and loses none by hand; open it, or delete it";
        return Err(Refusal::new(ErrorCode::TopicClosed, detail));
    }
    let upto = upto(&Reader::new(shard.clone(), key), before)?;
    let (start, records, bytes) = partition.trimmed(upto);
    if !is_dry_run && records > 0 {
        let (incarnation, partition) = key;
        let trim = SubBatch { incarnation, partition, kind: Kind::Trim, ..SubBatch::command(Bytes::new()) };
        let trim = SubBatch { expected_end: Some(start), ..trim };
        let bytes = (trim.encoded_bytes() + ENTRY_OVERHEAD_BYTES) as u64;
        // A full journal is a reason to trim.
        let permit = shard.journal.try_admit(bytes, Class::Relief).map_err(|full| room.refusal(full))?;
        if let Some(Verdict::Refused(refusal)) = shard.change(vec![trim], permit).await?.pop() {
            return Err(refusal);
        }
        // Deleted meanwhile, or else trimmed.
        shard.state.read().partition(key)?;
    }
    Ok(TrimAnswer { start: start.0, records, bytes })
}

/// The first record that stays. One that is gone has nothing before it.
fn upto(reader: &Reader, before: Position) -> Result<Offset, Refusal> {
    match (reader.resolve(before, false), before.at) {
        (Err(refusal), Some(At::Offset(offset))) if refusal.error_code() == ErrorCode::OffsetTrimmed => {
            Ok(Offset(offset))
        }
        (resolved, _) => resolved,
    }
}
