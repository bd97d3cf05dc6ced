//! Requests to the gateway's HTTP interface, with its problems turned into errors people can act on.

use std::time::Duration;

use anyhow::{Context as _, bail};
use bytes::Bytes;
use futures_util::{Stream, StreamExt as _};
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};
use serde::Deserialize;

use crate::args::Connect;
use crate::client::{WireError, address, tls};

/// Largest answer that is read. Lists and single messages stay far below it.
const ANSWER_BYTES_MAX: usize = 16 << 20;
/// How long an answer may take. Long polls ask for less.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(75);

/// One gateway's HTTP interface. Connections are kept and reused.
#[derive(Clone)]
pub(crate) struct Api {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    /// Without a slash at its end.
    base: String,
    connect: Connect,
}

/// An answer that is not a problem.
pub(crate) struct Reply {
    /// Status.
    pub(crate) status: StatusCode,
    /// Headers.
    pub(crate) headers: HeaderMap,
    /// Body.
    pub(crate) body: Bytes,
}

impl Reply {
    /// The body as JSON.
    pub(crate) fn json(&self) -> anyhow::Result<serde_json::Value> {
        serde_json::from_slice(&self.body).context("the gateway's answer is not JSON")
    }
}

/// A problem document (RFC 9457) as the gateway sends it.
#[derive(Debug, Deserialize)]
struct Problem {
    code: String,
    title: String,
    detail: Option<String>,
    outcome: Option<String>,
    undo: Option<String>,
    #[serde(default)]
    retryable: bool,
}

/// Bytes that stand for themselves in names.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Text as one segment of a path, or as one value of a query. As it is, a name with a `#` or a `?` in it
/// would be cut off there, and be the name of something else; the gateway refuses the whole name.
pub(crate) fn encoded(text: &str) -> PercentEncode<'_> {
    utf8_percent_encode(text, PLAIN)
}

impl Api {
    /// Prepares requests; nothing is sent yet.
    pub(crate) fn new(connect: &Connect) -> anyhow::Result<Self> {
        let base = address::checked(&connect.url)?.to_owned();
        let tls = tls::client_config(connect.ca_cert.as_deref())?;
        let connector = hyper_rustls::HttpsConnectorBuilder::new()
            .with_tls_config((*tls).clone())
            .https_or_http()
            .enable_http1()
            .build();
        let client = Client::builder(TokioExecutor::new()).build(connector);
        Ok(Self { client, base, connect: connect.clone() })
    }

    /// `weir` with the flags that lead here, to be pasted.
    pub(crate) fn weir(&self) -> String {
        self.connect.weir()
    }

    /// The same into another namespace.
    pub(crate) fn weir_in(&self, namespace: &str) -> String {
        Connect { namespace: namespace.to_owned(), ..self.connect.clone() }.weir()
    }

    /// Path of something in the namespace, e.g. `topics/orders`. Names in it are [`encoded`].
    pub(crate) fn path(&self, rest: &str) -> String {
        format!("/v1/ns/{}/{rest}", encoded(&self.connect.namespace))
    }

    /// GETs JSON.
    pub(crate) async fn get(&self, path: &str) -> anyhow::Result<Reply> {
        self.send(Method::GET, path, HeaderMap::new(), Bytes::new()).await
    }

    /// GETs JSON; `None` if the gateway answers 404.
    pub(crate) async fn get_if_any(&self, path: &str) -> anyhow::Result<Option<Reply>> {
        let reply = self.exchange(Method::GET, path, HeaderMap::new(), Bytes::new()).await?;
        if reply.status == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        Ok(Some(self.checked(path, reply)?))
    }

