#![expect(clippy::disallowed_methods, reason = "golden files and seeds are read in tests")]
mod binary_form;
mod content;

use bytes::{Bytes, BytesMut};
use proptest::prelude::*;

use super::*;
use crate::batch::{Batch, BatchBuilder, Compression, Headers, HeadersBuilder, RecordParts, Reserved};
use crate::ids::{Epoch, Name, Offset, PartitionId, ProducerKey, Seq, Term, TimestampMs};
use crate::rpc::{At, Level};
use crate::start::Start;

fn raw(json: &str) -> RawJson {
    RawJson::from_text(json).unwrap()
}

fn batch(values: &[&str]) -> Batch {
    let mut builder = BatchBuilder::new(ProducerKey(7), Epoch(3), Seq(118));
    for value in values {
        let parts = RecordParts { key: Some(b"k"), headers: &Headers::default(), value: value.as_bytes() };
        builder.push(parts).unwrap();
    }
    builder.build(Compression::None).unwrap()
}

fn range(first: u64, last: u64) -> NumberRange {
    NumberRange { first, last }
}

const CREDIT: Limit = Limit { msgs: 500, bytes: 1_048_576 };

fn hello() -> Hello {
    let limit = Some(Limit { msgs: 1_500, bytes: 3_145_728 });
    let seen = vec![
        Seen { p: 0, o: 76_531, term: Some(4), firm: Some(76_530) },
        Seen { p: 1, o: 9, ..Seen::default() },
    ];
    let acked = vec![range(1, 8_990), range(8_992, 8_992)];
    let publishing = ResumeChannel { ch: 1, ..Default::default() };
    Hello {
        v: 1,
        token: Some(Secret("t".into())),
        client: Some("js/1.0".into()),
        batch: false,
        resume: Some("rt_1".into()),
        channels: vec![publishing, ResumeChannel { ch: 2, inc: None, n: Some(9_001), seen, acked, limit }],
    }
}

/// Every frame of a client that both forms have.
fn client_frames() -> Vec<(Channel, ClientFrame)> {
    let connection = |frame| (Channel::CONNECTION, frame);
    let channel = |frame| (Channel(2), frame);
    vec![
        connection(ClientFrame::Hello(hello())),
        channel(ClientFrame::Open(Open {
            ns: Some("shop".into()),
            topic: "orders".into(),
            producer: Some(Producer { id: "tab-9".into(), epoch: 0 }),
            confirm: vec![Level::Memory, Level::Quorum],
        })),
        channel(ClientFrame::Sub(Sub {
            topic: Some("orders".into()),
            p: Some(3),
            from: Some(Start::At(At::Tail(10))),
            min_level: Some(Level::Quorum),
            limit: CREDIT,
            ..Default::default()
        })),
        channel(ClientFrame::Sub(Sub {
            sub: Some("billing".into()),
            lease_ms: Some(60_000),
            holder: Some("worker-7".into()),
            limit: CREDIT,
            ..Default::default()
        })),
        channel(ClientFrame::Limit(Limit { msgs: 1_500, bytes: 3_145_728 })),
        channel(ClientFrame::Ack(Ack {
            n: vec![range(8_990, 9_001), range(9_003, 9_003)],
            cum: false,
            leases: vec![LeaseRef { p: 0, o: 17, fence: 981, topic: None }],
        })),
        channel(ClientFrame::Nack(Nack {
            n: vec![range(9_002, 9_002)],
            delay_ms: Some(5_000),
            ..Default::default()
        })),
        channel(ClientFrame::Extend(Extend {
            n: vec![range(8_990, 9_001)],
            ms: 60_000,
            ..Default::default()
        })),
        channel(ClientFrame::Dead(Dead {
            n: vec![range(9_004, 9_004)],
            leases: vec![LeaseRef { p: 1, o: 18, fence: 982, topic: None }],
            reason: Some("no such customer".into()),
        })),
        channel(ClientFrame::Seek(Seek { from: Start::Cursor("AAE".into()) })),
        channel(ClientFrame::Pause(Pause { on: false })),
        channel(ClientFrame::Unsub(Unsub {})),
        channel(ClientFrame::ClosePub(ClosePub {})),
        connection(ClientFrame::Auth(Auth { token: Secret("t2".into()) })),
        connection(ClientFrame::Ping(ClientPing { id: 5 })),
        connection(ClientFrame::Pong(Pong { id: 6 })),
        connection(ClientFrame::Bye(Bye { why: None })),
    ]
}

