//! `weir pull`: leases messages of a subscription, prints them, and acknowledges them if told to.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::time::Duration;

use anyhow::{Context as _, bail};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use weir_protocol::ws::{PayloadKind, RawJson};

use crate::args::{Connect, PullArgs};
use crate::client::{Api, Backoff, Stop, WireError, problem_text};
use crate::output;
use crate::subscription::path;

/// What a pull answers, each message as it is written: payload digits stay what they are.
#[derive(Debug, Deserialize)]
struct Pulled {
    messages: Vec<Box<RawValue>>,
}

/// What is needed of a message.
#[derive(Debug, Deserialize)]
struct Delivery {
    lease: String,
    #[serde(default)]
    content_type: String,
    data: Option<Box<RawValue>>,
    data_base64: Option<String>,
}

/// What became of one lease that was settled.
#[derive(Debug, Deserialize)]
struct Settled {
    results: Vec<SettledLease>,
}

#[derive(Debug, Deserialize)]
struct SettledLease {
    result: String,
    problem: Option<RawJson>,
}

/// How long one pull of many waits for a message.
const FOLLOW_WAIT_MS: u64 = 20_000;
/// Without an answer of use for this long, it gives up.
const STUCK_TIME_MAX: Duration = Duration::from_secs(300);
/// How long the last acknowledgement may take once it is to stop.
const LEAVE_TIME_MAX: Duration = Duration::from_secs(2);

/// A run.
struct Run<'a> {
    connect: &'a Connect,
    args: &'a PullArgs,
    api: Api,
    holder: String,
    wait_ms: u64,
    /// Names the next pull of many: if its answer is lost, the same leases are answered again instead of
    /// being held by nobody.
    key: HeaderValue,
    /// Leases of what was printed and is to be acknowledged, in their order.
    printed: Vec<String>,
}

/// Carries out the command.
pub(crate) async fn run(connect: &Connect, args: &PullArgs) -> anyhow::Result<()> {
    let holder = args.holder.clone().unwrap_or_else(|| format!("weir pull {}", std::process::id()));
    let wait_ms = if args.follow { FOLLOW_WAIT_MS } else { args.wait };
    let (api, printed) = (Api::new(connect)?, Vec::new());
    let mut run = Run { connect, args, api, holder, wait_ms, key: new_key(), printed };
    if args.follow {
        let mut stop = Stop::catch()?;
        tokio::select! {
            biased;
            () = stop.wanted() => {}
            ended = run.follow() => return ended,
        }
        // What is leased and not acknowledged by then comes again.
        let _ = tokio::time::timeout(LEAVE_TIME_MAX, run.acknowledge()).await;
        return Ok(());
    }
    let count = run.pull().await?;
    if let Some(refused) = run.acknowledge().await? {
        bail!(refused);
    }
    match count {
        0 => output::note(run.nothing().await),
        count if !args.ack => output::note(format_args!(
            "{count} message(s) leased: they come again unless they are settled (--ack, or POST …:settle with the \
             leases that --json prints)"
        )),
        _ => {}
    }
    Ok(())
}

