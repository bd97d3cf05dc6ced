//! Forks: of what stands and of what stood before a seek, here and elsewhere; refused, told in vain, and taken back.

use weir_protocol::ids::{Incarnation, ShardId};
use weir_protocol::rpc::{At, ForkOrigin, SubscriptionDescription};

use super::super::super::command::{Change, CreateSubscription, NewsTaken, TellSubscription};
use super::super::super::entry::SubBatch;
use super::{command, life, subscription};

fn origin(subscription: &str, id: u64, snapshot: u64) -> ForkOrigin {
    ForkOrigin { subscription: subscription.into(), id, snapshot }
}

/// Lives 15 to 17 are given here.
pub(super) fn forked() -> Vec<SubBatch> {
    let create = |name: &str, shards: &[u32], fork: ForkOrigin| {
        let (name, config) = subscription(name, "clicks", At::Earliest(true));
        let (topic_incarnation, shards) = (life(2), shards.to_vec());
        let create = CreateSubscription {
            name,
            config,
            topic_incarnation,
            shards,
            more: Vec::new(),
            fork: Some(fork),
        };
        command(Change::CreateSubscription(create))
    };
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
