//! What a shard remembers and keeps no longer: deduplication rows by number, records by age and by bytes.

use weir_protocol::limits::PRODUCER_IDLE_MS;

use super::super::cow_map::BUCKETS;
use super::*;

const ROWS: usize = 4;

fn remembering(rows: usize) -> Log {
    Log { state: ShardState::with_dedupe_rows(ShardId(1), rows), ..Log::new() }
}

fn full(verdict: Verdict, what: &str) {
    let Verdict::Refused(refusal) = verdict else { panic!("{verdict:?}") };
    assert_eq!(refusal.error_code(), ErrorCode::DedupeFull, "{refusal:?}");
    assert_eq!((refusal.error_code().status(), refusal.error_code().retryable()), (429, true));
    assert_eq!(refusal.effect(), weir_protocol::error::Outcome::None, "a refusal means no effect");
    assert_eq!(refusal.detail, format!("{ROWS} {what} are remembered"));
}

/// Every bucket is swept once, by entries that publish nothing.
fn sweep_at(log: &mut Log, ts: u64) {
    let nothing = EntryBuilder::new(TimestampMs(ts), 0).build();
    for _ in 0..=4 * BUCKETS {
        log.state.apply(LogIndex(log.index), 1, &nothing).unwrap();
        log.index += 1;
    }
    log.state.check();
}

#[test]
fn a_producer_beyond_the_limit_is_refused_and_those_that_are_known_go_on() {
    let mut log = remembering(ROWS);
    let life = log.create("orders", config(1));
    let producers = 1..=ROWS as u128;
    for producer in producers.clone() {
        placed(log.one(publish(life, 0, batch(producer, 0, 0, 1))));
    }
    full(log.one(publish(life, 0, batch(99, 0, 0, 1))), "producers");
    for producer in producers {
        assert!(placed(log.one(publish(life, 0, batch(producer, 0, 0, 1)))).duplicate);
        assert!(!placed(log.one(publish(life, 0, batch(producer, 0, 1, 1)))).duplicate);
    }
    assert!(
        !placed(log.one(publish(life, 0, batch(0, 0, 0, 1)))).duplicate,
        "without a producer no row is needed"
    );
    let end = log.state.partition((Incarnation(life), PartitionId(0))).unwrap().end;
    assert_eq!(end, Offset(2 * ROWS as u64 + 1), "what was refused is not there");
    assert_eq!(log.state.dedupe().rows(), (ROWS, 0));

    // The limit is part of the state, and a producer that is idle for long enough makes room.
    log.state = ShardState::decode(ShardId(1), &log.state.encode()).unwrap();
    full(log.one(publish(life, 0, batch(99, 0, 0, 1))), "producers");
    sweep_at(&mut log, 1 + PRODUCER_IDLE_MS);
    assert_eq!(log.state.dedupe().rows(), (0, 0));
    placed(log.apply_at(1 + PRODUCER_IDLE_MS, &[publish(life, 0, batch(99, 0, 0, 1))]).remove(0));
}

#[test]
fn a_key_beyond_the_limit_is_refused_and_those_that_are_known_give_their_answer() {
    let mut log = remembering(ROWS);
    let life = log.create("orders", config(1));
    let keyed = |key| SubBatch {
        idempotency: Some(Idempotency { key, fingerprint: 1 }),
        ..publish(life, 0, batch(0, 0, 0, 1))
    };
    // In one entry: each takes its row before the next is judged.
    let mut verdicts = log.apply_at(1, &(0..=ROWS as u128).map(keyed).collect::<Vec<_>>());
    full(verdicts.pop().unwrap(), "idempotency keys");
    for (offset, verdict) in verdicts.into_iter().enumerate() {
        assert_eq!(placed(verdict).base_offset, offset as u64);
    }
    for key in 0..ROWS as u128 {
        let again = placed(log.one(keyed(key)));
        assert_eq!((u128::from(again.base_offset), again.duplicate), (key, true));
    }
    placed(log.one(publish(life, 0, batch(7, 0, 0, 1))));
    assert_eq!(log.state.dedupe().rows(), (1, ROWS), "producers have a limit of their own");

    let window = config(1).dedupe_window_ms;
    sweep_at(&mut log, window);
    full(log.apply_at(window, &[keyed(99)]).remove(0), "idempotency keys");
    sweep_at(&mut log, 1 + window);
    placed(log.apply_at(1 + window, &[keyed(99)]).remove(0));
}

/// One record at each of `times`, in a topic with `config`.
fn with_records(config: TopicConfig, times: &[u64]) -> (Log, PartitionKey) {
    let mut log = Log::new();
    let life = log.create("orders", config);
    for ts in times {
        log.apply_at(*ts, &[publish(life, 0, batch(0, 0, 0, 1))]);
    }
    (log, (Incarnation(life), PartitionId(0)))
}

#[test]
fn a_record_goes_when_it_is_older_than_the_age_and_not_before() {
    let by_age = TopicConfig { retention_age_ms: Some(100), ..config(1) };
    let (mut log, key) = with_records(by_age, &[1_000, 1_000, 1_050, 1_200]);
    let due = |log: &Log, now| {
        let due = log.state.due_trims(TimestampMs(now), 10);
        due.first().map(|(at, upto)| {
            assert_eq!((*at, due.len()), (key, 1));
            upto.0
        })
    };
    let expected = [(1_000, None), (1_100, None), (1_101, Some(2)), (1_150, Some(2)), (1_151, Some(3))];
    for (now, upto) in expected {
        assert_eq!(due(&log, now), upto, "at {now}");
    }
    // Also the newest, unlike by bytes.
    assert_eq!(due(&log, 1_301), Some(4));
    log.apply_at(
        1_151,
        &[SubBatch { kind: Kind::Trim, expected_end: Some(Offset(3)), ..publish(key.0.0, 0, Bytes::new()) }],
    );
    assert_eq!((due(&log, 1_300), due(&log, 1_301)), (None, Some(4)));
    // An age that is changed counts from then on, for what is there.
    let update = UpdateTopic {
        name: name("orders"),
        config: TopicConfig { retention_age_ms: Some(10), ..config(1) },
        incarnation: key.0.0,
        expected_version: 1,
    };
    assert!(matches!(log.command(Change::UpdateTopic(update)), Verdict::Topic(_)));
    assert_eq!((due(&log, 1_210), due(&log, 1_211)), (None, Some(4)));
}

#[test]
fn records_beyond_the_bytes_go_batch_by_batch_and_the_newest_stays() {
    let len = batch(0, 0, 0, 1).len() as u64;
    for (limit, upto) in
        [(4 * len, None), (4 * len - 1, Some(1)), (2 * len, Some(2)), (1, Some(3)), (0, Some(3))]
    {
        let by_bytes = TopicConfig { retention_bytes: Some(limit), ..config(1) };
        let (log, key) = with_records(by_bytes, &[10, 20, 30, 40]);
        let due = log.state.due_trims(TimestampMs(50), 10);
        assert_eq!(
            due,
            upto.map(|upto| (key, Offset(upto))).into_iter().collect::<Vec<_>>(),
            "{limit} bytes"
        );
    }
}
