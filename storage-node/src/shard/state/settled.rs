//! Topics whose records go once every subscription has settled them.

use super::apply::ShardState;
use super::dedupe::PartitionKey;

impl ShardState {
    /// Removes the oldest batches of a partition that all its subscriptions have settled, if its topic says so. One that
    /// nobody subscribes to keeps its records.
    ///
    /// Done in apply, not proposed by the keeper as other trims are: between a proposal and its entry a seek may make
    /// records unsettled again, and those must not go.
    pub(super) fn trim_settled(&mut self, key: PartitionKey, touched: &mut Vec<PartitionKey>) {
        let is_asked = |partition: &super::Partition| partition.config.retention_until_settled;
        let Some(partition) = self.partitions.get(&key).filter(|partition| is_asked(partition)) else {
            return;
        };
        let settled = self.parts.lowest_floor(key).and_then(|floor| partition.whole_batches_below(floor));
        let Some(upto) = settled else { return };
        self.change(key, |partition| partition.trim(upto));
        self.trim_parts(key);
        touched.push(key);
    }
}
