//! Subscriptions to several topics, as a gateway uses them.

use std::time::Duration;

use weir_protocol::error::ErrorCode;
use weir_protocol::ids::{Incarnation, ShardId};
use weir_protocol::rpc::{
    At, ConsumedTopic, CreateSubscriptionRequest, DeleteTopicRequest, FoundParts, ListPartsRequest, Method,
    PartRef, SettleAction, SubscriptionConfig, SubscriptionCreated, SubscriptionDescription,
};
use weir_transport::{CallError, Link};

use crate::client::{batch, call, config, create, name, publish, start};
use crate::queue::{ack, ask, item, pull, queue_config, settle, stats, subscribe, subscription_name};

async fn parts(link: &Link, of: &SubscriptionDescription) -> Vec<(String, PartRef)> {
    let request = ListPartsRequest {
        subscription: of.id,
        incarnations: of.consumed().map(|(life, _)| life).collect(),
        is_pattern: of.config.prefix().is_some(),
    };
    let found: FoundParts = call(link, Method::ListParts, &request).await.unwrap();
    assert_eq!(found.left_out, 0);
    let part = |incarnation, partition| PartRef { subscription: of.id, incarnation, partition };
    found.parts.into_iter().map(|found| (found.topic, part(found.incarnation, found.partition))).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pattern_has_a_part_of_what_comes_later_before_its_first_record() {
    let dir = tempfile::tempdir().unwrap();
    let (node, link) = start(dir.path()).await;
    let old = create(&link, "orders.eu", config()).await;
    create(&link, "invoices", config()).await;
    let dead = create(&link, "dead", config()).await;
    publish(&link, old, &batch(0, 0, &["before"])).await.unwrap();
    let pattern = SubscriptionConfig {
        start: At::Latest(true).into(),
        dead_letter_topic: Some("dead".into()),
        ..queue_config("orders.*")
    };
    let all = subscribe(&link, 0, pattern, &[]).await;
    let new = create(&link, "orders.us", config()).await;
    publish(&link, new, &batch(0, 0, &["a", "b"])).await.unwrap();
    publish(&link, old, &batch(0, 0, &["c"])).await.unwrap();
    let found = parts(&link, &all).await;
    let names: Vec<_> = found.iter().map(|(topic, _)| topic.as_str()).collect();
    assert_eq!(names, ["orders.eu", "orders.us"]);
    let (eu, us) = (found[0].1, found[1].1);
    let (grants, values) = pull(&link, &ask(eu, 9)).await;
    assert_eq!(values, ["c"], "it follows where it was said to begin");
    ack(&link, eu, &grants).await;
    let (grants, values) = pull(&link, &ask(us, 9)).await;
    assert_eq!(values, ["a", "b"], "of a later one nothing is missed");
    ack(&link, us, &grants[..1]).await;
    settle(&link, us, vec![item(&grants[1], SettleAction::Dead)]).await;
    drop(link);
    node.shutdown(Duration::from_secs(5)).await;

    let (node, link) = start(dir.path()).await;
    assert_eq!(parts(&link, &all).await, found);
    let now = stats(&link, us).await;
    assert_eq!((now.floor, now.dead), (2, 1));
    let letters = subscribe_to_letters(&link, dead).await;
    let request = weir_protocol::rpc::PullRequest { wait_ms: 10_000, ..ask(letters, 1) };
    assert_eq!(pull(&link, &request).await.1, ["b"]);
    let third = create(&link, "orders.fr", config()).await;
    assert_eq!(parts(&link, &all).await.last().map(|(_, part)| part.incarnation), Some(third));
    let delete = DeleteTopicRequest { name: Some(name("orders.us")), ..DeleteTopicRequest::default() };
    let _: () = call(&link, Method::DeleteTopic, &delete).await.unwrap();
    assert_eq!(parts(&link, &all).await.len(), 2);
    node.shutdown(Duration::from_secs(5)).await;
}

async fn subscribe_to_letters(link: &Link, dead: u64) -> PartRef {
    let name = weir_protocol::rpc::SubscriptionName { subscription: "letters".into(), ..subscription_name() };
    let request = CreateSubscriptionRequest {
        name,
        config: queue_config("dead"),
        topic_incarnation: dead,
        shards: vec![1],
        more: Vec::new(),
        fork: None,
    };
    let made: SubscriptionCreated = call(link, Method::CreateSubscription, &request).await.unwrap();
    PartRef { subscription: made.subscription.id, incarnation: dead, partition: 0 }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_contradicts_itself_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (node, link) = start(dir.path()).await;
    let life = create(&link, "orders", config()).await;
    let with = |more_topics: Vec<String>, more: Vec<ConsumedTopic>, shards: Vec<u32>, topic: &str| {
        let config = SubscriptionConfig { more_topics, ..queue_config(topic) };
        CreateSubscriptionRequest {
            name: subscription_name(),
            config,
            topic_incarnation: life,
            shards,
            more,
            fork: None,
        }
    };
    let other = || ConsumedTopic { incarnation: life, shards: vec![1] };
    for request in [
        with(vec!["b".into()], vec![], vec![1], "orders"),
        with(vec![], vec![other()], vec![1], "orders"),
        with(vec!["b".into()], vec![other()], vec![], "o*"),
        with(vec!["b".into(); 100], vec![other(); 100], vec![1], "orders"),
        with(vec!["b".into()], vec![ConsumedTopic { shards: vec![1; 1_024], ..other() }], vec![1], "orders"),
        with(vec![], vec![], vec![], "orders"),
    ] {
        let answer = call::<SubscriptionCreated>(&link, Method::CreateSubscription, &request).await;
        let Err(CallError::Refused(refusal)) = answer else { panic!("{answer:?}") };
        assert_eq!(refusal.error_code(), ErrorCode::InvalidConfig);
    }
    // A topic of another shard, of which this one may still hear.
    let elsewhere = CreateSubscriptionRequest {
        topic_incarnation: Incarnation::compose(ShardId(9), 1).0,
        ..with(vec![], vec![], vec![1], "orders")
    };
    let answer = call::<SubscriptionCreated>(&link, Method::CreateSubscription, &elsewhere).await;
    let Err(CallError::Refused(refusal)) = answer else { panic!("{answer:?}") };
    assert_eq!(refusal.error_code(), ErrorCode::ConfigBehind);
    let unknown = ListPartsRequest { subscription: 77, incarnations: vec![], is_pattern: true };
    let answer = call::<FoundParts>(&link, Method::ListParts, &unknown).await;
    assert!(
        matches!(answer, Err(CallError::Refused(refusal)) if refusal.error_code() == ErrorCode::SubscriptionNotFound)
    );
    node.shutdown(Duration::from_secs(5)).await;
}
