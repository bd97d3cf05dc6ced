//! What has become of a record whose offset was told before it was final.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, timeout_at};
use weir_journal::ReadError;
use weir_protocol::error::ErrorCode;
use weir_protocol::ids::{Incarnation, LogIndex, Offset, PartitionId, ShardId, Term};
use weir_protocol::limits::WAIT_MS_MAX;
use weir_protocol::rpc::{ConfirmState, ConfirmStateRequest, Level, Refusal};
use weir_transport::CreditHandle;

use super::decode::decode;
use super::publish::NOT_ARCHIVED_HERE;
use crate::replica::ShardHandle;
use crate::shard::state::PartitionKey;

/// What the shard says of a record at one moment.
enum Found {
    /// An output is in its partition.
    Arrived,
    /// An output is in the log of the shard that settled, and will be in its partition.
    OnItsWay,
    /// A committed record has this offset; its entry, and when it was accepted.
    Committed(LogIndex, u64),
    /// The end is not there yet, and the term goes on: it is under way.
    Staged,
    /// The end is not there, and the term is over: it will never come.
    Lost,
}

/// Says whether the record is archived and, if that is asked for, waits until a pack holds the record and a
/// state that names the pack is in the object store: from then on the record can be had from there alone.
async fn archived(
    shard: &ShardHandle,
    key: PartitionKey,
    request: &ConfirmStateRequest,
    found: ConfirmState,
    until: Instant,
    mut call: CreditHandle,
) -> Result<ConfirmState, Refusal> {
    let is_awaited = request.level() == Level::Archived;
    if shard.tier.is_none() {
        let refusal = Refusal::new(ErrorCode::LevelUnavailable, NOT_ARCHIVED_HERE);
        return if is_awaited { Err(refusal) } else { Ok(found) };
    }
    let archive = shard.shared.archive();
    let mut reached = archive.watch();
    loop {
        let newest = *reached.borrow_and_update();
        // Looked up each time: the record may be trimmed, and sealed, while it is waited for.
        let Found::Committed(index, _) = look(shard, request)? else { return Ok(found) };
        let (pack, start) = {
            let state = shard.state.read();
            let partition = state.partition(key)?;
            (partition.pack_of(Offset(request.offset)), partition.start.0)
        };
        if pack.is_some_and(|no| newest.holds(no, index)) {
            return Ok(ConfirmState { level: Level::Archived as i32, start, ..found });
        }
        if !is_awaited {
            return Ok(found);
        }
        archive.want(index);
        let woken = timeout_at(until, async {
            tokio::select! {
                changed = reached.changed() => changed.is_ok(),
                _ = call.changed() => !call.latest().is_cancelled,
            }
        });
        if !woken.await.unwrap_or(false) {
            return Ok(found);
        }
    }
}

/// Answers which level a record has, and waits for the one asked for.
///
/// # Errors
/// `incarnation_gone`, `partition_not_found`, `offset_trimmed`; `beyond_tail` for an offset that nobody was ever told
/// in this term; `storage_failed` if the entry's term cannot be read, or the journal failed while the record was under
/// way: a restart may find it there.
pub(super) async fn confirm_state(
    shard: ShardHandle,
    body: Bytes,
    mut call: CreditHandle,
) -> Result<ConfirmState, Refusal> {
    let request: ConfirmStateRequest = decode(body)?;
    let until = Instant::now() + Duration::from_millis(request.wait_ms.min(WAIT_MS_MAX));
    let waits_for = request.level();
    let key = (Incarnation(request.incarnation), PartitionId(request.partition));
    let watch = shard.shared.watch(key);
    loop {
        // Registered before the state is read: what is applied in between wakes it.
        let changed = watch.notified();
        match look(&shard, &request)? {
            Found::Committed(index, ts_ms) => {
                let found = committed(&shard, &request, index, ts_ms).await?;
                if found.lost {
                    return Ok(found);
                }
                return archived(&shard, key, &request, found, until, call).await;
            }
            Found::Lost => {
                return Ok(ConfirmState { level: Level::None as i32, lost: true, ts_ms: 0, start: 0 });
            }
            Found::Arrived => {
                return Ok(ConfirmState { level: Level::Quorum as i32, lost: false, ts_ms: 0, start: 0 });
            }
            found @ (Found::Staged | Found::OnItsWay) => {
                let is_staged = matches!(found, Found::Staged);
                let reached = if is_staged { Level::Memory } else { Level::None };
                let is_over = call.latest().is_cancelled || Instant::now() >= until;
                if waits_for <= reached || is_over {
                    return Ok(ConfirmState { level: reached as i32, lost: false, ts_ms: 0, start: 0 });
                }
                // Woken or not, what stands there now is the answer.
                let _ = timeout_at(until, async {
                    tokio::select! {
                        () = changed => {}
                        _ = call.changed() => {}
                    }
                })
                .await;
            }
        }
    }
}

