//! One run over as many connections as it takes. What is not confirmed is kept and sent again.

use std::collections::VecDeque;

use anyhow::bail;
use indicatif::ProgressBar;
use tokio::sync::mpsc;
use weir_protocol::batch::{Headers, HeadersBuilder, RecordParts};
use weir_protocol::ids::{Epoch, Incarnation, ProducerKey, Seq, hash128};
use weir_protocol::rpc::Level;
use weir_protocol::ws::{Bye, Channel, ClientFrame, Limit, Open, Opened, Producer, Reject, ServerFrame};

use super::batches::{Batches, Pending, alone_below};
use super::identity::Identity;
use super::source::{Chunk, Input};
use crate::args::{Connect, PubArgs};
use crate::client::{Wire, WireError, code_of, refusal};

const CH: Channel = Channel(1);
/// Batches that wait for their confirm at most; the gateway's credit is usually less.
const PENDING_MAX: usize = 256;

/// How a run ended.
pub(super) enum Ended {
    /// Everything is confirmed.
    All,
    /// The input has fewer messages than an earlier run had published of it: this many.
    Shorter(u64),
    /// The input has another message under this number, from 1, than an earlier run had published.
    Changed(u64),
    /// The user stopped it.
    Interrupted,
}

/// The run.
pub(super) struct Session<'a> {
    connect: &'a Connect,
    args: &'a PubArgs,
    identity: &'a Identity,
    input: mpsc::Receiver<Chunk>,
    /// The last connection had a channel.
    was_open: bool,
    /// Nothing more is to be read; why not, if that was an error.
    is_read: bool,
    failed: Option<String>,
    /// Number of a message that is not the one that an earlier run had published.
    changed: Option<u64>,
    headers: Headers,
    life: Option<Incarnation>,
    /// Most that the gateway says it always takes together.
    agreed: Limit,
    /// Most bytes of a message on the last gateway.
    record_bytes_max: u64,
    /// Numbers below may be stored, in batches cut otherwise.
    alone_below: u64,
    /// Messages are to be archived, or may have to be: that the topic has them says nothing of it.
    is_archived: bool,
    next_seq: u64,
    /// Numbers below are confirmed.
    confirmed: u64,
    /// Numbers below were confirmed before this run.
    skipped: u64,
    to_skip: u64,
    pending: VecDeque<Pending>,
    progress: ProgressBar,
}

/// One connection's share of it.
struct Connection {
    wire: Wire,
    limit: Limit,
    sent: Limit,
    /// How many of the pending batches have gone out on it.
    out: usize,
}

impl<'a> Session<'a> {
    pub(super) fn new(
        connect: &'a Connect,
        args: &'a PubArgs,
        identity: &'a Identity,
        input: mpsc::Receiver<Chunk>,
        progress: ProgressBar,
    ) -> Self {
        let mut headers = HeadersBuilder::default();
        let default = if args.key_json.is_some() { "application/json" } else { "text/plain" };
        headers.content_type(args.content_type.as_deref().unwrap_or(default));
        for (name, value) in &args.header {
            headers.user(name, value.as_bytes()).expect("it was a name when it was typed");
        }
        Self {
            connect,
            args,
            identity,
            input,
            was_open: false,
            is_read: false,
            failed: None,
            changed: None,
            headers: headers.finish(),
            life: None,
            agreed: Limit::default(),
            record_bytes_max: u64::MAX,
            alone_below: 0,
            is_archived: args.confirm.as_deref().is_none_or(|level| level == "archived"),
            next_seq: 0,
            confirmed: 0,
            skipped: 0,
            to_skip: 0,
            pending: VecDeque::new(),
            progress,
        }
    }

    pub(super) fn confirmed(&self) -> u64 {
        self.confirmed
    }

    pub(super) fn skipped(&self) -> u64 {
        self.skipped
    }

    /// The last connection did what it was for: something was confirmed beyond `before`, or there was nothing to send.
    pub(super) fn got_on(&self, before: u64) -> bool {
        self.confirmed > before || (self.was_open && self.pending.is_empty())
    }

