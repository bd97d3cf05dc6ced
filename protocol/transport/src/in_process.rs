//! Connections to a server of the same process.

use std::io;
use std::pin::Pin;

use crate::client::Connect;
use crate::server::Server;
use crate::wire::Wire;

/// Bytes that are under way in one direction at most; who writes more waits until they are read.
const PIPE_BYTES_MAX: usize = 256 << 10;

/// Connects to a server of this process through memory: the frames and the handshake are those of any connection, but no
/// byte goes through the kernel, and who is written to is woken on the thread that wrote.
#[derive(Debug, Clone)]
pub struct InProcess {
    server: Server,
}

impl InProcess {
    /// Connects to `server`.
    #[must_use]
    pub fn new(server: Server) -> Self {
        Self { server }
    }
}

impl Connect for InProcess {
    fn connect(&self) -> Pin<Box<dyn Future<Output = io::Result<Wire>> + Send + '_>> {
        let (ours, theirs) = tokio::io::duplex(PIPE_BYTES_MAX);
        self.server.attach(Wire::new(theirs));
        Box::pin(std::future::ready(Ok(Wire::new(ours))))
    }
}
