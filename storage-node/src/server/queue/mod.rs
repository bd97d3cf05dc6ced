//! Subscriptions: leases of records, and what becomes of them.
//!
//! Leases are in the leader's memory; what was settled, how often a record was tried and when it is due are in the log,
//! and in it before anybody is told.
//!
//! * `pull` leases and sends, `consume` does it as long as somebody listens, `ahead` looks at records first
//!   where that is needed, `settle` ends leases, `settle_and_publish` with what came of them, `seek` and
//!   `redrive` deliver again, `purge` settles undelivered, `lapse` ends leases where nobody pulls, `look` and
//!   `explain` change nothing. `share` says which part of a stream is whose to read.

mod ahead;
mod consume;
mod explain;
mod find;
mod lapse;
mod look;
mod pull;
mod purge;
mod redrive;
mod seek;
mod settle;
mod settle_and_publish;
mod share;
mod stream;

use std::sync::Arc;

use prost::Message as _;
use weir_journal::Class;
use weir_protocol::error::{ErrorCode, Outcome};
use weir_protocol::ids::Offset;
use weir_protocol::rpc::{PartRef, Refusal};

pub(super) use consume::{consume, leave};
pub(super) use explain::explain;
pub(crate) use lapse::Lapses;
pub(super) use look::{describe, leases, list, part_stats, parts};
pub(super) use pull::pull;
pub(super) use purge::purge;
pub(super) use redrive::redrive;
pub(super) use seek::seek;
pub(super) use settle::{settle, settle_runs};
pub(super) use settle_and_publish::settle_and_publish;
pub(super) use share::share;

use super::room::Room;
use crate::clock;
use crate::replica::{Locked, Queue, ShardHandle};
use crate::shard::command::{Change, ChangePart, Command};
use crate::shard::entry::{ENTRY_OVERHEAD_BYTES, SubBatch};
use crate::shard::state::{HeldPart, PartKey, Verdict, part_key};
use crate::subscription::{Fence, Leases, Part, PartEvent};

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

/// Fewer messages than this are few, if more of their part wait: a full journal lets in less of what settles them.
const FEW: u64 = 16;

/// What an event on `records` of a part may use of a full journal: each may take a block of its own, so settling
/// messages one by one may cost more room than they give back. The last ones of a part are never too few.
fn class_of(event: &PartEvent, records: u64, waiting: impl FnOnce() -> u64) -> Class {
    match (&event.seek, &event.forgotten) {
        // A purge settles all there is.
        (Some(_), Some(_)) => Class::Relief,
        // A reader that takes another's place does so once.
        _ if event.voided != Fence(0) => Class::Control,
        (None, None) if event.revived.is_empty() && records < FEW && waiting() > FEW => Class::Few,
        _ => Class::Control,
    }
}

/// What was decided is of no account: the part was moved before it was in the log.
fn was_moved<T>(logged: &Result<T, Refusal>) -> bool {
    logged.as_ref().is_err_and(|refusal| refusal.error_code() == ErrorCode::LeaseLost)
}

/// Tells the leases what became of a settle of these records.
fn settle_ended<T>(
    leases: &mut Leases,
    part: &Part,
    logged: &Result<T, Refusal>,
    offsets: impl IntoIterator<Item = Offset>,
) {
    match logged {
        Ok(_) => leases.committed(part, offsets),
        Err(refusal) if refusal.effect() == Outcome::None => leases.refused(part, offsets, clock::now()),
        Err(_) => leases.failed(part, offsets, clock::now()),
    }
}

