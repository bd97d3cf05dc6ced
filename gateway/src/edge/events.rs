//! Following topics as server-sent events.
//!
//! A connection holds at most [`crate::ClientLimits::events_bytes_max`] of messages: that is the credit of
//! its subscription, raised only as the client takes events. Who is slow is read for more slowly; nothing is
//! dropped.

mod begin;
mod open;

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::fmt::Write as _;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures_util::future::{BoxFuture, pending, select_all};
use futures_util::stream::{Stream, unfold};
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, StatusCode};
use tokio::sync::watch;
use tokio::time::{Instant, Sleep, sleep};
use ulid::Ulid;
use weir_protocol::batch::{BatchError, Record};
use weir_protocol::error::ErrorCode;
use weir_protocol::ids::{Incarnation, Offset, PartitionId, Term, TopicPath};
use weir_protocol::limits::SSE_TOPICS_MAX;
use weir_protocol::rpc::Credit;

use super::accept::Accepted;
use super::answer::empty;
use super::call::Call;
use super::pieces::{PIECE_BYTES, UNDER_WAY_BYTES};
use super::record::Rest;
use super::{page, read, record};
use crate::api::Problem;
use crate::service::ServiceError;
use crate::service::read::{
    Awaited, Cursor, Parcel, PartitionOf, Reader, RecordSlice, Room, StartAt, Subscribe, Subscription,
    SubscriptionEvent, TextForm, Texts,
};
use crate::storage::Topic;
use begin::{Begun, begin};
use open::{Open, push_part};

/// Messages that one connection may hold.
const BUFFER_RECORDS: u64 = 4_096;
/// With more partitions than this only the last message of a batch has an id.
const SHORT_PARTITIONS: usize = 16;
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Whether the client wants events, and no page more than those.
pub(super) fn is_wanted(call: &Call) -> bool {
    let accepted = Accepted::of(&call.headers);
    let weight = accepted.named("text/event-stream");
    weight > 0.0 && page::FORMS.iter().all(|form| accepted.named(form.media()) <= weight)
}

pub(super) async fn one_topic(call: Call) -> Result<Response, Problem> {
    let topics = vec![call.topic()?];
    let partition = read::partition(call.route.integer("partition"));
    respond(&call, topics, partition, "earliest").await
}

pub(super) async fn many_topics(call: Call) -> Result<Response, Problem> {
    let namespace = call.route.name("ns")?;
    let (mut topics, mut seen) = (Vec::new(), BTreeSet::new());
    for name in call.route.query_all("topic") {
        // Each message would come twice, and the ids go back in between.
        if !seen.insert(name) {
            return Err(Problem::invalid_parameter("topic", format!("names {name} twice")));
        }
        let topic = name.parse().map_err(|error| Problem::new(ErrorCode::InvalidName, format!("{error}")))?;
        topics.push(TopicPath { tenant: call.principal.tenant.clone(), namespace: namespace.clone(), topic });
    }
    if topics.len() > SSE_TOPICS_MAX {
        let detail = format!("{} topics; {SSE_TOPICS_MAX} are allowed", topics.len());
        return Err(Problem::new(ErrorCode::TooLarge, detail).with_limit(SSE_TOPICS_MAX as u64));
    }
    respond(&call, topics, None, "latest").await
}

async fn respond(
    call: &Call,
    topics: Vec<TopicPath>,
    partition: Option<PartitionId>,
    default_from: &str,
) -> Result<Response, Problem> {
    let last = match call.header("last-event-id")? {
        Some(id) => Some(("last-event-id", id)),
        None => call.route.query("last_event_id").map(|id| ("last_event_id", id)),
    };
    let from = match last {
        Some((field, id)) => {
            StartAt::Cursor(Cursor::decode(id).map_err(|failure| failure.with_field(field))?)
        }
        None => StartAt::parse(call.route.query("from").unwrap_or(default_from))?,
    };
    let buffer = Credit { records: BUFFER_RECORDS, bytes: call.edge.config.limits.events_bytes_max };
    let min_level = read::min_level(call);
    let filter = read::filter(call)?.map(Into::into);
    let (seen, life) = (None, None);
    let client = Arc::clone(&call.client);
    client.check(UNDER_WAY_BYTES).map_err(ServiceError::from)?;
    let room = Some(Room { client, times: 0, besides: UNDER_WAY_BYTES });
    let subscribe = Subscribe { topics, partition, from, seen, life, min_level, filter, limit: buffer, room };
    let reader = call.edge.services.reader.clone();
    let begun = begin(&reader, &subscribe, last.is_some()).await?;
    let mut feed = Feed {
        reader,
        subscribe,
        subscription: None,
        awaited: Vec::new(),
        cursor: Cursor::default(),
        renewed: Vec::new(),
        taken: Credit::default(),
        buffer,
        open: None,
        is_short: true,
        raised: buffer,
        drained: drained(call.edge.drain.clone()),
        keep_alive: Box::pin(sleep(KEEP_ALIVE)),
        said_at: Instant::now(),
        is_over: false,
        request_id: call.request_id,
    };
    feed.begun(begun);
    let mut response = empty(StatusCode::OK);
    *response.body_mut() = Body::from_stream(texts(feed));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    Ok(response)
}

