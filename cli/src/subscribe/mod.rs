//! `weir sub`: follows topics, or consumes a subscription, and prints what comes, within credit, over as many
//! connections as it takes.
//!
//! ```text
//!   gateway ── deliveries ──▶ run ──▶ print ──▶ standard output
//!      ▲──────── credit ───────┘ raised only as lines are written
//! ```

mod closing;
mod consume;
mod position;
mod print;

use std::time::Duration;

use anyhow::bail;
use weir_protocol::rpc::{At, Level};
use weir_protocol::start::{Start, parse_from};
use weir_protocol::ws::{
    Bye, CaughtUp, Channel, ClientFrame, Deliveries, Firm, Gap, Limit, Retract, ServerFrame, Sub,
};

use self::closing::Closing;
use self::position::Position;
use self::print::{Event, Printer};
use crate::args::{Connect, SubArgs};
use crate::client::{Backoff, Stop, Wire, WireError, code_of, refusal};
use crate::output;

/// Without a subscription for this long, it gives up.
const STUCK_TIME_MAX: Duration = Duration::from_secs(300);

/// Of a run that was to print so much, or what there was.
const INTERRUPTED: &str = "interrupted: what was asked for is not all printed";

/// What is followed on one channel.
struct Follow {
    topic: String,
    position: Position,
    closing: Closing,
    /// Records and bytes taken since the channel was opened, and the credit given.
    taken: Limit,
    granted: Limit,
}

/// A run.
struct Run<'a> {
    connect: &'a Connect,
    args: &'a SubArgs,
    from: Start,
    follows: Vec<Follow>,
    printer: Printer,
    left: Option<u64>,
}

/// Follows until it has what was asked for.
pub(crate) async fn run(connect: &Connect, args: &SubArgs) -> anyhow::Result<()> {
    if let Some(name) = &args.subscription {
        return consume::run(connect, args, name).await;
    }
    let from = parse_from(&args.from).map_err(|error| anyhow::anyhow!("--from: {error}"))?;
    if args.no_follow && from == Start::At(At::Latest(true)) {
        output::note("--no-follow prints what there is behind --from, which is `latest`: nothing");
    }
    let follow = |topic: &String| Follow {
        topic: topic.clone(),
        position: Position::default(),
        closing: Closing::default(),
        taken: Limit::default(),
        granted: Limit::default(),
    };
    let follows: Vec<_> = args.topics.iter().map(follow).collect();
    let printer = Printer::new(connect.json, follows.len() > 1);
    let mut run = Run { connect, args, from, follows, printer, left: args.count };
    reconnecting(async |backoff, stop| {
        let ended = tokio::select! {
            biased;
            () = stop.wanted() => Ok(()),
            ended = run.connected(backoff) => ended,
        };
        run.printer.flush();
        ended
    })
    .await?;
    // Whoever asked for an end relies on it: `weir sub … --no-follow > copy && …`.
    let has_end = args.no_follow || args.count.is_some();
    anyhow::ensure!(run.is_done() || !has_end, INTERRUPTED);
    Ok(())
}

/// Makes connections until one has all that was asked for, or the reason why one ended does not pass.
async fn reconnecting(
    mut connection: impl AsyncFnMut(&mut Backoff, &mut Stop) -> Result<(), WireError>,
) -> anyhow::Result<()> {
    let (mut backoff, mut stop) = (Backoff::new(STUCK_TIME_MAX), Stop::catch()?);
    loop {
        match connection(&mut backoff, &mut stop).await {
            Ok(()) => return Ok(()),
            Err(WireError::Final(why)) => bail!(why),
            Err(WireError::Lost(why)) => {
                if backoff.is_fresh() {
                    output::note(format_args!("{why}; trying again"));
                }
                let goes_on = tokio::select! {
                    biased;
                    () = stop.wanted() => return Ok(()),
                    goes_on = backoff.wait() => goes_on,
                };
                if !goes_on {
                    bail!(why);
                }
            }
        }
    }
}

