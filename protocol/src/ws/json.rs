//! The JSON form: a message is text, a frame is a line, an object with `t` and, for channels, `ch`.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use serde::de::value::MapAccessDeserializer;
use serde::de::{self, DeserializeOwned, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{Channel, ClientFrame, FrameType, Msg, ServerFrame, VERSION, WsError};
use crate::batch::Record;
use crate::ids::PartitionId;
use crate::limits::WS_MESSAGE_BYTES_MAX;
use crate::objects::{self, Objects};

/// The frames of a client's message, in order. Empty lines are skipped. End at the first error.
pub fn client_frames(message: &str) -> impl Iterator<Item = Result<(Channel, ClientFrame), WsError>> {
    frames(message).map(|line| line.and_then(client_frame))
}

/// The frames of a gateway's message, likewise.
pub fn server_frames(message: &str) -> impl Iterator<Item = Result<(Channel, ServerFrame), WsError>> {
    frames(message).map(|line| line.and_then(server_frame))
}

fn frames(message: &str) -> impl Iterator<Item = Result<&str, WsError>> {
    let too_large = message.len() > WS_MESSAGE_BYTES_MAX;
    let refused = too_large.then_some(Err(WsError::TooLarge(message.len())));
    let lines = message.split('\n').map(str::trim_ascii).filter(|line| !line.is_empty()).map(Ok);
    refused.into_iter().chain(lines.filter(move |_| !too_large))
}

/// Appends a client's frame to a message, on a line of its own.
///
/// # Panics
/// On [`ClientFrame::PubBatch`], which has no JSON form.
pub fn put_client_frame(message: &mut String, ch: Channel, frame: &ClientFrame) {
    let body = client_body(frame).expect("a batch is sent in the binary form only");
    put(message, frame.frame_type(), ch, &body);
}

/// Appends a gateway's frame to a message, on a line of its own.
///
/// # Panics
/// On [`ServerFrame::Deliveries`], which has no JSON form: build [`super::Msgs`] from its records.
pub fn put_server_frame(message: &mut String, ch: Channel, frame: &ServerFrame) {
    let body = server_body(frame).expect("stored batches are sent in the binary form only");
    put(message, frame.frame_type(), ch, &body);
}

/// What `msg` and `msgs` say of a record, but for its number: the same for every reader of a topic, so that it is made
/// once. To be given to [`put_messages`].
#[must_use]
pub fn message_text(record: &Record, partition: PartitionId) -> String {
    let mut text = json_of(&Msg::of(record, 0, partition));
    text.drain(..NUMBER_ZERO.len());
    text
}

/// How a message begins that has the number 0.
const NUMBER_ZERO: &str = "{\"n\":0,";

/// Appends records to a message as one frame, on a line of its own, the first as delivery `n`: each as
/// [`message_text`] made it. Nothing without any.
pub fn put_messages<'a>(
    message: &mut String,
    ch: Channel,
    n: u64,
    texts: impl ExactSizeIterator<Item = &'a str>,
) {
    let (frame, is_one) = match texts.len() {
        0 => return,
        1 => (FrameType::Msg, true),
        _ => (FrameType::Msgs, false),
    };
    if !message.is_empty() {
        message.push('\n');
    }
    let list = if is_one { "" } else { ",\"msgs\":[" };
    // Writing to a text does not fail.
    let _ = write!(message, "{{\"t\":\"{}\",\"ch\":{}{list}", frame.as_str(), ch.0);
    for (at, text) in (0u64..).zip(texts) {
        let lead = match (is_one, at) {
            (true, _) => ",",
            (false, 0) => "{",
            (false, _) => ",{",
        };
        let _ = write!(message, "{lead}\"n\":{},{text}", n + at);
    }
    if !is_one {
        message.push_str("]}");
    }
}

/// `t` and `ch` in front of the fields of `body`.
fn put(message: &mut String, frame: FrameType, ch: Channel, body: &str) {
    let fields = body.strip_prefix('{').expect("a frame's body is an object");
    if !message.is_empty() {
        message.push('\n');
    }
    message.push_str("{\"t\":\"");
    message.push_str(frame.as_str());
    message.push('"');
    if ch != Channel::CONNECTION {
        message.push_str(",\"ch\":");
        message.push_str(&ch.0.to_string());
    }
    if fields != "}" {
        message.push(',');
    }
    message.push_str(fields);
}

/// Fields of a frame without `t` and `ch`; `None` where there is no JSON form.
pub(super) fn client_body(frame: &ClientFrame) -> Option<String> {
    Some(match frame {
        ClientFrame::Hello(it) => json_of(it),
        ClientFrame::Open(it) => json_of(it),
        ClientFrame::Pub(it) => json_of(it),
        ClientFrame::PubBatch { .. } => return None,
        ClientFrame::Sub(it) => json_of(it),
        ClientFrame::Limit(it) => json_of(it),
        ClientFrame::Ack(it) => json_of(it),
        ClientFrame::Nack(it) => json_of(it),
        ClientFrame::Extend(it) => json_of(it),
        ClientFrame::Dead(it) => json_of(it),
        ClientFrame::Seek(it) => json_of(it),
        ClientFrame::Pause(it) => json_of(it),
        ClientFrame::Unsub(it) => json_of(it),
        ClientFrame::ClosePub(it) => json_of(it),
        ClientFrame::Auth(it) => json_of(it),
        ClientFrame::Ping(it) => json_of(it),
        ClientFrame::Pong(it) => json_of(it),
        ClientFrame::Bye(it) => json_of(it),
    })
}

