//! Headers that a request may have once. Which of two is meant nobody can tell: whoever is in between may
//! have taken the other.

use http::{HeaderMap, HeaderName};

use crate::api::Problem;

/// By name. Lists by their standard are not among them, their lines are read as one: `Accept`, `Content-Digest`,
/// `Content-Encoding`, `If-Match`, `If-None-Match`, `Prefer`, `tracestate`; nor is what the gateway does not read.
const SINGLE: [&str; 17] = [
    "authorization",
    "confirm",
    "confirm-deadline-ms",
    "content-type",
    "deliver-at",
    "deliver-delay-ms",
    "host",
    "idempotency-key",
    "last-event-id",
    "message-key",
    "message-ttl-ms",
    "origin",
    "producer-epoch",
    "producer-id",
    "producer-seq",
    "sec-websocket-key",
    "traceparent",
];
/// By the beginning of the name: what is stored with a message.
const SINGLE_PREFIXES: [&str; 2] = ["ce-", "message-header-"];

/// Refuses a header that is given twice and has one value.
///
/// # Errors
/// `invalid_header` by name.
pub(super) fn check(headers: &HeaderMap) -> Result<(), Problem> {
    if headers.len() == headers.keys_len() {
        return Ok(());
    }
    let is_repeated = |name: &&HeaderName| headers.get_all(*name).iter().nth(1).is_some();
    match headers.keys().filter(|name| is_single(name.as_str())).find(is_repeated) {
        Some(name) => Err(Problem::invalid_header(name.as_str(), "given twice")),
        None => Ok(()),
    }
}

fn is_single(name: &str) -> bool {
    SINGLE.contains(&name) || SINGLE_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// The lines of a list as one; `None` if there are none. For the names that [`SINGLE`] leaves out.
pub(super) fn list(headers: &HeaderMap, name: &str) -> Option<Vec<u8>> {
    let mut lines = headers.get_all(name).iter();
    let mut joined = lines.next()?.as_bytes().to_vec();
    for line in lines {
        joined.extend_from_slice(b", ");
        joined.extend_from_slice(line.as_bytes());
    }
    Some(joined)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_one_value_is_refused_twice_and_lists_are_joined() {
        let twice = |name: &'static str| {
            let mut headers = HeaderMap::new();
            headers.append("x-before", "1".parse().unwrap());
            headers.append(name, "a".parse().unwrap());
            assert!(check(&headers).is_ok(), "{name} once");
            headers.append(name, "b".parse().unwrap());
            headers
        };
        for name in SINGLE.into_iter().chain(["message-header-x", "ce-id"]) {
            let problem = check(&twice(name)).unwrap_err();
            assert_eq!((problem.status, problem.field.as_deref()), (400, Some(name)));
        }
        for name in
            ["accept", "content-digest", "content-encoding", "prefer", "tracestate", "x-forwarded-for"]
        {
            let headers = twice(name);
            assert!(check(&headers).is_ok(), "{name}");
            assert_eq!(list(&headers, name).as_deref(), Some(&b"a, b"[..]));
        }
    }
}