fn publish() -> Pub {
    Pub {
        seq: 118,
        key: Some("cust-42".into()),
        h: HeaderMap(vec![("z".into(), "1".into()), ("a".into(), "é".into())]),
        data: Some(raw(r#"{"total":9007199254740993.10,"b":null}"#)),
        deliver_at: Some(1_787_654_321_123),
        ttl_ms: Some(60_000),
        ..Default::default()
    }
}

fn client_json() -> Vec<(Channel, ClientFrame)> {
    let mut frames = client_frames();
    frames.push((Channel(1), ClientFrame::Pub(publish())));
    frames
}

fn client_binary() -> Vec<(Channel, ClientFrame)> {
    let mut frames = client_frames();
    let batch = batch(&["first", "second"]);
    frames.push((Channel(1), ClientFrame::PubBatch { first_seq: Seq(118), batch }));
    frames
}

fn confirm() -> Confirm {
    Confirm {
        upto: Some(240),
        level: Level::Quorum,
        term: None,
        base: vec![Base { seq: 118, n: 60, p: 0, o: 76_531 }, Base { seq: 178, n: 63, p: 1, o: 7 }],
        us: StageMicros { gw: 70, net: 110, queue: 380, write: 40, fsync: 550, quorum: 0, total: 1_210 },
    }
}

/// Every frame of a gateway that both forms have.
fn server_frames() -> Vec<(Channel, ServerFrame)> {
    let connection = |frame| (Channel::CONNECTION, frame);
    let channel = |frame| (Channel(2), frame);
    let problem = raw(r#"{"status":409,"code":"seq_overlap","outcome":"none"}"#);
    let limits =
        Limits { message_bytes: 1 << 22, record_bytes: 1 << 20, batch_records: 10_000, channels: 1_000 };
    vec![
        connection(ServerFrame::Welcome(Welcome {
            sid: "s1".into(),
            resume: "rt_2".into(),
            grace_ms: 30_000,
            hb_ms: 20_000,
            now: 1_787_654_321_123,
            limits,
        })),
        channel(ServerFrame::Opened(Opened { last_seq: None, inc: 7, partitions: 2, pub_limit: CREDIT })),
        channel(ServerFrame::Confirm(confirm())),
        channel(ServerFrame::Confirm(Confirm {
            upto: None,
            level: Level::Memory,
            term: Some(4),
            ..confirm()
        })),
        channel(ServerFrame::Reject(Reject { seq: 241, n: 1, problem: problem.clone() })),
        channel(ServerFrame::PubLimit(Limit { msgs: 3_000, bytes: 9_437_184 })),
        channel(ServerFrame::Subscribed(Subscribed {
            inc: 7,
            parts: vec![Part { p: 0, start: 5, tail: 9 }, Part { p: 1, start: 0, tail: 0 }],
            recovered: true,
            ..Default::default()
        })),
        channel(ServerFrame::Settled(Settled {
            upto: 9_001,
            n: vec![range(8_990, 9_001)],
            leases: vec![LeaseRef { p: 0, o: 17, fence: 981, topic: None }],
        })),
        channel(ServerFrame::LeaseLost(LeaseLost { n: vec![range(8_991, 8_991)], lost: lost() })),
        channel(ServerFrame::Extended(Extended {
            n: vec![range(8_990, 9_001)],
            ms: 60_000,
            ..Default::default()
        })),
        channel(ServerFrame::Gap(Gap { p: 0, from: 5, to: 9, why: "retention".into() })),
        channel(ServerFrame::CaughtUp(CaughtUp { p: 0, end: 9, closed: false })),
        channel(ServerFrame::Retract(Retract { p: 0, from: 8, to: 11, term: 4 })),
        channel(ServerFrame::Firm(Firm { p: 0, upto: 8 })),
        channel(ServerFrame::Moved(Moved { why: "leader".into() })),
        connection(ServerFrame::Goaway(Goaway { deadline_ms: 15_000, why: "drain".into() })),
        connection(ServerFrame::AuthExpiring(AuthExpiring { in_ms: 60_000 })),
        channel(ServerFrame::Err(Problem { problem: problem.clone() })),
        connection(ServerFrame::Err(Problem { problem })),
        connection(ServerFrame::Ping(ServerPing {
            id: 1,
            now: 1_787_654_321_123,
            tails: vec![Tail { ch: 2, p: 0, tail: 76_540 }],
            throttled: true,
        })),
        connection(ServerFrame::Pong(Pong { id: 5 })),
        channel(ServerFrame::Looked(Looked { p: 3, upto: 8192 })),
        channel(ServerFrame::Share(ShareChange {
            gained: vec![PartitionOf { topic: None, p: 2 }],
            lost: vec![PartitionOf { topic: Some("orders".into()), p: 0 }],
        })),
    ]
}

fn lost() -> Vec<Lost> {
    let lost = Lost {
        n: Some(8_991),
        topic: None,
        p: 0,
        o: 7,
        fence: 5,
        result: LostResult::LeaseLost,
        current: None,
    };
    let current = Some(Takeover { attempt: 2, fence: 990 });
    let by_itself = Lost { n: None, o: 9, ..lost.clone() };
    vec![
        Lost { current, ..lost.clone() },
        Lost { result: LostResult::AlreadySettled, ..by_itself.clone() },
        Lost { result: LostResult::Unknown, ..by_itself },
    ]
}

fn msg() -> Msg {
    Msg {
        topic: None,
        n: 9_001,
        o: 76_531,
        ts: 1_787_654_321_123,
        lvl: Level::Memory,
        term: Some(4),
        size: 52,
        key: Some("cust-42".into()),
        ct: Some("application/json".into()),
        data: Some(raw(r#"{"total":9007199254740993}"#)),
        lease: Some(Lease { ms: 30_000, attempt: 1, fence: 981 }),
        ..Default::default()
    }
}

fn server_json() -> Vec<(Channel, ServerFrame)> {
    let mut frames = server_frames();
    frames.push((Channel(2), ServerFrame::Msg(Box::new(msg()))));
    frames.push((
        Channel(2),
        ServerFrame::Msgs(Msgs { msgs: vec![msg(), Msg { data: Some(raw("null")), ..msg() }] }),
    ));
    frames
}

fn deliveries() -> Deliveries {
    let place =
        |batch: &Batch, offset| batch.placed(Offset(offset), TimestampMs(1_787_654_321_123), PartitionId(4));
    Deliveries {
        n: 9_001,
        staged: Some(Term(4)),
        leases: Vec::new(),
        topic: None,
        slices: vec![
            Delivery { first: Offset(11), take: 2, batch: place(&batch(&["a", "b", "c", "d"]), 10) },
            Delivery { first: Offset(20), take: 1, batch: place(&batch(&["e"]), 20) },
        ],
    }
}

#[test]
fn a_body_laid_out_for_everybody_is_that_of_each_frame_and_gives_its_batches_back() {
    let frame = Deliveries { staged: None, ..deliveries() };
    let body = DeliveriesBody::of(frame.slices.clone());
    assert_eq!(body.count(), frame.count());
    let mut message = BytesMut::new();
    message.extend_from_slice(&binary::deliveries_head(Channel(2), 9_001, &body));
    message.extend_from_slice(body.bytes());
    let batches: Vec<_> = body.batches().collect();
    let slices = frame.slices.iter().map(|slice| slice.parsed().unwrap().bytes().clone());
    assert_eq!(batches, slices.collect::<Vec<_>>());
    assert_eq!(
        message.freeze(),
        bytes(&[(Channel(2), ServerFrame::Deliveries(frame))], binary::put_server_frame)
    );
}

/// Of the records 11 and 12 the first is leased, and with 20 the third.
fn leased() -> Deliveries {
    let run = |first, fence| LeaseRun { first: Offset(first), fence, count: 1, attempt: 2, ms: 30_000 };
    Deliveries { staged: None, leases: vec![run(11, 981), run(20, 1 << 40)], ..deliveries() }
}

fn server_binary() -> Vec<(Channel, ServerFrame)> {
    let mut frames = server_frames();
    frames.push((Channel(2), ServerFrame::Deliveries(deliveries())));
    frames.push((Channel(2), ServerFrame::Deliveries(leased())));
    frames
}

fn text<F>(frames: &[(Channel, F)], put: fn(&mut String, Channel, &F)) -> String {
    let mut message = String::new();
    frames.iter().for_each(|(ch, frame)| put(&mut message, *ch, frame));
    message
}

fn bytes<F>(frames: &[(Channel, F)], put: fn(&mut BytesMut, Channel, &F)) -> Bytes {
    let mut message = BytesMut::new();
    frames.iter().for_each(|(ch, frame)| put(&mut message, *ch, frame));
    message.freeze()
}

type Take<F> = fn(&mut Bytes) -> Result<Option<(Channel, F)>, WsError>;

fn take_all<F>(mut message: Bytes, take: Take<F>) -> Result<Vec<(Channel, F)>, WsError> {
    std::iter::from_fn(|| take(&mut message).transpose()).collect()
}

/// Batches of deliveries come back in one part: compares them as one.
fn joined(mut frames: Vec<(Channel, ServerFrame)>) -> Vec<(Channel, ServerFrame)> {
    for (_, frame) in &mut frames {
        if let ServerFrame::Deliveries(deliveries) = frame {
            for slice in &mut deliveries.slices {
                slice.batch = [slice.batch.concat().into(), Bytes::new()];
            }
        }
    }
    frames
}

fn refused(line: &str) -> WsError {
    json::client_frames(line).last().unwrap().unwrap_err()
}

#[test]
fn every_frame_round_trips_in_json() {
    let message = text(&client_json(), json::put_client_frame);
    assert_eq!(message.lines().count(), client_json().len(), "a frame is a line");
    let read: Result<Vec<_>, _> = json::client_frames(&message).collect();
    assert_eq!(read.unwrap(), client_json());
    let message = text(&server_json(), json::put_server_frame);
    let read: Result<Vec<_>, _> = json::server_frames(&message).collect();
    assert_eq!(read.unwrap(), server_json());
}

#[test]
fn every_frame_round_trips_in_binary() {
    let message = bytes(&client_binary(), binary::put_client_frame);
    assert_eq!(take_all(message, binary::take_client_frame).unwrap(), client_binary());
    let message = bytes(&server_binary(), binary::put_server_frame);
    assert_eq!(take_all(message, binary::take_server_frame).unwrap(), joined(server_binary()));
}

#[test]
fn the_samples_above_cover_every_frame_type() {
    for &frame in FrameType::ALL {
        let sent = client_json().iter().any(|(_, it)| it.frame_type() == frame)
            || server_json().iter().any(|(_, it)| it.frame_type() == frame);
        assert!(sent, "{frame:?}");
        assert_eq!(FrameType::from_number(frame as u8), Some(frame));
        assert_eq!(FrameType::from_text(frame.as_str()), Some(frame));
    }
}

#[test]
fn the_published_examples_are_understood() {
    for line in [
        r#"{"t":"hello","v":1,"token":"…","client":"js/1.0","resume":null}"#,
        r#"{"t":"open","ch":1,"ns":"shop","topic":"orders","producer":{"id":"tab-9","epoch":0},"confirm":["quorum"]}"#,
        r#"{"t":"pub","ch":1,"seq":118,"key":"cust-42","data":{"a":1}}"#,
        r#"{"t":"sub","ch":2,"ns":"shop","topic":"orders","from":"latest","min_level":"quorum","limit":{"msgs":500,"bytes":1048576}}"#,
        r#"{"t":"sub","ch":2,"ns":"shop","sub":"billing","from":76531,"limit":{"msgs":0,"bytes":0}}"#,
        r#"{"t":"limit","ch":2,"msgs":1500,"bytes":3145728}"#,
        r#"{"t":"ack","ch":2,"n":[[8990,9001]],"cum":false}"#,
        r#"{"t":"nack","ch":2,"n":[9002],"delay_ms":5000}"#,
        r#"{"t":"extend","ch":2,"n":[[8990,9001]],"ms":60000}"#,
    ] {
        json::client_frames(line).for_each(|frame| drop(frame.unwrap()));
    }
    for line in [
        r#"{"t":"welcome","sid":"s","resume":"rt_1","grace_ms":30000,"hb_ms":20000,"now":1,"limits":{"message_bytes":1,"record_bytes":1,"batch_records":1,"channels":1,"later":1}}"#,
        r#"{"t":"opened","ch":1,"last_seq":117,"inc":7,"partitions":1,"pub_limit":{"msgs":1000,"bytes":4194304}}"#,
        r#"{"t":"confirm","ch":1,"upto":240,"level":"quorum","base":[{"seq":118,"n":60,"p":0,"o":76531}],"us":{"queue":380,"fsync":550,"total":1210}}"#,
        r#"{"t":"settled","ch":2,"upto":9001,"added_later":true}"#,
        r#"{"t":"lease_lost","ch":2,"n":[8991]}"#,
        r#"{"t":"gap","ch":2,"from":1,"to":2,"why":"retention"}"#,
        r#"{"t":"goaway","deadline_ms":15000,"why":"drain"}"#,
    ] {
        json::server_frames(line).for_each(|frame| drop(frame.unwrap()));
    }
}

#[test]
fn payload_digits_stay_as_they_were_sent() {
    let number = "123456789012345678901234567890.000100";
    let line = format!(r#"{{"data":{{"b":{number},"a":[ 1e400 ]}},"seq":0,"ch":1,"t":"pub"}}"#);
    let (_, frame) = json::client_frames(&line).next().unwrap().unwrap();
    let ClientFrame::Pub(publish) = &frame else { panic!("{frame:?}") };
    let content = publish.content().unwrap();
    assert_eq!(content.value, format!(r#"{{"b":{number},"a":[ 1e400 ]}}"#).as_bytes());
    assert_eq!(content.content_type, Some("application/json"));
    let again = text(&[(Channel(1), frame)], json::put_client_frame);
    assert!(again.contains(number), "{again}");
}

#[test]
fn unknown_missing_and_repeated_fields_are_refused_by_name() {
    for (line, name) in [
        (r#"{"t":"limit","ch":2,"msgs":1,"bytes":1,"colour":1}"#, "unknown field `colour`"),
        (r#"{"t":"limit","ch":2,"msgs":1}"#, "missing field `bytes`"),
        (r#"{"t":"limit","ch":2,"msgs":1,"msgs":2,"bytes":1}"#, "duplicate field `msgs`"),
        (r#"{"t":"limit","ch":2,"msgs":-1,"bytes":1}"#, "invalid value"),
        (r#"{"t":"sub","ch":2,"topic":"a","limit":{"msgs":1,"bytes":1,"x":0}}"#, "unknown field `x`"),
        (r#"{"t":"sub","ch":2,"topic":"a","from":"soon","limit":{"msgs":1,"bytes":1}}"#, "expected earliest"),
        (r#"{"t":"open","ch":2,"topic":"a","confirm":["fast"]}"#, "unknown value `fast`"),
        (r#"{"t":"pub","ch":2,"seq":1,"data":1,"h":{"a":"1","a":"2"}}"#, "duplicate field `a`"),
        (r#"{"t":"ack","ch":2,"n":[[9,8]]}"#, "range [9,8] ends before it starts"),
        (r#"{"t":"ack","ch":2,"n":[[9,9,9]]}"#, "invalid length 3"),
    ] {
        let error = refused(line);
        assert!(matches!(error, WsError::Fields { .. }), "{error}");
        assert!(error.to_string().contains(name), "{error} does not say {name}");
        assert_eq!(error.close_code(), CloseCode::BadFrame);
    }
    let twice = refused(r#"{"t":"unsub","t":"bye","ch":2}"#).to_string();
    assert!(twice.contains("duplicate field `t`"), "{twice}");
}

#[test]
fn a_value_of_another_type_is_found() {
    for (line, found) in [
        (r#"{"t":"limit","ch":2,"msgs":-1,"bytes":1}"#, Some("msgs")),
        (r#"{"ch":2,"topic":"a","limit":{"bytes":1,"msgs":"x"},"t":"sub"}"#, Some("limit.msgs")),
        (r#"{"t":"open","ch":2,"topic":"a","confirm":["quorum","fast"]}"#, Some("confirm[1]")),
        (r#"{"t":"ack","ch":2,"n":[1,[9,8]]}"#, Some("n[1]")),
        (r#"{"t":"limit","ch":2,"msgs":1}"#, None),
    ] {
        let WsError::Fields { place, .. } = refused(line) else { panic!("{line}") };
        assert_eq!(place.as_deref(), found, "{line}");
    }
}

#[test]
fn what_is_no_frame_for_this_side_is_refused() {
    assert!(matches!(refused("[]"), WsError::Object(_)));
    assert!(matches!(refused(r#"{"ch":1}"#), WsError::Object(_)));
    assert!(matches!(refused(r#"{"t":"unsub","ch":65536}"#), WsError::Object(_)));
    assert_eq!(refused(r#"{"t":"nope"}"#), WsError::UnknownName("nope".into()));
    assert_eq!(refused(r#"{"t":"goaway","deadline_ms":1,"why":""}"#), WsError::Misplaced(FrameType::Goaway));
    assert_eq!(refused(r#"{"t":"unsub"}"#), WsError::Channel { frame: FrameType::Unsub, ch: 0 });
    assert_eq!(refused(r#"{"t":"bye","ch":3}"#), WsError::Channel { frame: FrameType::Bye, ch: 3 });
    let version = refused(r#"{"t":"hello","v":2}"#);
    assert_eq!((version.close_code(), version), (CloseCode::UnsupportedVersion, WsError::Version(2)));
    let frames: Vec<_> = json::client_frames("{\"t\":\"bye\"}\n\n{\"t\":\"x\"}\n").collect();
    assert!(
        matches!(frames[..], [Ok(_), Err(WsError::UnknownName(_))]),
        "what came before stands: {frames:?}"
    );
}

#[test]
fn credentials_are_not_shown_in_debug_output() {
    let frame = ClientFrame::Auth(Auth { token: Secret("hunter2".into()) });
    assert!(
        !format!("{frame:?} {:?}", Hello { token: Some(Secret("hunter2".into())), ..hello() })
            .contains("hunter2")
    );
}

#[test]
fn a_message_beyond_the_limit_is_refused_whole() {
    let long = crate::limits::WS_MESSAGE_BYTES_MAX + 1;
    let message = format!("{{\"t\":\"bye\"}}\n{}", " ".repeat(long - 12));
    assert_eq!(json::client_frames(&message).collect::<Vec<_>>(), [Err(WsError::TooLarge(long))]);
    assert_eq!(binary::take_client_frame(&mut vec![0; long].into()), Err(WsError::TooLarge(long)));
}

fn golden(name: &str, bytes: &[u8]) {
    let path = format!("{}/tests/golden/{name}", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, bytes).unwrap();
    }
    assert!(std::fs::read(&path).unwrap() == bytes, "{path} differs: the layout is public");
}

#[test]
fn the_layout_is_pinned_by_golden_files() {
    golden("ws-client.bin", &bytes(&client_binary(), binary::put_client_frame));
    golden("ws-server.bin", &bytes(&server_binary(), binary::put_server_frame));
    golden("ws-client.jsonl", text(&client_json(), json::put_client_frame).as_bytes());
    golden("ws-server.jsonl", text(&server_json(), json::put_server_frame).as_bytes());
}

proptest! {
    #[test]
    fn a_flipped_bit_never_panics_and_is_never_seen_in_a_batch(bit in 0usize..1 << 20) {
        let message = bytes(&client_binary(), binary::put_client_frame);
        let bit = bit % (message.len() * 8);
        let mut flipped = message.to_vec();
        flipped[bit / 8] ^= 1 << (bit % 8);
        if let Ok(frames) = take_all(flipped.into(), binary::take_client_frame) {
            let batches = frames.iter().filter_map(|(_, frame)| match frame {
                ClientFrame::PubBatch { batch, .. } => Some(batch.unplaced()),
                _ => None,
            });
            prop_assert!(batches.eq([batch(&["first", "second"])]), "the checksum covers all but what is stamped");
        }
    }

    #[test]
    fn confirms_round_trip_in_both_forms(
        upto: Option<u64>, level in 1i32..6, term: Option<u64>,
        base in proptest::collection::vec((0u64..1 << 53, any::<u32>(), any::<u32>(), 0u64..1 << 53), 0..20),
        us: [u32; 7],
    ) {
        let [gw, net, queue, write, fsync, quorum, total] = us;
        let confirm = Confirm {
            upto, term, level: Level::try_from(level).unwrap(),
            base: base.into_iter().map(|(seq, n, p, o)| Base { seq, n, p, o }).collect(),
            us: StageMicros { gw, net, queue, write, fsync, quorum, total },
        };
        let frames = vec![(Channel(9), ServerFrame::Confirm(confirm))];
        let message = bytes(&frames, binary::put_server_frame);
        prop_assert_eq!(&take_all(message, binary::take_server_frame).unwrap(), &frames);
        let message = text(&frames, json::put_server_frame);
        let read: Result<Vec<_>, _> = json::server_frames(&message).collect();
        prop_assert_eq!(&read.unwrap(), &frames);
    }
}