    /// Publishes over one connection until all is confirmed or the connection is lost.
    ///
    /// # Errors
    /// [`WireError::Lost`]: call it again.
    pub(super) async fn run(&mut self) -> Result<Ended, WireError> {
        self.was_open = false;
        let mut connection = self.open().await?;
        loop {
            self.send(&mut connection).await?;
            if self.is_read && self.pending.is_empty() {
                connection.wire.put(Channel::CONNECTION, &ClientFrame::Bye(Bye::default()));
                connection.wire.flush().await?;
                return match (self.failed.take(), self.changed) {
                    (Some(why), _) => Err(WireError::Final(why)),
                    (None, Some(seq)) => Ok(Ended::Changed(seq + 1)),
                    (None, None) if self.to_skip > 0 => Ok(Ended::Shorter(self.skipped - self.to_skip)),
                    (None, None) => Ok(Ended::All),
                };
            }
            let is_sent = connection.out == self.pending.len();
            let has_room = !self.is_read && self.pending.len() < PENDING_MAX && is_sent;
            tokio::select! {
                frame = connection.wire.next() => self.take(frame?.1, &mut connection)?,
                chunk = self.input.recv(), if has_room => self.read(chunk),
            }
        }
    }

    /// Opens the channel and learns what the gateway has: that is confirmed, unless it is to be archived, and
    /// the rest goes out again.
    async fn open(&mut self) -> Result<Connection, WireError> {
        let mut wire = Wire::connect(self.connect, Vec::new()).await?;
        let open = Open {
            ns: Some(self.connect.namespace.clone()),
            topic: self.args.topic.clone(),
            producer: Some(Producer { id: self.identity.id.clone(), epoch: self.identity.epoch }),
            confirm: self.args.confirm.as_deref().and_then(Level::from_text).into_iter().collect(),
        };
        wire.put(CH, &ClientFrame::Open(open));
        wire.flush().await?;
        let opened = match wire.next().await? {
            (_, ServerFrame::Opened(opened)) => opened,
            (_, ServerFrame::Err(refused)) => {
                let refused = (code_of(&refused.problem), refusal("", &refused.problem));
                return Err(match refused {
                    (Some(code), WireError::Final(why)) if code == "topic_not_found" => {
                        WireError::Final(format!("{why}. With --create this command creates it"))
                    }
                    (_, refused) => refused,
                });
            }
            (_, other) => return Err(WireError::Final(format!("open was answered with {other:?}"))),
        };
        self.record_bytes_max = wire.limits().record_bytes;
        self.opened(&opened)?;
        Ok(Connection { wire, limit: opened.pub_limit, sent: Limit::default(), out: 0 })
    }

    fn opened(&mut self, opened: &Opened) -> Result<(), WireError> {
        let life = Incarnation(opened.inc);
        let is_first = self.life.is_none();
        if *self.life.get_or_insert(life) != life {
            return Err(WireError::Final("the topic was deleted and created anew meanwhile".to_owned()));
        }
        let known = opened.last_seq.map_or(0, |last| last + 1);
        if is_first {
            (self.next_seq, self.skipped, self.to_skip) = (known, known, known);
        }
        // What comes again is recognised, and its confirm says that it is archived.
        if is_first || !self.is_archived {
            self.confirmed_to(known);
        }
        (self.agreed, self.was_open) = (opened.pub_limit, true);
        // What was stored in part is refused if it comes again in one batch. Of one partition the gateway
        // knows the last number, and a producer that begins has sent nothing.
        let may_repeat = opened.partitions > 1 && (!is_first || self.args.resume);
        self.alone_below = if may_repeat { alone_below(known) } else { 0 };
        let (batches, mut fitting) = (self.batches(), VecDeque::new());
        for pending in self.pending.drain(..) {
            batches.cut_again(pending, &mut fitting).map_err(|error| WireError::Final(error.to_string()))?;
        }
        self.pending = fitting;
        Ok(())
    }

    /// A confirm is of the level that was asked for, or that the topic waits for if none was.
    fn told(&mut self, level: Level) {
        self.is_archived = level == Level::Archived;
    }

    fn batches(&self) -> Batches {
        let producer = ProducerKey::of(self.life.unwrap_or(Incarnation(0)), &self.identity.id);
        Batches {
            producer,
            epoch: Epoch(self.identity.epoch),
            agreed: self.agreed,
            alone_below: self.alone_below,
        }
    }

