//! Filters: which records a subscription or a read is for, said in an expression over their headers and key.
//!
//! ```text
//!   filter  = term { "or" term }
//!   term    = factor { "and" factor }
//!   factor  = "not" factor | "(" filter ")" | field ("==" | "!=") text
//!   field   = "header." name | "key" | "content_type"
//!   name    = one or more of A-Z a-z 0-9 . _ ~ -
//!   text    = "'" { any but ' and \ | "\'" | "\\" | "\*" } [ "*" ] "'"
//! ```
//!
//! `==` is true if the field is there and is the text, or begins with it where the text ends in `*`; `'*'` so
//! means that the field is there at all. `!=` is its opposite: true where the field is missing. Names of
//! headers are compared without regard to case, values byte by byte. Pure: no I/O, no allocation when a
//! record is judged.
//!
//! * `parse`: text in, [`Filter`] or [`FilterError`] with the place out; never deeper than [`FILTER_DEPTH_MAX`].

mod parse;
#[cfg(test)]
mod tests;

use std::fmt;

use crate::batch::Headers;

/// Longest text of a filter, in bytes.
pub const FILTER_BYTES_MAX: usize = 1_024;
/// Most levels of parentheses and `not`.
pub const FILTER_DEPTH_MAX: usize = 16;

/// Which records are meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter(Node);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Node {
    Any(Vec<Node>),
    All(Vec<Node>),
    Not(Box<Node>),
    Compare { field: Field, pattern: Pattern, is_equal: bool },
}

/// A part of a record that can be asked for, written as in a filter: `header.tenant`, `key`, `content_type`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Field {
    /// A user's header; the case of its name is of no account.
    Header(String),
    /// The key.
    Key,
    /// The media type.
    ContentType,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Pattern {
    text: String,
    is_prefix: bool,
}

/// Why a text is no filter.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{why}, at byte {at}")]
pub struct FilterError {
    /// Where: bytes before it.
    pub at: usize,
    /// What is wrong.
    pub why: FilterFault,
}

/// What can be wrong with a filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FilterFault {
    /// More than [`FILTER_BYTES_MAX`].
    #[error("longer than {FILTER_BYTES_MAX} bytes")]
    TooLong,
    /// More than [`FILTER_DEPTH_MAX`].
    #[error("nested deeper than {FILTER_DEPTH_MAX}")]
    TooDeep,
    /// Something else stands where a comparison should.
    #[error("expected header.<name>, key, content_type, not or (")]
    ExpectedField,
    /// `header.` without a name.
    #[error("expected the name of a header")]
    ExpectedName,
    /// A field without a comparison.
    #[error("expected == or !=")]
    ExpectedOperator,
    /// A comparison without a text.
    #[error("expected a text in single quotes")]
    ExpectedText,
    /// The closing quote is missing.
    #[error("the text has no end")]
    OpenText,
    /// A backslash before something else than a quote, a star or a backslash.
    #[error("only \\', \\* and \\\\ are escapes")]
    BadEscape,
    /// A star that is not the last.
    #[error("a star stands at the end of a text, or is written \\*")]
    MisplacedStar,
    /// The closing parenthesis is missing.
    #[error("expected )")]
    ExpectedClose,
    /// Something follows a whole filter.
    #[error("expected and, or, or the end")]
    ExpectedEnd,
}

impl Filter {
    /// Reads a filter.
    ///
    /// # Errors
    /// [`FilterError`] with the place.
    pub fn parse(text: &str) -> Result<Self, FilterError> {
        parse::parse(text).map(Self)
    }

    /// Whether a record with this key and these headers is meant.
    #[must_use]
    pub fn matches(&self, key: Option<&[u8]>, headers: &Headers) -> bool {
        self.0.matches(key, headers)
    }
}

/// The filter as text that is read as the same filter.
impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Node {
    fn matches(&self, key: Option<&[u8]>, headers: &Headers) -> bool {
        match self {
            Self::Any(nodes) => nodes.iter().any(|node| node.matches(key, headers)),
            Self::All(nodes) => nodes.iter().all(|node| node.matches(key, headers)),
            Self::Not(node) => !node.matches(key, headers),
            Self::Compare { field, pattern, is_equal } => {
                field.value(key, headers).is_some_and(|value| pattern.matches(value)) == *is_equal
            }
        }
    }
}

impl Field {
    /// Reads a field.
    ///
    /// # Errors
    /// [`FilterError`] with the place.
    pub fn parse(text: &str) -> Result<Self, FilterError> {
        parse::parse_field(text)
    }

    /// What a record with this key and these headers has there.
    #[must_use]
    pub fn value<'a>(&self, key: Option<&'a [u8]>, headers: &'a Headers) -> Option<&'a [u8]> {
        match self {
            Self::Header(name) => {
                headers.user().find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value)
            }
            Self::Key => key,
            Self::ContentType => headers.content_type().map(str::as_bytes),
        }
    }
}

impl Pattern {
    fn matches(&self, value: &[u8]) -> bool {
        let text = self.text.as_bytes();
        if self.is_prefix { value.starts_with(text) } else { value == text }
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |f: &mut fmt::Formatter<'_>, nodes: &[Self], word: &str| {
            for (at, node) in nodes.iter().enumerate() {
                if at > 0 {
                    write!(f, " {word} ")?;
                }
                match node {
                    Self::Any(_) | Self::All(_) => write!(f, "({node})")?,
                    _ => node.fmt(f)?,
                }
            }
            Ok(())
        };
        match self {
            Self::Any(nodes) => list(f, nodes, "or"),
            Self::All(nodes) => list(f, nodes, "and"),
            Self::Not(node) if matches!(**node, Self::Any(_) | Self::All(_)) => write!(f, "not ({node})"),
            Self::Not(node) => write!(f, "not {node}"),
            Self::Compare { field, pattern, is_equal } => {
                let operator = if *is_equal { "==" } else { "!=" };
                write!(f, "{field} {operator} {pattern}")
            }
        }
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header(name) => write!(f, "header.{name}"),
            Self::Key => f.write_str("key"),
            Self::ContentType => f.write_str("content_type"),
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use fmt::Write as _;
        f.write_char('\'')?;
        for char in self.text.chars() {
            if matches!(char, '\'' | '*' | '\\') {
                f.write_char('\\')?;
            }
            f.write_char(char)?;
        }
        f.write_str(if self.is_prefix { "*'" } else { "'" })
    }
}
