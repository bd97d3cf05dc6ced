//! Listening sockets: who is let in, and shaking hands with them.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use prometheus::{IntCounter, IntCounterVec};
use rustls::server::Acceptor;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio_rustls::LazyConfigAcceptor;
use weir_protocol::error::ErrorCode;
use weir_transport::Reserved;

use crate::api::Problem;
use crate::at_once::at_once;
use crate::connection::{serve, take_leave};
use crate::edge::Edge;
use crate::tls::Tls;

/// TLS handshakes at once: each costs a signature, and the requests of those who are in need the processor too.
const HANDSHAKES_MAX: usize = 64;
/// A handshake has its turn no longer than this, so that nobody who is slow holds up the others.
const TURN_TIME_MAX: Duration = Duration::from_millis(250);
/// Clients that are told at once that there is no place for them; further ones are closed without a word.
const TURNED_AWAY_MAX: usize = 64;
/// When it may be worth trying again.
const TURNED_AWAY_RETRY_MS: u64 = 1_000;
/// Bytes that the system takes ahead of what it can send.
#[cfg(target_os = "linux")]
const NOT_SENT_BYTES: u32 = 64 << 10;
/// Ports tried when any port will do and the one that was free on IPv4 is taken on IPv6.
const PORTS_TRIED: u32 = 16;

/// Why handshakes fail: HTTP where TLS is served, TLS that does not come about, and what takes too long.
pub(crate) const HANDSHAKE_FAILURES: [&str; 3] = [PLAIN, FAILED, TIMEOUT];
const PLAIN: &str = "plain";
const FAILED: &str = "failed";
const TIMEOUT: &str = "timeout";

/// What every listening socket of a gateway shares.
pub(crate) struct Door {
    edge: Arc<Edge>,
    tls: Option<Arc<Tls>>,
    places: Arc<Semaphore>,
    handshakes: Semaphore,
    refused: IntCounterVec,
    full: Full,
    stop: watch::Receiver<bool>,
    close: watch::Receiver<bool>,
}

/// What happens to those for whom there is no place.
struct Full {
    /// What is answered, whatever is asked for.
    problem: Problem,
    turns: Arc<Semaphore>,
    count: IntCounter,
}

impl Full {
    fn new(connections_max: usize, count: IntCounter) -> Self {
        let problem = Problem::new(ErrorCode::Unavailable, format!("{connections_max} connections are open"))
            .with_limit(connections_max as u64)
            .with_retry_after_ms(TURNED_AWAY_RETRY_MS);
        Self { problem, turns: Arc::new(Semaphore::new(TURNED_AWAY_MAX)), count }
    }

    /// Tells a client, beside everything else. One that wants TLS could not read it and is closed.
    fn turn_away(&self, stream: TcpStream, peer: SocketAddr, wants_tls: bool) {
        self.count.inc();
        if wants_tls {
            return;
        }
        let Ok(turn) = Arc::clone(&self.turns).try_acquire_owned() else { return };
        let problem = self.problem.clone();
        tokio::spawn(async move {
            take_leave(stream, peer, problem).await;
            drop(turn);
        });
    }
}

impl Door {
    /// Nobody is let in from when `stop` becomes true, and who is in is put out when `close` does.
    pub(crate) fn new(
        edge: Arc<Edge>,
        tls: Option<Arc<Tls>>,
        (refused, turned_away): (IntCounterVec, IntCounter),
        (stop, close): (watch::Receiver<bool>, watch::Receiver<bool>),
    ) -> Self {
        let places = Arc::new(Semaphore::new(edge.config.connections_max));
        let full = Full::new(edge.config.connections_max, turned_away);
        Self { edge, tls, places, handshakes: Semaphore::new(HANDSHAKES_MAX), refused, full, stop, close }
    }

    /// What is left of the connections that there may be.
    pub(crate) fn places(&self) -> Arc<Semaphore> {
        Arc::clone(&self.places)
    }
}

