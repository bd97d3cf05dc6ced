//! Where a reader starts: the text after `from=` in a URL and in a `sub` or `seek` frame.

use std::fmt;
use std::str::FromStr;

use serde::de::{self, Deserializer, Unexpected, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::decimal::integer;
use crate::limits::INTEGER_MAX;
use crate::rpc::At;

/// A start, as a client names it.
///
/// ```text
/// earliest | latest | <offset> | ts:<RFC 3339 or milliseconds since the epoch> | tail:<n> | cursor:<opaque>
/// ```
///
/// In JSON it is that text; a bare number, up to 2^53 - 1, is an offset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Start {
    /// A position that the partition's owner resolves.
    At(At),
    /// A cursor that a gateway issued, still to be decoded. Not empty.
    Cursor(String),
}

/// Why a text names no start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    /// None of the forms.
    #[error("expected earliest, latest, an offset, ts:<time>, tail:<n> or cursor:<cursor>")]
    Form,
    /// A number that is not decimal digits, or exceeds [`INTEGER_MAX`].
    #[error("expected decimal digits of a number up to {INTEGER_MAX}")]
    Number,
    /// A time that is neither RFC 3339 nor milliseconds, or lies before 1970.
    #[error("expected an RFC 3339 time from 1970 on, or milliseconds since the epoch")]
    Time,
    /// An end is an offset or a time.
    #[error("expected an offset or ts:<time>")]
    Until,
}

/// Reads a start.
///
/// # Errors
/// [`StartError`]: refuse the request; nothing is guessed.
pub fn parse_from(text: &str) -> Result<Start, StartError> {
    let at = match text.split_once(':') {
        None if text == "earliest" => At::Earliest(true),
        None if text == "latest" => At::Latest(true),
        None if text.starts_with(|c: char| c.is_ascii_digit()) => At::Offset(number(text)?),
        Some(("ts", time)) => At::TimestampMs(time_ms(time)?),
        Some(("tail", count)) => At::Tail(number(count)?),
        Some(("cursor", cursor)) if !cursor.is_empty() => return Ok(Start::Cursor(cursor.into())),
        _ => return Err(StartError::Form),
    };
    Ok(Start::At(at))
}

/// Reads an end: an offset or `ts:<time>`, exclusive.
///
/// # Errors
/// [`StartError`], as [`parse_from`], and for the forms that are no end.
pub fn parse_until(text: &str) -> Result<At, StartError> {
    match parse_from(text)? {
        Start::At(at @ (At::Offset(_) | At::TimestampMs(_))) => Ok(at),
        _ => Err(StartError::Until),
    }
}

fn number(text: &str) -> Result<u64, StartError> {
    integer(text).ok_or(StartError::Number)
}

/// Milliseconds, rounded up: a start is the first record at or after the time.
fn time_ms(text: &str) -> Result<u64, StartError> {
    if let Ok(ms) = number(text) {
        return Ok(ms);
    }
    let time = OffsetDateTime::parse(text, &Rfc3339).map_err(|_| StartError::Time)?;
    let ns = u128::try_from(time.unix_timestamp_nanos()).map_err(|_| StartError::Time)?;
    u64::try_from(ns.div_ceil(1_000_000)).map_err(|_| StartError::Time)
}

impl FromStr for Start {
    type Err = StartError;
    fn from_str(text: &str) -> Result<Self, StartError> {
        parse_from(text)
    }
}

impl fmt::Display for Start {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At(At::Offset(offset)) => write!(f, "{offset}"),
            Self::At(At::Earliest(_)) => f.write_str("earliest"),
            Self::At(At::Latest(_)) => f.write_str("latest"),
            Self::At(At::TimestampMs(ms)) => write!(f, "ts:{ms}"),
            Self::At(At::Tail(count)) => write!(f, "tail:{count}"),
            Self::Cursor(cursor) => write!(f, "cursor:{cursor}"),
        }
    }
}

impl Serialize for Start {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Start {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(StartVisitor)
    }
}

struct StartVisitor;

impl Visitor<'_> for StartVisitor {
    type Value = Start;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a start position as text, or an offset as a number up to {INTEGER_MAX}")
    }

    fn visit_u64<E: de::Error>(self, offset: u64) -> Result<Start, E> {
        // Beyond that a number may have been another one where it was written.
        if offset > INTEGER_MAX {
            return Err(E::invalid_value(Unexpected::Unsigned(offset), &self));
        }
        Ok(Start::At(At::Offset(offset)))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Start, E> {
        parse_from(text).map_err(E::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_form_is_understood() {
        for (text, at) in [
            ("earliest", At::Earliest(true)),
            ("latest", At::Latest(true)),
            ("0", At::Offset(0)),
            ("9007199254740991", At::Offset(INTEGER_MAX)),
            ("tail:10", At::Tail(10)),
            ("ts:1787654321123", At::TimestampMs(1_787_654_321_123)),
            ("ts:1970-01-01T00:00:01Z", At::TimestampMs(1_000)),
            ("ts:2026-09-01T12:00:00.0000001+02:00", At::TimestampMs(1_788_256_800_001)),
        ] {
            assert_eq!(parse_from(text), Ok(Start::At(at)), "{text}");
        }
        assert_eq!(parse_from("cursor:a:b"), Ok(Start::Cursor("a:b".into())));
        assert_eq!(parse_until("7"), Ok(At::Offset(7)));
        assert_eq!(parse_until("latest"), Err(StartError::Until));
    }

    #[test]
    fn anything_else_is_refused() {
        use StartError::{Form, Number, Time};
        for (text, error) in [
            ("", Form),
            ("Latest", Form),
            ("+1", Form),
            ("-1", Form),
            ("cursor:", Form),
            ("tail", Form),
            ("when:1", Form),
            ("1x", Number),
            ("9007199254740992", Number),
            ("18446744073709551616", Number),
            ("tail:9007199254740992", Number),
            ("ts:9007199254740992", Time),
            ("tail:", Number),
            ("tail:-1", Number),
            ("tail:+1", Number),
            ("ts:", Time),
            ("ts:yesterday", Time),
            ("ts:1969-12-31T23:59:59Z", Time),
        ] {
            assert_eq!(parse_from(text), Err(error), "{text:?}");
        }
    }

    #[test]
    fn json_takes_text_or_a_number() {
        let read = |json| serde_json::from_str::<Start>(json);
        assert_eq!(read("76531").unwrap(), read("\"76531\"").unwrap());
        assert_eq!(serde_json::to_string(&read("76531").unwrap()).unwrap(), "\"76531\"");
        assert!(read("9007199254740991").is_ok());
        for bad in ["-1", "1.5", "null", "true", "[]", "\"soon\"", "9007199254740992"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_refused_or_shown_so_that_it_reads_the_same(text in "(ts:|tail:|cursor:|)[ -~]{0,24}") {
            if let Ok(start) = parse_from(&text) {
                prop_assert_eq!(parse_from(&start.to_string()), Ok(start));
            }
        }
    }
}
