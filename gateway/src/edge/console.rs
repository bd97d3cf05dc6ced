//! The operator console: files built in `console/`, embedded, served below a prefix.
//!
//! One build works under any prefix: `index.html` is rendered per request with the prefix in `<base href>` and a
//! fresh nonce for the one `<style>` that the console's widgets add; every other file is as it was built. The
//! files hold no data, so they need no grant: what the console shows it asks of the API, which does.

use std::borrow::Cow;

use axum::body::Body;
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{
    ACCEPT, ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE,
    LOCATION, REFERRER_POLICY, VARY,
};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use rust_embed::RustEmbed;
use weir_protocol::error::ErrorCode;

use super::accept::weight;
use super::answer::empty;
use super::proxy::{HIDES, check_path};
use crate::api::Problem;

/// `console/dist`. A release build embeds it; a debug build reads it when asked, so that the console can be
/// rebuilt below a running gateway.
#[derive(RustEmbed)]
#[folder = "../console/dist/"]
#[allow_missing = true]
struct Files;

/// What `npm run build` leaves in `index.html` to be replaced.
const BUILT_BASE: &str = r#"<base href="/console/" />"#;
const BUILT_API: &str = r#"<meta name="weir-api" content="" />"#;
const BUILT_NONCE: &str = "__CSP_NONCE__";
const PLACEHOLDER: &str = "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Weir</title>\
    <h1>The console is not part of this build</h1><p>Run <code>npm ci &amp;&amp; npm run build</code> in \
    <code>console/</code> and build <code>weir</code> again. The API is there all the same: see \
    <code>/openapi.json</code>.</html>";

/// The content of a file of the console, by its path below the prefix.
type Find = fn(&str) -> Option<Cow<'static, [u8]>>;

/// Serves the console below one prefix.
#[derive(Debug)]
pub(crate) struct Console {
    /// Starts and ends with a slash.
    prefix: String,
    find: Find,
}