/// Takes `addr`, and does not listen yet. For 127.0.0.1 also the same port of `[::1]`, because `localhost`
/// may mean either; a machine without IPv6 does without, and says so.
///
/// # Errors
/// The address with which it failed, and why.
pub(crate) fn reserve(addr: SocketAddr) -> Result<Vec<Reserved>, (SocketAddr, io::Error)> {
    let bind = |addr| Reserved::new(addr).map_err(|error| (addr, error));
    for attempt in 1.. {
        let first = bind(addr)?;
        if addr.ip() != Ipv4Addr::LOCALHOST {
            return Ok(vec![first]);
        }
        let port = first.local_addr().map_err(|error| (addr, error))?.port();
        match bind(SocketAddr::from((Ipv6Addr::LOCALHOST, port))) {
            Ok(second) => return Ok(vec![first, second]),
            Err((_, error)) if error.kind() == io::ErrorKind::AddrInUse => {
                if addr.port() != 0 || attempt == PORTS_TRIED {
                    return Err((SocketAddr::from((Ipv6Addr::LOCALHOST, port)), error));
                }
            }
            Err((_, error)) => {
                tracing::warn!(%error, "[::1] is not served: this machine has no IPv6 loopback");
                return Ok(vec![first]);
            }
        }
    }
    Err((addr, io::ErrorKind::AddrInUse.into()))
}

/// Accepts until the gateway stops.
pub(crate) async fn accept(listener: TcpListener, door: Arc<Door>, connections: Arc<GracefulShutdown>) {
    let mut stop = door.stop.clone();
    loop {
        let accepted = tokio::select! {
            biased;
            _ = stop.wait_for(|stopping| *stopping) => return,
            accepted = listener.accept() => accepted,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            // Out of descriptors, or the peer was gone already: others go on.
            Err(error) => {
                tracing::warn!(%error, "a connection was not accepted");
                tokio::time::sleep(Duration::from_millis(20)).await;
                continue;
            }
        };
        let Ok(place) = Arc::clone(&door.places).try_acquire_owned() else {
            door.full.turn_away(stream, peer, door.tls.is_some());
            continue;
        };
        let (door, watcher, mut close) = (Arc::clone(&door), connections.watcher(), door.close.clone());
        tokio::spawn(at_once(async move {
            tokio::select! {
                () = greet(&door, stream, peer, watcher) => {}
                // An error means that the gateway is gone: the same.
                _ = close.wait_for(|closing| *closing) => {}
            }
            drop(place);
        }));
    }
}

/// Shakes hands, if that is the custom here, and serves.
async fn greet(door: &Door, stream: TcpStream, peer: SocketAddr, watcher: Watcher) {
    // A confirm is a small packet that somebody waits for.
    // So that a client that takes slowly is seen to take: otherwise the system would ask for more only when it has sent
    // a third of some megabytes.
    #[cfg(target_os = "linux")]
    if let Err(error) = socket2::SockRef::from(&stream).set_tcp_notsent_lowat(NOT_SENT_BYTES) {
        tracing::debug!(%peer, %error, "TCP_NOTSENT_LOWAT");
    }
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "no TCP_NODELAY");
    }
    let Some(tls) = &door.tls else {
        return Box::pin(serve(&door.edge, stream, peer, watcher)).await;
    };
    let mut stop = door.stop.clone();
    // With memory of its own, which is given back: a handshake takes more than what follows.
    let shake = Box::pin(async {
        if is_plain(&stream).await? {
            return Ok(Err(stream));
        }
        // Without a turn: who has not said hello costs nothing.
        let hello = LazyConfigAcceptor::new(Acceptor::default(), stream).await?;
        let turn = door.handshakes.acquire().await.map_err(io::Error::other)?;
        let mut shaking = std::pin::pin!(hello.into_stream(Arc::clone(tls.config())));
        let shaken = match tokio::time::timeout(TURN_TIME_MAX, &mut shaking).await {
            Ok(shaken) => shaken,
            // What costs anything is done. The rest is the way to the client, or one that does not go on.
            Err(_) => {
                drop(turn);
                shaking.await
            }
        };
        shaken.map(Ok)
    });
    let time = door.edge.config.limits.handshake_time_max;
    let shaken = tokio::select! {
        _ = stop.wait_for(|stopping| *stopping) => return,
        shaken = tokio::time::timeout(time, shake) => shaken,
    };
    match shaken {
        Ok(Ok(Ok(stream))) => Box::pin(serve(&door.edge, stream, peer, watcher)).await,
        Ok(Ok(Err(stream))) => {
            door.refused.with_label_values(&[PLAIN]).inc();
            tracing::debug!(%peer, "no TLS where TLS is served");
            let detail = "HTTP without TLS, and this port serves HTTPS and WSS: use https:// or wss://";
            take_leave(stream, peer, Problem::new(ErrorCode::Malformed, detail)).await;
        }
        Ok(Err(error)) => {
            door.refused.with_label_values(&[FAILED]).inc();
            tracing::debug!(%peer, %error, "a TLS handshake failed");
        }
        Err(_) => {
            door.refused.with_label_values(&[TIMEOUT]).inc();
            tracing::debug!(%peer, "a TLS handshake took too long");
        }
    }
}