/// A change of a part as an entry carries it.
fn sub_batch(change: ChangePart) -> SubBatch {
    SubBatch::command(Command { change: Some(Change::ChangePart(change)) }.encode_to_vec().into())
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

    fn of(shard: ShardHandle, key: PartKey) -> Self {
        let (subscription, (incarnation, partition)) = key;
        let (subscription, incarnation, partition) = (subscription.0, incarnation.0, partition.0);
        Self { shard, part: PartRef { subscription, incarnation, partition }, key }
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
    fn lock<'a>(&self, queue: &'a Queue) -> Result<(Locked<'a>, View), Refusal> {
        let mut held = queue.lock();
        let view = self.view()?;
        held.follow(&view.held, view.partitions);
        Ok((held, view))
    }

    fn queue(&self, view: &View) -> Arc<Queue> {
        let shared = &self.shard.shared;
        if let Some(queue) = shared.queues().get(&self.key) {
            return queue;
        }
        let term = shared.term();
        let of_part = (view.partitions, self.earlier_end(view));
        shared.queues().of(self.key, &view.held, of_part, term, clock::now())
    }

    /// Records below may have been delivered by an earlier leader: those of entries before this one's term.
    fn earlier_end(&self, view: &View) -> Offset {
        let began = self.shard.shared.term_began();
        if view.held.opened >= began {
            return Offset(0);
        }
        let state = self.shard.state.read();
        state.partition(self.key.1).map_or(view.end, |partition| partition.end_before(began))
    }

    /// Puts what happened to records into the log. On return it is committed. `decided` is the leader's next
    /// fence when it was decided: if the part was moved since, it is refused as `lease_lost` and nothing
    /// happens. [`Fence`] 0: whatever happened since.
    async fn commit(&self, room: &Room, event: &PartEvent, decided: Fence) -> Result<(), Refusal> {
        self.commit_for(room, event, decided, event.records()).await
    }

    /// The same for a call that is about so many records, of which the event may name fewer.
    async fn commit_for(
        &self,
        room: &Room,
        event: &PartEvent,
        decided: Fence,
        records: u64,
    ) -> Result<(), Refusal> {
        let waiting = || self.view().map_or(0, |view| view.held.part.count_unsettled(view.end));
        let class = class_of(event, records, waiting);
        let (event, fence_min) = (event.encode().into(), decided.0);
        let change =
            ChangePart { part: self.part, event, fence_min, keeps_past: true, ..ChangePart::default() };
        let committed = self.commit_change(room, change, Vec::new(), class).await;
        committed.map(drop).map_err(|refusal| match refusal.error_code() {
            ErrorCode::JournalFull if class == Class::Few => Refusal {
                detail: format!(
                    "{}. There is room for settling more at once: {FEW} messages of a partition",
                    refusal.detail
                ),
                ..refusal
            },
            _ => refusal,
        })
    }

    /// Puts a change of the part and the outputs that follow it into the log, in one entry. On return it is committed;
    /// the verdicts are those of the outputs.
    async fn commit_change(
        &self,
        room: &Room,
        change: ChangePart,
        outputs: Vec<SubBatch>,
        class: Class,
    ) -> Result<Vec<Verdict>, Refusal> {
        let mut subs = vec![sub_batch(change)];
        subs.extend(outputs);
        let bytes = subs.iter().map(SubBatch::encoded_bytes).sum::<usize>() + ENTRY_OVERHEAD_BYTES;
        let permit = self.shard.journal.try_admit(bytes as u64, class);
        let permit = permit.map_err(|full| room.refusal(full))?;
        let mut verdicts = self.shard.change(subs, permit).await?;
        if verdicts.is_empty() {
            return Err(Refusal::new(ErrorCode::Internal, "the change has no verdict"));
        }
        match verdicts.remove(0) {
            Verdict::Refused(refusal) => Err(refusal),
            _ => Ok(verdicts),
        }
    }
}

#[cfg(test)]
mod tests {
    use weir_protocol::ids::Offset;

    use super::*;
    use crate::subscription::{Forgotten, Seek};

    #[test]
    fn only_what_settles_few_where_many_wait_leaves_room_in_a_full_journal_to_others() {
        let acks = |count| PartEvent { settled: vec![Offset(0)..Offset(count)], ..PartEvent::default() };
        let class = |event: &PartEvent, waiting| class_of(event, event.records(), || waiting);
        assert_eq!(class(&acks(1), 1_000), Class::Few);
        assert_eq!(class(&acks(FEW), 1_000), Class::Control);
        assert_eq!(class(&acks(1), FEW), Class::Control, "or its last messages could never be settled");
        let revived = PartEvent { revived: vec![Offset(0)..Offset(1)], ..PartEvent::default() };
        assert_eq!(class(&revived, 1_000), Class::Control);
        let seek = Some(Seek { to: Offset(9), fence: Fence(1), keep_as: 1, back_to: 0 });
        let seek = PartEvent { seek, ..PartEvent::default() };
        assert_eq!(class(&seek, 1_000), Class::Control);
        let purge = PartEvent { forgotten: Some(Forgotten { keep_as: 0 }), ..seek };
        assert_eq!(class(&purge, 1_000), Class::Relief);
    }
}
