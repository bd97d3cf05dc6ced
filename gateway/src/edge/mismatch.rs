//! In what something that exists differs from what was asked for.

use serde::Serialize;
use serde_json::Value;

use crate::api::Problem;

/// The refusal to make what exists otherwise, saying which fields differ. `there` and `asked` are configurations of
/// one type; if they are the same by now, the refusal stays as it is.
pub(super) fn with_differences(
    mut refused: Problem,
    there: &impl Serialize,
    asked: &impl Serialize,
) -> Problem {
    let (Ok(there), Ok(asked)) = (serde_json::to_value(there), serde_json::to_value(asked)) else {
        return refused;
    };
    let mut differences = Vec::new();
    compare("", &there, &asked, &mut differences);
    if !differences.is_empty() {
        refused.detail = format!("{}: {}", refused.detail, differences.join(", "));
    }
    refused
}

/// Adds what differs below `path`, as `retention.bytes is 7, not null`.
fn compare(path: &str, there: &Value, asked: &Value, found: &mut Vec<String>) {
    match (there, asked) {
        (Value::Object(there), Value::Object(asked)) => {
            for (field, value) in there {
                let dot = if path.is_empty() { "" } else { "." };
                compare(
                    &format!("{path}{dot}{field}"),
                    value,
                    asked.get(field).unwrap_or(&Value::Null),
                    found,
                );
            }
        }
        _ if there == asked => {}
        _ => found.push(format!("{path} is {there}, not {asked}")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use weir_protocol::error::ErrorCode;

    use super::*;

    #[test]
    fn each_field_that_differs_is_named_with_both_values() {
        let there = json!({"partitions": 4, "closed": false, "retention": {"age_ms": null, "bytes": 7}});
        let asked = json!({"partitions": 8, "closed": false, "retention": {"age_ms": 60_000, "bytes": 7}});
        let refused = || Problem::new(ErrorCode::ConfigMismatch, "topic t exists otherwise");
        let said = with_differences(refused(), &there, &asked).detail;
        assert_eq!(
            said,
            "topic t exists otherwise: partitions is 4, not 8, retention.age_ms is null, not 60000"
        );
        assert_eq!(with_differences(refused(), &there, &there).detail, "topic t exists otherwise");
    }
}
