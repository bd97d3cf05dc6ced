//! Messages on their way out.

use bytes::Bytes;
use flate2::{Compress, FlushCompress};
use tokio::task::yield_now;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};

use super::inflate::TAIL;
use super::shared::Deflate;
use crate::ws::output::Outgoing;

/// Messages below this are sent as they are: little is saved, and a compressor has to be made ready for each message.
const BYTES_MIN: usize = 512;
/// So much is compressed before others have their turn: a tenth of a millisecond for text.
const TURN_BYTES: usize = 64 << 10;
/// Room taken at once for what is made.
const ROOM_BYTES: usize = 8 << 10;

impl Outgoing {
    /// Large enough that compressing it may save something.
    pub(in crate::ws) fn is_worth_deflating(&self) -> bool {
        self.len() >= BYTES_MIN
    }
}

impl Deflate {
    /// The message as it is sent: deflated, if that makes it smaller, whatever it costs.
    ///
    /// # Cancel safety
    /// None is needed: only the message is lost.
    pub(in crate::ws) async fn outgoing(&self, outgoing: Outgoing) -> Outgoing {
        let bytes = outgoing.len();
        let (opcode, deflated) = match &outgoing {
            Outgoing::Message(Message::Text(text)) => (Data::Text, self.deflated(&[text], bytes).await),
            Outgoing::Message(Message::Binary(whole)) => (Data::Binary, self.deflated(&[whole], bytes).await),
            Outgoing::Parts(parts) => (Data::Binary, self.deflated(parts, bytes).await),
            Outgoing::Message(_) => return outgoing,
        };
        let Some(deflated) = deflated else { return outgoing };
        self.counts().sent(bytes, deflated.len());
        let mut frame = Frame::message(deflated, OpCode::Data(opcode), true);
        frame.header_mut().rsv1 = true;
        Outgoing::Message(Message::Frame(frame))
    }

    /// What the parts, `bytes` together, are deflated; `None` if that is no less.
    async fn deflated(&self, parts: &[impl AsRef<[u8]>], bytes: usize) -> Option<Bytes> {
        let mut compress = self.compress();
        let mut made = Vec::new();
        let (mut is_smaller, mut turn_bytes) = (true, 0);
        for turn in parts.iter().flat_map(|part| part.as_ref().chunks(TURN_BYTES)) {
            if turn_bytes >= TURN_BYTES {
                yield_now().await;
                turn_bytes = 0;
            }
            turn_bytes += turn.len();
            is_smaller = put(&mut compress, turn, FlushCompress::None, &mut made, bytes);
            if !is_smaller {
                break;
            }
        }
        let is_smaller = is_smaller && put(&mut compress, &[], FlushCompress::Sync, &mut made, bytes);
        self.compressed(compress);
        // A flush ends with an empty block: the message's end, which is left out.
        made.truncate(made.strip_suffix(&TAIL)?.len());
        is_smaller.then(|| made.into())
    }
}

/// Compresses all of `input`, and flushes all of it; false if what is made has come to `bytes_max`.
fn put(
    compress: &mut Compress,
    mut input: &[u8],
    flush: FlushCompress,
    made: &mut Vec<u8>,
    bytes_max: usize,
) -> bool {
    let mut is_held_back = false;
    while made.len() < bytes_max {
        made.reserve(ROOM_BYTES);
        let before = compress.total_in();
        // An error would be a wrong call; what is not smaller is sent as it is.
        if compress.compress_vec(input, made, flush).is_err() {
            return false;
        }
        let taken = usize::try_from(compress.total_in() - before).expect("no more than there was");
        input = &input[taken..];
        // What found no room comes with the next call, which does nothing else: the flush may not have been reached.
        let is_full = made.len() == made.capacity();
        if input.is_empty() && !is_full && !is_held_back {
            return made.len() < bytes_max + TAIL.len();
        }
        is_held_back = is_full;
    }
    false
}