impl Run<'_> {
    /// Pulls until it is refused for a reason that does not pass. Whatever is interrupted is asked again.
    async fn follow(&mut self) -> anyhow::Result<()> {
        let mut backoff = Backoff::new(STUCK_TIME_MAX);
        loop {
            match self.step().await {
                Ok(()) => backoff.progressed(),
                Err(WireError::Final(why)) => bail!(why),
                Err(WireError::Lost(why)) => {
                    if backoff.is_fresh() {
                        output::note(format_args!("{why}; trying again"));
                    }
                    if !backoff.wait().await {
                        bail!(why);
                    }
                }
            }
        }
    }

    /// What is to be said where nothing was leased. Why that is so, only the subscription knows; who may not read it
    /// is not told.
    async fn nothing(&self) -> String {
        let path = path(&self.api, &self.args.subscription, "");
        let subscription = self.api.get(&path).await.and_then(|reply| reply.json()).unwrap_or_default();
        nothing_to_lease(&subscription, &self.holder, &self.api.weir())
    }

    /// What was printed is acknowledged before more is leased: nothing is printed twice because an answer was lost.
    async fn step(&mut self) -> Result<(), WireError> {
        if self.printed.is_empty() {
            return self.pull().await.map(drop);
        }
        if let Some(refused) = self.acknowledge().await? {
            output::note(format_args!("{refused}; they come again"));
        }
        Ok(())
    }

    /// Leases and prints; how many.
    async fn pull(&mut self) -> Result<usize, WireError> {
        let args = self.args;
        let body =
            json!({"max": args.max, "wait_ms": self.wait_ms, "lease_ms": args.lease, "holder": self.holder});
        let mut headers = HeaderMap::new();
        // Who asks once has no use for it, and it costs a question to every partition.
        if args.follow {
            headers.insert(HeaderName::from_static("idempotency-key"), self.key.clone());
        }
        let pull = path(&self.api, &args.subscription, ":pull");
        let reply = self.api.attempt(Method::POST, &pull, headers, body.to_string()).await?;
        let pulled: Pulled =
            serde_json::from_slice(&reply.body).map_err(|error| broken("is no pull", &error))?;
        let mut leases = Vec::with_capacity(pulled.messages.len());
        {
            let mut out = std::io::stdout().lock();
            for message in &pulled.messages {
                let delivery: Delivery = serde_json::from_str(message.get())
                    .map_err(|error| broken("has a message without a lease", &error))?;
                let payload = || {
                    payload(&delivery).map_err(|error| broken("has a message that cannot be read", &error))
                };
                let line = if self.connect.json { message.get().as_bytes().to_vec() } else { payload()? };
                if let Err(error) = out.write_all(&line).and_then(|()| out.write_all(b"\n")) {
                    output::cannot_write(&error);
                }
                leases.push(delivery.lease);
            }
            // Only what was printed for good is acknowledged.
            if let Err(error) = out.flush() {
                output::cannot_write(&error);
            }
        }
        self.key = new_key();
        let count = leases.len();
        if args.ack {
            self.printed = leases;
        }
        Ok(count)
    }

    /// Acknowledges what was printed; what is to be said of messages that can be acknowledged no more.
    ///
    /// # Errors
    /// What is still to be acknowledged is kept.
    async fn acknowledge(&mut self) -> Result<Option<String>, WireError> {
        if self.printed.is_empty() {
            return Ok(None);
        }
        let settle = path(&self.api, &self.args.subscription, ":settle");
        let body = json!({"ack": self.printed}).to_string();
        let reply = self.api.attempt(Method::POST, &settle, HeaderMap::new(), body).await?;
        let settled: Settled =
            serde_json::from_slice(&reply.body).map_err(|error| broken("has no results", &error))?;
        let count = self.printed.len();
        if settled.results.len() != count {
            let found = format_args!("{} instead of {count}", settled.results.len());
            return Err(broken("has another number of results", &found));
        }
        let mut refused = Vec::new();
        let (mut left, mut why) = (Vec::new(), None);
        for (lease, settled) in std::mem::take(&mut self.printed).into_iter().zip(settled.results) {
            match settled.result.as_str() {
                // An answer that was lost may have said so before.
                "ok" | "already_settled" => {}
                "failed" => {
                    left.push(lease);
                    why = why.or(settled.problem);
                }
                _ => refused.push(settled.result),
            }
        }
        let refused = refused.first().map(|first| {
            format!("{} of {count} message(s) were not acknowledged, the first: {first}", refused.len())
        });
        if left.is_empty() {
            return Ok(refused);
        }
        self.printed = left;
        let mut text = format!("{} of {count} message(s) are not acknowledged", self.printed.len());
        text += &why.map_or_else(String::new, |problem| format!(": {}", problem_text(&problem)));
        text += &refused.map_or_else(String::new, |refused| format!("; {refused}"));
        Err(WireError::Lost(text))
    }
}

/// Why `holder` was given nothing, and what can be done: of a stream others may have what there is. `weir` leads to the
/// same gateway.
fn nothing_to_lease(subscription: &Value, holder: &str, weir: &str) -> String {
    let config = &subscription["config"];
    let parts = subscription["parts"].as_array().map_or(&[][..], Vec::as_slice);
    let has_some = |part: &&Value| part["ready"].as_u64() > Some(0) || part["leased"].as_u64() > Some(0);
    let readers = parts.iter().filter(has_some).filter_map(|part| part["reader"].as_str());
    let others: BTreeSet<&str> = readers.filter(|reader| *reader != holder).collect();
    match others.first() {
        Some(other) if config["mode"] == "stream" => format!(
            "nothing to lease: what is there is for {other:?}{}, who reads this stream; a pull's reader has its share \
             until it was silent for {} ms. To go on as the same reader, pull with --holder {other:?}",
            if others.len() > 1 { " and others" } else { "" },
            config["lease_ms"]
        ),
        _ if config["paused"] == true => format!(
            "nothing to lease: the subscription is paused; `{weir} subscription resume {}` ends that",
            subscription["name"].as_str().unwrap_or("NAME")
        ),
        _ => format!("nothing to lease{}", not_free(&subscription["totals"])),
    }
}

