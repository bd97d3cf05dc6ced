//! Values inside JSON frames.

use std::fmt;

use serde::de::{self, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::limits::RECORD_HEADERS_MAX;
use crate::rpc::Level;

/// A JSON value as its text: numbers keep every digit, objects their order. Compared by text.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RawJson(Box<RawValue>);

impl RawJson {
    /// Takes text that is one JSON value, surrounding white space removed. Line breaks between its tokens become
    /// spaces, because a line is a frame; inside strings JSON has none.
    ///
    /// `None` if it is not JSON.
    #[must_use]
    pub fn from_text(text: &str) -> Option<Self> {
        let text = text.trim_ascii();
        let one_line =
            if text.contains(['\n', '\r']) { text.replace(['\n', '\r'], " ") } else { text.to_owned() };
        RawValue::from_string(one_line).ok().map(Self)
    }

    /// The JSON of `value`.
    ///
    /// # Errors
    /// If its `Serialize` fails or a map has keys that are not text.
    pub fn of<T: Serialize>(value: &T) -> Result<Self, serde_json::Error> {
        serde_json::value::to_raw_value(value).map(Self)
    }

    /// The text.
    #[must_use]
    pub fn get(&self) -> &str {
        self.0.get()
    }
}

impl PartialEq for RawJson {
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get()
    }
}

/// A credential. Its text never appears in debug output.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(pub String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Reads a field that is there, so that JSON `null` is a value and not an absent field.
pub(super) fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<RawJson>, D::Error> {
    RawJson::deserialize(deserializer).map(Some)
}

/// A record's headers as a JSON object of texts, in order. A name occurs once. Of more than [`RECORD_HEADERS_MAX`]
/// one more is read and the others are stepped over: whoever makes a record of them finds that they are too many.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HeaderMap(pub Vec<(String, String)>);

impl HeaderMap {
    /// True for no headers.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Serialize for HeaderMap {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for HeaderMap {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(HeaderMapVisitor)
    }
}

struct HeaderMapVisitor;

impl<'de> Visitor<'de> for HeaderMapVisitor {
    type Value = HeaderMap;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of header names and texts")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<HeaderMap, A::Error> {
        let mut headers: Vec<(String, String)> = Vec::new();
        while let Some((name, value)) = map.next_entry()? {
            if headers.len() > RECORD_HEADERS_MAX {
                continue;
            }
            if headers.iter().any(|(earlier, _)| *earlier == name) {
                return Err(de::Error::custom(format_args!("duplicate field `{name}`")));
            }
            headers.push((name, value));
        }
        Ok(HeaderMap(headers))
    }
}

/// Numbers `first..=last`; in JSON `[first,last]`, or the number where both are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NumberRange {
    /// The first.
    pub first: u64,
    /// The last, inclusive, not below `first`.
    pub last: u64,
}

impl Serialize for NumberRange {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.first == self.last {
            serializer.serialize_u64(self.first)
        } else {
            (self.first, self.last).serialize(serializer)
        }
    }
}

impl<'de> Deserialize<'de> for NumberRange {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NumberRangeVisitor)
    }
}

struct NumberRangeVisitor;

impl<'de> Visitor<'de> for NumberRangeVisitor {
    type Value = NumberRange;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number or a pair [first,last]")
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<NumberRange, E> {
        Ok(NumberRange { first: number, last: number })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut pair: A) -> Result<NumberRange, A::Error> {
        let first = pair.next_element()?.ok_or_else(|| de::Error::invalid_length(0, &self))?;
        let last = pair.next_element()?.ok_or_else(|| de::Error::invalid_length(1, &self))?;
        if pair.next_element::<de::IgnoredAny>()?.is_some() {
            return Err(de::Error::invalid_length(3, &self));
        }
        if first > last {
            return Err(de::Error::custom(format_args!("range [{first},{last}] ends before it starts")));
        }
        Ok(NumberRange { first, last })
    }
}

impl Serialize for Level {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Level {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::from_text(&text).ok_or_else(|| {
            de::Error::unknown_variant(&text, &["none", "memory", "durable", "quorum", "archived"])
        })
    }
}
