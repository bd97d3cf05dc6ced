//! Settling all that waits, without delivering it.

use bytes::Bytes;
use weir_protocol::rpc::{PurgeAnswer, PurgeRequest, Refusal};

use super::PartHandle;
use super::seek::{begin_move, finish_move};
use super::stream::refuse_stream;
use crate::replica::ShardHandle;
use crate::server::Room;
use crate::server::decode::decode;
use crate::subscription::{Fence, Forgotten, PartEvent, Seek};

/// Purges a part, or says what that would do. Everything is a seek to the end that forgets dead letters as
/// well; they alone are forgotten beside whoever leases and settles.
pub(in crate::server) async fn purge(
    shard: ShardHandle,
    room: Room,
    body: Bytes,
) -> Result<PurgeAnswer, Refusal> {
    let PurgeRequest { part, is_dead_only, is_dry_run, keep_as } = decode(body)?;
    let handle = PartHandle::new(shard, part);
    let view = handle.view()?;
    if is_dead_only {
        refuse_stream(&view, "what: dead")?;
    }
    let queue = handle.queue(&view);
    let (preview, fence) = {
        let (mut held, view) = handle.lock(&queue)?;
        let is_move = !is_dry_run && !is_dead_only;
        let fence = if is_move { begin_move(&mut held)? } else { Fence(0) };
        // The end of this moment, while nobody leases: what is published later was not meant, and nobody has
        // settled any of it, which a seek would undo.
        (view.held.part.purge_preview(is_dead_only, view.end), fence)
    };
    if is_dry_run {
        // Nothing to be logged.
    } else if is_dead_only {
        let forgotten = Some(Forgotten { keep_as });
        handle.commit(&room, &PartEvent { forgotten, ..PartEvent::default() }, Fence(0)).await?;
    } else {
        let seek = Some(Seek { to: preview.floor, fence, keep_as, back_to: 0 });
        let forgotten = Some(Forgotten { keep_as: 0 });
        finish_move(&handle, &room, &queue, &PartEvent { seek, forgotten, ..PartEvent::default() }).await?;
    }
    Ok(PurgeAnswer { floor: preview.floor.0, settled: preview.settled, dead: preview.dead })
}