impl Console {
    /// # Errors
    /// The reason, if `prefix` does not start and end with a slash, holds other characters than names may, or
    /// would hide the API.
    pub(crate) fn new(prefix: &str) -> Result<Self, &'static str> {
        Self::of(prefix, |path| Files::get(path).map(|file| file.data))
    }

    fn of(prefix: &str, find: Find) -> Result<Self, &'static str> {
        if prefix.len() < 3 || !prefix.starts_with('/') || !prefix.ends_with('/') || prefix.contains("//") {
            return Err("it must start and end with a slash and name something, like /console/");
        }
        check_path(prefix)?;
        if prefix.starts_with("/v1/") {
            return Err(HIDES);
        }
        Ok(Self { prefix: prefix.to_owned(), find })
    }

    /// Answers requests below the prefix, and sends browsers there; `None` for all others. `base` is what stands
    /// before all paths where the client is.
    pub(super) fn answer(
        &self,
        method: &Method,
        (base, path): (&str, &str),
        headers: &HeaderMap,
    ) -> Option<Result<Response, Problem>> {
        if path == self.prefix.trim_end_matches('/') {
            return Some(Ok(self.redirect(base, StatusCode::PERMANENT_REDIRECT)));
        }
        // Who types the address of the gateway into a browser looks for this.
        if path == "/" && *method == Method::GET && wants_html(headers) {
            return Some(Ok(self.redirect(base, StatusCode::TEMPORARY_REDIRECT)));
        }
        let rest = path.strip_prefix(&self.prefix)?;
        if !matches!(*method, Method::GET | Method::HEAD) {
            let allowed = "GET, HEAD, OPTIONS";
            let detail = format!("{method} is not among the methods of the console's files: {allowed}");
            let problem = Problem::new(ErrorCode::MethodNotAllowed, detail);
            return Some(Err(Problem { allow: Some(allowed.to_owned()), ..problem }));
        }
        if rest != "index.html"
            && let Some(file) = (self.find)(rest)
        {
            return Some(Ok(self.asset(rest, file, headers)));
        }
        // Assets carry a hash in their name: one that is not there belongs to another build.
        if rest.starts_with("assets/") {
            let detail = format!("the console has no {rest}");
            return Some(Err(Problem::new(ErrorCode::RouteNotFound, detail)));
        }
        Some(Ok(self.page(base)))
    }

    fn redirect(&self, base: &str, status: StatusCode) -> Response {
        let mut response = empty(status);
        if let Ok(location) = HeaderValue::try_from(format!("{base}{}", self.prefix)) {
            response.headers_mut().insert(LOCATION, location);
        }
        response
    }

    /// `index.html`, for every address that is a view of the console.
    fn page(&self, base: &str) -> Response {
        let nonce = STANDARD.encode(rand::random::<[u8; 16]>());
        let index = (self.find)("index.html");
        let built = index.as_ref().and_then(|file| std::str::from_utf8(file).ok());
        let html = built.map_or_else(
            || PLACEHOLDER.to_owned(),
            |html| {
                let href = format!("<base href=\"{base}{}\" />", self.prefix);
                let api = format!("<meta name=\"weir-api\" content=\"{base}\" />");
                html.replacen(BUILT_BASE, &href, 1).replacen(BUILT_API, &api, 1).replace(BUILT_NONCE, &nonce)
            },
        );
        let policy = format!(
            "default-src 'none'; script-src 'self'; style-src 'self' 'nonce-{nonce}'; connect-src 'self'; \
             img-src 'self' data:; worker-src 'self'; base-uri 'self'; form-action 'none'; \
             frame-ancestors 'none'"
        );
        let mut response = Response::new(Body::from(html));
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
        headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
        if let Ok(policy) = HeaderValue::from_str(&policy) {
            headers.insert(CONTENT_SECURITY_POLICY, policy);
        }
        response
    }

    /// A file as it was built, in the smallest encoding that the client takes.
    fn asset(&self, path: &str, file: Cow<'static, [u8]>, headers: &HeaderMap) -> Response {
        let packed = [("br", "br"), ("gzip", "gz")].into_iter().find_map(|(encoding, ending)| {
            accepts(headers, encoding)
                .then(|| (self.find)(&format!("{path}.{ending}")))
                .flatten()
                .map(|packed| (encoding, packed))
        });
        let (encoding, data) = match packed {
            Some((encoding, packed)) => (Some(encoding), packed),
            None => (None, file),
        };
        let mut response = Response::new(Body::from(data.into_owned()));
        let headers = response.headers_mut();
        let media = mime_guess::from_path(path).first_or_octet_stream();
        if let Ok(media) = HeaderValue::from_str(media.as_ref()) {
            headers.insert(CONTENT_TYPE, media);
        }
        if let Some(encoding) = encoding {
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static(encoding));
        }
        headers.insert(VARY, HeaderValue::from_static("Accept-Encoding"));
        let is_hashed = path.starts_with("assets/");
        let cache = if is_hashed { "public, max-age=31536000, immutable" } else { "public, max-age=3600" };
        headers.insert(CACHE_CONTROL, HeaderValue::from_static(cache));
        response
    }
}

/// True if `Accept-Encoding` names the encoding without refusing it.
fn accepts(headers: &HeaderMap, encoding: &str) -> bool {
    headers.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok()).any(|value| {
        value.split(',').any(|item| {
            let name = item.split(';').next().unwrap_or_default().trim();
            name.eq_ignore_ascii_case(encoding) && weight(item) > 0.0
        })
    })
}

