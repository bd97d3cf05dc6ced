//! Forks: of what stands and of what stood before a seek, here and elsewhere; refused, told in vain, and taken back.

use weir_protocol::ids::{Incarnation, Offset, ShardId};
use weir_protocol::rpc::{At, ForkOrigin, PartRef, SubscriptionDescription};

use super::super::super::command::{Change, ChangePart, CreateSubscription, NewsTaken, TellSubscription};
use super::super::super::entry::SubBatch;
use super::{command, life, subscription};
use crate::subscription::{Fence, PartEvent, Seek};

fn origin(subscription: &str, id: u64, snapshot: u64) -> ForkOrigin {
    ForkOrigin { subscription: subscription.into(), id, snapshot, at_ms: None }
}

fn create(name: &str, shards: &[u32], fork: ForkOrigin) -> SubBatch {
    let (name, config) = subscription(name, "clicks", At::Earliest(true));
    let (topic_incarnation, shards) = (life(2), shards.to_vec());
    let create =
        CreateSubscription { name, config, topic_incarnation, shards, more: Vec::new(), fork: Some(fork) };
    command(Change::CreateSubscription(create))
}

/// Lives 15 to 17 are given here.
pub(super) fn forked() -> Vec<SubBatch> {
    let tell = |seq: u64, name: &str, counter: u64, fork: ForkOrigin| {
        let (name, config) = subscription(name, "orders", At::Earliest(true));
        let subscription = SubscriptionDescription {
            name,
            id: Incarnation::compose(ShardId(6), counter).0,
            version: 1,
            config,
            topic_incarnation: life(1),
            shards: vec![5],
            created_ms: 9,
            more: Vec::new(),
            fork: Some(fork),
        };
        command(Change::TellSubscription(TellSubscription {
            source: 6,
            seq,
            subscription,
            is_deleted: false,
        }))
    };
    let guest = Incarnation::compose(ShardId(6), 9).0;
    vec![
        create("fork-of-ruled", &[5], origin("ruled", life(9), 8)),
        create("fork-of-none", &[5], origin("ruled", life(9), 99)),
        create("fork-of-wide", &[5, 6], origin("wide", life(7), 0)),
        create("fork-of-wide", &[5, 6], origin("wide", life(7), 5)),
        create("fork-taken-back", &[5, 6], origin("wide", life(7), 0)),
        command(Change::Taken(NewsTaken { target: 6, upto: 0, unforked: vec![life(17)] })),
        tell(5, "guest-of-none", 11, origin("nobody", guest + 100, 0)),
        tell(5, "guest-of-none", 11, origin("nobody", guest + 100, 0)),
        tell(6, "guest-of-guest", 12, origin("guest", guest, 0)),
    ]
}

/// A settle and a seek in another minute than what was before them, and forks of times in and before them.
pub(super) fn later() -> Vec<SubBatch> {
    let change = |event: &PartEvent| {
        let part = PartRef { subscription: life(6), incarnation: life(2), partition: 0 };
        let event = event.encode().into();
        command(Change::ChangePart(ChangePart { part, event, keeps_past: true, ..ChangePart::default() }))
    };
    let settle = PartEvent { settled: vec![Offset(14)..Offset(15)], ..PartEvent::default() };
    let seek = Some(Seek { to: Offset(3), fence: Fence(4 << 32), keep_as: 11, back_to: 0 });
    let at = |at_ms: u64| ForkOrigin { at_ms: Some(at_ms), ..origin("billing", life(6), 0) };
    vec![
        change(&settle),
        change(&PartEvent { seek, ..PartEvent::default() }),
        create("fork-of-then", &[5], at(30_000)),
        create("fork-of-before", &[5], at(9_000)),
        create("fork-of-later", &[5], at(99_000)),
    ]
}
