//! Following topics as server-sent events.
//!
//! A connection holds at most [`BUFFER_BYTES`] of messages: each partition's stream has its share as credit, which
//! is raised only as the client takes events. Who is slow is read for more slowly; nothing is dropped.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use bytes::Bytes;
use futures_util::stream::{SelectAll, Stream, StreamExt as _, unfold};
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, StatusCode};
use weir_protocol::error::ErrorCode;
use weir_protocol::ids::{PartitionId, ShardId, TopicPath};
use weir_protocol::limits::SSE_TOPICS_MAX;
use weir_protocol::rpc::{
    At, Credit, Event, Method, Packet, Position, SubscribeEvent, SubscribeRequest, TopicDescription,
};
use weir_transport::{Answers, CallError};

use super::dispatch::{Call, empty, refused};
use super::{read, topics};
use crate::api::Problem;

/// Bytes of messages that one connection may hold, all its partitions together.
const BUFFER_BYTES: u64 = 256 << 10;
/// Credit of one partition is at least this, so that a message of ordinary size passes at once.
const SHARE_BYTES_MIN: u64 = 16 << 10;
/// Messages that one partition may be ahead.
const SHARE_RECORDS: u64 = 256;
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Whether the client wants events rather than a page.
pub(super) fn is_wanted(call: &Call) -> bool {
    call.headers
        .get(ACCEPT)
        .and_then(|accept| accept.to_str().ok())
        .is_some_and(|a| a.contains("text/event-stream"))
}

/// Where a client is: the next offset of each partition, by life and partition.
type Cursor = BTreeMap<(u64, u32), u64>;

fn encode_cursor(cursor: &Cursor) -> String {
    let parts: Vec<_> =
        cursor.iter().map(|((life, partition), next)| format!("{life}.{partition}.{next}")).collect();
    BASE64_URL_SAFE_NO_PAD.encode(format!("1:{}", parts.join(",")))
}

fn decode_cursor(text: &str) -> Result<Cursor, Problem> {
    let invalid = || Problem::new(ErrorCode::InvalidCursor, "this event id was not issued here");
    let bytes = BASE64_URL_SAFE_NO_PAD.decode(text).map_err(|_| invalid())?;
    let text = String::from_utf8(bytes).map_err(|_| invalid())?;
    let parts = text.strip_prefix("1:").ok_or_else(invalid)?;
    parts
        .split(',')
        .map(|part| {
            let numbers: Vec<u64> = part.split('.').filter_map(|number| number.parse().ok()).collect();
            let [life, partition, next] = numbers[..] else { return Err(invalid()) };
            Ok(((life, u32::try_from(partition).map_err(|_| invalid())?), next))
        })
        .collect()
}

/// One partition that is followed.
struct Follower {
    topic: String,
    key: (u64, u32),
    answers: Answers,
    granted: Credit,
    share: Credit,
}

/// Something that happened on one partition.
enum Happened {
    Events { topic: String, key: (u64, u32), event: SubscribeEvent, payload: Bytes },
    Ended(Problem),
}

type Followed = Pin<Box<dyn Stream<Item = Happened> + Send>>;

pub(super) async fn one_topic(call: Call) -> Result<Response, Problem> {
    let path = call.topic()?;
    let topic = topics::find(&call.edge, &path, false).await?;
    let only = match call.route.integer("partition") {
        Some(_) => Some(read::partition(&call, &topic)?),
        None => None,
    };
    let from = read::position(call.route.query("from").unwrap_or("earliest"))?;
    respond(&call, vec![(path, topic)], only, from).await
}

pub(super) async fn many_topics(call: Call) -> Result<Response, Problem> {
    let namespace = call.route.name("ns")?;
    let mut found = Vec::new();
    for name in call.route.query_all("topic") {
        let topic = name.parse().map_err(|error| Problem::new(ErrorCode::InvalidName, format!("{error}")))?;
        let path = TopicPath { tenant: call.principal.tenant.clone(), namespace: namespace.clone(), topic };
        let topic = topics::find(&call.edge, &path, false).await?;
        found.push((path, topic));
    }
    if found.len() > SSE_TOPICS_MAX {
        let detail = format!("{} topics; {SSE_TOPICS_MAX} are allowed", found.len());
        return Err(Problem::new(ErrorCode::TooLarge, detail));
    }
    let from = read::position(call.route.query("from").unwrap_or("latest"))?;
    respond(&call, found, None, from).await
}

