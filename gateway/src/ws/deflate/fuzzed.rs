//! What a client's bytes become where permessage-deflate was agreed, for the fuzz target.

use prometheus::Registry;
use tokio::io::ReadBuf;

use super::DeflateCounts;
use super::frames::Frames;
use super::inflate::Inflating;

/// The bytes that the WebSocket library is given of `bytes`, which come `piece` at a time, and whether the client broke a rule behind them.
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
