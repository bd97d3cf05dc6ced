//! Topics whose records go once every subscription has settled them.

use super::apply::ShardState;
use super::dead_letters::EACH_BY_ITSELF;
use super::dedupe::PartitionKey;

impl ShardState {
    /// Removes the oldest batches of a partition that all its subscriptions have settled, if its topic says
    /// so. One that nobody subscribes to keeps its records.
    ///
    /// Done in apply, not proposed by the keeper as other trims are: between a proposal and its entry a seek
    /// may make records unsettled again, and those must not go. Nor may a dead letter that neither arrived
    /// nor is in a pack: what is its partition's a pack can take, and then it need not pin the log for as
    /// long as its topic is missing.
    pub(super) fn trim_settled(&mut self, key: PartitionKey, version: u16, touched: &mut Vec<PartitionKey>) {
        let is_asked = |partition: &super::Partition| partition.config.retention_until_settled;
        let Some(partition) = self.partitions.get(&key).filter(|partition| is_asked(partition)) else {
            return;
        };
        let on_its_way = self.dead_letters.first_unpacked(key, partition.start);
        let on_its_way = on_its_way.filter(|_| version >= EACH_BY_ITSELF);
        let floor =
            self.parts.lowest_floor(key).map(|floor| on_its_way.map_or(floor, |first| floor.min(first)));
        let settled = floor.and_then(|floor| partition.whole_batches_below(floor));
        let Some(upto) = settled else { return };
        self.change(key, |partition| partition.trim(upto));
        self.trim_parts(key);
        touched.push(key);
    }
}
