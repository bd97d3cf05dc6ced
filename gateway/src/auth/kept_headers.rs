//! Headers that are kept for as long as a connection lasts.

use http::{HeaderMap, HeaderName, HeaderValue};

/// Ends a name; none contains it.
const NAME_END: u8 = b':';
/// Ends a value; none contains it.
const VALUE_END: u8 = b'\n';

/// The headers of a WebSocket's handshake, copied: a line each, a few hundred bytes.
///
/// A [`HeaderMap`] as the HTTP library made it is slices of the buffer that the request was read into, and
/// keeps all its 16 KiB. Read again only when a token comes in a frame.
#[derive(Debug)]
pub(crate) struct KeptHeaders(Box<[u8]>);

impl KeptHeaders {
    /// A copy of all headers.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let mut lines = Vec::new();
        for (name, value) in headers {
            lines.extend_from_slice(name.as_str().as_bytes());
            lines.push(NAME_END);
            lines.extend_from_slice(value.as_bytes());
            lines.push(VALUE_END);
        }
        Self(lines.into())
    }

    /// The headers again; those of one name in the order in which they came.
    pub(crate) fn to_map(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for line in self.0.split_inclusive(|byte| *byte == VALUE_END) {
            let end = line.iter().position(|byte| *byte == NAME_END).expect("each line has a name");
            let name = HeaderName::from_bytes(&line[..end]).expect("it was a name");
            let value = HeaderValue::from_bytes(&line[end + 1..line.len() - 1]).expect("it was a value");
            headers.append(name, value);
        }
        headers
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn headers_come_back_as_they_were_and_the_buffer_that_they_were_read_into_is_free() {
        let read = Bytes::from(b"Bearer a:b\xe4\tc".to_vec());
        let mut headers = HeaderMap::new();
        let value = HeaderValue::from_maybe_shared(read.clone()).unwrap();
        headers.insert(http::header::AUTHORIZATION, value);
        headers.append("x-forwarded-for", HeaderValue::from_static("10.0.0.1"));
        headers.append("x-forwarded-for", HeaderValue::from_static(""));
        headers.append("cookie", HeaderValue::from_static("a=1; b=2"));
        let kept = KeptHeaders::of(&headers);
        assert_eq!(kept.to_map(), headers);
        drop(headers);
        assert!(read.is_unique(), "nothing but this test holds what was read");
        assert_eq!(KeptHeaders::of(&HeaderMap::new()).to_map(), HeaderMap::new());
    }
}
