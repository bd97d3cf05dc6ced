//! What topics that nobody uses share, and what is not held for them.

use super::*;

impl Log {
    fn alike(&mut self, topics: [&str; 2]) -> [u64; 2] {
        topics.map(|topic| self.create(topic, config(1)))
    }

    fn config_of(&self, life: u64) -> &Arc<TopicConfig> {
        &self.state.partition((Incarnation(life), PartitionId(0))).unwrap().config
    }
}

#[test]
fn topics_made_alike_share_one_configuration_and_each_with_its_partitions_also_after_a_restart() {
    let mut log = Log::new();
    let [first, second] = log.alike(["first", "second"]);
    let other = log.create("other", TopicConfig { ttl_ms: Some(5), ..config(1) });
    assert!(Arc::ptr_eq(log.config_of(first), log.config_of(second)));
    assert_eq!(log.config_of(other).ttl_ms, Some(5));
    // Which of them are restored one behind the other is not said: a topic and its partitions share always.
    for restarts in 0..2 {
        for life in [first, second, other] {
            let held = log.state.topics.lives.get(&Incarnation(life)).unwrap();
            assert!(Arc::ptr_eq(log.config_of(life), &held.config), "topic {life} after {restarts} restarts");
        }
        log.state = ShardState::decode(ShardId(1), &log.state.encode()).unwrap();
    }
}

#[test]
fn a_description_says_all_that_it_said_before_it_was_held() {
    let mut log = Log::new();
    let life = log.create("orders", TopicConfig { content_type: Some("text/plain".into()), ..config(1) });
    let found = log.state.topics().describe(&name("orders")).unwrap();
    assert_eq!(found.name, Some(name("orders")));
    assert_eq!(found.config.as_ref().unwrap().content_type.as_deref(), Some("text/plain"));
    assert_eq!((found.incarnation, found.version, found.created_ms), (life, 1, 1));
    assert_eq!((found.shards.as_slice(), found.first_incarnation), (&[1][..], 0));
    assert_eq!(log.state.topics().life(Incarnation(life)), Some(found));
    assert_eq!(log.state.name_of(Incarnation(life)).as_deref(), Some("default/orders"));
    assert_eq!(log.state.topic_name(Incarnation(life)), Some("orders"));
}

#[test]
fn only_entries_with_batches_are_for_readers() {
    let mut log = Log::new();
    let life = log.create("orders", config(1));
    let mut has_batches = |sub: SubBatch| {
        let mut entry = EntryBuilder::new(TimestampMs(1), 0);
        entry.push(&sub);
        log.index += 1;
        log.state.apply(LogIndex(log.index), 1, &entry.build()).unwrap().has_batches
    };
    assert!(has_batches(publish(life, 0, batch(0, 0, 0, 1))));
    let delete = DeleteTopic { name: name("orders"), incarnation: None, expected_version: None };
    let delete = Command { change: Some(Change::DeleteTopic(delete)) };
    assert!(!has_batches(SubBatch::command(delete.encode_to_vec().into())));
}
