//! Lists of what there is, page by page.

use anyhow::Context as _;
use serde_json::Value;

use crate::client::{Api, encoded};
use crate::output;

/// Items of one page.
const PAGE_MAX: usize = 500;

/// Headings of a table, and what makes a row of it of an item.
pub(crate) type Columns<'a> = (&'a [&'a str], fn(&Value) -> Vec<String>);

/// Prints up to `limit` of what is listed at `path` and has a name that contains `query`: as JSON a line
/// each, else as a table.
pub(crate) async fn print(
    api: &Api,
    as_json: bool,
    path: &str,
    query: Option<&str>,
    limit: u32,
    (headings, row): Columns<'_>,
) -> anyhow::Result<()> {
    let (mut cursor, mut rows, mut left) = (None::<String>, Vec::new(), limit as usize);
    while left > 0 {
        let mut path = format!("{path}?limit={}", left.min(PAGE_MAX));
        for (name, value) in [("q", query), ("cursor", cursor.as_deref())] {
            if let Some(value) = value {
                path.push_str(&format!("&{name}={}", encoded(value)));
            }
        }
        let page = api.get(&path).await?.json()?;
        let items = page["items"].as_array().context("the gateway's list has no items")?;
        let taken = items.len().min(left);
        left -= taken;
        for item in &items[..taken] {
            if as_json {
                output::line(item);
            } else {
                rows.push(row(item));
            }
        }
        cursor = page["next"].as_str().map(str::to_owned);
        // A page may be short, or empty, and not the last.
        if cursor.is_none() {
            break;
        }
    }
    if !as_json {
        output::table(headings, &rows);
    }
    if cursor.is_some() {
        output::note(format_args!("there are more: --limit {}", limit.max(1).saturating_mul(10)));
    }
    Ok(())
}