    /// Sends one request and reads its whole answer.
    ///
    /// # Errors
    /// If the gateway cannot be reached, does not answer in time, or answers with a problem.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        headers: HeaderMap,
        body: impl Into<Bytes>,
    ) -> anyhow::Result<Reply> {
        Ok(self.attempt(method, path, headers, body).await?)
    }

    /// The same for who tries again where that may help.
    ///
    /// # Errors
    /// [`WireError::Lost`] also for a refusal that the gateway says may pass, and for an answer that is no gateway's:
    /// whatever stands before it may be up earlier.
    pub(crate) async fn attempt(
        &self,
        method: Method,
        path: &str,
        headers: HeaderMap,
        body: impl Into<Bytes>,
    ) -> Result<Reply, WireError> {
        let reply = self.exchange(method, path, headers, body.into()).await?;
        self.checked(path, reply)
    }

    /// Follows server-sent events: what comes, as it comes, for as long as the gateway sends.
    ///
    /// # Errors
    /// If the gateway cannot be reached or refuses; of the stream, if the connection breaks.
    pub(crate) async fn events(
        &self,
        path: &str,
    ) -> anyhow::Result<impl Stream<Item = anyhow::Result<Bytes>> + Send + use<>> {
        let url = format!("{}{path}", self.base);
        let request = Request::builder().uri(&url).header(ACCEPT, "text/event-stream");
        let request = request.body(Full::new(Bytes::new()))?;
        let answer = self.client.request(request).await.map_err(|error| unreached(&self.base, error))?;
        if !answer.status().is_success() {
            bail!("{url} was answered {}", answer.status());
        }
        let body = answer.into_body().into_data_stream();
        Ok(body.map(|part| part.context("the stream broke off")))
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Reply, WireError> {
        let url = format!("{}{path}", self.base);
        let request = Request::builder().method(method).uri(&url).body(Full::new(body.clone()));
        let mut request = request.map_err(|error| WireError::Final(format!("{url}: {error}")))?;
        *request.headers_mut() = headers;
        request.headers_mut().entry(ACCEPT).or_insert(http::HeaderValue::from_static("application/json"));
        if !body.is_empty() {
            request
                .headers_mut()
                .entry(CONTENT_TYPE)
                .or_insert(http::HeaderValue::from_static("application/json"));
        }
        let exchange = async {
            let answer = self.client.request(request).await.map_err(|error| unreached(&self.base, error))?;
            let (head, body) = answer.into_parts();
            let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
            let broken = |error| WireError::Lost(format!("the answer broke off: {error}"));
            Ok(Reply { status: head.status, headers: head.headers, body: body.map_err(broken)?.to_bytes() })
        };
        let late =
            |_| WireError::Lost(format!("no answer from {url} within {} s", ANSWER_TIME_MAX.as_secs()));
        tokio::time::timeout(ANSWER_TIME_MAX, exchange).await.map_err(late)?
    }

    fn checked(&self, path: &str, reply: Reply) -> Result<Reply, WireError> {
        if !reply.status.is_client_error() && !reply.status.is_server_error() {
            return Ok(reply);
        }
        let Ok(problem) = serde_json::from_slice::<Problem>(&reply.body) else {
            let text = format!("the gateway answered {}", reply.status);
            let may_pass = reply.status.is_server_error();
            return Err(if may_pass { WireError::Lost(text) } else { WireError::Final(text) });
        };
        let may_pass = problem.retryable;
        let text = self.describe(problem, path);
        Err(if may_pass { WireError::Lost(text) } else { WireError::Final(text) })
    }

    /// A problem in one line: what, why, and whether it helps to try again.
    fn describe(&self, problem: Problem, path: &str) -> String {
        let mut line = format!("{} ({})", problem.title, problem.code);
        if let Some(detail) = problem.detail.filter(|detail| !detail.is_empty()) {
            line.push_str(": ");
            line.push_str(&detail);
        }
        if problem.outcome.as_deref() == Some("unknown") {
            line.push_str("; nobody knows whether it took effect");
        }
        if let Some(undo) = &problem.undo {
            let (weir, name) = (self.weir(), of(path, "subscriptions").unwrap_or("NAME"));
            line.push_str(&format!(
                "; to take back what it did: {weir} subscription undo {name} {undo} --yes"
            ));
        }
        for (kind, command) in [("topics", "topic"), ("subscriptions", "subscription")] {
            if let Some(name) = of(path, kind).filter(|_| problem.code == "config_mismatch") {
                line.push_str(&format!(
                    "; `{} {command} set {name}` changes what can be changed",
                    self.weir()
                ));
            }
        }
        if problem.retryable {
            line.push_str("; trying again later may help");
        }
        line
    }
}

/// Why there is no answer. What the HTTP library says around the reason is left out.
fn unreached(base: &str, error: hyper_util::client::legacy::Error) -> WireError {
    if let Some(why) = tls::distrusted(&error) {
        return WireError::Final(format!("{base} is not trusted: {why}"));
    }
    WireError::Lost(address::unreached(base, anyhow::Error::new(error).root_cause()))
}

/// Which of the `topics` or `subscriptions` a path is of. Those that exist have names that stand for themselves in
/// paths.
fn of<'a>(path: &'a str, kind: &str) -> Option<&'a str> {
    let (before, name) = path.rsplit_once(&format!("/{kind}/"))?;
    before.starts_with("/v1/ns/").then(|| name.split([':', '/', '?']).next())?
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::Args;

    #[test]
    fn what_a_refusal_did_can_be_taken_back_by_what_it_says() {
        let line = ["weir", "--url", "http://h:1", "--ns", "shop", "topic", "list"];
        let api = Api::new(&Args::parse_from(line).connect).unwrap();
        let problem = r#"{"code":"unavailable","title":"Unavailable","outcome":"unknown","undo":"snap_1","retryable":true}"#;
        let reply = Reply {
            status: StatusCode::SERVICE_UNAVAILABLE,
            headers: HeaderMap::new(),
            body: problem.as_bytes().into(),
        };
        let said = api.checked("/v1/ns/shop/subscriptions/billing:seek", reply).err().unwrap().to_string();
        let undo = "weir --url http://h:1 --ns shop subscription undo billing snap_1 --yes";
        assert!(said.contains(undo), "{said}");
    }

    #[test]
    fn a_topic_that_exists_otherwise_is_changed_by_what_the_refusal_says() {
        let line = ["weir", "--ns", "shop", "topic", "list"];
        let api = Api::new(&Args::parse_from(line).connect).unwrap();
        let problem = r#"{"code":"config_mismatch","title":"Exists","detail":"partitions is 4, not 8"}"#;
        let reply = || Reply {
            status: StatusCode::CONFLICT,
            headers: HeaderMap::new(),
            body: problem.as_bytes().into(),
        };
        let said = |path: &str| api.checked(path, reply()).err().unwrap().to_string();
        let topic = said("/v1/ns/shop/topics/orders");
        assert!(topic.contains("`weir --ns shop topic set orders` changes"), "{topic}");
        let subscription = said("/v1/ns/topics/subscriptions/orders");
        assert!(subscription.contains("`weir --ns shop subscription set orders`"), "{subscription}");
        assert!(!subscription.contains("topic set"), "{subscription}");
    }
}
