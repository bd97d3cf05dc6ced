use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};
use futures_util::StreamExt as _;
use prometheus::Registry;
use proptest::prelude::*;
use tokio::io::{AsyncRead, ReadBuf, join, sink};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error, Message};
use weir_protocol::limits::WS_MESSAGE_BYTES_MAX;

use super::inflate::TAIL;
use super::{Broken, Deflate, Wire};
use crate::config::WsDeflate;
use crate::ws::output::Outgoing;

const FINAL: u8 = 0x80;
const DEFLATED: u8 = 0x40;
const TEXT: u8 = 1;
const BINARY: u8 = 2;
const PING: u8 = 9;

fn shared() -> (Arc<Deflate>, Registry) {
    let registry = Registry::new();
    (Arc::new(Deflate::register(WsDeflate::All, &registry).unwrap()), registry)
}

/// A masked frame.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
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
    let mask = [7, 0xa5, payload.len() as u8, 0x3c];
    frame.extend(mask);
    frame.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    frame
}

/// A message's bytes as a client sends them deflated, without the tail.
fn deflated(plain: &[u8], level: u32) -> Vec<u8> {
    let mut made = Vec::with_capacity(plain.len() + plain.len() / 8 + 1_024);
    let mut compress = Compress::new(Compression::new(level), false);
    compress.compress_vec(plain, &mut made, FlushCompress::Sync).unwrap();
    assert_eq!(compress.total_in(), plain.len() as u64);
    made.strip_suffix(&TAIL).unwrap().to_vec()
}

/// What a deflated message of the gateway is.
fn inflated(deflated: &[u8]) -> Vec<u8> {
    let mut inflate = Decompress::new(false);
    let (input, mut plain) = ([deflated, &TAIL].concat(), Vec::new());
    loop {
        plain.reserve(1 << 16);
        let at = usize::try_from(inflate.total_in()).unwrap();
        let before = plain.len();
        let status = inflate.decompress_vec(&input[at..], &mut plain, FlushDecompress::Sync).unwrap();
        if status == Status::BufError || (at == input.len() && plain.len() == before) {
            return plain;
        }
    }
}

/// A client's bytes, that come as they were cut; between two pieces nothing is there for a moment.
struct Pieces {
    bytes: VecDeque<u8>,
    cuts: Vec<usize>,
    at: usize,
    is_due: bool,
}

impl Pieces {
    fn new(bytes: Vec<u8>, cuts: Vec<usize>) -> Self {
        Self { bytes: bytes.into(), cuts, at: 0, is_due: false }
    }
}

impl AsyncRead for Pieces {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.is_due = !self.is_due;
        if self.is_due {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let cut = if self.cuts.is_empty() { usize::MAX } else { self.cuts[self.at % self.cuts.len()] };
        self.at += 1;
        let len = cut.min(to.remaining()).min(self.bytes.len());
        let piece: Vec<u8> = self.bytes.drain(..len).collect();
        to.put_slice(&piece);
        Poll::Ready(Ok(()))
    }
}

/// The messages that the library reads, and what ends them: a close frame among any bytes does it without an error.
fn read(bytes: Vec<u8>, cuts: Vec<usize>, deflate: Option<Arc<Deflate>>) -> (Vec<Message>, Error) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let config = WebSocketConfig::default()
            .max_message_size(Some(WS_MESSAGE_BYTES_MAX))
            .max_frame_size(Some(WS_MESSAGE_BYTES_MAX))
            .read_buffer_size(4 << 10);
        let wire = Wire::new(join(Pieces::new(bytes, cuts), sink()), deflate);
        let mut socket = WebSocketStream::from_raw_socket(wire, Role::Server, Some(config)).await;
        let mut messages = Vec::new();
        loop {
            match socket.next().await.unwrap_or(Err(Error::ConnectionClosed)) {
                Ok(message) => messages.push(message),
                Err(error) => return (messages, error),
            }
        }
    })
}

fn read_deflated(bytes: Vec<u8>) -> (Vec<Message>, Error) {
    read(bytes, Vec::new(), Some(shared().0))
}

/// Which rule was broken, as a socket finds out.
fn broken(error: &Error) -> Option<Broken> {
    match error {
        Error::Io(error) => Broken::of(error),
        _ => None,
    }
}

