//! `weir sub --subscription`: prints what a subscription delivers, and acknowledges what is printed.

use std::time::Duration;

use anyhow::Context as _;
use tokio::time::timeout;
use weir_protocol::ws::{
    Ack, Bye, Channel, ClientFrame, Deliveries, Limit, NumberRange, PartitionOf, ServerFrame, ShareChange,
    Sub,
};

use super::print::Printer;
use super::{INTERRUPTED, reconnecting};
use crate::args::{Connect, SubArgs};
use crate::client::{Api, Backoff, Stop, Wire, WireError, refusal};
use crate::output;
use crate::subscription::path;

const CHANNEL: Channel = Channel(1);
/// How long the gateway may take to settle what was acknowledged last, and to close.
const LEAVE_TIME_MAX: Duration = Duration::from_secs(2);

/// A run.
struct Run<'a> {
    connect: &'a Connect,
    args: &'a SubArgs,
    name: &'a str,
    /// The topic, if there is one; otherwise deliveries say it.
    topic: String,
    printer: Printer,
    left: Option<u64>,
}

/// Where one connection stands.
///
/// ```text
///   settled ≤ acked ≤ taken     numbers of deliveries
/// ```
#[derive(Default)]
struct Place {
    /// Records and bytes that came, and the credit given.
    taken: Limit,
    granted: Limit,
    acked: u64,
    settled: u64,
}

/// Consumes until it has what was asked for. What was printed and not acknowledged when a connection ended is
/// printed again.
pub(super) async fn run(connect: &Connect, args: &SubArgs, name: &str) -> anyhow::Result<()> {
    let api = Api::new(connect)?;
    let subscription = api.get(&path(&api, name, "")).await?.json()?;
    let topics = subscription["config"]["topics"].as_array().context("the gateway's answer has no topics")?;
    let topic = topics.first().and_then(|topic| topic.as_str()).unwrap_or_default().to_owned();
    let printer = Printer::new(connect.json, topics.len() > 1 || topic.ends_with('*'));
    let mut run = Run { connect, args, name, topic, printer, left: args.count };
    reconnecting(async |backoff, stop| {
        let ended = run.connected(backoff, stop).await;
        run.printer.flush();
        ended
    })
    .await?;
    anyhow::ensure!(run.left.is_none_or(|left| left == 0), INTERRUPTED);
    Ok(())
}

