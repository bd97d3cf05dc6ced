//! What may be set of a subscription, and what is refused by name.

use super::*;

fn put(text: &str) -> Result<rpc::SubscriptionConfig, (String, Option<String>)> {
    let patch: SubscriptionPatch = serde_json::from_str(text).unwrap();
    patch.apply(default_subscription_config()).map_err(|problem| (problem.code.into_owned(), problem.field))
}

#[test]
fn what_is_left_out_takes_its_default_and_what_is_shown_can_be_put_again() {
    let config = put(r#"{"topics":["orders"]}"#).unwrap();
    assert_eq!(config, rpc::SubscriptionConfig { topic: "orders".into(), ..default_subscription_config() });
    let config =
        put(r#"{"mode":"queue","topics":["orders"],"lease_ms":1000,"max_attempts":0,"backoff_ms":[],
            "dlq":"orders.dlq","order":"key","start":"ts:1970-01-01T00:00:01Z","max_unacked":1,"paused":true,
            "filter":"header.a == 'b*'","fair_by":"header.tenant"}"#)
        .unwrap();
    for (topics, first, more) in [
        (r#"["b","a"]"#, "b", vec!["a".to_owned()]),
        (r#"["orders.*"]"#, "orders.*", vec![]),
        (r#"["*"]"#, "*", vec![]),
    ] {
        for start in ["5", "tail:7", "earliest"] {
            let stream = put(&format!(r#"{{"topics":{topics},"mode":"stream","start":"{start}"}}"#)).unwrap();
            assert!(stream.is_stream && stream.max_attempts == 0);
            let shown = serde_json::to_string(&SubscriptionConfig::from(&stream)).unwrap();
            assert_eq!(put(&shown).unwrap(), stream, "{shown}");
        }
        let several = put(&format!(r#"{{"topics":{topics}}}"#)).unwrap();
        assert_eq!((several.topic.as_str(), &several.more_topics), (first, &more));
        let shown = serde_json::to_string(&SubscriptionConfig::from(&several)).unwrap();
        assert_eq!(put(&shown).unwrap(), several);
    }
    let shown = serde_json::to_string(&SubscriptionConfig::from(&config)).unwrap();
    assert!(shown.contains(r#""start":"ts:1000""#), "{shown}");
    assert_eq!(put(&shown).unwrap(), config);
}

#[test]
fn what_this_build_cannot_do_and_what_nobody_can_is_refused_by_name() {
    for (fields, code, field) in [
        (r#""topics":["a"],"mode":"push""#, "not_supported", "mode"),
        (r#""topics":["a"],"mode":"pull""#, "invalid_config", "mode"),
        (r#""topics":["a"],"mode":"stream","dlq":"b""#, "not_supported", "dlq"),
        (r#""topics":["a"],"mode":"stream","max_attempts":3"#, "not_supported", "max_attempts"),
        (r#""topics":["a"],"mode":"stream","backoff_ms":[1]"#, "not_supported", "backoff_ms"),
        (r#""topics":["a"],"mode":"stream","order":"key""#, "not_supported", "order"),
        (r#""topics":["a"],"mode":"stream","max_unacked":5"#, "not_supported", "max_unacked"),
        (r#""topics":["a"],"mode":"stream","filter":"key == 'a'""#, "not_supported", "filter"),
        (r#""topics":["a"],"mode":"stream","fair_by":"key""#, "not_supported", "fair_by"),
        (r#""topics":["a","b","a"]"#, "invalid_config", "topics"),
        (r#""topics":["orders.*","a"]"#, "invalid_config", "topics"),
        (r#""topics":["or*ers"]"#, "invalid_name", "topics"),
        (r#""topics":["o/*"]"#, "invalid_name", "topics"),
        (r#""topics":["**"]"#, "invalid_name", "topics"),
        (r#""topics":["a","b"],"dlq":"b""#, "invalid_config", "dlq"),
        (r#""topics":["orders.*"],"dlq":"orders.dlq""#, "invalid_config", "dlq"),
        (r#""topics":["a"],"order":"time""#, "invalid_config", "order"),
        (r#""topics":["a"],"filter":"key = 'x'""#, "invalid_config", "filter"),
        (r#""topics":["a"],"fair_by":"tenant""#, "invalid_config", "fair_by"),
        (r#""mode":"queue""#, "invalid_config", "topics"),
        (r#""topics":[]"#, "invalid_config", "topics"),
        (r#""topics":["a/b"]"#, "invalid_name", "topics"),
        (r#""topics":["a"],"dlq":"..""#, "invalid_name", "dlq"),
        (r#""topics":["a"],"dlq":"a""#, "invalid_config", "dlq"),
        (r#""topics":["a"],"lease_ms":999"#, "invalid_config", "lease_ms"),
        (r#""topics":["a"],"lease_ms":43200001"#, "invalid_config", "lease_ms"),
        (r#""topics":["a"],"max_attempts":4294967296"#, "invalid_config", "max_attempts"),
        (r#""topics":["a"],"backoff_ms":[31622400001]"#, "invalid_config", "backoff_ms"),
        (r#""topics":["a"],"start":"5""#, "invalid_config", "start"),
        (r#""topics":["a"],"start":"tail:5""#, "invalid_config", "start"),
        (r#""topics":["a"],"max_unacked":0"#, "invalid_config", "max_unacked"),
    ] {
        let refused = put(&format!("{{{fields}}}")).unwrap_err();
        assert_eq!(refused, (code.to_owned(), Some(field.to_owned())), "{fields}");
    }
    let many: Vec<String> = (0..=SUBSCRIPTION_TOPICS_MAX).map(|n| format!("t{n}")).collect();
    assert_eq!(put(&format!(r#"{{"topics":{many:?}}}"#)).unwrap_err().0, "invalid_config");
    let many = vec![1u64; BACKOFF_STEPS_MAX + 1];
    assert!(put(&format!(r#"{{"topics":["a"],"backoff_ms":{many:?}}}"#)).is_err());
    assert!(serde_json::from_str::<SubscriptionPatch>(r#"{"lease":1}"#).is_err());
}

#[test]
fn a_patch_tells_null_from_absent() {
    let before = rpc::SubscriptionConfig {
        topic: "a".into(),
        dead_letter_topic: Some("b".into()),
        ..default_subscription_config()
    };
    let patch = |text| serde_json::from_str::<SubscriptionPatch>(text).unwrap().apply(before.clone());
    assert_eq!(patch(r#"{"lease_ms":5000}"#).unwrap().dead_letter_topic.as_deref(), Some("b"));
    assert_eq!(patch(r#"{"dlq":null}"#).unwrap().dead_letter_topic, None);
    assert_eq!(patch(r#"{"filter":"key == 'a'"}"#).unwrap().filter.as_deref(), Some("key == 'a'"));
    let refused = patch(r#"{"filter":"key == 'a' or"}"#).unwrap_err();
    assert_eq!(
        refused.detail.as_str(),
        "filter: expected header.<name>, key, content_type, not or (, at byte 13"
    );
}