fn is_gone(error: &Error) -> bool {
    error.to_string().contains("without closing handshake")
}

/// A message as a client may send it.
#[derive(Debug, Clone)]
struct Sent {
    is_text: bool,
    plain: Vec<u8>,
    /// Its level, if it is deflated.
    level: Option<u32>,
    /// Where its frames end, in thousandths of it.
    frames: Vec<usize>,
    /// A ping comes between its frames.
    has_pings: bool,
}

impl Sent {
    fn put(&self, bytes: &mut Vec<u8>, expected: &mut Vec<Message>) {
        let body = self.level.map_or_else(|| self.plain.clone(), |level| deflated(&self.plain, level));
        let mut ends: Vec<_> = self.frames.iter().map(|per_mille| body.len() * per_mille / 1_000).collect();
        ends.sort_unstable();
        ends.push(body.len());
        let mut first = if self.is_text { TEXT } else { BINARY };
        first |= if self.level.is_some() { DEFLATED } else { 0 };
        let mut start = 0;
        for (at, end) in ends.iter().enumerate() {
            let last = if at + 1 == ends.len() { FINAL } else { 0 };
            bytes.extend(frame(last | std::mem::take(&mut first), &body[start..*end]));
            start = *end;
            if self.has_pings && last == 0 {
                let payload = vec![u8::try_from(at).unwrap(); at];
                bytes.extend(frame(FINAL | PING, &payload));
                expected.push(Message::Ping(payload.into()));
            }
        }
        expected.push(if self.is_text {
            Message::text(String::from_utf8(self.plain.clone()).unwrap())
        } else {
            Message::binary(self.plain.clone())
        });
    }
}

