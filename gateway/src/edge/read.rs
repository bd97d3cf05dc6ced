//! Reading messages, once.

use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::header::{CACHE_CONTROL, ETAG, LINK, VARY};
use http::{HeaderValue, StatusCode};
use weir_protocol::decimal::integer;
use weir_protocol::error::ErrorCode;
use weir_protocol::filter::Filter;
use weir_protocol::ids::{Incarnation, Offset, PartitionId, hash128};
use weir_protocol::limits::INTEGER_MAX;
use weir_protocol::rpc::Level;

use super::accept::Accepted;
use super::answer::{self, empty};
use super::call::Call;
use super::input::essence;
use super::kept::IsCounted;
use super::page::{self, Form, corrupt};
use super::pieces::{UNDER_WAY_BYTES, WholeBody};
use super::route::is_of;
use super::{encoding, record};
use crate::answers::Held;
use crate::api::{Current, Problem};
use crate::service::ServiceError;
use crate::service::read::{self, PartitionEdge, Read, StartAt, Until};

const LIMIT_DEFAULT: u64 = 100;
const BYTES_DEFAULT: u64 = 1 << 20;
/// Of an address that says which life of the topic is meant: for one client, and for all of a topic that says so.
const IMMUTABLE: [&str; 2] = ["private, max-age=31536000, immutable", "public, max-age=31536000, immutable"];
/// The same of whichever topic of the name there is: it may be deleted and made anew, so the tag is compared each time.
const COMPARED: [&str; 2] = ["private, no-cache", "public, no-cache"];
/// Pages that are read, each as far as one request looks, to find what follows a message that compaction dropped.
const PAGES_PASSED_MAX: usize = 4;

/// The lowest level that the client is willing to see.
pub(super) fn min_level(call: &Call) -> Level {
    call.route.query("min_level").and_then(Level::from_text).unwrap_or(Level::Unset)
}

/// A partition number of the query or path; which exist, the service knows.
pub(super) fn partition(number: Option<u64>) -> Option<PartitionId> {
    number.map(|number| PartitionId(u32::try_from(number).unwrap_or(u32::MAX)))
}

/// The life of the topic that is meant.
fn incarnation(call: &Call) -> Option<Incarnation> {
    call.route.integer("incarnation").map(Incarnation)
}

/// Which messages are wanted, if it is not all.
pub(super) fn filter(call: &Call) -> Result<Option<String>, Problem> {
    let Some(text) = call.route.query("filter") else { return Ok(None) };
    Filter::parse(text).map_err(|error| Problem::invalid_parameter("filter", error.to_string()))?;
    Ok(Some(text.to_owned()))
}

fn request(call: &Call) -> Result<Read, Problem> {
    let limit = call.route.integer("limit").unwrap_or(LIMIT_DEFAULT);
    Ok(Read {
        topic: call.topic()?,
        incarnation: incarnation(call),
        partition: partition(call.route.integer("partition")),
        from: StartAt::parse(call.route.query("from").unwrap_or("earliest"))?,
        until: call.route.query("until").map(Until::parse).transpose()?,
        limit: u32::try_from(limit).unwrap_or(u32::MAX),
        max_bytes: call.route.integer("max_bytes").unwrap_or(BYTES_DEFAULT),
        wait: Duration::from_secs(call.route.integer("wait").unwrap_or(0)),
        min_level: min_level(call),
        clamp: call.route.query("clamp") == Some("true"),
        filter: filter(call)?,
    })
}

