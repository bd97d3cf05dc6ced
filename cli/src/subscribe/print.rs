//! Records on standard output: payloads as they are, or JSON with everything around them.

use std::io::{BufWriter, Stdout, Write as _};

use serde::Serialize;
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
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_base64: Option<String>,
    headers: HeaderMap,
    #[serde(skip_serializing_if = "Option::is_none")]
    content_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<RawJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data_base64: Option<String>,
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

    pub(super) fn record(&mut self, topic: &str, partition: PartitionId, record: &Record) {
        let written = if self.as_json {
            self.json(topic, partition, record)
        } else {
            let prefix = if self.with_topic { write_prefix(&mut self.out, topic) } else { Ok(()) };
            prefix.and_then(|()| self.out.write_all(&record.value)).and_then(|()| self.out.write_all(b"\n"))
        };
        ended_quietly(written);
    }

    pub(super) fn flush(&mut self) {
        let flushed = self.out.flush();
        ended_quietly(flushed);
    }

    fn json(&mut self, topic: &str, partition: PartitionId, record: &Record) -> std::io::Result<()> {
        let msg = Msg::of(record, 0, partition);
        let line = Line {
            topic,
            partition: msg.p,
            offset: msg.o,
            ts: msg.ts,
            key: msg.key,
            key_base64: msg.key_b64,
            headers: msg.h,
            content_type: msg.ct,
            data: msg.data,
            data_base64: msg.b64,
        };
        serde_json::to_writer(&mut self.out, &line)?;
        self.out.write_all(b"\n")
    }
}

fn write_prefix(out: &mut impl std::io::Write, topic: &str) -> std::io::Result<()> {
    write!(out, "{topic}: ")
}

fn ended_quietly(written: std::io::Result<()>) {
    if let Err(error) = written {
        output::cannot_write(&error);
    }
}