fn sent() -> impl Strategy<Value = Sent> {
    let words =
        proptest::collection::vec(prop_oneof![Just("order "), Just("ü€𝄞"), Just("7"), Just("\n")], 0..4_000);
    let text = words.prop_map(|words| (true, words.concat().into_bytes()));
    let noise = proptest::collection::vec(any::<u8>(), 0..20_000).prop_map(|noise| (false, noise));
    let long = (any::<u8>(), 0usize..300_000).prop_map(|(byte, len)| (false, vec![byte; len]));
    (
        prop_oneof![text, noise, long],
        proptest::option::weighted(0.7, 0u32..=9),
        proptest::collection::vec(0usize..=1_000, 0..5),
        any::<bool>(),
    )
        .prop_map(|((is_text, plain), level, frames, has_pings)| Sent {
            is_text,
            plain,
            level,
            frames,
            has_pings,
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn whatever_was_sent_is_read_however_it_comes(
        sent in proptest::collection::vec(sent(), 0..6),
        cuts in proptest::collection::vec(prop_oneof![1usize..20, 1usize..5_000], 0..20),
    ) {
        let (mut bytes, mut expected) = (Vec::new(), Vec::new());
        for message in &sent {
            message.put(&mut bytes, &mut expected);
        }
        let (deflate, registry) = shared();
        let (messages, end) = read(bytes, cuts, Some(Arc::clone(&deflate)));
        prop_assert!(messages == expected, "{} messages of {}", messages.len(), expected.len());
        prop_assert!(is_gone(&end), "{end}");
        let wanted = sent.iter().filter(|sent| sent.level.is_some()).count() as u64;
        prop_assert_eq!(counted(&registry, "messages_total", &["received"]), wanted);
        let plain: usize = sent.iter().filter(|sent| sent.level.is_some()).map(|sent| sent.plain.len()).sum();
        prop_assert_eq!(counted(&registry, "bytes_total", &["received", "plain"]), plain as u64);
        prop_assert_eq!(inflating(&registry), 0);
    }

    #[test]
    fn any_bytes_are_read_without_panic(
        mut bytes in proptest::collection::vec(any::<u8>(), 0..2_000),
        cuts in proptest::collection::vec(1usize..200, 0..5),
        starts in proptest::collection::vec((0usize..2_000, prop_oneof![Just(0xc1u8), Just(0x41), Just(0), Just(0x80), Just(0x88)], 0u8..120), 0..20),
    ) {
        // Enough of it looks like frames of deflated messages.
        for (at, first, len) in starts {
            if let Some([head, length, ..]) = bytes.get_mut(at..) {
                (*head, *length) = (first, 0x80 | len);
            }
        }
        let (deflate, registry) = shared();
        read(bytes, cuts, Some(deflate));
        prop_assert_eq!(inflating(&registry), 0);
    }

    #[test]
    fn what_is_sent_reads_as_what_was_meant(
        parts in proptest::collection::vec(
            prop_oneof![
                proptest::collection::vec(any::<u8>(), 0..3_000),
                (any::<u8>(), 0usize..200_000).prop_map(|(byte, len)| vec![byte; len]),
            ],
            1..6,
        ),
    ) {
        let whole = parts.concat();
        let outgoing = Outgoing::Parts(parts.into_iter().map(Bytes::from).collect());
        let sent = outgoing_of(outgoing);
        match sent {
            Outgoing::Message(Message::Frame(frame)) => {
                prop_assert!(frame.header().rsv1 && frame.header().is_final);
                prop_assert!(frame.payload().len() < whole.len());
                prop_assert!(inflated(frame.payload()) == whole);
            }
            Outgoing::Parts(parts) => prop_assert!(parts.concat() == whole),
            other @ Outgoing::Message(_) => prop_assert!(false, "{other:?}"),
        }
    }
}

fn outgoing_of(outgoing: Outgoing) -> Outgoing {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(shared().0.outgoing(outgoing))
}

fn counted(registry: &Registry, name: &str, labels: &[&str]) -> u64 {
    let families = registry.gather();
    let family = families.iter().find(|family| family.name().ends_with(&format!("deflated_{name}")));
    let found = family.unwrap().get_metric().iter().find(|metric| {
        let values: Vec<_> = metric.get_label().iter().map(|label| label.value()).collect();
        values == labels
    });
    found.unwrap().get_counter().get_value() as u64
}

fn inflating(registry: &Registry) -> u64 {
    let families = registry.gather();
    let family = families.iter().find(|family| family.name().ends_with("inflating"));
    family.unwrap().get_metric()[0].get_gauge().get_value() as u64
}

#[test]
fn a_text_becomes_smaller_and_noise_and_small_messages_stay() {
    let text = "{\"t\":\"msg\",\"data\":\"order\"}\n".repeat(5_000);
    let outgoing = outgoing_of(Outgoing::Message(Message::text(text.clone())));
    let Outgoing::Message(Message::Frame(frame)) = outgoing else { panic!("{outgoing:?}") };
    assert!(frame.payload().len() * 20 < text.len(), "{}", frame.payload().len());
    assert_eq!(inflated(frame.payload()), text.as_bytes());
    // Nothing in it comes twice.
    let mut state = 1u32;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    })
    .take(100_000)
    .collect();
    let outgoing = outgoing_of(Outgoing::Message(Message::binary(noise.clone())));
    assert!(matches!(outgoing, Outgoing::Message(Message::Binary(whole)) if *whole == *noise));
    assert!(!Outgoing::Message(Message::text("a".repeat(511))).is_worth_deflating());
    assert!(Outgoing::Message(Message::text("a".repeat(512))).is_worth_deflating());
}

#[test]
fn a_last_block_may_end_a_message_and_nothing_else_follows_it() {
    // "Hello", RFC 7692, section 7.2.3: fixed codes, no compression, a last block, two blocks.
    for body in [
        &[0xf2, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00][..],
        &[0x00, 0x05, 0x00, 0xfa, 0xff, 0x48, 0x65, 0x6c, 0x6c, 0x6f, 0x00],
        &[0xf3, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00, 0x00],
        &[0xf3, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00],
        &[0xf2, 0x48, 0x05, 0x00, 0x00, 0x00, 0xff, 0xff, 0xca, 0xc9, 0xc9, 0x07, 0x00],
    ] {
        let (messages, end) = read_deflated(frame(FINAL | DEFLATED | TEXT, body));
        assert_eq!(messages, [Message::text("Hello")], "{body:x?}");
        assert!(is_gone(&end), "{end}");
    }
    for body in [&[0x00][..], &[]] {
        assert_eq!(read_deflated(frame(FINAL | DEFLATED | TEXT, body)).0, [Message::text("")], "{body:x?}");
    }
    for more in [&[0x01][..], &[0x00, 0x00], &[0xf2, 0x48]] {
        let body = [&[0xf3, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00], more].concat();
        let (messages, end) = read_deflated(frame(FINAL | DEFLATED | TEXT, &body));
        assert_eq!((messages, broken(&end)), (Vec::new(), Some(Broken::Deflate)), "{more:x?}");
    }
}