/// What a read finds, and the room that it is held in. Storage is not asked before there is room for what is asked for;
/// who waits holds none until something has come.
async fn found(call: &Call, read: &Read) -> Result<(read::ReadPage, Held), Problem> {
    let reader = &call.edge.services.reader;
    let room = call.client.hold_soon(read.max_bytes + UNDER_WAY_BYTES).await;
    let mut room = room.map_err(ServiceError::from)?;
    let at_once = Read { wait: Duration::ZERO, ..read.clone() };
    let page = reader.read(&at_once, &mut room).await?;
    let stands = |edge: &PartitionEdge| edge.next == edge.from;
    // Otherwise there is something, or something to be looked for behind what was looked at.
    let is_empty = page.slices.is_empty()
        && (page.up_to_date || (read.filter.is_none() && page.partitions.iter().all(stands)));
    if read.wait.is_zero() || !is_empty {
        return Ok((page, room));
    }
    drop(room);
    // What came meanwhile is not passed over.
    let from = StartAt::Cursor(page.cursor);
    // A time to come stays what is waited for: the end of now may be before it.
    let from = if matches!(read.from, StartAt::Timestamp(_)) { read.from.clone() } else { from };
    let (waiting, at_once) = (Read { from: from.clone(), ..read.clone() }, Read { from, ..at_once });
    let (mut room, mut last) = (call.client.nothing(), call.client.nothing());
    let at_once = reader.read(&at_once, &mut last);
    let page = call.waited(read.wait, reader.read(&waiting, &mut room), at_once).await?;
    let room = if last.bytes() > 0 { last } else { room };
    Ok((page, room))
}

pub(super) async fn page(call: Call) -> Result<Response, Problem> {
    let form = Form::of(&call)?;
    let read = request(&call)?;
    let (mut page, room) = found(&call, &read).await?;
    let tag = tag(&page, form, read.filter.as_deref());
    let compressed = page::compression(&call, &page, form);
    let tag = compressed.as_ref().map_or(tag.clone(), |(coding, _)| coding.tag(&tag));
    if is_known(&call, &tag) {
        let mut response = empty(StatusCode::NOT_MODIFIED);
        add_headers(&call, &read, &page, &tag, &mut response);
        return Ok(response);
    }
    // An empty page may be how far one request looks, by a filter or through what was dropped.
    let stands = read.filter.is_none() && page.partitions.iter().all(|edge| edge.next == edge.from);
    let was_in_vain = page.slices.is_empty() && (page.up_to_date || stands);
    let mut response = if !read.wait.is_zero() && was_in_vain {
        empty(StatusCode::NO_CONTENT)
    } else {
        page::response(&mut page, form, room, compressed)?
    };
    add_headers(&call, &read, &page, &tag, &mut response);
    Ok(response)
}

/// Whether the client has what the tag names.
pub(super) fn is_known(call: &Call, tag: &str) -> bool {
    answer::is_known(&call.headers, tag)
}

/// Names the range, the topic's life, the form, what is wanted, and whether that was all there is.
fn tag(page: &read::ReadPage, form: Form, filter: Option<&str>) -> String {
    let form = match form {
        Form::Json => "",
        Form::Lines => ":lines",
        Form::Binary => ":binary",
        Form::Events => ":events",
    };
    let wanted = filter.map(|text| format!(":f{:016x}", hash128(&[text.as_bytes()]) >> 64));
    let form = format!("{form}{}", wanted.unwrap_or_default());
    let all = if page.up_to_date { ":all" } else { "" };
    let closed = if page.closed { ":c" } else { "" };
    // Of a range less is left when it is compacted: how many tells which of them it was, whether more is to go or not.
    let is_compacted = page.partitions.iter().any(|edge| edge.compacted_to > Offset(0));
    let form = match is_compacted {
        true => format!("{form}:k{}", page.slices.iter().map(|slice| u64::from(slice.take)).sum::<u64>()),
        false => form,
    };
    let life = page.topic.incarnation;
    match page.single() {
        Some(edge) => format!("\"{life}:{}:{}:{}{all}{closed}{form}\"", edge.partition, edge.from, edge.next),
        None => {
            let ranges = page.partitions.iter().map(|edge| format!("{}-{}", edge.from, edge.next));
            format!("\"{life}:*:{}{all}{closed}{form}\"", ranges.collect::<Vec<_>>().join(","))
        }
    }
}

