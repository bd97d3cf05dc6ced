//! Positions in bodies: texts, or numbers, which are offsets.

use weir_protocol::limits::INTEGER_MAX;

/// The text of a position; `None` for what is neither a text nor a number that every JSON parser reads alike:
/// beyond that, another offset might be meant than the one that was sent.
pub(super) fn text(value: &serde_json::Value) -> Option<String> {
    match value {
        serde_json::Value::String(text) => Some(text.clone()),
        value => Some(value.as_u64().filter(|number| *number <= INTEGER_MAX)?.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_number_is_one_that_json_can_tell() {
        assert_eq!(text(&json!("ts:5")).as_deref(), Some("ts:5"));
        assert_eq!(text(&json!(INTEGER_MAX)), Some(INTEGER_MAX.to_string()));
        for bad in
            [json!(INTEGER_MAX + 1), json!(-1), json!(1.5), json!(1e3), json!(null), json!([1]), json!(true)]
        {
            assert_eq!(text(&bad), None, "{bad}");
        }
    }
}
