//! Messages in parts, written beside the library: it would copy them into a buffer of its own.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf as _, Bytes};
use tokio::io::AsyncWrite;

/// Parts given to one write: of parts of a few KiB, more than a message of 128 KiB has. One of smaller parts takes
/// several writes.
const SLICES_MAX: usize = 64;
/// Final, binary (RFC 6455, section 5.2).
const FINAL_BINARY: u8 = 0x82;

/// Writes `parts` as one unmasked binary message. Whatever the library has to write must be flushed before.
///
/// # Errors
/// The client is gone.
///
/// # Cancel safety
/// None: a part of a message may be out, so the socket must not be written to any more.
pub(super) async fn write_parts(to: &mut (impl AsyncWrite + Unpin), parts: Vec<Bytes>) -> io::Result<()> {
    let header = header(parts.iter().map(|part| part.len() as u64).sum());
    let mut left: VecDeque<_> = std::iter::once(header).chain(parts).collect();
    while !left.is_empty() {
        let mut written = poll_fn(|cx| poll_write(Pin::new(&mut *to), cx, &left)).await?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        while let Some(part) = left.front_mut() {
            let of_part = written.min(part.len());
            part.advance(of_part);
            written -= of_part;
            if !part.is_empty() {
                break;
            }
            left.pop_front();
        }
    }
    Ok(())
}

/// One write of what is left. The slices are made for each try: a socket's task would have a KiB for them for
/// as long as it lives.
fn poll_write(
    to: Pin<&mut impl AsyncWrite>,
    cx: &mut Context<'_>,
    left: &VecDeque<Bytes>,
) -> Poll<io::Result<usize>> {
    let mut slices = [IoSlice::new(&[]); SLICES_MAX];
    let mut count = 0;
    for (slice, part) in slices.iter_mut().zip(left) {
        *slice = IoSlice::new(part);
        count += 1;
    }
    to.poll_write_vectored(cx, &slices[..count])
}

/// A frame's header: its length in one, two or eight bytes, the shortest that holds it.
fn header(bytes: u64) -> Bytes {
    let mut header = vec![FINAL_BINARY];
    match (u8::try_from(bytes), u16::try_from(bytes)) {
        (Ok(short @ ..=125), _) => header.push(short),
        (_, Ok(middle)) => {
            header.push(126);
            header.extend(middle.to_be_bytes());
        }
        _ => {
            header.push(127);
            header.extend(bytes.to_be_bytes());
        }
    }
    header.into()
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt as _;
    use proptest::prelude::*;
    use tokio_tungstenite::WebSocketStream;
    use tokio_tungstenite::tungstenite::Message;
    use tokio_tungstenite::tungstenite::protocol::Role;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn the_library_reads_what_was_written_in_parts(
            sizes in proptest::collection::vec(prop_oneof![0usize..200, 60_000usize..70_000], 1..150),
            pipe in 1usize..100_000,
        ) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let parts: Vec<Bytes> = (0u8..).zip(&sizes).map(|(i, size)| vec![i; *size].into()).collect();
            let (mut here, there) = tokio::io::duplex(pipe);
            let read = runtime.block_on(async {
                let mut there = WebSocketStream::from_raw_socket(there, Role::Client, None).await;
                tokio::join!(write_parts(&mut here, parts.clone()), there.next()).1
            });
            prop_assert_eq!(read.unwrap().unwrap(), Message::Binary(parts.concat().into()));
        }
    }
}