fn look(shard: &ShardHandle, request: &ConfirmStateRequest) -> Result<Found, Refusal> {
    let key = (Incarnation(request.incarnation), PartitionId(request.partition));
    if let Some(output) = request.output {
        let state = shard.state.read();
        state.partition(key)?;
        let has_arrived = output.number < state.arrivals().next(ShardId(output.source));
        return Ok(if has_arrived { Found::Arrived } else { Found::OnItsWay });
    }
    let offset = Offset(request.offset);
    let staged = shard.shared.staged();
    let state = shard.state.read();
    let partition = state.partition(key)?;
    if offset < partition.start {
        let detail = format!("offset {offset} is no longer kept; the oldest is {}", partition.start);
        let refusal = Refusal::new(ErrorCode::OffsetTrimmed, detail);
        return Err(Refusal { earliest: Some(partition.start.0), ..refusal });
    }
    if offset >= partition.end {
        if request.term != shard.shared.term() {
            return Ok(Found::Lost);
        }
        if staged.may_hold(key, offset) {
            return Ok(Found::Staged);
        }
        if let Some(failure) = shard.journal.failure() {
            let detail = format!(
                "{failure}; whether there is a record with offset {offset} is known once the node was restarted"
            );
            return Err(Refusal::new(ErrorCode::StorageFailed, detail));
        }
        let detail = format!("no record has offset {offset}; the partition ends at {}", partition.end);
        let refusal = Refusal::new(ErrorCode::BeyondTail, detail);
        return Err(Refusal { tail: Some(partition.end.0), ..refusal });
    }
    let row = partition.batch_at(offset).ok_or_else(|| {
        Refusal::new(ErrorCode::Internal, format!("offset {offset} is within the partition and has no batch"))
    })?;
    Ok(Found::Committed(row.index, row.ts.0))
}

/// An entry of a later term than the one that was told took the place of what was told. One of an earlier term is
/// what was told: a retry is answered with the term it came in.
async fn committed(
    shard: &ShardHandle,
    request: &ConfirmStateRequest,
    index: LogIndex,
    ts_ms: u64,
) -> Result<ConfirmState, Refusal> {
    let found = ConfirmState { level: Level::Quorum as i32, lost: false, ts_ms, start: 0 };
    if request.term == shard.shared.term() {
        return Ok(found);
    }
    let (journal, stream) = (shard.journal.clone(), shard.stream());
    let read = move || match journal.read_entries(stream, index.0..index.0 + 1, 1) {
        Ok(entries) => Ok(entries.first().map(|entry| entry.term)),
        // Carried entries know their term.
        Err(ReadError::Purged { .. } | ReadError::Recycled { .. }) => {
            journal.term_of_carried(stream, index.0)
        }
        Err(error) => Err(error),
    };
    let failed = |why: String| Refusal::new(ErrorCode::StorageFailed, why);
    let term = tokio::task::spawn_blocking(read).await.map_err(|error| failed(error.to_string()))?;
    let lost = ConfirmState { level: Level::None as i32, lost: true, ts_ms: 0, start: 0 };
    match term {
        Ok(Some(term)) if term <= request.term => Ok(found),
        Ok(Some(_)) => Ok(lost),
        Ok(None) => {
            let is_told = has_left(shard, request)?;
            let detail = "the entry has left the journal, and in which term it came is not known any more: read the message";
            is_told.then_some(found).ok_or_else(|| Refusal::new(ErrorCode::NotSupported, detail))
        }
        Err(error) => Err(failed(error.to_string())),
    }
}

/// Whether a record that has left the journal is the one that was told: its pack's term is not below that of any
/// entry in it.
///
/// # Errors
/// `offset_trimmed`, which may be why it has left.
fn has_left(shard: &ShardHandle, request: &ConfirmStateRequest) -> Result<bool, Refusal> {
    look(shard, request)?;
    Ok(sealed_in(shard, request).is_some_and(|term| term.0 <= request.term))
}

/// The term of the pack that holds the record.
fn sealed_in(shard: &ShardHandle, request: &ConfirmStateRequest) -> Option<Term> {
    let key = (Incarnation(request.incarnation), PartitionId(request.partition));
    let state = shard.state.read();
    let no = state.partition(key).ok()?.pack_of(Offset(request.offset))?;
    Some(state.packs().get(no)?.term)
}

#[cfg(test)]
mod tests {
    use weir_journal::Class;

    use super::*;
    use crate::node::tests::{published, start};
    use crate::shard::entry::{Kind, SubBatch};

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_is_trimmed_while_it_is_asked_for_is_told_to_be_trimmed() {
        let dir = tempfile::tempdir().unwrap();
        let node = start(dir.path()).await;
        let shard = node.shard(ShardId(1));
        let (incarnation, partition) = published(&shard, &[b"a".to_vec(), b"b".to_vec()]).await;
        let request =
            ConfirmStateRequest { incarnation: incarnation.0, partition: 0, offset: 0, ..Default::default() };
        assert_eq!(has_left(&shard, &request), Ok(false), "it is in no pack");
        let trim = SubBatch { incarnation, partition, kind: Kind::Trim, ..SubBatch::command(Bytes::new()) };
        let trim = SubBatch { expected_end: Some(Offset(1)), ..trim };
        let permit = shard.journal.try_admit(4 << 10, Class::Relief).unwrap();
        shard.change(vec![trim], permit).await.unwrap();
        let refused = has_left(&shard, &request).unwrap_err();
        assert_eq!((refused.error_code(), refused.earliest), (ErrorCode::OffsetTrimmed, Some(1)));
        drop(shard);
        node.shutdown(Duration::from_secs(1)).await;
    }
}
