//! One worker of a queue over the WebSocket: takes leases as they come, and settles what came together in ranges.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use tokio::sync::watch;
use weir_protocol::ws::{
    Ack, Channel, ClientFrame, Dead, Limit, Nack, NumberRange, ServerFrame, Settled, Sub,
};

use super::worker::{DELAY_MS, Fate};
use super::{DRAIN_QUIET_MAX, Shared};
use crate::args::Connect;
use crate::bench::check::Check;
use crate::bench::identity::Identity;
use crate::bench::schedule::Window;
use crate::bench::tally::Tally;
use crate::client::{Encoding, Wire, problem_text};

const CH: Channel = Channel(1);
/// How often a worker that gets nothing looks whether all is done.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A worker with its connection.
pub(super) struct WsWorker {
    shared: Arc<Shared>,
    wire: Wire,
    prefetch: u64,
    /// Messages and bytes taken so far.
    taken: Limit,
    granted: Limit,
    unsettled: Unsettled,
    /// What becomes of what was taken and not told yet.
    ack: Ranges,
    nack: Ranges,
    dead: Ranges,
    tally: Tally,
}

/// Deliveries of which the gateway has not said yet that they are settled.
#[derive(Default)]
struct Unsettled {
    /// Number of the first.
    first: u64,
    /// Each by its number: what is settled for good; `None` of what comes again, and of what was settled already.
    deliveries: VecDeque<Option<Identity>>,
    /// Highest number of what was told together, and when.
    told: VecDeque<(u64, Instant)>,
}

/// A message as it came.
struct Delivered<'a> {
    n: u64,
    attempt: u32,
    size: u64,
    payload: &'a [u8],
}

/// Ascending numbers.
#[derive(Debug, Default, PartialEq, Eq)]
struct Ranges {
    ranges: Vec<NumberRange>,
    count: u64,
}

impl Ranges {
    fn add(&mut self, n: u64) {
        self.count += 1;
        match self.ranges.last_mut() {
            Some(range) if range.last + 1 == n => range.last = n,
            _ => self.ranges.push(NumberRange { first: n, last: n }),
        }
    }

    /// What was added since the last time.
    fn take(&mut self) -> Vec<NumberRange> {
        std::mem::take(&mut self.ranges)
    }
}

impl WsWorker {
    pub(super) async fn connect(
        connect: &Connect,
        shared: &Arc<Shared>,
        encoding: Encoding,
        prefetch: u32,
    ) -> anyhow::Result<Self> {
        let mut wire = Wire::connect_as(encoding, connect, Vec::new()).await?;
        let prefetch = u64::from(prefetch);
        let granted = credit(shared, prefetch, Limit::default());
        let sub = Sub {
            ns: Some(connect.namespace.clone()),
            sub: Some(shared.subscription()),
            limit: granted,
            ..Sub::default()
        };
        wire.subscribe(CH, sub).await?;
        let unsettled = Unsettled { first: 1, ..Unsettled::default() };
        let (ack, nack, dead) = (Ranges::default(), Ranges::default(), Ranges::default());
        let (shared, taken, tally) = (Arc::clone(shared), Limit::default(), Tally::new());
        Ok(Self { shared, wire, prefetch, taken, granted, unsettled, ack, nack, dead, tally })
    }

    /// Works until everything that was sent is settled, or nothing comes any more.
    pub(super) async fn run(
        mut self,
        window: Window,
        written: watch::Receiver<bool>,
    ) -> anyhow::Result<Tally> {
        let shared = Arc::clone(&self.shared);
        let mut settled = Check::new(0..shared.shape.writers, window);
        let mut look = tokio::time::interval(LOOK_EVERY);
        let mut quiet_since = Instant::now();
        loop {
            let is_written = *written.borrow();
            if is_written && (shared.is_all_taken() || quiet_since.elapsed() >= DRAIN_QUIET_MAX) {
                break;
            }
            tokio::select! {
                biased;
                frame = self.wire.next() => {
                    self.take(frame?.1, &mut settled, &window)?;
                    quiet_since = Instant::now();
                    while self.wire.has_next() {
                        let (_, frame) = self.wire.next().await?;
                        self.take(frame, &mut settled, &window)?;
                    }
                    self.settle().await?;
                }
                _ = look.tick() => if !is_written { quiet_since = Instant::now() },
            }
        }
        self.tally.nacked = self.nack.count;
        self.tally.dead = self.dead.count;
        self.tally.delivered = settled.delivered();
        settled.add_to(&mut self.tally.settled);
        Ok(self.tally)
    }