/// True if what comes, once it does, is a request without TLS, whose method begins with a capital letter; none of TLS's
/// records does.
async fn is_plain(stream: &TcpStream) -> io::Result<bool> {
    let mut first = [0];
    Ok(stream.peek(&mut first).await? > 0 && first[0].is_ascii_uppercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of what greets a client.
    fn room<A, B, C, D, F: Future>(_: fn(A, B, C, D) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn a_connection_takes_no_memory_for_a_handshake_that_is_over() {
        let bytes = room(greet);
        assert!(
            bytes <= 3 << 10,
            "{bytes} bytes with every connection: 6,904 were with room for a handshake"
        );
    }

    #[test]
    fn serving_a_connection_takes_no_memory_for_what_happens_once() {
        let bytes = room::<_, TcpStream, _, _, _>(serve);
        assert!(
            bytes <= 4 << 10,
            "{bytes} bytes with every connection: 4 KiB of 5,849 were for the last read of it"
        );
    }

    /// Asked of the system, not of the code that is tested.
    async fn has_ipv6() -> bool {
        TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).await.is_ok()
    }

    #[tokio::test]
    async fn the_loopback_address_is_served_on_ipv6_under_the_same_port() {
        let reserved = reserve(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let listeners: Vec<_> = reserved.into_iter().map(|socket| socket.listen().unwrap()).collect();
        let addrs: Vec<_> = listeners.iter().map(|socket| socket.local_addr().unwrap()).collect();
        let port = addrs[0].port();
        let mut expected = vec![SocketAddr::from((Ipv4Addr::LOCALHOST, port))];
        if has_ipv6().await {
            expected.push(SocketAddr::from((Ipv6Addr::LOCALHOST, port)));
        }
        assert_eq!(addrs, expected);
        // Whichever a client takes `localhost` for, the listener of that address has it.
        for (socket, addr) in listeners.iter().zip(addrs) {
            let client = TcpStream::connect(addr).await.unwrap();
            let (_, peer) = socket.accept().await.unwrap();
            assert_eq!(peer, client.local_addr().unwrap());
        }
    }

    #[test]
    fn any_other_address_is_served_alone() {
        for addr in [[127, 0, 0, 2], [0, 0, 0, 0]] {
            let reserved = reserve(SocketAddr::from((addr, 0))).unwrap();
            assert_eq!(reserved.len(), 1);
            assert_eq!(reserved[0].local_addr().unwrap().ip(), std::net::IpAddr::from(addr));
        }
    }

    #[tokio::test]
    async fn a_port_that_somebody_else_has_on_ipv6_is_refused_by_name_and_one_that_is_free_is_found() {
        if !has_ipv6().await {
            let reserved = reserve(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
            assert_eq!(reserved.len(), 1, "a machine without IPv6 does without");
            return;
        }
        // Of a port that is free on both, the half that the system looks for last.
        let mut both = reserve(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let taken = both.pop().unwrap().listen().unwrap();
        let taken = taken.local_addr().map(|addr| (taken, addr)).unwrap();
        drop(both);
        let wanted = SocketAddr::from(([127, 0, 0, 1], taken.1.port()));
        let (addr, error) = reserve(wanted).unwrap_err();
        assert_eq!((addr, error.kind()), (taken.1, io::ErrorKind::AddrInUse));
        // Nothing of it is kept: whoever corrects the cause can have the port.
        assert!(TcpListener::bind(wanted).await.is_ok());
        drop(taken);
        assert_eq!(reserve(wanted).unwrap().len(), 2);
    }
}
