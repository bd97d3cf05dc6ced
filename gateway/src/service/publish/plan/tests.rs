use bytes::Bytes;
use proptest::prelude::*;
use weir_protocol::batch::{Headers, HeadersBuilder};

use super::*;

fn record(key: Option<&str>, bytes: usize) -> NewRecord {
    let key = key.map(|key| Bytes::copy_from_slice(key.as_bytes()));
    NewRecord { key, headers: Headers::default(), value: Bytes::from(vec![7; bytes]), unnamed: None }
}

fn placing(partitions: u32) -> Placing {
    let keyless = PartitionId(0);
    Placing { partitions, keyless, is_fixed: false, producer: None, atomic: false, now: NOW }
}

const NOW: TimestampMs = TimestampMs(1_000_000);
const PRODUCER: ProducerAt =
    ProducerAt { key: ProducerKey(9), named: ProducerKey(9), epoch: Epoch(2), seq: Seq(100) };

fn planned(records: &[NewRecord], placing: Placing) -> Result<Vec<Part>, ServiceError> {
    plan(&Content::Records(records.to_vec()), None, placing, &PublishConfig::default())
}

fn batch(keys: &[Option<&str>]) -> Batch {
    let mut builder = BatchBuilder::anonymous();
    for key in keys {
        let parts = RecordParts { key: key.map(str::as_bytes), headers: &Headers::default(), value: b"v" };
        builder.push(parts).unwrap();
    }
    builder.build(Compression::None).unwrap()
}

proptest! {
    #[test]
    fn every_record_is_in_one_batch_of_its_keys_partition_in_order_and_with_its_number(
        keys in proptest::collection::vec(proptest::option::of(0u8..20), 1..80), partitions in 1u32..6,
        with_producer in any::<bool>(),
    ) {
        let keys: Vec<_> = keys.iter().map(|key| key.map(|key| format!("k{key}"))).collect();
        let records: Vec<_> = keys.iter().map(|key| record(key.as_deref(), 10)).collect();
        let producer = with_producer.then_some(PRODUCER);
        let parts = planned(&records, Placing { producer, ..placing(partitions) }).unwrap();
        let mut seen = vec![0; records.len()];
        let mut last = std::collections::HashMap::new();
        for part in &parts {
            let places: Vec<_> = part.records.iter().cloned().flatten().collect();
            let found: Vec<_> = part.batch.records().unwrap().map(Result::unwrap).collect();
            prop_assert_eq!(places.len(), found.len());
            for (place, record) in places.into_iter().zip(found) {
                seen[place as usize] += 1;
                let key = keys[place as usize].as_deref();
                prop_assert_eq!(record.key.as_deref(), key.map(str::as_bytes));
                let expected = key.map_or(PartitionId(0), |key| partition_of(key.as_bytes(), partitions));
                prop_assert_eq!(part.partition, expected);
                if with_producer {
                    prop_assert_eq!(record.seq, Seq(100 + u64::from(place)));
                }
                let before = last.insert(part.partition, place);
                prop_assert!(before.is_none_or(|before| before < place), "order within a partition");
            }
        }
        prop_assert!(seen.iter().all(|times| *times == 1));
    }
}

#[test]
fn batches_that_are_much_more_than_they_look_refuse_the_request_before_they_are_decoded() {
    let mut builder = BatchBuilder::anonymous();
    let value = vec![0; 1 << 20];
    for _ in 0..3 {
        builder.push(RecordParts { key: None, headers: &Headers::default(), value: &value }).unwrap();
    }
    let batch = builder.build(Compression::Zstd).unwrap();
    let raw_bytes = batch.header().raw_bytes as usize;
    let planned = |batches: usize| {
        let content = Content::Batches(vec![batch.clone(); batches]);
        plan(&content, None, placing(1), &PublishConfig::default())
    };
    assert!(batch.bytes().len() < 2_000, "{}", batch.bytes().len());
    let fits = BATCHES_DECODED_BYTES_MAX / raw_bytes;
    assert_eq!(planned(fits).unwrap().len(), fits);
    let refused = planned(fits + 1).unwrap_err();
    assert_eq!(
        (refused.code(), refused.limit),
        (ErrorCode::TooLarge, Some(BATCHES_DECODED_BYTES_MAX as u64))
    );
}

