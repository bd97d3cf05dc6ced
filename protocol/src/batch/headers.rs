//! A record's headers: `varint count, (varint name length, name, varint value length, value)*`.
//!
//! A name occurs at most once. Users' names are UTF-8 and start with a byte from 0x20 on; what they may hold
//! beyond that (HTTP's grammar, say) is the matter of the protocol that shows them.

use bytes::Bytes;

use super::varint;
use crate::ids::TimestampMs;
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

impl Reserved {
    const ALL: [Self; 7] = [
        Self::ContentType,
        Self::ContentEncoding,
        Self::Digest,
        Self::DeliverAt,
        Self::TtlMs,
        Self::TraceParent,
        Self::TraceState,
    ];

    /// True if `value` has the encoding of the table.
    fn admits(self, value: &[u8]) -> bool {
        match self {
            Self::DeliverAt | Self::TtlMs => value.len() == 8,
            _ => std::str::from_utf8(value).is_ok(),
        }
    }

    /// The value as a number, of those that say when a record is delivered.
    #[must_use]
    pub fn number(self, value: &[u8]) -> Option<u64> {
        let is_number = matches!(self, Self::DeliverAt | Self::TtlMs);
        value.try_into().ok().filter(|_| is_number).map(u64::from_le_bytes)
    }
}

/// True if an HTTP header can tell this text: visible ASCII, blanks and tabs.
#[must_use]
pub fn is_header_text(text: &[u8]) -> bool {
    text.iter().all(|byte| matches!(byte, b' '..=b'~' | b'\t'))
}

/// True if HTTP can have a header of this name (a token of RFC 9110, section 5.6.2).
#[must_use]
pub fn is_header_name(name: &str) -> bool {
    let is_of_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !name.is_empty() && name.bytes().all(is_of_token)
}

