//! Attributes of CloudEvents as values of `ce-*` headers: percent-encoded (HTTP binding 1.0.2, section
//! 3.1.3.2). They are stored as they are.

use std::borrow::Cow;
use std::fmt::Write as _;

/// What all names of their headers begin with.
pub(super) const PREFIX: &str = "ce-";

/// Whether an attribute may have this name (section 3.1 of the specification).
pub(super) fn is_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
}

/// The attribute that a header's value stands for: quotes undone as older senders put them, then one round of
/// percent-decoding.
///
/// # Errors
/// Why it stands for none.
pub(super) fn decoded(value: &[u8]) -> Result<Cow<'_, str>, &'static str> {
    let bytes =
        if value.first() == Some(&b'"') { Cow::Owned(unquoted(value)?) } else { Cow::Borrowed(value) };
    let bytes = if bytes.contains(&b'%') { Cow::Owned(percent_decoded(&bytes)?) } else { bytes };
    let no_text = "not UTF-8, percent-encoded";
    match bytes {
        Cow::Borrowed(bytes) => std::str::from_utf8(bytes).map(Cow::Borrowed).map_err(|_| no_text),
        Cow::Owned(bytes) => String::from_utf8(bytes).map(Cow::Owned).map_err(|_| no_text),
    }
}

fn unquoted(value: &[u8]) -> Result<Vec<u8>, &'static str> {
    let mut text = Vec::with_capacity(value.len());
    let mut rest = value.get(1..).unwrap_or_default().iter();
    while let Some(byte) = rest.next() {
        match byte {
            b'\\' => text.push(*rest.next().ok_or("a quoted text that does not end")?),
            b'"' if rest.as_slice().is_empty() => return Ok(text),
            b'"' => return Err("something behind a quoted text"),
            byte => text.push(*byte),
        }
    }
    Err("a quoted text that does not end")
}

/// One round of percent-decoding.
///
/// # Errors
/// What is wrong.
pub(super) fn percent_decoded(value: &[u8]) -> Result<Vec<u8>, &'static str> {
    let mut text = Vec::with_capacity(value.len());
    let mut rest = value;
    while let Some((byte, behind)) = rest.split_first() {
        rest = behind;
        if *byte != b'%' {
            text.push(*byte);
            continue;
        }
        let (digits, behind) = rest.split_at_checked(2).ok_or("% without two digits")?;
        let digit = |digit: u8| char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        let (high, low) = digit(digits[0]).zip(digit(digits[1])).ok_or("% without two digits")?;
        text.push(high << 4 | low);
        rest = behind;
    }
    Ok(text)
}

/// The header's value for an attribute: space, double quote, percent and all but printable ASCII are encoded.
pub(super) fn encoded(attribute: &[u8]) -> String {
    let mut text = String::with_capacity(attribute.len());
    for byte in attribute {
        match byte {
            b'!' | b'#' | b'$' | b'&'..=b'~' => text.push(char::from(*byte)),
            byte => write!(text, "%{byte:02X}").expect("a String takes everything"),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_examples_of_the_binding_hold() {
        let text = "Euro € 😀";
        let header = "Euro%20%E2%82%AC%20%F0%9F%98%80";
        assert_eq!(encoded(text.as_bytes()), header);
        assert_eq!(decoded(header.as_bytes()), Ok(text.into()));
        for (header, attribute) in [
            ("plain/text?a=b", "plain/text?a=b"),
            ("%e2%82%ac", "€"),
            ("100%25", "100%"),
            ("%2525", "%25"),
            ("not encoded", "not encoded"),
            ("\"quoted \\\"text\\\" 50%25\"", "quoted \"text\" 50%"),
            ("\"\"", ""),
            ("€", "€"),
            ("a\"b", "a\"b"),
        ] {
            assert_eq!(decoded(header.as_bytes()), Ok(attribute.into()), "{header}");
        }
        for header in [
            &b"100%"[..],
            b"%",
            b"%2",
            b"%zz",
            b"%+1",
            b"%C0%A0",
            b"%FF",
            b"caf\xe9",
            b"\"open",
            b"\"a\" b",
            b"\"\\",
        ] {
            assert!(decoded(header).is_err(), "{header:?}");
        }
    }

    proptest! {
        #[test]
        fn every_attribute_comes_back_and_is_visible_ascii_on_its_way(attribute in "\\PC{0,40}") {
            let header = encoded(attribute.as_bytes());
            prop_assert!(header.bytes().all(|byte| byte.is_ascii_graphic()));
            prop_assert_eq!(decoded(header.as_bytes()), Ok(attribute.into()));
        }

        #[test]
        fn no_header_makes_the_reader_panic(header in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = decoded(&header);
        }
    }
}
