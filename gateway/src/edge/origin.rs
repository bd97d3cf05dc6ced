//! Which hosts are served and which browser origins may ask.

use std::net::IpAddr;

use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS, HOST, ORIGIN,
};
use http::{HeaderMap, HeaderValue, Uri};
use weir_protocol::error::ErrorCode;
use weir_protocol::ids::Name;

use super::proxy;
use crate::api::Problem;
use crate::config::GatewayConfig;
use crate::host::host_name;

/// Request headers that browsers may send, by prefix or whole name.
const ALLOWED: [&str; 22] = [
    "authorization",
    "content-type",
    "content-encoding",
    "content-digest",
    "deliver-",
    "prefer",
    "if-none-match",
    "if-match",
    "idempotency-key",
    "producer-",
    "stream-",
    "confirm",
    "message-",
    "ce-",
    "traceparent",
    "tracestate",
    "baggage",
    "last-event-id",
    "accept",
    "cache-control",
    "x-request-id",
    "pragma",
];
const EXPOSED: &str = "Next-Offset, Up-To-Date, Closed, Cursor, Link, Confirm-Level, Confirm-Receipt, \
    Idempotency-Replayed, Producer-Epoch, Producer-Seq, Message-Key, Message-Timestamp, Message-TTL-Ms, Deliver-At, \
    Message-Left-Out, Content-Encoding, Content-Digest, traceparent, tracestate, baggage, ETag, Location, \
    Server-Timing, RateLimit, RateLimit-Policy, Retry-After, X-Request-Id";
/// Beginnings of names that publishers choose: those of an answer are exposed with it.
const EXPOSED_PREFIXES: [&str; 2] = ["message-header-", "ce-"];

/// Refuses hosts that are not this gateway's: a page must not reach it under another name (DNS rebinding).
pub(super) fn check_host(config: &GatewayConfig, uri: &Uri, headers: &HeaderMap) -> Result<(), Problem> {
    if uri.authority().is_none() && !headers.contains_key(HOST) {
        return Err(Problem::invalid_header("Host", "missing: every HTTP/1.1 request needs it"));
    }
    check_own(config, host(uri, headers).unwrap_or_default())?;
    // Not instead: what a page that reached the gateway under another name says of itself counts for nothing.
    proxy::host(config, headers).map_or(Ok(()), |asked| check_own(config, asked))
}

/// HTTP/2 names the host in the request target, HTTP/1.1 in a header.
fn host<'a>(uri: &'a Uri, headers: &'a HeaderMap) -> Option<&'a str> {
    let host = uri.authority().map(http::uri::Authority::as_str);
    host.or_else(|| headers.get(HOST).and_then(|host| host.to_str().ok()))
}

fn check_own(config: &GatewayConfig, host: &str) -> Result<(), Problem> {
    let name = &host_name(host);
    let is_listened_on = || {
        let address = name.trim_matches(['[', ']']).parse::<IpAddr>();
        address.is_ok_and(|address| address == config.listen.ip())
    };
    let is_own =
        is_local(name) || is_listened_on() || config.hosts.iter().any(|known| host_name(known) == *name);
    if is_own {
        Ok(())
    } else {
        let detail = format!(
            "{host:?} is not served here: this gateway's names are localhost, its listening address, and what --host-name names"
        );
        Err(Problem::new(ErrorCode::UnknownHost, detail))
    }
}

/// Refuses origins that are neither this host, nor on the allow-list, nor, while only this machine is served, local.
pub(super) fn check_origin(config: &GatewayConfig, uri: &Uri, headers: &HeaderMap) -> Result<(), Problem> {
    let Some(origin) = headers.get(ORIGIN) else { return Ok(()) };
    let text = origin.to_str().unwrap_or_default();
    let (scheme, authority) = text.split_once("://").unwrap_or_default();
    let host = proxy::host(config, headers).or_else(|| host(uri, headers));
    let own_scheme = if config.tls.is_some() { "https" } else { "http" };
    let own_scheme = proxy::scheme(config, headers).unwrap_or(own_scheme);
    let same = scheme == own_scheme && host.is_some_and(|host| host.eq_ignore_ascii_case(authority));
    // Behind a proxy a browser's own machine is another one.
    let local = !config.insecure_public && !config.behind_proxy && is_local(&host_name(authority));
    if same || local || config.origins.iter().any(|allowed| allowed == text) {
        return Ok(());
    }
    Err(Problem::new(ErrorCode::OriginForbidden, format!("the origin {text:?} is not on the allow-list")))
}

/// Where WebSockets are opened: of no namespace, each of their channels is of one.
pub(super) const WEBSOCKET: &str = "/v1/ws";

/// The namespace that a path is about; `None` where it is about the gateway.
pub(super) fn namespace(path: &str) -> Option<Name> {
    let mut segments = path.strip_prefix("/v1/")?.split('/');
    match segments.next()? {
        "ns" => Name::new(segments.next()?).ok(),
        "topics" | "subscriptions" => Some(Name::default_name()),
        _ => None,
    }
}

/// Adds what browsers need to see the answer; the origin was checked.
pub(super) fn add_cors(origin: HeaderValue, response: &mut HeaderMap) {
    response.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
    response.insert(ACCESS_CONTROL_EXPOSE_HEADERS, exposed(response));
    response.insert("timing-allow-origin", origin);
}

fn exposed(response: &HeaderMap) -> HeaderValue {
    let names = response.keys().map(http::HeaderName::as_str);
    let of_publishers = |name: &&str| EXPOSED_PREFIXES.iter().any(|prefix| name.starts_with(prefix));
    let all = names.filter(of_publishers).fold(String::new(), |all, name| all + ", " + name);
    let all = if all.is_empty() {
        Ok(HeaderValue::from_static(EXPOSED))
    } else {
        (EXPOSED.to_owned() + &all).try_into()
    };
    all.unwrap_or(const { HeaderValue::from_static(EXPOSED) })
}

