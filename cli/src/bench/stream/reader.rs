//! One reader: takes what comes, checks who it is from and that nothing is missing, gives credit back.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::bail;
use tokio::sync::watch;
use weir_protocol::start::parse_from;
use weir_protocol::ws::{Channel, ClientFrame, Deliveries, Limit, ServerFrame, Sub};

use super::{Shared, Window};
use crate::bench::identity::Identity;
use crate::bench::tally::{Arrived, Tally};
use crate::bench::target::Target;
use crate::client::{Wire, problem_text};

const CH: Channel = Channel(1);

/// A reader with its connection.
pub(super) struct Reader {
    number: u32,
    shared: Arc<Shared>,
    wire: Wire,
    arrived: BTreeMap<u32, Arrived>,
    /// Messages and bytes taken so far.
    taken: Limit,
    granted: Limit,
    tally: Tally,
}

impl Reader {
    pub(super) async fn connect(target: &Target, shared: &Arc<Shared>, number: u32) -> anyhow::Result<Self> {
        let mut wire = Wire::connect(&target.connect, Vec::new()).await?;
        let granted = credit(shared, Limit::default());
        let sub = Sub {
            ns: Some(target.connect.namespace.clone()),
            topic: Some(shared.shape.topic(&shared.run, number)),
            from: Some(parse_from("earliest")?),
            limit: granted,
            ..Sub::default()
        };
        wire.put(CH, &ClientFrame::Sub(sub));
        wire.flush().await?;
        match wire.next().await? {
            (_, ServerFrame::Subscribed(_)) => {}
            (_, ServerFrame::Err(refused)) => bail!(problem_text(&refused.problem)),
            (_, other) => bail!("sub was answered with {other:?}"),
        }
        let arrived = shared.writers_of(number).map(|writer| (writer, Arrived::default())).collect();
        let (taken, tally) = (Limit::default(), Tally::new());
        Ok(Self { number, shared: Arc::clone(shared), wire, arrived, taken, granted, tally })
    }

    /// Reads until everything that its writers sent has arrived.
    pub(super) async fn run(
        mut self,
        window: Window,
        mut all_written: watch::Receiver<bool>,
    ) -> anyhow::Result<Tally> {
        let mut knows_end = false;
        while !(knows_end && self.has_all()) {
            tokio::select! {
                biased;
                frame = self.wire.next() => self.take(frame?.1, &window)?,
                written = all_written.wait_for(|written| *written), if !knows_end => {
                    drop(written?);
                    knows_end = true;
                }
            }
            while self.wire.has_next() {
                let (_, frame) = self.wire.next().await?;
                self.take(frame, &window)?;
            }
            self.give_credit().await?;
        }
        for arrived in self.arrived.values() {
            self.tally.duplicates += arrived.duplicates;
            self.tally.missing += arrived.missing;
        }
        self.tally.delivered = self.taken.msgs;
        Ok(self.tally)
    }

    fn has_all(&self) -> bool {
        self.arrived.iter().all(|(writer, arrived)| arrived.next >= self.shared.sent_by(*writer))
    }

    fn take(&mut self, frame: ServerFrame, window: &Window) -> anyhow::Result<()> {
        match frame {
            ServerFrame::Deliveries(deliveries) => self.deliver(&deliveries, window),
            ServerFrame::CaughtUp(_) | ServerFrame::Firm(_) => Ok(()),
            ServerFrame::Err(refused) => bail!(problem_text(&refused.problem)),
            other => bail!("unexpected: {other:?}"),
        }
    }

    fn deliver(&mut self, deliveries: &Deliveries, window: &Window) -> anyhow::Result<()> {
        let now = window.now_ns();
        // Messages that were due together are counted together.
        let (mut due_ns, mut count) = (0, 0);
        for slice in &deliveries.slices {
            for record in slice.records()? {
                let record = record?;
                self.taken.msgs += 1;
                self.taken.bytes += record.size as u64;
                let identity = Identity::read(&record.value);
                let Some((identity, arrived)) =
                    identity.and_then(|identity| Some((identity, self.arrived.get_mut(&identity.writer)?)))
                else {
                    bail!("reader {} got a message that is not of this run", self.number);
                };
                arrived.take(identity.seq);
                if identity.due_ns != due_ns {
                    self.record(due_ns, count, now, window);
                    (due_ns, count) = (identity.due_ns, 0);
                }
                count += 1;
            }
        }
        self.record(due_ns, count, now, window);
        Ok(())
    }

    fn record(&mut self, due_ns: u64, count: u64, now: u64, window: &Window) {
        if count > 0 && window.counts(due_ns) {
            self.tally.deliver.record(now.saturating_sub(due_ns) / 1_000, count);
        }
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

fn credit(shared: &Shared, taken: Limit) -> Limit {
    let bytes = shared.shape.credit * (shared.shape.payload as u64 + 64);
    Limit { msgs: taken.msgs + shared.shape.credit, bytes: taken.bytes + bytes }
}
