//! The WebSocket subprotocols from the client's side: connect, send frames, take frames.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::time::Duration;

use bytes::BytesMut;
use futures_util::{SinkExt as _, StreamExt as _};
use http::HeaderValue;
use serde::Deserialize;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{Connector, MaybeTlsStream, WebSocketStream, connect_async_tls_with_config};
use weir_protocol::limits::WS_MESSAGE_BYTES_MAX;
use weir_protocol::ws::{
    Channel, ClientFrame, CloseCode, Hello, Limits, Pong, RawJson, ResumeChannel, SUBPROTOCOL_BINARY,
    SUBPROTOCOL_JSON, ServerFrame, Sub, VERSION, binary, json,
};

use crate::args::Connect;
use crate::client::{address, tls};

/// How long a connection may take until it is welcomed.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(10);

/// Why a connection is of no more use.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WireError {
    /// The network, or the gateway, is gone: connect again.
    #[error("{0}")]
    Lost(String),
    /// Connecting again would end the same way.
    #[error("{0}")]
    Final(String),
}

/// The form of frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encoding {
    /// Binary messages; batches travel as they are stored.
    Binary,
    /// Text messages, a line of JSON per frame. Batches have no such form.
    Json,
}

/// One WebSocket.
pub(crate) struct Wire {
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
    encoding: Encoding,
    /// What waits for [`Wire::flush`], in the one form or the other.
    out: BytesMut,
    out_text: String,
    frames: VecDeque<(Channel, ServerFrame)>,
    /// What the gateway said when it welcomed.
    limits: Limits,
}

impl Wire {
    /// Connects, says hello and waits to be welcomed. `channels` are where those of an earlier connection stood.
    ///
    /// # Errors
    /// [`WireError`]; final if the gateway refuses, or is none.
    pub(crate) async fn connect(connect: &Connect, channels: Vec<ResumeChannel>) -> Result<Self, WireError> {
        Self::connect_as(Encoding::Binary, connect, channels).await
    }

    /// The same with frames of the form that is asked for.
    pub(crate) async fn connect_as(
        encoding: Encoding,
        connect: &Connect,
        channels: Vec<ResumeChannel>,
    ) -> Result<Self, WireError> {
        let welcomed = timeout(CONNECT_TIME_MAX, Self::welcomed(encoding, connect, channels)).await;
        welcomed.unwrap_or_else(|_| Err(WireError::Lost(format!("{} does not answer", connect.url))))
    }

    async fn welcomed(
        encoding: Encoding,
        connect: &Connect,
        channels: Vec<ResumeChannel>,
    ) -> Result<Self, WireError> {
        let unusable = |error: anyhow::Error| WireError::Final(format!("{error:#}"));
        let url = websocket_url(&connect.url).map_err(unusable)?;
        let mut request = url.into_client_request().map_err(|error| WireError::Final(error.to_string()))?;
        let headers = request.headers_mut();
        headers.insert("sec-websocket-protocol", HeaderValue::from_static(encoding.subprotocol()));
        let trust = tls::client_config(connect.ca_cert.as_deref()).map_err(unusable)?;
        let config = WebSocketConfig::default()
            .max_message_size(Some(WS_MESSAGE_BYTES_MAX))
            .max_frame_size(Some(WS_MESSAGE_BYTES_MAX));
        let connector = Some(Connector::Rustls(trust));
        let (socket, _) = connect_async_tls_with_config(request, Some(config), true, connector)
            .await
            .map_err(|error| refused(&connect.url, error))?;
        let (out, out_text, frames) = (BytesMut::new(), String::new(), VecDeque::new());
        let mut wire = Self { socket, encoding, out, out_text, frames, limits: Limits::default() };
        let client = Some(concat!("weir-cli/", env!("CARGO_PKG_VERSION")).to_owned());
        let hello = Hello { v: VERSION, client, batch: true, channels, ..Hello::default() };
        wire.put(Channel::CONNECTION, &ClientFrame::Hello(hello));
        wire.flush().await?;
        match wire.next().await? {
            (_, ServerFrame::Welcome(welcome)) => {
                wire.limits = welcome.limits;
                Ok(wire)
            }
            (_, ServerFrame::Err(refused)) => Err(refusal("", &refused.problem)),
            (_, other) => Err(WireError::Final(format!("the gateway answers hello with {other:?}"))),
        }
    }

    /// What the gateway takes.
    pub(crate) fn limits(&self) -> Limits {
        self.limits
    }

