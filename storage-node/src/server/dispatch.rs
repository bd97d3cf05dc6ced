//! Which call goes where.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use prost::Message;
use weir_journal::Journal;
use weir_protocol::error::ErrorCode;
use weir_protocol::ids::{ClusterId, ShardId};
use weir_protocol::rpc::{ClusterMap, Level, Method, NodeInfo, Refusal, ShardInfo};
use weir_transport::{Peer, Reply, Request, Service};

use super::room::Room;
use super::{cursor, publish, queue, receipt, topics, trim};
use crate::clock;
use crate::metrics::NodeMetrics;
use crate::replica::{Sender, ShardHandle};

/// What answers a node's gateways.
pub struct NodeService {
    /// Shards by number; 0 is the meta group.
    pub shards: Arc<BTreeMap<ShardId, ShardHandle>>,
    /// The journal that all of them share.
    pub journal: Journal,
    /// Who keeps what in it.
    pub room: Room,
    /// The cluster.
    pub cluster_id: ClusterId,
    /// This node.
    pub node_id: u64,
    /// Where gateways reach it.
    pub address: String,
    /// Publishes wait for a sync; without it, levels above memory are refused.
    pub is_synced: bool,
    /// No new work is taken.
    pub is_draining: AtomicBool,
    /// What is counted.
    pub metrics: NodeMetrics,
}

impl Service for NodeService {
    fn call(&self, peer: &Peer, request: Request) {
        if self.is_draining.load(Ordering::Acquire) && request.method != Method::ClusterMap {
            return request.reply.refuse(Refusal::new(ErrorCode::Draining, "the node is shutting down"));
        }
        if request.method == Method::ClusterMap {
            return request.reply.finish(vec![self.map().encode_to_vec().into()]);
        }
        let Some(shard) = self.shards.get(&request.shard).cloned() else {
            let detail = format!("shard {} is not on this node", request.shard);
            return request.reply.refuse(Refusal::new(ErrorCode::NotLeader, detail));
        };
        let Request { method, body, reply, received, .. } = request;
        if method == Method::Publish {
            let sender = Sender(peer.connection);
            return publish::publish(&shard, &self.room, sender, self.is_synced, (body, received), reply);
        }
        let body = body.into_bytes();
        match method {
            Method::ClusterMap | Method::Publish => unreachable!("answered above"),
            Method::Read => spawn(cursor::read(shard, body, reply)),
            Method::Subscribe => {
                if let Some(subscribing) = cursor::subscribe(shard, body, reply) {
                    spawn(subscribing);
                }
            }
            Method::PartitionStats => answer(reply, topics::partition_stats(&shard, body)),
            Method::ProducerState => answer(reply, topics::producer_state(&shard, body)),
            Method::ConfirmState => {
                let call = reply.credit();
                spawn(async move { answer(reply, receipt::confirm_state(shard, body, call).await) });
            }
            Method::DescribeTopic => answer(reply, topics::describe(&shard, body)),
            Method::ListTopics => answer(reply, topics::list(&shard, body)),
            Method::ListNamespaces => answer(reply, topics::list_namespaces(&shard, body)),
            Method::CreateTopic
            | Method::UpdateTopic
            | Method::DeleteTopic
            | Method::PutNamespace
            | Method::DeleteNamespace
            | Method::CreateSubscription
            | Method::UpdateSubscription
            | Method::DeleteSubscription => {
                let command = topics::command(method, body, || self.data_shards());
                let room = self.room.clone();
                spawn(async move {
                    answer_bytes(reply, async { topics::change(shard, room, command?).await }.await);
                });
            }
            Method::Trim => {
                let room = self.room.clone();
                spawn(async move { answer(reply, trim::trim(shard, room, body).await) });
            }
            of_a_queue => self.queue_call(of_a_queue, shard, body, reply),
        }
    }
}

