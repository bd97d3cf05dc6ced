//! What a client offers of extensions, and what is taken of it. Pure.

use http::{HeaderMap, HeaderValue};

const HEADER: &str = "sec-websocket-extensions";
const NAME: &str = "permessage-deflate";
/// The window that messages are compressed with, as a power of two: what the library can.
const WINDOW_BITS: u8 = 15;

/// What is said of the extension in the answer: neither side keeps anything of a message for the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Agreed {
    /// The client asked for a bound of our window, which has to be named again then.
    names_window: bool,
}

/// The header is none: RFC 6455, section 9.1, has the handshake fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a list of extensions with their parameters (RFC 6455, section 9.1)")]
pub(crate) struct NoExtensions;

impl Agreed {
    /// The value of the answer's `Sec-WebSocket-Extensions`.
    pub(crate) fn header(self) -> HeaderValue {
        HeaderValue::from_static(if self.names_window {
            "permessage-deflate; server_no_context_takeover; client_no_context_takeover; server_max_window_bits=15"
        } else {
            "permessage-deflate; server_no_context_takeover; client_no_context_takeover"
        })
    }
}

/// The first offer of `permessage-deflate` that can be met; extensions that are not known are passed over.
///
/// # Errors
/// [`NoExtensions`]: the header is not made as it has to be, whatever is wrong with it.
pub(super) fn agree(headers: &HeaderMap) -> Result<Option<Agreed>, NoExtensions> {
    let mut agreed = None;
    for value in headers.get_all(HEADER) {
        let mut left = Text(value.to_str().map_err(|_| NoExtensions)?);
        loop {
            // A list may have empty elements (RFC 9110, section 5.6.1.2).
            while left.eat(',') {}
            if left.is_empty() {
                break;
            }
            let offer = offer(&mut left)?;
            agreed = agreed.or(offer);
            if !left.is_empty() && !left.eat(',') {
                return Err(NoExtensions);
            }
        }
    }
    Ok(agreed)
}

/// Reads one extension with its parameters; what is agreed if it is one that can be met.
fn offer(left: &mut Text<'_>) -> Result<Option<Agreed>, NoExtensions> {
    let is_ours = left.token()?.eq_ignore_ascii_case(NAME);
    let mut asked = Asked::default();
    let mut can_be_met = is_ours;
    while left.eat(';') {
        let name = left.token()?;
        let value = if left.eat('=') { Some(left.value()?) } else { None };
        can_be_met &= is_ours && asked.takes(name, value.as_deref());
    }
    let names_window = asked.server_max_window_bits;
    Ok(can_be_met.then_some(Agreed { names_window }))
}

/// The parameters that an offer has, each at most once.
#[derive(Default)]
struct Asked {
    server_no_context_takeover: bool,
    client_no_context_takeover: bool,
    server_max_window_bits: bool,
    client_max_window_bits: bool,
}

impl Asked {
    /// Notes a parameter (RFC 7692, section 7.1); false if the offer has to be declined for it.
    fn takes(&mut self, name: &str, value: Option<&str>) -> bool {
        let (seen, is_good) = match name {
            "server_no_context_takeover" => (&mut self.server_no_context_takeover, value.is_none()),
            "client_no_context_takeover" => (&mut self.client_no_context_takeover, value.is_none()),
            // A smaller window cannot be promised; the client's own may be any.
            "server_max_window_bits" => {
                (&mut self.server_max_window_bits, value.and_then(window_bits) == Some(WINDOW_BITS))
            }
            "client_max_window_bits" => {
                (&mut self.client_max_window_bits, value.is_none_or(|value| window_bits(value).is_some()))
            }
            _ => return false,
        };
        let is_first = !std::mem::replace(seen, true);
        is_first && is_good
    }
}

/// 8 to 15, without leading zeros.
fn window_bits(text: &str) -> Option<u8> {
    let is_plain = !text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|bits| is_plain && (8..=15).contains(bits))
}

/// What is left of a header's value.
struct Text<'a>(&'a str);

impl<'a> Text<'a> {
    /// Steps over white space; true if nothing else is left.
    fn is_empty(&mut self) -> bool {
        self.0 = self.0.trim_start_matches([' ', '\t']);
        self.0.is_empty()
    }

    /// Steps over `wanted`, if it comes next, with white space around it.
    fn eat(&mut self, wanted: char) -> bool {
        self.0 = self.0.trim_start_matches([' ', '\t']);
        let Some(rest) = self.0.strip_prefix(wanted) else { return false };
        self.0 = rest;
        true
    }