impl Run<'_> {
    /// One connection. On return there is nothing more to do, and all that was printed is acknowledged.
    async fn connected(&mut self, backoff: &mut Backoff, stop: &mut Stop) -> Result<(), WireError> {
        let mut wire = tokio::select! {
            biased;
            () = stop.wanted() => return Ok(()),
            wire = Wire::connect(self.connect, Vec::new()) => wire?,
        };
        let mut place = Place::default();
        self.raise(&mut place);
        let sub = Sub {
            ns: Some(self.connect.namespace.clone()),
            sub: Some(self.name.to_owned()),
            limit: place.granted,
            ..Sub::default()
        };
        wire.put(CHANNEL, &ClientFrame::Sub(sub));
        wire.flush().await?;
        while self.left != Some(0) || place.settled < place.taken.msgs {
            let (_, frame) = tokio::select! {
                biased;
                () = stop.wanted() => break,
                frame = wire.next() => frame?,
            };
            if matches!(frame, ServerFrame::Subscribed(_)) {
                backoff.progressed();
            }
            self.take(&mut place, frame)?;
            if !wire.has_next() {
                // What is printed is taken: only now it is acknowledged, and worth new credit.
                self.acknowledge(&mut wire, &mut place);
                if self.raise(&mut place) {
                    wire.put(CHANNEL, &ClientFrame::Limit(place.granted));
                }
                wire.flush().await?;
            }
        }
        self.acknowledge(&mut wire, &mut place);
        // What the gateway does not hear of comes again.
        let _ = timeout(LEAVE_TIME_MAX, leave(&mut wire)).await;
        Ok(())
    }

    fn acknowledge(&mut self, wire: &mut Wire, place: &mut Place) {
        self.printer.flush();
        if place.taken.msgs > place.acked {
            place.acked = place.taken.msgs;
            let n = vec![NumberRange { first: place.acked, last: place.acked }];
            wire.put(CHANNEL, &ClientFrame::Ack(Ack { n, cum: true, leases: Vec::new() }));
        }
    }

    fn take(&mut self, place: &mut Place, frame: ServerFrame) -> Result<(), WireError> {
        match frame {
            ServerFrame::Deliveries(deliveries) => return self.print(place, &deliveries),
            ServerFrame::Settled(settled) => place.settled = place.settled.max(settled.upto),
            ServerFrame::Share(share) => note_share(&share),
            ServerFrame::LeaseLost(lost) => {
                output::note(format_args!("{} message(s) were given to others as well", lost.lost.len()));
            }
            ServerFrame::Goaway(_) => {
                return Err(WireError::Lost("the gateway is shutting down".to_owned()));
            }
            ServerFrame::Err(refused) => {
                return Err(refusal(&format!("{}: ", self.name), &refused.problem));
            }
            // Frames of a newer gateway.
            _ => {}
        }
        Ok(())
    }

    fn print(&mut self, place: &mut Place, deliveries: &Deliveries) -> Result<(), WireError> {
        let broken =
            |error: &dyn std::fmt::Display| WireError::Final(format!("a delivery cannot be read: {error}"));
        let topic = deliveries.topic.as_ref().map_or(self.topic.as_str(), |topic| topic.as_str());
        let Some(slice) = deliveries.slices.first() else { return Ok(()) };
        let partition = slice.parsed().map_err(|error| broken(&error))?.header().partition;
        for (record, _) in deliveries.records().map_err(|error| broken(&error))? {
            place.taken.msgs += 1;
            place.taken.bytes += record.size as u64;
            self.left = self.left.map(|left| left.saturating_sub(1));
            self.printer.record(topic, partition, &record, None);
        }
        Ok(())
    }

    /// Raises the limit once half of it is used; true if it is higher.
    fn raise(&self, place: &mut Place) -> bool {
        let credit = self.args.credit;
        let bytes = credit.saturating_mul(4 << 10).max(1 << 20);
        let (taken, granted) = (place.taken, place.granted);
        let is_low = granted.msgs.saturating_sub(taken.msgs) <= credit / 2
            || granted.bytes.saturating_sub(taken.bytes) <= bytes / 2;
        if !is_low {
            return false;
        }
        let msgs = taken.msgs + self.left.map_or(credit, |left| left.min(credit));
        let raised = Limit { msgs: granted.msgs.max(msgs), bytes: granted.bytes.max(taken.bytes + bytes) };
        place.granted = raised;
        raised != granted
    }
}

/// Sends what was put, and gives back what was not printed: whoever comes next need not wait. What is on its
/// way is taken, since what a socket has when it is closed breaks the connection, and then what was sent need
/// not be read.
async fn leave(wire: &mut Wire) -> Result<(), WireError> {
    wire.put(Channel::CONNECTION, &ClientFrame::Bye(Bye::default()));
    wire.flush().await?;
    loop {
        wire.next().await?;
    }
}

/// Says which partitions of a stream are read here, as others come and go.
fn note_share(share: &ShareChange) {
    let names = |parts: &[PartitionOf]| {
        let name = |part: &PartitionOf| match &part.topic {
            Some(topic) => format!("{topic}:{}", part.p),
            None => part.p.to_string(),
        };
        parts.iter().map(name).collect::<Vec<_>>().join(", ")
    };
    if share.gained.is_empty() && share.lost.is_empty() {
        output::note(format_args!("others read all partitions; this one waits"));
    }
    if !share.lost.is_empty() {
        output::note(format_args!("read by another from now on: {}", names(&share.lost)));
    }
    if !share.gained.is_empty() {
        output::note(format_args!("reads from now on: {}", names(&share.gained)));
    }
}