/// A connection's subscription.
struct Feed {
    reader: Reader,
    /// What was asked for.
    subscribe: Subscribe,
    /// Of the topics that exist.
    subscription: Option<Subscription>,
    /// Topics that do not exist yet.
    awaited: Vec<Awaited>,
    cursor: Cursor,
    /// Partitions of topics that were made again, which is to be told.
    renewed: Vec<(PartitionOf, Incarnation)>,
    /// Totals of what the connection has taken.
    taken: Credit,
    /// How far ahead of that storage may send.
    buffer: Credit,
    /// Messages that are left to be written.
    open: Option<Open>,
    /// Every message names its place.
    is_short: bool,
    /// The limit that storage was last told.
    raised: Credit,
    /// The gateway stops; made once, as the timer: an event registers neither of them anew.
    drained: BoxFuture<'static, ()>,
    keep_alive: Pin<Box<Sleep>>,
    said_at: Instant,
    is_over: bool,
    /// Of the request that it answers.
    request_id: Ulid,
}

fn texts(feed: Feed) -> impl Stream<Item = Result<Bytes, Infallible>> + Send {
    // A comment: the connection is there, even while nothing happens.
    let mut first = "retry: 1000\n\n: started\n\n".to_owned();
    if !feed.awaited.is_empty() {
        // Who comes back before anything happened goes on here: an id without data is kept, and shown to nobody.
        let _ = write!(first, "id: {}\n\n", feed.cursor.encode());
    }
    let first = Bytes::from(first);
    unfold((Some(first), Box::new(feed)), |(first, mut feed)| async move {
        if let Some(first) = first {
            return Some((Ok(first), (None, feed)));
        }
        let text = feed.next().await?;
        Some((Ok(text), (None, feed)))
    })
}

impl Feed {
    /// The next text; asked for when the client has taken the one before.
    async fn next(&mut self) -> Option<Bytes> {
        if self.open.is_some() {
            return Some(self.messages_left().into());
        }
        if self.is_over {
            return None;
        }
        if !self.renewed.is_empty() {
            return Some(self.lives().into());
        }
        self.raise();
        let event = tokio::select! {
            biased;
            () = &mut self.drained => {
                self.is_over = true;
                return Some(Bytes::from_static(b"event: goaway\ndata: {\"why\":\"drain\"}\n\n"));
            }
            event = next_event(self.subscription.as_mut(), &self.awaited) => Some(event),
            () = said_nothing(&mut self.keep_alive, &self.said_at) => None,
        };
        self.said_at = Instant::now();
        match event {
            None => Some(Bytes::from_static(b": keep-alive\n\n")),
            Some(Ok(Some(event))) => Some(self.text(event)),
            Some(Ok(None)) => match self.again().await {
                Ok(()) => Some(self.lives().into()),
                Err(failure) => {
                    self.is_over = true;
                    Some(self.ended(&failure).into())
                }
            },
            Some(Err(failure)) => {
                self.is_over = true;
                Some(self.ended(&failure).into())
            }
        }
    }

    /// Lets storage send what the client has made room for, once that is half of it: not for each message.
    fn raise(&mut self) {
        let limit = Credit {
            records: self.taken.records + self.buffer.records,
            bytes: self.taken.bytes + self.buffer.bytes,
        };
        let is_half = limit.records - self.raised.records >= self.buffer.records / 2
            || limit.bytes - self.raised.bytes >= self.buffer.bytes / 2;
        if is_half && let Some(subscription) = &self.subscription {
            self.raised = limit;
            subscription.raise_limit(limit);
        }
    }

