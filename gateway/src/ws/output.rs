//! Frames of one turn as WebSocket messages, in either form.

use std::iter::Peekable;

use bytes::{Bytes, BytesMut};
use tokio_tungstenite::tungstenite::Message;
use weir_protocol::batch::BatchError;
use weir_protocol::ids::{Name, Offset, Term};
use weir_protocol::rpc::{GrantRun, Level};
use weir_protocol::ws::{
    Channel, Deliveries, DeliveriesBody, Delivery, LeaseRun, Msg, Msgs, SUBPROTOCOL_BINARY, SUBPROTOCOL_JSON,
    ServerFrame, binary, json, run_of,
};

use crate::service::read::{Parcel, RecordSlice, TextForm, Texts};
use crate::service::subscriptions::Leased;

/// A message of several frames is sealed at this many bytes; one frame may overshoot.
const MESSAGE_BYTES: usize = 128 << 10;
/// A frame of records is sealed at this many bytes of payload.
const FRAME_BYTES: u64 = 64 << 10;
/// What the head of a frame of records takes, and that of each of them.
const FRAME_HEAD_BYTES: usize = 32;
const RECORD_HEAD_BYTES: usize = 27;
/// Messages of a turn whose room is kept for the next: what an idle socket holds.
const REUSED_MAX: usize = 4;
/// Records' bytes up to so many are copied: a part of a message costs about as much.
const COPIED_BYTES_MAX: usize = 512;

/// The two forms of the subprotocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Json,
    Binary,
}

impl Form {
    /// Its subprotocol's name.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Json => SUBPROTOCOL_JSON,
            Self::Binary => SUBPROTOCOL_BINARY,
        }
    }

    /// So many bytes are held of what is made of each byte of large messages: of JSON its text, and what the library
    /// has of that, each with a third more for Base64. Batches go out as they are.
    pub(super) fn times(self) -> u64 {
        match self {
            Self::Json => 3,
            Self::Binary => 0,
        }
    }

    /// The form of a subprotocol's name.
    pub(super) fn from_name(name: &str) -> Option<Self> {
        match name {
            SUBPROTOCOL_JSON => Some(Self::Json),
            SUBPROTOCOL_BINARY => Some(Self::Binary),
            _ => None,
        }
    }
}

/// A message of a turn.
#[derive(Debug)]
pub(super) enum Outgoing {
    /// As the library writes it.
    Message(Message),
    /// Binary, in parts that follow each other, some of them shared with other sockets.
    Parts(Vec<Bytes>),
}

/// Collects what one turn sends.
#[derive(Debug)]
pub(super) struct Output {
    form: Form,
    /// Bytes at which a message is sealed. Of JSON each frame is one, unless its client takes several: then
    /// `JSON.parse` reads it.
    message_bytes: usize,
    text: String,
    bytes: BytesMut,
    /// Parts of the binary message that `bytes` go on.
    parts: Vec<Bytes>,
    parts_bytes: usize,
    messages: Vec<Outgoing>,
    queued_bytes: usize,
}

impl Outgoing {
    /// Its length, without what the WebSocket puts in front.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Message(message) => message.len(),
            Self::Parts(parts) => parts.iter().map(Bytes::len).sum(),
        }
    }
}

impl Output {
    pub(super) fn new(form: Form) -> Self {
        Self {
            form,
            message_bytes: if form == Form::Json { 0 } else { MESSAGE_BYTES },
            text: String::new(),
            bytes: BytesMut::new(),
            parts: Vec::new(),
            parts_bytes: 0,
            messages: Vec::new(),
            queued_bytes: 0,
        }
    }

    /// The client takes several frames in a message.
    pub(super) fn batch(&mut self) {
        self.message_bytes = MESSAGE_BYTES;
    }

    /// Bytes that wait to be sent.
    pub(super) fn queued_bytes(&self) -> usize {
        self.queued_bytes + self.text.len() + self.parts_bytes + self.bytes.len()
    }

