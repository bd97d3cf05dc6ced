//! Reading messages, once.

use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::{BufMut as _, Bytes, BytesMut};
use http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH, LINK, VARY};
use http::{HeaderValue, StatusCode};
use weir_protocol::batch::BatchError;
use weir_protocol::decimal::integer;
use weir_protocol::error::ErrorCode;
use weir_protocol::filter::Filter;
use weir_protocol::ids::{Incarnation, Offset, PartitionId, hash128};
use weir_protocol::limits::INTEGER_MAX;
use weir_protocol::rpc::Level;

use super::accept::Accepted;
use super::answer::{empty, json};
use super::call::Call;
use super::input::essence;
use super::route::is_of;
use super::{encoding, record};
use crate::api::{Current, Next, Problem, ReadPage, Record};
use crate::service::read::{self, PartitionEdge, Read, RecordSlice, StartAt, Until};

const LIMIT_DEFAULT: u64 = 100;
const BYTES_DEFAULT: u64 = 1 << 20;
/// Of an address that says which life of the topic is meant: for one client, and for all of a topic that says so.
const IMMUTABLE: [&str; 2] = ["private, max-age=31536000, immutable", "public, max-age=31536000, immutable"];
/// The same of whichever topic of the name there is: it may be deleted and made anew, so the tag is compared each time.
const COMPARED: [&str; 2] = ["private, no-cache", "public, no-cache"];
/// Pages that are read, each as far as one request looks, to find what follows a message that compaction dropped.
const PAGES_PASSED_MAX: usize = 4;

/// The forms of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Json,
    Lines,
    Binary,
    Events,
}

/// The first is for who takes anything.
pub(super) const FORMS: [Form; 4] = [Form::Json, Form::Lines, Form::Binary, Form::Events];

impl Form {
    pub(super) const fn media(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Lines => "application/x-ndjson",
            Self::Binary => "application/vnd.weir.batch",
            Self::Events => "application/cloudevents-batch+json",
        }
    }

    /// The form that the client likes best; JSON if it takes anything.
    fn of(call: &Call) -> Result<Self, Problem> {
        let best = Accepted::of(&call.headers).best(&FORMS.map(Self::media));
        FORMS.into_iter().find(|form| Some(form.media()) == best).ok_or_else(|| {
            let detail = "application/json, application/x-ndjson, application/vnd.weir.batch, \
                          application/cloudevents-batch+json or text/event-stream";
            Problem::new(ErrorCode::NotAcceptable, detail).with_field("accept")
        })
    }
}

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

pub(super) async fn page(call: Call) -> Result<Response, Problem> {
    let form = Form::of(&call)?;
    let read = request(&call)?;
    let reader = &call.edge.services.reader;
    let at_once = async { reader.read(&Read { wait: Duration::ZERO, ..read.clone() }).await };
    let page = call.waited(read.wait, reader.read(&read), at_once).await?;
    let tag = tag(&page, form, read.filter.as_deref());
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
        match form {
            Form::Json => json(StatusCode::OK, &json_page(&page)?)?,
            Form::Lines => with_media(form, lines(&page.slices)?),
            Form::Binary => with_media(form, binary(&page)?),
            Form::Events => with_media(form, events(&page)?),
        }
    };
    add_headers(&call, &read, &page, &tag, &mut response);
    Ok(response)
}

fn with_media(form: Form, body: Bytes) -> Response {
    let mut response = Response::new(Body::from(body));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(form.media()));
    response
}

fn corrupt(error: &BatchError) -> Problem {
    Problem::new(ErrorCode::Corrupt, format!("a stored record batch is damaged: {error}"))
}

/// Records as they stand in a page of JSON.
pub(super) fn json_messages(slices: &[RecordSlice]) -> Result<Vec<Record>, Problem> {
    let mut messages = Vec::new();
    for slice in slices {
        for record in slice.records().map_err(|error| corrupt(&error))? {
            messages.push(record::shown(&record.map_err(|error| corrupt(&error))?, slice.partition));
        }
    }
    Ok(messages)
}

fn json_page(page: &read::ReadPage) -> Result<ReadPage, Problem> {
    let messages = json_messages(&page.slices)?;
    let next = match page.single() {
        Some(edge) => Next::Offset(edge.next.0),
        None => Next::Cursor(page.cursor.encode()),
    };
    Ok(ReadPage { messages, next, up_to_date: page.up_to_date })
}

