//! What must hold for any input: nothing panics, and what is accepted means the same after it was written again.

use bytes::{Bytes, BytesMut};
use weir_protocol::batch::{Batch, HEADER_BYTES, Record};
use weir_protocol::checksum::crc32c;
use weir_protocol::filter::Filter;
use weir_protocol::frame::{self, FrameHead};
use weir_protocol::ids::Offset;
use weir_protocol::rpc::{ConsumeEvent, Packet, PublishRequest, ReadAnswer, SubscribeEvent};
use weir_protocol::ws::{Channel, WsError, binary, json};

/// Record batches: as they come, and with length and checksum made right so that the records are reached.
pub fn batch(data: &[u8]) {
    let mut rest = Bytes::copy_from_slice(data);
    while let Ok(batch) = Batch::take_from(&mut rest) {
        one_batch(&batch);
    }
    if data.len() >= HEADER_BYTES {
        let mut repaired = data.to_vec();
        let Ok(len) = u32::try_from(data.len() - 4) else { return };
        repaired[0..4].copy_from_slice(&len.to_le_bytes());
        let crc = crc32c(&repaired[32..]);
        repaired[28..32].copy_from_slice(&crc.to_le_bytes());
        if let Ok(batch) = Batch::parse(repaired.into()) {
            one_batch(&batch);
        }
    }
}

fn one_batch(batch: &Batch) {
    let header = batch.header();
    let records: Result<Vec<_>, _> = match batch.records() {
        Ok(records) => records.collect(),
        Err(_) => return,
    };
    if header.left.is_some() {
        return holes(batch, records.ok());
    }
    if batch.validate_records().is_err() {
        return;
    }
    let records = records.expect("records that were validated can be read");
    assert_eq!(records.len(), header.count as usize);
    assert_eq!(records.iter().map(|record| record.size).sum::<usize>(), header.raw_bytes as usize);
    let (first, take) =
        (Offset(header.base_offset.0 + u64::from(header.count) / 3), header.count.div_ceil(2));
    let part = batch.slice_of(first, take).expect("a range within the batch");
    let part = Batch::parse(part.bytes().clone()).expect("a part is a batch");
    part.validate_records().expect("a part of valid records is valid");
    let values = part.records().expect("read before").map(|record| record.expect("validated").value);
    let end = first.0 + u64::from(take);
    let meant = records.iter().filter(|record| (first.0..end).contains(&record.offset.0));
    assert!(values.eq(meant.map(|record| record.value.clone())), "a part has the records of its range");
    // Every second record, as a filter may want them.
    let places: Vec<_> = (0..header.count).step_by(2).map(|place| place..place + 1).collect();
    let parts = batch.parts_of(&places).expect("places within the batch");
    for (part, record) in parts.iter().zip(records.iter().step_by(2)) {
        let alone = part.records().expect("a part is a batch").next().expect("of one record");
        assert_eq!(alone.expect("valid as it was").value, record.value);
    }
}

/// A batch with holes: its records are in order and within it, and what is left of it after more went is what it was.
fn holes(batch: &Batch, records: Option<Vec<Record>>) {
    let header = batch.header();
    assert!(batch.validate_records().is_err(), "nobody publishes it");
    let Some(records) = records else { return };
    assert_eq!(records.len(), header.records() as usize);
    assert!(records.is_sorted_by(|a, b| a.offset < b.offset), "in order");
    let end = header.base_offset.0.saturating_add(header.count.into());
    assert!(records.iter().all(|record| (header.base_offset.0..end).contains(&record.offset.0)));
    let is_kept = |place: u64| place.is_multiple_of(2);
    let less = batch.retain(|place| is_kept(place.into())).expect("it was read before");
    let less = Batch::parse(less.bytes().clone()).expect("what is left is a batch");
    let kept: Vec<_> = less.records().expect("a batch").map(|record| record.expect("as it was")).collect();
    let expected = records.into_iter().filter(|record| is_kept(record.offset.0 - header.base_offset.0));
    assert!(expected.eq(kept), "the others are as they were");
}

/// Filters: the text of one is read as the same one, and a place of an error lies within the text.
pub fn filter(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match Filter::parse(text) {
        Ok(filter) => {
            let again = filter.to_string();
            // What is shown may be longer than what was read: an escape here, a parenthesis there.
            if let Ok(read) = Filter::parse(&again) {
                assert_eq!(read, filter, "{again}");
            }
            let _ = filter.matches(Some(data), &weir_protocol::batch::Headers::default());
        }
        Err(error) => assert!(error.at <= text.len(), "{error}"),
    }
}

/// Frames between rooms and the messages in them.
pub fn node_frame(data: &[u8]) {
    let front = data.split_first_chunk::<{ frame::HEADER_BYTES }>();
    if let Some((head, body)) = front
        && let Ok(read) = FrameHead::decode(head)
    {
        let body = &body[..body.len().min(read.body_bytes)];
        if read.body_bytes == body.len() && read.verify(body).is_ok() {
            let again = read.head.encode(&[Bytes::copy_from_slice(body)]);
            assert_eq!(&again, head, "a frame has one form");
        }
        packets(body);
    }
    packets(data);
}

fn packets(body: &[u8]) {
    let body = Bytes::copy_from_slice(body);
    let _ = Packet::<PublishRequest>::decode(body.clone());
    let _ = Packet::<ReadAnswer>::decode(body.clone());
    let _ = Packet::<SubscribeEvent>::decode(body.clone());
    let _ = Packet::<ConsumeEvent>::decode(body);
}

/// WebSocket messages of the binary form, from either side.
pub fn ws_binary(data: &[u8]) {
    let data = Bytes::copy_from_slice(data);
    written_again(&data, binary::take_client_frame, binary::put_client_frame);
    written_again(&data, binary::take_server_frame, binary::put_server_frame);
}

type Take<F> = fn(&mut Bytes) -> Result<Option<(Channel, F)>, WsError>;

fn written_again<F>(data: &Bytes, take: Take<F>, put: fn(&mut BytesMut, Channel, &F))
where
    F: PartialEq + std::fmt::Debug,
{
    let mut rest = data.clone();
    while let Ok(Some((ch, frame))) = take(&mut rest) {
        let mut message = BytesMut::new();
        put(&mut message, ch, &frame);
        let mut message = message.freeze();
        // Defaults may be written out where they were left out, so a message at the limit can outgrow it.
        match take(&mut message) {
            Err(WsError::TooLarge(_)) => {}
            again => assert_eq!(again, Ok(Some((ch, frame)))),
        }
        assert!(message.is_empty());
    }
}

/// WebSocket messages of the JSON form, from either side.
pub fn ws_json(data: &[u8]) {
    let Ok(message) = std::str::from_utf8(data) else { return };
    for (ch, frame) in json::client_frames(message).map_while(Result::ok) {
        let mut line = String::new();
        json::put_client_frame(&mut line, ch, &frame);
        let again: Vec<_> = json::client_frames(&line).collect();
        assert!(matches!(again[..], [Err(WsError::TooLarge(_))]) || again == [Ok((ch, frame))], "{line}");
    }
    for (ch, frame) in json::server_frames(message).map_while(Result::ok) {
        let mut line = String::new();
        json::put_server_frame(&mut line, ch, &frame);
        let again: Vec<_> = json::server_frames(&line).collect();
        assert!(matches!(again[..], [Err(WsError::TooLarge(_))]) || again == [Ok((ch, frame))], "{line}");
    }
}