    /// Adds a frame that both forms have.
    pub(super) fn put(&mut self, ch: Channel, frame: &ServerFrame) {
        match self.form {
            Form::Json => json::put_server_frame(&mut self.text, ch, frame),
            Form::Binary => binary::put_server_frame(&mut self.bytes, ch, frame),
        }
        self.seal_at(self.message_bytes);
    }

    /// Adds a ping of the WebSocket itself.
    pub(super) fn ping(&mut self) {
        self.seal_at(0);
        self.messages.push(Outgoing::Message(Message::Ping(Bytes::new())));
    }

    /// Adds records, the first as delivery `n`.
    ///
    /// # Errors
    /// A batch cannot be read, which only the JSON form needs; what comes before it was added.
    pub(super) fn deliver(&mut self, ch: Channel, n: u64, parcel: Parcel) -> Result<(), BatchError> {
        match (self.form, parcel.bodies()) {
            (Form::Json, _) => match parcel.texts(TextForm::Message, message_texts)? {
                Some(texts) => self.deliver_texts(ch, n, &texts),
                None => return self.deliver_json(ch, n, parcel.slices()),
            },
            (Form::Binary, Some(bodies)) => self.deliver_bodies(ch, n, bodies),
            (Form::Binary, None) => self.deliver_binary(ch, n, parcel.into_slices()),
        }
        Ok(())
    }

    /// Bodies that all readers share go out as they are, each behind a header of this reader's.
    fn deliver_bodies(&mut self, ch: Channel, mut n: u64, bodies: &[DeliveriesBody]) {
        for body in bodies {
            self.bytes.extend_from_slice(&binary::deliveries_head(ch, n, body));
            n += body.count();
            self.parts_bytes += put_part(&mut self.parts, &mut self.bytes, body.bytes());
            self.seal_at(self.message_bytes);
        }
    }

    /// Adds a binary frame of records, whose batches go out from where they are.
    fn put_deliveries(&mut self, ch: Channel, frame: &Deliveries) {
        let Self { bytes, parts, parts_bytes, .. } = self;
        binary::put_deliveries(bytes, ch, frame, |bytes, batch| {
            *parts_bytes += put_part(parts, bytes, batch)
        });
        self.seal_at(self.message_bytes);
    }

    /// Batches go out as they came, with the range of records that is meant.
    fn deliver_binary(&mut self, ch: Channel, mut n: u64, slices: Vec<RecordSlice>) {
        let mut frame = Deliveries { n, staged: None, leases: Vec::new(), topic: None, slices: Vec::new() };
        let mut frame_bytes = 0;
        for slice in slices {
            let (staged, bytes) = (staged_in(&slice), slice.batch.bytes().len() as u64);
            if !frame.slices.is_empty() && (staged != frame.staged || frame_bytes + bytes > FRAME_BYTES) {
                let full = std::mem::replace(
                    &mut frame,
                    Deliveries { n, staged, leases: Vec::new(), topic: None, slices: Vec::new() },
                );
                self.put_deliveries(ch, &full);
                frame_bytes = 0;
            }
            frame.staged = staged;
            frame_bytes += bytes;
            n += u64::from(slice.take);
            let batch = [slice.batch.bytes().clone(), Bytes::new()];
            frame.slices.push(Delivery { first: slice.first, take: slice.take, batch });
        }
        if !frame.slices.is_empty() {
            self.put_deliveries(ch, &frame);
        }
    }

    /// Texts that all readers share go out as they are, each behind a number of this reader's.
    fn deliver_texts(&mut self, ch: Channel, n: u64, texts: &Texts) {
        if texts.bytes.len() as u64 <= FRAME_BYTES {
            return self.put_messages(ch, n, texts.iter());
        }
        let (mut frame, mut first, mut bytes) = (Vec::new(), n, 0);
        for text in texts.iter() {
            if bytes >= FRAME_BYTES {
                let full = std::mem::take(&mut frame);
                self.put_messages(ch, first, full.iter().copied());
                (first, bytes) = (first + full.len() as u64, 0);
            }
            bytes += text.len() as u64;
            frame.push(text);
        }
        self.put_messages(ch, first, frame.iter().copied());
    }