#[test]
fn a_last_block_may_fill_a_frame_before_the_message_ends() {
    // Of 4 KiB, eight bytes are for what stands before it.
    for len in [4_087, 4_088, 4_089, 2 * 4_088] {
        let plain = "a".repeat(len);
        let (mut body, mut compress) = (Vec::with_capacity(1_024), Compress::new(Compression::fast(), false));
        compress.compress_vec(plain.as_bytes(), &mut body, FlushCompress::Finish).unwrap();
        let bytes = [frame(DEFLATED | TEXT, &body), frame(FINAL, &[0x00])].concat();
        let (messages, end) = read_deflated(bytes);
        assert_eq!(messages, [Message::text(plain)], "{len}");
        assert!(is_gone(&end), "{end}");
    }
}

#[test]
fn what_is_no_deflate_is_refused_and_what_is_no_frame_the_library_refuses() {
    let hello = deflated(b"Hello", 6);
    let begun = frame(DEFLATED | TEXT, &hello[..3]);
    let whole = frame(FINAL | DEFLATED | TEXT, &hello);
    let after = |first: &[u8], more: Vec<u8>| [first.to_vec(), more].concat();
    for (name, bytes) in [
        ("a continuation with the bit", after(&begun, frame(FINAL | DEFLATED, &hello[3..]))),
        ("a ping with the bit", frame(FINAL | DEFLATED | PING, b"")),
        ("a ping with the bit inside", after(&begun, frame(FINAL | DEFLATED | PING, b""))),
        ("another reserved bit", frame(FINAL | 0x20 | TEXT, b"a")),
        ("and the third", frame(FINAL | DEFLATED | 0x10 | TEXT, &hello)),
        ("a message inside another", after(&begun, frame(FINAL | TEXT, b"a"))),
        ("a deflated message inside another", after(&begun, whole.clone())),
        ("a deflated message inside a plain one", after(&frame(TEXT, b"a"), whole.clone())),
        ("an end without a beginning", frame(FINAL, b"a")),
        ("an end behind an end", after(&whole, frame(FINAL, b"a"))),
        ("a reserved opcode", frame(FINAL | DEFLATED | 3, &hello)),
        ("a plain message that is not masked", vec![FINAL | TEXT, 1, b'a']),
    ] {
        // One byte at a time is another way through.
        for cuts in [Vec::new(), vec![1]] {
            let (_, end) = read(bytes.clone(), cuts, Some(shared().0));
            assert!(matches!(end, Error::Protocol(_)) && !is_gone(&end), "{name}: {end}");
        }
    }
    for (name, bytes, expected) in [
        ("not masked", vec![FINAL | DEFLATED | TEXT, 1, 0], Broken::Frames),
        ("a block of no kind", frame(FINAL | DEFLATED | TEXT, &[0xff; 8]), Broken::Deflate),
        ("a length that is none", frame(FINAL | DEFLATED | TEXT, &[0, 5, 0, 5, 0, 1]), Broken::Deflate),
        ("a distance to nowhere", frame(FINAL | DEFLATED | TEXT, &[0x4a, 0x04, 0xff, 0xff]), Broken::Deflate),
    ] {
        let (messages, end) = read_deflated(bytes);
        assert_eq!((messages, broken(&end)), (Vec::new(), Some(expected)), "{name}: {end}");
    }
    // Where nothing was agreed the bit is not known.
    let (messages, end) = read(whole, Vec::new(), None);
    assert!(messages.is_empty() && matches!(end, Error::Protocol(_)) && !is_gone(&end), "{end}");
}

#[test]
fn a_text_that_is_none_is_found_once_it_is_inflated() {
    let (messages, end) = read_deflated(frame(FINAL | DEFLATED | TEXT, &deflated(&[0xff; 9_000], 6)));
    assert!(messages.is_empty() && matches!(end, Error::Utf8(_)), "{end}");
}

