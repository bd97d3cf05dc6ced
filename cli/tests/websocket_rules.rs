//! RFC 6455 below the subprotocol's frames: fragments, control frames, text, closes, and every way to get
//! them wrong. The cases are those of the Autobahn test suite (its numbers in brackets), over bare sockets:
//! with permessage-deflate agreed, which reads frames by itself, and without; in one piece, and an octet at a
//! time.
#![expect(dead_code, reason = "each test uses a part of the product's client")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bare;
mod product;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use bare::{DEADLINE, close_code, frames, masked, upgraded_with};
use product::{Product, started};

const JSON: &str = "weir.v1.json";
const BIN: &str = "weir.v1.bin";
const DEFLATE: &str = "Sec-WebSocket-Extensions: permessage-deflate\r\n";
const FINAL: u8 = 0x80;
const MORE: u8 = 0;
const CONTINUATION: u8 = 0;
const TEXT: u8 = 1;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;
const HELLO: &[u8] = br#"{"t":"hello","v":1}"#;

/// Everything that comes until the gateway ends the connection, after `bytes` were written `chop` at a time.
/// Writing may fail once the other side has closed.
fn told(product: &Product, subprotocol: &str, lines: &str, bytes: &[u8], chop: usize) -> Vec<u8> {
    let mut stream = upgraded_with(product, subprotocol, lines);
    for piece in bytes.chunks(chop) {
        if stream.write_all(piece).is_err() {
            break;
        }
    }
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Err(error) if error.kind() != std::io::ErrorKind::ConnectionReset => {
            panic!("still open after {DEADLINE:?}: {error}, {}", String::from_utf8_lossy(&answer))
        }
        _ => answer,
    }
}

/// Expects `code`, and that nothing was made of the message, however the bytes come.
fn refused(product: &Product, what: &str, subprotocol: &str, bytes: &[u8], code: u16) {
    for lines in ["", DEFLATE] {
        for chop in [bytes.len().max(1), 1] {
            // A byte a time is for headers: a message of megabytes has them at its start.
            if chop == 1 && bytes.len() > 4_096 {
                continue;
            }
            let answer = told(product, subprotocol, lines, bytes, chop);
            let shown = String::from_utf8_lossy(&answer);
            assert_eq!(close_code(&answer), Some(code), "{what}, {lines:?}, {chop} at a time: {shown}");
            assert!(!shown.contains("welcome"), "{what}: {shown}");
        }
    }
}

/// The payloads of the frames with this opcode.
fn payloads(answer: &[u8], opcode: u8) -> Vec<Vec<u8>> {
    let of = |(found, payload): (u8, Vec<u8>)| (found == opcode).then_some(payload);
    frames(answer).into_iter().filter_map(of).collect()
}

/// A close frame's payload.
fn closing(code: u16, reason: &[u8]) -> Vec<u8> {
    [&code.to_be_bytes()[..], reason].concat()
}

fn goodbye() -> Vec<u8> {
    masked(FINAL | CLOSE, &closing(1000, b""))
}

#[test]
fn reserved_bits_and_opcodes_are_closed_with_a_protocol_error() {
    let (_dir, product, _http) = started();
    // [3.1–3.7] The first bit alone would be a deflated message where that was agreed: tested beside
    // permessage-deflate.
    for bits in 1..8u8 {
        let first = FINAL | bits << 4;
        if bits != 4 {
            refused(&product, "bits of a text", JSON, &masked(first | TEXT, HELLO), 1002);
            refused(&product, "bits of a binary", BIN, &masked(first | BINARY, &[0; 16]), 1002);
        }
        refused(&product, "bits of a ping", JSON, &masked(first | PING, b"x"), 1002);
        refused(&product, "bits of a pong", JSON, &masked(first | PONG, b"x"), 1002);
        refused(&product, "bits of a close", JSON, &masked(first | CLOSE, &closing(1000, b"")), 1002);
        let fragments = [masked(TEXT, &HELLO[..4]), masked(first | CONTINUATION, &HELLO[4..])].concat();
        refused(&product, "bits of a continuation", JSON, &fragments, 1002);
    }
    // [4.1, 4.2]
    for opcode in (3..8).chain(11..16) {
        for payload in [&b""[..], HELLO] {
            refused(&product, "an opcode of nobody's", JSON, &masked(FINAL | opcode, payload), 1002);
        }
        let inside = [
            masked(TEXT, &HELLO[..4]),
            masked(FINAL | opcode, b"x"),
            masked(FINAL | CONTINUATION, &HELLO[4..]),
        ];
        refused(&product, "an opcode of nobody's in a message", JSON, &inside.concat(), 1002);
    }
}

