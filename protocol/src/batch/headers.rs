//! A record's headers: `varint count, (varint name length, name, varint value length, value)*`.

use bytes::Bytes;

use super::varint;
use crate::limits::{RECORD_HEADERS_BYTES_MAX, RECORD_HEADERS_MAX};

/// Headers that Weir itself gives a meaning. Their names are one byte below 0x20, which users cannot set.
///
/// | name | header           | value |
/// |-----:|------------------|-------|
/// | 0x01 | content type     | text, as `Content-Type` |
/// | 0x02 | content encoding | text, as `Content-Encoding` |
/// | 0x03 | digest           | text, as `Content-Digest` |
/// | 0x04 | deliver at       | u64 LE, milliseconds since the epoch |
/// | 0x05 | time to live     | u64 LE, milliseconds |
/// | 0x06 | traceparent      | text (W3C) |
/// | 0x07 | tracestate       | text (W3C) |
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Reserved {
    /// Media type of the value.
    ContentType = 1,
    /// Encoding of the value.
    ContentEncoding = 2,
    /// Digest of the value.
    Digest = 3,
    /// Not to be delivered to queues before.
    DeliverAt = 4,
    /// Expires this long after it was accepted.
    TtlMs = 5,
    /// Trace context.
    TraceParent = 6,
    /// Trace context, vendor part.
    TraceState = 7,
}

const RESERVED_END: u8 = 0x20;

/// Encoded headers of one record.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Headers(Bytes);

impl Headers {
    /// Checks the headers at the front of `bytes` and returns them with the number of bytes they take.
    pub(crate) fn split(bytes: &Bytes) -> Result<(Self, usize), &'static str> {
        let mut rest = &bytes[..];
        let count = varint::take(&mut rest).ok_or("header count is cut short")?;
        if count > RECORD_HEADERS_MAX as u64 {
            return Err("too many headers");
        }
        for _ in 0..count {
            let name = take_part(&mut rest).ok_or("header name is cut short")?;
            let reserved = name.first().is_some_and(|first| *first < RESERVED_END);
            if name.is_empty() || (reserved && name.len() != 1) {
                return Err("invalid header name");
            }
            if !reserved && std::str::from_utf8(name).is_err() {
                return Err("header name is not UTF-8");
            }
            take_part(&mut rest).ok_or("header value is cut short")?;
        }
        let taken = bytes.len() - rest.len();
        if taken > RECORD_HEADERS_BYTES_MAX {
            return Err("headers are too large");
        }
        Ok((Self(bytes.slice(..taken)), taken))
    }

    /// Names and values in the order they were added, reserved ones included.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut rest = &self.0[..];
        let count = if rest.is_empty() { 0 } else { varint::take(&mut rest).unwrap_or(0) };
        (0..count).map_while(move |_| Some((take_part(&mut rest)?, take_part(&mut rest)?)))
    }

    /// The users' headers. Names are UTF-8; values may be any bytes.
    pub fn user(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.iter()
            .filter(|(name, _)| name[0] >= RESERVED_END)
            .filter_map(|(n, v)| Some((std::str::from_utf8(n).ok()?, v)))
    }

    /// A reserved header.
    #[must_use]
    pub fn reserved(&self, which: Reserved) -> Option<&[u8]> {
        self.iter().find(|(name, _)| *name == [which as u8]).map(|(_, value)| value)
    }

    /// Media type of the value, if it is text.
    #[must_use]
    pub fn content_type(&self) -> Option<&str> {
        std::str::from_utf8(self.reserved(Reserved::ContentType)?).ok()
    }

    /// The encoded form; empty for no headers.
    pub(crate) fn encoded(&self) -> &[u8] {
        if self.0.is_empty() { &[0] } else { &self.0 }
    }
}

/// Collects headers. Reuse one to avoid allocations.
#[derive(Debug, Default)]
pub struct HeadersBuilder {
    body: Vec<u8>,
    count: usize,
}

impl HeadersBuilder {
    /// Adds a reserved header.
    pub fn reserved(&mut self, which: Reserved, value: &[u8]) -> &mut Self {
        self.push(&[which as u8], value);
        self
    }

    /// Adds a user's header.
    ///
    /// # Errors
    /// The name, if it is empty or starts with a control byte; nothing is added.
    pub fn user<'a>(&mut self, name: &'a str, value: &[u8]) -> Result<&mut Self, &'a str> {
        if name.as_bytes().first().is_none_or(|first| *first < RESERVED_END) {
            return Err(name);
        }
        self.push(name.as_bytes(), value);
        Ok(self)
    }

    fn push(&mut self, name: &[u8], value: &[u8]) {
        for part in [name, value] {
            varint::put(&mut self.body, part.len() as u64);
            self.body.extend_from_slice(part);
        }
        self.count += 1;
    }

    /// The headers; the builder is empty again. Limits are checked when the record is added to a batch.
    #[must_use]
    pub fn finish(&mut self) -> Headers {
        if self.count == 0 {
            return Headers::default();
        }
        let mut bytes = Vec::with_capacity(2 + self.body.len());
        varint::put(&mut bytes, self.count as u64);
        bytes.append(&mut self.body);
        self.count = 0;
        Headers(bytes.into())
    }
}

fn take_part<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = usize::try_from(varint::take(rest)?).ok()?;
    let (part, after) = rest.split_at_checked(len)?;
    *rest = after;
    Some(part)
}
