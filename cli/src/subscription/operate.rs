//! What operators ask of a subscription: where messages stand, dead letters once more, purges, and seeks undone.

use anyhow::{Context as _, bail};
use http::{HeaderMap, Method};
use serde_json::{Map, Value, json};

use super::{Move, move_to, path, say_undo};
use crate::args::{Connect, RedriveArgs, StateArgs};
use crate::client::{Api, encoded};
use crate::output;

/// Most messages of one page.
const PAGE_MAX: u64 = 1_000;
/// Most dead letters of one request.
const REDRIVE_MAX: u64 = 10_000;

pub(super) async fn explain(api: &Api, as_json: bool, name: &str, id: &str) -> anyhow::Result<()> {
    let found = api.get(&path(api, name, &format!("/explain?id={}", encoded(id)))).await?.json()?;
    if as_json {
        output::line(&found);
    } else {
        explained(&found).into_iter().for_each(output::line);
    }
    Ok(())
}

/// Where it stands in words, and what keeps it there.
fn explained(found: &Value) -> Vec<String> {
    let (id, state) = (text(&found["id"]), text(&found["state"]));
    let mut lines = vec![format!("{id} is {state}")];
    let mut say = |line: String| lines.push(format!("  {line}"));
    let reasons = || found["reasons"].as_array().into_iter().flatten();
    let is_exhausted = reasons().any(|reason| reason == "exhausted");
    match state {
        "leased" => say(format!(
            "leased by {} for {} ms more, attempt {}",
            found["holder"].as_str().map_or_else(|| "nobody with a name".to_owned(), output::inert),
            found["lease_expires_in_ms"],
            found["attempts"]
        )),
        "delayed" if is_exhausted => say(format!(
            "is given up in {} ms at the earliest, attempts: {}",
            found["delayed_ms"], found["attempts"]
        )),
        "delayed" => say(format!(
            "may be leased in {} ms, attempts so far: {}",
            found["delayed_ms"], found["attempts"]
        )),
        "blocked" => {
            say(format!("another message of its key is not settled: {}", text(&found["blocked_by"])))
        }
        "dead" => say("given up; `weir subscription redrive` delivers it again".to_owned()),
        "trimmed" => say(format!("retention removed it; the oldest is {}", found["start"])),
        "absent" if found["end"] == 0 => say("not there yet; its partition has had no message".to_owned()),
        "absent" => say(format!("not there yet; the newest is below {}", found["end"])),
        _ => {}
    }
    for reason in reasons() {
        say(reason_in_words(text(reason)).to_owned());
    }
    if matches!(state, "ready" | "delayed" | "blocked") {
        say(format!("{} unsettled message(s) of its partition stand before it", found["ahead"]));
        match found["pulled_ms_ago"].as_u64() {
            Some(ms) => say(format!("somebody last pulled {ms} ms ago")),
            None => say("nobody has pulled since the partition's leader began".to_owned()),
        }
    }
    lines
}

fn reason_in_words(reason: &str) -> &str {
    match reason {
        "paused" => "the subscription is paused: `weir subscription resume`",
        "window_full" => {
            "as many messages are leased as max_unacked allows: settle some, or raise it with `weir subscription set`"
        }
        "no_consumer" => "nobody has pulled for a minute",
        "comes_again_full" => "too many messages wait to come again: they go first",
        "look_ahead_full" => {
            "too many messages wait behind keys that are held, or for their turn: settle some of them first"
        }
        "filtered" => "the filter does not match it: it is settled undelivered",
        "expired" => "its time to live is over: it is settled undelivered",
        "scheduled" => "its publisher wants it later (Deliver-At)",
        "in_line" => "others go before it",
        "seeking" => "a seek is on its way",
        "compacted" => "compaction dropped it: it is settled undelivered",
        "exhausted" => {
            "it has had all its deliveries: it waits for room for dead letters, or for the end of its last delivery"
        }
        other => other,
    }
}

