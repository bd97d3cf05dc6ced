//! When and as what a message may be delivered: what publishers are held to, whichever way they come. Pure.

use weir_protocol::batch::{Headers, Reserved, is_header_text};
use weir_protocol::ids::TimestampMs;
use weir_protocol::limits::{DELAY_MS_MAX, INTEGER_MAX};

/// Refuses a delivery time too far from now.
///
/// # Errors
/// Why.
pub fn check_deliver_at(at: TimestampMs, now: TimestampMs) -> Result<(), &'static str> {
    const _: () = assert!(DELAY_MS_MAX == 366 * 24 * 3600 * 1000, "as the text says");
    if at.0.saturating_sub(now.0) > DELAY_MS_MAX { Err("more than 366 days from now") } else { Ok(()) }
}

/// Refuses a time to live that nobody could be told, or in which nothing can be delivered.
///
/// # Errors
/// Why.
pub fn check_ttl_ms(ttl_ms: u64) -> Result<(), &'static str> {
    match ttl_ms {
        0 => Err("at least 1"),
        1..=INTEGER_MAX => Ok(()),
        _ => Err("at most 2^53 - 1"),
    }
}

/// Refuses a content type that could not be told in a header, as a message is read by itself, or that says nothing.
///
/// # Errors
/// Why.
pub fn check_content_type(text: &[u8]) -> Result<(), &'static str> {
    match text {
        [] => Err("a content type is not empty: leave it out"),
        _ if is_header_text(text) => Ok(()),
        _ => Err("a content type is visible ASCII"),
    }
}

/// A record's header that no message may have, by its field, and why.
pub(super) type BadDelivery = (&'static str, &'static str);

/// Refuses a reserved header by what it says of the delivery.
pub(super) fn check_header(which: Reserved, value: &[u8], now: TimestampMs) -> Result<(), BadDelivery> {
    match (which, which.number(value)) {
        (Reserved::DeliverAt, Some(at)) => {
            check_deliver_at(TimestampMs(at), now).map_err(|why| ("deliver_at", why))
        }
        (Reserved::TtlMs, Some(ttl_ms)) => check_ttl_ms(ttl_ms).map_err(|why| ("ttl_ms", why)),
        (Reserved::ContentType, _) => check_content_type(value).map_err(|why| ("content_type", why)),
        _ => Ok(()),
    }
}

/// Refuses a record by what its headers say of its delivery.
pub(super) fn check(headers: &Headers, now: TimestampMs) -> Result<(), BadDelivery> {
    headers.all_reserved().try_for_each(|(which, value)| check_header(which, value, now))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_content_type_is_what_a_header_can_tell() {
        for yes in ["text/plain", "text/plain;\tcharset=\"utf-8\"", "whatever they call it"] {
            assert!(check_content_type(yes.as_bytes()).is_ok(), "{yes:?}");
        }
        for no in ["", "a\nb", "text/plain\r\nX: y", "a\0", "a\x7f", "t\u{eb}xt/plain", "\u{85}"] {
            assert!(check_content_type(no.as_bytes()).is_err(), "{no:?}");
        }
    }

    #[test]
    fn limits_are_inclusive() {
        let now = TimestampMs(1_000);
        assert!(check_deliver_at(TimestampMs(now.0 + DELAY_MS_MAX), now).is_ok());
        assert!(check_deliver_at(TimestampMs(now.0 + DELAY_MS_MAX + 1), now).is_err());
        assert!(check_deliver_at(TimestampMs(0), now).is_ok(), "what is past is due");
        for (ttl_ms, ok) in [(0, false), (1, true), (INTEGER_MAX, true), (INTEGER_MAX + 1, false)] {
            assert_eq!(check_ttl_ms(ttl_ms).is_ok(), ok, "{ttl_ms}");
        }
    }
}
