//! Messages in the forms of a page, written piece by piece.

use std::sync::Arc;
use std::vec;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::HeaderValue;
use http::header::CONTENT_TYPE;
use weir_protocol::batch::{BatchError, Record};
use weir_protocol::error::ErrorCode;
use weir_protocol::ids::PartitionId;

use super::accept::Accepted;
use super::call::Call;
use super::compress::{self, Coding};
use super::pieces::{Around, Items, PIECE_BYTES, Pieces, Put};
use super::record::{self, Rest};
use crate::answers::Held;
use crate::api::{Next, Problem};
use crate::service::ServiceError;
use crate::service::read::{self, RecordSlice, held_bytes};
use crate::storage::Topic;

/// Pages whose messages take no more than this are made as a whole: they tell their length.
const WHOLE_BYTES: u64 = PIECE_BYTES as u64;

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
    pub(super) fn of(call: &Call) -> Result<Self, Problem> {
        let best = Accepted::of(&call.headers).best(&FORMS.map(Self::media));
        FORMS.into_iter().find(|form| Some(form.media()) == best).ok_or_else(|| {
            let detail = "application/json, application/x-ndjson, application/vnd.weir.batch, \
                          application/cloudevents-batch+json or text/event-stream";
            Problem::new(ErrorCode::NotAcceptable, detail).with_field("accept")
        })
    }

    fn around(self, page: &read::ReadPage) -> Around {
        let (begin, between, behind) = match self {
            Self::Json => ("{\"messages\":[", ",", ""),
            Self::Lines => ("", "", "\n"),
            Self::Binary => ("", "", ""),
            Self::Events => ("[", ",", ""),
        };
        let end = match self {
            Self::Json => {
                let next = match page.single() {
                    Some(edge) => Next::Offset(edge.next.0),
                    None => Next::Cursor(page.cursor.encode()),
                };
                let next = serde_json::to_string(&next).unwrap_or_default();
                format!("],\"next\":{next},\"up_to_date\":{}}}", page.up_to_date)
            }
            Self::Events => "]".to_owned(),
            Self::Lines | Self::Binary => String::new(),
        };
        Around { begin, between, behind, end }
    }
}

/// The answer that a page is, held in `room`.
///
/// # Errors
/// `answers_full`; `corrupt`, of a small page: a large one ends in the middle.
pub(super) fn response(
    page: &mut read::ReadPage,
    form: Form,
    room: Held,
    compressed: Option<(Coding, Held)>,
) -> Result<Response, Problem> {
    let around = form.around(page);
    let slices = std::mem::take(&mut page.slices);
    let raw = raw_bytes(&slices);
    let coding = compressed.as_ref().map(|(coding, _)| *coding);
    let pieces = Pieces::new(Messages::new(slices, form, Arc::clone(&page.topic)), around);
    let body = if raw <= WHOLE_BYTES {
        drop(room);
        let whole = pieces.whole()?;
        Body::from(match coding {
            Some(coding) => coding.whole(&whole).map_err(|error| compress::failed(&error))?,
            None => whole,
        })
    } else {
        let body = pieces.body(room).map_err(ServiceError::from)?;
        match compressed {
            Some((coding, room)) => coding.body(body, room).map_err(|error| compress::failed(&error))?,
            None => body,
        }
    };
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(form.media()));
    Ok(compress::encoded(response, coding))
}

/// How a page is compressed, if it is: batches are already, where their publishers wanted that.
pub(super) fn compression(call: &Call, page: &read::ReadPage, form: Form) -> Option<(Coding, Held)> {
    let is_worth_it = form != Form::Binary && raw_bytes(&page.slices) >= compress::WORTH_BYTES as u64;
    Coding::wanted(&call.headers).filter(|_| is_worth_it)?.with_room(&call.client)
}

fn raw_bytes(slices: &[RecordSlice]) -> u64 {
    slices.iter().map(|slice| u64::from(slice.batch.header().raw_bytes)).sum()
}

/// Records as a page of lines of JSON, as a whole.
pub(super) fn whole(slices: Vec<RecordSlice>, form: Form, topic: Arc<Topic>) -> Result<Bytes, Problem> {
    let behind = if form == Form::Lines { "\n" } else { "" };
    let around = Around { begin: "", between: ",", behind, end: String::new() };
    Pieces::new(Messages::new(slices, form, topic), around).whole()
}

