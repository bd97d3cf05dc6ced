//! How requests get to a store: by its library's own client, but for large bodies, which go at a pace.
//!
//! Sent as fast as it goes, a part of 8 MiB has both ends of the way busy for tens of milliseconds, for which others
//! wait (docs/adr/0012). The library gives no say in how its client sends, so that large bodies go by one that is
//! set up like it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody, HttpResponse,
    HttpResponseBody, HttpService, ReqwestConnector,
};
use object_store::{ClientConfigKey, ClientOptions};
use tokio::time::{Instant, Sleep};

use super::pacer::{LARGE_BYTES, Pacer};

/// Bytes that go at a time: at a pace of 60 MiB/s about one a millisecond, which is what timers can do.
const PIECE_BYTES: usize = 64 << 10;

/// Makes the clients of a store.
#[derive(Debug)]
pub(super) struct PacedConnector {
    pub(super) pacer: Arc<Pacer>,
    pub(super) connect_within: Duration,
    /// How long a request may take.
    pub(super) patience: Duration,
}

impl HttpConnector for PacedConnector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let usual = ReqwestConnector::default().connect(options)?;
        if !can_be_paced(options) {
            return Ok(usual);
        }
        let is_set = |key| options.get_config_value(&key).is_some_and(|value| value == "true");
        let builder = reqwest::Client::builder()
            .http1_only()
            .https_only(!is_set(ClientConfigKey::AllowHttp))
            .danger_accept_invalid_certs(is_set(ClientConfigKey::AllowInvalidCertificates))
            .user_agent(options.get_config_value(&ClientConfigKey::UserAgent).unwrap_or_else(user_agent))
            .connect_timeout(self.connect_within)
            .timeout(self.patience);
        let large = builder.build().map_err(|error| object_store::Error::Generic {
            store: "HTTP client of large bodies",
            source: error.into(),
        })?;
        Ok(HttpClient::new(Paced { usual, large, pacer: Arc::clone(&self.pacer) }))
    }
}

/// Where bodies go and whom they believe is asked of our client as of the library's. Where somebody asks for what ours
/// does not do, a proxy say, theirs sends everything, and nothing is paced. How idle connections are kept, and HTTP/2
/// where both are possible, is asked of theirs alone.
fn can_be_paced(options: &ClientOptions) -> bool {
    let is_set = |key| options.get_config_value(&key).is_some_and(|value| value != "false");
    let others =
        [ClientConfigKey::ProxyUrl, ClientConfigKey::Http2Only, ClientConfigKey::NoSystemCertificates];
    !others.into_iter().any(is_set)
}

fn user_agent() -> String {
    concat!("weir/", env!("CARGO_PKG_VERSION")).to_owned()
}

#[derive(Debug)]
struct Paced {
    usual: HttpClient,
    large: reqwest::Client,
    pacer: Arc<Pacer>,
}

#[async_trait]
impl HttpService for Paced {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        if request.body().content_length() < LARGE_BYTES {
            return self.usual.execute(request).await;
        }
        let pacer = Arc::clone(&self.pacer);
        let request = request.map(|body| reqwest::Body::wrap(PacedBody::new(body, pacer)));
        let request = reqwest::Request::try_from(request).map_err(http_error)?;
        let response: http::Response<reqwest::Body> =
            self.large.execute(request).await.map_err(http_error)?.into();
        Ok(response.map(|body| HttpResponseBody::new(body.map_err(http_error))))
    }
}

/// What the library goes by when it decides whether to try again.
fn http_error(error: reqwest::Error) -> HttpError {
    let kind = if error.is_timeout() {
        HttpErrorKind::Timeout
    } else if error.is_connect() {
        HttpErrorKind::Connect
    } else if error.is_decode() {
        HttpErrorKind::Decode
    } else if error.is_request() || error.is_body() {
        HttpErrorKind::Interrupted
    } else {
        HttpErrorKind::Unknown
    };
    // The library names the address itself, unless that is a secret.
    HttpError::new(kind, error.without_url())
}

/// A body that gives its next piece when the pacer lets it go.
struct PacedBody {
    body: HttpRequestBody,
    pacer: Arc<Pacer>,
    /// What is left of a frame of `body`.
    rest: Bytes,
    /// The piece that goes next, and when.
    next: Option<(Bytes, Pin<Box<Sleep>>)>,
}

impl PacedBody {
    fn new(body: HttpRequestBody, pacer: Arc<Pacer>) -> Self {
        Self { body, pacer, rest: Bytes::new(), next: None }
    }
}

impl Body for PacedBody {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        let this = &mut *self;
        if this.next.is_none() {
            while this.rest.is_empty() {
                match ready!(Pin::new(&mut this.body).poll_frame(cx)) {
                    Some(Ok(frame)) => this.rest = frame.into_data().unwrap_or_default(),
                    end => return Poll::Ready(end),
                }
            }
            let piece = this.rest.split_to(PIECE_BYTES.min(this.rest.len()));
            let now = Instant::now();
            let at = this.pacer.take(piece.len(), now);
            if at <= now {
                return Poll::Ready(Some(Ok(Frame::data(piece))));
            }
            this.next = Some((piece, Box::pin(tokio::time::sleep_until(at))));
        }
        if let Some((_, wait)) = &mut this.next {
            ready!(wait.as_mut().poll(cx));
        }
        Poll::Ready(this.next.take().map(|(piece, _)| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.next.is_none() && self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let next = self.next.as_ref().map_or(0, |(piece, _)| piece.len());
        let held = (self.rest.len() + next) as u64;
        self.body.size_hint().exact().map_or_else(SizeHint::default, |left| SizeHint::with_exact(left + held))
    }
}

#[cfg(test)]
mod tests {
    use object_store::PutPayload;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_body_goes_whole_in_pieces_and_at_its_rate() {
        let frames = [vec![1_u8; 100_000], Vec::new(), vec![2; PIECE_BYTES], vec![3; 1]];
        let whole = frames.concat();
        let payload: PutPayload = frames.into_iter().map(Bytes::from).collect();
        let began = Instant::now();
        let mut body = PacedBody::new(payload.into(), Arc::new(Pacer::new(1 << 20)));
        let mut sent = Vec::new();
        while let Some(frame) = body.frame().await {
            let piece = frame.unwrap().into_data().unwrap();
            assert!(piece.len() <= PIECE_BYTES);
            sent.extend_from_slice(&piece);
            assert_eq!(body.size_hint().exact(), Some((whole.len() - sent.len()) as u64));
        }
        assert!(body.is_end_stream());
        assert_eq!(sent, whole);
        let took = began.elapsed();
        // The last piece goes when those before it have had their time.
        assert!(took > Duration::from_millis(130) && took < Duration::from_millis(170), "{took:?}");
    }

    #[test]
    fn what_our_client_does_not_do_leaves_everything_to_the_librarys() {
        let with = |key, value: &str| can_be_paced(&ClientOptions::default().with_config(key, value));
        assert!(can_be_paced(&ClientOptions::default()));
        assert!(with(ClientConfigKey::AllowHttp, "true"));
        assert!(!with(ClientConfigKey::ProxyUrl, "http://proxy:3128"));
        assert!(!with(ClientConfigKey::Http2Only, "true"));
        assert!(!with(ClientConfigKey::NoSystemCertificates, "true"));
    }
}
