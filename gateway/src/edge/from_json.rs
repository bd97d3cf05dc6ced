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
