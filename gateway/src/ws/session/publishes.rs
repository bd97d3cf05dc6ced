//! Publishes: from frames to calls, from confirms to frames.

use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;
use weir_protocol::batch::{Batch, HeadersBuilder, Record, RecordParts};
use weir_protocol::error::ErrorCode;
use weir_protocol::ids::Seq;
use weir_protocol::limits::{INTEGER_MAX, SUB_BATCH_BYTES_TARGET, WS_CHANNELS_MAX};
use weir_protocol::rpc::{Level, Stages};
use weir_protocol::ws::{Channel, CloseCode, ContentError, FrameType, Pub, Reject, ServerFrame, StageMicros};

use super::{Now, Session, State};
use crate::api::{Current, Problem};
use crate::service::ServiceError;
use crate::service::publish::{ChannelPart, Confirm, Content, NewRecord, Unnamed, is_old_duplicate};
use crate::ws::amount::Amount;
use crate::ws::effect::{Closing, Effect, Use};
use crate::ws::granting::ROUND;
use crate::ws::publishing::{BadSeq, Publishing, Reached};

/// Records that become one call at most.
const CALL_RECORDS_MAX: usize = 1_000;

const _: () = assert!(WS_CHANNELS_MAX < u16::MAX as usize, "channels are numbered by u16");

/// Records that were handed to the publisher together.
#[derive(Debug)]
pub(super) struct Call {
    of: Use,
    first: u64,
    count: u64,
    amount: Amount,
    received: Instant,
    /// Batches whose last confirm is to come.
    parts_left: usize,
}

/// The batch that a ticket stands for.
#[derive(Debug)]
pub(super) struct TicketOf {
    call: u64,
    part: CallPart,
}

/// One batch of a call.
#[derive(Debug)]
pub(in crate::ws) struct CallPart {
    pub(in crate::ws) partition: u32,
    /// Places of its records in the call.
    pub(in crate::ws) records: Vec<Range<u32>>,
}

impl CallPart {
    /// A part whose records are counted from the `first` of the call.
    pub(in crate::ws) fn new(part: ChannelPart, first: u32) -> Self {
        let records = part.records.into_iter().map(|range| range.start + first..range.end + first).collect();
        Self { partition: part.partition.0, records }
    }
}

impl Session {
    /// The number that the next batch's ticket will have.
    pub(in crate::ws) fn next_ticket(&self) -> u64 {
        self.tickets.next()
    }

    pub(super) fn publish(&mut self, now: Now, ch: Channel, publish: &Pub) {
        let Some(publishing) = self.publisher(ch) else {
            return self.wrong_publisher(ch);
        };
        let record = record_of(publish);
        let bytes = match &record {
            Ok(record) => size_of(record),
            // Whatever it is, it was sent: about as long as its payload.
            Err(_) => publish.data.as_ref().map_or(0, |data| data.get().len()) as u64,
        };
        let amount = Amount { msgs: 1, bytes };
        if !publishing.granting.spend(amount, bytes) {
            return self.credit_violation(ch);
        }
        if let Err(bad) = publishing.take_seq(publish.seq, 1) {
            return self.reject_untaken(ch, publish.seq, amount, &bad_seq(bad));
        }
        match record {
            Err(problem) => self.reject_whole(ch, publish.seq, amount, &problem),
            Ok(record) => self.wait_for_turn(now, ch, publish.seq, record, amount),
        }
    }

    /// Records that follow each other become one batch at the end of the turn.
    fn wait_for_turn(&mut self, now: Now, ch: Channel, seq: u64, record: NewRecord, amount: Amount) {
        let Some(publishing) = self.publishing(ch) else { return };
        let waiting = publishing.waiting.len();
        let from = publishing.waiting_from;
        let follows = from + waiting as u64 == seq && seq < publishing.run_end(from);
        let total = publishing.waiting_amount.plus(amount);
        let is_full = waiting >= CALL_RECORDS_MAX || total.bytes > SUB_BATCH_BYTES_TARGET as u64;
        if waiting > 0 && (!follows || is_full) {
            self.publish_waiting(now, ch);
        }
        let Some(publishing) = self.publishing(ch) else { return };
        if publishing.waiting.is_empty() {
            publishing.waiting_from = seq;
        }
        publishing.waiting.push(record);
        publishing.waiting_amount = publishing.waiting_amount.plus(amount);
        self.touch(ch);
    }

