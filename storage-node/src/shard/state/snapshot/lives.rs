//! New lives for everything that a restored state names: what was handed out under the old ones and is lost
//! must never be taken for something else.

use bytes::Bytes;
use prost::Message as _;
use weir_protocol::ids::ShardId;
use weir_protocol::rpc::{SubscriptionDescription, TopicDescription};

use super::{ShardState, SnapshotError, Stored, StoredPattern};

/// How much the lives of one restore differ from those before it: more than a shard ever gives out between two. A life
/// counts to 2^40 in its shard, so this is enough for 4,096 restores.
pub const LIVES_PER_EPOCH: u64 = 1 << 28;

impl ShardState {
    /// The same state, `epochs` restores later: all topics and subscriptions have other lives. Producers stay who they
    /// are, and packs are read under the lives that they were written in.
    ///
    /// # Errors
    /// [`SnapshotError`] if the state contradicts itself.
    pub fn with_new_lives(&self, shard: ShardId, epochs: u64) -> Result<Self, SnapshotError> {
        let by = epochs * LIVES_PER_EPOCH;
        if by == 0 {
            return Ok(self.clone());
        }
        let mut stored = Stored::decode(self.encode())?;
        stored.move_lives(by);
        Self::decode(shard, &Bytes::from(stored.encode_to_vec()))
    }
}

impl Stored {
    fn move_lives(&mut self, by: u64) {
        self.head.next_counter += by;
        self.topics.iter_mut().chain(&mut self.guests).for_each(|topic| move_topic(topic, by));
        self.partitions.iter_mut().for_each(|stored| stored.key.incarnation += by);
        self.producers.iter_mut().for_each(|stored| stored.at.incarnation += by);
        self.keys.iter_mut().for_each(|stored| stored.at.incarnation += by);
        for row in self.outbox.iter_mut().flat_map(|lane| &mut lane.rows) {
            row.topic.iter_mut().for_each(|topic| move_topic(topic, by));
            row.subscription.iter_mut().for_each(|subscription| move_subscription(subscription, by));
        }
        self.inbox.iter_mut().for_each(|source| source.newest += if source.newest > 0 { by } else { 0 });
        let patterns = self.patterns.iter_mut().map(StoredPattern::subscription);
        self.subscriptions.iter_mut().chain(patterns).for_each(|known| move_subscription(known, by));
        for stored in &mut self.parts {
            stored.part.subscription += by;
            stored.part.incarnation += by;
        }
        for letter in &mut self.dead_letters {
            letter.subscription += by;
            letter.incarnation += by;
        }
        for output in self.outputs.iter_mut().flat_map(|lane| &mut lane.rows) {
            output.incarnation += by;
        }
        self.packs.iter_mut().for_each(|pack| pack.life_shift += by);
    }
}

fn move_topic(topic: &mut TopicDescription, by: u64) {
    if topic.first_incarnation == 0 {
        topic.first_incarnation = topic.incarnation;
    }
    topic.incarnation += by;
}

fn move_subscription(subscription: &mut SubscriptionDescription, by: u64) {
    subscription.id += by;
    // A pattern names no life.
    if subscription.topic_incarnation > 0 {
        subscription.topic_incarnation += by;
    }
    subscription.more.iter_mut().for_each(|topic| topic.incarnation += by);
    subscription.fork.iter_mut().for_each(|fork| fork.id += by);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All numbers of a state with the names of their fields, in order.
    fn numbers(stored: &Stored) -> Vec<(String, u64)> {
        let text = format!("{stored:?}");
        let words =
            text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| !word.is_empty());
        let words: Vec<&str> = words.collect();
        let number = |pair: &[&str]| Some((pair[0].to_owned(), pair[1].parse().ok()?));
        words.windows(2).filter_map(number).collect()
    }

    /// Whether it looks like a life: of one of the first shards, in one of the first epochs there.
    fn is_life(number: u64) -> bool {
        (1..16).contains(&(number >> 40)) && number & ((1 << 40) - 1) < 1 << 30
    }

    #[test]
    fn no_life_of_before_a_restore_is_left_in_a_state_with_all_there_can_be() {
        let bytes = Bytes::from_static(include_bytes!("../golden/v7.checkpoint"));
        let shard = ShardId(5);
        let before = ShardState::decode(shard, &bytes).unwrap();
        let after = before.with_new_lives(shard, 2).unwrap();
        after.check();
        let [old, new] = [&before, &after].map(|state| numbers(&Stored::decode(state.encode()).unwrap()));
        // In no order: rows of another life come in other places.
        let sorted = |numbers: Vec<(String, u64)>| {
            let mut lives: Vec<_> = numbers
                .into_iter()
                .filter(|(field, life)| field != "first_incarnation" && is_life(*life))
                .collect();
            lives.sort();
            lives
        };
        let moved = old.into_iter().map(|(field, number)| match is_life(number) {
            true => (field, number + 2 * LIVES_PER_EPOCH),
            false => (field, number),
        });
        let (moved, new) = (sorted(moved.collect()), sorted(new));
        assert_eq!(moved, new);
        let mut fields: Vec<&str> = new.iter().map(|(field, _)| &**field).collect();
        fields.dedup();
        assert_eq!(fields, ["id", "incarnation", "newest", "subscription", "topic_incarnation"]);
    }
}
