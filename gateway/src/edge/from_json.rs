//! Bodies that are JSON, and why one is not.

use weir_protocol::objects;

use crate::api::Problem;

/// A body as JSON; an empty one is the type's default.
pub(super) fn from_json<T: serde::de::DeserializeOwned + Default>(body: &[u8]) -> Result<T, Problem> {
    if body.is_empty() {
        return Ok(T::default());
    }
    objects::from_slice(body).map_err(|error| wrong::<T>("", body, &error.to_string()))
}

/// The refusal of JSON from which no `T` could be read; `why` is what its reader says, `line` where it stands.
pub(super) fn wrong<'a, T: serde::Deserialize<'a>>(line: &str, json: &'a [u8], why: &str) -> Problem {
    Problem::malformed_at(line, why, || objects::place_of_error::<T>(json))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{Settle, SettledLease};

    #[test]
    fn a_field_that_is_missing_is_named_with_its_place() {
        let problem = from_json::<Settle>(br#"{"nack":[{"lease":"l_1"},{"delay_ms":5}]}"#).unwrap_err();
        assert_eq!((problem.code.as_ref(), problem.field.as_deref()), ("malformed", Some("nack[1].lease")));
        assert!(problem.detail.starts_with("nack[1]: missing field `lease`"), "{}", problem.detail);
        let json = br#"{"lease":"l_1"}"#;
        let error = objects::from_slice::<SettledLease>(json).unwrap_err();
        let problem = wrong::<SettledLease>("line 2: ", json, &error.to_string());
        assert_eq!(problem.field.as_deref(), Some("result"));
        assert!(problem.detail.starts_with("line 2: missing field `result`"), "{}", problem.detail);
    }
}
