//! Pages of lists in name order.

use std::collections::BTreeMap;

use weir_protocol::error::ErrorCode;

use super::ServiceError;
use super::token::{TokenReader, TokenWriter};

const VERSION: u8 = 1;

/// A page and the cursor of the next one.
#[derive(Debug, Clone, PartialEq)]
pub struct Page<T> {
    /// What is on it, in name order.
    pub items: Vec<T>,
    /// Opaque cursor of the next page; `None` on the last. A page with one may have fewer items than were
    /// asked for, or none.
    pub next: Option<String>,
}

/// What one shard found, by name, and the last name that it looked at, where others are left.
pub(super) type Listed<T> = (Vec<(String, T)>, Option<String>);

/// A page of what several shards found, of at most `limit` items.
pub(super) fn merged<T>(lists: impl IntoIterator<Item = Listed<T>>, limit: u32) -> Page<T> {
    let (mut found, mut end) = (BTreeMap::new(), None::<String>);
    for (items, looked_to) in lists {
        found.extend(items);
        end = [end, looked_to].into_iter().flatten().min();
    }
    // Behind the name where one of them stopped, it may have others.
    found.retain(|name, _| end.as_ref().is_none_or(|end| name <= end));
    if let Some(last) = found.keys().nth(limit as usize - 1).filter(|_| found.len() > limit as usize) {
        end = Some(last.clone());
    }
    Page {
        items: found.into_values().take(limit as usize).collect(),
        next: end.map(|end| cursor_after(&end)),
    }
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

/// The cursor that a list gives for the name that this one stands after, for the fuzz target; `None` if it is
/// no cursor of a list.
#[doc(hidden)]
#[must_use]
pub fn cursor_of_a_list(cursor: &str) -> Option<String> {
    name_of(cursor).ok().map(|name| cursor_after(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(names: &[&'static str], looked_to: Option<&str>) -> Listed<&'static str> {
        (names.iter().map(|name| ((*name).to_owned(), *name)).collect(), looked_to.map(str::to_owned))
    }

    fn page(lists: Vec<Listed<&'static str>>, limit: u32) -> (Vec<&'static str>, Option<String>) {
        let page = merged(lists, limit);
        (page.items, page.next.map(|cursor| name_of(&cursor).unwrap()))
    }

    #[test]
    fn a_page_of_several_shards_leaves_nothing_out() {
        let whole = || vec![list(&["a", "d"], None), list(&["b", "c"], None)];
        assert_eq!(page(whole(), 4), (vec!["a", "b", "c", "d"], None));
        assert_eq!(page(whole(), 3), (vec!["a", "b", "c"], Some("c".to_owned())));
        // One of them stopped at `b`: it may have a `bb`.
        let stopped = || vec![list(&["a", "d"], None), list(&["b"], Some("b"))];
        assert_eq!(page(stopped(), 4), (vec!["a", "b"], Some("b".to_owned())));
        assert_eq!(page(stopped(), 1), (vec!["a"], Some("a".to_owned())));
        assert_eq!(
            page(vec![list(&["x"], Some("x")), list(&[], Some("k"))], 4),
            (vec![], Some("k".to_owned()))
        );
    }
}
