//! What is held for clients that have not taken it: one budget of a gateway for all of it.
//!
//! Whatever is answered stays in memory until its client takes it, and a client may take its time. So whoever makes an
//! answer holds room for it first, and is refused where there is none. No connection and no address gets more than a
//! quarter: who takes nothing is refused, and others are served as before. Clients that do take their answers give
//! room back within moments, so a request waits a little for it before it is refused.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

/// One of so many parts is what one connection, and one address, may hold.
const SHARES: u64 = 4;
/// What is no larger than this finds room at an address that has twice its share: who asks for little does not suffer
/// from who asks for much.
const LITTLE_BYTES: u64 = 64 << 10;

/// How long a request waits for room that other answers of its address or of its gateway give back. Sixty-four readers
/// of one host, each of a page, take turns within it; a crowd that takes nothing is refused after it.
const ROOM_TIME_MAX: Duration = Duration::from_secs(1);

/// Bits of an address of IPv6 that one client has: it chooses the others.
const IPV6_BITS: u32 = 64;

/// The budget. Never exceeded but by what has happened already and must be told.
#[derive(Debug)]
pub(crate) struct Answers {
    max: u64,
    state: Mutex<State>,
    refused: AtomicU64,
    /// Wakes those who wait when room is given back.
    given_back: Notify,
}

#[derive(Debug, Default)]
struct State {
    held: u64,
    /// Of those who hold something.
    by_address: HashMap<IpAddr, u64>,
}

/// How the budget stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AnswersMetrics {
    /// Bytes held.
    pub(crate) held: u64,
    /// Most bytes held.
    pub(crate) max: u64,
    /// Answers that found no room.
    pub(crate) refused: u64,
}

/// There is no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Full {
    /// Most bytes that are held for who asked; or for all together, if that is what is full.
    pub(crate) limit: u64,
    /// It is what who asked has not taken.
    pub(crate) is_own: bool,
}

/// A connection, as the budget knows it.
#[derive(Debug)]
pub(crate) struct Client {
    answers: Arc<Answers>,
    address: IpAddr,
    /// Changed under the lock of the budget alone.
    held: AtomicU64,
}

/// Room for an answer, until it is dropped.
#[derive(Debug)]
pub(crate) struct Held {
    client: Arc<Client>,
    bytes: u64,
}

impl Answers {
    pub(crate) fn new(max: u64) -> Arc<Self> {
        Arc::new(Self { max, state: Mutex::default(), refused: AtomicU64::new(0), given_back: Notify::new() })
    }

    /// How it stands.
    pub(crate) fn metrics(&self) -> AnswersMetrics {
        let held = self.state.lock().held;
        AnswersMetrics { held, max: self.max, refused: self.refused.load(Ordering::Relaxed) }
    }

    /// A connection from `peer`.
    pub(crate) fn client(self: &Arc<Self>, peer: IpAddr) -> Arc<Client> {
        Arc::new(Client { answers: Arc::clone(self), address: client_of(peer), held: AtomicU64::new(0) })
    }

    const fn share(&self) -> u64 {
        self.max / SHARES
    }
}

impl Client {
    /// Room for `bytes`, if there is any.
    pub(crate) fn hold(self: &Arc<Self>, bytes: u64) -> Result<Held, Full> {
        let mut held = self.nothing();
        held.resize(bytes)?;
        Ok(held)
    }

    /// Room for `bytes`, for which it waits up to [`ROOM_TIME_MAX`].
    ///
    /// # Cancel safety
    /// Nothing is held if it is dropped.
    pub(crate) async fn hold_soon(self: &Arc<Self>, bytes: u64) -> Result<Held, Full> {
        let mut held = self.nothing();
        held.resize_soon(bytes).await?;
        Ok(held)
    }

    /// Room for what has happened, and must be told.
    pub(crate) fn hold_anyway(self: &Arc<Self>, bytes: u64) -> Held {
        let mut held = self.nothing();
        held.grow_anyway(bytes);
        held
    }

    /// No room, to be resized.
    pub(crate) fn nothing(self: &Arc<Self>) -> Held {
        Held { client: Arc::clone(self), bytes: 0 }
    }

    /// Whether an answer of `bytes` would find room now, whatever its address holds: for those whose answers are made
    /// from what they have sent.
    pub(crate) fn check(&self, bytes: u64) -> Result<(), Full> {
        let answers = &self.answers;
        let (all, own) = (answers.state.lock().held, self.held.load(Ordering::Relaxed));
        match (all.saturating_add(bytes) > answers.max, own.saturating_add(bytes) > answers.share()) {
            (false, false) => Ok(()),
            (_, is_own) => Err(answers.full(is_own)),
        }
    }

