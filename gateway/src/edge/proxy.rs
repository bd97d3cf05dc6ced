//! Proxies before the gateway: what tells that there is one, and what it says if it is trusted.

use http::{HeaderMap, Uri, Version};
use weir_protocol::error::ErrorCode;

use super::call::Edge;
use crate::api::Problem;
use crate::config::GatewayConfig;

/// Headers that proxies add, besides those that begin with [`FORWARDED`].
const SIGNS: [&str; 3] = ["forwarded", "via", "x-real-ip"];
const FORWARDED: &str = "x-forwarded-";

/// Refuses what comes through a proxy as long as this machine is trusted because it is this machine: whoever reaches
/// such a proxy may be anywhere.
///
/// # Errors
/// `proxy_forbidden`.
pub(super) fn check(edge: &Edge, version: Version, headers: &HeaderMap) -> Result<(), Problem> {
    let config = &edge.config;
    if config.behind_proxy || config.insecure_public || edge.authenticator.demands_credentials() {
        return Ok(());
    }
    let refused = |sign: &str| {
        let detail = format!(
            "{sign}: this came through a proxy, so it may come from anywhere, and Weir authenticates nobody yet. If \
             that proxy lets in only those who may do everything, start Weir with --behind-proxy"
        );
        Problem::new(ErrorCode::ProxyForbidden, detail)
    };
    // nginx speaks it to what it passes requests to, and need add no header.
    if version == Version::HTTP_10 {
        return Err(refused("HTTP/1.0"));
    }
    let mut names = headers.keys().map(http::HeaderName::as_str);
    match names.find(|name| name.starts_with(FORWARDED) || SIGNS.contains(name)) {
        Some(name) => Err(refused(name).with_field(name)),
        None => Ok(()),
    }
}

/// What stands before the paths of this gateway where its clients are: empty, or it begins with a slash and does not
/// end with one.
///
/// # Errors
/// `invalid_header` for a prefix that cannot be one.
pub(super) fn base(config: &GatewayConfig, headers: &HeaderMap) -> Result<String, Problem> {
    match forwarded(config, headers, "x-forwarded-prefix") {
        None => Ok(normal(&config.base_path).to_owned()),
        Some(prefix) => match check_base(prefix) {
            Ok(()) => Ok(normal(prefix).to_owned()),
            Err(why) => Err(Problem::invalid_header("X-Forwarded-Prefix", why)),
        },
    }
}

/// Why nothing can be served below this path.
///
/// # Errors
/// The reason.
pub(crate) fn check_base(base: &str) -> Result<(), &'static str> {
    if base.is_empty() || base == "/" {
        return Ok(());
    }
    check_path(base)?;
    if matches!(normal(base), "/v1") || base.starts_with("/v1/") { Err(HIDES) } else { Ok(()) }
}

/// Of a path that is the API's.
pub(super) const HIDES: &str = "it would hide the API";

/// Why that is no path that can be written anywhere as it is.
///
/// # Errors
/// The reason.
pub(super) fn check_path(path: &str) -> Result<(), &'static str> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"/._~-".contains(&byte);
    if !path.starts_with('/') || path.contains("//") {
        return Err("it must start with a slash and name something, like /weir");
    }
    if !path.bytes().all(allowed) || path.split('/').any(|part| part == "." || part == "..") {
        return Err("it may hold letters, digits and . _ ~ - only, in parts other than . and ..");
    }
    Ok(())
}

fn normal(base: &str) -> &str {
    base.trim_end_matches('/')
}

/// Takes the base off a path, if the proxy has left it there.
pub(super) fn take_off(base: &str, uri: &mut Uri) {
    let Some(rest) = uri.path().strip_prefix(base).filter(|_| !base.is_empty()) else { return };
    if !rest.is_empty() && !rest.starts_with('/') {
        return;
    }
    let path = if rest.is_empty() { "/" } else { rest };
    let target = match uri.query() {
        Some(query) => format!("{path}?{query}"),
        None => path.to_owned(),
    };
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = target.parse().ok();
    if let Ok(below) = Uri::from_parts(parts) {
        *uri = below;
    }
}

/// The host that a trusted proxy was asked for.
pub(super) fn host<'a>(config: &GatewayConfig, headers: &'a HeaderMap) -> Option<&'a str> {
    forwarded(config, headers, "x-forwarded-host")
}

/// `https` or `http`, as a trusted proxy was asked.
pub(super) fn scheme(config: &GatewayConfig, headers: &HeaderMap) -> Option<&'static str> {
    match forwarded(config, headers, "x-forwarded-proto")?.to_ascii_lowercase().as_str() {
        "https" | "wss" => Some("https"),
        _ => Some("http"),
    }
}

/// What a trusted proxy says. Of several values the last is of the one that is nearest.
fn forwarded<'a>(config: &GatewayConfig, headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let last = headers.get_all(name).iter().next_back().filter(|_| config.behind_proxy)?;
    last.to_str().ok()?.rsplit(',').next().map(str::trim).filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edge::given::headers as with;

    #[test]
    fn what_a_proxy_says_counts_if_it_is_trusted_and_the_nearest_is_last() {
        let headers = with(&[
            ("x-forwarded-host", "evil.example"),
            ("x-forwarded-host", "a.example, mq.example"),
            ("x-forwarded-proto", "wss"),
            ("x-forwarded-prefix", "/weir/"),
        ]);
        let trusting = GatewayConfig { behind_proxy: true, ..GatewayConfig::default() };
        assert_eq!(host(&trusting, &headers), Some("mq.example"));
        assert_eq!(scheme(&trusting, &headers), Some("https"));
        assert_eq!(base(&trusting, &headers).unwrap(), "/weir");
        let alone = GatewayConfig { base_path: "/mq".into(), ..GatewayConfig::default() };
        assert_eq!((host(&alone, &headers), scheme(&alone, &headers)), (None, None));
        assert_eq!(base(&alone, &headers).unwrap(), "/mq", "what anybody may send counts for nothing");
        for bad in ["weir", "/we\"ir", "/a//b", "/../x", "/v1", "/v1/x"] {
            assert!(base(&trusting, &with(&[("x-forwarded-prefix", bad)])).is_err(), "{bad}");
        }
        assert_eq!(base(&trusting, &with(&[("x-forwarded-prefix", "/")])).unwrap(), "");
    }

    #[test]
    fn a_base_is_taken_off_where_it_is_whole() {
        for (base, target, below) in [
            ("/weir", "/weir/v1/topics?q=a%2Fb", "/v1/topics?q=a%2Fb"),
            ("/weir", "/weir", "/"),
            ("/weir", "/weir?a=b", "/?a=b"),
            ("/weir", "/weird/v1", "/weird/v1"),
            ("/weir", "/v1/topics", "/v1/topics"),
            ("/a/b", "http://mq.example:80/a/b/v1", "http://mq.example:80/v1"),
            ("", "/v1", "/v1"),
        ] {
            let mut uri: Uri = target.parse().unwrap();
            take_off(base, &mut uri);
            assert_eq!(uri.to_string(), below, "{base} {target}");
        }
    }
}
