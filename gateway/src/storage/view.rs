//! The cluster as this gateway sees it. Pure.

use std::collections::{BTreeMap, HashMap};

use weir_protocol::ids::{NodeId, ShardId, TopicPath};
use weir_protocol::rpc::{ClusterMap, Level};
use weir_protocol::slots::{SLOTS, slot_of};

/// Why a cluster map is not used. The gateway keeps the one it has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum MapError {
    /// A slot belongs to no shard, or to two.
    #[error("slot {0} is not covered exactly once")]
    Slots(u32),
    /// A run of slots names a shard that the map does not.
    #[error("slots belong to shard {0}, which the map does not name")]
    Shard(u32),
}

/// Nodes, leaders and slots. Replaced whole by a newer map; a leader may be corrected in place.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct View {
    version: u64,
    level_max: Level,
    addresses: HashMap<NodeId, String>,
    leaders: BTreeMap<ShardId, (u64, Option<NodeId>)>,
    /// Ends of runs of slots and the shard of each run, ascending; covers all slots unless nothing is known.
    runs: Vec<(u32, ShardId)>,
    warnings: Vec<String>,
}

impl View {
    /// Reads a map.
    ///
    /// # Errors
    /// [`MapError`] if it does not place every slot.
    pub(super) fn new(map: &ClusterMap) -> Result<Self, MapError> {
        let leaders: BTreeMap<_, _> = map
            .shards
            .iter()
            .map(|shard| {
                let leader = (shard.leader_node != 0).then_some(NodeId(shard.leader_node));
                (ShardId(shard.shard), (shard.term, leader))
            })
            .collect();
        let mut runs = Vec::with_capacity(map.slots.len());
        let mut covered = 0;
        for run in &map.slots {
            if run.start != covered || run.end <= run.start {
                return Err(MapError::Slots(covered));
            }
            if !leaders.contains_key(&ShardId(run.shard)) {
                return Err(MapError::Shard(run.shard));
            }
            covered = run.end;
            runs.push((run.end, ShardId(run.shard)));
        }
        if covered != u32::from(SLOTS) {
            return Err(MapError::Slots(covered));
        }
        let addresses = map.nodes.iter().map(|node| (NodeId(node.node_id), node.address.clone())).collect();
        let level_max = if map.level_max() == Level::Unset { Level::Quorum } else { map.level_max() };
        let warnings = map.warnings.clone();
        Ok(Self { version: map.version, level_max, addresses, leaders, runs, warnings })
    }

    /// True once a map was read.
    pub(super) fn is_known(&self) -> bool {
        !self.runs.is_empty()
    }

    /// Highest level that can be confirmed; unset while nothing is known.
    pub(super) fn level_max(&self) -> Level {
        self.level_max
    }

    /// What operators should know.
    pub(super) fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Version of the map it comes from.
    pub(super) fn version(&self) -> u64 {
        self.version
    }

    /// Home shard of a topic; `None` while nothing is known.
    pub(super) fn home(&self, path: &TopicPath) -> Option<ShardId> {
        let slot = u32::from(slot_of(path).0);
        let run = self.runs.partition_point(|(end, _)| *end <= slot);
        self.runs.get(run).map(|(_, shard)| *shard)
    }

    /// Address of the shard's leader, if there is one and its node is known.
    pub(super) fn leader_address(&self, shard: ShardId) -> Option<&str> {
        let leader = self.leaders.get(&shard)?.1?;
        self.addresses.get(&leader).map(String::as_str)
    }

    /// Takes a node's word for who leads; the next map rules again.
    pub(super) fn set_leader(&mut self, shard: ShardId, node: NodeId) {
        if let Some(leader) = self.leaders.get_mut(&shard) {
            leader.1 = Some(node);
        }
    }

    /// All shards but the meta group, ascending.
    pub(super) fn data_shards(&self) -> impl Iterator<Item = ShardId> + '_ {
        self.leaders.keys().copied().filter(|shard| *shard != ShardId::META)
    }

    /// Addresses of all nodes.
    pub(super) fn addresses(&self) -> impl Iterator<Item = &str> {
        self.addresses.values().map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use weir_protocol::ids::Name;
    use weir_protocol::rpc::{NodeInfo, ShardInfo, SlotRun};

    use super::*;

    fn map(runs: &[(u32, u32, u32)]) -> ClusterMap {
        ClusterMap {
            version: 3,
            nodes: vec![NodeInfo { node_id: 1, address: "a:1".into() }],
            shards: (0..3).map(|shard| ShardInfo { shard, leader_node: 1, term: 1 }).collect(),
            slots: runs.iter().map(|&(start, end, shard)| SlotRun { start, end, shard }).collect(),
            ..ClusterMap::default()
        }
    }

    #[test]
    fn every_slot_has_exactly_one_home_or_the_map_is_refused() {
        assert!(View::new(&map(&[(0, 8_000, 1), (8_000, 16_384, 2)])).is_ok());
        for (runs, error) in [
            (&[(0, 16_383, 1)][..], MapError::Slots(16_383)),
            (&[(1, 16_384, 1)], MapError::Slots(0)),
            (&[(0, 9, 1), (8, 16_384, 2)], MapError::Slots(9)),
            (&[(0, 16_384, 7)], MapError::Shard(7)),
            (&[], MapError::Slots(0)),
        ] {
            assert_eq!(View::new(&map(runs)), Err(error));
        }
    }

    #[test]
    fn a_topic_is_at_home_where_its_slot_is() {
        let path = TopicPath {
            tenant: Name::default_name(),
            namespace: Name::default_name(),
            topic: Name::new("orders").unwrap(),
        };
        // slot 13,572
        for (border, home) in [(13_572, 2), (13_573, 1)] {
            let view = View::new(&map(&[(0, border, 1), (border, 16_384, 2)])).unwrap();
            assert_eq!(view.home(&path), Some(ShardId(home)));
        }
        assert_eq!(View::default().home(&path), None);
    }

    #[test]
    fn a_nodes_word_moves_a_leader_only_to_where_it_can_be_reached() {
        let mut view = View::new(&map(&[(0, 16_384, 1)])).unwrap();
        assert_eq!(view.leader_address(ShardId(1)), Some("a:1"));
        view.set_leader(ShardId(1), NodeId(9));
        assert_eq!(view.leader_address(ShardId(1)), None, "node 9 is in no map yet");
        assert_eq!(view.leader_address(ShardId(8)), None);
        assert_eq!(view.data_shards().collect::<Vec<_>>(), [ShardId(1), ShardId(2)]);
    }
}