    fn begun(&mut self, begun: Begun) {
        // Another subscription counts from its own start.
        (self.taken, self.raised) = (Credit::default(), self.buffer);
        self.is_short = begun.partitions <= SHORT_PARTITIONS;
        (self.subscription, self.awaited) = (begun.subscription, begun.awaited);
        (self.cursor, self.renewed) = (begun.cursor, begun.renewed);
    }

    /// Some topic has been made: it is followed from its first message on, and the others from where they are.
    async fn again(&mut self) -> Result<(), ServiceError> {
        self.awaited.iter().for_each(|awaited| self.cursor.awaits(&awaited.path));
        let from = StartAt::Cursor(self.cursor.clone());
        let subscribe = Subscribe { from, ..self.subscribe.clone() };
        // Without the budget of the one before.
        self.subscription = None;
        let begun = begin(&self.reader, &subscribe, true).await?;
        self.begun(begun);
        Ok(())
    }

    /// What is told of topics that were made again: forget what is known of the life before.
    fn lives(&mut self) -> String {
        let mut out = String::new();
        for (of, incarnation) in std::mem::take(&mut self.renewed) {
            let head = self.head(of);
            let data =
                format!("{head},\"from\":0,\"to\":0,\"why\":\"recreated\",\"incarnation\":{incarnation}}}");
            push(&mut out, "gap", Some(&self.cursor.encode()), &data);
        }
        out
    }

    /// Of which topic an event is: it came of a subscription.
    fn topic(&self, of: PartitionOf) -> &Arc<Topic> {
        &self.subscription.as_ref().expect("something came of it").topics[of.topic]
    }

    /// The text of what happened; moves the cursor.
    fn text(&mut self, event: SubscriptionEvent) -> Bytes {
        let mut out = String::new();
        match event {
            SubscriptionEvent::Records { of, parcel, count, bytes } => {
                let amount = Credit { records: count, bytes };
                if bytes > PIECE_BYTES as u64 && !parcel.is_shared() {
                    self.open = Some(Open::new(of, parcel, amount));
                    return self.messages_left().into();
                }
                self.took(amount);
                return self.records(of, &parcel).unwrap_or_else(|error| self.damaged(&error).into());
            }
            SubscriptionEvent::Gap { of, from, to, why } => {
                self.advance(of, to);
                let data = format!("{},\"from\":{from},\"to\":{to},\"why\":\"{why}\"}}", self.head(of));
                push(&mut out, "gap", Some(&self.cursor.encode()), &data);
            }
            SubscriptionEvent::CaughtUp { of, end, closed, .. } => {
                let topic = Arc::clone(self.topic(of));
                self.cursor.reached(&topic, of.partition, end);
                let closed = if closed { ",\"closed\":true" } else { "" };
                let data = format!("{},\"end\":{end}{closed}}}", self.head(of));
                push(&mut out, "caught-up", Some(&self.cursor.encode()), &data);
            }
            SubscriptionEvent::Looked { of, upto } => {
                self.advance(of, upto);
                let data = format!("{},\"upto\":{upto}}}", self.head(of));
                push(&mut out, "looked", Some(&self.cursor.encode()), &data);
            }
            SubscriptionEvent::Retract { of, from, to, term } => {
                self.advance(of, from);
                let data = format!("{},\"from\":{from},\"to\":{to},\"term\":{term}}}", self.head(of));
                push(&mut out, "retract", Some(&self.cursor.encode()), &data);
            }
            SubscriptionEvent::Firm { of, upto } => {
                let topic = Arc::clone(self.topic(of));
                self.cursor.firm(&topic, of.partition, upto);
                let data = format!("{},\"upto\":{upto}}}", self.head(of));
                // However long it is: who goes on at one of before is told that what is firm may be lost.
                push(&mut out, "firm", Some(&self.cursor.encode()), &data);
            }
            SubscriptionEvent::Started(_) => {}
        }
        out.into()
    }

    /// A piece of the messages that are left. With the last of them storage may send more.
    fn messages_left(&mut self) -> String {
        let mut out = String::new();
        let Some(mut open) = self.open.take() else { return out };
        loop {
            match self.one_message(&mut open, &mut out) {
                Ok(true) if out.len() >= PIECE_BYTES => {
                    self.open = Some(open);
                    return out;
                }
                Ok(true) => {}
                Ok(false) => {
                    self.took(open.amount);
                    return out;
                }
                Err(error) => {
                    out.push_str(&self.damaged(&error));
                    return out;
                }
            }
        }
    }