#[test]
fn a_batch_that_names_its_producer_itself_is_repeated_where_it_was() {
    let producer = ProducerKey(1 << 77 | 5);
    let keyless = batch(&[None, None]).with_producer(producer, Epoch(1), Seq(0));
    let planned = |batch: &Batch, at: Placing| {
        let parts =
            plan(&Content::Batches(vec![batch.clone()]), None, at, &PublishConfig::default()).unwrap();
        let [part] = &parts[..] else { panic!("{parts:?}") };
        assert_eq!(part.batch.header().producer, batch.header().producer);
        part.partition
    };
    // Whose turn it is is another question each time.
    let turns = |batch: &Batch| -> std::collections::BTreeSet<_> {
        (0..7).map(|turn| planned(batch, Placing { keyless: PartitionId(turn), ..placing(7) })).collect()
    };
    assert_eq!(turns(&keyless).len(), 1);
    assert_eq!(turns(&batch(&[None])).len(), 7, "without a producer nothing is repeated");
    let keyed = batch(&[Some("k")]).with_producer(producer, Epoch(1), Seq(2));
    assert_eq!(planned(&keyed, placing(7)), partition_of(b"k", 7));
}

#[test]
fn batches_end_at_their_size_unless_they_are_atomic() {
    let records = vec![record(None, 600_000); 3];
    assert_eq!(planned(&records, placing(1)).unwrap().len(), 3);
    let atomic = Placing { atomic: true, ..placing(1) };
    assert_eq!(planned(&records, atomic).unwrap().len(), 1);
    let error = planned(&vec![record(None, 1_000_000); 4], atomic).unwrap_err();
    assert_eq!(error.code(), ErrorCode::TooLarge);
}

#[test]
fn a_record_beyond_the_limits_refuses_the_request() {
    for (record, field) in
        [(record(None, (1 << 20) + 1), "data"), (record(Some(&"k".repeat(1_025)), 1), "key")]
    {
        let error = planned(&[record], placing(1)).unwrap_err();
        assert_eq!((error.code(), error.field), (ErrorCode::TooLarge, Some(field)));
    }
    assert_eq!(planned(&[], placing(1)).unwrap_err().code(), ErrorCode::Malformed);
}

#[test]
fn a_delivery_beyond_the_limits_refuses_the_request_whichever_way_the_record_comes() {
    let headers = |deliver_at: u64, ttl_ms: u64| {
        HeadersBuilder::default().deliver_at(TimestampMs(deliver_at)).ttl_ms(ttl_ms).finish()
    };
    let year = NOW.0 + weir_protocol::limits::DELAY_MS_MAX;
    for (headers, field) in [
        (headers(year, INTEGER_MAX), None),
        (headers(year + 1, 1), Some("deliver_at")),
        (headers(0, 0), Some("ttl_ms")),
        (headers(0, INTEGER_MAX + 1), Some("ttl_ms")),
    ] {
        let record = NewRecord { headers, ..record(None, 1) };
        let mut builder = BatchBuilder::anonymous();
        let parts = RecordParts { key: None, headers: &record.headers, value: b"v" };
        builder.push(parts).unwrap();
        let batch = builder.build(Compression::None).unwrap();
        for (content, partitions) in [
            (Content::Records(vec![record]), 1),
            (Content::Batches(vec![batch.clone()]), 1),
            (Content::Batches(vec![batch]), 7),
        ] {
            let planned = plan(&content, None, placing(partitions), &PublishConfig::default());
            assert_eq!(planned.err().and_then(|error| error.field), field, "{content:?}");
        }
    }
}

#[test]
fn numbers_beyond_what_json_can_tell_are_refused_before_anything_overflows() {
    let at = |seq: u64| Placing { producer: Some(ProducerAt { seq: Seq(seq), ..PRODUCER }), ..placing(1) };
    let two = vec![record(None, 1); 2];
    assert!(planned(&two, at(INTEGER_MAX - 1)).is_ok());
    for seq in [INTEGER_MAX, INTEGER_MAX + 1, u64::MAX] {
        let refused = [
            planned(&two, at(seq)).unwrap_err(),
            plan(&Content::Batches(vec![batch(&[None, None])]), None, at(seq), &PublishConfig::default())
                .unwrap_err(),
        ];
        for error in refused {
            assert_eq!((error.code(), error.field), (ErrorCode::Malformed, Some("seq")), "{seq}");
        }
    }
    let mut own = BatchBuilder::new(ProducerKey(7), Epoch(0), Seq(INTEGER_MAX + 1));
    own.push(RecordParts { key: None, headers: &Headers::default(), value: b"v" }).unwrap();
    let own = Content::Batches(vec![own.build(Compression::None).unwrap()]);
    let refused = plan(&own, None, placing(1), &PublishConfig::default()).unwrap_err();
    assert_eq!(refused.field, Some("seq"), "the producer's that the batch names itself");
}

