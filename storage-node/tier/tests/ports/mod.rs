//! Ports for servers that begin to listen later, or again where they were: what the system gives away by
//! itself it may give to somebody else in between.
#![expect(unreachable_pub, reason = "tests of several crates include it")]

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering};

/// Below what systems give away by themselves: from 32,768 on, or 49,152.
const FIRST: u16 = 12_000;
const COUNT: u16 = 20_000;
/// Ports between those of processes that begin one after the other.
const STEP: u32 = 16;

/// An address of this machine that is free, and no other test's.
pub fn own() -> SocketAddr {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let place = std::process::id().wrapping_mul(STEP).wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let place = u16::try_from(place % u32::from(COUNT)).unwrap();
        let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, FIRST + place));
        if TcpListener::bind(addr).is_ok() {
            return addr;
        }
    }
}
