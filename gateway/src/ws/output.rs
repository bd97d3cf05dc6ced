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

use crate::service::read::{Parcel, RecordSlice};
use crate::service::subscriptions::Leased;

/// A message of several frames is sealed at this many bytes; one frame may overshoot.
const MESSAGE_BYTES: usize = 128 << 10;
/// A frame of records is sealed at this many bytes of payload.
const FRAME_BYTES: u64 = 64 << 10;
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
            (Form::Json, _) => return self.deliver_json(ch, n, parcel.slices()),
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
mod tests {
    use std::sync::Arc;

    use weir_protocol::batch::{Batch, BatchBuilder, Compression, Headers, HeadersBuilder, RecordParts};
    use weir_protocol::ids::{Offset, PartitionId, TimestampMs};
    use weir_protocol::ws::CaughtUp;

    use super::*;
    use crate::service::read::SharedParcel;

    fn slice(first: u64, take: u32, committed_end: u64) -> RecordSlice {
        let mut builder = BatchBuilder::anonymous();
        let mut headers = HeadersBuilder::default();
        headers.content_type("application/json");
        let headers = headers.finish();
        for i in 0..4 {
            let value = format!("{{\"i\":{i},\"big\":9007199254740993.10}}");
            builder.push(RecordParts { key: None, headers: &headers, value: value.as_bytes() }).unwrap();
        }
        let placed =
            builder.build(Compression::Lz4).unwrap().placed(Offset(10), TimestampMs(5), PartitionId(2));
        RecordSlice {
            partition: PartitionId(2),
            batch: Batch::parse(placed.concat().into()).unwrap(),
            first: Offset(first),
            take,
            committed_end: Offset(committed_end),
            term: Term(3),
        }
    }

    #[test]
    fn json_keeps_every_digit_and_tells_what_may_still_change() {
        let mut output = Output::new(Form::Json);
        output.deliver(Channel(7), 41, Parcel::Own(vec![slice(11, 3, 13)])).unwrap();
        let messages = output.take();
        let Outgoing::Message(Message::Text(text)) = &messages[0] else { panic!("{messages:?}") };
        assert_eq!(text.matches("9007199254740993.10").count(), 3, "{text}");
        let frames: Vec<_> = json::server_frames(text).map(Result::unwrap).collect();
        let [(Channel(7), ServerFrame::Msgs(Msgs { msgs }))] = &frames[..] else { panic!("{frames:?}") };
        let seen: Vec<_> = msgs.iter().map(|msg| (msg.n, msg.o, msg.p, msg.lvl, msg.term)).collect();
        let quorum = |n, o| (n, o, 2, Level::Quorum, None);
        assert_eq!(seen, [quorum(41, 11), quorum(42, 12), (43, 13, 2, Level::Memory, Some(3))]);
        assert_eq!(output.queued_bytes(), 0);
    }

    #[test]
    fn binary_passes_batches_on_as_they_are() {
        let mut output = Output::new(Form::Binary);
        let (firm, staged) = (slice(10, 4, 99), slice(10, 2, 11));
        output.deliver(Channel(7), 1, Parcel::Own(vec![firm.clone(), staged.clone()])).unwrap();
        let messages = output.take();
        let Outgoing::Message(Message::Binary(bytes)) = &messages[0] else { panic!("{messages:?}") };
        let mut bytes = bytes.clone();
        let mut frames = Vec::new();
        while let Some((_, ServerFrame::Deliveries(frame))) = binary::take_server_frame(&mut bytes).unwrap() {
            frames.push(frame);
        }
        assert_eq!(
            frames.iter().map(|frame| (frame.n, frame.staged)).collect::<Vec<_>>(),
            [(1, None), (5, Some(Term(3)))]
        );
        assert_eq!(frames[0].slices[0].batch[0], *firm.batch.bytes());
        assert_eq!(frames[1].slices[0].take, 2);
    }