#[test]
fn a_message_may_be_as_large_as_a_plain_one_and_no_larger_however_small_it_came() {
    let largest = vec![7; WS_MESSAGE_BYTES_MAX];
    let (messages, end) = read_deflated(frame(FINAL | DEFLATED | BINARY, &deflated(&largest, 9)));
    assert!(messages == [Message::binary(largest)] && is_gone(&end), "{end}");
    let is_size = |end: &Error| matches!(end, Error::Capacity(_)) || broken(end) == Some(Broken::Size);
    let bomb = deflated(&vec![7; WS_MESSAGE_BYTES_MAX + 1], 9);
    let (messages, end) = read_deflated(frame(FINAL | DEFLATED | BINARY, &bomb));
    assert!(messages.is_empty() && is_size(&end), "{end}");
    // 64 MiB in 64 KiB.
    let bomb = deflated(&vec![7; 64 << 20], 9);
    assert!(bomb.len() < 100_000, "{}", bomb.len());
    let (messages, end) = read_deflated(frame(FINAL | DEFLATED | BINARY, &bomb));
    assert!(messages.is_empty() && is_size(&end), "{end}");
}

#[test]
fn a_message_that_becomes_nothing_ends_where_the_largest_would() {
    // Empty blocks, five bytes each.
    let block = [0x00, 0x00, 0x00, 0xff, 0xff].repeat(200_000);
    let mut bytes = frame(DEFLATED | BINARY, &block);
    for _ in 0..8 {
        bytes.extend(frame(0, &block));
    }
    let (messages, end) = read_deflated(bytes);
    assert_eq!((messages, broken(&end)), (Vec::new(), Some(Broken::Size)), "{end}");
}

#[test]
fn a_message_that_never_ends_holds_a_codec_until_the_client_is_gone() {
    let (deflate, registry) = shared();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let body = deflated(&b"order ".repeat(2_000), 6);
        let (ours, mut theirs) = tokio::io::duplex(1 << 20);
        let mut socket =
            WebSocketStream::from_raw_socket(Wire::new(ours, Some(deflate)), Role::Server, None).await;
        let mut send = async |bytes: Vec<u8>| {
            tokio::io::AsyncWriteExt::write_all(&mut theirs, &bytes).await.unwrap();
        };
        send([frame(DEFLATED | TEXT, &body[..20]), frame(FINAL | PING, b"a")].concat()).await;
        assert_eq!(socket.next().await.unwrap().unwrap(), Message::Ping("a".into()));
        assert_eq!(inflating(&registry), 1);
        send([frame(FINAL, &body[20..]), vec![FINAL | PING]].concat()).await;
        assert_eq!(socket.next().await.unwrap().unwrap().len(), 12_000);
        // A ping has begun behind it: that is no reason to hold anything.
        assert!(futures_util::FutureExt::now_or_never(socket.next()).is_none());
        assert_eq!(inflating(&registry), 0);
        send([vec![0x80, 1, 2, 3, 4], frame(DEFLATED | TEXT, &body[..20])].concat()).await;
        assert_eq!(socket.next().await.unwrap().unwrap(), Message::Ping(Bytes::new()));
        assert!(futures_util::FutureExt::now_or_never(socket.next()).is_none());
        assert_eq!(inflating(&registry), 1);
    });
    assert_eq!(inflating(&registry), 0);
}

#[test]
fn a_message_cut_off_inside_a_block_is_refused() {
    // "Hello": fixed codes, the same as a last block, no compression; then no compression and too little of
    // it, or of its length.
    for body in [
        &[0xf2, 0x48, 0xcd][..],
        &[0xf2, 0x48, 0xcd, 0xc9, 0xc9],
        &[0xf3, 0x48, 0xcd],
        &[0x00, 0x05, 0x00, 0xfa, 0xff, 0x48, 0x65, 0x6c, 0x6c, 0x6f],
        &[0x00, 0x09, 0x00, 0xf6, 0xff, 0x68, 0x65, 0x6c, 0x6c, 0x6f],
        &[0x01, 0x09, 0x00, 0xf6, 0xff, 0x68, 0x65, 0x6c, 0x6c, 0x6f],
        &[0x00, 0xff, 0xff, 0x00, 0x00, 0x68],
        &[0x00, 0x05],
        &[0x00, 0x00, 0x00],
    ] {
        let (messages, end) = read_deflated(frame(FINAL | DEFLATED | BINARY, body));
        assert_eq!((messages, broken(&end)), (Vec::new(), Some(Broken::Deflate)), "{body:x?}: {end}");
    }
    // A message that is cut off anywhere is none, however much had come of it.
    let whole = deflated(&b"order ".repeat(20_000), 6);
    for len in 1..whole.len() {
        let (messages, end) = read_deflated(frame(FINAL | DEFLATED | BINARY, &whole[..len]));
        assert_eq!((messages, broken(&end)), (Vec::new(), Some(Broken::Deflate)), "{len}: {end}");
    }
    // An empty block without compression may be the last.
    let (messages, end) = read_deflated(frame(FINAL | DEFLATED | TEXT, &[0x01]));
    assert_eq!(messages, [Message::text("")], "{end}");
}