    /// Whether what it holds, or all hold, is near the limit: then no more is prepared for it than must be.
    pub(crate) fn is_tight(&self) -> bool {
        let answers = &self.answers;
        let state = answers.state.lock();
        let at_address = state.by_address.get(&self.address).copied().unwrap_or(0);
        at_address > answers.share() || state.held > answers.max / 2
    }
}

impl Answers {
    fn full(&self, is_own: bool) -> Full {
        self.refused.fetch_add(1, Ordering::Relaxed);
        Full { limit: if is_own { self.share() } else { self.max }, is_own }
    }
}

impl Held {
    /// Bytes.
    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Makes it `bytes`. On an error it is what it was.
    pub(crate) fn resize(&mut self, bytes: u64) -> Result<(), Full> {
        self.try_resize(bytes).map_err(|is_own| self.client.answers.full(is_own))
    }

    /// The same, but it waits up to [`ROOM_TIME_MAX`] for room.
    ///
    /// # Cancel safety
    /// It is what it was if this is dropped.
    pub(crate) async fn resize_soon(&mut self, bytes: u64) -> Result<(), Full> {
        if self.try_resize(bytes).is_ok() {
            return Ok(());
        }
        let answers = Arc::clone(&self.client.answers);
        let room = async {
            loop {
                // Listens before it looks: what is given back in between wakes it.
                let given_back = answers.given_back.notified();
                tokio::pin!(given_back);
                given_back.as_mut().enable();
                if self.try_resize(bytes).is_ok() {
                    return;
                }
                given_back.await;
            }
        };
        let found = tokio::time::timeout(ROOM_TIME_MAX, room).await;
        if found.is_ok() { Ok(()) } else { self.resize(bytes) }
    }

    /// The error says whether it is the client's own share that has no room.
    fn try_resize(&mut self, bytes: u64) -> Result<(), bool> {
        let Some(more) = bytes.checked_sub(self.bytes) else {
            self.shrink(bytes);
            return Ok(());
        };
        let answers = &self.client.answers;
        let mut state = answers.state.lock();
        let at_address = state.by_address.get(&self.client.address).copied().unwrap_or(0);
        let own = self.client.held.load(Ordering::Relaxed);
        let for_address = if bytes <= LITTLE_BYTES { 2 * answers.share() } else { answers.share() };
        let is_own =
            own.saturating_add(more) > answers.share() || at_address.saturating_add(more) > for_address;
        if is_own || state.held.saturating_add(more) > answers.max {
            return Err(is_own);
        }
        state.take(&self.client, more);
        self.bytes = bytes;
        Ok(())
    }

    /// Makes it larger, whether there is room or not.
    pub(crate) fn grow_anyway(&mut self, more: u64) {
        self.client.answers.state.lock().take(&self.client, more);
        self.bytes += more;
    }

