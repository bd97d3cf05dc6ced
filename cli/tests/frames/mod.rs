//! A WebSocket of either form, which speaks frames.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::BytesMut;
use futures_util::{SinkExt, StreamExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::HeaderValue;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};
use weir_protocol::ws::{Channel, ClientFrame, CloseCode, ServerFrame, binary, json};

/// What must come comes within it, on a machine that is busy with other tests.
pub(crate) const SOON: Duration = Duration::from_secs(60);

/// A client's end.
pub(crate) struct FrameSocket {
    /// For what is no frame.
    pub(crate) socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
    is_binary: bool,
    frames: VecDeque<(Channel, ServerFrame)>,
}

impl FrameSocket {
    /// Opens one of the form that the subprotocol names; nothing was said yet.
    pub(crate) async fn connect(address: &str, subprotocol: &'static str) -> Self {
        Self::connect_from(None, address, subprotocol).await.unwrap()
    }

    /// The same from a page of `origin`; the status of a refusal.
    pub(crate) async fn connect_from(
        origin: Option<&str>,
        address: &str,
        subprotocol: &'static str,
    ) -> Result<Self, u16> {
        let mut request = format!("ws://{address}/v1/ws").into_client_request().unwrap();
        request.headers_mut().insert("sec-websocket-protocol", HeaderValue::from_static(subprotocol));
        if let Some(origin) = origin {
            request.headers_mut().insert("origin", origin.parse().unwrap());
        }
        let (socket, response) = match connect_async(request).await {
            Err(Error::Http(refused)) => return Err(refused.status().as_u16()),
            connected => connected.unwrap(),
        };
        assert_eq!(response.headers()["sec-websocket-protocol"], subprotocol);
        Ok(Self { socket, is_binary: subprotocol.ends_with("bin"), frames: VecDeque::new() })
    }

    /// Sends a frame.
    pub(crate) async fn send(&mut self, ch: u16, frame: ClientFrame) {
        let message = if self.is_binary {
            let mut bytes = BytesMut::new();
            binary::put_client_frame(&mut bytes, Channel(ch), &frame);
            Message::Binary(bytes.freeze())
        } else {
            let mut text = String::new();
            json::put_client_frame(&mut text, Channel(ch), &frame);
            Message::Text(text.into())
        };
        self.socket.send(message).await.unwrap();
    }

    /// The next frame that is not a ping; what closed the socket instead.
    pub(crate) async fn try_next(&mut self) -> Result<(Channel, ServerFrame), CloseCode> {
        loop {
            if let Some(frame) = self.frames.pop_front() {
                return Ok(frame);
            }
            let message = timeout(SOON, self.socket.next()).await.expect("nothing came").unwrap().unwrap();
            match message {
                Message::Text(text) => {
                    self.frames.extend(json::server_frames(text.as_str()).map(Result::unwrap));
                }
                Message::Binary(mut bytes) => {
                    while let Some(frame) = binary::take_server_frame(&mut bytes).unwrap() {
                        self.frames.push_back(frame);
                    }
                }
                Message::Close(frame) => {
                    return Err(CloseCode::from_number(frame.unwrap().code.into()).unwrap());
                }
                _ => {}
            }
            self.frames.retain(|(_, frame)| !matches!(frame, ServerFrame::Ping(_)));
        }
    }

    /// The next frame, of an open socket.
    pub(crate) async fn next(&mut self) -> (Channel, ServerFrame) {
        self.try_next().await.unwrap()
    }
}
