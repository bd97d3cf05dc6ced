//! Answers compressed as their client takes them, for who names an encoding.
//!
//! Each piece is compressed by itself and flushed: nothing waits for more to come. What the encoder has is held with
//! the answer, and where there is no room for it the answer goes out as it is.

use std::io::{self, Write as _};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use axum::BoxError;
use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{CACHE_CONTROL, CONTENT_ENCODING, ETAG, VARY};
use http::{HeaderMap, HeaderValue, StatusCode};
use hyper::body::{Body as HttpBody, Frame};
use weir_protocol::error::ErrorCode;
use weir_protocol::ids::hash128;
use zstd::stream::raw::CParameter;
use zstd::stream::write::Encoder as ZstdEncoder;

use super::answer::{empty, is_known, with_type};
use super::encoding::{identity_weight, named_weight};
use crate::answers::{Client, Held};
use crate::api::Problem;

/// Answers below this are not worth it.
pub(super) const WORTH_BYTES: usize = 1 << 10;
/// Fast ones: at the next levels a page takes two and three times as long, and is a tenth smaller.
const GZIP_LEVEL: u32 = 1;
const ZSTD_LEVEL: i32 = 1;
/// How far back zstd looks, as a power of two: what it has in memory is a few times this.
const ZSTD_WINDOW_LOG: u32 = 17;

/// An encoding that answers are compressed with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Coding {
    Zstd,
    Gzip,
}

impl Coding {
    /// The one that the client names and likes best, if it likes it as much as none.
    pub(super) fn wanted(headers: &HeaderMap) -> Option<Self> {
        let weighed = [Self::Zstd, Self::Gzip].map(|coding| (coding, named_weight(headers, coding.name())));
        let named = weighed.into_iter().filter_map(|(coding, weight)| Some((coding, weight?)));
        let best = named.rev().max_by(|a, b| a.1.total_cmp(&b.1));
        best.filter(|(_, weight)| *weight > 0.0 && *weight >= identity_weight(headers))
            .map(|(coding, _)| coding)
    }

    /// As `Content-Encoding` says it.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Zstd => "zstd",
            Self::Gzip => "gzip",
        }
    }

    /// The tag of what was compressed, which has other bytes than what has `tag` (RFC 9110, section 8.8.3.3).
    pub(super) fn tag(self, tag: &str) -> String {
        format!("{}:{}\"", tag.trim_end_matches('"'), self.name())
    }

    /// Memory that its encoder takes.
    const fn encoder_bytes(self) -> u64 {
        match self {
            Self::Zstd => 768 << 10,
            Self::Gzip => 384 << 10,
        }
    }

    /// Room for an encoder, if there is any.
    pub(super) fn with_room(self, client: &Arc<Client>) -> Option<(Self, Held)> {
        client.hold(self.encoder_bytes()).ok().map(|room| (self, room))
    }

    /// All of `bytes`.
    ///
    /// # Errors
    /// The encoder has no memory.
    pub(super) fn whole(self, bytes: &[u8]) -> io::Result<Bytes> {
        let mut encoder = Encoder::new(self)?;
        encoder.write(bytes)?;
        Ok([encoder.take(), encoder.finish()?].concat().into())
    }

    /// A body that is compressed as it is taken.
    ///
    /// # Errors
    /// The encoder has no memory.
    pub(super) fn body(self, body: Body, room: Held) -> io::Result<Body> {
        Ok(Body::new(Compressed { body, encoder: Some(Encoder::new(self)?), _room: room }))
    }
}

/// A document that stays as it is, compressed once for all who want it so.
pub(crate) struct Document {
    media: &'static str,
    plain: Bytes,
    tag: String,
    zstd: OnceLock<Bytes>,
    gzip: OnceLock<Bytes>,
}

impl Document {
    /// A document of a media type.
    pub(crate) fn new(media: &'static str, plain: Bytes) -> Self {
        let tag = format!("\"{:016x}\"", hash128(&[&plain]) >> 64);
        Self { media, plain, tag, zstd: OnceLock::new(), gzip: OnceLock::new() }
    }

