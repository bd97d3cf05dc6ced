//! One reader over server-sent events, as a browser would follow a topic.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use anyhow::{Context as _, bail};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use futures_util::{Stream, StreamExt as _};
use serde::Deserialize;
use tokio::sync::watch;

use super::Shared;
use super::reading::{Source, read_all};
use crate::args::Connect;
use crate::bench::check::Check;
use crate::bench::schedule::Window;
use crate::bench::tally::Tally;
use crate::client::Api;

/// A reader with its connection.
pub(super) struct SseReader {
    number: u32,
    shared: Arc<Shared>,
    body: Pin<Box<dyn Stream<Item = anyhow::Result<Bytes>> + Send>>,
    started: Instant,
    /// What of the stream is not a whole line yet.
    rest: Vec<u8>,
}

/// What is needed of a message.
#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow)]
    data_base64: Option<&'a str>,
}

impl SseReader {
    pub(super) async fn connect(
        connect: &Connect,
        shared: &Arc<Shared>,
        number: u32,
    ) -> anyhow::Result<Self> {
        let started = Instant::now();
        let api = Api::new(connect)?;
        let topic = shared.shape.topic(&shared.run, number);
        let body = api.events(&api.path(&format!("topics/{topic}/messages?from=earliest"))).await?;
        Ok(Self { number, shared: Arc::clone(shared), body: Box::pin(body), started, rest: Vec::new() })
    }

    /// Reads until everything that its writers sent has arrived, or nothing comes any more.
    pub(super) async fn run(self, window: Window, written: watch::Receiver<bool>) -> anyhow::Result<Tally> {
        let (of, shared) = ((self.number, self.started), Arc::clone(&self.shared));
        read_all(self, of, shared, window, written).await
    }

    fn take_part(&mut self, part: &[u8], check: &mut Check, now_ns: u64) -> anyhow::Result<()> {
        self.rest.extend_from_slice(part);
        let Some(end) = self.rest.iter().rposition(|byte| *byte == b'\n') else { return Ok(()) };
        let before = check.delivered();
        for payload in payloads(&self.rest[..end]) {
            check.take(&payload?, now_ns)?;
        }
        check.end_of_group(now_ns);
        self.shared.taken.fetch_add(check.delivered() - before, Ordering::Relaxed);
        self.rest.drain(..=end);
        Ok(())
    }
}

impl Source for SseReader {
    async fn take(&mut self, check: &mut Check, window: &Window) -> anyhow::Result<()> {
        let part = self.body.next().await.context("the gateway ended the stream")??;
        self.take_part(&part, check, window.now_ns())
    }
}

/// Payloads of the messages in whole lines of a stream; other events have none.
fn payloads(lines: &[u8]) -> impl Iterator<Item = anyhow::Result<Vec<u8>>> {
    let data = lines.split(|byte| *byte == b'\n').filter_map(|line| line.strip_prefix(b"data:"));
    data.filter_map(|data| match serde_json::from_slice(data) {
        Ok(Event { data_base64: Some(text) }) => Some(BASE64_STANDARD.decode(text).context("not base64")),
        Ok(Event { data_base64: None }) => None,
        Err(error) => Some(not_an_event(data, &error)),
    })
}

fn not_an_event(data: &[u8], error: &serde_json::Error) -> anyhow::Result<Vec<u8>> {
    bail!("an event that is no message ({error}): {}", String::from_utf8_lossy(data))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_are_those_of_messages() {
        let text = b": alive\nevent: caught-up\ndata: {\"partition\":0}\n\nid: c\ndata: {\"offset\":1,\"data_base64\":\"aGk=\"}\n";
        let found: Vec<_> = payloads(text).map(Result::unwrap).collect();
        assert_eq!(found, [b"hi".to_vec()]);
        assert!(payloads(b"data: nonsense").next().unwrap().is_err());
    }
}
