//! Payloads that were published compressed, for clients that do not take that: decoded within limits.

use std::io::{self, Read};

use axum::body::Body;
use bytes::Bytes;
use flate2::read::MultiGzDecoder;
use http::HeaderMap;
use http::header::ACCEPT_ENCODING;
use weir_protocol::error::ErrorCode;

use super::accept;
use super::pieces::WholeBody;
use crate::answers::Held;
use crate::api::Problem;
use crate::service::ServiceError;

/// Most bytes that a payload is decoded to. Who wants more takes it as it is stored.
const DECODED_BYTES_MAX: usize = 16 << 20;
/// Bytes decoded before room for more is taken.
const CHUNK_BYTES: usize = 64 << 10;
/// Memory that a sender may make the decoder of zstd use: 8 MiB, as RFC 9659 demands of this content coding.
const ZSTD_WINDOW_LOG_MAX: u32 = 23;

/// Encodings that can be decoded here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Coding {
    Gzip,
    Zstd,
}

/// What a client gets of a payload.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// It as it is stored.
    Stored,
    /// What it was before it was encoded.
    Decoded(Decoder),
}

/// Decodes payloads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Decoder(Coding);

impl Form {
    /// What a client that asks with `headers` gets of a payload stored with the encoding `stored`.
    ///
    /// # Errors
    /// `not_acceptable`: the client takes neither this encoding nor one that can be made of it.
    pub(super) fn of(stored: &str, headers: &HeaderMap) -> Result<Self, Problem> {
        let stored = stored.trim();
        if stored.is_empty() || stored.eq_ignore_ascii_case("identity") || accepts(headers, stored) {
            return Ok(Self::Stored);
        }
        let coding = match stored.to_ascii_lowercase().as_str() {
            "gzip" | "x-gzip" => Coding::Gzip,
            "zstd" => Coding::Zstd,
            _ => return Err(refused(&format!("it is stored as {stored:?}, which is not decoded here"))),
        };
        if is_refused(headers, "identity") {
            return Err(refused(&format!("it is stored as {stored:?}, and identity is refused too")));
        }
        Ok(Self::Decoded(Decoder(coding)))
    }
}

impl Decoder {
    /// The payload as it was before it was encoded. Its room is given back when it has been sent.
    ///
    /// # Errors
    /// `not_acceptable` if it is too large or not what its encoding says, `answers_full`.
    pub(super) async fn decode(self, payload: Bytes, mut room: Held) -> Result<Body, Problem> {
        // Beside the requests that others wait for.
        let decoded =
            tokio::task::spawn_blocking(move || Ok::<_, Problem>((self.read(&payload, &mut room)?, room)));
        let decoded = decoded.await.map_err(|error| Problem::new(ErrorCode::Internal, error.to_string()));
        let (bytes, room) = decoded??;
        Ok(Body::new(WholeBody::new(bytes, room)))
    }

    fn read(self, payload: &[u8], room: &mut Held) -> Result<Bytes, Problem> {
        let broken = |error: io::Error| refused(&format!("it is not what its encoding says: {error}"));
        let mut from: Box<dyn Read + '_> = match self.0 {
            Coding::Gzip => Box::new(MultiGzDecoder::new(payload)),
            Coding::Zstd => {
                let mut decoder = zstd::stream::read::Decoder::with_buffer(payload).map_err(broken)?;
                decoder.window_log_max(ZSTD_WINDOW_LOG_MAX).map_err(broken)?;
                Box::new(decoder)
            }
        };
        let mut decoded = Vec::new();
        loop {
            room.resize(room.bytes() + CHUNK_BYTES as u64).map_err(ServiceError::from)?;
            let read = from.by_ref().take(CHUNK_BYTES as u64).read_to_end(&mut decoded).map_err(broken)?;
            if decoded.len() > DECODED_BYTES_MAX {
                return Err(refused(&format!("decoded it exceeds {DECODED_BYTES_MAX} bytes"))
                    .with_limit(DECODED_BYTES_MAX as u64));
            }
            if read < CHUNK_BYTES {
                return Ok(decoded.into());
            }
        }
    }
}

fn refused(why: &str) -> Problem {
    let detail = format!("{why}; without Accept-Encoding the payload comes as it is stored");
    Problem::new(ErrorCode::NotAcceptable, detail).with_field("accept-encoding")
}

/// The weight that `Accept-Encoding` gives to a coding by its name; `None` if it does not name it.
fn weight(headers: &HeaderMap, coding: &str) -> Option<f32> {
    let lists = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|list| list.to_str().ok());
    lists.flat_map(|list| list.split(',')).find_map(|member| {
        let name = member.split(';').next().unwrap_or_default().trim();
        let alias = |text: &str| text.eq_ignore_ascii_case("x-gzip") && coding.eq_ignore_ascii_case("gzip");
        (name.eq_ignore_ascii_case(coding) || alias(name)).then(|| accept::weight(member))
    })
}

/// The weight of an encoding that the client names.
pub(super) fn named_weight(headers: &HeaderMap, coding: &str) -> Option<f32> {
    weight(headers, coding)
}

