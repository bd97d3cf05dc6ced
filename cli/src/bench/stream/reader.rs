//! One reader over the WebSocket: takes what comes, has it checked, gives credit back.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use anyhow::bail;
use tokio::sync::watch;
use weir_protocol::start::parse_from;
use weir_protocol::ws::{Channel, ClientFrame, Deliveries, Limit, Msg, ServerFrame, Sub};

use super::Shared;
use super::reading::{Source, read_all};
use crate::args::{Connect, Transport};
use crate::bench::check::Check;
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
        wire.subscribe(CH, sub).await?;
        Ok(Self { number, shared: Arc::clone(shared), wire, started, taken: Limit::default(), granted })
    }

    /// Reads until everything that its writers sent has arrived, or nothing comes any more.
    pub(super) async fn run(self, window: Window, written: watch::Receiver<bool>) -> anyhow::Result<Tally> {
        let (of, shared) = ((self.number, self.started), Arc::clone(&self.shared));
        read_all(self, of, shared, window, written).await
    }

    fn take_frame(&mut self, frame: ServerFrame, check: &mut Check, window: &Window) -> anyhow::Result<()> {
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

impl Source for Reader {
    async fn take(&mut self, check: &mut Check, window: &Window) -> anyhow::Result<()> {
        let (_, frame) = self.wire.next().await?;
        self.take_frame(frame, check, window)
    }

    async fn finish_turn(&mut self, check: &mut Check, window: &Window) -> anyhow::Result<()> {
        while self.wire.has_next() {
            let (_, frame) = self.wire.next().await?;
            self.take_frame(frame, check, window)?;
        }
        self.give_credit().await
    }
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