    pub(super) fn publish_batch(&mut self, now: Now, ch: Channel, seq: Seq, batch: Batch) {
        let header = batch.header();
        let amount = Amount { msgs: u64::from(header.count), bytes: u64::from(header.raw_bytes) };
        let Some(publishing) = self.publisher(ch) else {
            return self.wrong_publisher(ch);
        };
        // Which of its records may overshoot is looked up only if one does.
        let last = if publishing.granting.fits(amount) { Some(0) } else { last_record_bytes(&batch) };
        let Some(last) = last else {
            return self.bad_frame(ch, "the batch's records cannot be read");
        };
        if !publishing.granting.spend(amount, last) {
            return self.credit_violation(ch);
        }
        if let Err(bad) = publishing.take_seq(seq.0, amount.msgs) {
            return self.reject_untaken(ch, seq.0, amount, &bad_seq(bad));
        }
        // One that says itself to be something else is refused as it is.
        let is_other = !header.producer.is_none() && header.base_seq != seq;
        let is_whole = is_other || publishing.run_end(seq.0) - seq.0 >= amount.msgs;
        self.publish_waiting(now, ch);
        if is_whole {
            self.call(now, ch, seq, Content::Batches(vec![batch]), amount);
        } else if self.divide(now, ch, seq, &batch, amount).is_none() {
            return self.bad_frame(ch, "the batch's records cannot be read");
        }
        // What it has under way is counted at the end of the turn.
        self.touch(ch);
    }

    /// Makes calls of the records of a batch of which some may be known; `None` if they cannot be read.
    fn divide(&mut self, now: Now, ch: Channel, seq: Seq, batch: &Batch, amount: Amount) -> Option<()> {
        let records: Vec<_> = batch.records().ok()?.collect::<Result<_, _>>().ok()?;
        let mut records = records.into_iter().peekable();
        let (mut at, mut bytes_left) = (seq.0, amount.bytes);
        while records.peek().is_some() {
            let end = self.publishing(ch)?.run_end(at);
            let most = usize::try_from(end - at).unwrap_or(usize::MAX).min(CALL_RECORDS_MAX);
            let run: Vec<_> = records.by_ref().take(most).collect();
            let msgs = run.len() as u64;
            // What the batch itself takes is counted with its last records.
            let own = run.iter().map(|record| record.size as u64).sum::<u64>().min(bytes_left);
            let bytes = if records.peek().is_some() { own } else { bytes_left };
            bytes_left -= bytes;
            let new =
                |Record { key, headers, value, .. }: Record| NewRecord { key, headers, value, unnamed: None };
            let content = Content::Records(run.into_iter().map(new).collect());
            self.call(now, ch, Seq(at), content, Amount { msgs, bytes });
            at += msgs;
        }
        Some(())
    }

    /// Makes one call of the records that wait.
    pub(super) fn publish_waiting(&mut self, now: Now, ch: Channel) {
        let Some(publishing) = self.publishing(ch) else { return };
        if publishing.waiting.is_empty() {
            return;
        }
        let records = std::mem::take(&mut publishing.waiting);
        let amount = std::mem::take(&mut publishing.waiting_amount);
        let seq = Seq(publishing.waiting_from);
        self.call(now, ch, seq, Content::Records(records), amount);
    }

    fn call(&mut self, now: Now, ch: Channel, seq: Seq, content: Content, amount: Amount) {
        let Some(of) = self.slots.get(&ch).map(|slot| Use { ch, generation: slot.generation }) else {
            return;
        };
        if let Some(publishing) = self.publishing(ch) {
            publishing.in_flight += 1;
        }
        let call = self.calls.push(Call {
            of,
            first: seq.0,
            count: amount.msgs,
            amount,
            received: now.instant,
            parts_left: 0,
        });
        self.effects.push(Effect::Publish { of, call, seq, content });
    }

    /// The publisher took a call, in these batches; the first has the ticket [`Session::next_ticket`]. The records at
    /// the places in `refused` it did not take.
    pub(in crate::ws) fn sent(&mut self, call: u64, parts: Vec<CallPart>, refused: &[(u32, ServiceError)]) {
        let number = call;
        let Some(call) = self.calls.get_mut(number) else { return };
        call.parts_left = parts.len();
        let (of, first) = (call.of, call.first);
        for (place, failure) in refused {
            self.failed(of, first + u64::from(*place), 1, failure);
        }
        if parts.is_empty()
            && let Some(call) = self.calls.take(number)
        {
            return self.finish_call(&call);
        }
        for part in parts {
            self.tickets.push(TicketOf { call: number, part });
        }
    }

    /// The publisher refused a call as a whole.
    pub(in crate::ws) fn refused(&mut self, call: u64, failure: &ServiceError) {
        let Some(call) = self.calls.take(call) else { return };
        self.failed(call.of, call.first, call.count, failure);
        self.finish_call(&call);
    }