    fn confirmed_to(&mut self, end: u64) {
        self.confirmed = self.confirmed.max(end);
        while let Some(done) = self.pending.pop_front_if(|pending| pending.end <= end) {
            self.progress.inc(done.input_bytes);
        }
        self.progress.set_message(format!("{} confirmed", self.confirmed));
    }

    /// Takes what was read: the first of it belongs to an earlier run, the rest waits to be sent.
    fn read(&mut self, chunk: Option<Chunk>) {
        let mut records = match chunk {
            Some(Ok(records)) => records,
            Some(Err(error)) => {
                self.failed = Some(format!("{error:#}"));
                self.is_read = true;
                return;
            }
            None => {
                self.is_read = true;
                return;
            }
        };
        self.changed = self.changed_in(&records);
        if self.changed.is_some() {
            self.is_read = true;
            return self.input.close();
        }
        let skipped = usize::try_from(self.to_skip).unwrap_or(usize::MAX).min(records.len());
        self.to_skip -= skipped as u64;
        for record in records.drain(..skipped) {
            self.progress.inc(record.value.len() as u64 + 1);
        }
        if let Err(error) = self.queue(&records) {
            self.failed = Some(error.to_string());
            self.is_read = true;
            self.input.close();
        }
    }

    /// The first of what comes next that is not what an earlier run has published.
    fn changed_in(&self, records: &[Input]) -> Option<u64> {
        let is_another = |(seq, record): &(u64, &Input)| {
            self.identity.stored.get(seq).is_some_and(|digest| *digest != hash128(&[&record.value]))
        };
        (self.next_seq - self.to_skip..).zip(records).find(is_another).map(|(seq, _)| seq)
    }

    /// Puts records into batches, each as large as one may be.
    fn queue(&mut self, records: &[Input]) -> anyhow::Result<()> {
        let (batches, headers) = (self.batches(), &self.headers);
        // The gateway would refuse all of a batch for it, by the number of the first.
        let is_too_large = |record: &Input| record.value.len() as u64 > self.record_bytes_max;
        let (fitting, rest) =
            records.split_at(records.iter().position(is_too_large).unwrap_or(records.len()));
        let parts = fitting.iter().map(|record| RecordParts {
            key: record.key.as_deref(),
            headers,
            value: &record.value,
        });
        let cut = batches.cut(&mut self.next_seq, parts, &mut self.pending);
        let name = |seq| named(self.args, seq, 1);
        cut.map_err(|error| anyhow::anyhow!("{}: {error}", name(self.next_seq)))?;
        if let Some(large) = rest.first() {
            let (bytes, most) = (large.value.len(), self.record_bytes_max);
            bail!(
                "{} has {bytes} bytes, and the gateway takes {most} at most: its --record-max",
                name(self.next_seq)
            );
        }
        Ok(())
    }

    /// Sends what credit allows.
    async fn send(&mut self, connection: &mut Connection) -> Result<(), WireError> {
        while let Some(pending) = self.pending.get(connection.out) {
            let header = pending.batch.header();
            let (count, bytes) = (u64::from(header.count), u64::from(header.raw_bytes));
            let (limit, sent) = (connection.limit, connection.sent);
            let fits = sent.msgs + count <= limit.msgs && sent.bytes + bytes <= limit.bytes;
            // A record larger than all credit goes once everything before it is done.
            let overshoots = count == 1 && sent.msgs < limit.msgs && sent.bytes < limit.bytes;
            if !(fits || overshoots) {
                break;
            }
            let first_seq = Seq(pending.end - count);
            connection.wire.put(CH, &ClientFrame::PubBatch { first_seq, batch: pending.batch.clone() });
            connection.sent = Limit { msgs: sent.msgs + count, bytes: sent.bytes + bytes };
            connection.out += 1;
        }
        connection.wire.flush().await?;
        if self.args.confirm.as_deref() == Some("none") {
            let sent = self.pending.iter().take(connection.out).last().map_or(0, |last| last.end);
            self.confirmed_to(sent);
            connection.out = 0;
        }
        Ok(())
    }

