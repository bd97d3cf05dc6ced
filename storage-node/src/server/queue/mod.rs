//! Subscriptions: leases of records, and what becomes of them.
//!
//! Leases are in the leader's memory; what was settled, how often a record was tried and when it is due are in the log,
//! and in it before anybody is told.
//!
//! * `pull` leases and sends, `ahead` looks at records first where that is needed, `settle` ends leases, `look` changes
//!   nothing but for a seek.

mod ahead;
mod find;
mod look;
mod pull;
mod settle;

use std::sync::Arc;

use parking_lot::MutexGuard;
use prost::Message as _;
use weir_journal::Class;
use weir_protocol::error::ErrorCode;
use weir_protocol::ids::Offset;
use weir_protocol::rpc::{PartRef, Refusal};

pub(super) use look::{describe, leases, list, part_stats, seek};
pub(super) use pull::pull;
pub(super) use settle::settle;

use super::room::Room;
use crate::clock;
use crate::replica::{Held, Queue, ShardHandle};
use crate::shard::command::{Change, ChangePart, Command};
use crate::shard::entry::{ENTRY_OVERHEAD_BYTES, SubBatch};
use crate::shard::state::{HeldPart, PartKey, Verdict, part_key};
use crate::subscription::PartEvent;

/// A part as it stands in the shard's state.
struct View {
    held: Arc<HeldPart>,
    /// Bounds of its partition.
    start: Offset,
    end: Offset,
    partitions: u32,
    /// The topic's time to live of messages.
    ttl_ms: Option<u64>,
}

/// A part that calls are made for.
struct PartHandle {
    shard: ShardHandle,
    part: PartRef,
    key: PartKey,
}

impl PartHandle {
    fn new(shard: ShardHandle, part: PartRef) -> Self {
        Self { shard, part, key: part_key(&part) }
    }

    fn view(&self) -> Result<View, Refusal> {
        let state = self.shard.state.read();
        let gone = |refusal| {
            self.shard.shared.queues().forget(&self.key);
            refusal
        };
        let partition = state.partition(self.key.1).map_err(gone)?;
        let held = state.parts().get(&self.key).cloned().ok_or_else(|| {
            let detail = "the subscription has no part here: it was deleted";
            gone(Refusal::new(ErrorCode::SubscriptionNotFound, detail))
        })?;
        let config = &partition.config;
        Ok(View {
            held,
            start: partition.start,
            end: partition.end,
            partitions: config.partitions,
            ttl_ms: config.ttl_ms,
        })
    }

    /// The leases, and the part as it stands while they are locked.
    fn lock<'a>(&self, queue: &'a Queue) -> Result<(MutexGuard<'a, Held>, View), Refusal> {
        let mut held = queue.lock();
        let view = self.view()?;
        held.follow(&view.held, view.partitions);
        Ok((held, view))
    }

    fn queue(&self, view: &View) -> Arc<Queue> {
        let shared = &self.shard.shared;
        shared.queues().of(self.key, &view.held, view.partitions, shared.term(), clock::now())
    }

    /// Puts what happened to records into the log. On return it is committed.
    async fn commit(&self, room: &Room, event: &PartEvent) -> Result<(), Refusal> {
        let change = Change::ChangePart(ChangePart { part: self.part, event: event.encode().into() });
        let sub = SubBatch::command(Command { change: Some(change) }.encode_to_vec().into());
        let bytes = (sub.encoded_bytes() + ENTRY_OVERHEAD_BYTES) as u64;
        let permit = self.shard.journal.try_admit(bytes, Class::Control);
        let permit = permit.map_err(|full| room.refusal(full))?;
        match self.shard.change(vec![sub], permit).await?.pop() {
            Some(Verdict::Refused(refusal)) => Err(refusal),
            Some(_) => Ok(()),
            None => Err(Refusal::new(ErrorCode::Internal, "the change has no verdict")),
        }
    }
}
