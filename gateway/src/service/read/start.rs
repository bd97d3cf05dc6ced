//! Where to start and where to stop, as clients write it.

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use weir_protocol::error::ErrorCode;
use weir_protocol::ids::{Offset, TimestampMs};

use super::cursor::Cursor;
use crate::service::ServiceError;

/// `earliest|latest|<offset>|ts:<rfc3339 or ms>|tail:<n>|cursor:<opaque>`
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StartAt {
    /// The oldest record there is.
    Earliest,
    /// The end.
    Latest,
    /// This offset of the one partition that is read.
    Offset(Offset),
    /// The first record at or after this time.
    Timestamp(TimestampMs),
    /// This many records before the end, on each partition that is read.
    Tail(u64),
    /// Where an earlier read or subscription was.
    Cursor(Cursor),
}

/// `<offset>|ts:<rfc3339 or ms>`: exclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// Before this offset.
    Offset(Offset),
    /// Before the first record at or after this time.
    Timestamp(TimestampMs),
}

impl StartAt {
    /// Reads `from`.
    ///
    /// # Errors
    /// `invalid_parameter`, or `invalid_cursor` behind `cursor:`.
    pub fn parse(text: &str) -> Result<Self, ServiceError> {
        if text == "earliest" {
            return Ok(Self::Earliest);
        }
        if text == "latest" {
            return Ok(Self::Latest);
        }
        if let Some(token) = text.strip_prefix("cursor:") {
            return Cursor::decode(token).map(Self::Cursor);
        }
        let read = match text.split_once(':') {
            Some(("ts", time)) => timestamp(time).map(Self::Timestamp),
            Some(("tail", count)) => number(count).map(Self::Tail),
            Some(_) => None,
            None => number(text).map(|offset| Self::Offset(Offset(offset))),
        };
        read.ok_or_else(|| {
            let grammar =
                "earliest, latest, an offset, ts:<RFC 3339 or milliseconds>, tail:<n> or cursor:<opaque>";
            ServiceError::new(ErrorCode::InvalidParameter, format!("from is {grammar}")).with_field("from")
        })
    }
}

impl Until {
    /// Reads `until`.
    ///
    /// # Errors
    /// `invalid_parameter`.
    pub fn parse(text: &str) -> Result<Self, ServiceError> {
        let read = match text.strip_prefix("ts:") {
            Some(time) => timestamp(time).map(Self::Timestamp),
            None => number(text).map(|offset| Self::Offset(Offset(offset))),
        };
        read.ok_or_else(|| {
            let detail = "until is an offset or ts:<RFC 3339 or milliseconds>";
            ServiceError::new(ErrorCode::InvalidParameter, detail).with_field("until")
        })
    }
}

/// Decimal digits, below 2^53.
fn number(text: &str) -> Option<u64> {
    let is_decimal = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let value: u64 = is_decimal.then(|| text.parse().ok())??;
    (value < 1 << 53).then_some(value)
}

fn timestamp(text: &str) -> Option<TimestampMs> {
    if let Some(ms) = number(text) {
        return Some(TimestampMs(ms));
    }
    // A plus sign that was not percent-encoded arrives as a space.
    let time = OffsetDateTime::parse(&text.replace(' ', "+"), &Rfc3339).ok()?;
    // Rounded up: the first record at or after a time within a millisecond is that of the next one.
    let ms = (time.unix_timestamp_nanos() + 999_999).div_euclid(1_000_000);
    u64::try_from(ms).ok().map(TimestampMs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_grammar_is_read_and_nothing_else() {
        for (text, start) in [
            ("earliest", StartAt::Earliest),
            ("latest", StartAt::Latest),
            ("0", StartAt::Offset(Offset(0))),
            ("76531", StartAt::Offset(Offset(76_531))),
            ("tail:20", StartAt::Tail(20)),
            ("ts:1787654321123", StartAt::Timestamp(TimestampMs(1_787_654_321_123))),
            ("ts:1970-01-01T00:00:01.5Z", StartAt::Timestamp(TimestampMs(1_500))),
            ("ts:1970-01-01T01:00:00 01:00", StartAt::Timestamp(TimestampMs(0))),
            ("ts:1970-01-01T00:00:00.0000001Z", StartAt::Timestamp(TimestampMs(1))),
        ] {
            assert_eq!(StartAt::parse(text), Ok(start), "{text}");
        }
        for bad in [
            "",
            "Earliest",
            "-1",
            "+1",
            "0x10",
            "9007199254740992",
            "tail:",
            "tail:-1",
            "ts:",
            "ts:soon",
            "n:1",
        ] {
            assert_eq!(StartAt::parse(bad).unwrap_err().code(), ErrorCode::InvalidParameter, "{bad}");
        }
        assert_eq!(StartAt::parse("cursor:x").unwrap_err().code(), ErrorCode::InvalidCursor);
        assert_eq!(Until::parse("ts:7"), Ok(Until::Timestamp(TimestampMs(7))));
        assert!(Until::parse("latest").is_err());
    }
}
