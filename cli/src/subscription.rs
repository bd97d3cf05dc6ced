//! `weir subscription`: create, fork, list, show, change, move, purge, pause and delete work queues over topics.
//!
//! * `operate`: where messages stand and why, dead letters once more, purges, seeks undone.

mod operate;

use anyhow::bail;
use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use serde_json::{Map, Value, json};

use crate::args::{Connect, CreateArgs, SubscriptionCommand, SubscriptionFields};
use crate::client::{Api, encoded};
use crate::{listing, output};

/// Carries out one subscription command.
pub(crate) async fn run(connect: &Connect, command: SubscriptionCommand) -> anyhow::Result<()> {
    let api = Api::new(connect)?;
    match command {
        SubscriptionCommand::Create(args) => {
            let body = Value::Object(body(&args)).to_string();
            let reply = api.send(Method::PUT, &path(&api, &args.name, ""), HeaderMap::new(), body).await?;
            let existed = reply.status == StatusCode::OK;
            shown(connect.json, &reply.json()?, if existed { "exists" } else { "created" });
            Ok(())
        }
        SubscriptionCommand::Get { name } => {
            let subscription = api.get(&path(&api, &name, "")).await?.json()?;
            if connect.json {
                output::line(&subscription);
            } else {
                describe(&subscription);
            }
            Ok(())
        }
        SubscriptionCommand::List { query, limit } => {
            let headings = ["SUBSCRIPTION", "TOPICS", "STATE", "READY", "LEASED", "DELAYED", "DIED"];
            let columns: listing::Columns<'_> = (&headings, row);
            listing::print(&api, connect.json, &api.path("subscriptions"), query.as_deref(), limit, columns)
                .await
        }
        SubscriptionCommand::Set { name, fields } => set(&api, connect.json, &name, &fields).await,
        SubscriptionCommand::Delete { name, yes } => delete(&api, connect.json, &name, yes).await,
        SubscriptionCommand::Seek { name, to, dry_run, yes } => {
            let (body, how) = (json!({"to": to}), Move { is_dry_run: dry_run, yes });
            move_to(&api, connect.json, &name, &body, &format!("to {to}"), how).await
        }
        SubscriptionCommand::Purge { name, what, dry_run, yes } => {
            operate::purge(&api, connect.json, &name, &what, Move { is_dry_run: dry_run, yes }).await
        }
        SubscriptionCommand::Undo { name, undo, dry_run, yes } => {
            operate::undo(&api, connect.json, &name, &undo, Move { is_dry_run: dry_run, yes }).await
        }
        SubscriptionCommand::Fork { name, fork, at, fields } => {
            let body = json!({"name": fork, "at": at, "config": Value::Object(changed(&fields))});
            let to = path(&api, &name, ":fork");
            let reply = api.send(Method::POST, &to, HeaderMap::new(), body.to_string()).await?;
            let existed = reply.status == StatusCode::OK;
            let what = if existed { "exists" } else { "forked" };
            shown(connect.json, &reply.json()?, &format!("{what}, from {name} at {at}"));
            Ok(())
        }
        SubscriptionCommand::Explain { name, id } => operate::explain(&api, connect.json, &name, &id).await,
        SubscriptionCommand::State(args) => operate::state(&api, connect.json, &args).await,
        SubscriptionCommand::Redrive(args) => operate::redrive(connect, &api, &args).await,
        SubscriptionCommand::Pause { name } => set_paused(&api, connect.json, &name, "pause").await,
        SubscriptionCommand::Resume { name } => set_paused(&api, connect.json, &name, "resume").await,
    }
}

/// Path of a subscription; `rest` is a verb behind its name, or nothing.
pub(crate) fn path(api: &Api, name: &str, rest: &str) -> String {
    api.path(&format!("subscriptions/{}{rest}", encoded(name)))
}

/// A new subscription, as the API names its fields.
fn body(args: &CreateArgs) -> Map<String, Value> {
    let mut body = changed(&args.fields);
    let topics: Vec<&String> = args.topic.iter().chain(&args.pattern).collect();
    body.insert("mode".to_owned(), json!(args.mode));
    body.insert("topics".to_owned(), json!(topics));
    for (field, value) in [("start", &args.start), ("order", &args.order)] {
        if let Some(value) = value {
            body.insert(field.to_owned(), json!(value));
        }
    }
    body
}

