//! permessage-deflate through the public interface of the real product: a client of its own, since the
//! library that others are made with has no extensions.
#![expect(dead_code, reason = "each test uses a part of the product's client")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod product;

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress};
use product::{Connection, Product};
use weir_protocol::batch::{BatchBuilder, Compression as BatchCompression, Headers, RecordParts};
use weir_protocol::start::Start;
use weir_protocol::ws::{
    Channel, ClientFrame, Hello, Limit, Open, Pub, RawJson, ServerFrame, Sub, binary, json,
};

const SOON: Duration = Duration::from_secs(60);
const OFFER: &str = "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n";
const AGREED: &str = "permessage-deflate; server_no_context_takeover; client_no_context_takeover";
const JSON: &str = "weir.v1.json";
const BIN: &str = "weir.v1.bin";
const FINAL: u8 = 0x80;
const DEFLATED: u8 = 0x40;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;
const HEARTBEAT_TIMEOUT: u16 = 4002;
const TAIL: [u8; 4] = [0, 0, 0xff, 0xff];
const CREDIT: Limit = Limit { msgs: 100_000, bytes: 100 << 20 };

/// A client's end.
struct Socket {
    stream: BufReader<TcpStream>,
    subprotocol: &'static str,
    /// What the answer says of extensions.
    extensions: Option<String>,
    frames: VecDeque<ServerFrame>,
    /// Sizes of the messages that came deflated and plain, as they came.
    came: (Vec<usize>, Vec<usize>),
}