    /// It as the client wants it, or that the client has it.
    pub(super) fn answer(&self, asked: &HeaderMap) -> Result<Response, Problem> {
        let coding = Coding::wanted(asked);
        let (tag, body) = match coding {
            None => (self.tag.clone(), self.plain.clone()),
            Some(coding) => (coding.tag(&self.tag), self.compressed(coding)?),
        };
        let mut response = if is_known(asked, &tag) {
            empty(StatusCode::NOT_MODIFIED)
        } else {
            encoded(with_type(self.media, body), coding)
        };
        let headers = response.headers_mut();
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        headers.append(VARY, HeaderValue::from_static("Accept-Encoding"));
        if let Ok(tag) = HeaderValue::from_str(&tag) {
            headers.insert(ETAG, tag);
        }
        Ok(response)
    }

    fn compressed(&self, coding: Coding) -> Result<Bytes, Problem> {
        let place = match coding {
            Coding::Zstd => &self.zstd,
            Coding::Gzip => &self.gzip,
        };
        match place.get() {
            Some(bytes) => Ok(bytes.clone()),
            None => {
                let bytes = coding.whole(&self.plain).map_err(|error| failed(&error))?;
                Ok(place.get_or_init(|| bytes).clone())
            }
        }
    }
}

/// A document that is another one each time, as the client wants it.
pub(super) fn passing(asked: &HeaderMap, media: &'static str, plain: Bytes) -> Result<Response, Problem> {
    let coding = Coding::wanted(asked).filter(|_| plain.len() >= WORTH_BYTES);
    let body = match coding {
        None => plain,
        Some(coding) => coding.whole(&plain).map_err(|error| failed(&error))?,
    };
    let mut response = encoded(with_type(media, body), coding);
    response.headers_mut().append(VARY, HeaderValue::from_static("Accept-Encoding"));
    Ok(response)
}

/// An answer that says how it was compressed.
pub(super) fn encoded(mut response: Response, coding: Option<Coding>) -> Response {
    if let Some(coding) = coding {
        response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static(coding.name()));
    }
    response
}

pub(super) fn failed(error: &io::Error) -> Problem {
    Problem::new(ErrorCode::Internal, format!("the answer cannot be compressed: {error}"))
}

enum Encoder {
    Zstd(ZstdEncoder<'static, Vec<u8>>),
    Gzip(GzEncoder<Vec<u8>>),
}

impl Encoder {
    fn new(coding: Coding) -> io::Result<Self> {
        Ok(match coding {
            Coding::Zstd => {
                let mut encoder = ZstdEncoder::new(Vec::new(), ZSTD_LEVEL)?;
                encoder.set_parameter(CParameter::WindowLog(ZSTD_WINDOW_LOG))?;
                Self::Zstd(encoder)
            }
            Coding::Gzip => Self::Gzip(GzEncoder::new(Vec::new(), Compression::new(GZIP_LEVEL))),
        })
    }

    /// Takes bytes in; they are among those of the next [`Encoder::take`].
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Zstd(encoder) => encoder.write_all(bytes).and_then(|()| encoder.flush()),
            Self::Gzip(encoder) => encoder.write_all(bytes).and_then(|()| encoder.flush()),
        }
    }

    fn take(&mut self) -> Vec<u8> {
        match self {
            Self::Zstd(encoder) => std::mem::take(encoder.get_mut()),
            Self::Gzip(encoder) => std::mem::take(encoder.get_mut()),
        }
    }

    fn finish(self) -> io::Result<Vec<u8>> {
        match self {
            Self::Zstd(encoder) => encoder.finish(),
            Self::Gzip(encoder) => encoder.finish(),
        }
    }
}

struct Compressed {
    body: Body,
    /// None once it has ended.
    encoder: Option<Encoder>,
    _room: Held,
}

