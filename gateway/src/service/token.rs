//! Opaque tokens: base64url of `version | fields | CRC-32C`. Readable by any gateway, owned by none.
//!
//! The checksum catches what people do to tokens by hand; it is no protection: everything in a token is checked
//! again by whoever acts on it.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use weir_protocol::checksum::crc32c;

/// Longest token that is decoded, in characters.
const TOKEN_CHARS_MAX: usize = 256 * 1024;

/// Collects fields.
#[derive(Debug)]
pub(super) struct TokenWriter(Vec<u8>);

impl TokenWriter {
    pub(super) fn new(version: u8) -> Self {
        Self(vec![version])
    }

    pub(super) fn byte(&mut self, value: u8) -> &mut Self {
        self.0.push(value);
        self
    }

    /// LEB128, so that small numbers make short tokens.
    pub(super) fn number(&mut self, mut value: u64) -> &mut Self {
        while value >= 0x80 {
            self.0.push(value.to_le_bytes()[0] | 0x80);
            value >>= 7;
        }
        self.0.push(value.to_le_bytes()[0]);
        self
    }

    pub(super) fn text(&mut self, value: &str) -> &mut Self {
        self.number(value.len() as u64);
        self.0.extend_from_slice(value.as_bytes());
        self
    }

    pub(super) fn finish(&mut self) -> String {
        let crc = crc32c(&self.0).to_le_bytes();
        self.0.extend_from_slice(&crc);
        URL_SAFE_NO_PAD.encode(&self.0)
    }
}

/// Takes fields out again. Every method answers `None` for what no gateway wrote.
#[derive(Debug)]
pub(super) struct TokenReader {
    bytes: Vec<u8>,
    at: usize,
}

impl TokenReader {
    pub(super) fn new(version: u8, token: &str) -> Option<Self> {
        if token.len() > TOKEN_CHARS_MAX {
            return None;
        }
        let mut bytes = URL_SAFE_NO_PAD.decode(token).ok()?;
        let body = bytes.len().checked_sub(4)?;
        if crc32c(&bytes[..body]).to_le_bytes() != bytes[body..]
            || bytes.first() != Some(&version)
            || body == 0
        {
            return None;
        }
        bytes.truncate(body);
        Some(Self { bytes, at: 1 })
    }

    pub(super) fn byte(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    pub(super) fn number(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let part = u64::from(byte & 0x7f);
            if part << shift >> shift != part {
                return None;
            }
            value |= part << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    pub(super) fn small(&mut self) -> Option<u32> {
        u32::try_from(self.number()?).ok()
    }

    pub(super) fn text(&mut self) -> Option<String> {
        let len = usize::try_from(self.number()?).ok()?;
        let end = self.at.checked_add(len)?;
        let text = std::str::from_utf8(self.bytes.get(self.at..end)?).ok()?.to_owned();
        self.at = end;
        Some(text)
    }

    /// Nothing may be left.
    pub(super) fn end(&self) -> Option<()> {
        (self.at == self.bytes.len()).then_some(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn fields_come_back_and_any_changed_character_is_noticed(
            number in any::<u64>(), text in "[a-z]{0,20}", at in any::<prop::sample::Index>(),
        ) {
            let token = TokenWriter::new(3).number(number).text(&text).byte(9).finish();
            let mut reader = TokenReader::new(3, &token).unwrap();
            prop_assert_eq!(reader.number(), Some(number));
            prop_assert_eq!(reader.text(), Some(text));
            prop_assert_eq!(reader.byte(), Some(9));
            prop_assert_eq!(reader.end(), Some(()));
            prop_assert!(TokenReader::new(4, &token).is_none(), "another version");

            let mut changed = token.clone().into_bytes();
            let at = at.index(changed.len());
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).unwrap();
            prop_assert!(changed == token || TokenReader::new(3, &changed).is_none());
        }

        #[test]
        fn no_text_makes_the_reader_panic(text in ".{0,64}") {
            if let Some(mut reader) = TokenReader::new(1, &text) {
                let _ = (reader.number(), reader.text(), reader.small());
            }
        }
    }
}
