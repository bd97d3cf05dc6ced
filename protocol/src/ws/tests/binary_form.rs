//! What only the binary form has: headers, and batches that are delivered as they are stored.

use super::*;

fn header(kind: u8, flags: u8, ch: u16, arg: u64, body: &[u8]) -> Bytes {
    let len = body.len() as u32;
    let head = [&[kind, flags][..], &ch.to_le_bytes(), &len.to_le_bytes(), &arg.to_le_bytes()].concat();
    [&head[..], body].concat().into()
}

#[test]
fn binary_headers_are_checked() {
    let client = |kind, flags, ch, arg, body: &[u8]| {
        binary::take_client_frame(&mut header(kind, flags, ch, arg, body)).unwrap_err()
    };
    assert_eq!(client(0, 0, 0, 0, b""), WsError::UnknownType(0));
    assert_eq!(client(0x83, 0, 1, 0, b""), WsError::Misplaced(FrameType::Confirm));
    assert_eq!(client(16, 1, 0, 0, b""), WsError::Flags { frame: FrameType::Bye, flags: 1 });
    assert_eq!(client(16, 0, 0, 1, b""), WsError::Body(FrameType::Bye));
    assert_eq!(client(16, 0, 0, 0, b"\xff"), WsError::Body(FrameType::Bye));
    assert_eq!(client(5, 0, 1, 0, &[0; 15]), WsError::Body(FrameType::Limit));
    assert!(matches!(client(3, 0, 1, 0, &[0; 80]), WsError::Batch { frame: FrameType::Pub, .. }));
    let named = client(16, 0, 0, 0, br#"{"t":"bye"}"#).to_string();
    assert!(named.contains("unknown field `t`"), "the header already says it: {named}");
    let server = |kind, flags, body: &[u8]| {
        binary::take_server_frame(&mut header(kind, flags, 1, 0, body)).unwrap_err()
    };
    let both = server(0x88, 3, b"");
    assert_eq!(both, WsError::Flags { frame: FrameType::Msgs, flags: 3 }, "leased records are committed");
    assert_eq!(server(0x88, 2, b""), WsError::Body(FrameType::Msgs));
    assert_eq!(server(0x88, 2, &[0; 8]), WsError::Body(FrameType::Msgs), "no leases");
    assert_eq!(server(0x88, 0, b""), WsError::Body(FrameType::Msgs));
    assert_eq!(server(0x87, 0, b"{}"), WsError::Misplaced(FrameType::Msg));
    assert_eq!(server(0x83, 0, &[0; 48]), WsError::Body(FrameType::Confirm), "level 0");
}

#[test]
fn a_range_outside_its_batch_is_refused() {
    for (first, take) in [(9, 1), (14, 1), (10, 5), (10, 0), (u64::MAX, 1)] {
        let mut wrong = deliveries();
        wrong.slices[0].first = Offset(first);
        wrong.slices[0].take = take;
        let message = bytes(&[(Channel(1), ServerFrame::Deliveries(wrong))], binary::put_server_frame);
        let refused = take_all(message, binary::take_server_frame);
        assert_eq!(refused, Err(WsError::Body(FrameType::Msgs)), "{first} {take}");
    }
}

#[test]
fn the_topic_is_told_where_there_are_several() {
    let topic = Name::new("orders.eu").unwrap();
    let frame = ServerFrame::Deliveries(Deliveries { topic: Some(topic.clone()), ..leased() });
    let message = bytes(&[(Channel(2), frame.clone())], binary::put_server_frame);
    let taken = take_all(message.clone(), binary::take_server_frame).unwrap();
    let [(Channel(2), ServerFrame::Deliveries(back))] = &taken[..] else { panic!("{taken:?}") };
    assert_eq!((back.topic.as_ref(), &back.leases), (Some(&topic), &leased().leases));
    let at = message.windows(9).position(|window| window == b"orders.eu").unwrap();
    let mut wrong = message.to_vec();
    wrong[at] = b'/';
    assert!(take_all(wrong.into(), binary::take_server_frame).is_err(), "no name");
    let lease = LeaseRef { topic: Some("orders".into()), p: 1, o: 18, fence: 982 };
    let ack = ClientFrame::Ack(Ack { leases: vec![lease], ..Ack::default() });
    let mut line = String::new();
    json::put_client_frame(&mut line, Channel(1), &ack);
    assert!(line.contains(r#""topic":"orders""#), "{line}");
}

#[test]
fn leases_outside_their_ranges_are_refused() {
    let run = leased().leases[0];
    let wrong = |leases: Vec<LeaseRun>| {
        let frame = Deliveries { leases, ..leased() };
        let message = bytes(&[(Channel(1), ServerFrame::Deliveries(frame))], binary::put_server_frame);
        take_all(message, binary::take_server_frame)
    };
    assert!(wrong(vec![run]).is_ok());
    for leases in [
        vec![LeaseRun { first: Offset(10), ..run }],
        vec![LeaseRun { count: 3, ..run }],
        vec![LeaseRun { count: 0, ..run }],
        vec![LeaseRun { attempt: 0, ..run }],
        vec![LeaseRun { fence: u64::MAX, ..run }],
        vec![LeaseRun { first: Offset(u64::MAX), ..run }],
        vec![run, run],
        vec![leased().leases[1], run],
    ] {
        assert_eq!(wrong(leases.clone()), Err(WsError::Body(FrameType::Msgs)), "{leases:?}");
    }
}

#[test]
fn only_leased_records_are_seen_each_with_its_lease() {
    let seen: Vec<_> = leased().records().unwrap();
    let seen: Vec<_> = seen.into_iter().map(|(record, lease)| (record.offset.0, lease.unwrap())).collect();
    let lease = |fence| Lease { ms: 30_000, attempt: 2, fence };
    assert_eq!(seen, [(11, lease(981)), (20, lease(1 << 40))]);
    assert_eq!(leased().count(), 2);
    assert!(deliveries().records().unwrap().iter().all(|(_, lease)| lease.is_none()));
}

#[test]
fn delivered_batches_are_not_copied_and_only_the_records_meant_are_seen() {
    let mut message = bytes(&[(Channel(2), ServerFrame::Deliveries(deliveries()))], binary::put_server_frame);
    let memory = message.as_ptr_range();
    let (_, frame) = binary::take_server_frame(&mut message).unwrap().unwrap();
    let ServerFrame::Deliveries(read) = frame else { panic!("{frame:?}") };
    assert!(read.slices.iter().all(|slice| memory.contains(&slice.batch[0].as_ptr())));
    assert_eq!((read.count(), read.staged), (3, Some(Term(4))));
    let seen: Vec<_> = read
        .slices
        .iter()
        .flat_map(|slice| slice.records().unwrap())
        .map(|record| record.map(|it| (it.offset.0, it.value)).unwrap())
        .collect();
    assert_eq!(seen, [(11, "b".into()), (12, "c".into()), (20, "e".into())]);
    let sent = deliveries().slices[0].records().unwrap().count();
    assert_eq!(sent, 2, "a batch in two parts reads the same");
}

#[test]
fn every_truncation_is_refused_or_ends_between_frames() {
    let message = bytes(&client_binary(), binary::put_client_frame);
    let mut ends = vec![0];
    client_binary().iter().for_each(|frame| {
        ends.push(ends[ends.len() - 1] + bytes(std::slice::from_ref(frame), binary::put_client_frame).len())
    });
    for cut in 0..message.len() {
        let read = take_all(message.slice(..cut), binary::take_client_frame);
        assert_eq!(read.is_ok(), ends.contains(&cut), "cut at {cut}");
    }
    let message = bytes(&server_binary(), binary::put_server_frame);
    let whole = take_all(message.clone(), binary::take_server_frame).unwrap().len();
    for cut in 0..message.len() {
        if let Ok(frames) = take_all(message.slice(..cut), binary::take_server_frame) {
            assert!(frames.len() < whole, "cut at {cut}");
        }
    }
}
