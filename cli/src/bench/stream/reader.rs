//! One reader over the WebSocket: takes what comes, has it checked, gives credit back.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use anyhow::bail;
use tokio::sync::watch;
use weir_protocol::start::parse_from;
use weir_protocol::ws::{Channel, ClientFrame, Deliveries, Limit, Msg, ServerFrame, Sub};

use super::{DRAIN_QUIET_MAX, Shared};
use crate::args::{Connect, Transport};
use crate::bench::check::{Check, Faults};
use crate::bench::schedule::Window;
use crate::bench::tally::Tally;
use crate::client::{Encoding, Wire, problem_text};

const CH: Channel = Channel(1);

/// A reader with its connection.
pub(super) struct Reader {
    number: u32,
    shared: Arc<Shared>,
    wire: Wire,
    started: Instant,
    /// Messages and bytes taken so far.
    taken: Limit,
    granted: Limit,
}

impl Reader {
    pub(super) async fn connect(
        connect: &Connect,
        shared: &Arc<Shared>,
        number: u32,
    ) -> anyhow::Result<Self> {
        let encoding = encoding(shared.shape.transport);
        let mut wire = Wire::connect_as(encoding, connect, Vec::new()).await?;
        let granted = credit(shared, Limit::default());
        let sub = Sub {
            ns: Some(connect.namespace.clone()),
            topic: Some(shared.shape.topic(&shared.run, number)),
            from: Some(parse_from("earliest")?),
            limit: granted,
            ..Sub::default()
        };
        let started = Instant::now();
        wire.put(CH, &ClientFrame::Sub(sub));
        wire.flush().await?;
        match wire.next().await? {
            (_, ServerFrame::Subscribed(_)) => {}
            (_, ServerFrame::Err(refused)) => bail!(problem_text(&refused.problem)),
            (_, other) => bail!("sub was answered with {other:?}"),
        }
        Ok(Self { number, shared: Arc::clone(shared), wire, started, taken: Limit::default(), granted })
    }

    /// Reads until everything that its writers sent has arrived, or nothing comes any more.
    pub(super) async fn run(
        mut self,
        window: Window,
        mut all_written: watch::Receiver<bool>,
    ) -> anyhow::Result<Tally> {
        let shared = Arc::clone(&self.shared);
        let sent = |writer| shared.sent_by(writer);
        let mut check = Check::new(shared.writers_of(self.number), window);
        let mut knows_end = false;
        let freezes = shared.shape.freezes(self.number);
        while !(knows_end && check.has_all(sent)) {
            if freezes && window.counts(window.now_ns()) {
                return frozen(check, all_written).await;
            }
            tokio::select! {
                biased;
                frame = self.wire.next() => self.take(frame?.1, &mut check, &window)?,
                written = all_written.wait_for(|written| *written), if !knows_end => {
                    drop(written?);
                    knows_end = true;
                }
                () = tokio::time::sleep(DRAIN_QUIET_MAX), if knows_end => break,
            }
            while self.wire.has_next() {
                let (_, frame) = self.wire.next().await?;
                self.take(frame, &mut check, &window)?;
            }
            self.give_credit().await?;
        }
        let mut tally = Tally::new();
        tally.replay.record_time(self.started.elapsed());
        tally.read(&check, sent);
        Ok(tally)
    }

    fn take(&mut self, frame: ServerFrame, check: &mut Check, window: &Window) -> anyhow::Result<()> {
        let now_ns = window.now_ns();
        let before = self.taken.msgs;
        match frame {
            ServerFrame::Deliveries(deliveries) => self.deliver(&deliveries, check, now_ns)?,
            ServerFrame::Msg(msg) => self.message(&msg, check, now_ns)?,
            ServerFrame::Msgs(msgs) => {
                msgs.msgs.iter().try_for_each(|msg| self.message(msg, check, now_ns))?;
            }
            ServerFrame::CaughtUp(_) | ServerFrame::Firm(_) => {}
            ServerFrame::Err(refused) => bail!(problem_text(&refused.problem)),
            other => bail!("unexpected: {other:?}"),
        }
        check.end_of_group(now_ns);
        self.shared.taken.fetch_add(self.taken.msgs - before, Ordering::Relaxed);
        Ok(())
    }

    fn deliver(&mut self, deliveries: &Deliveries, check: &mut Check, now_ns: u64) -> anyhow::Result<()> {
        for slice in &deliveries.slices {
            for record in slice.records()? {
                let record = record?;
                self.taken.msgs += 1;
                self.taken.bytes += record.size as u64;
                check.take(&record.value, now_ns)?;
            }
        }
        Ok(())
    }

    fn message(&mut self, msg: &Msg, check: &mut Check, now_ns: u64) -> anyhow::Result<()> {
        self.taken.msgs += 1;
        self.taken.bytes += msg.size;
        check.take(&msg.value()?, now_ns)?;
        Ok(())
    }

    /// Raises the limit once half of it is used.
    async fn give_credit(&mut self) -> anyhow::Result<()> {
        let raised = credit(&self.shared, self.taken);
        if raised.msgs - self.granted.msgs < self.shared.shape.credit / 2
            && self.granted.bytes - self.taken.bytes > (raised.bytes - self.taken.bytes) / 2
        {
            return Ok(());
        }
        self.granted = raised;
        self.wire.put(CH, &ClientFrame::Limit(raised));
        Ok(self.wire.flush().await?)
    }
}

/// Nothing is read any more, and the connection stays. What came until then was in order and came once; how long it took
/// is not told, since who is frozen later is not what is asked.
async fn frozen(check: Check, mut all_written: watch::Receiver<bool>) -> anyhow::Result<Tally> {
    all_written.wait_for(|written| *written).await?;
    let mut tally = Tally::new();
    tally.faults = Faults { missing: 0, ..check.faults(|_| 0) };
    Ok(tally)
}

/// The form of frames on a WebSocket.
pub(super) fn encoding(transport: Transport) -> Encoding {
    match transport {
        Transport::Ws | Transport::Sse | Transport::Internal => Encoding::Binary,
        Transport::WsJson => Encoding::Json,
    }
}

fn credit(shared: &Shared, taken: Limit) -> Limit {
    let bytes = shared.shape.credit * (shared.shape.payload as u64 + 64);
    Limit { msgs: taken.msgs + shared.shape.credit, bytes: taken.bytes + bytes }
}
