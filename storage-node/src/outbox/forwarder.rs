//! The task of a leader that carries its shard's outbox to other shards.
//!
//! A row is sent until its target has committed it, and deleted after that; the target recognises what it has seen.
//! So a crash anywhere repeats at most what is recognised, and loses nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use prost::Message as _;
use tokio::sync::watch;
use weir_journal::Class;
use weir_protocol::ids::{Incarnation, ShardId};
use weir_protocol::rpc::Refusal;

use super::carrier::{Carry, commit, not_here, run};
use crate::replica::ShardHandle;
use crate::shard::command::{Change, Command, NewsTaken};
use crate::shard::entry::SubBatch;
use crate::shard::state::{News, OutboxRow, Verdict};

/// Rows sent to one target at once.
const ROWS_PER_ENTRY: usize = 64;

/// The forwarder of one shard.
pub struct Forwarder {
    shard: ShardHandle,
    targets: Arc<BTreeMap<ShardId, ShardHandle>>,
}

impl Forwarder {
    /// From `shard` to `targets`: the shards that are led here.
    #[must_use]
    pub fn new(shard: ShardHandle, targets: Arc<BTreeMap<ShardId, ShardHandle>>) -> Self {
        Self { shard, targets }
    }

    /// Runs until the node stops.
    pub async fn run(self, stop: watch::Receiver<bool>) {
        run(self, stop).await;
    }

    /// The rows that a shard may hear of, and why those behind wait: they are taken in order.
    fn may_be_heard(
        &self,
        by: &ShardHandle,
        mut rows: Vec<OutboxRow>,
    ) -> (Vec<OutboxRow>, Result<(), Refusal>) {
        let state = by.state.read();
        let waits = |row: &OutboxRow| match &row.news {
            News::Subscription(subscription) if !row.is_deleted => {
                state.may_hear(subscription, self.shard.shard).err()
            }
            _ => None,
        };
        match rows.iter().enumerate().find_map(|(at, row)| Some((at, waits(row)?))) {
            Some((first, why)) => {
                rows.truncate(first);
                (rows, Err(why))
            }
            None => (rows, Ok(())),
        }
    }
}

impl Carry for Forwarder {
    type To = ShardId;
    const WHAT: &'static str = "news of topics and subscriptions";

    fn shard(&self) -> &ShardHandle {
        &self.shard
    }

    fn owed(&self) -> Vec<ShardId> {
        self.shard.state.read().outbox().waiting()
    }

    async fn send_to(&self, target: &ShardId) -> Result<(), Refusal> {
        let handle = self.targets.get(target).ok_or_else(not_here)?;
        let rows = self.shard.state.read().outbox().rows(*target, ROWS_PER_ENTRY);
        let (rows, waits) = self.may_be_heard(handle, rows);
        let Some(last) = rows.last().map(|row| row.seq) else { return waits };
        let tell = |row: &OutboxRow| row.command(self.shard.shard);
        let unforked = change(handle, rows.iter().map(tell).collect()).await?;
        let unforked = unforked.into_iter().map(|life| life.0).collect();
        let taken = NewsTaken { target: target.0, upto: last + 1, unforked };
        change(&self.shard, vec![Change::Taken(taken)]).await.map(drop)
    }
}

/// Commits changes in a shard, and gives the forks among them that cannot begin there.
async fn change(shard: &ShardHandle, changes: Vec<Change>) -> Result<Vec<Incarnation>, Refusal> {
    let command = |change| Command { change: Some(change) }.encode_to_vec();
    let subs = changes.into_iter().map(|change| SubBatch::command(command(change).into())).collect();
    let mut unforked = Vec::new();
    // A topic that was deleted makes room only where its partitions are.
    for verdict in commit(shard, subs, Class::Relief).await? {
        match verdict {
            Verdict::Refused(refusal) => return Err(refusal),
            Verdict::Unforked(life) => unforked.push(life),
            _ => {}
        }
    }
    Ok(unforked)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use weir_protocol::error::ErrorCode;
    use weir_protocol::ids::PartitionId;
    use weir_protocol::rpc::{
        SubscriptionConfig, SubscriptionName, TopicConfig, TopicDescription, TopicName,
    };

    use super::*;
    use crate::shard::command::{CreateSubscription, TellTopic};

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn who_has_not_heard_of_a_topic_does_not_hear_of_its_subscriptions_yet() {
        let dir = tempfile::tempdir().unwrap();
        let node = crate::node::tests::start(dir.path()).await;
        let (home, target) = (node.shard(ShardId(1)), node.shard(ShardId(2)));
        let topic = Incarnation::compose(ShardId(9), 1);
        let create = CreateSubscription {
            name: SubscriptionName {
                tenant: "default".into(),
                namespace: "default".into(),
                subscription: "s".into(),
            },
            config: SubscriptionConfig { topic: "t".into(), ..SubscriptionConfig::default() },
            topic_incarnation: topic.0,
            shards: vec![2],
            ..CreateSubscription::default()
        };
        change(&home, vec![Change::CreateSubscription(create.clone())]).await.unwrap();
        let subscription = home.state.read().subscriptions().describe(&create.name).unwrap().id;
        let targets = BTreeMap::from([(ShardId(2), target.clone())]);
        let sent = Forwarder::new(home.clone(), Arc::new(targets)).send_to(&ShardId(2)).await;
        assert_eq!(sent.map_err(|refusal| refusal.error_code()), Err(ErrorCode::ConfigBehind));

        let described = TopicDescription {
            name: Some(TopicName {
                tenant: "default".into(),
                namespace: "default".into(),
                topic: "t".into(),
            }),
            incarnation: topic.0,
            version: 1,
            config: Some(TopicConfig { partitions: 1, ..TopicConfig::default() }),
            shards: vec![2],
            ..TopicDescription::default()
        };
        let told = TellTopic { source: 9, seq: 0, topic: described, is_deleted: false };
        change(&target, vec![Change::TellTopic(told)]).await.unwrap();
        home.told_everywhere(Incarnation(subscription), Duration::from_secs(60)).await.unwrap();
        let part = (Incarnation(subscription), (topic, PartitionId(0)));
        assert!(target.state.read().parts().get(&part).is_some(), "it begins with the topic's first message");
        drop((home, target));
        node.shutdown(Duration::from_secs(1)).await;
    }
}
