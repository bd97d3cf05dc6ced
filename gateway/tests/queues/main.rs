//! Subscriptions over HTTP, through a real gateway, against a storage node played over TCP.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod client;
mod node;

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use weir_protocol::error::ErrorCode;
use weir_protocol::rpc::{Method, SettleAction};

use client::{Play, lease, leases_of};

#[tokio::test]
async fn a_subscription_is_created_once_changed_by_its_tag_and_deleted() {
    let play = Play::start(&[1, 1, 1]).await;
    let body = json!({"topics": ["orders"], "dlq": "orders.dlq"});
    let made = play.put("billing", &body).await;
    assert_eq!((made.status, made.header("location")), (201, Some("/v1/subscriptions/billing")), "{made:?}");
    let config = &made.body["config"];
    assert_eq!(config["lease_ms"], 30_000);
    assert_eq!(config["max_attempts"], 16);
    assert_eq!(config["backoff_ms"], json!([1_000, 5_000, 30_000]));
    assert_eq!((&config["mode"], &config["start"]), (&json!("queue"), &json!("earliest")));
    assert_eq!(made.body["parts"].as_array().unwrap().len(), 3);
    let again = play.put("billing", &body).await;
    assert_eq!((again.status, again.header("etag")), (200, made.header("etag")));
    assert_eq!(play.put("billing", config).await.status, 200, "what is shown can be put");
    let other = play.put("billing", &json!({"topics": ["orders"], "lease_ms": 1_000})).await;
    assert_eq!((other.status, other.code()), (409, "config_mismatch"));
    let detail = other.body["detail"].as_str().unwrap_or_default();
    let differences = ["lease_ms is 30000, not 1000", r#"dlq is "orders.dlq", not null"#];
    assert!(differences.iter().all(|part| detail.contains(part)) && !detail.contains("mode"), "{detail}");

    let tag = made.header("etag").unwrap().to_owned();
    let patch = json!({"lease_ms": 5_000}).to_string();
    let changed = play.send("PATCH", "billing", &[("if-match", &tag)], &patch).await;
    assert_eq!((changed.status, &changed.body["version"]), (200, &json!(2)), "{changed:?}");
    assert_eq!(changed.body["config"]["dlq"], "orders.dlq", "what is left out stays");
    let stale = play.send("PATCH", "billing", &[("if-match", &tag)], &patch).await;
    assert_eq!((stale.status, stale.code()), (412, "version_mismatch"));
    assert_eq!(stale.body["current"]["config_version"], 2);
    let stale = play.send("DELETE", "billing", &[("if-match", &tag)], "").await;
    assert_eq!(stale.status, 412);
    let gone = play.send("DELETE", "billing", &[("if-match", "\"1:2\"")], "").await;
    assert_eq!((gone.status, gone.code()), (410, "incarnation_gone"));
    let known = play.send("GET", "billing", &[("if-none-match", changed.header("etag").unwrap())], "").await;
    assert_eq!(known.status, 304);

    for (verb, paused) in [("pause", true), ("resume", false)] {
        let shown = play.send("POST", &format!("billing:{verb}"), &[], "").await;
        assert_eq!((shown.status, &shown.body["config"]["paused"]), (200, &json!(paused)));
    }
    assert_eq!(play.send("DELETE", "billing", &[], "").await.status, 204);
    let missing = play.send("GET", "billing", &[], "").await;
    assert_eq!((missing.status, missing.code()), (404, "subscription_not_found"));
}

#[tokio::test]
async fn what_cannot_be_is_refused_by_the_name_of_its_field() {
    let play = Play::start(&[1]).await;
    for (body, status, code, field) in [
        (json!({"topics": ["orders"], "lease": 1}), 400, "unknown_field", "lease"),
        (json!({"topics": ["orders"], "order": "time"}), 400, "invalid_config", "order"),
        (json!({"topics": []}), 400, "invalid_config", "topics"),
        (json!({"topics": ["orders", "orders"]}), 400, "invalid_config", "topics"),
        (json!({"topics": ["orders", "b*"]}), 400, "invalid_config", "topics"),
        (json!({"topics": ["orders", "b"]}), 404, "topic_not_found", "topics"),
        (json!({"topics": ["nothing"]}), 404, "topic_not_found", "topics"),
        (json!({"topics": ["orders"], "dlq": "nothing"}), 404, "topic_not_found", "dlq"),
        (json!({"topics": ["orders"], "max_unacked": 0}), 400, "invalid_config", "max_unacked"),
    ] {
        let refused = play.put("billing", &body).await;
        assert_eq!((refused.status, refused.code()), (status, code), "{body}");
        assert_eq!(refused.body["field"], field, "{body}");
    }
    play.create("billing").await;
    for (patch, field) in
        [(json!({"topics": ["orders.dlq"]}), "topics"), (json!({"start": "latest"}), "start")]
    {
        let refused = play.send("PATCH", "billing", &[], &patch.to_string()).await;
        assert_eq!((refused.status, refused.code()), (409, "not_supported"), "{patch}");
        assert_eq!(refused.body["field"], field);
    }
    let unknown = play.post("billing:pull", &json!({"maximum": 1})).await;
    assert_eq!((unknown.status, unknown.code()), (400, "unknown_field"));
}

#[tokio::test]
async fn lists_are_paged_by_name() {
    let play = Play::start(&[1]).await;
    for name in ["c", "a", "b", "x"] {
        play.create(name).await;
    }
    let (mut names, mut query) = (Vec::new(), "?limit=2".to_owned());
    loop {
        let page = play.request("GET", &format!("/v1/ns/default/subscriptions{query}"), &[], "").await;
        assert_eq!(page.status, 200, "{page:?}");
        let items = page.body["items"].as_array().unwrap().clone();
        names.extend(items.iter().map(|item| item["name"].as_str().unwrap().to_owned()));
        let Some(next) = page.body["next"].as_str() else { break };
        query = format!("?limit=2&cursor={next}");
    }
    assert_eq!(names, ["a", "b", "c", "x"]);
    let found = play.request("GET", "/v1/subscriptions?q=x", &[], "").await;
    assert_eq!(found.body["items"].as_array().unwrap().len(), 1);
    for (topic, count) in [("orders", 4), ("order", 0)] {
        let found = play.request("GET", &format!("/v1/subscriptions?topic={topic}"), &[], "").await;
        assert_eq!(found.body["items"].as_array().unwrap().len(), count, "{topic}");
    }
    let nowhere = play.request("GET", "/v1/ns/shop/subscriptions", &[], "").await;
    assert_eq!(nowhere.code(), "namespace_not_found");
}

#[tokio::test]
async fn a_pull_takes_from_all_partitions_and_never_more_than_was_asked_for() {
    let play = Play::start(&[1, 2, 2]).await;
    play.create("billing").await;
    for partition in 0..3 {
        play.node.publish(partition, 4);
    }
    let first = play.pull(&json!({"max": 10, "holder": "worker-7"})).await;
    let messages = first.body["messages"].as_array().unwrap().clone();
    assert_eq!(messages.len(), 10, "{first:?}");
    let ids: std::collections::BTreeSet<_> =
        messages.iter().map(|message| message["id"].to_string()).collect();
    assert_eq!(ids.len(), 10);
    for message in &messages {
        let (partition, offset) = (&message["partition"], &message["offset"]);
        assert_eq!(message["id"], format!("{partition}:{offset}"));
        assert_eq!(message["data_base64"], client::base64(&format!("m{partition}-{offset}")));
        assert_eq!((&message["attempt"], &message["key"]), (&json!(1), &json!("k")));
        assert!(message["lease"].as_str().unwrap().starts_with("l_"));
        let left = message["lease_expires_in_ms"].as_u64().unwrap();
        assert!((25_000..=30_000).contains(&left), "{left}");
    }
    assert_eq!(leases_of(&play.pull(&json!({"max": 10})).await).len(), 2, "what is left");
    let none = play.pull(&json!({})).await;
    assert_eq!((none.status, &none.body), (200, &json!({"messages": []})));

    let shown = play.send("GET", "billing", &[], "").await;
    assert_eq!(
        (&shown.body["totals"]["leased"], &shown.body["totals"]["unsettled"]),
        (&json!(12), &json!(12))
    );
    assert_eq!(shown.body["totals"]["oldest_ms"], 998);
}

#[tokio::test]
async fn every_partition_begins_in_its_turn() {
    let play = Play::start(&[1, 1, 1]).await;
    play.create("billing").await;
    for partition in 0..3 {
        play.node.publish(partition, 3);
    }
    let mut first = Vec::new();
    for _ in 0..3 {
        let pulled = play.pull(&json!({"max": 3})).await;
        let messages = pulled.body["messages"].as_array().unwrap().clone();
        assert!(messages.iter().all(|message| message["partition"] == messages[0]["partition"]));
        first.push(messages[0]["partition"].as_u64().unwrap());
    }
    first.sort_unstable();
    assert_eq!(first, [0, 1, 2]);
}

#[tokio::test]
async fn only_what_was_leased_is_shown_of_what_came() {
    let play = Play::start(&[1]).await;
    play.create("billing").await;
    play.node.publish(0, 3);
    let all = play.pull(&json!({})).await;
    let middle = json!({"ack": [leases_of(&all)[1]]});
    assert_eq!(play.settle(&middle).await.status, 200);
    play.node.expire();
    let again = play.pull(&json!({})).await;
    let offsets: Vec<_> =
        again.body["messages"].as_array().unwrap().iter().map(|m| m["offset"].clone()).collect();
    assert_eq!(offsets, [0, 2], "the batch that came holds 1 as well");
    assert_eq!(again.body["messages"][0]["attempt"], 2);
}

#[tokio::test]
async fn a_pull_that_is_repeated_gets_the_same_leases() {
    let play = Play::start(&[1, 1, 1]).await;
    play.create("billing").await;
    for partition in 0..3 {
        play.node.publish(partition, 2);
    }
    let key = [("idempotency-key", "\"p-1\"")];
    let body = json!({"max": 4}).to_string();
    let first = play.send("POST", "billing:pull", &key, &body).await;
    let again = play.send("POST", "billing:pull", &key, &body).await;
    let sorted = |answer: &client::Answer| {
        let mut leases = leases_of(answer);
        leases.sort();
        leases
    };
    assert_eq!(leases_of(&first).len(), 4, "{first:?}");
    assert_eq!(sorted(&first), sorted(&again));
    let other = play.send("POST", "billing:pull", &[("idempotency-key", "\"p-2\"")], &body).await;
    assert_eq!(leases_of(&other).len(), 2, "another key gets what is left");
    let bare = play.send("POST", "billing:pull", &[("idempotency-key", "p-1")], &body).await;
    assert_eq!(bare.code(), "invalid_header");
}

#[tokio::test]
async fn a_wait_ends_with_the_first_message_of_any_partition_or_with_its_time() {
    let play = Play::start(&[1, 2, 1]).await;
    play.create("billing").await;
    let start = Instant::now();
    let none = play.pull(&json!({"wait_ms": 300})).await;
    assert_eq!((none.status, leases_of(&none).len()), (200, 0));
    assert!(start.elapsed() >= Duration::from_millis(300), "{:?}", start.elapsed());
    let node = play.node.clone();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(200)).await;
        node.publish(1, 1);
    });
    let start = Instant::now();
    let one = play.pull(&json!({"wait_ms": 20_000})).await;
    assert_eq!(one.body["messages"][0]["id"], "1:0", "{one:?}");
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
}