#[test]
fn what_came_before_a_broken_message_is_read() {
    let hello = frame(FINAL | DEFLATED | TEXT, &deflated(b"Hello", 6));
    for (bad, expected) in [
        (frame(FINAL | DEFLATED | TEXT, &[0xff; 8]), Broken::Deflate),
        (vec![FINAL | DEFLATED | TEXT, 1, 0], Broken::Frames),
    ] {
        let (messages, end) = read_deflated([&hello[..], &hello, &bad].concat());
        assert_eq!(messages, [Message::text("Hello"), Message::text("Hello")], "{end}");
        assert_eq!(broken(&end), Some(expected), "{end}");
    }
}

#[test]
fn a_message_that_shrinks_goes_out_deflated_wherever_the_compressor_is_full() {
    // Letters and digits in no order: six bits for each.
    let mut state = 1u32;
    let text: String = std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        char::from(b'0' + u8::try_from(state >> 26).unwrap())
    })
    .take(200_000)
    .collect();
    for len in (40_000..text.len()).step_by(1_000) {
        let outgoing = outgoing_of(Outgoing::Message(Message::text(&text[..len])));
        let Outgoing::Message(Message::Frame(frame)) = outgoing else { panic!("{len} bytes go as they are") };
        assert!(inflated(frame.payload()) == text.as_bytes()[..len], "{len}");
    }
}

/// A client that always has more: the same bytes again and again. Counts them.
struct Endless {
    bytes: Vec<u8>,
    taken: usize,
}

impl AsyncRead for Endless {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let at = self.taken % self.bytes.len();
        let more: Vec<u8> = self.bytes.iter().cycle().skip(at).take(to.remaining()).copied().collect();
        to.put_slice(&more);
        self.taken += more.len();
        Poll::Ready(Ok(()))
    }
}

#[test]
fn others_have_their_turn_after_a_few_kib_whatever_comes_of_them() {
    for (name, bytes) in [
        ("empty messages", frame(FINAL | DEFLATED | TEXT, &[0x03, 0x00])),
        ("messages of empty blocks", {
            let blocks = [0x00, 0x00, 0x00, 0xff, 0xff].repeat(10_000);
            frame(FINAL | DEFLATED | BINARY, &[&blocks[..], &[0x00]].concat())
        }),
        ("text", frame(FINAL | DEFLATED | TEXT, &deflated("0123456789abc".repeat(20).as_bytes(), 1))),
    ] {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let config = WebSocketConfig::default().read_buffer_size(4 << 10);
            let wire = Wire::new(join(Endless { bytes, taken: 0 }, sink()), Some(shared().0));
            let mut socket = WebSocketStream::from_raw_socket(wire, Role::Server, Some(config)).await;
            for _ in 0..50 {
                let before = socket.get_mut().stream_mut().reader().taken;
                // As a socket's task does: what is there is taken without waiting, and then waited for.
                std::future::poll_fn(|cx| {
                    while let Poll::Ready(message) = socket.poll_next_unpin(cx) {
                        message.unwrap().unwrap();
                        while let Some(message) = futures_util::FutureExt::now_or_never(socket.next()) {
                            message.unwrap().unwrap();
                        }
                    }
                    Poll::Ready(())
                })
                .await;
                let taken = socket.get_mut().stream_mut().reader().taken - before;
                assert!(taken <= 12 << 10, "{name}: {taken} bytes");
                tokio::task::yield_now().await;
            }
            assert!(socket.get_mut().stream_mut().reader().taken > 50 << 10, "{name}");
        });
    }
}