pub(super) fn corrupt(error: &BatchError) -> Problem {
    Problem::new(ErrorCode::Corrupt, format!("a stored record batch is damaged: {error}"))
}

type Records = Box<dyn Iterator<Item = Result<Record, BatchError>> + Send>;

/// Messages that are left to be written.
struct Messages {
    slices: vec::IntoIter<RecordSlice>,
    form: Form,
    topic: Arc<Topic>,
    now: Now,
    /// Bytes that the slices keep, the one that is being written among them.
    held: u64,
    /// Of them, those of that one.
    held_now: u64,
}

/// What is being written.
enum Now {
    Nothing,
    Records(PartitionId, Records),
    /// The rest of a record, and those behind it.
    Rest(Rest, PartitionId, Records),
    /// The rest of a batch.
    Batch(Bytes),
}

impl Messages {
    fn new(slices: Vec<RecordSlice>, form: Form, topic: Arc<Topic>) -> Self {
        let held = held_bytes(&slices);
        Self { slices: slices.into_iter(), form, topic, now: Now::Nothing, held, held_now: 0 }
    }

    /// Whole batches go out as they are stored; of others the part that is meant is built anew.
    fn begin(&self, slice: &RecordSlice) -> Result<Now, BatchError> {
        Ok(match self.form {
            Form::Binary if slice.is_whole() => Now::Batch(slice.batch.bytes().clone()),
            Form::Binary => Now::Batch(slice.batch.slice_of(slice.first, slice.take)?.bytes().clone()),
            _ => Now::Records(slice.partition, Box::new(slice.records()?)),
        })
    }

    fn write(&self, out: &mut Vec<u8>, record: &Record, partition: PartitionId) -> Option<Rest> {
        match self.form {
            Form::Events => record::put_event(out, record, &self.topic, partition),
            _ => record::put(out, record, partition),
        }
    }
}

impl Items for Messages {
    fn put(&mut self, out: &mut Vec<u8>) -> Result<Put, Problem> {
        let start = out.len();
        let put = loop {
            match std::mem::replace(&mut self.now, Now::Nothing) {
                Now::Nothing => {
                    self.held -= std::mem::take(&mut self.held_now);
                    let Some(slice) = self.slices.next() else { break Put::End };
                    self.now = self.begin(&slice).map_err(|error| corrupt(&error))?;
                    self.held_now = slice.batch.bytes().len() as u64;
                }
                Now::Records(partition, mut records) => {
                    let Some(record) = records.next() else { continue };
                    let record = record.map_err(|error| corrupt(&error))?;
                    let rest = self.write(out, &record, partition);
                    let is_whole = rest.is_none();
                    self.now = match rest {
                        Some(rest) => Now::Rest(rest, partition, records),
                        None => Now::Records(partition, records),
                    };
                    break if is_whole { Put::Item } else { Put::Part };
                }
                Now::Rest(mut rest, partition, records) => {
                    let is_left = rest.put(out);
                    self.now = match is_left {
                        true => Now::Rest(rest, partition, records),
                        false => Now::Records(partition, records),
                    };
                    break if is_left { Put::Part } else { Put::Item };
                }
                Now::Batch(mut bytes) => {
                    out.extend_from_slice(&bytes.split_to(bytes.len().min(PIECE_BYTES)));
                    if bytes.is_empty() {
                        break Put::Item;
                    }
                    self.now = Now::Batch(bytes);
                    break Put::Part;
                }
            }
        };
        if self.form == Form::Lines {
            put_on_one_line(&mut out[start..]);
        }
        Ok(put)
    }

    fn held_bytes(&self) -> u64 {
        self.held
    }
}

