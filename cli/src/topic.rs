//! `weir topic`: create, list, show, change, trim and delete topics.

mod trim;

use anyhow::bail;
use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use serde_json::{Map, Value, json};

use crate::args::{ConfigFields, Connect, TopicCommand};
use crate::client::{Api, encoded};
use crate::limit::Limit;
use crate::{listing, output};

/// Carries out one topic command.
pub(crate) async fn run(connect: &Connect, command: TopicCommand) -> anyhow::Result<()> {
    let api = Api::new(connect)?;
    match command {
        TopicCommand::List { query, limit } => {
            let headings = ["TOPIC", "PARTITIONS", "MESSAGES", "BYTES", "PUB/S"];
            let columns: listing::Columns<'_> = (&headings, row);
            listing::print(&api, connect.json, &api.path("topics"), query.as_deref(), limit, columns).await
        }
        TopicCommand::Create { name, config } => {
            let reply =
                api.send(Method::PUT, &topic_path(&api, &name), HeaderMap::new(), body(&config)).await?;
            let existed = reply.status == StatusCode::OK;
            shown(connect.json, &reply.json()?, if existed { "exists" } else { "created" })
        }
        TopicCommand::Get { name } => {
            let topic = api.get(&topic_path(&api, &name)).await?.json()?;
            if connect.json {
                output::line(&topic);
            } else {
                describe(&topic);
            }
            Ok(())
        }
        TopicCommand::Set { name, config } => set(&api, connect.json, &name, &config).await,
        TopicCommand::Trim { name, before, partition, dry_run, yes } => {
            let trim = trim::Trim { before, partition, is_dry_run: dry_run, yes };
            trim::run(&api, connect.json, &name, &trim).await
        }
        TopicCommand::Delete { name, yes } => delete(&api, connect.json, &name, yes).await,
    }
}

fn topic_path(api: &Api, name: &str) -> String {
    api.path(&format!("topics/{}", encoded(name)))
}

/// Totals over a topic's partitions: messages and bytes.
fn totals(topic: &Value) -> (u64, u64) {
    let partitions = topic["partitions"].as_array().map(Vec::as_slice).unwrap_or_default();
    partitions.iter().fold((0, 0), |(messages, bytes), partition| {
        let number = |field: &str| partition[field].as_u64().unwrap_or(0);
        (messages + number("end").saturating_sub(number("start")), bytes + number("bytes"))
    })
}

fn row(topic: &Value) -> Vec<String> {
    let (messages, bytes) = totals(topic);
    let rate = topic["rates"]["publish_records_per_second"].as_f64().unwrap_or(0.0);
    vec![
        topic["topic"].as_str().or_else(|| topic["name"].as_str()).unwrap_or("?").to_owned(),
        topic["config"]["partitions"].to_string(),
        messages.to_string(),
        output::bytes(bytes),
        format!("{rate:.1}"),
    ]
}