fn add_headers(call: &Call, read: &Read, page: &read::ReadPage, tag: &str, response: &mut Response) {
    let headers = response.headers_mut();
    let yes_no = |yes| HeaderValue::from_static(if yes { "true" } else { "false" });
    headers.insert("up-to-date", yes_no(page.up_to_date));
    if page.closed {
        headers.insert("closed", yes_no(true));
    }
    if let Some(edge) = page.single() {
        headers.insert("next-offset", HeaderValue::from(edge.next.0));
    }
    let cursor = page.cursor.encode();
    let next = match page.single() {
        Some(edge) => edge.next.to_string(),
        None => format!("cursor:{cursor}"),
    };
    let link = format!("<{}?from={next}{}>; rel=\"next\"", call.path, other_parameters(call));
    for (name, value) in [(ETAG.as_str(), tag), ("cursor", &cursor), (LINK.as_str(), &link)] {
        if let (Ok(name), Ok(value)) = (http::HeaderName::try_from(name), HeaderValue::from_str(value)) {
            headers.insert(name, value);
        }
    }
    let is_of_life = read.incarnation.is_some() || matches!(read.from, StartAt::Cursor(_));
    let caching = caching(is_immutable(read, page), is_of_life, page.topic.config.cache_public);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static(caching));
    headers.append(VARY, HeaderValue::from_static("Accept, Accept-Encoding"));
}

/// How long an answer may be kept that never changes, or does.
const fn caching(stays: bool, is_of_life: bool, is_public: bool) -> &'static str {
    match (stays, is_of_life) {
        (true, true) => IMMUTABLE[is_public as usize],
        (true, false) => COMPARED[is_public as usize],
        (false, _) => "no-store",
    }
}

/// What else was asked, so that whoever follows the link gets the same of the next messages.
fn other_parameters(call: &Call) -> String {
    let others = call.query.split('&').filter(|pair| !pair.is_empty() && !is_of(pair, "from"));
    others.fold(String::new(), |text, pair| text + "&" + pair)
}

/// The same request will be answered the same way for as long as the messages exist: it started at a fixed place,
/// and of each partition more than it returned was committed. What comes to one that was read to its end belongs into
/// the page.
fn is_immutable(read: &Read, page: &read::ReadPage) -> bool {
    let is_fixed = matches!(read.from, StartAt::Offset(_) | StartAt::Cursor(_)) && !read.clamp;
    let stays =
        |edge: &PartitionEdge| edge.next < edge.committed_end && !may_be_dropped(page, edge, edge.from);
    is_fixed && page.partitions.iter().all(stays)
}

/// Whether compaction may drop some of what lies from an offset on, or has: what is below may go on changing
/// until everybody knows that it was turned off.
fn may_be_dropped(page: &read::ReadPage, edge: &PartitionEdge, from: Offset) -> bool {
    page.topic.config.compact_by_key || from < edge.compacted_to
}

/// The first record from an offset on. Where many were dropped a page may end before it, and after some of
/// them this does too.
async fn first_from(call: &Call, mut read: Read, room: &mut Held) -> Result<read::ReadPage, Problem> {
    let mut page = call.edge.services.reader.read(&read, room).await?;
    for _ in 1..PAGES_PASSED_MAX {
        match page.single() {
            Some(edge) if page.slices.is_empty() && !page.up_to_date && edge.next > edge.from => {
                read.from = StartAt::Offset(edge.next);
                page = call.edge.services.reader.read(&read, room).await?;
            }
            _ => break,
        }
    }
    Ok(page)
}

/// Why there is no record at an offset: nothing is there yet, or compaction dropped it and all up to `next`,
/// which may be dropped too where it is far.
fn absent(offset: Offset, next: Offset, partition: u64) -> Problem {
    if next <= offset {
        return Problem::new(ErrorCode::BeyondTail, format!("the partition ends at {offset}"));
    }
    let detail = format!("message {offset} was dropped by compaction; the next is not before {next}");
    let partition = u32::try_from(partition).ok();
    let current = Current { partition, next: Some(next.0), ..Current::default() };
    Problem::new(ErrorCode::Compacted, detail).with_current(current)
}