    fn take(&mut self, frame: ServerFrame, settled: &mut Check, window: &Window) -> anyhow::Result<()> {
        let now_ns = window.now_ns();
        match frame {
            ServerFrame::Deliveries(deliveries) => {
                for (n, (record, lease)) in (deliveries.n..).zip(deliveries.records()?) {
                    let attempt = lease.context("a message without a lease")?.attempt;
                    let (size, payload) = (record.size as u64, &record.value[..]);
                    self.deliver(&Delivered { n, attempt, size, payload }, window, now_ns)?;
                }
            }
            ServerFrame::Msg(msg) => self.message(&msg, window, now_ns)?,
            ServerFrame::Msgs(msgs) => {
                msgs.msgs.iter().try_for_each(|msg| self.message(msg, window, now_ns))?;
            }
            ServerFrame::Settled(told) => self.settled(&told, settled, window, now_ns)?,
            // What was lost comes again, and is settled then.
            ServerFrame::LeaseLost(lost) => {
                lost.n.iter().for_each(|range| drop(self.unsettled.take(*range)));
            }
            ServerFrame::Err(refused) => bail!(problem_text(&refused.problem)),
            other => bail!("unexpected: {other:?}"),
        }
        Ok(())
    }

    fn message(&mut self, msg: &weir_protocol::ws::Msg, window: &Window, now_ns: u64) -> anyhow::Result<()> {
        let attempt = msg.lease.context("a message without a lease")?.attempt;
        let value = msg.value()?;
        let delivered = Delivered { n: msg.n, attempt, size: msg.size, payload: &value };
        self.deliver(&delivered, window, now_ns)
    }

    fn deliver(&mut self, it: &Delivered<'_>, window: &Window, now_ns: u64) -> anyhow::Result<()> {
        let Delivered { n, attempt, size, payload } = *it;
        let identity = Identity::read(payload).context("a message that is not of this run")?;
        ensure!(n == self.unsettled.end(), "delivery {n} follows {}", self.unsettled.end());
        self.taken.msgs += 1;
        self.taken.bytes += size;
        if attempt == 1 {
            self.tally.first_delivery(identity, now_ns, window);
        }
        let fate = self.shared.shape.fates.of(identity, attempt);
        match fate {
            Fate::Ack => self.ack.add(n),
            Fate::Nack => self.nack.add(n),
            Fate::Dead => self.dead.add(n),
        }
        // Only what is settled for good is checked: what was given back has to come again.
        self.unsettled.deliveries.push_back((fate != Fate::Nack).then_some(identity));
        Ok(())
    }

    /// Says what becomes of what came, and lets as much come again.
    async fn settle(&mut self) -> anyhow::Result<()> {
        let (ack, nack, dead) = (self.ack.take(), self.nack.take(), self.dead.take());
        if !(ack.is_empty() && nack.is_empty() && dead.is_empty()) {
            self.unsettled.told.push_back((self.unsettled.end() - 1, Instant::now()));
        }
        if !ack.is_empty() {
            self.wire.put(CH, &ClientFrame::Ack(Ack { n: ack, ..Ack::default() }));
        }
        if !nack.is_empty() {
            let nack = Nack { n: nack, delay_ms: Some(DELAY_MS), ..Nack::default() };
            self.wire.put(CH, &ClientFrame::Nack(nack));
        }
        if !dead.is_empty() {
            self.wire.put(CH, &ClientFrame::Dead(Dead { n: dead, ..Dead::default() }));
        }
        let raised = credit(&self.shared, self.prefetch, self.taken);
        let is_low = raised.msgs - self.granted.msgs >= self.prefetch.div_ceil(2)
            || self.granted.bytes.saturating_sub(self.taken.bytes) <= (raised.bytes - self.taken.bytes) / 2;
        if is_low {
            self.granted = raised;
            self.wire.put(CH, &ClientFrame::Limit(raised));
        }
        Ok(self.wire.flush().await?)
    }