/// Fields of a frame without `t` and `ch`; `None` where there is no JSON form.
pub(super) fn server_body(frame: &ServerFrame) -> Option<String> {
    Some(match frame {
        ServerFrame::Welcome(it) => json_of(it),
        ServerFrame::Opened(it) => json_of(it),
        ServerFrame::Confirm(it) => json_of(it),
        ServerFrame::Reject(it) => json_of(it),
        ServerFrame::PubLimit(it) => json_of(it),
        ServerFrame::Subscribed(it) => json_of(it),
        ServerFrame::Msg(it) => json_of(it),
        ServerFrame::Msgs(it) => json_of(it),
        ServerFrame::Deliveries(_) => return None,
        ServerFrame::Settled(it) => json_of(it),
        ServerFrame::LeaseLost(it) => json_of(it),
        ServerFrame::Extended(it) => json_of(it),
        ServerFrame::Gap(it) => json_of(it),
        ServerFrame::CaughtUp(it) => json_of(it),
        ServerFrame::Looked(it) => json_of(it),
        ServerFrame::Share(it) => json_of(it),
        ServerFrame::Retract(it) => json_of(it),
        ServerFrame::Firm(it) => json_of(it),
        ServerFrame::Moved(it) => json_of(it),
        ServerFrame::Goaway(it) => json_of(it),
        ServerFrame::AuthExpiring(it) => json_of(it),
        ServerFrame::Err(it) => json_of(it),
        ServerFrame::Ping(it) => json_of(it),
        ServerFrame::Pong(it) => json_of(it),
    })
}

fn json_of<T: Serialize>(body: &T) -> String {
    serde_json::to_string(body).expect("frames are structs of texts and numbers, which all have JSON")
}

fn client_frame(line: &str) -> Result<(Channel, ClientFrame), WsError> {
    let (frame, ch) = named(line)?;
    Ok((ch, read_client(frame, line, Head::Inside)?))
}

fn server_frame(line: &str) -> Result<(Channel, ServerFrame), WsError> {
    let (frame, ch) = named(line)?;
    Ok((ch, read_server(frame, line, Head::Inside)?))
}

/// A client's frame from its fields.
pub(super) fn read_client(frame: FrameType, fields: &str, head: Head) -> Result<ClientFrame, WsError> {
    Ok(match frame {
        FrameType::Hello => ClientFrame::Hello(check_version(read(frame, fields, head)?)?),
        FrameType::Open => ClientFrame::Open(read(frame, fields, head)?),
        FrameType::Pub => ClientFrame::Pub(read(frame, fields, head)?),
        FrameType::Sub => ClientFrame::Sub(read(frame, fields, head)?),
        FrameType::Limit => ClientFrame::Limit(read(frame, fields, head)?),
        FrameType::Ack => ClientFrame::Ack(read(frame, fields, head)?),
        FrameType::Nack => ClientFrame::Nack(read(frame, fields, head)?),
        FrameType::Extend => ClientFrame::Extend(read(frame, fields, head)?),
        FrameType::Dead => ClientFrame::Dead(read(frame, fields, head)?),
        FrameType::Seek => ClientFrame::Seek(read(frame, fields, head)?),
        FrameType::Pause => ClientFrame::Pause(read(frame, fields, head)?),
        FrameType::Unsub => ClientFrame::Unsub(read(frame, fields, head)?),
        FrameType::ClosePub => ClientFrame::ClosePub(read(frame, fields, head)?),
        FrameType::Auth => ClientFrame::Auth(read(frame, fields, head)?),
        FrameType::Ping => ClientFrame::Ping(read(frame, fields, head)?),
        FrameType::Pong => ClientFrame::Pong(read(frame, fields, head)?),
        FrameType::Bye => ClientFrame::Bye(read(frame, fields, head)?),
        _ => return Err(WsError::Misplaced(frame)),
    })
}

