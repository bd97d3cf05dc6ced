//! What tests give to handlers.

use http::HeaderMap;

/// Headers in their order; a name may come twice.
pub(in crate::edge) fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in pairs {
        headers.append(*name, value.parse().expect("a header's value"));
    }
    headers
}
