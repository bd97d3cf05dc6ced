//! Records that were given up, to be delivered again after all.
//!
//! They are where they always were, in the topic: they are unsettled again, for this subscription alone. What
//! went to the dead-letter topic stays there.

use std::collections::BTreeSet;

use bytes::Bytes;
use weir_protocol::error::ErrorCode;
use weir_protocol::filter::Filter;
use weir_protocol::ids::Offset;
use weir_protocol::limits::REDRIVE_RECORDS_MAX;
use weir_protocol::rpc::{RedriveAnswer, RedriveRequest, Refusal};

use super::PartHandle;
use super::stream::refuse_stream;
use crate::read::{Allowance, Reader};
use crate::replica::ShardHandle;
use crate::server::Room;
use crate::server::decode::decode;
use crate::subscription::{Fence, PartEvent};

pub(in crate::server) async fn redrive(
    shard: ShardHandle,
    room: Room,
    body: Bytes,
) -> Result<RedriveAnswer, Refusal> {
    let request: RedriveRequest = decode(body)?;
    let most = REDRIVE_RECORDS_MAX;
    if request.offsets.len() > most || request.watched.len() > most || request.limit as usize > most {
        let detail = format!("at most {most} records are redriven at once");
        return Err(Refusal::new(ErrorCode::TooLarge, detail));
    }
    let filter = request
        .filter
        .as_deref()
        .map(Filter::parse)
        .transpose()
        .map_err(|error| Refusal::new(ErrorCode::InvalidParameter, format!("filter: {error}")))?;
    let handle = PartHandle::new(shard.clone(), request.part);
    let view = handle.view()?;
    refuse_stream(&view, "redrive")?;
    let part = &view.held.part;
    let dead_again = request.watched.iter().filter(|offset| part.is_given_up(Offset(**offset))).count();
    if request.give_up_at > 0 && dead_again >= request.give_up_at as usize {
        let next = Some(request.from);
        return Ok(RedriveAnswer { redriven: Vec::new(), next, dead_again: dead_again as u64 });
    }
    let wanted: BTreeSet<Offset> = request.offsets.iter().copied().map(Offset).collect();
    let is_wanted = |offset: &Offset| wanted.is_empty() || wanted.contains(offset);
    let mut dead = part.given_up_from(Offset(request.from)).filter(is_wanted).peekable();
    let (reader, mut chosen, mut looked_at) = (Reader::new(shard, handle.key.1), Vec::new(), 0);
    while let Some(offset) = dead.next_if(|_| chosen.len() < request.limit as usize && looked_at < most) {
        looked_at += 1;
        if matches(&reader, offset, filter.as_ref()).await? {
            chosen.push(offset);
        }
    }
    let next = dead.next().map(|offset| offset.0);
    let redriven = chosen.iter().map(|offset| offset.0).collect();
    if let Some(first) = chosen.first().copied().filter(|_| !request.is_dry_run) {
        let mut event = PartEvent::default();
        chosen.into_iter().for_each(|offset| event.settle(offset));
        let event = PartEvent { revived: event.settled, ..PartEvent::default() };
        handle.commit(&room, &event, Fence(0)).await?;
        let queue = handle.queue(&view);
        {
            let (mut held, view) = handle.lock(&queue)?;
            held.leases.revived(&view.held.part, first);
        }
        queue.changed.notify_waiters();
    }
    Ok(RedriveAnswer { redriven, next, dead_again: dead_again as u64 })
}

/// Whether a record is meant. One that retention has removed meanwhile is not.
async fn matches(reader: &Reader, offset: Offset, filter: Option<&Filter>) -> Result<bool, Refusal> {
    let Some(filter) = filter else { return Ok(true) };
    let read = match reader.look(offset, offset.plus(1), Allowance { records: 1, bytes: u64::MAX }).await {
        Ok(read) => read,
        Err(refusal) if refusal.error_code() == ErrorCode::OffsetTrimmed => return Ok(false),
        Err(refusal) => return Err(refusal),
    };
    let Some((row, batch)) = read.batches.first() else { return Ok(false) };
    let corrupt = |error: &dyn std::fmt::Display| Refusal::new(ErrorCode::Corrupt, error.to_string());
    let place = usize::try_from(offset.0 - row.base_offset.0).expect("a record lies in its batch");
    let mut records = batch.records().map_err(|error| corrupt(&error))?.skip(place);
    match records.next() {
        Some(record) => {
            let record = record.map_err(|error| corrupt(&error))?;
            Ok(filter.matches(record.key.as_deref(), &record.headers))
        }
        None => Ok(false),
    }
}
