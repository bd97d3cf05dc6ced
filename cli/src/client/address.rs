//! Where a gateway is, as `--url` names it.

use anyhow::{bail, ensure};
use http::Uri;

/// The address without a slash at its end: paths are put behind it.
///
/// # Errors
/// It is none, or has what no request would carry; a sentence that says what to write.
pub(super) fn checked(url: &str) -> anyhow::Result<&str> {
    let end = url.find(['?', '#']).unwrap_or(url.len());
    let bare = url[..end].trim_end_matches('/');
    let parsed: Option<Uri> = bare.parse().ok();
    let parts = parsed.as_ref().and_then(|parsed| Some((parsed.scheme_str()?, parsed.authority()?)));
    let Some(("http" | "https", authority)) = parts else {
        bail!("--url {url}: it begins with http:// or https:// and names a host, as http://127.0.0.1:8080");
    };
    if let Some((user, host)) = authority.as_str().rsplit_once('@') {
        let without = bare.replacen(&format!("{user}@"), "", 1);
        bail!("--url names a user at {host}, whom a gateway does not ask for: write {without}");
    }
    ensure!(end == url.len(), "--url {url}: what begins with ? or # is of no request: write {bare}");
    Ok(bare)
}

/// That nobody answers there, and what to do.
pub(super) fn unreached(url: &str, why: impl std::fmt::Display) -> String {
    format!("cannot reach {url} (is it running? `weir dev` starts one; --url names another): {why}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_host_and_perhaps_a_path() {
        for (url, found) in [
            ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
            ("https://mq.example/", "https://mq.example"),
            ("http://[::1]:80/weir//", "http://[::1]:80/weir"),
        ] {
            assert_eq!(checked(url).unwrap(), found);
        }
    }

    #[test]
    fn what_no_request_would_carry_is_refused_with_what_to_write() {
        for (url, write) in [
            ("http://h?x=1", "write http://h"),
            ("http://h:80/?x=1", "write http://h:80"),
            ("http://h/weir/?x=1#y", "write http://h/weir"),
            ("https://h#top", "write https://h"),
            ("https://me:secret@h/weir", "write https://h/weir"),
            ("127.0.0.1:8080", "as http://127.0.0.1:8080"),
            ("localhost", "http:// or https://"),
            ("ftp://h", "http:// or https://"),
            ("http://", "names a host"),
            ("http:// h", "names a host"),
            ("", "names a host"),
        ] {
            let refused = checked(url).unwrap_err().to_string();
            assert!(refused.starts_with("--url") && refused.contains(write), "{refused}");
            assert!(!refused.contains("secret"), "{refused}");
        }
    }
}
