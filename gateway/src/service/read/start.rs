//! Where to start and where to stop, as clients write it.

use weir_protocol::error::ErrorCode;
use weir_protocol::ids::{Offset, TimestampMs};
use weir_protocol::rpc::At;
use weir_protocol::start::{self, Start};

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
        let start = start::parse_from(text).map_err(|error| {
            ServiceError::new(ErrorCode::InvalidParameter, format!("from: {error}")).with_field("from")
        })?;
        Self::from_start(&start)
    }

    /// Takes a start that was read already.
    ///
    /// # Errors
    /// `invalid_cursor`.
    pub fn from_start(start: &Start) -> Result<Self, ServiceError> {
        Ok(match start {
            Start::At(At::Earliest(_)) => Self::Earliest,
            Start::At(At::Latest(_)) => Self::Latest,
            Start::At(At::Offset(offset)) => Self::Offset(Offset(*offset)),
            Start::At(At::TimestampMs(ms)) => Self::Timestamp(TimestampMs(*ms)),
            Start::At(At::Tail(records)) => Self::Tail(*records),
            Start::Cursor(token) => {
                let cursor = Cursor::decode(token).map_err(|failure| failure.with_field("from"))?;
                Self::Cursor(cursor)
            }
        })
    }
}

impl Until {
    /// Reads `until`.
    ///
    /// # Errors
    /// `invalid_parameter`.
    pub fn parse(text: &str) -> Result<Self, ServiceError> {
        match start::parse_until(text) {
            Ok(At::TimestampMs(ms)) => Ok(Self::Timestamp(TimestampMs(ms))),
            Ok(At::Offset(offset)) => Ok(Self::Offset(Offset(offset))),
            Ok(_) => {
                Err(ServiceError::new(ErrorCode::InvalidParameter, "until: not an end").with_field("until"))
            }
            Err(error) => {
                let detail = format!("until: {error}");
                Err(ServiceError::new(ErrorCode::InvalidParameter, detail).with_field("until"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_the_grammar_has_its_meaning_and_nothing_else_has_one() {
        for (text, start) in [
            ("earliest", StartAt::Earliest),
            ("latest", StartAt::Latest),
            ("76531", StartAt::Offset(Offset(76_531))),
            ("tail:20", StartAt::Tail(20)),
            ("ts:1787654321123", StartAt::Timestamp(TimestampMs(1_787_654_321_123))),
            ("ts:1970-01-01T00:00:01.5Z", StartAt::Timestamp(TimestampMs(1_500))),
        ] {
            assert_eq!(StartAt::parse(text), Ok(start), "{text}");
        }
        for bad in ["", "Earliest", "-1", "tail:", "ts:soon", "n:1"] {
            assert_eq!(StartAt::parse(bad).unwrap_err().code(), ErrorCode::InvalidParameter, "{bad}");
        }
        let foreign = StartAt::parse("cursor:x").unwrap_err();
        assert_eq!((foreign.code(), foreign.field), (ErrorCode::InvalidCursor, Some("from")));
        assert_eq!(Until::parse("ts:7"), Ok(Until::Timestamp(TimestampMs(7))));
        assert!(Until::parse("latest").is_err());
    }
}