    fn token(&mut self) -> Result<&'a str, NoExtensions> {
        self.0 = self.0.trim_start_matches([' ', '\t']);
        let end = self.0.find(|c| !is_token(c)).unwrap_or(self.0.len());
        let (token, rest) = self.0.split_at(end);
        self.0 = rest;
        if token.is_empty() { Err(NoExtensions) } else { Ok(token) }
    }

    /// A token, perhaps in quotes, within which a backslash stands before any character.
    fn value(&mut self) -> Result<String, NoExtensions> {
        if !self.eat('"') {
            return self.token().map(str::to_owned);
        }
        let mut value = String::new();
        let mut chars = self.0.chars();
        loop {
            match chars.next().ok_or(NoExtensions)? {
                '"' => break,
                '\\' => value.push(chars.next().ok_or(NoExtensions)?),
                other => value.push(other),
            }
        }
        self.0 = chars.as_str();
        if !value.is_empty() && value.chars().all(is_token) { Ok(value) } else { Err(NoExtensions) }
    }
}

/// `tchar` (RFC 9110, section 5.6.2).
fn is_token(c: char) -> bool {
    c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn agreed(values: &[&str]) -> Result<Option<String>, NoExtensions> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(HEADER, HeaderValue::from_str(value).unwrap());
        }
        Ok(agree(&headers)?.map(|agreed| agreed.header().to_str().unwrap().to_owned()))
    }

    const PLAIN: &str = "permessage-deflate; server_no_context_takeover; client_no_context_takeover";

    #[test]
    fn offers_that_can_be_met_are_taken_and_never_with_a_context() {
        for offer in [
            "permessage-deflate",
            "permessage-deflate; client_max_window_bits",
            "Permessage-Deflate;client_max_window_bits=8",
            "permessage-deflate ; client_max_window_bits = \"1\\5\"",
            "permessage-deflate; server_no_context_takeover; client_no_context_takeover",
            ", ,permessage-deflate,",
            "x-webkit-deflate-frame, permessage-deflate; client_max_window_bits",
            "other; a; b=c; d=\"e\", permessage-deflate",
            // The first is declined, the second is not.
            "permessage-deflate; server_max_window_bits=10, permessage-deflate",
        ] {
            assert_eq!(agreed(&[offer]), Ok(Some(PLAIN.into())), "{offer}");
        }
        assert_eq!(agreed(&["other; x", "permessage-deflate"]), Ok(Some(PLAIN.into())));
        let named = format!("{PLAIN}; server_max_window_bits=15");
        assert_eq!(agreed(&["permessage-deflate; server_max_window_bits=15"]), Ok(Some(named)));
    }

    #[test]
    fn offers_that_cannot_be_met_are_declined() {
        assert_eq!(agreed(&[]), Ok(None));
        for offer in [
            "",
            "other",
            "permessage-deflate2",
            "permessage-deflate; unknown",
            "permessage-deflate; server_max_window_bits",
            "permessage-deflate; server_max_window_bits=14",
            "permessage-deflate; server_max_window_bits=16",
            "permessage-deflate; server_max_window_bits=015",
            "permessage-deflate; server_max_window_bits=+15",
            "permessage-deflate; client_max_window_bits=7",
            "permessage-deflate; client_max_window_bits=16",
            "permessage-deflate; client_max_window_bits=08",
            "permessage-deflate; client_max_window_bits=999",
            "permessage-deflate; client_max_window_bits; client_max_window_bits",
            "permessage-deflate; server_no_context_takeover=1",
            "permessage-deflate; client_no_context_takeover; client_no_context_takeover",
            "permessage-deflate; SERVER_NO_CONTEXT_TAKEOVER",
        ] {
            assert_eq!(agreed(&[offer]), Ok(None), "{offer}");
        }
    }

    #[test]
    fn a_header_that_is_no_list_of_extensions_is_told() {
        for value in [
            ";",
            "=",
            "permessage-deflate;",
            "permessage-deflate; a=",
            "permessage-deflate; =1",
            "permessage-deflate a",
            "permessage-deflate; a b",
            "permessage-deflate; a=\"",
            "permessage-deflate; a=\"b",
            "permessage-deflate; a=\"\"",
            "permessage-deflate; a=\"b c\"",
            "permessage-deflate; a=\"b\\",
            "permessage-deflate, (",
        ] {
            assert_eq!(agreed(&[value]), Err(NoExtensions), "{value}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(
            values in proptest::collection::vec(proptest::collection::vec(32u8..=255, 0..60), 0..4),
        ) {
            let mut headers = HeaderMap::new();
            for value in &values {
                headers.append(HEADER, HeaderValue::from_bytes(value).unwrap_or(HeaderValue::from_static("a")));
            }
            let _ = agree(&headers);
        }

        #[test]
        fn only_a_good_offer_is_taken(
            parts in proptest::collection::vec(
                prop_oneof![
                    Just("permessage-deflate"), Just(";"), Just(","), Just("="), Just("\""), Just(" "), Just("15"),
                    Just("9"), Just("server_max_window_bits"), Just("client_max_window_bits"), Just("x"),
                    Just("server_no_context_takeover"), Just("client_no_context_takeover"),
                ],
                0..12,
            ),
        ) {
            let text = parts.concat();
            if let Ok(Some(answer)) = agreed(&[&text]) {
                prop_assert!(text.contains(NAME), "{text}");
                prop_assert!(!answer.contains("=15") || text.contains("server_max_window_bits"), "{text}");
            }
        }
    }
}