#[tokio::test]
async fn whoever_goes_away_while_waiting_leases_nothing() {
    let play = Play::start(&[1, 2]).await;
    play.create("billing").await;
    let body = json!({"wait_ms": 60_000}).to_string();
    let waiting = play.send("POST", "billing:pull", &[], &body);
    assert!(tokio::time::timeout(Duration::from_millis(500), waiting).await.is_err());
    for _ in 0..400 {
        if play.node.state.lock().pulling == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(play.node.state.lock().pulling, 0, "the node is told that nobody waits");
    play.node.publish(0, 1);
    assert_eq!(leases_of(&play.pull(&json!({})).await).len(), 1);
}

#[tokio::test]
async fn a_settle_goes_to_each_partition_and_its_results_keep_their_order() {
    let play = Play::start(&[1, 2, 2]).await;
    play.create("billing").await;
    for partition in 0..3 {
        play.node.publish(partition, 2);
    }
    let pulled = play.pull(&json!({})).await;
    let of = |id: &str| lease(&pulled, id);
    let body = json!({
        "ack": [of("2:0"), of("0:0")],
        "nack": [{"lease": of("1:0"), "delay_ms": 5, "reason": "later"}, {"lease": of("0:1")}],
        "extend": [{"lease": of("2:1"), "ms": 60_000}],
        "dead": [{"lease": of("1:1"), "reason": "never"}],
    });
    let settled = play.settle(&body).await;
    assert_eq!(settled.status, 200, "{settled:?}");
    let results = settled.body["results"].as_array().unwrap();
    let leases: Vec<_> = results.iter().map(|result| result["lease"].as_str().unwrap().to_owned()).collect();
    assert_eq!(leases, ["2:0", "0:0", "1:0", "0:1", "2:1", "1:1"].map(of));
    assert!(results.iter().all(|result| result["result"] == "ok"));
    let mut seen = play.node.state.lock().settles.clone();
    seen.sort_by_key(|(partition, _)| *partition);
    let seen: Vec<(u32, Vec<_>)> = seen
        .iter()
        .map(|(partition, items)| {
            (
                *partition,
                items
                    .iter()
                    .map(|item| (item.offset, item.action(), item.ms, item.reason.as_str()))
                    .collect(),
            )
        })
        .collect();
    use SettleAction::{Ack, Dead, Extend, Nack};
    assert_eq!(seen[0], (0, vec![(0, Ack, None, ""), (1, Nack, None, "")]));
    assert_eq!(seen[1], (1, vec![(0, Nack, Some(5), "later"), (1, Dead, None, "never")]));
    assert_eq!(seen[2], (2, vec![(0, Ack, None, ""), (1, Extend, Some(60_000), "")]));

    let again = play.settle(&json!({"ack": [of("2:0")], "extend": [{"lease": of("2:1")}]})).await;
    assert_eq!(again.status, 207);
    assert_eq!(again.body["results"][0]["result"], "already_settled");
    assert_eq!(again.body["results"][1]["result"], "ok");
    assert_eq!(
        play.node.state.lock().settles.last().unwrap().1[1].ms,
        Some(30_000),
        "as the subscription says"
    );
}

#[tokio::test]
async fn a_lease_that_was_lost_says_to_which_delivery() {
    let play = Play::start(&[1]).await;
    play.create("billing").await;
    play.node.publish(0, 1);
    let first = play.pull(&json!({})).await;
    play.node.expire();
    let second = play.pull(&json!({})).await;
    let lost = play.settle(&json!({"ack": [lease(&first, "0:0")]})).await;
    assert_eq!((lost.status, &lost.body["results"][0]["result"]), (207, &json!("lease_lost")));
    assert_eq!(lost.body["results"][0]["current"], json!({"attempt": 2, "fence": 2}));
    assert_eq!(play.settle(&json!({"ack": [lease(&second, "0:0")]})).await.status, 200);
}

#[tokio::test]
async fn a_lease_of_another_subscription_is_unknown_and_stays_its_owners() {
    let play = Play::start(&[1]).await;
    play.create("billing").await;
    play.create("other").await;
    play.node.publish(0, 1);
    let ours = play.pull(&json!({})).await;
    let theirs = play.post("other:pull", &json!({})).await;
    let body = json!({"ack": [lease(&theirs, "0:0"), lease(&ours, "0:0")]});
    let mixed = play.settle(&body).await;
    assert_eq!(mixed.status, 207, "{mixed:?}");
    assert_eq!(mixed.body["results"][0]["result"], "unknown");
    assert_eq!(mixed.body["results"][1]["result"], "ok");
    let owner = play.post("other:settle", &json!({"ack": [lease(&theirs, "0:0")]})).await;
    assert_eq!(owner.status, 200, "{owner:?}");
    let nonsense = play.settle(&json!({"ack": [lease(&ours, "0:0"), "l_nonsense"]})).await;
    assert_eq!((nonsense.status, nonsense.code()), (400, "invalid_cursor"));
    assert_eq!(nonsense.body["field"], "ack[1]");
}

#[tokio::test]
async fn what_is_remembered_of_a_recreated_subscription_is_forgotten() {
    let play = Play::start(&[1]).await;
    play.create("billing").await;
    assert_eq!(play.pull(&json!({})).await.status, 200);
    let other_gateway = play.beside().await;
    assert_eq!(other_gateway.send("DELETE", "billing", &[], "").await.status, 204);
    other_gateway.create("billing").await;
    play.node.publish(0, 2);
    let pulled = other_gateway.pull(&json!({"max": 1})).await;
    let settled = play.settle(&json!({"ack": leases_of(&pulled)})).await;
    assert_eq!(settled.status, 200, "{settled:?}");
    assert_eq!(other_gateway.send("DELETE", "billing", &[], "").await.status, 204);
    let missing = play.pull(&json!({"wait_ms": 20_000})).await;
    assert_eq!((missing.status, missing.code()), (404, "subscription_not_found"));
}

#[tokio::test]
async fn a_subscription_of_a_deleted_topic_is_gone_but_can_be_seen_and_deleted() {
    let play = Play::start(&[1, 1]).await;
    play.create("billing").await;
    assert_eq!(play.send("GET", "billing", &[], "").await.body["topic_deleted"], false);
    play.node.publish(0, 1);
    let pulled = play.pull(&json!({})).await;
    for topic in [None, Some(71)] {
        play.node.state.lock().topic = topic;
        for (verb, body) in [
            ("pull", json!({"wait_ms": 20_000})),
            ("settle", json!({"ack": leases_of(&pulled)})),
            ("seek", json!({"to": "latest"})),
            ("purge", json!({})),
        ] {
            let gone = play.post(&format!("billing:{verb}"), &body).await;
            assert_eq!((gone.status, gone.code()), (410, "incarnation_gone"), "{verb}");
            assert!(gone.body["detail"].as_str().unwrap().contains("topic orders"), "{gone:?}");
            assert_eq!(gone.body["current"]["incarnation"].as_u64(), topic);
        }
        assert_eq!(play.send("GET", "billing/leases", &[], "").await.status, 410);
        let shown = play.send("GET", "billing", &[], "").await;
        assert_eq!((shown.status, &shown.body["parts"][0]["ready"]), (200, &Value::Null));
        assert_eq!(shown.body["topic_deleted"], true);
    }
    assert_eq!(play.send("DELETE", "billing", &[], "").await.status, 204);
}

#[tokio::test]
async fn a_partition_that_fails_does_not_hold_up_the_others() {
    let play = Play::start(&[1, 2]).await;
    play.create("billing").await;
    play.node.publish(0, 2);
    play.node.publish(1, 2);
    let pulled = play.pull(&json!({})).await;
    assert_eq!(leases_of(&pulled).len(), 4);
    play.node.state.lock().failing.insert(2, ErrorCode::StorageFailed);
    play.node.publish(0, 1);
    for _ in 0..2 {
        play.node.publish(0, 1);
        let some = play.pull(&json!({"max": 1})).await;
        assert_eq!(leases_of(&some).len(), 1, "{some:?}");
    }
    assert_eq!(leases_of(&play.pull(&json!({})).await).len(), 1);
    let none = play.pull(&json!({})).await;
    assert_eq!((none.status, none.code()), (503, "storage_failed"), "nothing, and not all could be asked");

    let body = json!({"ack": [lease(&pulled, "1:0"), lease(&pulled, "0:0"), lease(&pulled, "1:1")]});
    let mixed = play.settle(&body).await;
    assert_eq!(mixed.status, 207, "{mixed:?}");
    let results = &mixed.body["results"];
    assert_eq!((&results[0]["result"], &results[1]["result"]), (&json!("failed"), &json!("ok")));
    assert_eq!(results[2]["problem"]["code"], "storage_failed");
    let failed = play.settle(&json!({"ack": [lease(&pulled, "1:0")]})).await;
    assert_eq!((failed.status, failed.code()), (503, "storage_failed"));
    let shown = play.send("GET", "billing", &[], "").await;
    assert_eq!(shown.body["parts"][1]["leased"], Value::Null);
    let moved = play.post("billing:seek", &json!({"to": "latest"})).await;
    assert_eq!((moved.status, &moved.body["outcome"]), (503, &json!("unknown")), "one part was moved");
    let undo = json!({"to": "undo", "undo": moved.body["undo"]});
    let undone = play.post("billing:seek?dry_run=true", &undo).await;
    assert_eq!((undone.status, undone.code()), (503, "storage_failed"), "it is a name that can be undone");
    let purged = play.post("billing:purge?dry_run=true", &json!({})).await;
    assert_eq!((purged.status, &purged.body["outcome"]), (503, &json!("none")), "it was only asked");
    assert_eq!(purged.body["undo"], Value::Null);
    let purged = play.post("billing:purge", &json!({})).await;
    assert_eq!((purged.status, &purged.body["outcome"]), (503, &json!("unknown")), "one part was purged");
    assert!(purged.body["undo"].as_str().unwrap().starts_with("snap_"), "{purged:?}");
}

/// Messages 0 to `count - 1` of each partition are dead.
async fn all_dead(play: &Play, partitions: u32, count: u64) {
    play.create("billing").await;
    (0..partitions).for_each(|partition| play.node.publish(partition, count));
    let pulled = play.pull(&json!({})).await;
    let dead: Vec<_> = leases_of(&pulled).into_iter().map(|lease| json!({"lease": lease})).collect();
    assert_eq!(dead.len() as u64, u64::from(partitions) * count);
    assert_eq!(play.settle(&json!({"dead": dead})).await.status, 200);
}

#[tokio::test]
async fn a_redrive_of_which_the_answer_is_lost_takes_no_more_than_it_may() {
    let play = Play::start_breakable(&[1]).await;
    all_dead(&play, 1, 5).await;
    for (body, left) in [(json!({"max": 2}), 3), (json!({"ids": ["0:2", "0:3"]}), 1)] {
        play.node.state.lock().loses = Some(Method::Redrive);
        let lost = play.post("billing:redrive", &body).await;
        assert_eq!((lost.status, &lost.body["outcome"]), (504, &json!("unknown")), "{lost:?}");
        play.node.state.lock().loses = Some(Method::Redrive);
        let would = play.post("billing:redrive?dry_run=true", &json!({})).await;
        assert_eq!(
            would.body["redriven"].as_array().unwrap().len(),
            left,
            "a dry run is asked again: {would:?}"
        );
    }
    let rest = play.post("billing:redrive", &json!({"ids": ["0:2", "0:3", "0:4"]})).await;
    assert_eq!((rest.status, &rest.body["redriven"]), (200, &json!(["0:4"])));
}

#[tokio::test]
async fn a_redrive_that_fails_half_way_does_not_say_that_nothing_happened() {
    let play = Play::start(&[1, 2]).await;
    all_dead(&play, 2, 2).await;
    play.node.state.lock().failing.insert(2, ErrorCode::StorageFailed);
    for ids in [json!({"max": 10}), json!({"ids": ["0:0", "0:1", "1:0"]})] {
        let dry = play.post("billing:redrive?dry_run=true", &ids).await;
        assert_eq!((dry.status, &dry.body["outcome"]), (503, &json!("none")), "it was only asked");
    }
    let some = play.post("billing:redrive", &json!({"ids": ["0:1", "1:0"]})).await;
    assert_eq!((some.status, some.code()), (503, "storage_failed"));
    assert_eq!(some.body["outcome"], "unknown", "0:1 was redriven");
    let all = play.post("billing:redrive", &json!({"max": 10})).await;
    assert_eq!((all.status, &all.body["outcome"]), (503, &json!("unknown")), "0:0 was redriven");
    let none = play.post("billing:redrive", &json!({"max": 10})).await;
    assert_eq!((none.status, &none.body["outcome"]), (503, &json!("none")), "nothing was");
    assert_eq!(leases_of(&play.pull(&json!({})).await).len(), 2);
}

#[tokio::test]
async fn a_redrive_that_ends_early_says_where_to_go_on_also_if_it_was_told_which() {
    let play = Play::start(&[1, 2]).await;
    all_dead(&play, 2, 3).await;
    play.node.state.lock().dies_again = true;
    let ids = json!(["0:0", "0:1", "0:2", "1:0", "1:1"]);
    let mut asked = json!({"ids": ids, "rate": 8, "stop_after": 2});
    let some = play.post("billing:redrive", &asked).await;
    assert_eq!((some.status, &some.body["redriven"]), (200, &json!(["0:0", "0:1"])), "{some:?}");
    assert_eq!((&some.body["stopped"], &some.body["dead_again"]), (&json!(true), &json!(2)));
    assert!(some.body["next"].is_string(), "three of them were not looked at: {some:?}");
    asked["cursor"] = some.body["next"].clone();
    asked["stop_after"] = json!(0);
    let rest = play.post("billing:redrive", &asked).await;
    assert_eq!((rest.status, &rest.body["redriven"]), (200, &json!(["0:2", "1:0", "1:1"])), "{rest:?}");
    assert_eq!(rest.body["next"], Value::Null);
    asked["cursor"] = json!("elsewhere");
    let wrong = play.post("billing:redrive", &asked).await;
    assert_eq!((wrong.status, wrong.code()), (400, "invalid_cursor"));
}

#[tokio::test]
async fn what_is_dead_again_is_counted_over_all_partitions() {
    let play = Play::start(&[1, 2]).await;
    all_dead(&play, 2, 3).await;
    play.node.state.lock().dies_again = true;
    let done = play.post("billing:redrive", &json!({"rate": 8, "stop_after": 0})).await;
    assert_eq!(done.body["redriven"].as_array().map(Vec::len), Some(6), "{done:?}");
    assert_eq!(done.body["dead_again"], 4, "of each partition those that were redriven before the last one");
}

#[tokio::test]
async fn a_seek_sums_what_it_would_do_and_does_it_when_told() {
    let play = Play::start(&[1, 1]).await;
    play.create("billing").await;
    play.node.publish(0, 3);
    play.node.publish(1, 1);
    let pulled = play.pull(&json!({})).await;
    assert_eq!(play.settle(&json!({"ack": leases_of(&pulled)})).await.status, 200);
    let dry = play.post("billing:seek?dry_run=true", &json!({"to": "earliest"})).await;
    assert_eq!((&dry.body["redelivered"], &dry.body["skipped"]), (&json!(4), &json!(0)), "{dry:?}");
    assert_eq!(dry.body["dry_run"], true);
    assert_eq!(leases_of(&play.pull(&json!({})).await).len(), 0, "nothing was moved");
    let done = play.post("billing:seek", &json!({"to": "earliest"})).await;
    assert_eq!((&done.body["redelivered"], &done.body["parts"][1]["floor"]), (&json!(4), &json!(0)));
    assert_eq!(leases_of(&play.pull(&json!({})).await).len(), 4);
    let offset = play.post("billing:seek", &json!({"to": 1})).await;
    assert_eq!((offset.status, &offset.body["field"]), (400, &json!("to")), "of two partitions");
}

#[tokio::test]
async fn a_purge_sums_what_it_would_do_and_names_what_it_keeps_when_told() {
    let play = Play::start(&[1, 1]).await;
    play.create("billing").await;
    play.node.publish(0, 3);
    play.node.publish(1, 2);
    let dry = play.post("billing:purge?dry_run=true", &json!({})).await;
    assert_eq!((&dry.body["purged"], &dry.body["dead"]), (&json!(7), &json!(2)), "{dry:?}");
    assert_eq!((&dry.body["dry_run"], &dry.body["undo"]), (&json!(true), &Value::Null));
    let dead = play.post("billing:purge", &json!({"what": "dead"})).await;
    assert_eq!((&dead.body["purged"], &dead.body["dead"]), (&json!(2), &json!(2)));
    assert_eq!(leases_of(&play.pull(&json!({"max": 1})).await).len(), 1, "only dead letters went");
    let done = play.post("billing:purge", &json!({"what": "all"})).await;
    assert_eq!((&done.body["parts"][0]["purged"], &done.body["parts"][1]["floor"]), (&json!(4), &json!(2)));
    assert!(done.body["undo"].as_str().unwrap().starts_with("snap_"));
    assert_ne!(done.body["undo"], dead.body["undo"]);
    assert_eq!(leases_of(&play.pull(&json!({})).await).len(), 0);
}

#[tokio::test]
async fn leases_are_listed_without_being_taken() {
    let play = Play::start(&[1, 1, 1]).await;
    play.create("billing").await;
    for partition in [0, 2] {
        play.node.publish(partition, 3);
    }
    play.pull(&json!({"holder": "worker-7"})).await;
    let (mut ids, mut query) = (Vec::new(), "?limit=2".to_owned());
    loop {
        let page = play.send("GET", &format!("billing/leases{query}"), &[], "").await;
        assert_eq!(page.status, 200, "{page:?}");
        for item in page.body["items"].as_array().unwrap() {
            assert_eq!((&item["holder"], &item["attempts"]), (&json!("worker-7"), &json!(1)));
            ids.push(item["id"].as_str().unwrap().to_owned());
        }
        let Some(next) = page.body["next"].as_str() else { break };
        query = format!("?limit=2&cursor={next}");
    }
    assert_eq!(ids, ["0:0", "0:1", "0:2", "2:0", "2:1", "2:2"]);
    let one = play.send("GET", "billing/leases?partition=2&from=1", &[], "").await;
    assert_eq!(one.body["items"].as_array().unwrap().len(), 2);
    assert_eq!(play.send("GET", "billing/leases?partition=3", &[], "").await.code(), "partition_not_found");
    assert_eq!(play.send("GET", "billing/leases?from=1", &[], "").await.code(), "invalid_parameter");
}

#[tokio::test]
async fn empty_partitions_cost_one_round_trip_however_many_they_are() {
    let play = Play::start(&[1; 100]).await;
    play.create("billing").await;
    play.node.state.lock().calls.clear();
    assert_eq!(leases_of(&play.pull(&json!({})).await).len(), 0);
    let calls = play.node.state.lock().calls.clone();
    assert_eq!(calls.iter().filter(|(method, _)| *method == Method::Pull).count(), 100);
    let metrics = play.request("GET", "/metrics", &[], "").await.text;
    for counted in
        ["weir_gateway_pulls_total 1", "weir_gateway_leased_messages_total 0", "weir_gateway_subscriptions 1"]
    {
        assert!(metrics.contains(counted), "{counted}");
    }
}