    /// Adds a frame to what [`Wire::flush`] sends.
    ///
    /// # Panics
    /// On [`ClientFrame::PubBatch`] as JSON.
    pub(crate) fn put(&mut self, ch: Channel, frame: &ClientFrame) {
        match self.encoding {
            Encoding::Binary => binary::put_client_frame(&mut self.out, ch, frame),
            Encoding::Json => json::put_client_frame(&mut self.out_text, ch, frame),
        }
    }

    /// Follows a topic or a subscription on a channel of its own, and waits to be told that it is so.
    ///
    /// # Errors
    /// [`WireError`]; final if the gateway refuses.
    pub(crate) async fn subscribe(&mut self, ch: Channel, sub: Sub) -> Result<(), WireError> {
        self.put(ch, &ClientFrame::Sub(sub));
        self.flush().await?;
        match self.next().await? {
            (_, ServerFrame::Subscribed(_)) => Ok(()),
            (_, ServerFrame::Err(refused)) => Err(WireError::Final(problem_text(&refused.problem))),
            (_, other) => Err(WireError::Final(format!("the gateway answers sub with {other:?}"))),
        }
    }

    /// Sends what was put, as one message.
    ///
    /// # Cancel safety
    /// Nothing is lost if it is dropped; the next one sends it.
    pub(crate) async fn flush(&mut self) -> Result<(), WireError> {
        if self.out.is_empty() && self.out_text.is_empty() {
            return Ok(());
        }
        let lost = |error: Error| WireError::Lost(error.to_string());
        // What is put stays there until the socket takes it, so a dropped flush loses nothing.
        poll_fn(|context| self.socket.poll_ready_unpin(context)).await.map_err(lost)?;
        let message = match self.encoding {
            Encoding::Binary => Message::Binary(self.out.split().freeze()),
            Encoding::Json => Message::Text(std::mem::take(&mut self.out_text).into()),
        };
        self.socket.start_send_unpin(message).map_err(lost)?;
        self.socket.flush().await.map_err(lost)
    }

    /// The next frame; pings are answered here.
    ///
    /// # Errors
    /// [`WireError`] once the connection is over.
    ///
    /// # Cancel safety
    /// Nothing is lost if it is dropped.
    pub(crate) async fn next(&mut self) -> Result<(Channel, ServerFrame), WireError> {
        loop {
            if let Some(frame) = self.frames.pop_front() {
                return Ok(frame);
            }
            let message = match self.socket.next().await {
                Some(Ok(message)) => message,
                Some(Err(error)) => return Err(WireError::Lost(error.to_string())),
                None => return Err(WireError::Lost("the connection was closed".to_owned())),
            };
            self.take(message)?;
            self.flush().await?;
        }
    }

    /// True if [`Wire::next`] answers without waiting.
    pub(crate) fn has_next(&self) -> bool {
        !self.frames.is_empty()
    }

    fn take(&mut self, message: Message) -> Result<(), WireError> {
        let broken = |error| WireError::Final(format!("the gateway's frame cannot be read: {error}"));
        match message {
            Message::Binary(mut bytes) => {
                while let Some((ch, frame)) = binary::take_server_frame(&mut bytes).map_err(broken)? {
                    self.take_frame(ch, frame);
                }
                Ok(())
            }
            Message::Text(text) => {
                for frame in json::server_frames(&text) {
                    let (ch, frame) = frame.map_err(broken)?;
                    self.take_frame(ch, frame);
                }
                Ok(())
            }
            Message::Close(frame) => {
                let (number, reason) = frame.map_or((1005, String::new()), |frame| {
                    (u16::from(frame.code), frame.reason.as_str().to_owned())
                });
                let text = format!("the gateway closed the connection: {number} {reason}");
                Err(if CloseCode::number_reconnects(number) {
                    WireError::Lost(text)
                } else {
                    WireError::Final(text)
                })
            }
            _ => Ok(()),
        }
    }

    fn take_frame(&mut self, ch: Channel, frame: ServerFrame) {
        match frame {
            ServerFrame::Ping(ping) => {
                self.put(Channel::CONNECTION, &ClientFrame::Pong(Pong { id: ping.id }))
            }
            frame => self.frames.push_back((ch, frame)),
        }
    }
}

impl Encoding {
    fn subprotocol(self) -> &'static str {
        match self {
            Self::Binary => SUBPROTOCOL_BINARY,
            Self::Json => SUBPROTOCOL_JSON,
        }
    }
}

