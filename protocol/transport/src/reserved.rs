//! A port that is taken before anybody is served there.

use std::io;
use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpSocket};

/// Connections that wait to be accepted.
const BACKLOG: u32 = 1024;

/// An address that nobody else can listen on. Who connects is refused, as if nobody were there, until
/// [`Reserved::listen`].
#[derive(Debug)]
pub struct Reserved(TcpSocket);

impl Reserved {
    /// Takes `addr`; port 0 takes a free one.
    ///
    /// # Errors
    /// What the operating system says: that somebody listens there, or that it is no address of this machine.
    pub fn new(addr: SocketAddr) -> io::Result<Self> {
        let socket = if addr.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        // Connections of a server that was here a moment ago are in nobody's way.
        socket.set_reuseaddr(true)?;
        socket.bind(addr)?;
        Ok(Self(socket))
    }

    /// The address, with the port that was taken.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }

    /// Listens from now on. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn listen(self) -> io::Result<TcpListener> {
        self.0.listen(BACKLOG)
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpStream;

    use super::*;

    #[tokio::test]
    async fn who_connects_early_is_refused_and_a_port_where_somebody_listens_is_taken() {
        let reserved = Reserved::new(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let addr = reserved.local_addr().unwrap();
        let early = TcpStream::connect(addr).await.unwrap_err();
        assert_eq!(early.kind(), io::ErrorKind::ConnectionRefused);
        let listener = reserved.listen().unwrap();
        assert_eq!(listener.local_addr().unwrap(), addr);
        let (connected, accepted) = tokio::join!(TcpStream::connect(addr), listener.accept());
        assert!(connected.is_ok() && accepted.is_ok());
        assert_eq!(Reserved::new(addr).unwrap_err().kind(), io::ErrorKind::AddrInUse);
    }
}