    /// Makes it no more than `bytes`.
    pub(crate) fn shrink(&mut self, bytes: u64) {
        let less = self.bytes.saturating_sub(bytes);
        if less > 0 {
            self.client.answers.state.lock().give_back(&self.client, less);
            self.bytes -= less;
            self.client.answers.given_back.notify_waiters();
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.shrink(0);
    }
}

impl State {
    fn take(&mut self, client: &Client, bytes: u64) {
        if bytes > 0 {
            self.held += bytes;
            *self.by_address.entry(client.address).or_insert(0) += bytes;
            client.held.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    fn give_back(&mut self, client: &Client, bytes: u64) {
        self.held -= bytes;
        client.held.fetch_sub(bytes, Ordering::Relaxed);
        if let Some(held) = self.by_address.get_mut(&client.address) {
            *held -= bytes;
            if *held == 0 {
                self.by_address.remove(&client.address);
            }
        }
    }
}

/// What tells clients apart.
fn client_of(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> IPV6_BITS << IPV6_BITS).into(),
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn client(answers: &Arc<Answers>, address: &str) -> Arc<Client> {
        answers.client(address.parse().unwrap())
    }

    #[test]
    fn a_connection_and_an_address_get_a_quarter_and_others_find_the_rest() {
        const MIB: u64 = 1 << 20;
        let answers = Answers::new(400 * MIB);
        let (one, other) = (client(&answers, "192.0.2.1"), client(&answers, "192.0.2.1"));
        let first = one.hold(60 * MIB).unwrap();
        let second = other.hold(40 * MIB).unwrap();
        assert_eq!(other.hold(MIB).unwrap_err(), Full { limit: 100 * MIB, is_own: true });
        assert!(other.hold(LITTLE_BYTES).is_ok(), "who asks for little is served");
        let beside = client(&answers, "192.0.2.2");
        let others: Vec<_> = [2, 3, 4]
            .map(|last| client(&answers, &format!("192.0.2.{last}")).hold(100 * MIB).unwrap())
            .into();
        assert_eq!(
            client(&answers, "192.0.2.9").hold(1).unwrap_err(),
            Full { limit: 400 * MIB, is_own: false }
        );
        assert!(beside.check(0).is_ok() && beside.check(1).is_err());
        drop((first, others));
        assert_eq!(one.hold(61 * MIB).unwrap_err().limit, 100 * MIB);
        assert_eq!(one.hold(60 * MIB).unwrap().bytes(), 60 * MIB);
        drop(second);
        assert_eq!(answers.metrics(), AnswersMetrics { held: 0, max: 400 * MIB, refused: 4 });
        assert!(answers.state.lock().by_address.is_empty(), "who holds nothing is not remembered");
    }

    #[tokio::test(start_paused = true)]
    async fn who_asks_waits_for_room_that_is_given_back_and_is_refused_when_none_is() {
        let answers = Answers::new(400 * LITTLE_BYTES);
        let (one, other) = (client(&answers, "192.0.2.1"), client(&answers, "192.0.2.1"));
        let held = one.hold(80 * LITTLE_BYTES).unwrap();
        let (found, ()) = tokio::join!(other.hold_soon(60 * LITTLE_BYTES), async {
            tokio::time::sleep(ROOM_TIME_MAX / 2).await;
            drop(held);
        });
        assert_eq!(found.unwrap().bytes(), 60 * LITTLE_BYTES, "and it was dropped again");
        let held = one.hold(80 * LITTLE_BYTES).unwrap();
        let began = tokio::time::Instant::now();
        assert!(other.hold_soon(60 * LITTLE_BYTES).await.unwrap_err().is_own);
        assert_eq!((began.elapsed(), answers.metrics().refused), (ROOM_TIME_MAX, 1));
        drop(held);
        assert_eq!(answers.metrics().held, 0);
    }

    #[test]
    fn addresses_of_one_network_of_ipv6_are_one_client_and_ipv4_is_the_same_either_way() {
        let same = |a: &str, b: &str| client_of(a.parse().unwrap()) == client_of(b.parse().unwrap());
        assert!(same("2001:db8:1:2::1", "2001:db8:1:2:ffff::"));
        assert!(!same("2001:db8:1:2::1", "2001:db8:1:3::1"));
        assert!(same("::ffff:192.0.2.1", "192.0.2.1") && !same("192.0.2.1", "192.0.2.2"));
    }

    #[test]
    fn what_must_be_told_is_held_beyond_the_limit_and_counts() {
        let answers = Answers::new(400);
        let one = client(&answers, "::1");
        let told = one.hold_anyway(1_000);
        assert_eq!(answers.metrics().held, 1_000);
        assert!(client(&answers, "192.0.2.1").hold(1).is_err());
        drop(told);
        assert!(client(&answers, "192.0.2.1").hold(1).is_ok());
    }

    proptest! {
        #[test]
        fn no_share_and_no_sum_exceeds_its_limit_and_all_of_it_comes_back(
            steps in proptest::collection::vec((0usize..6, 0u64..150), 0..200),
        ) {
            let answers = Answers::new(400 * LITTLE_BYTES);
            let clients: Vec<_> = (0..6).map(|i| client(&answers, &format!("192.0.2.{}", i / 2))).collect();
            let mut held: Vec<_> = clients.iter().map(Client::nothing).collect();
            for (who, bytes) in steps {
                let bytes = bytes * LITTLE_BYTES;
                let before = held[who].bytes();
                let resized = held[who].resize(bytes).is_ok();
                prop_assert_eq!(held[who].bytes(), if resized { bytes } else { before });
                prop_assert!(resized || bytes > before, "less always finds room");
                for pair in held.chunks(2) {
                    prop_assert!(pair.iter().map(Held::bytes).sum::<u64>() <= 200 * LITTLE_BYTES);
                    prop_assert!(pair.iter().all(|held| held.bytes() <= 100 * LITTLE_BYTES));
                }
                prop_assert_eq!(held.iter().map(Held::bytes).sum::<u64>(), answers.metrics().held);
                prop_assert!(answers.metrics().held <= 400 * LITTLE_BYTES);
            }
            drop(held);
            prop_assert_eq!(answers.metrics().held, 0);
        }
    }
}