/// The answer to a preflight: the requested names that are allowed.
pub(super) fn preflight(request: &HeaderMap, response: &mut HeaderMap) {
    let asked =
        request.get(ACCESS_CONTROL_REQUEST_HEADERS).and_then(|names| names.to_str().ok()).unwrap_or_default();
    let names = asked.split(',').map(|name| name.trim().to_ascii_lowercase());
    let allowed: Vec<_> = names.filter(|name| ALLOWED.iter().any(|known| is_allowed(known, name))).collect();
    if let Ok(names) = HeaderValue::from_str(&allowed.join(", "))
        && !names.is_empty()
    {
        response.insert(ACCESS_CONTROL_ALLOW_HEADERS, names);
    }
    response.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, PUT, PATCH, POST, DELETE"));
    response.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("7200"));
}

fn is_allowed(known: &str, name: &str) -> bool {
    if known.ends_with('-') || known == "confirm" { name.starts_with(known) } else { name == known }
}

fn is_local(name: &str) -> bool {
    matches!(name, "localhost" | "127.0.0.1" | "[::1]")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_own_names_and_local_or_allowed_origins_pass() {
        let config = GatewayConfig {
            hosts: vec!["weir.example".into()],
            origins: vec!["https://app.example".into()],
            ..GatewayConfig::default()
        };
        let headers = |name, value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert::<http::HeaderName>(name, value.parse().unwrap());
            headers
        };
        let uri: Uri = "/".parse().unwrap();
        for (host, ok) in [
            ("localhost:8080", true),
            ("127.0.0.1", true),
            ("[::1]:9", true),
            ("weir.example", true),
            ("LocalHost.:8080", true),
            ("WEIR.example.", true),
            ("weir.example..", false),
            ("evil.example", false),
            ("localhost.evil.example", false),
            ("", false),
            ("mq.example", false),
        ] {
            assert_eq!(check_host(&config, &uri, &headers(HOST, host)).is_ok(), ok, "{host}");
        }
        for (origin, ok) in [
            ("http://localhost:3000", true),
            ("http://127.0.0.1:5173", true),
            ("https://app.example", true),
            ("https://evil.example", false),
            ("null", false),
            ("http://localhost.evil.example", false),
        ] {
            assert_eq!(check_origin(&config, &uri, &headers(ORIGIN, origin)).is_ok(), ok, "{origin}");
        }
        let public = GatewayConfig { insecure_public: true, ..config };
        let http2: Uri = "http://weir.example:8080/v1".parse().unwrap();
        for (origin, ok) in [
            ("http://localhost:3000", false),
            ("http://weir.example:8080", true),
            ("https://weir.example:8080", false),
            ("http://weir.example:9", false),
        ] {
            assert_eq!(check_origin(&public, &http2, &headers(ORIGIN, origin)).is_ok(), ok, "{origin}");
        }
    }

    #[test]
    fn behind_a_proxy_the_page_that_it_serves_is_the_gateways_own() {
        let hosts = vec!["mq.example".to_owned()];
        let config = GatewayConfig { behind_proxy: true, hosts, ..GatewayConfig::default() };
        let uri: Uri = "/".parse().unwrap();
        let asked = |origin: &str, forwarded: &str| {
            let pairs = [
                ("host", "127.0.0.1:8080"),
                ("origin", origin),
                ("x-forwarded-host", forwarded),
                ("x-forwarded-proto", "https"),
            ];
            let pairs =
                pairs.map(|(name, value)| (http::HeaderName::from_static(name), value.parse().unwrap()));
            let headers = HeaderMap::from_iter(pairs);
            let host = check_host(&config, &uri, &headers).is_ok();
            (host, check_origin(&config, &uri, &headers).is_ok())
        };
        assert_eq!(asked("https://mq.example", "mq.example"), (true, true));
        assert_eq!(asked("http://mq.example", "mq.example"), (true, false), "another scheme");
        assert_eq!(asked("http://localhost:3000", "mq.example"), (true, false), "a visitor's own machine");
        assert_eq!(asked("https://evil.example", "evil.example"), (false, true), "not served here");
        let none = check_host(&config, &uri, &HeaderMap::new()).unwrap_err();
        assert_eq!((none.status, none.field.as_deref()), (400, Some("host")));
    }

    #[test]
    fn a_path_names_its_namespace() {
        let of = |path: &str| namespace(path).map(|name| name.to_string());
        assert_eq!(of("/v1/ns/shop/topics/t/messages").as_deref(), Some("shop"));
        assert_eq!(of("/v1/topics/t").as_deref(), Some("default"));
        assert_eq!(of("/v1/subscriptions/s:pull").as_deref(), Some("default"));
        for none in [WEBSOCKET, "/v1/ns/a%2Fb/topics", "/metrics", "/v1"] {
            assert_eq!(of(none), None, "{none}");
        }
    }

    #[test]
    fn a_preflight_is_answered_with_the_allowed_names_only() {
        let mut request = HeaderMap::new();
        request.insert(
            ACCESS_CONTROL_REQUEST_HEADERS,
            "Message-Header-X, confirm, cookie, Producer-Id".parse().unwrap(),
        );
        let mut response = HeaderMap::new();
        preflight(&request, &mut response);
        assert_eq!(response[ACCESS_CONTROL_ALLOW_HEADERS], "message-header-x, confirm, producer-id");
    }
}