#[test]
fn a_named_partition_refuses_a_key_that_belongs_elsewhere() {
    let key = (0..).map(|i| format!("k{i}")).find(|key| partition_of(key.as_bytes(), 4).0 == 2).unwrap();
    for (partition, fits) in [(2, true), (3, false)] {
        let fixed = Placing { keyless: PartitionId(partition), is_fixed: true, ..placing(4) };
        assert_eq!(planned(&[record(Some(&key), 1)], fixed).is_ok(), fits);
    }
}

#[test]
fn a_clients_batch_passes_untouched_where_one_partition_takes_it() {
    let config = PublishConfig::default();
    let theirs = batch(&[None, Some("a"), Some("b")]);
    let parts = plan(&Content::Batches(vec![theirs.clone()]), None, placing(1), &config).unwrap();
    assert_eq!(parts[0].batch.bytes().as_ptr(), theirs.bytes().as_ptr(), "not copied");
    let several = plan(&Content::Batches(vec![theirs.clone(), theirs]), None, placing(7), &config).unwrap();
    let records: u32 =
        several.iter().flat_map(|part| &part.records).map(|range| range.end - range.start).sum();
    assert_eq!(records, 6);
}

#[test]
fn a_batch_is_its_producers_or_is_stamped_or_is_refused() {
    let config = PublishConfig::default();
    let placing = Placing { producer: Some(PRODUCER), ..placing(1) };
    let anonymous = batch(&[None, None]);
    let content = Content::Batches(vec![anonymous.clone(), anonymous.clone()]);
    let parts = plan(&content, None, placing, &config).unwrap();
    let seqs: Vec<_> =
        parts.iter().map(|part| (part.batch.header().producer, part.batch.header().base_seq)).collect();
    assert_eq!(seqs, [(PRODUCER.key, Seq(100)), (PRODUCER.key, Seq(102))]);
    let own = anonymous.with_producer(PRODUCER.key, PRODUCER.epoch, PRODUCER.seq);
    assert!(plan(&Content::Batches(vec![own]), None, placing, &config).is_ok());
    let other = anonymous.with_producer(PRODUCER.key, PRODUCER.epoch, Seq(7));
    let refused = plan(&Content::Batches(vec![other]), None, placing, &config).unwrap_err();
    assert_eq!(refused.code(), ErrorCode::InvalidBatch);
}

#[test]
fn a_topics_content_type_is_for_what_names_none_and_is_no_reason_to_call_json_something_else() {
    let unnamed = |unnamed, value: &'static str| {
        let headers = HeadersBuilder::default().content_type("application/json").finish();
        NewRecord { key: None, headers, value: Bytes::from(value), unnamed }
    };
    let stored = |content_type, record: NewRecord| {
        let parts =
            plan(&Content::Records(vec![record]), content_type, placing(1), &PublishConfig::default());
        let batch = parts.map_err(|refused| refused.code())?.remove(0).batch;
        let record = batch.records().unwrap().next().unwrap().unwrap();
        let value = String::from_utf8(record.value.to_vec()).unwrap();
        Ok((record.headers.content_type().unwrap().to_owned(), value))
    };
    let as_it_was = |value: &str| Ok(("application/json".to_owned(), value.to_owned()));
    let json = |value| unnamed(Some(Unnamed::Json), value);
    for content_type in [None, Some("text/plain"), Some("image/png")] {
        assert_eq!(stored(content_type, unnamed(None, "\"a\"")), as_it_was("\"a\""), "it named its own");
    }
    assert_eq!(stored(None, json("\"a\"")), as_it_was("\"a\""));
    assert_eq!(stored(Some("image/png"), json("\"a\"")), as_it_was("\"a\""));
    assert_eq!(stored(Some("text/plain"), json("\"a\\n\"")), Ok(("text/plain".into(), "a\n".into())));
    assert_eq!(stored(Some("text/plain"), json("{}")), Err(ErrorCode::Malformed));
    assert_eq!(stored(Some("a/b+json"), json("1.10")), Ok(("a/b+json".into(), "1.10".into())));
    let bytes = unnamed(Some(Unnamed::Bytes), "a");
    assert_eq!(stored(Some("image/png"), bytes), Ok(("image/png".into(), "a".into())));
}