/// Records as a line of JSON each.
pub(super) fn lines(slices: &[RecordSlice]) -> Result<Bytes, Problem> {
    let mut out = BytesMut::new().writer();
    for slice in slices {
        for record in slice.records().map_err(|error| corrupt(&error))? {
            let shown = record::shown(&record.map_err(|error| corrupt(&error))?, slice.partition);
            let start = out.get_ref().len();
            serde_json::to_writer(&mut out, &shown).expect("a record has a JSON form, and memory takes it");
            put_on_one_line(&mut out.get_mut()[start..]);
            out.get_mut().put_u8(b'\n');
        }
    }
    Ok(out.into_inner().freeze())
}

/// Makes line breaks spaces. JSON has them between its tokens only, where both mean the same; left there, a
/// payload could show what looks like a message of its own.
fn put_on_one_line(json: &mut [u8]) {
    json.iter_mut().filter(|byte| matches!(byte, b'\n' | b'\r')).for_each(|byte| *byte = b' ');
}

fn events(page: &read::ReadPage) -> Result<Bytes, Problem> {
    let mut out = String::from("[");
    for slice in &page.slices {
        for record in slice.records().map_err(|error| corrupt(&error))? {
            let record = record.map_err(|error| corrupt(&error))?;
            if out.len() > 1 {
                out.push(',');
            }
            out.push_str(&record::event(&record, &page.topic, slice.partition));
        }
    }
    out.push(']');
    Ok(out.into())
}

/// Whole batches go out as they are stored; of others the part that is meant is built anew.
fn binary(page: &read::ReadPage) -> Result<Bytes, Problem> {
    let mut out = BytesMut::new();
    for slice in &page.slices {
        if slice.is_whole() {
            out.put_slice(slice.batch.bytes());
        } else {
            let part = slice.batch.slice_of(slice.first, slice.take).map_err(|error| corrupt(&error))?;
            out.put_slice(part.bytes());
        }
    }
    Ok(out.freeze())
}

/// Whether the client has what the tag names. Compared weakly, as `If-None-Match` asks for; `*` has anything.
pub(super) fn is_known(call: &Call, tag: &str) -> bool {
    let lists = call.headers.get_all(IF_NONE_MATCH).iter().filter_map(|list| list.to_str().ok());
    // Tags with commas are compared whole, so a tag is looked for in the list rather than the list divided.
    lists.map(str::trim).any(|list| list == "*" || list.contains(tag))
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
    headers.append(VARY, HeaderValue::from_static("Accept"));
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
async fn first_from(call: &Call, mut read: Read) -> Result<read::ReadPage, Problem> {
    let mut page = call.edge.services.reader.read(&read).await?;
    for _ in 1..PAGES_PASSED_MAX {
        match page.single() {
            Some(edge) if page.slices.is_empty() && !page.up_to_date && edge.next > edge.from => {
                read.from = StartAt::Offset(edge.next);
                page = call.edge.services.reader.read(&read).await?;
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
    let page = first_from(&call, read).await?;
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
            let event = record::event(&found, &page.topic, slice.partition);
            record::event_response(event, found.ts.0)
        }
        encoding::Form::Stored => record::response(&found, None),
        encoding::Form::Decoded(decoder) => {
            let decoded = decoder.decode(found.value.clone(), call.edge.bodies.clone()).await?;
            record::response(&found, Some(decoded))
        }
    };
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

#[cfg(test)]
mod tests {
    use weir_protocol::batch::{Batch, BatchBuilder, Compression, HeadersBuilder, RecordParts};
    use weir_protocol::ids::{Term, TimestampMs};

    use super::*;

    #[test]
    fn a_payload_of_several_lines_is_one_line_of_a_page() {
        let payloads = ["{\r\n  \"a\": \"\\n\"\n}", "[\n{\"offset\":7}\n,1.10\r]", "2"];
        let mut headers = HeadersBuilder::default();
        headers.content_type("application/json");
        let (headers, mut builder) = (headers.finish(), BatchBuilder::anonymous());
        for payload in payloads {
            builder.push(RecordParts { key: None, headers: &headers, value: payload.as_bytes() }).unwrap();
        }
        let partition = PartitionId(0);
        let placed = builder.build(Compression::None).unwrap().placed(Offset(4), TimestampMs(5), partition);
        let batch = Batch::parse(placed.concat().into()).unwrap();
        let (first, committed_end, term) = (Offset(4), Offset(7), Term(1));
        let slice = RecordSlice { partition, batch, first, take: 3, committed_end, term };
        let text = lines(&[slice]).unwrap();
        let text = std::str::from_utf8(&text).unwrap();
        let read: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let offsets: Vec<_> = read.iter().map(|record| record["offset"].as_u64()).collect();
        assert_eq!(offsets, [Some(4), Some(5), Some(6)], "{text}");
        assert!(text.contains("1.10 ]") && !text.contains('\r'), "{text}");
        assert_eq!(read[0]["data"]["a"], "\n");
    }
}