/// A gateway's frame from its fields.
pub(super) fn read_server(frame: FrameType, fields: &str, head: Head) -> Result<ServerFrame, WsError> {
    Ok(match frame {
        FrameType::Welcome => ServerFrame::Welcome(read(frame, fields, head)?),
        FrameType::Opened => ServerFrame::Opened(read(frame, fields, head)?),
        FrameType::Confirm => ServerFrame::Confirm(read(frame, fields, head)?),
        FrameType::Reject => ServerFrame::Reject(read(frame, fields, head)?),
        FrameType::PubLimit => ServerFrame::PubLimit(read(frame, fields, head)?),
        FrameType::Subscribed => ServerFrame::Subscribed(read(frame, fields, head)?),
        FrameType::Msg => ServerFrame::Msg(read(frame, fields, head)?),
        FrameType::Msgs => ServerFrame::Msgs(read(frame, fields, head)?),
        FrameType::Settled => ServerFrame::Settled(read(frame, fields, head)?),
        FrameType::LeaseLost => ServerFrame::LeaseLost(read(frame, fields, head)?),
        FrameType::Extended => ServerFrame::Extended(read(frame, fields, head)?),
        FrameType::Gap => ServerFrame::Gap(read(frame, fields, head)?),
        FrameType::CaughtUp => ServerFrame::CaughtUp(read(frame, fields, head)?),
        FrameType::Looked => ServerFrame::Looked(read(frame, fields, head)?),
        FrameType::Share => ServerFrame::Share(read(frame, fields, head)?),
        FrameType::Retract => ServerFrame::Retract(read(frame, fields, head)?),
        FrameType::Firm => ServerFrame::Firm(read(frame, fields, head)?),
        FrameType::Moved => ServerFrame::Moved(read(frame, fields, head)?),
        FrameType::Goaway => ServerFrame::Goaway(read(frame, fields, head)?),
        FrameType::AuthExpiring => ServerFrame::AuthExpiring(read(frame, fields, head)?),
        FrameType::Err => ServerFrame::Err(read(frame, fields, head)?),
        FrameType::Ping => ServerFrame::Ping(read(frame, fields, head)?),
        FrameType::Pong => ServerFrame::Pong(read(frame, fields, head)?),
        _ => return Err(WsError::Misplaced(frame)),
    })
}

fn check_version(hello: super::Hello) -> Result<super::Hello, WsError> {
    if hello.v == VERSION { Ok(hello) } else { Err(WsError::Version(hello.v)) }
}

/// Where `t` and `ch` are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Head {
    /// Among the fields, where they are stepped over.
    Inside,
    /// In the binary header; among the fields they are unknown.
    Outside,
}

/// What every frame has, wherever in the object it stands.
#[derive(Deserialize)]
struct Named<'a> {
    #[serde(borrow)]
    t: Cow<'a, str>,
    #[serde(default)]
    ch: u16,
}

fn named(line: &str) -> Result<(FrameType, Channel), WsError> {
    let Named { t, ch } = objects::from_str(line).map_err(|error| WsError::Object(error.to_string()))?;
    let frame = FrameType::from_text(&t);
    let frame = frame.ok_or_else(|| WsError::UnknownName(t.chars().take(32).collect()))?;
    Ok((frame, frame.check_channel(Channel(ch))?))
}

fn read<T: DeserializeOwned>(frame: FrameType, fields: &str, head: Head) -> Result<T, WsError> {
    let refused = |error: serde_json::Error| {
        let place = place_of_error::<T>(fields, head);
        WsError::Fields { frame, place, detail: error.to_string() }
    };
    if head == Head::Outside {
        return objects::from_str(fields).map_err(refused);
    }
    let mut deserializer = serde_json::Deserializer::from_str(fields);
    let visitor = BodyVisitor(std::marker::PhantomData);
    let in_words = |error| refused(objects::in_words_of_json(error));
    let body = deserializer.deserialize_map(visitor).map_err(in_words)?;
    deserializer.end().map_err(refused)?;
    Ok(body)
}

/// As [`objects::place_of_error`], of a frame's fields.
fn place_of_error<T: DeserializeOwned>(fields: &str, head: Head) -> Option<String> {
    if head == Head::Outside {
        return objects::place_of_error::<T>(fields.as_bytes());
    }
    let mut by_name: BTreeMap<String, &RawValue> = serde_json::from_str(fields).ok()?;
    by_name.retain(|name, _| !matches!(name.as_str(), "t" | "ch"));
    objects::place_of_error::<T>(&serde_json::to_vec(&by_name).ok()?)
}

/// Reads a `T` from an object as if it had neither `t` nor `ch`. Serde's own tagged enums would buffer the object
/// and with it lose the digits of payloads.
struct BodyVisitor<T>(std::marker::PhantomData<T>);

impl<'de, T: DeserializeOwned> Visitor<'de> for BodyVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        T::deserialize(MapAccessDeserializer::new(WithoutHead(map)))
    }
}

/// The entries of an object but for `t` and `ch`.
struct WithoutHead<A>(A);

impl<'de, A: MapAccess<'de>> MapAccess<'de> for WithoutHead<A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, A::Error> {
        while let Some(key) = self.0.next_key::<Key<'de>>()? {
            if matches!(&*key.0, "t" | "ch") {
                self.0.next_value::<IgnoredAny>()?;
            } else {
                return seed.deserialize(de::value::CowStrDeserializer::new(key.0)).map(Some);
            }
        }
        Ok(None)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        self.0.next_value_seed(Objects(seed))
    }
}

/// A key, borrowed unless it has escapes.
#[derive(Deserialize)]
#[serde(transparent)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);