impl Socket {
    /// Opens one that offers what `offer` says, header lines. The status instead if it is refused, and what
    /// was answered.
    fn try_open(address: &str, subprotocol: &'static str, offer: &str) -> Result<Self, (u16, String)> {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        stream.set_nodelay(true).unwrap();
        let mut stream = BufReader::new(stream);
        let head = format!(
            "GET /v1/ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
             Sec-WebSocket-Protocol: {subprotocol}\r\n{offer}\r\n"
        );
        stream.get_mut().write_all(head.as_bytes()).unwrap();
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            stream.read_line(&mut line).unwrap();
            match line.trim_end() {
                "" => break,
                line => lines.push(line.to_ascii_lowercase()),
            }
        }
        let value = |name: &str| lines.iter().find_map(|line| line.strip_prefix(name).map(str::to_owned));
        let status = lines[0].split(' ').nth(1).unwrap().parse().unwrap();
        if status != 101 {
            let length: usize = value("content-length: ").unwrap().parse().unwrap();
            let mut body = vec![0; length];
            stream.read_exact(&mut body).unwrap();
            return Err((status, String::from_utf8(body).unwrap()));
        }
        let extensions = value("sec-websocket-extensions: ");
        Ok(Self { stream, subprotocol, extensions, frames: VecDeque::new(), came: Default::default() })
    }

    fn open(address: &str, subprotocol: &'static str, offer: &str) -> Self {
        let mut socket = Self::try_open(address, subprotocol, offer).unwrap();
        socket.send(0, &ClientFrame::Hello(Hello { v: 1, ..Hello::default() }), &[]);
        assert!(matches!(socket.next(), ServerFrame::Welcome(_)));
        socket
    }

    /// Sends a frame of the subprotocol; with places to cut it at, deflated, with a ping in each cut.
    fn send(&mut self, ch: u16, frame: &ClientFrame, cuts: &[usize]) {
        let mut plain = BytesMut::new();
        let opcode = if self.subprotocol == BIN {
            binary::put_client_frame(&mut plain, Channel(ch), frame);
            2
        } else {
            let mut text = String::new();
            json::put_client_frame(&mut text, Channel(ch), frame);
            plain.extend_from_slice(text.as_bytes());
            1
        };
        if cuts.is_empty() {
            return self.put(FINAL | opcode, &plain);
        }
        let body = deflated(&plain);
        let mut first = opcode | DEFLATED;
        let mut start = 0;
        for cut in cuts {
            self.put(std::mem::take(&mut first), &body[start..*cut]);
            self.put(FINAL | PING, b"there?");
            start = *cut;
        }
        self.put(FINAL | first, &body[start..]);
    }

    /// Writes a masked frame.
    fn put(&mut self, first: u8, payload: &[u8]) {
        self.stream.get_mut().write_all(&framed(first, payload)).unwrap();
    }

    /// The next frame of the subprotocol that is no ping; the close code instead.
    fn try_next(&mut self) -> Result<ServerFrame, u16> {
        loop {
            match self.frames.pop_front() {
                Some(ServerFrame::Ping(_)) => continue,
                Some(frame) => return Ok(frame),
                None => {}
            }
            let (first, payload) = self.take();
            let is_deflated = first & DEFLATED != 0;
            assert!(!is_deflated || self.extensions.is_some(), "deflated and never agreed");
            match first & 0x0f {
                PONG => {
                    assert_eq!(payload, b"there?");
                    continue;
                }
                CLOSE => return Err(u16::from_be_bytes([payload[0], payload[1]])),
                _ => assert_eq!(first & (FINAL | 0x30), FINAL, "{first:x}"),
            }
            let seen = if is_deflated { &mut self.came.0 } else { &mut self.came.1 };
            seen.push(payload.len());
            let plain = if is_deflated { inflated(&payload) } else { payload };
            if self.subprotocol == JSON {
                assert_eq!(first & 0x0f, 1);
                let text = String::from_utf8(plain).unwrap();
                self.frames.extend(json::server_frames(&text).map(|frame| frame.unwrap().1));
            } else {
                let mut plain = Bytes::from(plain);
                while let Some((_, frame)) = binary::take_server_frame(&mut plain).unwrap() {
                    self.frames.push_back(frame);
                }
            }
        }
    }

    fn next(&mut self) -> ServerFrame {
        self.try_next().unwrap()
    }

    /// The close code, after whatever comes before it.
    fn closed(&mut self) -> u16 {
        loop {
            if let Err(code) = self.try_next() {
                return code;
            }
        }
    }

    /// Reads a frame.
    fn take(&mut self) -> (u8, Vec<u8>) {
        let mut head = [0; 2];
        self.stream.read_exact(&mut head).unwrap();
        let mut long = [0; 8];
        let bytes = match head[1] {
            127 => 8,
            126 => 2,
            short => {
                assert!(short < 126, "what a server sends is not masked");
                long[7] = short;
                0
            }
        };
        self.stream.read_exact(&mut long[8 - bytes..]).unwrap();
        let mut payload = vec![0; usize::try_from(u64::from_be_bytes(long)).unwrap()];
        self.stream.read_exact(&mut payload).unwrap();
        (head[0], payload)
    }

    fn opened(&mut self, topic: &str) {
        self.send(1, &ClientFrame::Open(Open { topic: topic.into(), ..Open::default() }), &[]);
        let opened = self.next();
        assert!(matches!(opened, ServerFrame::Opened(_)), "{opened:?}");
    }

    fn confirmed(&mut self, seq: u64) {
        loop {
            match self.next() {
                ServerFrame::Confirm(confirm) if confirm.upto == Some(seq) => return,
                ServerFrame::Confirm(_) | ServerFrame::PubLimit(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    fn sub(&mut self, topic: &str) {
        let from: Start = "earliest".parse().unwrap();
        let sub = Sub { topic: Some(topic.into()), from: Some(from), limit: CREDIT, ..Sub::default() };
        self.send(2, &ClientFrame::Sub(sub), &[]);
    }

    /// The next `count` payloads.
    fn payloads(&mut self, count: usize) -> Vec<Vec<u8>> {
        let mut payloads = Vec::new();
        while payloads.len() < count {
            match self.next() {
                ServerFrame::Msg(msg) => payloads.push(msg.data.unwrap().get().as_bytes().to_vec()),
                ServerFrame::Msgs(msgs) => payloads
                    .extend(msgs.msgs.into_iter().map(|msg| msg.data.unwrap().get().as_bytes().to_vec())),
                ServerFrame::Deliveries(frame) => {
                    for slice in &frame.slices {
                        payloads.extend(slice.records().unwrap().map(|it| it.unwrap().value.to_vec()));
                    }
                }
                ServerFrame::Subscribed(_) | ServerFrame::CaughtUp(_) | ServerFrame::PubLimit(_) => {}
                other => panic!("{other:?}"),
            }
        }
        payloads
    }
}

/// A masked frame.
fn framed(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![first];
    match payload.len() {
        short @ ..=125 => frame.push(0x80 | u8::try_from(short).unwrap()),
        middle @ ..=0xffff => {
            frame.push(0x80 | 126);
            frame.extend(u16::try_from(middle).unwrap().to_be_bytes());
        }
        long => {
            frame.push(0x80 | 127);
            frame.extend((long as u64).to_be_bytes());
        }
    }
    let mask = [1, 2, 3, 4];
    frame.extend(mask);
    frame.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    frame
}

fn deflated(plain: &[u8]) -> Vec<u8> {
    let mut made = Vec::with_capacity(plain.len() + plain.len() / 8 + 1_024);
    Compress::new(Compression::best(), false).compress_vec(plain, &mut made, FlushCompress::Sync).unwrap();
    made.strip_suffix(&TAIL).unwrap().to_vec()
}

/// Each message stands for itself: what is inflated knows nothing of another.
fn inflated(deflated: &[u8]) -> Vec<u8> {
    let mut inflate = Decompress::new(false);
    let (input, mut plain) = ([deflated, &TAIL].concat(), Vec::new());
    loop {
        plain.reserve(1 << 20);
        let at = usize::try_from(inflate.total_in()).unwrap();
        let before = plain.len();
        inflate.decompress_vec(&input[at..], &mut plain, FlushDecompress::Sync).unwrap();
        if at == input.len() && plain.len() == before {
            return plain;
        }
    }
}

fn product(options: &[&str]) -> (tempfile::TempDir, Product) {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let product = Product::start_with(dir.path(), "127.0.0.1:0", options);
    (dir, product)
}

fn order(seq: u64) -> String {
    let lines: Vec<_> =
        (0..40).map(|line| format!("{{\"line\":{line},\"order\":{seq},\"state\":\"paid\"}}")).collect();
    format!("[{}]", lines.join(","))
}

fn publish(seq: u64, data: &str) -> ClientFrame {
    ClientFrame::Pub(Pub { seq, data: RawJson::from_text(data), ..Pub::default() })
}

#[test]
fn json_messages_are_deflated_both_ways_once_that_is_agreed_and_plain_for_everybody_else() {
    let (_dir, product) = product(&[]);
    let mut publisher = Socket::open(&product.address, JSON, OFFER);
    assert_eq!(publisher.extensions.as_deref(), Some(AGREED));
    publisher.opened("orders");
    let orders: Vec<_> = (0..50).map(order).collect();
    for (seq, order) in (0..).zip(&orders) {
        // Deflated in pieces, whole, and plain.
        let cuts = [&[][..], &[0], &[1, 1, 17], &[40]][usize::try_from(seq % 4).unwrap()];
        publisher.send(1, &publish(seq, order), cuts);
    }
    publisher.confirmed(49);

    let mut plain = Socket::open(&product.address, JSON, "");
    assert_eq!(plain.extensions, None);
    let mut reader = Socket::open(&product.address, JSON, OFFER);
    for socket in [&mut plain, &mut reader] {
        socket.sub("orders");
        let expected: Vec<_> = orders.iter().map(|order| order.as_bytes().to_vec()).collect();
        assert!(socket.payloads(50) == expected);
    }
    assert!(plain.came.0.is_empty());
    let (came, came_plain): (usize, usize) = (reader.came.0.iter().sum(), plain.came.1.iter().sum());
    assert!(came > 0 && came * 5 < came_plain, "{came} of {came_plain}");
    assert!(reader.came.1.iter().all(|bytes| *bytes < 512), "{:?}", reader.came);

    let metrics =
        Connection::open(&product.address).unwrap().request("GET /metrics", &[], b"").unwrap().text();
    let metric = |name: &str| {
        let line =
            metrics.lines().find_map(|line| line.strip_prefix(&format!("weir_gateway_websocket{name} ")));
        line.unwrap_or_else(|| panic!("{name} in {metrics}")).parse::<usize>().unwrap()
    };
    assert_eq!(metric("_deflated_messages_total{direction=\"received\"}"), 37);
    let sent = metric("_deflated_bytes_total{direction=\"sent\",size=\"plain\"}");
    assert!(sent > 50 * orders[0].len(), "{sent}");
    assert_eq!(
        metric("_deflated_bytes_total{direction=\"sent\",size=\"deflated\"}"),
        came + publisher.came.0.iter().sum::<usize>()
    );
    assert_eq!(metric("s_inflating"), 0);
}

#[test]
fn a_setting_says_on_which_sockets_messages_are_deflated() {
    let batch = || {
        let mut builder = BatchBuilder::anonymous();
        for i in 0..500u64 {
            let value = i.to_le_bytes().repeat(20);
            let parts = RecordParts { key: None, headers: &Headers::default(), value: &value };
            builder.push(parts).unwrap();
        }
        builder.build(BatchCompression::None).unwrap()
    };
    let expected: Vec<_> = (0..500u64).map(|i| i.to_le_bytes().repeat(20)).collect();
    for (setting, json, bin) in [("json", true, false), ("all", true, true), ("off", false, false)] {
        let (_dir, product) = product(&["--ws-deflate", setting]);
        let agreed = |is_on: bool| is_on.then(|| AGREED.to_owned());
        assert_eq!(Socket::open(&product.address, JSON, OFFER).extensions, agreed(json), "{setting}");
        let mut first = Socket::open(&product.address, BIN, OFFER);
        let mut second = Socket::open(&product.address, BIN, OFFER);
        assert_eq!(first.extensions, agreed(bin), "{setting}");
        first.opened("ticks");
        let frame = ClientFrame::PubBatch { first_seq: weir_protocol::ids::Seq(0), batch: batch() };
        first.send(1, &frame, if bin { &[100, 200] } else { &[] });
        first.confirmed(499);
        // From storage, and then both as readers of one feed, who are sent parts that they share.
        for socket in [&mut first, &mut second] {
            socket.sub("ticks");
            assert!(socket.payloads(500) == expected, "{setting}");
        }
        let frame = ClientFrame::PubBatch { first_seq: weir_protocol::ids::Seq(500), batch: batch() };
        first.send(1, &frame, &[]);
        assert!(second.payloads(500) == expected, "{setting}");
        let (deflated, plain) = &second.came;
        if bin {
            assert!(deflated.iter().sum::<usize>() < 2 * 500 * 40, "{deflated:?}");
            assert!(plain.iter().all(|bytes| *bytes < 512), "{plain:?}");
        } else {
            assert!(deflated.is_empty() && plain.iter().sum::<usize>() > 2 * 500 * 160, "{plain:?}");
        }
    }
}

#[test]
fn who_sends_what_was_not_agreed_or_inflates_to_too_much_is_closed_with_its_code() {
    let (_dir, product) = product(&[]);
    let address = product.address.as_str();
    let hello = deflated(br#"{"t":"hello","v":1}"#);
    let text = FINAL | DEFLATED | 1;
    let bomb = deflated(&vec![b' '; 64 << 20]);
    for (name, offer, frames, code) in [
        ("never agreed", "", vec![(text, &hello[..])], 1002),
        ("no deflate", OFFER, vec![(text, &[0xff; 9])], 1002),
        ("a ping with the bit", OFFER, vec![(FINAL | DEFLATED | PING, &[])], 1002),
        (
            "a second frame with the bit",
            OFFER,
            vec![(DEFLATED | 1, &hello[..5]), (FINAL | DEFLATED, &hello[5..])],
            1002,
        ),
        ("no text", OFFER, vec![(text, &[0x01, 0x01, 0x00, 0xfe, 0xff, 0xff, 0x00])], 1007),
        ("a bomb", OFFER, vec![(text, &bomb)], 1009),
    ] {
        let mut socket = Socket::try_open(address, JSON, offer).unwrap();
        for (first, payload) in frames {
            socket.put(first, payload);
        }
        assert_eq!(socket.closed(), code, "{name}");
    }
    // A message that has no end, and others are served.
    let mut endless = Socket::open(address, JSON, OFFER);
    endless.put(DEFLATED | 1, &bomb[..2_000]);
    let mut other = Socket::open(address, JSON, OFFER);
    other.opened("orders");
    other.send(1, &publish(0, &order(0)), &[3]);
    other.confirmed(0);

    let refused = |offer: &str| Socket::try_open(address, JSON, offer).err().unwrap();
    let (status, problem) = refused("Sec-WebSocket-Extensions: permessage-deflate; =\r\n");
    assert!(status == 400 && problem.contains("Sec-WebSocket-Extensions"), "{status} {problem}");
    for offer in ["permessage-deflate; server_max_window_bits=9", "x-other; a=1"] {
        let offer = format!("Sec-WebSocket-Extensions: {offer}\r\n");
        assert_eq!(Socket::open(address, JSON, &offer).extensions, None, "{offer}");
    }
    let offer = "Sec-WebSocket-Extensions: x-other; a=1\r\n\
                 Sec-WebSocket-Extensions: permessage-deflate; server_max_window_bits=9, permessage-deflate\r\n";
    assert_eq!(Socket::open(address, JSON, offer).extensions.as_deref(), Some(AGREED));
}

#[test]
fn who_never_stops_sending_what_comes_to_nothing_has_no_more_time_for_hello() {
    let (_dir, product) = product(&[]);
    let blocks = [&[0x00, 0x00, 0x00, 0xff, 0xff].repeat(2_000)[..], &[0x00]].concat();
    let close = &|first: u8, next: u8, payload: &[u8]| {
        let mut socket = Socket::try_open(&product.address, JSON, OFFER).unwrap();
        let frames = (framed(first, payload), framed(next, payload).repeat(1_000));
        let mut stream = socket.stream.get_ref().try_clone().unwrap();
        std::thread::spawn(move || {
            let _ = stream.write_all(&frames.0);
            while stream.write_all(&frames.1).is_ok() {}
        });
        socket.closed()
    };
    std::thread::scope(|scope| {
        let message = FINAL | DEFLATED | 1;
        let kinds = [
            ("messages of empty blocks", message, message, &blocks[..]),
            ("empty messages", message, message, &[0x03, 0x00]),
            ("one message of empty frames, plain", 1, 0, &[]),
        ];
        let closes = kinds
            .map(|(name, first, next, payload)| (name, scope.spawn(move || close(first, next, payload))));
        for (name, closed) in closes {
            assert_eq!(closed.join().unwrap(), HEARTBEAT_TIMEOUT, "{name}");
        }
    });
}