fn describe(topic: &Value) {
    output::line(format_args!("incarnation {}", topic["incarnation"]));
    if let Some(config) = topic["config"].as_object() {
        output::line("config");
        for (field, value) in config {
            output::line(format_args!("  {field} = {value}"));
        }
    }
    let rows: Vec<Vec<String>> = topic["partitions"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default()
        .iter()
        .map(|p| {
            let text = |field: &str| p[field].to_string();
            let size = p["bytes"].as_u64().map_or_else(|| "?".to_owned(), output::bytes);
            vec![text("partition"), text("shard"), text("start"), text("end"), size]
        })
        .collect();
    output::table(&["PARTITION", "SHARD", "START", "END", "BYTES"], &rows);
}

fn shown(as_json: bool, topic: &Value, what: &str) -> anyhow::Result<()> {
    if as_json {
        output::line(topic);
    } else {
        output::line(format_args!(
            "{} {what}, {} partition(s)",
            topic["name"].as_str().unwrap_or("topic"),
            topic["config"]["partitions"]
        ));
    }
    Ok(())
}

/// Changes fields of the configuration that was read, and only if nobody changed it meanwhile.
async fn set(api: &Api, as_json: bool, name: &str, config: &ConfigFields) -> anyhow::Result<()> {
    let fields = fields(config);
    if fields.is_empty() {
        bail!("nothing to change: name at least one field, see `weir topic set --help`");
    }
    let current = api.get(&topic_path(api, name)).await?;
    let mut headers = HeaderMap::new();
    if let Some(tag) = current.headers.get(http::header::ETAG) {
        headers.insert(http::header::IF_MATCH, tag.clone());
    }
    let reply = api.send(Method::PATCH, &topic_path(api, name), headers, body(config)).await?;
    shown(as_json, &reply.json()?, "changed")
}

async fn delete(api: &Api, as_json: bool, name: &str, yes: bool) -> anyhow::Result<()> {
    let topic = api.get(&topic_path(api, name)).await?.json()?;
    let (messages, bytes) = totals(&topic);
    let what = format!("{name} with {messages} message(s), {}", output::bytes(bytes));
    if !yes && !output::confirmed(&format!("Delete {what}? This cannot be undone.")) {
        bail!("not deleted: confirm it, or pass --yes");
    }
    api.send(Method::DELETE, &topic_path(api, name), HeaderMap::new(), Bytes::new()).await?;
    if as_json {
        output::line(json!({ "deleted": name, "messages": messages, "bytes": bytes }));
    } else {
        output::line(format_args!("deleted {what}"));
    }
    Ok(())
}

fn body(config: &ConfigFields) -> Bytes {
    Value::Object(fields(config)).to_string().into()
}

/// The fields that were given, as the API names them. `null` lifts a limit.
fn fields(config: &ConfigFields) -> Map<String, Value> {
    let limit = |limit: Option<Limit>| {
        limit.map(|limit| match limit {
            Limit::Unlimited => Value::Null,
            Limit::At(value) => json!(value),
        })
    };
    let retention: Map<String, Value> = [
        ("age_ms", limit(config.retention_age)),
        ("bytes", limit(config.retention_bytes)),
        ("records", limit(config.retention_records)),
        ("until_settled", config.until_settled.map(|is_so| json!(is_so))),
    ]
    .into_iter()
    .filter_map(|(field, value)| Some((field.to_owned(), value?)))
    .collect();
    [
        ("partitions", config.partitions.map(|n| json!(n))),
        ("retention", (!retention.is_empty()).then_some(Value::Object(retention))),
        ("ttl_ms", limit(config.ttl)),
        ("dedupe", config.dedupe_window.map(|ms| json!({ "window_ms": ms }))),
        ("compaction", config.compaction.as_ref().map(|how| json!(how))),
        ("cache", config.cache.as_ref().map(|whose| json!(whose))),
        ("default_confirm", config.default_confirm.as_ref().map(|level| json!(level))),
        ("deliver_from", config.deliver_from.as_ref().map(|level| json!(level))),
        ("min_confirm", config.min_confirm.as_ref().map(|level| json!(level))),
        ("content_type", config.content_type.as_ref().map(|text| json!(text))),
        ("closed", config.closed.map(|closed| json!(closed))),
    ]
    .into_iter()
    .filter_map(|(field, value)| Some((field.to_owned(), value?)))
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_given_fields_are_sent_and_unlimited_is_null() {
        assert_eq!(Value::Object(fields(&ConfigFields::default())), json!({}));
        let config = ConfigFields {
            retention_age: Some(Limit::Unlimited),
            retention_bytes: Some(Limit::At(7)),
            until_settled: Some(false),
            ttl: Some(Limit::Unlimited),
            dedupe_window: Some(60_000),
            compaction: Some("key".to_owned()),
            cache: Some("public".to_owned()),
            closed: Some(true),
            ..ConfigFields::default()
        };
        assert_eq!(
            Value::Object(fields(&config)),
            json!({
                "cache": "public", "closed": true, "compaction": "key", "dedupe": {"window_ms": 60_000}, "ttl_ms": null,
                "retention": {"age_ms": null, "bytes": 7, "until_settled": false}
            })
        );
    }
}