    fn take(&mut self, frame: ServerFrame, connection: &mut Connection) -> Result<(), WireError> {
        match frame {
            ServerFrame::Confirm(confirm) => {
                self.told(confirm.level);
                let before = self.pending.len();
                if let Some(upto) = confirm.upto {
                    self.confirmed_to(upto + 1);
                }
                connection.out = connection.out.saturating_sub(before - self.pending.len());
            }
            ServerFrame::PubLimit(limit) => connection.limit = limit,
            ServerFrame::Reject(reject) => return Err(rejected(self.args, &reject)),
            ServerFrame::Err(refused) => return Err(refusal("", &refused.problem)),
            ServerFrame::Goaway(_) => return Err(WireError::Lost("the gateway is shutting down".to_owned())),
            // Frames of a newer gateway that change nothing for a publisher.
            _ => {}
        }
        Ok(())
    }
}

/// Messages from number `seq` on, as whoever wrote them counts.
fn named(args: &PubArgs, seq: u64, count: u32) -> String {
    let (noun, first) = (if args.lines { "line" } else { "message" }, seq + 1);
    match u64::from(count) {
        0 | 1 => format!("{noun} {first}"),
        count => format!("{noun}s {first} to {}", seq + count),
    }
}

/// The producer triple makes it safe to send again what may have been stored.
fn rejected(args: &PubArgs, reject: &Reject) -> WireError {
    #[derive(serde::Deserialize)]
    struct Judged {
        #[serde(default)]
        outcome: String,
    }
    let judged = serde_json::from_str::<Judged>(reject.problem.get());
    match (refusal(&format!("{}: ", named(args, reject.seq, reject.n)), &reject.problem), judged) {
        (WireError::Final(text), Ok(judged)) if judged.outcome == "unknown" => WireError::Lost(text),
        (refusal, _) => refusal,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use clap::Parser as _;

    use super::*;
    use crate::args::{Args, Command};

    fn opened(last_seq: Option<u64>) -> Opened {
        Opened { last_seq, inc: 1, partitions: 1, pub_limit: Limit { msgs: 100, bytes: 1 << 20 } }
    }

    /// A run that publishes three messages, and whether its first connection got on: before it had them, and with them.
    fn with_three<T>(confirm: &str, then: impl FnOnce(Session<'_>, (bool, bool)) -> T) -> T {
        let line = ["weir", "pub", "t", "--lines", "--confirm", confirm];
        // Of the topic's own level nothing is asked.
        let line = if confirm.is_empty() { &line[..4] } else { &line[..] };
        let Args { connect, command: Command::Pub(args) } = Args::parse_from(line) else {
            panic!("{line:?}")
        };
        let identity = Identity { id: "p".to_owned(), epoch: 0, is_resumable: true, stored: BTreeMap::new() };
        let (_sender, input) = mpsc::channel(1);
        let mut session = Session::new(&connect, &args, &identity, input, ProgressBar::hidden());
        assert!(!session.got_on(0), "it was never connected");
        session.opened(&opened(None)).unwrap();
        let empty = session.got_on(0);
        let records = [1, 2, 3].map(|value| Input { key: None, value: vec![value] });
        session.queue(&records).unwrap();
        let full = session.got_on(0);
        then(session, (empty, full))
    }

    /// What is confirmed and what goes out again of three messages, if a connection was lost when the topic had them.
    fn left_of_three(confirm: &str, told: Option<Level>) -> (u64, usize) {
        with_three(confirm, |mut session, _| {
            told.into_iter().for_each(|level| session.told(level));
            session.opened(&opened(Some(2))).unwrap();
            (session.confirmed(), session.pending.len())
        })
    }

    #[test]
    fn a_connection_with_nothing_to_send_is_no_failure() {
        with_three("quorum", |mut session, got_on| {
            assert_eq!(got_on, (true, false));
            session.opened(&opened(Some(2))).unwrap();
            assert!(session.got_on(0), "the topic has them");
            assert!(session.got_on(3), "and there is nothing more");
        });
    }

    #[test]
    fn what_the_topic_has_is_confirmed_unless_it_is_to_be_archived() {
        assert_eq!(left_of_three("quorum", None), (3, 0));
        assert_eq!(left_of_three("archived", None), (0, 1));
        assert_eq!(left_of_three("", Some(Level::Quorum)), (3, 0));
        assert_eq!(left_of_three("", Some(Level::Archived)), (0, 1), "by the topic's default");
        assert_eq!(left_of_three("", None), (0, 1), "whatever that is");
    }
}
