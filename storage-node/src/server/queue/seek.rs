//! Moving parts, and undoing that.

use std::sync::Arc;

use bytes::Bytes;
use weir_protocol::error::{ErrorCode, Outcome};
use weir_protocol::rpc::{Refusal, SeekAnswer, SeekRequest};

use super::{PartHandle, View};
use crate::clock;
use crate::read::Reader;
use crate::replica::{Held, Queue, ShardHandle};
use crate::server::Room;
use crate::server::decode::decode;
use crate::subscription::{Fence, Leases, PartEvent, Seek, SeekPreview};

/// Moves a part, or says what that would do.
pub(in crate::server) async fn seek(
    shard: ShardHandle,
    room: Room,
    body: Bytes,
) -> Result<SeekAnswer, Refusal> {
    let request: SeekRequest = decode(body)?;
    let handle = PartHandle::new(shard.clone(), request.part);
    let view = handle.view()?;
    let queue = handle.queue(&view);
    // A stream is read from an offset that somebody knows: one that is not there is no other one.
    let to = Reader::new(shard, handle.key.1).resolve(request.to, !view.held.config.is_stream)?;
    let back = undo(&view, request.back_to)?;
    let (preview, fence) = {
        let (mut held, view) = handle.lock(&queue)?;
        // Another may have moved it while that was counted.
        if back.is_some() && !view.held.part.can_go_back(request.back_to) {
            return Err(not_kept());
        }
        let fence = if request.is_dry_run { Fence(0) } else { begin_move(&mut held)? };
        let (part, bounds) = (&view.held.part, view.start..view.end);
        let preview = back.unwrap_or_else(|| match view.held.config.is_stream {
            true => held.cursor.seek_preview(part, to, bounds),
            false => held.leases.seek_preview(part, to, bounds),
        });
        (preview, fence)
    };
    if !request.is_dry_run {
        let (keep_as, back_to) = (request.keep_as, request.back_to);
        let seek = Some(Seek { to, fence, keep_as, back_to });
        finish_move(&handle, &room, &queue, &PartEvent { seek, ..PartEvent::default() }).await?;
    }
    Ok(SeekAnswer { floor: preview.floor.0, redelivered: preview.redelivered, skipped: preview.skipped })
}

/// From here to [`finish_move`] nothing is leased or settled. Gives the fence of the move.
///
/// What is decided until it is in the log would be decided on what it undoes; what was decided before and is not in the
/// log yet has a lower fence, and apply refuses it.
pub(super) fn begin_move(held: &mut Held) -> Result<Fence, Refusal> {
    if held.is_seeking {
        let refusal =
            Refusal::new(ErrorCode::Busy, "another seek or purge of this subscription is on its way");
        return Err(Refusal { retry_after_ms: Some(100), ..refusal });
    }
    held.is_seeking = true;
    held.next_fence = Fence(held.fence_end().0 + 1);
    Ok(held.next_fence)
}

/// Puts the move into the log. On return it is committed, and nobody holds anything; or it is refused, and
/// what was held is.
pub(super) async fn finish_move(
    handle: &PartHandle,
    room: &Room,
    queue: &Arc<Queue>,
    event: &PartEvent,
) -> Result<(), Refusal> {
    let logged = handle.commit(room, event, Fence(0)).await;
    let is_refused = logged.as_ref().is_err_and(|refusal| refusal.effect() == Outcome::None);
    let mut held = queue.lock();
    held.is_seeking = false;
    // Also where nobody knows whether it is in the log: a new beginning asks the part.
    if !is_refused && let Ok(view) = handle.view() {
        held.begin_again(&view.held, (view.partitions, view.end), clock::now());
    }
    drop(held);
    queue.changed.notify_waiters();
    logged
}

/// What going back would do; `None` if it is not that. Counts without holding anybody up.
fn undo(view: &View, back_to: u64) -> Result<Option<SeekPreview>, Refusal> {
    if back_to == 0 {
        return Ok(None);
    }
    match Leases::undo_preview(&view.held.part, back_to, view.start..view.end) {
        Some(preview) => Ok(Some(preview)),
        None => Err(not_kept()),
    }
}

fn not_kept() -> Refusal {
    let detail = "undo: there is no going back to that any more; of each partition the latest four seeks and purges can be \
                  undone, a purge of dead letters alone only until the next seek or other purge";
    Refusal::new(ErrorCode::SnapshotGone, detail)
}
