//! What a client's bytes become where permessage-deflate was agreed, for the fuzz target.

use std::io::{self, Cursor, Read, Write};

use prometheus::Registry;
use tokio::io::ReadBuf;
use tokio_tungstenite::tungstenite::protocol::Role;
use tokio_tungstenite::tungstenite::{Message, WebSocket};

use super::DeflateCounts;
use super::frames::Frames;
use super::inflate::Inflating;

/// The bytes that the WebSocket library is given of `bytes`, which come `piece` at a time, and whether the
/// client broke a rule behind them.
///
/// # Panics
/// If `piece` is zero.
#[must_use]
pub fn inflated(bytes: &[u8], piece: usize) -> (Vec<u8>, bool) {
    let counts = DeflateCounts::register(&Registry::new()).expect("a registry of its own");
    let (mut frames, mut inflating) = (Frames::default(), Inflating::new());
    let mut made = Vec::new();
    for piece in bytes.chunks(piece) {
        inflating.came().extend_from_slice(piece);
        loop {
            let mut room = [0; 512];
            let mut to = ReadBuf::new(&mut room);
            let given = inflating.give(&mut frames, &mut to, &counts);
            made.extend_from_slice(to.filled());
            if given.is_err() {
                return (made, true);
            }
            if to.remaining() > 0 {
                break;
            }
        }
    }
    (made, false)
}

/// The messages that the WebSocket library finds in what it is given: `inflated`, as far as they are whole
/// and as they should be.
#[must_use]
pub fn messages(inflated: &[u8]) -> Vec<Message> {
    let mut socket = WebSocket::from_raw_socket(Given(Cursor::new(inflated)), Role::Server, None);
    std::iter::from_fn(|| socket.read().ok()).collect()
}

/// A client of whom this is all, and who takes any answer.
struct Given<'a>(Cursor<&'a [u8]>);

impl Read for Given<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        self.0.read(to)
    }
}

impl Write for Given<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