async fn respond(
    call: &Call,
    topics: Vec<(TopicPath, TopicDescription)>,
    only: Option<PartitionId>,
    from: Position,
) -> Result<Response, Problem> {
    let last = match call.header("last-event-id")? {
        Some(id) => Some(id),
        None => call.route.query("last_event_id"),
    };
    let mut cursor = last.map(decode_cursor).transpose()?.unwrap_or_default();
    check_lives(&cursor, &topics)?;
    let count: usize = topics.iter().map(|(_, topic)| topic.shards.len()).sum();
    let share =
        Credit { records: SHARE_RECORDS, bytes: (BUFFER_BYTES / count.max(1) as u64).max(SHARE_BYTES_MIN) };
    let mut streams: SelectAll<Followed> = SelectAll::new();
    for (path, topic) in &topics {
        for (partition, shard) in (0u32..).zip(&topic.shards) {
            if only.is_some_and(|only| only.0 != partition) {
                continue;
            }
            let key = (topic.incarnation, partition);
            let from = cursor.get(&key).map_or(from, |next| At::Offset(*next).into());
            let request = SubscribeRequest {
                incarnation: topic.incarnation,
                config_version: topic.version,
                partition,
                from,
                limit: share,
                ..SubscribeRequest::default()
            };
            let answers = call.edge.storage.open(Method::Subscribe, ShardId(*shard), &request).await;
            let answers = answers.map_err(|refusal| refused(&refusal))?;
            let follower = Follower { topic: path.topic.to_string(), key, answers, granted: share, share };
            streams.push(Box::pin(follow(follower)));
        }
    }
    let texts = streams.map(move |happened| text(&mut cursor, happened));
    let retry = futures_util::stream::once(async { Bytes::from_static(b"retry: 1000\n\n") });
    let body = keep_alive(retry.chain(texts)).map(Ok::<_, Infallible>);
    let mut response = empty(StatusCode::OK);
    *response.body_mut() = Body::from_stream(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    Ok(response)
}

/// A cursor that knows another life of a topic cannot go on: its offsets mean other messages.
fn check_lives(cursor: &Cursor, topics: &[(TopicPath, TopicDescription)]) -> Result<(), Problem> {
    let known = |life: u64| topics.iter().any(|(_, topic)| topic.incarnation == life);
    match cursor.keys().find(|(life, _)| !known(*life)) {
        Some(_) => Err(Problem::new(
            ErrorCode::IncarnationGone,
            "the event id belongs to a deleted or another topic",
        )),
        None => Ok(()),
    }
}

/// The events of one partition; credit is raised when the next one is asked for, so by the client's own pace.
fn follow(follower: Follower) -> impl Stream<Item = Happened> {
    unfold(Some((follower, Credit { records: 0, bytes: 0 })), |state| async move {
        let (mut follower, taken) = state?;
        let wanted = Credit {
            records: taken.records + follower.share.records,
            bytes: taken.bytes + follower.share.bytes,
        };
        // At half, so that the stream never runs dry between two grants.
        if wanted.bytes >= follower.granted.bytes + follower.share.bytes / 2
            || wanted.records >= follower.granted.records + follower.share.records / 2
        {
            follower.answers.grant(wanted);
            follower.granted = wanted;
        }
        let answer = match follower.answers.next().await {
            None => return None,
            Some(Err(CallError::Refused(refusal))) => {
                return Some((Happened::Ended(refused(&refusal)), None));
            }
            Some(Err(error)) => {
                let problem = Problem::new(ErrorCode::Unavailable, error.to_string());
                return Some((Happened::Ended(problem), None));
            }
            Some(Ok(answer)) => answer,
        };
        let Ok(packet) = Packet::<SubscribeEvent>::decode(answer) else {
            let problem = Problem::new(ErrorCode::Internal, "an event of storage cannot be read");
            return Some((Happened::Ended(problem), None));
        };
        let taken = Credit {
            bytes: taken.bytes + packet.payload.len() as u64,
            records: taken.records + count(&packet.message),
        };
        let happened = Happened::Events {
            topic: follower.topic.clone(),
            key: follower.key,
            event: packet.message,
            payload: packet.payload,
        };
        Some((happened, Some((follower, taken))))
    })
}

fn count(event: &SubscribeEvent) -> u64 {
    match &event.event {
        Some(Event::Records(records)) => records.slices.iter().map(|slice| u64::from(slice.take)).sum(),
        _ => 0,
    }
}

/// The text of what happened; moves the cursor.
fn text(cursor: &mut Cursor, happened: Happened) -> Bytes {
    let mut out = String::new();
    match happened {
        Happened::Ended(problem) => {
            let json = String::from_utf8_lossy(&problem.to_json()).into_owned();
            push(&mut out, "end", None, &json);
        }
        Happened::Events { topic, key, event, payload } => match event.event {
            Some(Event::Started(started)) => {
                cursor.insert(key, started.from);
                // A comment: the connection is there, even while nothing happens.
                out.push_str(": started\n\n");
            }
            Some(Event::Records(records)) => match read::stored(&records.slices, payload) {
                Ok(stored) => {
                    for record in stored {
                        cursor.insert(key, record.offset.0 + 1);
                        let shown = read::shown(&record, PartitionId(key.1));
                        // The record's own text is kept, digit for digit; the topic is put in front.
                        let text = serde_json::to_string(&shown).unwrap_or_default();
                        let with_topic = format!("{{\"topic\":\"{topic}\",{}", text.trim_start_matches('{'));
                        push(&mut out, "message", Some(&encode_cursor(cursor)), &with_topic);
                    }
                }
                Err(problem) => push(&mut out, "end", None, &String::from_utf8_lossy(&problem.to_json())),
            },
            Some(Event::Gap(gap)) => {
                cursor.insert(key, gap.to);
                let json = format!(
                    "{{\"topic\":\"{topic}\",\"partition\":{},\"from\":{},\"to\":{},\"why\":\"{}\"}}",
                    key.1, gap.from, gap.to, gap.why
                );
                push(&mut out, "gap", Some(&encode_cursor(cursor)), &json);
            }
            Some(Event::CaughtUp(caught_up)) => {
                let json =
                    format!("{{\"topic\":\"{topic}\",\"partition\":{},\"end\":{}}}", key.1, caught_up.end);
                push(&mut out, "caught-up", Some(&encode_cursor(cursor)), &json);
            }
            Some(Event::Firm(_) | Event::Retract(_)) | None => {}
        },
    }
    out.into()
}

fn push(out: &mut String, event: &str, id: Option<&str>, data: &str) {
    if event != "message" {
        out.push_str("event: ");
        out.push_str(event);
        out.push('\n');
    }
    if let Some(id) = id {
        out.push_str("id: ");
        out.push_str(id);
        out.push('\n');
    }
    // JSON text may hold line feeds only between its tokens; each line is a data line.
    for line in data.split('\n') {
        out.push_str("data: ");
        out.push_str(line.trim_end_matches('\r'));
        out.push('\n');
    }
    out.push('\n');
}

/// The stream with a comment every 15 s in which nothing was sent.
fn keep_alive(stream: impl Stream<Item = Bytes> + Send + 'static) -> impl Stream<Item = Bytes> + Send {
    unfold(Box::pin(stream), |mut stream| async move {
        match tokio::time::timeout(KEEP_ALIVE, stream.next()).await {
            Ok(Some(bytes)) => Some((bytes, stream)),
            Ok(None) => None,
            Err(_) => Some((Bytes::from_static(b": keep-alive\n\n"), stream)),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_ids_round_trip_and_foreign_ones_are_refused() {
        let cursor = Cursor::from([((7, 0), 12), ((9, 3), 0)]);
        assert_eq!(decode_cursor(&encode_cursor(&cursor)).unwrap(), cursor);
        for foreign in [
            "",
            "12",
            "!!",
            &BASE64_URL_SAFE_NO_PAD.encode("1:7.0"),
            &BASE64_URL_SAFE_NO_PAD.encode("2:7.0.1"),
        ] {
            assert_eq!(decode_cursor(foreign).unwrap_err().code, "invalid_cursor", "{foreign}");
        }
    }

    #[test]
    fn data_with_line_feeds_stays_one_event() {
        let mut out = String::new();
        push(&mut out, "message", Some("x"), "{\n}");
        assert_eq!(out, "id: x\ndata: {\ndata: }\n\n");
    }
}