pub(super) async fn state(api: &Api, as_json: bool, args: &StateArgs) -> anyhow::Result<()> {
    let (mut cursor, mut rows, mut left) = (None::<String>, Vec::new(), args.limit);
    let mut instant = None::<u64>;
    while left > 0 {
        let mut query = format!("/state?of={}&limit={}", args.of, left.min(PAGE_MAX));
        if let Some(as_of) = &args.as_of {
            query.push_str(&format!("&as_of={}", encoded(as_of)));
        }
        match (&cursor, args.partition) {
            (Some(cursor), _) => query.push_str(&format!("&cursor={cursor}")),
            (None, Some(partition)) => query.push_str(&format!("&partition={partition}")),
            (None, None) => {}
        }
        let page = api.get(&path(api, &args.name, &query)).await?.json()?;
        let items = page["items"].as_array().context("the gateway's list has no items")?;
        left = left.saturating_sub(items.len() as u64);
        for item in items {
            if as_json {
                output::line(item);
            } else {
                rows.push(row(item));
            }
        }
        instant = instant.into_iter().chain(page["as_of_ms"].as_u64()).min();
        cursor = page["next"].as_str().map(str::to_owned);
        if cursor.is_none() {
            break;
        }
    }
    if let Some(ms) = instant {
        output::note(format_args!("as it stood at ts:{ms}"));
    }
    if !as_json && rows.is_empty() {
        let others =
            ["ready", "leased", "delayed", "blocked", "dead"].into_iter().filter(|of| *of != args.of);
        output::note(format_args!(
            "no message of {} is {}: --of {}, … shows others",
            args.name,
            args.of,
            others.collect::<Vec<_>>().join(", ")
        ));
    } else if !as_json {
        output::table(
            &["MESSAGE", "STATE", "ATTEMPTS", "HOLDER", "LEFT MS", "DUE IN MS", "BLOCKED BY"],
            &rows,
        );
    }
    if cursor.is_some() {
        output::note(format_args!("there are more: --limit {}", args.limit.saturating_mul(10)));
    }
    Ok(())
}