#[test]
fn fragments_that_make_no_message_are_closed_with_a_protocol_error() {
    let (_dir, product, _http) = started();
    for (what, subprotocol, parts) in [
        // [5.9–5.14]
        ("the end of nothing", JSON, vec![(FINAL | CONTINUATION, HELLO)]),
        ("the middle of nothing", JSON, vec![(MORE | CONTINUATION, HELLO), (FINAL | CONTINUATION, b"")]),
        ("nothing's middle, then a message", JSON, vec![(MORE | CONTINUATION, b"x"), (FINAL | TEXT, HELLO)]),
        ("the end of nothing, binary", BIN, vec![(FINAL | CONTINUATION, &[0; 16])]),
        // [5.18]
        ("a text inside a text", JSON, vec![(TEXT, &HELLO[..4]), (FINAL | TEXT, HELLO)]),
        ("a binary inside a text", JSON, vec![(TEXT, &HELLO[..4]), (FINAL | BINARY, &[0; 16])]),
        ("a text inside a binary", BIN, vec![(BINARY, &[0; 4]), (FINAL | TEXT, HELLO)]),
        ("another begun inside one", BIN, vec![(BINARY, &[0; 4]), (BINARY, &[0; 4])]),
        // [5.1, 5.2]
        ("a ping in fragments", JSON, vec![(PING, b"x"), (FINAL | CONTINUATION, b"y")]),
        ("a pong in fragments", JSON, vec![(PONG, b"x"), (FINAL | CONTINUATION, b"y")]),
        ("a close in fragments", JSON, vec![(CLOSE, &[0x03]), (FINAL | CONTINUATION, &[0xe8])]),
        // [2.5, 7.3.6]
        ("a ping of 126 bytes", JSON, vec![(FINAL | PING, &[b'x'; 126])]),
        ("a pong of 126 bytes", JSON, vec![(FINAL | PONG, &[b'x'; 126])]),
        ("a close of 126 bytes", JSON, vec![(FINAL | CLOSE, &[3; 126])]),
        ("a ping of 126 bytes in a message", JSON, vec![(TEXT, &HELLO[..4]), (FINAL | PING, &[b'x'; 126])]),
        ("a ping of 64 KiB", JSON, vec![(FINAL | PING, &[b'x'; 65_536])]),
    ] {
        let bytes: Vec<u8> = parts.into_iter().flat_map(|(first, payload)| masked(first, payload)).collect();
        refused(&product, what, subprotocol, &bytes, 1002);
    }
}

/// Nothing of them may be read as if it were: a proxy that sees other bytes could be made to keep them (RFC
/// 6455, section 10.3).
#[test]
fn frames_that_are_not_masked_are_closed_with_a_protocol_error() {
    let (_dir, product, _http) = started();
    let length = u8::try_from(HELLO.len()).unwrap();
    for (what, first, payload) in [
        ("a text", FINAL | TEXT, HELLO),
        ("an empty text", FINAL | TEXT, b""),
        ("a binary", FINAL | BINARY, HELLO),
        ("a ping", FINAL | PING, HELLO),
        ("a pong", FINAL | PONG, HELLO),
        ("an empty close", FINAL | CLOSE, b""),
        ("a close", FINAL | CLOSE, &[0x03, 0xe8]),
        ("the beginning of a text", MORE | TEXT, HELLO),
    ] {
        let bytes = [&[first, u8::try_from(payload.len()).unwrap()][..], payload].concat();
        refused(&product, what, JSON, &bytes, 1002);
    }
    let rest = [&masked(TEXT, b" ")[..], &[FINAL | CONTINUATION, length], HELLO].concat();
    refused(&product, "the rest of a masked message", JSON, &rest, 1002);
    let both = [&masked(FINAL | PING, b"x")[..], &[FINAL | TEXT, length], HELLO].concat();
    refused(&product, "a text after a masked ping", JSON, &both, 1002);
}