impl HttpBody for Compressed {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let Some(mut encoder) = self.encoder.take() else { return Poll::Ready(None) };
        let frame = match Pin::new(&mut self.body).poll_frame(cx) {
            Poll::Pending => {
                self.encoder = Some(encoder);
                return Poll::Pending;
            }
            Poll::Ready(frame) => frame,
        };
        let written = match frame {
            Some(Err(error)) => return Poll::Ready(Some(Err(error.into()))),
            Some(Ok(frame)) => {
                let data = frame.into_data().unwrap_or_default();
                encoder.write(&data).map(|()| {
                    let out = encoder.take();
                    self.encoder = Some(encoder);
                    out
                })
            }
            None => encoder.finish(),
        };
        Poll::Ready(Some(written.map(|out| Frame::data(out.into())).map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.encoder.is_none()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::net::Ipv4Addr;

    use flate2::read::MultiGzDecoder;
    use http::header::ACCEPT_ENCODING;
    use http_body_util::{BodyExt as _, StreamBody};

    use super::*;
    use crate::answers::Answers;

    fn decoded(coding: Coding, bytes: &[u8]) -> Vec<u8> {
        match coding {
            Coding::Zstd => zstd::decode_all(bytes).unwrap(),
            Coding::Gzip => {
                let mut decoded = Vec::new();
                MultiGzDecoder::new(bytes).read_to_end(&mut decoded).unwrap();
                decoded
            }
        }
    }

    #[test]
    fn a_client_gets_the_encoding_that_it_names_and_likes_best() {
        use Coding::{Gzip, Zstd};
        for (accept, expected) in [
            (None, None),
            (Some(""), None),
            (Some("*"), None),
            (Some("identity"), None),
            (Some("br, deflate"), None),
            (Some("gzip, deflate, br"), Some(Gzip)),
            (Some("gzip, deflate, br, zstd"), Some(Zstd)),
            (Some("x-gzip"), Some(Gzip)),
            (Some("zstd;q=0.1, gzip;q=0.5, identity;q=0.2"), Some(Gzip)),
            (Some("gzip;q=0.5, identity"), None),
            (Some("gzip;q=0, zstd;q=0"), None),
            (Some("GZIP ; Q=1"), Some(Gzip)),
        ] {
            let headers = accept.map(|accept| (ACCEPT_ENCODING, accept.parse().unwrap()));
            assert_eq!(Coding::wanted(&headers.into_iter().collect()), expected, "{accept:?}");
        }
        assert_eq!(Gzip.tag("\"7:0:1\""), "\"7:0:1:gzip\"");
    }

    #[tokio::test]
    async fn what_is_compressed_piece_by_piece_is_the_same_and_its_room_is_given_back() {
        let pieces: Vec<Vec<u8>> = (0..50u8).map(|i| [i, b'x', b'\n'].repeat(5_000)).collect();
        for coding in [Coding::Zstd, Coding::Gzip] {
            let answers = Answers::new(32 << 20);
            let (_, room) = coding.with_room(&answers.client(Ipv4Addr::LOCALHOST.into())).unwrap();
            assert_eq!(answers.metrics().held, coding.encoder_bytes());
            let frames =
                pieces.clone().into_iter().map(|piece| Ok::<_, BoxError>(Frame::data(Bytes::from(piece))));
            let body = Body::new(StreamBody::new(futures_util::stream::iter(frames)));
            let mut body = coding.body(body, room).unwrap();
            let (mut taken, mut frames) = (Vec::new(), 0);
            while let Some(frame) = body.frame().await {
                taken.extend_from_slice(&frame.unwrap().into_data().unwrap());
                frames += 1;
            }
            assert_eq!(frames, pieces.len() + 1, "each is flushed");
            assert!(taken.len() < 50_000, "{} bytes", taken.len());
            assert!(decoded(coding, &taken) == pieces.concat());
            drop(body);
            assert_eq!(answers.metrics().held, 0);
            assert!(decoded(coding, &coding.whole(&pieces.concat()).unwrap()) == pieces.concat());
        }
    }
}