    /// A batch reached a level, or failed. Where the time went, if that was its last level and a node told.
    pub(in crate::ws) fn confirmed(&mut self, now: Now, confirm: Confirm) -> Option<StageMicros> {
        let is_last = confirm.is_last;
        let mut took = None;
        let ticket = self.tickets.get_mut(confirm.ticket)?;
        let number = ticket.call;
        let call = self.calls.get_mut(number)?;
        let (of, first, received) = (call.of, call.first, call.received);
        match confirm.result {
            Ok(placed) => {
                let us = stages(confirm.stages, confirm.round_trip, now.instant - received);
                took = confirm.stages.filter(|_| is_last).map(|_| us);
                let reached = Reached { level: confirm.level, partition: ticket.part.partition, placed, us };
                // Taken out for the call and put back, since both are parts of the session.
                let records = std::mem::take(&mut ticket.part.records);
                match self.publishing_of(of) {
                    Some(publishing) if reached.level == Level::None => publishing.gone(first, &records),
                    Some(publishing) => publishing.reached(first, &records, reached),
                    None => {}
                }
                if let Some(ticket) = self.tickets.get_mut(confirm.ticket) {
                    ticket.part.records = records;
                }
            }
            Err(failure) if is_old_duplicate(&failure) => {
                let records = ticket.part.records.clone();
                if let Some(publishing) = self.publishing_of(of) {
                    publishing.stored_before(first, &records, confirm.level == Level::Archived);
                }
            }
            Err(failure) => {
                for range in ticket.part.records.clone() {
                    let count = u64::from(range.end - range.start);
                    self.failed(of, first + u64::from(range.start), count, &failure);
                }
            }
        }
        self.touch(of.ch);
        if is_last {
            self.finish_part(confirm.ticket, number);
        }
        took
    }

    fn finish_part(&mut self, ticket: u64, number: u64) {
        self.tickets.take(ticket);
        let Some(call) = self.calls.get_mut(number) else { return };
        call.parts_left -= 1;
        if call.parts_left == 0
            && let Some(call) = self.calls.take(number)
        {
            self.finish_call(&call);
        }
    }

    fn finish_call(&mut self, call: &Call) {
        if let Some(publishing) = self.publishing_of(call.of) {
            publishing.in_flight -= 1;
            publishing.granting.finished(call.amount);
        }
        self.touch(call.of.ch);
    }

    /// Confirms and credit of a channel, at the end of a turn.
    pub(super) fn tell_publisher(&mut self, now: Now, ch: Channel) {
        let Some(publishing) = self.publishing(ch) else { return };
        let confirms: Vec<_> = publishing.take_confirms().collect();
        let limit = publishing.granting.take_limit(now.instant);
        let is_over = publishing.is_closing && publishing.in_flight == 0;
        for confirm in confirms {
            self.send(ch, ServerFrame::Confirm(confirm));
        }
        if is_over && let Some(slot) = self.slots.get(&ch) {
            return self.forget(Use { ch, generation: slot.generation });
        }
        if let Some(limit) = limit {
            self.send(ch, ServerFrame::PubLimit(limit.into()));
        }
        self.next_round.get_or_insert(now.instant + ROUND);
    }

    /// Whoever has stopped publishing leaves its share of the pool to others. If none has to be looked at
    /// again, the next round is after something comes or is answered: thousands of sockets that wait for the
    /// archive do not wake up for it.
    pub(super) fn rest_publishers(&mut self, now: Now) {
        if self.next_round.is_none_or(|round| now.instant < round) {
            return;
        }
        let mut rest = true;
        for slot in self.slots.values_mut() {
            if let State::Publishing(publishing) = &mut slot.state {
                rest &= publishing.granting.rest(now.instant);
            }
        }
        self.next_round = (!rest).then(|| now.instant + ROUND);
    }

    /// Refuses what was sent, before any call.
    fn reject_whole(&mut self, ch: Channel, seq: u64, amount: Amount, problem: &Problem) {
        if let Some(publishing) = self.publishing(ch) {
            publishing.refused(seq, amount.msgs);
        }
        self.reject_untaken(ch, seq, amount, problem);
    }

    /// The same of what was sent under numbers that it cannot have: they are those of what is under way, or
    /// still to come.
    fn reject_untaken(&mut self, ch: Channel, seq: u64, amount: Amount, problem: &Problem) {
        let Some(slot) = self.slots.get(&ch) else { return };
        let of = Use { ch, generation: slot.generation };
        self.reject(of, seq, amount.msgs, problem);
        if let Some(publishing) = self.publishing(ch) {
            publishing.granting.finished(amount);
        }
        self.touch(ch);
    }