#[test]
fn lengths_beyond_all_limits_are_closed_before_anything_of_them_is_there() {
    let (_dir, product, _http) = started();
    let head = |first: u8, length: u64| [&[first, 0x80 | 127][..], &length.to_be_bytes(), &[0; 4]].concat();
    for (subprotocol, opcode) in [(JSON, TEXT), (BIN, BINARY)] {
        for length in [(4 << 20) + 1, 1 << 32, 1 << 40, i64::MAX as u64] {
            let what = format!("{length} bytes");
            refused(&product, &what, subprotocol, &head(FINAL | opcode, length), 1009);
            refused(&product, &what, subprotocol, &head(opcode, length), 1009);
            let rest = [masked(opcode, b" "), head(FINAL | CONTINUATION, length)].concat();
            refused(&product, &format!("{what} in a continuation"), subprotocol, &rest, 1009);
        }
        // The highest bit must be 0 (RFC 6455, section 5.2): it is beyond the limit, whatever else it is.
        refused(&product, "the highest bit", subprotocol, &head(FINAL | opcode, u64::MAX), 1009);
    }
    // What is small by itself is too much together [9.3, 9.4].
    let parts = std::iter::once(masked(BINARY, &[0; 65_536]))
        .chain((0..64).map(|_| masked(CONTINUATION, &[0; 65_536])))
        .collect::<Vec<_>>();
    refused(&product, "fragments together", BIN, &parts.concat(), 1009);
    for opcode in [PING, PONG, CLOSE] {
        refused(&product, "a control frame", JSON, &head(FINAL | opcode, u64::MAX), 1009);
    }
    // One that is too long and yet no longer than a message may be is judged once it is there; until then its
    // sender is slow.
    let answer = told(&product, JSON, "", &head(FINAL | PING, 126), usize::MAX);
    assert_eq!(close_code(&answer), Some(4002));
}

/// [6.1–6.22]: what is no UTF-8, whole, in fragments, and cut inside a code point.
#[test]
fn text_that_is_not_utf_8_is_closed_with_its_code() {
    let (_dir, product, _http) = started();
    let wrong: [(&str, &[u8]); 13] = [
        ("a byte of nothing", b"\xff"),
        ("a continuation alone", b"\x80"),
        ("two continuations", b"\xbf\xbf"),
        ("a beginning alone", b"\xce"),
        ("a beginning and no continuation", b"\xe2\x82 "),
        ("a surrogate", b"\xed\xa0\x80"),
        ("a pair of surrogates", b"\xed\xa0\x80\xed\xb0\x80"),
        ("a slash in two bytes", b"\xc0\xaf"),
        ("a slash in three bytes", b"\xe0\x80\xaf"),
        ("zero in two bytes", b"\xc0\x80"),
        ("beyond the last code point", b"\xf4\x90\x80\x80"),
        ("five bytes", b"\xf8\x88\x80\x80\x80"),
        ("six bytes", b"\xfd\xbf\xbf\xbf\xbf\xbf"),
    ];
    for (what, bytes) in wrong {
        let text = [&b"{\"t\":\"\xce\xba"[..], bytes, b"\"}"].concat();
        refused(&product, what, JSON, &masked(FINAL | TEXT, &text), 1007);
        refused(&product, &format!("{what} at the end"), JSON, &masked(FINAL | TEXT, bytes), 1007);
        // Cut at every place, with a ping between.
        for at in 0..=text.len() {
            let parts = [masked(TEXT, &text[..at]), masked(FINAL | PING, b""), masked(FINAL, &text[at..])];
            let answer = told(&product, JSON, "", &parts.concat(), usize::MAX);
            assert_eq!(close_code(&answer), Some(1007), "{what}, cut at {at}");
        }
    }
    // [6.3] An octet in each fragment.
    let text = b"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5\xed\xa0\x80";
    let ends = |at: usize| if at + 1 == text.len() { FINAL } else { MORE };
    let opcode = |at: usize| if at == 0 { TEXT } else { CONTINUATION };
    let parts = (0..text.len()).flat_map(|at| masked(ends(at) | opcode(at), &text[at..=at]));
    refused(&product, "octets", JSON, &parts.collect::<Vec<_>>(), 1007);
}