fn websocket_url(url: &str) -> anyhow::Result<String> {
    // With http to ws, and with https to wss.
    Ok(format!("ws{}/v1/ws", address::checked(url)?.trim_start_matches("http")))
}

fn refused(url: &str, error: Error) -> WireError {
    match error {
        Error::Http(response) => {
            let body = response.body().as_deref().unwrap_or_default();
            let problem = std::str::from_utf8(body).ok().and_then(RawJson::from_text);
            let refused = match problem.filter(|problem| code_of(problem).is_some()) {
                Some(problem) => refusal("", &problem),
                // Somebody before the gateway, or no gateway at all.
                None => WireError::Final(format!("{url} answered {}", response.status())),
            };
            match refused {
                WireError::Final(why) if response.status().is_server_error() => WireError::Lost(why),
                refused => refused,
            }
        }
        Error::Io(error) => match tls::distrusted(&error) {
            Some(why) => WireError::Final(format!("{url} is not trusted: {why}")),
            None => WireError::Lost(address::unreached(url, error)),
        },
        other => WireError::Final(other.to_string()),
    }
}

/// A refusal of `what`: whether to try again, the gateway says.
pub(crate) fn refusal(what: &str, problem: &RawJson) -> WireError {
    #[derive(Deserialize)]
    struct Judged {
        #[serde(default)]
        retryable: bool,
    }
    let text = format!("{what}{}", problem_text(problem));
    match serde_json::from_str::<Judged>(problem.get()) {
        Ok(Judged { retryable: true }) => WireError::Lost(text),
        _ => WireError::Final(text),
    }
}

/// What a problem is about; `None` if it is none.
pub(crate) fn code_of(problem: &RawJson) -> Option<String> {
    #[derive(Deserialize)]
    struct Coded {
        code: String,
    }
    serde_json::from_str::<Coded>(problem.get()).ok().map(|coded| coded.code)
}

/// A problem of the subprotocol in one line.
pub(crate) fn problem_text(problem: &RawJson) -> String {
    #[derive(Deserialize)]
    struct Problem {
        code: String,
        title: String,
        detail: Option<String>,
    }
    match serde_json::from_str::<Problem>(problem.get()) {
        Ok(Problem { code, title, detail }) => {
            let detail = detail.filter(|detail| !detail.is_empty());
            format!("{title} ({code}){}", detail.map_or(String::new(), |detail| format!(": {detail}")))
        }
        Err(_) => problem.get().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_final_unless_the_gateway_says_otherwise() {
        let problem = |retryable| {
            let text =
                format!(r#"{{"code":"busy","title":"Busy","detail":"later","retryable":{retryable}}}"#);
            refusal("t: ", &RawJson::from_text(&text).unwrap())
        };
        assert!(matches!(problem(true), WireError::Lost(text) if text == "t: Busy (busy): later"));
        assert!(matches!(problem(false), WireError::Final(_)));
        assert!(matches!(refusal("", &RawJson::from_text("1").unwrap()), WireError::Final(_)));
    }

    #[test]
    fn a_socket_that_is_refused_says_why_and_whether_to_try_again() {
        let answered = |status: u16, body: &str| {
            let answer = http::Response::builder().status(status).body(Some(body.as_bytes().to_vec()));
            refused("http://h", Error::Http(Box::new(answer.unwrap())))
        };
        let problem = |code: &str, retryable: bool| {
            format!(r#"{{"code":"{code}","title":"T","detail":"why","retryable":{retryable}}}"#)
        };
        let host = answered(421, &problem("unknown_host", false));
        assert!(matches!(&host, WireError::Final(text) if text == "T (unknown_host): why"), "{host}");
        let many = answered(429, &problem("too_many_requests", true));
        assert!(matches!(&many, WireError::Lost(text) if text == "T (too_many_requests): why"), "{many}");
        let proxy = answered(502, "<html>");
        assert!(matches!(&proxy, WireError::Lost(text) if text == "http://h answered 502 Bad Gateway"));
        let other = answered(404, "<html>");
        assert!(matches!(&other, WireError::Final(text) if text == "http://h answered 404 Not Found"));
        assert!(matches!(answered(500, &problem("internal", false)), WireError::Lost(_)), "as it was");
    }

    #[test]
    fn a_gateways_url_names_its_websocket() {
        assert_eq!(websocket_url("http://h:80/").unwrap(), "ws://h:80/v1/ws");
        assert_eq!(websocket_url("https://h").unwrap(), "wss://h/v1/ws");
        assert!(websocket_url("http://h?x=1").is_err());
    }
}
