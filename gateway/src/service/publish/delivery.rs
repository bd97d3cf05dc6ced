//! When a message may be delivered: what publishers are held to, whichever way they come. Pure.

use weir_protocol::batch::{Headers, Reserved};
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

/// A record's header that no message may have, by its field, and why.
pub(super) type BadDelivery = (&'static str, &'static str);

/// Refuses a number that says when a record is delivered.
pub(super) fn check_number(which: Reserved, value: u64, now: TimestampMs) -> Result<(), BadDelivery> {
    match which {
        Reserved::DeliverAt => check_deliver_at(TimestampMs(value), now).map_err(|why| ("deliver_at", why)),
        Reserved::TtlMs => check_ttl_ms(value).map_err(|why| ("ttl_ms", why)),
        _ => Ok(()),
    }
}

/// Refuses a record by what its headers say of its delivery.
pub(super) fn check(headers: &Headers, now: TimestampMs) -> Result<(), BadDelivery> {
    headers.delivery().try_for_each(|(which, value)| check_number(which, value, now))
}

#[cfg(test)]
mod tests {
    use super::*;

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
