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
    let placed = builder.build(Compression::Lz4).unwrap().placed(Offset(10), TimestampMs(5), PartitionId(2));
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
fn json_that_readers_share_says_what_each_would_be_told_alone() {
    for count in [1, 2, 3_000] {
        let slices = vec![if count == 1 { slice(12, 1, 99) } else { slice(11, 3, 99) }; count];
        let shared = Arc::new(SharedParcel::new(slices.clone()).unwrap().expect("all are committed"));
        let frames_of = |parcel: Parcel, ch| {
            let mut output = Output::new(Form::Json);
            output.deliver(Channel(ch), 41, parcel).unwrap();
            assert!(output.queued_bytes() > 0);
            let msgs = output.take().into_iter().flat_map(|message| {
                let Outgoing::Message(Message::Text(text)) = message else { panic!("{message:?}") };
                let frames: Vec<_> = json::server_frames(&text).map(Result::unwrap).collect();
                let [(Channel(number), frame)] = &frames[..] else { panic!("{frames:?}") };
                assert_eq!(*number, ch);
                match frame {
                    ServerFrame::Msg(msg) => vec![(**msg).clone()],
                    ServerFrame::Msgs(msgs) => msgs.msgs.clone(),
                    other => panic!("{other:?}"),
                }
            });
            msgs.collect::<Vec<_>>()
        };
        let alone = frames_of(Parcel::Own(slices), 7);
        for ch in [7, 8] {
            assert_eq!(frames_of(Parcel::Shared(Arc::clone(&shared)), ch), alone);
        }
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
    let seen: Vec<_> = (1..).zip(records).map(|(n, (record, of))| (n, record.offset.0, lease(of))).collect();
    assert_eq!(seen, expected);
}

#[test]
fn large_batches_go_out_from_where_they_are() {
    let mut builder = BatchBuilder::anonymous();
    for _ in 0..4 {
        builder.push(RecordParts { key: None, headers: &Headers::default(), value: &[b'v'; 1_000] }).unwrap();
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
