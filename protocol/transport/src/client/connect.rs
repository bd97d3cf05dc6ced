//! How a stream to a peer comes to be.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;

use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::wire::Wire;

/// Opens streams to one peer. The seam for other transports, and for faults in tests.
pub trait Connect: Send + Sync + 'static {
    /// Opens one. The caller limits how long it takes by dropping it.
    fn connect(&self) -> Pin<Box<dyn Future<Output = io::Result<Wire>> + Send + '_>>;
}

/// TLS towards a peer.
#[derive(Clone)]
pub struct ClientTls {
    /// What to trust and what to present.
    pub config: Arc<rustls::ClientConfig>,
    /// The name that the peer's certificate must carry.
    pub server_name: ServerName<'static>,
}

impl fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientTls").field("server_name", &self.server_name).finish_non_exhaustive()
    }
}

/// Connects by TCP, with or without TLS.
#[derive(Debug, Clone)]
pub struct TcpConnect {
    /// `host:port`; a name is resolved at every attempt.
    pub address: String,
    /// TLS; `None`: plain TCP.
    pub tls: Option<ClientTls>,
}

impl Connect for TcpConnect {
    fn connect(&self) -> Pin<Box<dyn Future<Output = io::Result<Wire>> + Send + '_>> {
        Box::pin(async {
            let stream = TcpStream::connect(&self.address).await?;
            stream.set_nodelay(true)?;
            match &self.tls {
                None => Ok(Wire::tcp(stream)),
                Some(tls) => {
                    let connector = TlsConnector::from(Arc::clone(&tls.config));
                    Ok(Wire::new(connector.connect(tls.server_name.clone(), stream).await?))
                }
            }
        })
    }
}
