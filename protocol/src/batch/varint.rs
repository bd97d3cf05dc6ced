//! LEB128 numbers: 7 bits a byte, low bits first, at most 10 bytes, shortest form only.
//!
//! One form per number makes a record's bytes, and with them its size in credit, a function of its content.

/// Appends `value`.
pub(crate) fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    out.push(value.to_le_bytes()[0]);
}

/// Bytes that `value` takes.
pub(crate) fn len(value: u64) -> usize {
    ((64 - (value | 1).leading_zeros()) as usize).div_ceil(7)
}

/// Takes a number off the front; `None` if it is cut short, above 64 bits, or longer than it need be.
pub(crate) fn take(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for (i, &byte) in bytes.iter().enumerate().take(10) {
        let bits = u64::from(byte & 0x7f);
        if i == 9 && bits > 1 {
            return None;
        }
        value |= bits << (7 * i);
        if byte & 0x80 == 0 {
            *bytes = &bytes[i + 1..];
            return (byte != 0 || i == 0).then_some(value);
        }
    }
    None
}

/// Turns small magnitudes of either sign into small numbers.
pub(crate) fn zigzag(value: i64) -> u64 {
    (value.cast_unsigned() << 1) ^ (value >> 63).cast_unsigned()
}

/// Undoes [`zigzag`].
pub(crate) fn unzigzag(value: u64) -> i64 {
    (value >> 1).cast_signed() ^ -(value & 1).cast_signed()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn numbers_round_trip_in_the_length_promised(value: u64, signed: i64) {
            let mut out = Vec::new();
            put(&mut out, value);
            prop_assert_eq!(out.len(), len(value));
            let mut rest = &out[..];
            prop_assert_eq!(take(&mut rest), Some(value));
            prop_assert!(rest.is_empty());
            prop_assert_eq!(take(&mut &out[..out.len() - 1]), None);
            prop_assert_eq!(unzigzag(zigzag(signed)), signed);
        }
    }

    #[test]
    fn numbers_above_64_bits_or_in_a_longer_form_are_refused() {
        for bad in [&[0xff; 10][..], &[0x80; 11], &[0x80, 0], &[0xff, 0x80, 0]] {
            assert_eq!(take(&mut &bad[..]), None, "{bad:02x?}");
        }
        assert_eq!(take(&mut &[0][..]), Some(0));
    }
}
