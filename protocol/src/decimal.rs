//! Numbers as texts.

use std::str::FromStr;

use crate::limits::INTEGER_MAX;

/// A number of decimal digits alone. `from_str` also takes a leading plus: two texts would be one position,
/// and the document says that only one of them is.
///
/// `None` for anything else, and beyond what `N` holds.
#[must_use]
pub fn decimal<N: FromStr>(text: &str) -> Option<N> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_plain)
}

/// A number that a client sends: one of decimal digits alone that can be told back in JSON.
#[must_use]
pub fn integer(text: &str) -> Option<u64> {
    decimal(text).filter(|number| *number <= INTEGER_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_digits() {
        for (text, number) in [("0", 0), ("007", 7), ("18446744073709551615", u64::MAX)] {
            assert_eq!(decimal(text), Some(number));
        }
        for text in ["", "+5", "-5", " 5", "5 ", "0x5", "5.0", "1e3", "\u{661}", "18446744073709551616"] {
            assert_eq!(decimal::<u64>(text), None, "{text}");
        }
        assert_eq!(decimal::<u32>("4294967296"), None);
        assert_eq!(integer("9007199254740991"), Some(INTEGER_MAX));
        assert_eq!((integer("9007199254740992"), integer("+5")), (None, None));
    }
}