    /// Writes a message, or a part of a large one; false if there is none.
    fn one_message(&mut self, open: &mut Open, out: &mut String) -> Result<bool, BatchError> {
        if let Some(rest) = &mut open.rest {
            let mut part = Vec::new();
            let is_last = !rest.put(&mut part);
            push_part(out, &part, is_last);
            if is_last {
                open.rest = None;
            }
            return Ok(true);
        }
        let of = open.of;
        let Some((record, slice)) = open.next()? else { return Ok(false) };
        let rest = self.put(of, &record, slice, out);
        open.rest = rest;
        Ok(true)
    }

    /// Messages. What all readers share was made once for all of them, ids and all where they are the same.
    fn records(&mut self, of: PartitionOf, parcel: &Parcel) -> Result<Bytes, BatchError> {
        let topic = Arc::clone(self.topic(of));
        if self.cursor.is_of_one() {
            let make = |slices: &[RecordSlice]| shared_texts(slices, &topic, true);
            if let Some(texts) = parcel.texts(TextForm::Event, make)? {
                let end = parcel.slices().last().map(RecordSlice::end);
                end.into_iter().for_each(|end| self.advance(of, end));
                return Ok(texts.bytes);
            }
        }
        let mut out = String::new();
        let make = |slices: &[RecordSlice]| shared_texts(slices, &topic, false);
        let Some(texts) = parcel.texts(TextForm::EventOfMany, make)? else {
            for slice in parcel.slices() {
                self.messages(of, slice, &mut out)?;
            }
            return Ok(out.into());
        };
        let mut ends = parcel.slices().iter().map(RecordSlice::end).peekable();
        for (text, next) in texts.with_next() {
            self.cursor.advance(&topic, of.partition, next);
            let is_last = ends.next_if(|end| *end <= next).is_some();
            if self.is_short || is_last {
                let _ = writeln!(out, "id: {}", self.cursor.encode());
            }
            out.push_str(text);
        }
        Ok(out.into())
    }

    fn messages(&mut self, of: PartitionOf, slice: &RecordSlice, out: &mut String) -> Result<(), BatchError> {
        let (last, topic) = (slice.end().0, Arc::clone(self.topic(of)));
        for record in slice.records()? {
            let record = record?;
            let origin = (slice.committed_end, slice.term);
            self.cursor.took(&topic, of.partition, record.offset.plus(1), origin);
            let early = (record.offset >= slice.committed_end).then_some(slice.term);
            let data = message(&record, &topic, slice.partition, early);
            // Many partitions make a long id: then one for what comes together must do.
            let id = (self.is_short || record.offset.0 + 1 == last).then(|| self.cursor.encode());
            push(out, "message", id.as_deref(), &data);
        }
        Ok(())
    }

    /// Writes a message; of a large one all before its payload.
    fn put(
        &mut self,
        of: PartitionOf,
        record: &Record,
        slice: &RecordSlice,
        out: &mut String,
    ) -> Option<Rest> {
        let last = slice.end().0;
        let topic = Arc::clone(self.topic(of));
        let origin = (slice.committed_end, slice.term);
        self.cursor.took(&topic, of.partition, record.offset.plus(1), origin);
        let mut text = Vec::new();
        let rest = record::put(&mut text, record, slice.partition);
        // The record's own text is kept, digit for digit; the topic is put in front.
        let mut data = format!("{{\"topic\":\"{}\",", topic.path.topic);
        if record.offset >= slice.committed_end {
            let _ = write!(data, "\"final\":false,\"term\":{},", slice.term);
        }
        data.push_str(String::from_utf8_lossy(&text).trim_start_matches('{'));
        // Many partitions make a long id: then one for what comes together must do.
        let id = (self.is_short || record.offset.0 + 1 == last).then(|| self.cursor.encode());
        push(out, "message", id.as_deref(), &data);
        if rest.is_some() {
            // The line goes on with the payload.
            out.truncate(out.trim_end_matches('\n').len());
        }
        rest
    }

    fn took(&mut self, amount: Credit) {
        self.taken.records += amount.records;
        self.taken.bytes += amount.bytes;
    }

