//! Records on standard output: payloads as they are, or JSON with everything around them.

use std::io::{BufWriter, Stdout, Write as _};

use serde::Serialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use weir_protocol::batch::Record;
use weir_protocol::ids::PartitionId;
use weir_protocol::ws::{HeaderMap, Msg, RawJson};

use crate::output;

/// One line of `--json`: the API's record, with its topic.
#[derive(Serialize)]
struct Line<'a> {
    topic: &'a str,
    partition: u32,
    offset: u64,
    ts: u64,
    /// Absent if it is committed: then nothing takes it back.
    #[serde(rename = "final", skip_serializing_if = "Option::is_none")]
    is_final: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    term: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_base64: Option<String>,
    headers: HeaderMap,
    /// Of those that are not UTF-8.
    #[serde(skip_serializing_if = "HeaderMap::is_empty")]
    headers_base64: HeaderMap,
    #[serde(skip_serializing_if = "Option::is_none")]
    content_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content_encoding: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content_digest: Option<String>,
    /// RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    deliver_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ttl_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    traceparent: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tracestate: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<RawJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data_base64: Option<String>,
}

/// What is no record, as a line of `--json`: what became of those that were printed before they were
/// committed, and that no more come.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(super) enum Event<'a> {
    /// Everything below `upto` is committed.
    Firm { topic: &'a str, partition: u32, upto: u64 },
    /// Offsets from `from` up to `to`, exclusive, are to be forgotten.
    Retract { topic: &'a str, partition: u32, from: u64, to: u64, term: u64 },
    /// Everything has come, and nothing follows unless the topic is opened.
    Closed { topic: &'a str },
    /// The topic takes messages again.
    Opened { topic: &'a str },
}

/// Prints records. A reader that went away (`| head`) ends the command quietly.
pub(super) struct Printer {
    out: BufWriter<Stdout>,
    as_json: bool,
    with_topic: bool,
}

impl Printer {
    pub(super) fn new(as_json: bool, with_topic: bool) -> Self {
        Self { out: BufWriter::with_capacity(64 << 10, std::io::stdout()), as_json, with_topic }
    }

    /// `term` is that of a record that is not committed.
    pub(super) fn record(&mut self, topic: &str, partition: PartitionId, record: &Record, term: Option<u64>) {
        let written = if self.as_json {
            self.json(topic, partition, record, term)
        } else {
            let prefix = if self.with_topic { write_prefix(&mut self.out, topic) } else { Ok(()) };
            prefix.and_then(|()| self.out.write_all(&record.value)).and_then(|()| self.out.write_all(b"\n"))
        };
        ended_quietly(written);
    }

    /// Says what is no record; without `--json` on standard error, and not what is firm: that was printed for good.
    pub(super) fn event(&mut self, event: &Event<'_>) {
        if self.as_json {
            let line = serde_json::to_writer(&mut self.out, event).map_err(std::io::Error::from);
            ended_quietly(line.and_then(|()| self.out.write_all(b"\n")));
            return;
        }
        if !matches!(event, Event::Firm { .. }) {
            self.flush();
        }
        match event {
            Event::Firm { .. } => {}
            Event::Retract { topic, partition, from, to, .. } => {
                let last = to.saturating_sub(1);
                output::note(format_args!(
                    "{topic}: messages {from} to {last} of partition {partition} were not committed: forget them"
                ));
            }
            Event::Closed { topic } => {
                output::note(format_args!("{topic}: closed; nothing follows unless it is opened again"));
            }
            Event::Opened { topic } => output::note(format_args!("{topic}: opened again")),
        }
    }

    pub(super) fn flush(&mut self) {
        let flushed = self.out.flush();
        ended_quietly(flushed);
    }

    fn json(
        &mut self,
        topic: &str,
        partition: PartitionId,
        record: &Record,
        term: Option<u64>,
    ) -> std::io::Result<()> {
        let msg = Msg::of(record, 0, partition);
        let line = Line {
            topic,
            partition: msg.p,
            offset: msg.o,
            ts: msg.ts,
            is_final: term.map(|_| false),
            term,
            key: msg.key,
            key_base64: msg.key_b64,
            headers: msg.h,
            headers_base64: msg.h_b64,
            content_type: msg.ct,
            content_encoding: msg.ce,
            content_digest: msg.digest,
            deliver_at: msg.deliver_at.and_then(rfc3339),
            ttl_ms: msg.ttl_ms,
            traceparent: msg.traceparent,
            tracestate: msg.tracestate,
            data: msg.data,
            data_base64: msg.b64,
        };
        serde_json::to_writer(&mut self.out, &line)?;
        self.out.write_all(b"\n")
    }
}

/// A time of milliseconds since the epoch as the API tells it; `None` beyond the year 9999.
fn rfc3339(ms: u64) -> Option<String> {
    let time = OffsetDateTime::from_unix_timestamp_nanos(i128::from(ms) * 1_000_000).ok()?;
    time.format(&Rfc3339).ok()
}

fn write_prefix(out: &mut impl std::io::Write, topic: &str) -> std::io::Result<()> {
    write!(out, "{topic}: ")
}

fn ended_quietly(written: std::io::Result<()>) {
    if let Err(error) = written {
        output::cannot_write(&error);
    }
}
