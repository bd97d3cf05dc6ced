//! `weir pull`: leases messages of a subscription, prints them, and acknowledges them if told to.

use std::io::Write as _;

use anyhow::{Context as _, bail};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::{HeaderMap, Method};
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::signal::ctrl_c;

use crate::args::{Connect, PullArgs};
use crate::client::Api;
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

/// How long one pull of many waits for a message.
const FOLLOW_WAIT_MS: u64 = 20_000;

/// Carries out the command.
pub(crate) async fn run(connect: &Connect, args: &PullArgs) -> anyhow::Result<()> {
    let api = Api::new(connect)?;
    let holder = args.holder.clone().unwrap_or_else(|| format!("weir pull {}", std::process::id()));
    if args.follow {
        let following = async {
            loop {
                once(connect, &api, args, &holder, FOLLOW_WAIT_MS).await?;
            }
        };
        // What is leased and not acknowledged by then comes again.
        return tokio::select! {
            biased;
            _ = ctrl_c() => Ok(()),
            ended = following => ended,
        };
    }
    match once(connect, &api, args, &holder, args.wait).await? {
        0 => output::note("nothing to lease"),
        count if !args.ack => output::note(format_args!(
            "{count} message(s) leased: they come again unless they are settled (--ack, or POST …:settle with the \
             leases that --json prints)"
        )),
        _ => {}
    }
    Ok(())
}

/// Leases, prints, and acknowledges if told to; how many.
async fn once(
    connect: &Connect,
    api: &Api,
    args: &PullArgs,
    holder: &str,
    wait_ms: u64,
) -> anyhow::Result<usize> {
    let body = json!({"max": args.max, "wait_ms": wait_ms, "lease_ms": args.lease, "holder": holder});
    let pull = path(api, &args.subscription, ":pull");
    let reply = api.send(Method::POST, &pull, HeaderMap::new(), body.to_string()).await?;
    let pulled: Pulled = serde_json::from_slice(&reply.body).context("the gateway's answer is no pull")?;
    let mut leases = Vec::with_capacity(pulled.messages.len());
    {
        let mut out = std::io::stdout().lock();
        for message in &pulled.messages {
            let delivery: Delivery =
                serde_json::from_str(message.get()).context("a message without a lease")?;
            let line = if connect.json { message.get().as_bytes().to_vec() } else { payload(&delivery)? };
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
    if args.ack && !leases.is_empty() {
        ack(api, &args.subscription, &leases).await?;
    }
    Ok(leases.len())
}

/// The message as it was published.
fn payload(delivery: &Delivery) -> anyhow::Result<Vec<u8>> {
    if let Some(encoded) = &delivery.data_base64 {
        return BASE64_STANDARD.decode(encoded).context("a payload that is not Base64");
    }
    let Some(data) = &delivery.data else { return Ok(Vec::new()) };
    if delivery.content_type.starts_with("text/") {
        return Ok(serde_json::from_str::<String>(data.get())?.into_bytes());
    }
    Ok(data.get().as_bytes().to_vec())
}

async fn ack(api: &Api, subscription: &str, leases: &[String]) -> anyhow::Result<()> {
    let settle = path(api, subscription, ":settle");
    let body = json!({"ack": leases}).to_string();
    let answer = api.send(Method::POST, &settle, HeaderMap::new(), body).await?.json()?;
    let results = answer["results"].as_array().context("the gateway's answer has no results")?;
    let refused: Vec<_> = results.iter().filter(|result| result["result"] != "ok").collect();
    if let Some(first) = refused.first() {
        bail!(
            "{} of {} message(s) were not acknowledged, the first: {}",
            refused.len(),
            leases.len(),
            first["result"].as_str().unwrap_or("?")
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_is_printed_as_it_was_published() {
        for (message, expected) in [
            (r#"{"lease":"l","content_type":"text/plain","data":"a\"b"}"#, "a\"b"),
            (r#"{"lease":"l","content_type":"application/json","data":{"t":10.50}}"#, "{\"t\":10.50}"),
            (r#"{"lease":"l","content_type":"application/json","data":"a"}"#, "\"a\""),
            (r#"{"lease":"l","data_base64":"aGVsbG8="}"#, "hello"),
        ] {
            let delivery: Delivery = serde_json::from_str(message).unwrap();
            assert_eq!(payload(&delivery).unwrap(), expected.as_bytes(), "{message}");
        }
    }
}