impl NodeService {
    fn queue_call(&self, method: Method, shard: ShardHandle, body: Bytes, reply: Reply) {
        let room = self.room.clone();
        match method {
            Method::DescribeSubscription => answer(reply, queue::describe(&shard, body)),
            Method::ListSubscriptions => answer(reply, queue::list(&shard, body)),
            Method::Pull => spawn(queue::pull(shard, room, body, reply)),
            Method::Settle => {
                spawn(async move { answer(reply, queue::settle(shard, room, body).await) });
            }
            Method::SettleAndPublish => {
                let shards = Arc::clone(&self.shards);
                spawn(async move {
                    answer(reply, queue::settle_and_publish(shard, room, &shards, body).await);
                });
            }
            Method::Consume => spawn(queue::consume(shard, room, body, reply)),
            Method::SettleRuns => {
                spawn(async move { answer(reply, queue::settle_runs(shard, room, body).await) });
            }
            Method::Share => spawn(queue::share(shard, body, reply)),
            Method::Leave => answer(reply, queue::leave(&shard, body)),
            Method::ListParts => answer(reply, queue::parts(&shard, body)),
            Method::PartStats => answer(reply, queue::part_stats(&shard, body)),
            Method::ListLeases => answer(reply, queue::leases(&shard, body)),
            Method::Explain => spawn(async move { answer(reply, queue::explain(shard, body).await) }),
            Method::Redrive => {
                spawn(async move { answer(reply, queue::redrive(shard, room, body).await) });
            }
            Method::Seek => {
                spawn(async move { answer(reply, queue::seek(shard, room, body).await) });
            }
            Method::Purge => {
                spawn(async move { answer(reply, queue::purge(shard, room, body).await) });
            }
            other => unreachable!("{other:?} is no method of queues: the caller has all others"),
        }
    }

    /// The highest level that publishes can ask for.
    fn level_max(&self) -> Level {
        let archives = || self.shards.values().all(|shard| shard.tier.is_some());
        match self.is_synced {
            false => Level::Memory,
            true if archives() => Level::Archived,
            true => Level::Quorum,
        }
    }

    /// The shards that topics are placed over, as the meta group has them.
    fn data_shards(&self) -> Vec<u32> {
        self.shards.get(&ShardId::META).map(|meta| meta.state.read().slots().shards()).unwrap_or_default()
    }

    fn warnings(&self) -> Vec<String> {
        let step = clock::step_ms() / 1_000;
        let stepped = (step != 0).then(|| {
            format!("the machine's clock has jumped by {step} s and is not followed: put it right, or start the node anew")
        });
        self.room.holders().warning().into_iter().chain(stepped).collect()
    }

    fn map(&self) -> ClusterMap {
        let leader = |shard: &ShardHandle| ShardInfo {
            shard: shard.shard.0,
            leader_node: self.node_id,
            term: shard.shared.term(),
        };
        let slots = self.shards.get(&ShardId::META).map(|meta| meta.state.read().slots().clone());
        let slots = slots.unwrap_or_default();
        ClusterMap {
            version: u64::from(slots.version),
            cluster_id: Some(self.cluster_id.0.into()),
            nodes: vec![NodeInfo { node_id: self.node_id, address: self.address.clone() }],
            shards: self.shards.values().map(leader).collect(),
            slots: slots.runs,
            level_max: self.level_max() as i32,
            warnings: self.warnings(),
        }
    }
}

/// Runs a call that waits. It ends with its reply: by an answer, or when the caller is gone.
fn spawn(call: impl Future<Output = ()> + Send + 'static) {
    tokio::spawn(call);
}

fn answer<M: Message>(reply: Reply, result: Result<M, Refusal>) {
    answer_bytes(reply, result.map(|message| message.encode_to_vec().into()));
}

fn answer_bytes(reply: Reply, result: Result<Bytes, Refusal>) {
    match result {
        Ok(message) => reply.finish(vec![message]),
        Err(refusal) => reply.refuse(refusal),
    }
}
