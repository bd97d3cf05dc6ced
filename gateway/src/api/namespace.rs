//! Namespaces, as JSON.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use weir_protocol::error::ErrorCode;
use weir_protocol::rpc;

use super::{Cache, Problem};
use crate::host::{is_host, split};

/// Most origins that a namespace lists.
const ORIGINS_MAX: usize = 100;

/// A namespace: a set of topics with common settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Namespace {
    /// Name. `default` always exists.
    pub name: String,
    /// Publishing to a topic that does not exist creates it with the defaults.
    pub auto_create: bool,
    /// Browser origins that may use it, exact (`https://app.example`).
    pub cors_origins: Vec<String>,
    /// `cache` of topics that are made in it and say nothing.
    pub cache: Cache,
    /// From 1, raised by every change. Also in the `ETag`.
    pub version: u32,
}

impl From<&rpc::Namespace> for Namespace {
    fn from(namespace: &rpc::Namespace) -> Self {
        Self {
            name: namespace.name.clone(),
            auto_create: namespace.auto_create,
            cors_origins: namespace.cors_origins.clone(),
            cache: Cache::of(namespace.cache_public),
            version: namespace.version,
        }
    }
}

/// What an administrator sets. Fields that are left out take their default.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NamespaceConfig {
    /// Publishing to a topic that does not exist creates it with the defaults.
    #[schema(default = false)]
    pub auto_create: bool,
    /// Browser origins that may use it, as browsers send them: `https://app.example`, `http://10.0.0.7:8080`.
    /// There is no wildcard.
    #[schema(max_items = 100)]
    pub cors_origins: Vec<String>,
    /// `cache` of topics that are made in it and say nothing; it changes none that is there. `private` by default.
    pub cache: Cache,
}

/// Changes to a namespace. Fields that are left out stay.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NamespacePatch {
    /// Publishing to a topic that does not exist creates it with the defaults.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auto_create: Option<bool>,
    /// Browser origins that may use it, as browsers send them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cors_origins: Option<Vec<String>>,
    /// `cache` of topics that are made in it from now on and say nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<Cache>,
}

impl NamespacePatch {
    /// `config` with these changes.
    #[must_use]
    pub fn apply(self, config: NamespaceConfig) -> NamespaceConfig {
        NamespaceConfig {
            auto_create: self.auto_create.unwrap_or(config.auto_create),
            cors_origins: self.cors_origins.unwrap_or(config.cors_origins),
            cache: self.cache.unwrap_or(config.cache),
        }
    }
}

/// A page of namespaces, in name order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NamespacePage {
    /// The namespaces.
    pub items: Vec<Namespace>,
    /// Pass as `cursor` for the next page; `null` on the last.
    pub next: Option<String>,
}

/// Refuses a list that holds what no browser ever sends: it would let nobody in and look as if it did.
///
/// # Errors
/// `invalid_config`, which names the field and the origin.
pub(crate) fn check_origins(origins: &[String]) -> Result<(), Problem> {
    let refuse =
        |detail: String| Err(Problem::new(ErrorCode::InvalidConfig, detail).with_field("cors_origins"));
    if origins.len() > ORIGINS_MAX {
        let detail = format!("cors_origins has {} origins; {ORIGINS_MAX} are allowed", origins.len());
        return refuse(detail).map_err(|problem| problem.with_limit(ORIGINS_MAX as u64));
    }
    match origins.iter().find_map(|origin| Some((origin, never_sent(origin)?))) {
        Some((origin, why)) => refuse(format!("cors_origins: {origin:?}: {why}")),
        None => Ok(()),
    }
}

/// Why no browser sends `origin` as its `Origin`, or must not be let in by it; `None` if one may. What is sent is
/// `scheme://host[:port]` in lower case, without a port that is the scheme's own (RFC 6454, section 6.2).
pub(crate) fn never_sent(origin: &str) -> Option<&'static str> {
    if origin == "*" {
        return Some("there is no wildcard: each origin that may ask is listed");
    }
    if origin == "null" {
        return Some("every sandboxed page and local file says null");
    }
    let Some((scheme, authority)) = origin.split_once("://") else {
        return Some("an origin is scheme://host[:port]");
    };
    if origin.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return Some("an origin is sent in lower case");
    }
    let is_scheme = scheme.starts_with(|first: char| first.is_ascii_lowercase())
        && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    if !is_scheme {
        return Some("an origin begins with a scheme, as https://");
    }
    if authority.contains(['/', '?', '#', '@']) {
        return Some(
            "an origin has nothing but scheme, host and port: no user, no path, no slash at its end",
        );
    }
    never_sent_authority(scheme, authority)
}

fn never_sent_authority(scheme: &str, authority: &str) -> Option<&'static str> {
    let (host, port) = split(authority);
    if !is_host(host) {
        return Some("that is no host: a name in ASCII (xn-- for others) or an address");
    }
    let port = port?;
    let number = port.parse::<u16>().ok().filter(|number| *number != 0 && number.to_string() == port);
    match (scheme, number) {
        (_, None) => Some("a port is 1 to 65535"),
        ("http" | "ws", Some(80)) | ("https" | "wss", Some(443)) => {
            Some("the port is the scheme's own, which is left out")
        }
        (_, Some(_)) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_browsers_send_can_be_listed() {
        for sent in [
            "https://shop.example",
            "http://localhost:3000",
            "http://10.0.0.7:8080",
            "https://[2001:db8::1]:8443",
            "http://[::1]",
            "https://xn--bcher-kva.example",
            "chrome-extension://abcdefgh",
            "http://shop.example:443",
        ] {
            assert_eq!(never_sent(sent), None, "{sent}");
        }
        for (never, why) in [
            ("*", "no wildcard"),
            ("null", "sandboxed"),
            ("", "scheme://host"),
            ("shop.example", "scheme://host"),
            ("not an origin\n", "scheme://host"),
            ("https://", "no host"),
            ("https://shop.example/", "no slash"),
            ("https://shop.example/path", "no path"),
            ("https://me@shop.example", "no user"),
            ("https://Shop.example", "lower case"),
            ("https://*.shop.example", "no host"),
            ("https://bücher.example", "no host"),
            ("https://shop.example\n", "no host"),
            ("https://[::1", "no host"),
            ("https://shop.example:", "1 to 65535"),
            ("https://shop.example:08443", "1 to 65535"),
            ("https://shop.example:65536", "1 to 65535"),
            ("https://shop.example:443", "scheme's own"),
            ("http://shop.example:80", "scheme's own"),
            ("://shop.example", "scheme"),
        ] {
            let found = never_sent(never).unwrap_or_default();
            assert!(found.contains(why), "{never}: {found:?}");
        }
    }
}
