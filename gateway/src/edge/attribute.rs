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

/// Why an attribute may not have this value (sections 3.1.1 and 3.1.2 of the specification). Readers refuse a
/// whole page for one that is wrong.
///
/// # Errors
/// The reason.
pub(super) fn check(name: &str, value: &str) -> Result<(), &'static str> {
    match name {
        "id" | "source" | "type" if value.is_empty() => Err("the attribute is empty"),
        "subject" if value.is_empty() => Err("the attribute is empty: leave it out instead"),
        "time" if !is_time(value) => Err("not an RFC 3339 time, as 2026-01-31T12:00:00Z"),
        "dataschema" if !is_uri(value) => {
            Err("not a URI: it begins with its scheme, as https://shop.example/order")
        }
        _ => Ok(()),
    }
}

fn is_time(text: &str) -> bool {
    time::OffsetDateTime::parse(text, &time::format_description::well_known::Rfc3339).is_ok()
}

/// What RFC 3986 calls so: a scheme, a colon and characters of ASCII that a URI may have.
fn is_uri(text: &str) -> bool {
    let Some((scheme, rest)) = text.split_once(':') else { return false };
    let of_scheme = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
    scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme.bytes().all(of_scheme)
        && !rest.is_empty()
        && rest.bytes().all(|byte| byte.is_ascii_graphic() && !b"\"<>\\^`{|}".contains(&byte))
}

/// The attribute that a header's value stands for: quotes undone as older senders put them, then one round of
/// percent-decoding. A percent sign without two digits is one: three of the SDKs do not encode it.
///
/// # Errors
/// Why it stands for none.
pub(super) fn decoded(value: &[u8]) -> Result<Cow<'_, str>, &'static str> {
    let bytes =
        if value.first() == Some(&b'"') { Cow::Owned(unquoted(value)?) } else { Cow::Borrowed(value) };
    let bytes = if bytes.contains(&b'%') { Cow::Owned(decoded_where_encoded(&bytes)) } else { bytes };
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

fn decoded_where_encoded(value: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(value.len());
    let mut rest = value;
    while let Some((byte, behind)) = rest.split_first() {
        let encoded = behind.split_at_checked(2).filter(|_| *byte == b'%');
        match encoded.and_then(|(digits, behind)| Some((byte_of(digits)?, behind))) {
            Some((decoded, behind)) => {
                text.push(decoded);
                rest = behind;
            }
            None => {
                text.push(*byte);
                rest = behind;
            }
        }
    }
    text
}

/// The byte that two digits say.
fn byte_of(digits: &[u8]) -> Option<u8> {
    let digit = |digit: u8| char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    match digits {
        [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
        _ => None,
    }
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
        text.push(byte_of(digits).ok_or("% without two digits")?);
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
            // As the SDKs of Go, Java and JavaScript write it (cloudevents/spec, issue 1397).
            ("100%", "100%"),
            ("%", "%"),
            ("%2", "%2"),
            ("5%zz%20%+1", "5%zz %+1"),
        ] {
            assert_eq!(decoded(header.as_bytes()), Ok(attribute.into()), "{header}");
        }
        for header in [&b"%C0%A0"[..], b"%FF", b"caf\xe9", b"\"open", b"\"a\" b", b"\"\\"] {
            assert!(decoded(header).is_err(), "{header:?}");
        }
    }

    #[test]
    fn an_attribute_is_what_its_type_says() {
        for (name, good, bad) in [
            (
                "time",
                &["2026-01-31T12:00:00Z", "1969-01-01t00:00:00.123456789+01:00"][..],
                &["", "soon", "1", "2026-01-31"][..],
            ),
            ("subject", &["a", " "], &[""]),
            (
                "dataschema",
                &["https://a.example/b?c#d", "urn:x:y"],
                &["", "/order", "order", "https://a b", "1:x", "a:"],
            ),
            ("id", &["1"], &[""]),
            ("any", &[""], &[]),
        ] {
            assert!(good.iter().all(|value| check(name, value).is_ok()), "{name}");
            assert!(bad.iter().all(|value| check(name, value).is_err()), "{name}");
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
