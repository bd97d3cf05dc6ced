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

/// Asks first what it would do, and then whether it shall. What is confirmed is what goes: not what was published since, and
/// nothing of a topic that was recreated.
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
    let mut would = send(api, name, "?dry_run=true", tag.as_ref(), &asked).await?;
    let what = summary(name, &would);
    if !output::confirmed(&format!("Remove {what}? This cannot be undone.")) {
        bail!("not trimmed: confirm it, or pass --yes");
    }
    let partitions = would["partitions"].as_array_mut().context("the gateway's answer has no partitions")?;
    for found in partitions.iter_mut().filter(|found| found["messages"] != json!(0)) {
        let exactly = json!({"before": found["start"], "partition": found["partition"]});
        let done = send(api, name, "", tag.as_ref(), &exactly).await?;
        *found = done["partitions"][0].clone();
    }
    let sum = |field: &str| partitions.iter().filter_map(|found| found[field].as_u64()).sum::<u64>();
    let (messages, bytes) = (sum("messages"), sum("bytes"));
    let done = json!({"dry_run": false, "messages": messages, "bytes": bytes, "partitions": partitions});
    said(as_json, name, &done, "are gone")
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