fn row(item: &Value) -> Vec<String> {
    let is_dead = item["state"] == "dead";
    let shown = |field: &str| match &item[field] {
        Value::Null => "-".to_owned(),
        // They were counted until it died; its record in the dlq says how many they were.
        _ if is_dead && field == "attempts" => "-".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let fields = ["id", "state", "attempts", "holder", "lease_expires_in_ms", "delayed_ms", "blocked_by"];
    fields.map(shown).to_vec()
}

/// Says first how many it would be, and then asks whether it shall.
pub(super) async fn redrive(connect: &Connect, api: &Api, args: &RedriveArgs) -> anyhow::Result<()> {
    if args.dry_run || !args.yes {
        let would = redriven(api, args, true).await?;
        if args.dry_run {
            would.print(connect.json, "would be delivered again");
            return Ok(());
        }
        let question = format!("Deliver {} dead letter(s) of {} again?", would.ids.len(), args.name);
        if would.ids.is_empty() {
            bail!("there is no such dead letter: nothing was redriven");
        }
        if !output::confirmed(&question) {
            bail!("nothing was redriven: confirm it, or pass --yes");
        }
    }
    let done = redriven(api, args, false).await?;
    done.print(connect.json, "will be delivered again");
    if done.is_stopped {
        bail!(
            "stopped: {} of them are dead again. See why with `weir subscription explain`",
            done.dead_again
        );
    }
    Ok(())
}

/// What several requests did together.
#[derive(Default)]
struct Redriven {
    ids: Vec<String>,
    dead_again: u64,
    is_stopped: bool,
}

impl Redriven {
    /// Adds what one request did, which counts its own.
    fn add(&mut self, answer: &Value) -> anyhow::Result<()> {
        let ids = answer["redriven"].as_array().context("the gateway's answer names no messages")?;
        self.ids.extend(ids.iter().filter_map(Value::as_str).map(str::to_owned));
        self.dead_again += answer["dead_again"].as_u64().unwrap_or(0);
        self.is_stopped = answer["stopped"] == json!(true);
        Ok(())
    }

    fn print(&self, as_json: bool, tense: &str) {
        if as_json {
            let whole =
                json!({"redriven": self.ids, "dead_again": self.dead_again, "stopped": self.is_stopped});
            return output::line(whole);
        }
        self.ids.iter().for_each(output::line);
        output::note(format_args!("{} message(s) {tense}", self.ids.len()));
    }
}

async fn redriven(api: &Api, args: &RedriveArgs, is_dry_run: bool) -> anyhow::Result<Redriven> {
    let query = if is_dry_run { "?dry_run=true" } else { "" };
    let to = path(api, &args.name, &format!(":redrive{query}"));
    let (mut done, mut cursor) = (Redriven::default(), None::<String>);
    let bar = (!is_dry_run).then(|| output::progress(None));
    loop {
        let left = args.max.saturating_sub(done.ids.len() as u64).min(REDRIVE_MAX);
        if left == 0 && args.ids.is_empty() {
            break;
        }
        let body = Value::Object(asked(args, left, cursor.as_deref()));
        let answer = api.send(Method::POST, &to, HeaderMap::new(), body.to_string()).await?.json()?;
        done.add(&answer)?;
        if let Some(bar) = &bar {
            bar.set_message(format!("{} redriven", done.ids.len()));
        }
        cursor = answer["next"].as_str().map(str::to_owned);
        if cursor.is_none() || done.is_stopped {
            break;
        }
    }
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    Ok(done)
}

fn asked(args: &RedriveArgs, left: u64, cursor: Option<&str>) -> Map<String, Value> {
    let by_ids = !args.ids.is_empty();
    [
        ("ids", by_ids.then(|| json!(args.ids))),
        ("max", (!by_ids).then(|| json!(left))),
        ("filter", args.filter.as_ref().map(|filter| json!(filter))),
        ("rate", args.rate.map(|rate| json!(rate))),
        ("stop_after", args.stop_after.map(|count| json!(count))),
        ("cursor", cursor.map(|cursor| json!(cursor))),
    ]
    .into_iter()
    .filter_map(|(field, value)| Some((field.to_owned(), value?)))
    .collect()
}

/// Asks first what it would do, and then whether it shall.
pub(super) async fn purge(api: &Api, as_json: bool, name: &str, what: &str, how: Move) -> anyhow::Result<()> {
    let ask = async |query: &str| {
        let purge = path(api, name, &format!(":purge{query}"));
        api.send(Method::POST, &purge, HeaderMap::new(), json!({"what": what}).to_string()).await?.json()
    };
    let said = |answer: &Value, tense: &str| {
        format!("{} message(s) {tense} purged, {} of them dead", answer["purged"], answer["dead"])
    };
    if how.is_dry_run || !how.yes {
        let would = ask("?dry_run=true").await?;
        if how.is_dry_run {
            output::line(if as_json { would.to_string() } else { said(&would, "would be") });
            return Ok(());
        }
        if !output::confirmed(&format!("{}: purge {name}?", said(&would, "would be"))) {
            bail!("not purged: confirm it, or pass --yes");
        }
    }
    let done = ask("").await?;
    output::line(if as_json { done.to_string() } else { said(&done, "were") });
    say_undo(api, as_json, name, &done);
    Ok(())
}

pub(super) async fn undo(api: &Api, as_json: bool, name: &str, undo: &str, how: Move) -> anyhow::Result<()> {
    let body = json!({"to": "undo", "undo": undo});
    move_to(api, as_json, name, &body, "to where it stood before that", how).await
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("?")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_waits_is_explained_with_what_can_be_done() {
        let lines = explained(&json!({
            "id": "0:7", "state": "ready", "attempts": 0, "reasons": ["paused", "something_new"], "ahead": 3,
            "pulled_ms_ago": null, "start": 0, "end": 9
        }));
        assert_eq!(lines[0], "0:7 is ready");
        assert!(lines[1].contains("weir subscription resume"), "{lines:?}");
        assert_eq!(lines[2], "  something_new", "a newer gateway's word is said as it is");
        assert!(lines[3].contains("3 unsettled") && lines[4].contains("nobody has pulled"), "{lines:?}");
        let held =
            json!({"id": "0:7", "state": "leased", "holder": "w", "lease_expires_in_ms": 5, "attempts": 2});
        assert_eq!(explained(&held), ["0:7 is leased", "  leased by w for 5 ms more, attempt 2"]);
        let odd = json!({"id": "0:7", "state": "leased", "holder": "\u{1b}[2J\n", "attempts": 2});
        assert!(explained(&odd)[1].starts_with("  leased by \\u{1b}[2J\\n for"), "{odd}");
        let absent = |end| explained(&json!({"id": "0:7", "state": "absent", "end": end})).swap_remove(1);
        assert_eq!(absent(7), "  not there yet; the newest is below 7");
        assert_eq!(absent(0), "  not there yet; its partition has had no message");
    }

    #[test]
    fn what_is_dead_again_is_counted_over_all_requests() {
        let mut done = Redriven::default();
        for (ids, dead_again, stopped) in
            [(&["0:1", "0:2"][..], 2, false), (&[], 0, false), (&["1:7"], 9, true)]
        {
            done.add(&json!({"redriven": ids, "dead_again": dead_again, "stopped": stopped})).unwrap();
        }
        assert_eq!((done.ids.join(","), done.dead_again, done.is_stopped), ("0:1,0:2,1:7".into(), 11, true));
        assert!(done.add(&json!({"dead_again": 1})).is_err());
        assert_eq!(done.dead_again, 11);
    }

    #[test]
    fn a_redrive_asks_for_ids_or_for_a_number_and_goes_on_at_its_cursor() {
        let args =
            RedriveArgs { name: "billing".into(), ids: vec!["0:1".into()], max: 5, ..RedriveArgs::default() };
        assert_eq!(Value::Object(asked(&args, 5, None)), json!({"ids": ["0:1"]}));
        assert_eq!(Value::Object(asked(&args, 5, Some("c"))), json!({"ids": ["0:1"], "cursor": "c"}));
        let args = RedriveArgs { ids: Vec::new(), rate: Some(2), stop_after: Some(0), ..args };
        let expected = json!({"max": 4, "rate": 2, "stop_after": 0, "cursor": "c"});
        assert_eq!(Value::Object(asked(&args, 4, Some("c"))), expected);
        assert_eq!(encoded("0:7&x y").to_string(), "0%3A7%26x%20y");
    }
}
