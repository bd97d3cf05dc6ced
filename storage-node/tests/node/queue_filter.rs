//! A queue of some of a topic's records, and one whose tenants take turns.

use std::time::Duration;

use weir_protocol::batch::{Batch, BatchBuilder, Compression, HeadersBuilder, RecordParts};
use weir_protocol::rpc::{
    DescribeSubscriptionRequest, Method, PullRequest, SubscriptionConfig, SubscriptionDescription,
    UpdateSubscriptionRequest,
};
use weir_transport::Link;

use crate::client::{call, config, create, publish, start};
use crate::queue::{ack, ask, part, pull, queue_config, stats, subscribe, subscription_name};

/// Records with a header `h` of the value before the colon.
fn headed(values: &[String]) -> Batch {
    let mut builder = BatchBuilder::anonymous();
    for value in values {
        let mut headers = HeadersBuilder::default();
        let (header, _) = value.split_once(':').unwrap();
        headers.user("h", header.as_bytes()).unwrap();
        let parts = RecordParts { key: None, headers: &headers.finish(), value: value.as_bytes() };
        builder.push(parts).unwrap();
    }
    builder.build(Compression::None).unwrap()
}

async fn publish_all(link: &Link, life: u64, values: impl Iterator<Item = String>) {
    let values: Vec<String> = values.collect();
    for some in values.chunks(1_000) {
        publish(link, life, &headed(some)).await.unwrap();
    }
}

fn filtered(filter: &str) -> SubscriptionConfig {
    SubscriptionConfig { filter: Some(filter.to_owned()), ..queue_config("orders") }
}

async fn change(link: &Link, config: SubscriptionConfig) {
    let name = subscription_name();
    let now: SubscriptionDescription =
        call(link, Method::DescribeSubscription, &DescribeSubscriptionRequest { name: name.clone() })
            .await
            .unwrap();
    let request = UpdateSubscriptionRequest { name, config, id: now.id, expected_version: now.version };
    let _: SubscriptionDescription = call(link, Method::UpdateSubscription, &request).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_what_matches_is_delivered_and_the_rest_is_settled_for_good() {
    let dir = tempfile::tempdir().unwrap();
    let (node, link) = start(dir.path()).await;
    let life = create(&link, "orders", config()).await;
    // One in 2,000 matches: they are far apart, and the last is not the end.
    let value = |n: u32| if n % 2_000 == 1_999 { format!("eu:{n}") } else { format!("us:{n}") };
    publish_all(&link, life, (0..5_000).map(value)).await;
    let work = part(&subscribe(&link, life, filtered("header.H == 'eu*'"), &[1]).await, 0);
    let (grants, found) = pull(&link, &ask(work, 100)).await;
    assert_eq!(found, ["eu:1999", "eu:3999"]);
    ack(&link, work, &grants).await;
    assert_eq!(pull(&link, &ask(work, 100)).await.0, []);
    let standing = stats(&link, work).await;
    assert_eq!((standing.floor, standing.end, standing.in_memory), (5_000, 5_000, 0), "all is settled");
    // Whoever waits is not woken by what does not match.
    let waiting = PullRequest { wait_ms: 20_000, ..ask(work, 9) };
    let (next, ()) = tokio::join!(pull(&link, &waiting), async {
        publish_all(&link, life, ["us:a".to_owned()].into_iter()).await;
        publish_all(&link, life, ["eu:b".to_owned()].into_iter()).await;
    });
    assert_eq!(next.1, ["eu:b"]);
    drop(link);
    node.shutdown(Duration::from_secs(5)).await;
    let (node, link) = start(dir.path()).await;
    assert_eq!(pull(&link, &ask(work, 9)).await.1, ["eu:b"], "what was settled stays settled");
    node.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_filter_holds_for_whatever_was_not_delivered_before() {
    let dir = tempfile::tempdir().unwrap();
    let (node, link) = start(dir.path()).await;
    let life = create(&link, "orders", config()).await;
    publish_all(&link, life, (0..60).map(|n| format!("{}:{n}", ["a", "b", "c"][n % 3]))).await;
    let work = part(&subscribe(&link, life, filtered("not header.h == 'c'"), &[1]).await, 0);
    let (grants, found) = pull(&link, &ask(work, 2)).await;
    assert_eq!(found, ["a:0", "b:1"]);
    change(&link, filtered("header.h == 'b'")).await;
    let (rest, found) = pull(&link, &ask(work, 100)).await;
    assert!(rest.len() == 19 && found.iter().all(|value| value.starts_with("b:")), "{found:?}");
    change(&link, SubscriptionConfig { filter: None, ..filtered("") }).await;
    ack(&link, work, &grants).await;
    ack(&link, work, &rest).await;
    publish_all(&link, life, ["c:60".to_owned()].into_iter()).await;
    let last = pull(&link, &ask(work, 100)).await.1;
    assert_eq!(last.last().map(String::as_str), Some("c:60"), "without a filter all are delivered");
    node.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenant_with_much_to_do_does_not_hold_up_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let (node, link) = start(dir.path()).await;
    let life = create(&link, "orders", config()).await;
    publish_all(&link, life, (0..20_000).map(|n| format!("big:{n}"))).await;
    publish_all(&link, life, (0..4).map(|n| format!("small:{n}"))).await;
    publish_all(&link, life, (0..2).map(|n| format!("tiny:{n}"))).await;
    let config = SubscriptionConfig { fair_by: Some("header.h".to_owned()), ..queue_config("orders") };
    let work = part(&subscribe(&link, life, config, &[1]).await, 0);
    // Each pull looks thousands further, whatever of one tenant is there: the others come into view, however few are taken.
    let mut found = Vec::new();
    for _ in 0..20 {
        let (grants, some) = pull(&link, &ask(work, 1)).await;
        ack(&link, work, &grants).await;
        found.extend(some);
    }
    found.extend(pull(&link, &ask(work, 20)).await.1);
    let of = |tenant: &str| found.iter().filter(|value| value.starts_with(tenant)).count();
    assert_eq!((of("small:"), of("tiny:"), of("big:")), (4, 2, 34), "{found:?}");
    node.shutdown(Duration::from_secs(5)).await;
}