/// True if that is a `traceparent` (W3C Trace Context, section 3.2). What is none is ignored by everybody, and nobody
/// passes it on.
#[must_use]
pub fn is_trace_parent(text: &str) -> bool {
    let is_hex = |part: &str, len: usize| {
        part.len() == len && part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    let is_set = |part: &str| part.bytes().any(|byte| byte != b'0');
    let parts: Vec<&str> = text.splitn(5, '-').collect();
    let [version, trace, parent, flags, more @ ..] = &parts[..] else { return false };
    is_hex(version, 2)
        && *version != "ff"
        && is_hex(trace, 32)
        && is_set(trace)
        && is_hex(parent, 16)
        && is_set(parent)
        && is_hex(flags, 2)
        // Later versions may say more.
        && (more.is_empty() || *version != "00")
}

/// Encoded headers of one record.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Headers(Bytes);

impl Headers {
    /// Takes the headers that [`Headers::measure`] found at the front of `bytes`.
    pub(crate) fn from_measured(bytes: Bytes) -> Self {
        Self(bytes)
    }

    /// How many bytes the headers at the front of `bytes` take. Checks bounds and the total length, which is
    /// what reading back needs.
    pub(crate) fn measure(bytes: &[u8]) -> Result<usize, &'static str> {
        let mut rest = bytes;
        let count = varint::take(&mut rest).ok_or("header count is cut short")?;
        if count > (RECORD_HEADERS_MAX + Reserved::ALL.len()) as u64 {
            return Err("too many headers");
        }
        for _ in 0..count {
            let name = take_part(&mut rest).ok_or("header name is cut short")?;
            if name.is_empty() {
                return Err("invalid header name");
            }
            take_part(&mut rest).ok_or("header value is cut short")?;
        }
        let taken = bytes.len() - rest.len();
        if taken > RECORD_HEADERS_BYTES_MAX {
            return Err("headers are too large");
        }
        Ok(taken)
    }

    /// Checks what [`Headers::measure`] does and every rule for a publisher's headers.
    pub(crate) fn check(encoded: &[u8]) -> Result<(), &'static str> {
        Self::check_if(encoded, |_, _| Ok(()))
    }

    /// The same, and `admit` is asked for each reserved header.
    pub(crate) fn check_if(
        encoded: &[u8],
        mut admit: impl FnMut(Reserved, &[u8]) -> Result<(), &'static str>,
    ) -> Result<(), &'static str> {
        if Self::measure(encoded)? != encoded.len() {
            return Err("bytes follow the headers");
        }
        let mut users = 0;
        for (at, (name, value)) in pairs(encoded).enumerate() {
            if name[0] < RESERVED_END {
                let known = Reserved::ALL.into_iter().find(|known| *name == [*known as u8]);
                let known = known.ok_or("unknown reserved header")?;
                if !known.admits(value) {
                    return Err("a reserved header does not have its encoding");
                }
                admit(known, value)?;
            } else if std::str::from_utf8(name).is_err() {
                return Err("header name is not UTF-8");
            } else {
                users += 1;
            }
            if pairs(encoded).take(at).any(|(earlier, _)| earlier == name) {
                return Err("a header name occurs twice");
            }
        }
        if users > RECORD_HEADERS_MAX { Err("too many headers") } else { Ok(()) }
    }

    /// The same with this media type, instead of another if there is one.
    #[must_use]
    pub fn with_content_type(&self, media_type: &str) -> Self {
        let mut builder = HeadersBuilder::default();
        builder.content_type(media_type);
        for (name, value) in self.iter().filter(|(name, _)| *name != [Reserved::ContentType as u8]) {
            builder.push(name, value);
        }
        builder.finish()
    }

    /// Names and values in the order they were added, reserved ones included.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        pairs(&self.0)
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

    /// Reserved headers but for those that say when a record is delivered.
    pub fn all_but_delivery(&self) -> impl Iterator<Item = (Reserved, &[u8])> {
        let kept =
            Reserved::ALL.into_iter().filter(|it| !matches!(it, Reserved::DeliverAt | Reserved::TtlMs));
        kept.filter_map(|which| Some((which, self.reserved(which)?)))
    }

    /// All reserved headers, in the order in which they were added.
    pub fn all_reserved(&self) -> impl Iterator<Item = (Reserved, &[u8])> {
        self.iter().filter_map(|(name, value)| {
            let which = Reserved::ALL.into_iter().find(|which| *name == [*which as u8])?;
            Some((which, value))
        })
    }

    /// Media type of the value, if it is text.
    #[must_use]
    pub fn content_type(&self) -> Option<&str> {
        self.text(Reserved::ContentType)
    }

    /// Encoding of the value.
    #[must_use]
    pub fn content_encoding(&self) -> Option<&str> {
        self.text(Reserved::ContentEncoding)
    }

    /// Digest of the value, as `Content-Digest` has it.
    #[must_use]
    pub fn digest(&self) -> Option<&str> {
        self.text(Reserved::Digest)
    }

    /// Not to be delivered to queues before this time.
    #[must_use]
    pub fn deliver_at(&self) -> Option<TimestampMs> {
        self.number(Reserved::DeliverAt).map(TimestampMs)
    }

    /// Expires this many milliseconds after it was accepted.
    #[must_use]
    pub fn ttl_ms(&self) -> Option<u64> {
        self.number(Reserved::TtlMs)
    }

    /// Trace context (W3C).
    #[must_use]
    pub fn trace_parent(&self) -> Option<&str> {
        self.text(Reserved::TraceParent)
    }

    /// Trace context (W3C), vendor part.
    #[must_use]
    pub fn trace_state(&self) -> Option<&str> {
        self.text(Reserved::TraceState)
    }

    fn text(&self, which: Reserved) -> Option<&str> {
        std::str::from_utf8(self.reserved(which)?).ok()
    }

    fn number(&self, which: Reserved) -> Option<u64> {
        which.number(self.reserved(which)?)
    }

    /// Encoded bytes of all of them: what [`RECORD_HEADERS_BYTES_MAX`] bounds.
    #[must_use]
    pub fn size(&self) -> usize {
        self.encoded().len()
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

    /// Media type of the value.
    pub fn content_type(&mut self, media_type: &str) -> &mut Self {
        self.reserved(Reserved::ContentType, media_type.as_bytes())
    }

    /// Not to be delivered to queues before this time.
    pub fn deliver_at(&mut self, at: TimestampMs) -> &mut Self {
        self.reserved(Reserved::DeliverAt, &at.0.to_le_bytes())
    }

    /// Expires this many milliseconds after it was accepted.
    pub fn ttl_ms(&mut self, ttl_ms: u64) -> &mut Self {
        self.reserved(Reserved::TtlMs, &ttl_ms.to_le_bytes())
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

/// Names and values of well-formed headers; stops at the first that is not.
fn pairs(encoded: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let mut rest = encoded;
    let count = if rest.is_empty() { 0 } else { varint::take(&mut rest).unwrap_or(0) };
    (0..count).map_while(move |_| Some((take_part(&mut rest)?, take_part(&mut rest)?)))
}

fn take_part<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = usize::try_from(varint::take(rest)?).ok()?;
    let (part, after) = rest.split_at_checked(len)?;
    *rest = after;
    Some(part)
}