/// The fields that were given, as the API names them. A text that is empty takes away what is there.
fn changed(fields: &SubscriptionFields) -> Map<String, Value> {
    let text = |given: &String| if given.is_empty() { Value::Null } else { json!(given) };
    [
        ("lease_ms", fields.lease.map(|ms| json!(ms))),
        ("max_attempts", fields.max_attempts.map(|attempts| json!(attempts))),
        ("backoff_ms", fields.backoff.as_ref().map(|delays| json!(delays))),
        ("dlq", fields.dlq.as_ref().map(text)),
        ("max_unacked", fields.max_unacked.map(|max| json!(max))),
        ("filter", fields.filter.as_ref().map(text)),
        ("fair_by", fields.fair_by.as_ref().map(text)),
        ("paused", fields.paused.then_some(json!(true))),
    ]
    .into_iter()
    .filter_map(|(field, value)| Some((field.to_owned(), value?)))
    .collect()
}

/// The topics that it names, or its pattern.
fn topics(subscription: &Value) -> String {
    let names = subscription["config"]["topics"].as_array().map(Vec::as_slice).unwrap_or_default();
    let names: Vec<&str> = names.iter().map(|name| name.as_str().unwrap_or("?")).collect();
    names.join(",")
}

fn row(subscription: &Value) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap_or("?").to_owned();
    let totals = &subscription["totals"];
    let is = |value: &Value| *value == json!(true);
    let state = match subscription {
        of if is(&of["topic_deleted"]) => "no topic",
        of if is(&of["config"]["paused"]) => "paused",
        _ => "active",
    };
    vec![
        text(&subscription["name"]),
        topics(subscription),
        state.to_owned(),
        totals["ready"].to_string(),
        totals["leased"].to_string(),
        totals["delayed"].to_string(),
        totals["dead"].to_string(),
    ]
}

fn describe(subscription: &Value) {
    output::line(format_args!("id {}", subscription["id"]));
    let origin = &subscription["forked_from"];
    if let (Some(name), Some(at)) = (origin["name"].as_str(), origin["at"].as_str()) {
        output::line(format_args!("forked from {name} at {at}"));
    }
    for section in ["config", "totals"] {
        let Some(fields) = subscription[section].as_object() else { continue };
        output::line(section);
        for (field, value) in fields {
            output::line(format_args!("  {field} = {value}"));
        }
    }
    let columns = ["topic", "partition", "shard", "floor", "end", "ready", "leased", "delayed", "dead"];
    let parts = subscription["parts"].as_array().map(Vec::as_slice).unwrap_or_default();
    let number = |value: &Value| match value {
        Value::String(text) => text.clone(),
        value => value.as_u64().map_or_else(|| "?".to_owned(), |number| number.to_string()),
    };
    let rows: Vec<Vec<String>> =
        parts.iter().map(|part| columns.iter().map(|column| number(&part[*column])).collect()).collect();
    output::table(
        &["TOPIC", "PARTITION", "SHARD", "FLOOR", "END", "READY", "LEASED", "DELAYED", "DIED"],
        &rows,
    );
}

fn shown(as_json: bool, subscription: &Value, what: &str) {
    if as_json {
        output::line(subscription);
    } else {
        let name = subscription["name"].as_str().unwrap_or("?");
        let several = subscription["topic_incarnation"].is_null();
        let noun = if several { "topics" } else { "topic" };
        output::line(format_args!("{name} {what}, {noun} {}", topics(subscription)));
    }
}

/// Changes fields of the configuration that was read, and only if nobody changed it meanwhile.
async fn set(api: &Api, as_json: bool, name: &str, fields: &SubscriptionFields) -> anyhow::Result<()> {
    let fields = changed(fields);
    if fields.is_empty() {
        bail!("nothing to change: name at least one field, see `weir subscription set --help`");
    }
    let current = api.get(&path(api, name, "")).await?;
    let mut headers = HeaderMap::new();
    if let Some(tag) = current.headers.get(http::header::ETAG) {
        headers.insert(http::header::IF_MATCH, tag.clone());
    }
    let body = Value::Object(fields).to_string();
    let reply = api.send(Method::PATCH, &path(api, name, ""), headers, body).await?;
    shown(as_json, &reply.json()?, "changed");
    Ok(())
}

