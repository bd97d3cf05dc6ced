//! Numbers as texts.

use std::str::FromStr;

/// A number of decimal digits alone. `from_str` also takes a leading plus: two texts would be one position,
/// and the document says that only one of them is.
///
/// `None` for anything else, and beyond what `N` holds.
#[must_use]
pub fn decimal<N: FromStr>(text: &str) -> Option<N> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_plain)
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
    }
}