    fn damaged(&mut self, error: &BatchError) -> String {
        self.is_over = true;
        let detail = format!("a stored record batch is damaged: {error}");
        self.ended(&ServiceError::new(ErrorCode::Corrupt, detail))
    }

    /// The last event: why it is over.
    fn ended(&self, failure: &ServiceError) -> String {
        let mut out = String::new();
        let problem = Problem { request_id: self.request_id.to_string(), ..failure.into() };
        push(&mut out, "end", None, &String::from_utf8_lossy(&problem.to_json()));
        out
    }

    fn advance(&mut self, of: PartitionOf, next: Offset) {
        let topic = Arc::clone(self.topic(of));
        self.cursor.advance(&topic, of.partition, next);
    }

    /// The beginning of an event's data. Names need no escapes.
    fn head(&self, of: PartitionOf) -> String {
        let topic = &self.topic(of).path.topic;
        format!("{{\"topic\":\"{topic}\",\"partition\":{}", of.partition)
    }
}

/// Ends when the gateway stops; an error means that it is gone: the same.
fn drained(mut drain: watch::Receiver<bool>) -> BoxFuture<'static, ()> {
    Box::pin(async move { drop(drain.wait_for(|drains| *drains).await) })
}

/// Ends when nothing was said for a while.
async fn said_nothing(timer: &mut Pin<Box<Sleep>>, said_at: &Instant) {
    loop {
        timer.as_mut().await;
        let until = *said_at + KEEP_ALIVE;
        if until <= Instant::now() {
            return timer.as_mut().reset(Instant::now() + KEEP_ALIVE);
        }
        timer.as_mut().reset(until);
    }
}

/// The texts of committed records, each with an `id` if that is of its partition alone.
fn shared_texts(slices: &[RecordSlice], topic: &Topic, has_ids: bool) -> Result<Texts, BatchError> {
    Texts::of(slices, |out, record, partition| {
        let id = has_ids.then(|| {
            let mut cursor = Cursor::default();
            cursor.advance(topic, partition, record.offset.plus(1));
            cursor.encode()
        });
        push(out, "message", id.as_deref(), &message(record, topic, partition, None));
    })
}

/// A message's data. `early`: the term of one that is not committed.
fn message(record: &Record, topic: &Topic, partition: PartitionId, early: Option<Term>) -> String {
    // The record's own text is kept, digit for digit; the topic is put in front.
    let text = serde_json::to_string(&record::shown(record, partition)).expect("a record has a JSON form");
    let mut data = format!("{{\"topic\":\"{}\",", topic.path.topic);
    if let Some(term) = early {
        let _ = write!(data, "\"final\":false,\"term\":{term},");
    }
    data.push_str(text.trim_start_matches('{'));
    data
}

/// The next event of the topics that exist; `None` if another exists by now. Waits for ever if nothing is asked of it.
async fn next_event(
    subscription: Option<&mut Subscription>,
    awaited: &[Awaited],
) -> Result<Option<SubscriptionEvent>, ServiceError> {
    let event = async {
        match subscription {
            Some(subscription) => subscription.next().await.map(Some),
            None => pending().await,
        }
    };
    if awaited.is_empty() {
        return event.await;
    }
    let made = select_all(awaited.iter().map(|awaited| Box::pin(awaited.made())));
    tokio::select! {
        event = event => event,
        _ = made => Ok(None),
    }
}

fn push(out: &mut String, event: &str, id: Option<&str>, data: &str) {
    if event != "message" {
        let _ = writeln!(out, "event: {event}");
    }
    if let Some(id) = id {
        let _ = writeln!(out, "id: {id}");
    }
    // JSON text may hold line breaks only between its tokens; each line is a data line. A carriage return by
    // itself ends one as well.
    for line in data.split('\n').flat_map(|line| line.strip_suffix('\r').unwrap_or(line).split('\r')) {
        let _ = writeln!(out, "data: {line}");
    }
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_with_line_feeds_stays_one_event() {
        let mut out = String::new();
        push(&mut out, "message", Some("x"), "{\n}");
        assert_eq!(out, "id: x\ndata: {\ndata: }\n\n");
    }

    #[test]
    fn a_carriage_return_ends_a_line_too() {
        let mut out = String::new();
        push(&mut out, "message", None, "[1,\r\r2,\r\n3]");
        assert_eq!(out, "data: [1,\ndata: \ndata: 2,\ndata: 3]\n\n");
    }
}