/// What a client likes no encoding: least, unless it says so.
pub(super) fn identity_weight(headers: &HeaderMap) -> f32 {
    weight(headers, "identity").unwrap_or(0.0)
}

/// RFC 9110, section 12.5.3: who sends no `Accept-Encoding` takes any.
fn accepts(headers: &HeaderMap, coding: &str) -> bool {
    !headers.contains_key(ACCEPT_ENCODING)
        || weight(headers, coding).or_else(|| weight(headers, "*")).is_some_and(|weight| weight > 0.0)
}

/// What no encoding is taken even without being named, unless it is refused.
fn is_refused(headers: &HeaderMap, coding: &str) -> bool {
    weight(headers, coding).or_else(|| weight(headers, "*")).is_some_and(|weight| weight <= 0.0)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::Ipv4Addr;
    use std::sync::Arc;

    use flate2::Compression;
    use flate2::write::GzEncoder;
    use http_body_util::BodyExt as _;
    use hyper::body::Body as _;

    use super::*;
    use crate::answers::Answers;

    fn nothing(answers: &Arc<Answers>) -> Held {
        answers.client(Ipv4Addr::LOCALHOST.into()).nothing()
    }

    fn gzip(payload: &[u8]) -> Bytes {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(payload).unwrap();
        encoder.finish().unwrap().into()
    }

    #[test]
    fn a_client_gets_what_it_takes_and_what_it_refuses_it_does_not() {
        let decoded = |coding| Ok(Form::Decoded(Decoder(coding)));
        for (accept, stored, expected) in [
            (None, "gzip", Ok(Form::Stored)),
            (None, "br", Ok(Form::Stored)),
            (Some("gzip, deflate, br"), "gzip", Ok(Form::Stored)),
            (Some("X-GZip"), "gzip", Ok(Form::Stored)),
            (Some("*"), "zstd", Ok(Form::Stored)),
            (Some("identity"), "identity", Ok(Form::Stored)),
            (Some("identity"), "gzip", decoded(Coding::Gzip)),
            (Some(""), "gzip", decoded(Coding::Gzip)),
            (Some("gzip;q=0"), "gzip", decoded(Coding::Gzip)),
            (Some("gzip; Q=0"), "gzip", decoded(Coding::Gzip)),
            (Some("gzip ;q=0.000, identity"), "gzip", decoded(Coding::Gzip)),
            (Some("gzip;q=0, *"), "x-gzip", Ok(Form::Stored)),
            (Some("gzip"), "zstd", decoded(Coding::Zstd)),
            (Some("identity;q=0, br"), "gzip", Err(())),
            (Some("gzip"), "br", Err(())),
            (Some("gzip"), "gzip, zstd", Err(())),
        ] {
            let headers = accept.map(|accept| (ACCEPT_ENCODING, accept.parse().unwrap()));
            let form = Form::of(stored, &headers.into_iter().collect());
            assert_eq!(form.map_err(drop), expected, "{accept:?} {stored}");
        }
    }

    #[tokio::test]
    async fn what_is_decoded_has_its_room_until_it_was_sent() {
        let answers = Answers::new(256 << 20);
        let payload = b"\0weir".repeat(100_000);
        let stored = [
            (Coding::Gzip, gzip(&payload)),
            (Coding::Zstd, zstd::encode_all(&payload[..], 3).unwrap().into()),
        ];
        for (coding, stored) in stored {
            let body = Decoder(coding).decode(stored, nothing(&answers)).await.unwrap();
            assert!(answers.metrics().held >= payload.len() as u64);
            assert_eq!(body.size_hint().exact(), Some(payload.len() as u64));
            assert_eq!(body.collect().await.unwrap().to_bytes(), payload);
            assert_eq!(answers.metrics().held, 0);
        }
    }

    #[tokio::test]
    async fn a_small_payload_cannot_be_made_to_fill_the_memory() {
        let bomb = gzip(&vec![0; DECODED_BYTES_MAX + 1]);
        assert!(bomb.len() < DECODED_BYTES_MAX / 500);
        let answers = Answers::new(256 << 20);
        let refused = Decoder(Coding::Gzip).decode(bomb.clone(), nothing(&answers)).await.unwrap_err();
        assert!(refused.is(ErrorCode::NotAcceptable) && refused.limit == Some(DECODED_BYTES_MAX as u64));
        let narrow = Answers::new(4 << 20);
        let refused = Decoder(Coding::Gzip).decode(bomb, nothing(&narrow)).await.unwrap_err();
        assert!(refused.is(ErrorCode::AnswersFull));
        for broken in [&b"not gzip"[..], &gzip(b"cut short")[..9]] {
            let broken = Bytes::copy_from_slice(broken);
            let refused = Decoder(Coding::Gzip).decode(broken, nothing(&answers)).await.unwrap_err();
            assert!(refused.is(ErrorCode::NotAcceptable));
        }
        assert_eq!((answers.metrics().held, narrow.metrics().held), (0, 0));
    }
}