    /// All bytes of a binary message, in parts or not.
    fn whole(outgoing: &Outgoing) -> Bytes {
        match outgoing {
            Outgoing::Message(Message::Binary(bytes)) => bytes.clone(),
            Outgoing::Parts(parts) => parts.concat().into(),
            Outgoing::Message(other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_readers_share_reads_as_what_each_would_be_sent_alone() {
        for count in [1, 40, 3_000] {
            let slices = vec![slice(11, 3, 99); count];
            let shared = Arc::new(SharedParcel::new(slices.clone()).unwrap().expect("all are committed"));
            let frames_of = |parcel: Parcel| {
                let mut output = Output::new(Form::Binary);
                output.put(Channel(7), &ServerFrame::CaughtUp(CaughtUp { p: 2, end: 14, closed: false }));
                output.deliver(Channel(7), 41, parcel).unwrap();
                output.put(Channel(7), &ServerFrame::CaughtUp(CaughtUp { p: 2, end: 14, closed: false }));
                let messages = output.take();
                assert_eq!(output.queued_bytes(), 0);
                let mut frames = Vec::new();
                for message in &messages {
                    let mut bytes = whole(message);
                    assert_eq!(bytes.len(), message.len());
                    while let Some(frame) = binary::take_server_frame(&mut bytes).unwrap() {
                        frames.push(frame);
                    }
                }
                (frames, messages.iter().any(|message| matches!(message, Outgoing::Parts(_))))
            };
            let (frames, has_parts) = frames_of(Parcel::Shared(shared));
            assert_eq!(frames, frames_of(Parcel::Own(slices)).0);
            assert_eq!(has_parts, count > 1, "small ones are copied");
        }
    }

    #[test]
    fn what_may_be_taken_back_is_not_shared() {
        assert!(SharedParcel::new(vec![slice(10, 2, 11)]).unwrap().is_none());
    }

    fn leased() -> Leased {
        let run =
            |offset, fence, count, attempt| GrantRun { offset, fence, count, attempt, expires_in_ms: 60_000 };
        let mut second = slice(10, 4, 99);
        let placed = second.batch.unplaced().placed(Offset(14), TimestampMs(5), PartitionId(2));
        second.batch = Batch::parse(placed.concat().into()).unwrap();
        second.first = Offset(14);
        Leased {
            part: 0,
            topic: None,
            partition: PartitionId(2),
            slices: vec![slice(10, 4, 99), second],
            runs: vec![run(10, 70, 1, 1), run(12, 71, 3, 2)],
            received: tokio::time::Instant::now(),
            count: 4,
            bytes: 1,
        }
    }

    #[test]
    fn leased_records_have_their_leases_in_both_forms_and_no_others_are_seen() {
        let lease = |lease: Option<weir_protocol::ws::Lease>| {
            let lease = lease.unwrap();
            assert!((50_000..=60_000).contains(&lease.ms), "{lease:?}");
            (lease.attempt, lease.fence)
        };
        let expected = [(1, 10, (1, 70)), (2, 12, (2, 71)), (3, 13, (2, 72)), (4, 14, (2, 73))];

        let mut output = Output::new(Form::Json);
        output.deliver_leased(Channel(7), 1, leased()).unwrap();
        let messages = output.take();
        let Outgoing::Message(Message::Text(text)) = &messages[0] else { panic!("{messages:?}") };
        let frames: Vec<_> = json::server_frames(text).map(Result::unwrap).collect();
        let [(_, ServerFrame::Msgs(Msgs { msgs }))] = &frames[..] else { panic!("{frames:?}") };
        let seen: Vec<_> = msgs.iter().map(|msg| (msg.n, msg.o, lease(msg.lease))).collect();
        assert_eq!(seen, expected);

        let mut output = Output::new(Form::Binary);
        output.deliver_leased(Channel(7), 1, leased()).unwrap();
        let messages = output.take();
        let Outgoing::Message(Message::Binary(bytes)) = &messages[0] else { panic!("{messages:?}") };
        let (_, frame) = binary::take_server_frame(&mut bytes.clone()).unwrap().unwrap();
        let ServerFrame::Deliveries(frame) = frame else { panic!("{frame:?}") };
        let records = frame.records().unwrap();
        let seen: Vec<_> =
            (1..).zip(records).map(|(n, (record, of))| (n, record.offset.0, lease(of))).collect();
        assert_eq!(seen, expected);
    }

    #[test]
    fn large_batches_go_out_from_where_they_are() {
        let mut builder = BatchBuilder::anonymous();
        for _ in 0..4 {
            builder
                .push(RecordParts { key: None, headers: &Headers::default(), value: &[b'v'; 1_000] })
                .unwrap();
        }
        let built = builder.build(Compression::None).unwrap();
        let placed = built.placed(Offset(10), TimestampMs(5), PartitionId(2)).concat();
        let large = RecordSlice { batch: Batch::parse(placed.into()).unwrap(), ..slice(10, 4, 99) };
        let as_leased = |output: &mut Output| {
            let slices = vec![large.clone(), leased().slices.remove(1)];
            output.deliver_leased(Channel(7), 1, Leased { slices, ..leased() })
        };
        let as_read = |output: &mut Output| {
            output.deliver(Channel(7), 1, Parcel::Own(vec![large.clone(), slice(10, 4, 99), large.clone()]))
        };
        for (is_leased, times) in [(true, 1), (false, 2)] {
            let mut output = Output::new(Form::Binary);
            if is_leased { as_leased(&mut output) } else { as_read(&mut output) }.unwrap();
            let messages = output.take();
            let [Outgoing::Parts(parts)] = &messages[..] else { panic!("{messages:?}") };
            let is_it = |part: &&Bytes| part.as_ptr() == large.batch.bytes().as_ptr();
            assert_eq!(parts.iter().filter(is_it).count(), times);
            let sent = whole(&messages[0]);
            let (ch, frame) = binary::take_server_frame(&mut sent.clone()).unwrap().unwrap();
            let mut copied = BytesMut::new();
            binary::put_server_frame(&mut copied, ch, &frame);
            assert_eq!(sent, copied, "the same bytes as if they were copied");
        }
    }

    #[test]
    fn a_json_message_is_one_frame_unless_its_client_takes_several() {
        let caught_up = ServerFrame::CaughtUp(CaughtUp { p: 2, end: 14, closed: false });
        for (takes_several, messages) in [(false, 3), (true, 1)] {
            let mut output = Output::new(Form::Json);
            if takes_several {
                output.batch();
            }
            output.put(Channel(7), &caught_up);
            output.deliver(Channel(7), 1, Parcel::Own(vec![slice(10, 4, 99)])).unwrap();
            output.put(Channel(7), &caught_up);
            let sent = output.take();
            assert_eq!(sent.len(), messages, "{sent:?}");
            let texts = sent.iter().map(|sent| match sent {
                Outgoing::Message(Message::Text(text)) => text.as_str(),
                other => panic!("{other:?}"),
            });
            assert_eq!(texts.flat_map(|text| text.lines()).filter(|line| line.ends_with('}')).count(), 3);
        }
    }

    #[test]
    fn many_records_become_several_frames_and_messages() {
        for form in [Form::Json, Form::Binary] {
            let mut output = Output::new(form);
            output.batch();
            let slices = vec![slice(10, 4, 99); 3_000];
            output.deliver(Channel(1), 1, Parcel::Own(slices)).unwrap();
            assert!(output.queued_bytes() > 2 * MESSAGE_BYTES);
            let sizes: Vec<_> = output.take().iter().map(Outgoing::len).collect();
            let most = MESSAGE_BYTES + 4 * usize::try_from(FRAME_BYTES).unwrap();
            assert!(sizes.len() > 1 && sizes.iter().all(|size| *size <= most), "{sizes:?}");
        }
    }
}