    fn settled(
        &mut self,
        told: &Settled,
        settled: &mut Check,
        window: &Window,
        now_ns: u64,
    ) -> anyhow::Result<()> {
        let before = settled.delivered();
        for range in &told.n {
            for identity in self.unsettled.take(*range) {
                settled.take_one(identity, now_ns)?;
            }
        }
        while let Some((_, at)) = self.unsettled.told.pop_front_if(|(n, _)| *n <= told.upto) {
            if window.counts(now_ns) {
                self.tally.settle.record_time(at.elapsed());
            }
        }
        self.unsettled.forget(told.upto);
        self.shared.taken.fetch_add(settled.delivered() - before, Ordering::Relaxed);
        Ok(())
    }
}

impl Unsettled {
    /// Number of the next delivery.
    fn end(&self) -> u64 {
        self.first + self.deliveries.len() as u64
    }

    /// Takes out what is settled for good of a range.
    fn take(&mut self, range: NumberRange) -> Vec<Identity> {
        let of = |n: u64| usize::try_from(n.saturating_sub(self.first)).unwrap_or(usize::MAX);
        let (from, to) = (of(range.first), of(range.last + 1).min(self.deliveries.len()));
        self.deliveries.range_mut(from.min(to)..to).filter_map(Option::take).collect()
    }

    /// Everything up to `upto` is settled or lost.
    fn forget(&mut self, upto: u64) {
        let count = (upto + 1).saturating_sub(self.first).min(self.deliveries.len() as u64);
        self.deliveries.drain(..usize::try_from(count).unwrap_or(0));
        self.first += count;
    }
}

fn credit(shared: &Shared, prefetch: u64, taken: Limit) -> Limit {
    let bytes = prefetch * (shared.shape.payload as u64 + 164);
    Limit { msgs: taken.msgs + prefetch, bytes: taken.bytes + bytes }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(first: u64, last: u64) -> NumberRange {
        NumberRange { first, last }
    }

    #[test]
    fn numbers_become_ranges() {
        let mut ranges = Ranges::default();
        [1, 2, 3, 7, 9, 10].into_iter().for_each(|n| ranges.add(n));
        assert_eq!(ranges.take(), [range(1, 3), range(7, 7), range(9, 10)]);
        ranges.add(11);
        assert_eq!((ranges.take(), ranges.count), (vec![range(11, 11)], 7));
    }

    #[test]
    fn each_delivery_is_settled_once_in_any_order() {
        let of = |seq| Some(Identity { writer: 0, seq, due_ns: 0 });
        let mut unsettled = Unsettled { first: 5, ..Unsettled::default() };
        unsettled.deliveries.extend([of(0), None, of(2), of(3)]);
        let mut taken = |first, last| -> Vec<u64> {
            unsettled.take(range(first, last)).iter().map(|identity| identity.seq).collect()
        };
        assert_eq!(taken(7, 7), [2]);
        assert_eq!(taken(5, 7), [0], "what came again was settled by nobody, and 7 already");
        assert_eq!(taken(1, 3), [0; 0], "long forgotten");
        assert_eq!(taken(7, 900), [3], "up to what was delivered");
        unsettled.forget(6);
        assert_eq!((unsettled.first, unsettled.end()), (7, 9));
        unsettled.forget(3);
        assert_eq!((unsettled.first, unsettled.end()), (7, 9));
        unsettled.forget(100);
        assert_eq!((unsettled.first, unsettled.end()), (9, 9));
    }
}