async fn set_paused(api: &Api, as_json: bool, name: &str, verb: &str) -> anyhow::Result<()> {
    let to = path(api, name, &format!(":{verb}"));
    let reply = api.send(Method::POST, &to, HeaderMap::new(), Bytes::new()).await?;
    shown(as_json, &reply.json()?, &format!("{verb}d"));
    Ok(())
}

async fn delete(api: &Api, as_json: bool, name: &str, yes: bool) -> anyhow::Result<()> {
    let subscription = api.get(&path(api, name, "")).await?.json()?;
    let unsettled = &subscription["totals"]["unsettled"];
    let what = format!("{name} with {unsettled} unsettled message(s)");
    if !yes && !output::confirmed(&format!("Delete {what}? The topic's messages stay.")) {
        bail!("not deleted: confirm it, or pass --yes");
    }
    api.send(Method::DELETE, &path(api, name, ""), HeaderMap::new(), Bytes::new()).await?;
    if as_json {
        output::line(json!({ "deleted": name, "unsettled": unsettled }));
    } else {
        output::line(format_args!("deleted {what}"));
    }
    Ok(())
}

/// How a subscription is moved or purged.
#[derive(Clone, Copy)]
struct Move {
    is_dry_run: bool,
    yes: bool,
}

/// Asks first what it would do, and then whether it shall.
async fn move_to(
    api: &Api,
    as_json: bool,
    name: &str,
    body: &Value,
    to: &str,
    how: Move,
) -> anyhow::Result<()> {
    let ask = async |query: &str| {
        let seek = path(api, name, &format!(":seek{query}"));
        api.send(Method::POST, &seek, HeaderMap::new(), body.to_string()).await?.json()
    };
    let said = |answer: &Value, tense: &str| {
        let (again, skipped) = (&answer["redelivered"], &answer["skipped"]);
        format!("{again} message(s) {tense} delivered again, {skipped} skipped")
    };
    if how.is_dry_run || !how.yes {
        let would = ask("?dry_run=true").await?;
        if how.is_dry_run {
            output::line(if as_json { would.to_string() } else { said(&would, "would be") });
            return Ok(());
        }
        let question = format!("{}: move {name} {to}?", said(&would, "would be"));
        if !output::confirmed(&question) {
            bail!("not moved: confirm it, or pass --yes");
        }
    }
    let done = ask("").await?;
    output::line(if as_json { done.to_string() } else { said(&done, "will be") });
    say_undo(api, as_json, name, &done);
    Ok(())
}

/// How what was done can be undone.
fn say_undo(api: &Api, as_json: bool, name: &str, done: &Value) {
    if let Some(undo) = done["undo"].as_str().filter(|_| !as_json) {
        output::note(format_args!("to take it back: {} subscription undo {name} {undo}", api.weir()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_never_be_pulled_again_is_not_active() {
        let of = |deleted: bool, paused: bool| {
            row(
                &json!({"name": "a", "topic_deleted": deleted, "config": {"topics": ["t"], "paused": paused}}),
            )
        };
        let states = [of(false, false), of(false, true), of(true, true)].map(|row| row[2].clone());
        assert_eq!(states, ["active", "paused", "no topic"]);
    }

    #[test]
    fn only_given_fields_are_sent() {
        let mode = "queue".to_owned();
        let bare = CreateArgs { mode, topic: vec!["orders".to_owned()], ..CreateArgs::default() };
        let bare = Value::Object(body(&bare));
        assert_eq!(bare, json!({"mode": "queue", "topics": ["orders"]}));
        let fields = SubscriptionFields {
            lease: Some(60_000),
            backoff: Some(vec![0, 5]),
            filter: Some(String::new()),
            paused: true,
            ..SubscriptionFields::default()
        };
        let (topic, order) = (vec!["orders".to_owned()], Some("key".to_owned()));
        let given = Value::Object(body(&CreateArgs { topic, order, fields, ..CreateArgs::default() }));
        assert_eq!((&given["lease_ms"], &given["backoff_ms"]), (&json!(60_000), &json!([0, 5])));
        assert_eq!((&given["paused"], &given["order"]), (&json!(true), &json!("key")));
        assert_eq!((given.get("filter"), given.get("dlq")), (Some(&Value::Null), None), "it is taken away");
    }
}