/// Whether a message is wanted as one structured event: that is named, and liked no less than the payload's own type.
fn wants_event(call: &Call, content_type: &str) -> bool {
    let accepted = Accepted::of(&call.headers);
    let weight = accepted.named(record::EVENT);
    weight > 0.0 && weight >= accepted.weight(&essence(content_type))
}

/// A payload as it is stored, held in the room of its batch. It keeps that, unless it is a small part of it.
fn as_stored(value: &Bytes, mut room: Held) -> Body {
    let is_part = value.len() as u64 <= room.bytes() / 2;
    let value = if is_part { Bytes::copy_from_slice(value) } else { value.clone() };
    room.shrink(if is_part { value.len() as u64 } else { u64::MAX });
    Body::new(WholeBody::new(value, room))
}

/// The payload of one record, decoded for who does not take its encoding.
pub(super) async fn one(call: Call) -> Result<Response, Problem> {
    let number = |name: &'static str| {
        integer(call.route.path(name)).ok_or_else(|| {
            let detail = format!("{name} is a decimal number up to {INTEGER_MAX}");
            Problem::new(ErrorCode::Malformed, detail).with_field(name)
        })
    };
    let (partition_number, offset) = (number("partition")?, number("offset")?);
    let read = Read {
        topic: call.topic()?,
        incarnation: incarnation(&call),
        partition: partition(Some(partition_number)),
        from: StartAt::Offset(Offset(offset)),
        until: None,
        limit: 1,
        max_bytes: 1,
        wait: Duration::ZERO,
        min_level: min_level(&call),
        clamp: false,
        filter: None,
    };
    let mut room = call.client.nothing();
    let page = first_from(&call, read, &mut room).await?;
    let Some(slice) = page.slices.first().filter(|slice| slice.first == Offset(offset)) else {
        let next = page.slices.first().map(|slice| slice.first).or(page.single().map(|edge| edge.next));
        return Err(absent(Offset(offset), next.unwrap_or(Offset(offset)), partition_number));
    };
    let found = slice.records().map_err(|error| corrupt(&error))?.next();
    let found = found.ok_or_else(|| Problem::new(ErrorCode::Internal, "a slice without a record"))?;
    let found = found.map_err(|error| corrupt(&error))?;
    let stored_as = found.headers.content_encoding();
    let is_event = wants_event(&call, found.headers.content_type().unwrap_or_default());
    // In an event the payload is as it is stored.
    let encoding = stored_as.filter(|_| !is_event);
    let form =
        encoding.map_or(Ok(encoding::Form::Stored), |stored| encoding::Form::of(stored, &call.headers))?;
    let suffix = match form {
        _ if is_event => ":event",
        encoding::Form::Stored => "",
        encoding::Form::Decoded(_) => ":decoded",
    };
    let tag = format!("\"{}:{partition_number}:{offset}{suffix}\"", page.topic.incarnation);
    let mut response = match form {
        _ if is_known(&call, &tag) => empty(StatusCode::NOT_MODIFIED),
        _ if is_event => {
            record::event_response(record::event(&found, &page.topic, slice.partition), found.ts.0)
        }
        encoding::Form::Stored => record::response(&found, (as_stored(&found.value, room), true)),
        encoding::Form::Decoded(decoder) => {
            let decoded = decoder.decode(found.value.clone(), room).await?;
            record::response(&found, (decoded, false))
        }
    };
    if !is_event {
        response.extensions_mut().insert(IsCounted);
    }
    let headers = response.headers_mut();
    let forms = if stored_as.is_some() { "Accept, Accept-Encoding" } else { "Accept" };
    headers.append(VARY, HeaderValue::from_static(forms));
    // Below its commit a record may still be lost with its leader, and compaction may drop it.
    let may_go = page.single().is_none_or(|edge| may_be_dropped(&page, edge, found.offset));
    let stays = found.offset < slice.committed_end && !may_go;
    let caching = caching(stays, incarnation(&call).is_some(), page.topic.config.cache_public);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static(caching));
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        headers.insert(ETAG, tag);
    }
    Ok(response)
}