    fn put_messages<'a>(
        &mut self,
        ch: Channel,
        n: u64,
        texts: impl ExactSizeIterator<Item = &'a str> + Clone,
    ) {
        let bytes: usize = texts.clone().map(|text| text.len() + RECORD_HEAD_BYTES).sum();
        self.text.reserve(bytes + FRAME_HEAD_BYTES);
        json::put_messages(&mut self.text, ch, n, texts);
        self.seal_at(self.message_bytes);
    }

    fn deliver_json(&mut self, ch: Channel, mut n: u64, slices: &[RecordSlice]) -> Result<(), BatchError> {
        let (mut msgs, mut frame_bytes) = (Vec::new(), 0);
        for slice in slices {
            for record in slice.records()? {
                let record = record?;
                if frame_bytes >= FRAME_BYTES {
                    self.put_msgs(ch, std::mem::take(&mut msgs));
                    frame_bytes = 0;
                }
                frame_bytes += record.size as u64;
                let mut msg = Msg::of(&record, n, slice.partition);
                if record.offset >= slice.committed_end {
                    msg.lvl = Level::Memory;
                    msg.term = Some(slice.term.0);
                }
                msgs.push(msg);
                n += 1;
            }
        }
        self.put_msgs(ch, msgs);
        Ok(())
    }

    /// Adds leased records, the first as delivery `n`.
    ///
    /// # Errors
    /// As [`Output::deliver`].
    pub(super) fn deliver_leased(&mut self, ch: Channel, n: u64, leased: Leased) -> Result<(), BatchError> {
        let waited = leased.received.elapsed();
        let waited_ms = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
        let run = |run: &GrantRun| LeaseRun {
            first: Offset(run.offset),
            fence: run.fence,
            count: run.count,
            attempt: run.attempt,
            ms: u32::try_from(run.expires_in_ms.saturating_sub(waited_ms)).unwrap_or(u32::MAX),
        };
        let runs = leased.runs.iter().map(run).peekable();
        match self.form {
            Form::Json => self.deliver_leased_json(ch, n, &leased, runs),
            Form::Binary => {
                self.deliver_leased_binary(ch, n, (leased.topic, leased.slices), runs);
                Ok(())
            }
        }
    }

    fn deliver_leased_json(
        &mut self,
        ch: Channel,
        mut n: u64,
        leased: &Leased,
        mut runs: Peekable<impl Iterator<Item = LeaseRun>>,
    ) -> Result<(), BatchError> {
        let (mut msgs, mut frame_bytes) = (Vec::new(), 0);
        for slice in &leased.slices {
            for record in slice.records()? {
                let record = record?;
                let Some(run) = run_of(&mut runs, record.offset) else { continue };
                if frame_bytes >= FRAME_BYTES {
                    self.put_msgs(ch, std::mem::take(&mut msgs));
                    frame_bytes = 0;
                }
                frame_bytes += record.size as u64;
                let lease = Some(run.of(record.offset));
                let topic = leased.topic.as_ref().map(ToString::to_string);
                msgs.push(Msg { topic, lease, ..Msg::of(&record, n, leased.partition) });
                n += 1;
            }
        }
        self.put_msgs(ch, msgs);
        Ok(())
    }

    /// Batches go out as they came, with the leases in front.
    fn deliver_leased_binary(
        &mut self,
        ch: Channel,
        mut n: u64,
        (topic, slices): (Option<Name>, Vec<RecordSlice>),
        mut runs: Peekable<impl Iterator<Item = LeaseRun>>,
    ) {
        let empty =
            |n| Deliveries { n, staged: None, leases: Vec::new(), topic: topic.clone(), slices: Vec::new() };
        let mut frame = empty(n);
        let mut frame_bytes = 0;
        for slice in slices {
            let bytes = slice.batch.bytes().len() as u64;
            if !frame.slices.is_empty() && frame_bytes + bytes > FRAME_BYTES {
                n += frame.count();
                self.put_deliveries(ch, &std::mem::replace(&mut frame, empty(n)));
                frame_bytes = 0;
            }
            let leases_before = frame.leases.len();
            frame.leases.extend(std::iter::from_fn(|| part_within(&mut runs, &slice)));
            if frame.leases.len() > leases_before {
                frame_bytes += bytes;
                let batch = [slice.batch.bytes().clone(), Bytes::new()];
                frame.slices.push(Delivery { first: slice.first, take: slice.take, batch });
            }
        }
        if !frame.slices.is_empty() {
            self.put_deliveries(ch, &frame);
        }
    }

    fn put_msgs(&mut self, ch: Channel, mut msgs: Vec<Msg>) {
        let frame = match msgs.len() {
            0 => return,
            1 => ServerFrame::Msg(Box::new(msgs.remove(0))),
            _ => ServerFrame::Msgs(Msgs { msgs }),
        };
        self.put(ch, &frame);
    }

    fn seal_at(&mut self, bytes: usize) {
        if self.text.len() >= bytes && !self.text.is_empty() {
            let text = std::mem::take(&mut self.text);
            self.queued_bytes += text.len();
            self.messages.push(Outgoing::Message(Message::Text(text.into())));
        }
        let binary_bytes = self.parts_bytes + self.bytes.len();
        if binary_bytes < bytes || binary_bytes == 0 {
            return;
        }
        self.queued_bytes += binary_bytes;
        let last = self.bytes.split().freeze();
        if self.parts.is_empty() {
            self.messages.push(Outgoing::Message(Message::Binary(last)));
            return;
        }
        self.parts_bytes = 0;
        let mut parts = std::mem::take(&mut self.parts);
        if !last.is_empty() {
            parts.push(last);
        }
        self.messages.push(Outgoing::Parts(parts));
    }

    /// Takes the messages of the turn.
    pub(super) fn take(&mut self) -> Vec<Outgoing> {
        self.seal_at(0);
        self.queued_bytes = 0;
        std::mem::take(&mut self.messages)
    }

    /// Takes back the room of messages that were sent, so that a turn of few allocates none.
    pub(super) fn reuse(&mut self, sent: Vec<Outgoing>) {
        if sent.is_empty() && self.messages.is_empty() && sent.capacity() <= REUSED_MAX {
            self.messages = sent;
        }
    }
}

