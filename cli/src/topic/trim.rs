//! `weir topic trim`: the oldest messages, for good.

use anyhow::{Context as _, bail};
use http::{HeaderMap, HeaderValue, Method};
use serde_json::{Value, json};

use super::topic_path;
use crate::client::Api;
use crate::output;

/// What is trimmed, and whether it is asked for.
pub(super) struct Trim {
    pub(super) before: String,
    pub(super) partition: Option<u32>,
    pub(super) is_dry_run: bool,
    pub(super) yes: bool,
}

/// Asks first what it would do, and then whether it shall. What is confirmed is what goes: not what was
/// published since, and nothing of a topic that was recreated.
pub(super) async fn run(api: &Api, as_json: bool, name: &str, trim: &Trim) -> anyhow::Result<()> {
    let asked = json!({"before": trim.before, "partition": trim.partition});
    let tag = api.get(&topic_path(api, name)).await?.headers.get(http::header::ETAG).cloned();
    if trim.is_dry_run {
        return said(
            as_json,
            name,
            &send(api, name, "?dry_run=true", tag.as_ref(), &asked).await?,
            "would go",
        );
    }
    if trim.yes {
        return said(as_json, name, &send(api, name, "", tag.as_ref(), &asked).await?, "are gone");
    }
    let would = send(api, name, "?dry_run=true", tag.as_ref(), &asked).await?;
    let what = summary(name, &would);
    if !output::confirmed(&format!("Remove {what}? This cannot be undone.")) {
        bail!("not trimmed: confirm it, or pass --yes");
    }
    let partitions = would["partitions"].as_array().context("the gateway's answer has no partitions")?;
    let send = async |exactly: Value| send(api, name, "", tag.as_ref(), &exactly).await;
    let (done, failed) = one_by_one(partitions, send).await;
    // Also of one that was stopped: what is gone is gone.
    said(as_json, name, &done, "are gone")?;
    failed.context("not all of it was trimmed")
}

/// Trims partition by partition what was shown, up to the first that fails. Says of those before it what they answered.
async fn one_by_one(
    shown: &[Value],
    send: impl AsyncFn(Value) -> anyhow::Result<Value>,
) -> (Value, anyhow::Result<()>) {
    let (mut partitions, mut failed) = (Vec::new(), Ok(()));
    for found in shown {
        if found["messages"] == json!(0) {
            partitions.push(found.clone());
            continue;
        }
        match send(json!({"before": found["start"], "partition": found["partition"]})).await {
            Ok(done) => partitions.push(done["partitions"][0].clone()),
            Err(error) => {
                failed = Err(error.context(format!("partition {}", found["partition"])));
                break;
            }
        }
    }
    let sum = |field: &str| partitions.iter().filter_map(|found| found[field].as_u64()).sum::<u64>();
    let (messages, bytes) = (sum("messages"), sum("bytes"));
    (json!({"dry_run": false, "messages": messages, "bytes": bytes, "partitions": partitions}), failed)
}

async fn send(
    api: &Api,
    name: &str,
    query: &str,
    tag: Option<&HeaderValue>,
    body: &Value,
) -> anyhow::Result<Value> {
    let mut headers = HeaderMap::new();
    if let Some(tag) = tag {
        headers.insert(http::header::IF_MATCH, tag.clone());
    }
    let path = format!("{}:trim{query}", topic_path(api, name));
    api.send(Method::POST, &path, headers, body.to_string()).await?.json()
}

fn summary(name: &str, answer: &Value) -> String {
    let bytes = output::bytes(answer["bytes"].as_u64().unwrap_or(0));
    format!("{} message(s), {bytes} of {name}", answer["messages"])
}

fn said(as_json: bool, name: &str, answer: &Value, tense: &str) -> anyhow::Result<()> {
    if as_json {
        output::line(answer);
        return Ok(());
    }
    output::line(format_args!("{} {tense}", summary(name, answer)));
    let partitions = answer["partitions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let row = |found: &Value| {
        let bytes = output::bytes(found["bytes"].as_u64().unwrap_or(0));
        vec![found["partition"].to_string(), found["start"].to_string(), found["messages"].to_string(), bytes]
    };
    let rows: Vec<_> = partitions.iter().map(row).collect();
    output::table(&["PARTITION", "START", "MESSAGES", "BYTES"], &rows);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_trim_that_is_stopped_says_what_is_gone() {
        let shown: Vec<_> = [5, 0, 7, 2]
            .iter()
            .enumerate()
            .map(|(n, messages)| json!({"partition": n, "start": 10 + n, "messages": messages, "bytes": 50}))
            .collect();
        let send = async |asked: Value| {
            if asked["partition"] == json!(2) {
                bail!("no leader");
            }
            assert_eq!(asked, json!({"before": 10, "partition": 0}));
            Ok(json!({"partitions": [{"partition": 0, "start": 10, "messages": 4, "bytes": 40}]}))
        };
        let (done, failed) = one_by_one(&shown, send).await;
        assert_eq!((&done["messages"], done["partitions"].as_array().unwrap().len()), (&json!(4), 2));
        assert_eq!(format!("{:#}", failed.unwrap_err()), "partition 2: no leader");
        let (done, failed) = one_by_one(&shown[..2], send).await;
        assert!(failed.is_ok() && done["partitions"][1] == shown[1], "{done}");
    }
}
