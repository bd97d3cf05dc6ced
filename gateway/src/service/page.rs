//! Pages of lists in name order.

use weir_protocol::error::ErrorCode;

use super::ServiceError;
use super::token::{TokenReader, TokenWriter};

const VERSION: u8 = 1;

/// A page and the cursor of the next one.
#[derive(Debug, Clone, PartialEq)]
pub struct Page<T> {
    /// What is on it, in name order.
    pub items: Vec<T>,
    /// Opaque cursor of the next page; `None` on the last.
    pub next: Option<String>,
}

/// The cursor after `name`.
pub(super) fn cursor_after(name: &str) -> String {
    TokenWriter::new(VERSION).text(name).finish()
}

/// The name that a cursor stands after.
pub(super) fn name_of(cursor: &str) -> Result<String, ServiceError> {
    let read = || {
        let mut reader = TokenReader::new(VERSION, cursor)?;
        let name = reader.text()?;
        reader.end()?;
        Some(name)
    };
    read().ok_or_else(|| {
        ServiceError::new(ErrorCode::InvalidCursor, "the cursor is not one of this list").with_field("cursor")
    })
}
/// The cursor that a list gives for the name that this one stands after, for the fuzz target; `None` if it is no cursor of a list.
#[doc(hidden)]
#[must_use]
pub fn cursor_of_a_list(cursor: &str) -> Option<String> {
    name_of(cursor).ok().map(|name| cursor_after(&name))
}