/// Makes line breaks spaces. JSON has them between its tokens only, where both mean the same; left there, a
/// payload could show what looks like a message of its own.
fn put_on_one_line(json: &mut [u8]) {
    json.iter_mut().filter(|byte| matches!(byte, b'\n' | b'\r')).for_each(|byte| *byte = b' ');
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use http_body_util::BodyExt as _;
    use weir_protocol::batch::{Batch, BatchBuilder, Compression, HeadersBuilder, RecordParts};
    use weir_protocol::ids::{Name, Offset, Term, TimestampMs, TopicPath};
    use weir_protocol::rpc::TopicConfig;

    use super::*;
    use crate::answers::Answers;
    use crate::service::read::Cursor;

    fn topic() -> Arc<Topic> {
        let name = Name::default_name;
        let path = TopicPath { tenant: name(), namespace: name(), topic: name() };
        Arc::new(Topic::unmade(path, TopicConfig::default()))
    }

    fn slice(payloads: &[&[u8]], media: &str, compression: Compression) -> RecordSlice {
        let mut headers = HeadersBuilder::default();
        headers.content_type(media);
        let (headers, mut builder) = (headers.finish(), BatchBuilder::anonymous());
        for value in payloads {
            builder.push(RecordParts { key: None, headers: &headers, value }).unwrap();
        }
        let partition = PartitionId(0);
        let placed = builder.build(compression).unwrap().placed(Offset(4), TimestampMs(5), partition);
        let batch = Batch::parse(placed.concat().into()).unwrap();
        let take = u32::try_from(payloads.len()).unwrap();
        RecordSlice { partition, batch, first: Offset(4), take, committed_end: Offset(99), term: Term(1) }
    }

    #[test]
    fn a_payload_of_several_lines_is_one_line_of_a_page() {
        let payloads = ["{\r\n  \"a\": \"\\n\"\n}", "[\n{\"offset\":7}\n,1.10\r]", "2"];
        let slice = slice(&payloads.map(str::as_bytes), "application/json", Compression::None);
        let around = Around { begin: "", between: "", behind: "\n", end: String::new() };
        let text = Pieces::new(Messages::new(vec![slice], Form::Lines, topic()), around).whole().unwrap();
        let text = std::str::from_utf8(&text).unwrap();
        let read: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let offsets: Vec<_> = read.iter().map(|record| record["offset"].as_u64()).collect();
        assert_eq!(offsets, [Some(4), Some(5), Some(6)], "{text}");
        assert!(text.contains("1.10 ]") && !text.contains('\r'), "{text}");
        assert_eq!(read[0]["data"]["a"], "\n");
    }

    #[tokio::test]
    async fn a_page_in_pieces_is_the_page_as_a_whole_and_its_room_is_given_back_as_it_is_taken() {
        let json = format!("[{}1]", "1.10,\n".repeat(20_000));
        let text = "é\"\u{1}".repeat(30_000);
        let bytes = [0xff; 100_001];
        let slices: Vec<_> = [Compression::None, Compression::Zstd]
            .into_iter()
            .flat_map(|compression| {
                [
                    slice(&[json.as_bytes(), b"1"], "application/json", compression),
                    slice(&[text.as_bytes(), b"x"], "text/plain", compression),
                    slice(&[&bytes, b"\xff"], "application/octet-stream", compression),
                ]
            })
            .collect();
        for form in FORMS {
            let page = || read::ReadPage {
                topic: topic(),
                slices: slices.clone(),
                partitions: Vec::new(),
                cursor: Cursor::default(),
                up_to_date: true,
                closed: false,
            };
            let whole = Pieces::new(Messages::new(slices.clone(), form, topic()), form.around(&page()));
            let whole = whole.whole().unwrap();
            let answers = Answers::new(100 << 20);
            let room = answers.client(Ipv4Addr::LOCALHOST.into()).nothing();
            let mut body = response(&mut page(), form, room, None).unwrap().into_body();
            let (mut taken, mut before) = (Vec::new(), answers.metrics().held);
            assert!(before >= 300_000, "{before} bytes are counted");
            while let Some(frame) = body.frame().await {
                let data = frame.unwrap().into_data().unwrap();
                assert!(data.len() <= 4 * PIECE_BYTES, "{form:?}: {}", data.len());
                taken.extend_from_slice(&data);
                let held = answers.metrics().held;
                assert!(held <= before);
                before = held;
            }
            assert!(taken == whole, "{form:?}: {} and {} bytes", taken.len(), whole.len());
            drop(body);
            assert_eq!(answers.metrics().held, 0);
        }
    }
}