/// [7.7, 7.9, 7.13]: codes that may be sent are sent back, and all others are an error of the protocol.
#[test]
fn a_close_is_answered_with_its_code_and_a_wrong_one_with_a_protocol_error() {
    let (_dir, product, _http) = started();
    for code in [1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 3000, 3999, 4000, 4999] {
        for reason in [&b""[..], b"bye", &[b'x'; 123]] {
            let bytes = masked(FINAL | CLOSE, &closing(code, reason));
            refused(&product, &format!("code {code}"), JSON, &bytes, code);
        }
    }
    for code in [0, 1, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65535] {
        for reason in [&b""[..], b"bye"] {
            let bytes = masked(FINAL | CLOSE, &closing(code, reason));
            refused(&product, &format!("code {code}"), JSON, &bytes, 1002);
        }
    }
    // [7.3.2, 7.5.1]
    refused(&product, "half a code", JSON, &masked(FINAL | CLOSE, &[3]), 1002);
    refused(
        &product,
        "a reason that is no text",
        JSON,
        &masked(FINAL | CLOSE, &closing(1000, b"\xce")),
        1007,
    );
    // [7.3.1] Who says nothing is told nothing.
    for lines in ["", DEFLATE] {
        let answer = told(&product, JSON, lines, &masked(FINAL | CLOSE, b""), 1);
        assert_eq!(frames(&answer), [(CLOSE, Vec::new())]);
    }
}

#[test]
fn nothing_behind_a_close_is_looked_at() {
    let (_dir, product, mut http) = started();
    let publish = br#"{"t":"pub","ch":1,"seq":0,"data":"late"}"#;
    for (what, after) in [
        ("another close", masked(FINAL | CLOSE, &closing(4000, b""))),
        ("a ping", masked(FINAL | PING, b"x")),
        ("a message", masked(FINAL | TEXT, publish)),
        ("what is no frame", vec![0xff; 100]),
    ] {
        for lines in ["", DEFLATE] {
            let bytes = [goodbye(), after.clone()].concat();
            let answer = told(&product, JSON, lines, &bytes, usize::MAX);
            assert_eq!(frames(&answer), [(CLOSE, closing(1000, b""))], "{what}");
            // [7.1.5] Inside a message, too: it is never whole.
            let inside = [masked(TEXT, &HELLO[..4]), bytes, masked(FINAL, &HELLO[4..])].concat();
            let answer = told(&product, JSON, lines, &inside, usize::MAX);
            assert_eq!(frames(&answer), [(CLOSE, closing(1000, b""))], "{what}, inside a message");
        }
    }
    assert_eq!(http.request("GET /v1/topics/t", &[], b"").unwrap().status, 404, "nothing was published");
}