    /// The publisher, or storage, did not take what was sent.
    fn failed(&mut self, of: Use, seq: u64, count: u64, failure: &ServiceError) {
        if failure.code() == ErrorCode::Busy
            && let Some(publishing) = self.publishing_of(of)
        {
            publishing.granting.busy();
        }
        if let Some(publishing) = self.publishing_of(of) {
            publishing.refused(seq, count);
            if failure.code() == ErrorCode::SeqOverlap {
                publishing.overlapped(failure.refusal().last_seq.unwrap_or_default());
            }
            self.reject(of, seq, count, &Problem::from(failure));
        }
    }

    fn reject(&mut self, of: Use, seq: u64, count: u64, problem: &Problem) {
        let n = u32::try_from(count).expect("a batch's count is a u32");
        let problem = self.raw(problem);
        self.send(of.ch, ServerFrame::Reject(Reject { seq, n, problem }));
    }

    fn credit_violation(&mut self, ch: Channel) {
        let detail = "more was published than pub_limit allows";
        self.refuse(ch, &Problem::new(ErrorCode::TooManyRequests, detail));
        self.close(Closing::Code(CloseCode::CreditViolation));
    }

    /// A channel that takes messages: nothing comes behind `close_pub`.
    fn publisher(&mut self, ch: Channel) -> Option<&mut Publishing> {
        self.publishing(ch).filter(|publishing| !publishing.is_closing)
    }

    fn publishing(&mut self, ch: Channel) -> Option<&mut Publishing> {
        match &mut self.slots.get_mut(&ch)?.state {
            State::Publishing(publishing) => Some(publishing),
            _ => None,
        }
    }

    fn publishing_of(&mut self, of: Use) -> Option<&mut Publishing> {
        match &mut self.current(of)?.state {
            State::Publishing(publishing) => Some(publishing),
            _ => None,
        }
    }

    fn wrong_publisher(&mut self, ch: Channel) {
        match self.slots.get(&ch).map(|slot| &slot.state) {
            // No credit was given yet.
            Some(State::Opening { .. }) => self.credit_violation(ch),
            _ => self.wrong_channel(ch, FrameType::Pub),
        }
    }
}

fn record_of(publish: &Pub) -> Result<NewRecord, Problem> {
    let malformed =
        |error: ContentError| Problem::new(ErrorCode::Malformed, error.to_string()).with_field(error.field());
    let content = publish.content().map_err(malformed)?;
    let unnamed = match publish.ct {
        Some(_) => None,
        None if publish.data.is_some() => Some(Unnamed::Json),
        None => Some(Unnamed::Bytes),
    };
    let mut headers = HeadersBuilder::default();
    publish.add_headers(content.content_type, &mut headers).map_err(malformed)?;
    Ok(NewRecord {
        key: content.key.map(|key| Bytes::from(key.into_owned())),
        headers: headers.finish(),
        value: Bytes::from(content.value.into_owned()),
        unnamed,
    })
}

fn size_of(record: &NewRecord) -> u64 {
    RecordParts { key: record.key.as_deref(), headers: &record.headers, value: &record.value }.size() as u64
}

/// `None` if the records cannot be read.
fn last_record_bytes(batch: &Batch) -> Option<u64> {
    let last = batch.records().ok()?.last()?.ok()?;
    Some(last.size as u64)
}

fn bad_seq(bad: BadSeq) -> Problem {
    match bad {
        BadSeq::Gap(expected) => {
            let detail = format!("sequence number {expected} was expected");
            let current = Current { expected_seq: Some(expected), ..Current::default() };
            Problem::new(ErrorCode::ProducerGap, detail).with_current(current)
        }
        BadSeq::Repeat(last) => {
            let detail = format!("sequence numbers up to {last} were taken; only a producer may repeat one");
            let current = Current { last_seq: Some(last), ..Current::default() };
            Problem::new(ErrorCode::SeqOverlap, detail).with_current(current)
        }
        BadSeq::TooHigh => {
            let detail = format!("sequence numbers end at {INTEGER_MAX}");
            Problem::new(ErrorCode::Malformed, detail).with_field("seq").with_limit(INTEGER_MAX)
        }
    }
}

fn stages(node: Option<Stages>, round_trip: Duration, total: Duration) -> StageMicros {
    let us = |duration: Duration| u32::try_from(duration.as_micros()).unwrap_or(u32::MAX);
    let node = node.unwrap_or_default();
    StageMicros {
        gw: us(total.saturating_sub(round_trip)),
        net: us(round_trip).saturating_sub(node.node_us),
        queue: node.queue_us,
        write: node.write_us,
        fsync: node.fsync_us,
        quorum: node.quorum_us,
        total: us(total),
    }
}
