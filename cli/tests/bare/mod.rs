//! A WebSocket without a library: every byte of a frame is the test's.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use crate::product::Product;

/// Whatever is wrong, an answer or a close comes within this.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// A WebSocket after its handshake, as a bare stream.
pub(crate) fn upgraded(product: &Product, subprotocol: &str) -> TcpStream {
    upgraded_with(product, subprotocol, "")
}

/// The same with more header lines in the handshake.
pub(crate) fn upgraded_with(product: &Product, subprotocol: &str, lines: &str) -> TcpStream {
    let mut stream = TcpStream::connect(&product.address).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    stream.set_nodelay(true).unwrap();
    let handshake = format!(
        "GET /v1/ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
         Sec-WebSocket-Protocol: {subprotocol}\r\n{lines}\r\n"
    );
    stream.write_all(handshake.as_bytes()).unwrap();
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    assert!(head.starts_with(b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&head));
    stream
}

/// A client's frame: masked, so that what is not unmasked is noticed.
pub(crate) fn masked(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![first];
    match payload.len() {
        len @ 0..=125 => frame.push(0x80 | u8::try_from(len).unwrap()),
        len @ 126..=0xffff => {
            frame.push(0x80 | 126);
            frame.extend_from_slice(&u16::try_from(len).unwrap().to_be_bytes());
        }
        len => {
            frame.push(0x80 | 127);
            frame.extend_from_slice(&(len as u64).to_be_bytes());
        }
    }
    let mask = [0x5a, 0x01, 0xc3, 0x80];
    frame.extend_from_slice(&mask);
    frame.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    frame
}

/// The frames of an answer: opcode and payload. A gateway's frames are whole and unmasked.
pub(crate) fn frames(mut answer: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let mut frames = Vec::new();
    while let [first, length, rest @ ..] = answer {
        assert_eq!((first & 0xf0, length & 0x80), (0x80, 0), "final, plain and not masked");
        let (length, rest) = match *length {
            126 => (usize::from(u16::from_be_bytes(rest[..2].try_into().unwrap())), &rest[2..]),
            127 => (usize::try_from(u64::from_be_bytes(rest[..8].try_into().unwrap())).unwrap(), &rest[8..]),
            length => (usize::from(length), rest),
        };
        frames.push((first & 0x0f, rest[..length].to_vec()));
        answer = &rest[length..];
    }
    frames
}

/// The code of the close frame that an answer ends with.
pub(crate) fn close_code(answer: &[u8]) -> Option<u16> {
    let frames = frames(answer);
    let (_, payload) = frames.last().filter(|(opcode, _)| *opcode == 8)?;
    Some(u16::from_be_bytes(payload.get(..2)?.try_into().unwrap()))
}