impl Run<'_> {
    /// One connection. On return there is nothing more to do.
    async fn connected(&mut self, backoff: &mut Backoff) -> Result<(), WireError> {
        let channels = (1..).zip(&self.follows).filter_map(|(ch, follow)| follow.position.resume(ch));
        let mut wire = Wire::connect(self.connect, channels.collect()).await?;
        for number in 0..self.follows.len() {
            let sub = self.subscription(number);
            wire.put(channel(number), &ClientFrame::Sub(sub));
        }
        wire.flush().await?;
        while !self.is_done() {
            let (ch, frame) = wire.next().await?;
            if matches!(frame, ServerFrame::Subscribed(_)) {
                backoff.progressed();
            }
            self.take(ch, frame)?;
            if !wire.has_next() {
                // What is printed is taken: only now it is worth new credit.
                self.printer.flush();
                self.give_credit(&mut wire).await?;
            }
        }
        wire.put(Channel::CONNECTION, &ClientFrame::Bye(Bye::default()));
        wire.flush().await
    }

    fn subscription(&mut self, number: usize) -> Sub {
        let (credit, left) = (self.credit(), self.left);
        let follow = &mut self.follows[number];
        follow.taken = Limit::default();
        follow.granted = Limit { msgs: left.map_or(credit.msgs, |left| left.min(credit.msgs)), ..credit };
        Sub {
            ns: Some(self.connect.namespace.clone()),
            topic: Some(follow.topic.clone()),
            p: self.args.partition,
            from: Some(follow.position.from(&self.from)),
            min_level: self.args.min_level.as_deref().and_then(Level::from_text),
            filter: self.args.filter.clone(),
            limit: follow.granted,
            ..Sub::default()
        }
    }

    fn credit(&self) -> Limit {
        Limit { msgs: self.args.credit, bytes: self.args.credit.saturating_mul(4 << 10).max(1 << 20) }
    }

    fn is_done(&self) -> bool {
        let has_all = self.left == Some(0);
        has_all || (self.args.no_follow && self.follows.iter().all(|follow| follow.position.is_caught_up()))
    }

    fn take(&mut self, ch: Channel, frame: ServerFrame) -> Result<(), WireError> {
        let number = usize::from(ch.0).wrapping_sub(1);
        let Some(follow) = self.follows.get_mut(number) else {
            return match frame {
                ServerFrame::Err(refused) => Err(refusal("", &refused.problem)),
                ServerFrame::Goaway(_) => Err(WireError::Lost("the gateway is shutting down".to_owned())),
                _ => Ok(()),
            };
        };
        match frame {
            ServerFrame::Deliveries(deliveries) => return self.print(number, &deliveries),
            ServerFrame::Subscribed(started) => {
                if follow.position.started(&started, self.args.partition) {
                    output::note(format_args!("{}: some messages may be missing here", follow.topic));
                }
                follow.closing.started(started.parts.len().max(1));
            }
            ServerFrame::CaughtUp(CaughtUp { p: partition, end, closed }) => {
                follow.position.caught_up(partition, end);
                let topic = &follow.topic;
                match follow.closing.caught_up(partition, closed) {
                    Some(true) => self.printer.event(&Event::Closed { topic }),
                    Some(false) => self.printer.event(&Event::Opened { topic }),
                    None => {}
                }
            }
            ServerFrame::Gap(gap) => {
                note_gap(&follow.topic, &gap);
                follow.position.skipped(gap.p, gap.to);
            }
            ServerFrame::Looked(looked) => follow.position.looked(looked.p, looked.upto),
            ServerFrame::Firm(Firm { p: partition, upto }) => {
                self.printer.event(&Event::Firm { topic: &follow.topic, partition, upto });
                follow.position.firm(partition, upto);
            }
            ServerFrame::Retract(Retract { p: partition, from, to, term }) => {
                self.printer.event(&Event::Retract { topic: &follow.topic, partition, from, to, term });
                follow.position.skipped(partition, from);
            }
            ServerFrame::Err(refused) => {
                let is_parameter = code_of(&refused.problem).as_deref() == Some("invalid_parameter");
                let is_offset =
                    matches!(self.from, Start::At(At::Offset(_))) && self.args.partition.is_none();
                return Err(match refusal(&format!("{}: ", follow.topic), &refused.problem) {
                    WireError::Final(why) if is_parameter && is_offset => {
                        WireError::Final(format!("{why}. Here --partition N names it"))
                    }
                    why => why,
                });
            }
            // Frames of a newer gateway.
            _ => {}
        }
        Ok(())
    }

    fn print(&mut self, number: usize, deliveries: &Deliveries) -> Result<(), WireError> {
        let broken =
            |error: &dyn std::fmt::Display| WireError::Final(format!("a delivery cannot be read: {error}"));
        let follow = &mut self.follows[number];
        let term = deliveries.staged.map(|term| term.0);
        let mut n = deliveries.n;
        for slice in &deliveries.slices {
            let batch = slice.parsed().map_err(|error| broken(&error))?;
            let partition = batch.header().partition;
            let records = batch.records().map_err(|error| broken(&error))?;
            for record in records.within(slice.first, slice.take) {
                let record = record.map_err(|error| broken(&error))?;
                follow.taken.msgs += 1;
                follow.taken.bytes += record.size as u64;
                if self.left != Some(0) {
                    self.printer.record(&follow.topic, partition, &record, term);
                    self.left = self.left.map(|left| left - 1);
                }
                follow.position.took(n, partition.0, record.offset.0, term);
                n += 1;
            }
        }
        Ok(())
    }

    /// Raises each limit once half of it is used.
    async fn give_credit(&mut self, wire: &mut Wire) -> Result<(), WireError> {
        let credit = self.credit();
        for (number, follow) in self.follows.iter_mut().enumerate() {
            let left = Limit {
                msgs: follow.granted.msgs.saturating_sub(follow.taken.msgs),
                bytes: follow.granted.bytes.saturating_sub(follow.taken.bytes),
            };
            if left.msgs > credit.msgs / 2 && left.bytes > credit.bytes / 2 {
                continue;
            }
            let more = self.left.map_or(credit.msgs, |left| left.min(credit.msgs));
            let raised = Limit { msgs: follow.taken.msgs + more, bytes: follow.taken.bytes + credit.bytes };
            if raised.msgs > follow.granted.msgs || raised.bytes > follow.granted.bytes {
                follow.granted = raised;
                wire.put(channel(number), &ClientFrame::Limit(raised));
            }
        }
        wire.flush().await
    }
}

fn channel(number: usize) -> Channel {
    Channel(u16::try_from(number + 1).expect("the command line holds fewer topics"))
}

fn note_gap(topic: &str, gap: &Gap) {
    output::note(format_args!(
        "{topic}: messages {} to {} of partition {} no longer exist ({})",
        gap.from,
        gap.to.saturating_sub(1),
        gap.p,
        gap.why
    ));
}