/// [2.1–2.11, 5.3–5.8, 5.19, 5.20]
#[test]
fn pings_are_answered_between_the_fragments_of_a_message() {
    let (_dir, product, _http) = started();
    let binary: Vec<u8> = (0..125).map(|byte| byte | 0x80).collect();
    for lines in ["", DEFLATE] {
        for chop in [1, 3, usize::MAX] {
            let bytes = [
                masked(FINAL | PONG, b"nobody asked"),
                masked(FINAL | PONG, b""),
                masked(FINAL | PING, b""),
                masked(TEXT, b""),
                masked(FINAL | PING, &binary),
                masked(CONTINUATION, &HELLO[..7]),
                masked(FINAL | PING, b"second"),
                masked(FINAL | PONG, b"nobody asked"),
                masked(CONTINUATION, b""),
                masked(FINAL | CONTINUATION, &HELLO[7..]),
                masked(FINAL | PING, b"third"),
            ];
            let mut stream = upgraded_with(&product, JSON, lines);
            for piece in bytes.concat().chunks(chop) {
                stream.write_all(piece).unwrap();
            }
            let mut answer = awaited(&mut stream, &["welcome", "third"]);
            stream.write_all(&goodbye()).unwrap();
            stream.read_to_end(&mut answer).unwrap();
            assert_eq!(close_code(&answer), Some(1000), "{lines:?}, {chop} at a time");
            let text = payloads(&answer, TEXT).concat();
            assert!(text.starts_with(b"{\"t\":\"welcome\""), "{}", String::from_utf8_lossy(&text));
            // Of pings that come before the first was answered, the last one may be answered alone (section 5.5.3).
            let pongs = payloads(&answer, PONG);
            let sent = [&b""[..], &binary, b"second", b"third"];
            let mut left = sent.iter();
            assert!(pongs.iter().all(|pong| left.any(|ping| ping == pong)), "{pongs:?}");
            assert_eq!(pongs.last().map(Vec::as_slice), Some(&b"third"[..]));
        }
    }
}

/// [1.1, 5.3–5.8, 6.2, 6.4, 9.1–9.8]: a text in pieces of every size, cut inside code points, is stored as it was sent.
#[test]
fn a_text_in_fragments_is_stored_as_it_was_sent() {
    let (_dir, product, mut http) = started();
    let data = "κόσμε \u{10ffff}\u{feff}\u{fffe}😀".repeat(200);
    let greeted = [masked(FINAL | TEXT, HELLO), masked(FINAL | TEXT, br#"{"t":"open","ch":1,"topic":"t"}"#)];
    let publish = |seq: usize| format!("{{\"t\":\"pub\",\"ch\":1,\"seq\":{seq},\"data\":\"{data}\"}}");
    let mut stored = 0;
    for lines in ["", DEFLATE] {
        for (size, chop) in [(1, usize::MAX), (1, 1), (2, 7), (125, 1_000), (126, 13), (65_536, usize::MAX)] {
            let mut stream = upgraded_with(&product, JSON, lines);
            stream.write_all(&greeted.concat()).unwrap();
            awaited(&mut stream, &["\"opened\""]);
            let text = publish(0);
            let count = text.len().div_ceil(size);
            let parts = text.as_bytes().chunks(size).zip(1..).flat_map(|(part, number)| {
                let opcode = if number == 1 { TEXT } else { CONTINUATION };
                let ends = if number == count { FINAL } else { MORE };
                let ping = if number % 50 == 0 { masked(FINAL | PING, b"still there?") } else { Vec::new() };
                [masked(ends | opcode, part), ping].concat()
            });
            for piece in parts.collect::<Vec<_>>().chunks(chop) {
                stream.write_all(piece).unwrap();
            }
            awaited(&mut stream, &["\"confirm\""]);
            stored += 1;
        }
    }
    let page = http.request("GET /v1/topics/t/messages?from=0", &[], b"").unwrap().json();
    let messages = page["messages"].as_array().unwrap();
    assert_eq!(messages.len(), stored);
    assert!(messages.iter().all(|message| message["data"] == data.as_str()));
}

/// What comes until all of `wanted` is in it.
fn awaited(stream: &mut TcpStream, wanted: &[&str]) -> Vec<u8> {
    let mut came = Vec::new();
    let mut chunk = [0; 4_096];
    while !wanted.iter().all(|wanted| String::from_utf8_lossy(&came).contains(wanted)) {
        let n = stream.read(&mut chunk).unwrap();
        assert!(n > 0, "closed: {}", String::from_utf8_lossy(&came));
        came.extend_from_slice(&chunk[..n]);
    }
    came
}
