//! JSON in which an object is what a struct is read from, and nothing else is; and errors in its words.
//!
//! What serde derives for a struct takes an array as well, field by field in the order of the source: `[1,2]`
//! would be a retention of one millisecond and two bytes. No document says so, and whoever adds a field in
//! the middle changes what it means. Everything else is as `serde_json` has it, but for what errors call
//! things: who sent JSON knows of arrays and objects, not of our types' names.

use std::fmt;

use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, EnumAccess, MapAccess, SeqAccess, VariantAccess, Visitor,
};

/// Reads a value from JSON bytes.
///
/// # Errors
/// As `serde_json::from_slice`, and for an array where a struct is wanted, at any depth.
pub fn from_slice<'de, T: Deserialize<'de>>(json: &'de [u8]) -> serde_json::Result<T> {
    whole(serde_json::Deserializer::from_slice(json))
}

/// Reads a value from JSON text.
///
/// # Errors
/// As [`from_slice`].
pub fn from_str<'de, T: Deserialize<'de>>(json: &'de str) -> serde_json::Result<T> {
    whole(serde_json::Deserializer::from_str(json))
}

fn whole<'de, R: serde_json::de::Read<'de>, T: Deserialize<'de>>(
    mut deserializer: serde_json::Deserializer<R>,
) -> serde_json::Result<T> {
    let value = T::deserialize(Objects(&mut deserializer)).map_err(in_words_of_json)?;
    deserializer.end()?;
    Ok(value)
}

/// Which part of the JSON is not what [`from_slice`] wants there, as `retention.bytes` or `topics[1]`; `None` if it is
/// the whole, or the text is no JSON. The text is read again: only who was refused pays for it.
#[must_use]
pub fn place_of_error<'de, T: Deserialize<'de>>(json: &'de [u8]) -> Option<String> {
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    let mut track = serde_path_to_error::Track::new();
    let tracked = serde_path_to_error::Deserializer::new(Objects(&mut deserializer), &mut track);
    let error = T::deserialize(tracked).err()?;
    let path = track.path();
    (error.is_data() && path.iter().next().is_some()).then(|| path.to_string())
}

/// What is wrong, named as JSON names it. Line and column stay: the library finds them at the end of the text again.
pub(crate) fn in_words_of_json(error: serde_json::Error) -> serde_json::Error {
    let text = error.to_string();
    let renamed = BEGINNINGS.iter().find_map(|(of_serde, of_json)| {
        text.strip_prefix(of_serde).map(|rest| format!("{of_json}{}", with_expected(rest)))
    });
    renamed.map_or(error, serde::de::Error::custom)
}

/// How an error begins, and how it should; the first that fits.
const BEGINNINGS: [(&str, &str); 5] = [
    ("invalid type: sequence, ", "invalid type: array, "),
    ("invalid type: map, ", "invalid type: object, "),
    ("invalid type: ", "invalid type: "),
    ("invalid value: ", "invalid value: "),
    ("unknown variant ", "unknown value "),
];

/// The text with what is expected renamed. That stands at the end, before the place: what was sent may say anything.
fn with_expected(text: &str) -> String {
    const BEFORE: &str = "expected ";
    let Some(at) = text.rfind(BEFORE).map(|at| at + BEFORE.len()) else { return text.to_owned() };
    let end = text[at..].find(" at line ").map_or(text.len(), |len| at + len);
    format!("{}{}{}", &text[..at], expected(&text[at..end]), &text[end..])
}

/// What is expected, named as JSON names it.
fn expected(of_serde: &str) -> &str {
    match of_serde {
        "a map" => "an object",
        "a sequence" => "an array",
        "u8" => "a whole number up to 255",
        "u16" => "a whole number up to 65535",
        "u32" => "a whole number up to 4294967295",
        "u64" | "usize" => "a whole number, 0 or more",
        "i64" => "a whole number",
        "f64" => "a number",
        named if named.starts_with("struct ") => "an object",
        named if named.starts_with("enum ") => "a text",
        _ => of_serde,
    }
}

/// A deserializer whose structs are objects; around a seed, a visitor or an access, what makes all that is
/// below it one.
pub(crate) struct Objects<D>(pub(crate) D);

