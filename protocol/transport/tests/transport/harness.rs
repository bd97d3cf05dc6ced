//! Services, connectors and raw peers of the tests.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use prost::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use weir_protocol::frame::{FrameHead, FrameKind, HEADER_BYTES};
use weir_protocol::ids::{ClusterId, NodeId, ShardId};
use weir_protocol::rpc::{Hello, Method, PROTOCOL_VERSION};
use weir_transport::{
    Connect, Identity, InProcess, Link, LinkConfig, Peer, Priority, Request, Server, ServerConfig, Service,
    Wire,
};

pub(crate) const SOON: Duration = Duration::from_secs(20);
pub(crate) const SHARD: ShardId = ShardId(3);

pub(crate) struct Calling<F>(F);

impl<F: Fn(&Peer, Request) + Send + Sync + 'static> Service for Calling<F> {
    fn call(&self, peer: &Peer, request: Request) {
        (self.0)(peer, request);
    }
}

pub(crate) fn service(call: impl Fn(&Peer, Request) + Send + Sync + 'static) -> Arc<dyn Service> {
    Arc::new(Calling(call))
}

pub(crate) fn echo() -> Arc<dyn Service> {
    service(|_, request| request.reply.finish(vec![request.body.into_bytes()]))
}

pub(crate) fn identity() -> Identity {
    Identity { cluster_id: ClusterId(7), node_id: NodeId(1) }
}

pub(crate) fn server_config() -> ServerConfig {
    ServerConfig::new(([127, 0, 0, 1], 0).into(), identity())
}

pub(crate) fn hello() -> Hello {
    Hello { version: PROTOCOL_VERSION, cluster_id: Some(7u128.into()), ..Hello::default() }
}

pub(crate) fn link_config() -> LinkConfig {
    LinkConfig::new(Priority::Bulk, hello())
}

/// Connections come from a list; then there are none.
pub(crate) struct Prepared(pub(crate) Mutex<Vec<DuplexStream>>);

impl Connect for Prepared {
    fn connect(&self) -> Pin<Box<dyn Future<Output = io::Result<Wire>> + Send + '_>> {
        Box::pin(async {
            let stream = self.0.lock().unwrap().pop();
            stream.map(Wire::new).ok_or_else(|| io::ErrorKind::ConnectionRefused.into())
        })
    }
}

/// A server in the same process, which takes frames as they are.
pub(crate) fn frames_link(
    link: LinkConfig,
    config: ServerConfig,
    service: Arc<dyn Service>,
) -> (Link, Server) {
    let server = Server::new(config, service);
    (Link::new(link, Arc::new(InProcess::new(server.clone()))), server)
}

/// A server behind a stream of bytes in memory.
pub(crate) fn bytes_link(
    link: LinkConfig,
    config: ServerConfig,
    service: Arc<dyn Service>,
) -> (Link, Server) {
    let server = Server::new(config, service);
    (Link::new(link, Arc::new(Piped(server.clone()))), server)
}

struct Piped(Server);

impl Connect for Piped {
    fn connect(&self) -> Pin<Box<dyn Future<Output = io::Result<Wire>> + Send + '_>> {
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        self.0.attach(Wire::new(theirs));
        Box::pin(std::future::ready(Ok(Wire::new(ours))))
    }
}

/// A link whose peer is played by the test, frame by frame.
pub(crate) fn played_link(config: LinkConfig) -> (Link, DuplexStream) {
    let (ours, theirs) = tokio::io::duplex(64 * 1024);
    (Link::new(config, Arc::new(Prepared(Mutex::new(vec![ours])))), theirs)
}

/// A caller that is played by the test, frame by frame; not introduced yet.
pub(crate) fn played_caller(server: &Server) -> DuplexStream {
    let (ours, theirs) = tokio::io::duplex(64 * 1024);
    server.attach(Wire::new(theirs));
    ours
}

pub(crate) fn head(kind: FrameKind, flags: u8, call: u64) -> FrameHead {
    FrameHead { kind, flags, method: 0, shard: 0, call }
}

pub(crate) fn request_head(method: u16, call: u64) -> FrameHead {
    FrameHead { method, ..head(FrameKind::Request, 1, call) }
}

pub(crate) fn frame_bytes(head: FrameHead, body: &[u8]) -> Vec<u8> {
    let mut bytes = head.encode(&[Bytes::copy_from_slice(body)]).to_vec();
    bytes.extend_from_slice(body);
    bytes
}

pub(crate) async fn write_frame(stream: &mut DuplexStream, head: FrameHead, body: &[u8]) {
    stream.write_all(&frame_bytes(head, body)).await.unwrap();
}

/// The next frame; `None` at the end of the stream.
pub(crate) async fn read_frame(stream: &mut DuplexStream) -> Option<(FrameHead, Bytes)> {
    let mut header = [0; HEADER_BYTES];
    stream.read_exact(&mut header).await.ok()?;
    let read = FrameHead::decode(&header).unwrap();
    let mut body = vec![0; read.body_bytes];
    stream.read_exact(&mut body).await.ok()?;
    read.verify(&body).unwrap();
    Some((read.head, body.into()))
}

/// Introduces a played caller.
pub(crate) async fn introduce(stream: &mut DuplexStream, hello: &Hello) -> Option<(FrameHead, Bytes)> {
    write_frame(stream, head(FrameKind::Hello, 0, 0), &hello.encode_to_vec()).await;
    read_frame(stream).await
}

/// Welcomes the link of [`played_link`].
pub(crate) async fn welcome(stream: &mut DuplexStream) {
    let (hello, _) = read_frame(stream).await.unwrap();
    assert_eq!(hello.kind, FrameKind::Hello);
    let welcome = weir_protocol::rpc::Welcome { version: 1, node_id: 1, ..Default::default() };
    write_frame(stream, head(FrameKind::Welcome, 0, 0), &welcome.encode_to_vec()).await;
}

pub(crate) async fn call(link: &Link, body: &'static str) -> Result<Bytes, weir_transport::CallError> {
    link.call(Method::Read, SHARD, vec![Bytes::from_static(body.as_bytes())], SOON).await
}