/// True of a browser that shows a page; other clients name it rarely, and never by accident.
fn wants_html(headers: &HeaderMap) -> bool {
    let lists = headers.get_all(ACCEPT).iter().filter_map(|list| list.to_str().ok());
    lists.flat_map(|list| list.split(',')).any(|media| media.trim().starts_with("text/html"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use http_body_util::BodyExt as _;

    use super::*;

    fn get(console: &Console, path: &str) -> Option<Result<Response, Problem>> {
        console.answer(&Method::GET, ("", path), &HeaderMap::new())
    }

    async fn text(response: Response) -> String {
        String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
    }

    #[test]
    fn a_prefix_is_one_or_more_named_parts_outside_the_api() {
        for good in ["/console/", "/ops/console/", "/a.b_c~d-e/"] {
            assert!(Console::new(good).is_ok(), "{good}");
        }
        for bad in
            ["", "/", "//", "console/", "/console", "/a//b/", "/../", "/a b/", "/\"/", "/v1/", "/v1/x/"]
        {
            assert!(Console::new(bad).is_err(), "{bad}");
        }
    }

    /// What a build leaves, the packed files told apart by what they hold.
    fn built(path: &str) -> Option<Cow<'static, [u8]>> {
        let content: &[u8] = match path {
            "index.html" => include_bytes!("../../../console/index.html"),
            "index.html.br" => b"a page with nothing filled in",
            "assets/app-1a2b3c4d.js" => b"plain",
            "assets/app-1a2b3c4d.js.br" => b"brotli",
            "assets/app-1a2b3c4d.js.gz" => b"gzip",
            "assets/new-1a2b3c4d.css" => b"only plain",
            "weir.svg" => b"<svg/>",
            _ => return None,
        };
        Some(Cow::Borrowed(content))
    }

    #[tokio::test]
    async fn every_view_is_the_page_with_its_prefix_and_a_fresh_nonce() {
        let console = Console::of("/ops/console/", built).unwrap();
        let mut nonces = BTreeSet::new();
        for path in ["/ops/console/", "/ops/console/ns/default/topics/orders.paid", "/ops/console/index.html"]
        {
            let mut takes_all = HeaderMap::new();
            takes_all.insert(ACCEPT_ENCODING, HeaderValue::from_static("br, gzip"));
            let response = console.answer(&Method::GET, ("", path), &takes_all).unwrap().unwrap();
            assert_eq!(response.status(), 200);
            assert_eq!(response.headers()[CONTENT_TYPE], "text/html; charset=utf-8");
            assert_eq!(response.headers()[CACHE_CONTROL], "no-cache, private");
            assert_eq!(response.headers()[REFERRER_POLICY], "no-referrer");
            assert!(!response.headers().contains_key(CONTENT_ENCODING), "it is rendered, not packed");
            let policy = response.headers()[CONTENT_SECURITY_POLICY].to_str().unwrap().to_owned();
            let html = text(response).await;
            let nonce = policy.split("'nonce-").nth(1).unwrap().split('\'').next().unwrap();
            assert_eq!(STANDARD.decode(nonce).unwrap().len(), 16, "{policy}");
            assert!(html.contains(r#"<base href="/ops/console/" />"#), "{html}");
            assert!(html.contains(&format!("nonce=\"{nonce}\"")), "{html}");
            assert!(!html.contains(BUILT_NONCE) && !html.contains(BUILT_BASE), "{html}");
            nonces.insert(nonce.to_owned());
        }
        assert_eq!(nonces.len(), 3, "each is used once");
    }

    #[tokio::test]
    async fn behind_a_proxy_the_page_knows_where_it_is_and_where_the_api_is() {
        let console = Console::of("/console/", built).unwrap();
        let below = |path| console.answer(&Method::GET, ("/weir", path), &HeaderMap::new()).unwrap().unwrap();
        assert_eq!(below("/console").headers()[LOCATION], "/weir/console/");
        let html = text(below("/console/ns/default")).await;
        for told in [r#"<base href="/weir/console/" />"#, r#"<meta name="weir-api" content="/weir" />"#] {
            assert!(html.contains(told), "{html}");
        }
    }

    #[tokio::test]
    async fn a_build_without_the_console_says_so_on_every_view() {
        let console = Console::of("/console/", |_| None).unwrap();
        let response = get(&console, "/console/ns/default").unwrap().unwrap();
        assert_eq!(response.status(), 200);
        assert!(text(response).await.contains("not part of this build"));
        assert_eq!(get(&console, "/console/assets/app-1a2b3c4d.js").unwrap().unwrap_err().status, 404);
    }

    #[tokio::test]
    async fn a_file_comes_in_the_smallest_encoding_that_is_taken_and_is_kept_as_long_as_its_name_says() {
        let console = Console::of("/console/", built).unwrap();
        let script = "/console/assets/app-1a2b3c4d.js";
        for (path, taken, encoding, content) in [
            (script, "gzip, deflate, br", Some("br"), "brotli"),
            (script, "gzip", Some("gzip"), "gzip"),
            (script, "br;q=0, gzip;q=0.5", Some("gzip"), "gzip"),
            (script, "identity", None, "plain"),
            ("/console/assets/new-1a2b3c4d.css", "br, gzip", None, "only plain"),
        ] {
            let headers = HeaderMap::from_iter([(ACCEPT_ENCODING, HeaderValue::from_static(taken))]);
            let response = console.answer(&Method::GET, ("", path), &headers).unwrap().unwrap();
            let header = |name| response.headers().get(name).map(|value| value.to_str().unwrap());
            assert_eq!(header(CONTENT_ENCODING), encoding, "{path} for {taken}");
            assert_eq!(header(VARY), Some("Accept-Encoding"));
            assert_eq!(header(CACHE_CONTROL), Some("public, max-age=31536000, immutable"));
            let media = if path == script { "text/javascript" } else { "text/css" };
            assert_eq!(header(CONTENT_TYPE), Some(media), "the file's own, however it is packed");
            assert_eq!(text(response).await, content);
        }
        // Its name does not change with its content.
        let icon = get(&console, "/console/weir.svg").unwrap().unwrap();
        assert_eq!(icon.headers()[CACHE_CONTROL], "public, max-age=3600");
        assert_eq!(icon.headers()[CONTENT_TYPE], "image/svg+xml");
    }

    #[test]
    fn what_is_not_below_the_prefix_is_left_to_the_api() {
        let console = Console::new("/console/").unwrap();
        for path in ["/", "/v1", "/consoles/", "/healthz"] {
            assert!(get(&console, path).is_none(), "{path}");
        }
        let browser = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static("text/html, */*;q=0.8"))]);
        let shown = console.answer(&Method::GET, ("", "/"), &browser).unwrap().unwrap();
        assert_eq!(shown.status(), StatusCode::TEMPORARY_REDIRECT);
        assert_eq!(shown.headers()[LOCATION], "/console/");
        assert!(console.answer(&Method::POST, ("", "/"), &browser).is_none());
        let redirect = get(&console, "/console").unwrap().unwrap();
        assert_eq!(
            (redirect.status(), &redirect.headers()[LOCATION]),
            (StatusCode::PERMANENT_REDIRECT, &HeaderValue::from_static("/console/"))
        );
    }

    #[test]
    fn assets_of_another_build_and_writes_are_refused() {
        let console = Console::new("/console/").unwrap();
        assert_eq!(get(&console, "/console/assets/gone-12345678.js").unwrap().unwrap_err().status, 404);
        let post = console.answer(&Method::POST, ("", "/console/"), &HeaderMap::new()).unwrap();
        assert_eq!(post.unwrap_err().status, 405);
    }

    #[test]
    fn encodings_are_chosen_by_name_and_quality() {
        let headers =
            |value: &'static str| HeaderMap::from_iter([(ACCEPT_ENCODING, HeaderValue::from_static(value))]);
        assert!(accepts(&headers("gzip, deflate, br"), "br"));
        assert!(accepts(&headers("br;q=0.5"), "br"));
        assert!(!accepts(&headers("br;q=0, gzip"), "br"));
        assert!(!accepts(&headers("gzip, br ; Q=0.0"), "br"));
        assert!(!accepts(&HeaderMap::new(), "gzip"));
    }
}