macro_rules! forward {
    ($($method:ident($($argument:ident: $kind:ty),*);)*) => {$(
        fn $method<V: Visitor<'de>>(self, $($argument: $kind,)* visitor: V) -> Result<V::Value, D::Error> {
            self.0.$method($($argument,)* Objects(visitor))
        }
    )*};
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Objects<D> {
    type Error = D::Error;

    forward! {
        deserialize_any();
        deserialize_bool();
        deserialize_i8();
        deserialize_i16();
        deserialize_i32();
        deserialize_i64();
        deserialize_i128();
        deserialize_u8();
        deserialize_u16();
        deserialize_u32();
        deserialize_u64();
        deserialize_u128();
        deserialize_f32();
        deserialize_f64();
        deserialize_char();
        deserialize_str();
        deserialize_string();
        deserialize_bytes();
        deserialize_byte_buf();
        deserialize_option();
        deserialize_unit();
        deserialize_unit_struct(name: &'static str);
        deserialize_newtype_struct(name: &'static str);
        deserialize_seq();
        deserialize_tuple(len: usize);
        deserialize_tuple_struct(name: &'static str, len: usize);
        deserialize_map();
        deserialize_enum(name: &'static str, variants: &'static [&'static str]);
        deserialize_identifier();
        deserialize_ignored_any();
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_map(Objects(visitor))
    }

    fn is_human_readable(&self) -> bool {
        self.0.is_human_readable()
    }
}

macro_rules! visit {
    ($($method:ident($kind:ty);)*) => {$(
        fn $method<E: serde::de::Error>(self, value: $kind) -> Result<V::Value, E> {
            self.0.$method(value)
        }
    )*};
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Objects<V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.expecting(f)
    }

    visit! {
        visit_bool(bool);
        visit_i8(i8);
        visit_i16(i16);
        visit_i32(i32);
        visit_i64(i64);
        visit_i128(i128);
        visit_u8(u8);
        visit_u16(u16);
        visit_u32(u32);
        visit_u64(u64);
        visit_u128(u128);
        visit_f32(f32);
        visit_f64(f64);
        visit_char(char);
        visit_str(&str);
        visit_borrowed_str(&'de str);
        visit_string(String);
        visit_bytes(&[u8]);
        visit_borrowed_bytes(&'de [u8]);
        visit_byte_buf(Vec<u8>);
    }

    fn visit_none<E: serde::de::Error>(self) -> Result<V::Value, E> {
        self.0.visit_none()
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<V::Value, E> {
        self.0.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<V::Value, D::Error> {
        self.0.visit_some(Objects(deserializer))
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<V::Value, D::Error> {
        self.0.visit_newtype_struct(Objects(deserializer))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<V::Value, A::Error> {
        self.0.visit_seq(Objects(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<V::Value, A::Error> {
        self.0.visit_map(Objects(entries))
    }

    fn visit_enum<A: EnumAccess<'de>>(self, data: A) -> Result<V::Value, A::Error> {
        self.0.visit_enum(Objects(data))
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Objects<S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<S::Value, D::Error> {
        self.0.deserialize(Objects(deserializer))
    }
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Objects<A> {
    type Error = A::Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        self.0.next_element_seed(Objects(seed))
    }

    fn size_hint(&self) -> Option<usize> {
        self.0.size_hint()
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Objects<A> {
    type Error = A::Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        self.0.next_key_seed(Objects(seed))
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        self.0.next_value_seed(Objects(seed))
    }

    fn size_hint(&self) -> Option<usize> {
        self.0.size_hint()
    }
}

impl<'de, A: EnumAccess<'de>> EnumAccess<'de> for Objects<A> {
    type Error = A::Error;
    type Variant = Objects<A::Variant>;

    fn variant_seed<S: DeserializeSeed<'de>>(
        self,
        seed: S,
    ) -> Result<(S::Value, Objects<A::Variant>), A::Error> {
        let (value, variant) = self.0.variant_seed(Objects(seed))?;
        Ok((value, Objects(variant)))
    }
}

impl<'de, A: VariantAccess<'de>> VariantAccess<'de> for Objects<A> {
    type Error = A::Error;

    fn unit_variant(self) -> Result<(), A::Error> {
        self.0.unit_variant()
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, A::Error> {
        self.0.newtype_variant_seed(Objects(seed))
    }

    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, A::Error> {
        self.0.tuple_variant(len, Objects(visitor))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, A::Error> {
        self.0.struct_variant(fields, Objects(visitor))
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;
    use std::collections::BTreeMap;

    use serde_json::value::RawValue;

    use super::*;

    #[derive(Debug, Default, PartialEq, Eq, serde::Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct Inner {
        a: Option<u64>,
        b: u64,
    }

    #[derive(Debug, PartialEq, Eq, serde::Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Mode {
        Queue,
        Stream,
    }

    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Outer<'a> {
        inner: Inner,
        #[serde(default)]
        option: Option<Inner>,
        #[serde(default)]
        many: Vec<Inner>,
        #[serde(default)]
        named: BTreeMap<String, Inner>,
        #[serde(default)]
        pair: (u64, u64),
        #[serde(default)]
        mode: Option<Mode>,
        #[serde(borrow, default)]
        raw: Option<&'a RawValue>,
        #[serde(borrow, default)]
        text: Option<Cow<'a, str>>,
    }

    #[test]
    fn what_is_wrong_is_found() {
        for (json, place) in [
            (r#"{"inner":{"b":"x"}}"#, Some("inner.b")),
            (r#"{"inner":[1,2]}"#, Some("inner")),
            (r#"{"inner":{},"many":[{},{"b":-1}]}"#, Some("many[1].b")),
            (r#"{"inner":{},"named":{"x":{"b":null}}}"#, Some("named.x.b")),
            (r#"{"inner":{},"mode":"topic"}"#, Some("mode")),
            // The whole, no JSON, and nothing at all.
            ("[]", None),
            ("{}", None),
            (r#"{"inner":{"b":1"#, None),
            (r#"{"inner":{},"raw":[1.10],"text":"t"}"#, None),
        ] {
            assert_eq!(place_of_error::<Outer<'_>>(json.as_bytes()).as_deref(), place, "{json}");
            let is_wrong = from_slice::<Outer<'_>>(json.as_bytes()).is_err();
            assert!(is_wrong || place.is_none(), "{json}");
        }
    }

    #[test]
    fn what_is_no_struct_is_read_as_ever_digit_for_digit() {
        let json = r#"{"inner":{"a":null,"b":2},"option":{"a":1},"many":[{},{"b":7}],"named":{"x":{"b":3}},
            "pair":[1,2],"mode":"stream","raw":[1.10, {"n":9007199254740993}],"text":"t"}"#;
        let read: Outer<'_> = from_str(json).unwrap();
        assert_eq!(read.inner, Inner { a: None, b: 2 });
        assert_eq!(read.option, Some(Inner { a: Some(1), b: 0 }));
        assert_eq!(read.many, [Inner::default(), Inner { a: None, b: 7 }]);
        assert_eq!(read.named["x"], Inner { a: None, b: 3 });
        assert_eq!((read.pair, read.text.as_deref()), ((1, 2), Some("t")));
        assert_eq!(read.mode, Some(Mode::Stream));
        assert_eq!(read.raw.unwrap().get(), r#"[1.10, {"n":9007199254740993}]"#);
        assert!(from_str::<Inner>("{} {}").is_err(), "nothing may follow");
    }

    #[test]
    fn an_array_is_no_struct_at_any_depth() {
        for json in [
            "[]",
            "[[1,2]]",
            r#"{"inner":[]}"#,
            r#"{"inner":[1,2]}"#,
            r#"{"inner":{},"option":[1,2]}"#,
            r#"{"inner":{},"many":[[1,2]]}"#,
            r#"{"inner":{},"named":{"x":[1,2]}}"#,
        ] {
            let error = from_str::<Outer<'_>>(json).unwrap_err().to_string();
            assert!(
                error.starts_with("invalid type: array, expected an object at line 1"),
                "{json}: {error}"
            );
            assert!(from_slice::<Outer<'_>>(json.as_bytes()).is_err());
        }
    }

    #[test]
    fn errors_are_in_the_words_of_json() {
        for (json, expected) in [
            ("7", "invalid type: integer `7`, expected an object at line 1 column 1"),
            (r#"{"inner":"x"}"#, "invalid type: string \"x\", expected an object at line 1 column 12"),
            (
                r#"{"inner":{"b":{}}}"#,
                "invalid type: object, expected a whole number, 0 or more at line 1 column 14",
            ),
            (
                r#"{"inner":{"b":-1}}"#,
                "invalid value: integer `-1`, expected a whole number, 0 or more at line 1 column 16",
            ),
            (r#"{"inner":{},"many":{}}"#, "invalid type: object, expected an array at line 1 column 19"),
            (r#"{"inner":{},"named":[]}"#, "invalid type: array, expected an object at line 1 column 20"),
            (
                r#"{"inner":{},"mode":"x"}"#,
                "unknown value `x`, expected `queue` or `stream` at line 1 column 22",
            ),
            ("{\"inner\":\n{\"c\":1}}", "unknown field `c`, expected `a` or `b` at line 2 column 4"),
        ] {
            let error = from_str::<Outer<'_>>(json).unwrap_err();
            assert_eq!(error.to_string(), expected, "{json}");
            assert!(error.is_data() && error.line() > 0, "{json}");
        }
        let error = from_str::<Outer<'_>>(r#"{"inner":{"c":1}}"#).unwrap_err().to_string();
        assert!(error.starts_with("unknown field `c`"), "{error}");
        let error = from_str::<Outer<'_>>(r#"{"inner":{"b":1,"b":1}}"#).unwrap_err().to_string();
        assert!(error.starts_with("duplicate field `b`"), "{error}");
    }
}