/// What there is and is not to be had now.
fn not_free(totals: &Value) -> String {
    let count = |state: &str| totals[state].as_u64().filter(|count| *count > 0);
    let states = ["leased", "delayed", "blocked"];
    let some = states.iter().filter_map(|state| Some(format!("{} {state}", count(state)?)));
    let some = some.collect::<Vec<_>>();
    if some.is_empty() { String::new() } else { format!(" now: {}", some.join(", ")) }
}

fn new_key() -> HeaderValue {
    HeaderValue::try_from(format!("\"{}\"", ulid::Ulid::new())).expect("letters and digits")
}

/// An answer that is none of a gateway.
fn broken(what: &str, error: &dyn std::fmt::Display) -> WireError {
    WireError::Final(format!("the gateway's answer {what}: {error}"))
}

/// The message as it was published.
fn payload(delivery: &Delivery) -> anyhow::Result<Vec<u8>> {
    if let Some(encoded) = &delivery.data_base64 {
        return BASE64_STANDARD.decode(encoded).context("a payload that is not Base64");
    }
    let Some(data) = &delivery.data else { return Ok(Vec::new()) };
    if PayloadKind::of(&delivery.content_type) == PayloadKind::Text {
        return Ok(serde_json::from_str::<String>(data.get())?.into_bytes());
    }
    Ok(data.get().as_bytes().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_read_of_a_stream_is_said_to_be_theirs() {
        let stream = |parts: Value| json!({"config": {"mode": "stream", "lease_ms": 30_000}, "parts": parts});
        let other = json!({"ready": 0, "leased": 3, "reader": "a"});
        let parts = json!([other, {"ready": 1, "leased": 0, "reader": "b"}]);
        let told = nothing_to_lease(&stream(parts), "b", "weir");
        assert!(told.contains("for \"a\", who") && told.ends_with("--holder \"a\""), "{told}");
        assert!(told.contains("30000 ms"), "{told}");
        let read = json!({"ready": 0, "leased": 0, "reader": "a"});
        let queue = json!({"config": {"mode": "queue"}, "parts": [other]});
        for nothing in [stream(json!([other])), stream(json!([read])), queue, Value::Null] {
            let holder = if nothing["parts"][0]["leased"] == 3 { "a" } else { "b" };
            assert_eq!(nothing_to_lease(&nothing, holder, "weir"), "nothing to lease", "{nothing}");
        }
    }

    #[test]
    fn what_keeps_messages_from_being_leased_is_said() {
        let totals = json!({"ready": 0, "leased": 3, "delayed": 0, "blocked": 1});
        let mut queue = json!({"name": "billing", "config": {"mode": "queue"}, "totals": totals});
        assert_eq!(nothing_to_lease(&queue, "a", "weir"), "nothing to lease now: 3 leased, 1 blocked");
        queue["config"]["paused"] = json!(true);
        let paused = nothing_to_lease(&queue, "a", "weir --ns shop");
        assert!(paused.contains("is paused; `weir --ns shop subscription resume billing`"), "{paused}");
    }

    #[test]
    fn a_payload_is_printed_as_it_was_published() {
        for (message, expected) in [
            (r#"{"lease":"l","content_type":"text/plain","data":"a\"b"}"#, "a\"b"),
            (r#"{"lease":"l","content_type":"application/json","data":{"t":10.50}}"#, "{\"t\":10.50}"),
            (r#"{"lease":"l","content_type":"application/json","data":"a"}"#, "\"a\""),
            (r#"{"lease":"l","content_type":"application/x-www-form-urlencoded","data":"a"}"#, "a"),
            (r#"{"lease":"l","data_base64":"aGVsbG8="}"#, "hello"),
        ] {
            let delivery: Delivery = serde_json::from_str(message).unwrap();
            assert_eq!(payload(&delivery).unwrap(), expected.as_bytes(), "{message}");
        }
    }
}