/// The texts of records, made once for all JSON readers.
fn message_texts(slices: &[RecordSlice]) -> Result<Texts, BatchError> {
    Texts::of(slices, |text, record, partition| text.push_str(&json::message_text(record, partition)))
}

/// Puts bytes behind a message: a part of it, unless they are few. Returns how many bytes became parts.
fn put_part(parts: &mut Vec<Bytes>, message: &mut BytesMut, part: &Bytes) -> usize {
    if part.len() <= COPIED_BYTES_MAX {
        message.extend_from_slice(part);
        return 0;
    }
    let head = message.split().freeze();
    let bytes = head.len() + part.len();
    parts.extend([head, part.clone()]);
    bytes
}

/// What the next run has in a slice; taken from it.
fn part_within(runs: &mut Peekable<impl Iterator<Item = LeaseRun>>, slice: &RecordSlice) -> Option<LeaseRun> {
    let run = runs.peek_mut().filter(|run| run.first < slice.end())?;
    let count = run.end().min(slice.end()).0 - run.first.0;
    let part = LeaseRun { count: u32::try_from(count).expect("no more than the run's"), ..*run };
    if part.count == run.count {
        runs.next();
    } else {
        *run =
            LeaseRun { first: part.end(), fence: run.fence + count, count: run.count - part.count, ..part };
    }
    Some(part)
}

/// The term of records that are not all committed.
fn staged_in(slice: &RecordSlice) -> Option<Term> {
    (slice.end() > slice.committed_end).then_some(slice.term)
}

#[cfg(test)]
mod tests;
