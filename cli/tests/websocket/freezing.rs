//! Subscribers that freeze keep nothing from the others.

use std::collections::BTreeMap;

use weir_protocol::batch::{BatchBuilder, Compression, Headers, RecordParts};
use weir_protocol::ids::{Epoch, Incarnation, ProducerKey, Seq};
use weir_protocol::ws::{Channel, ClientFrame, Limit, Opened, ServerFrame};

use super::client::Client;
use super::product;

/// `count` records of a kilobyte from `seq` on, as one batch.
fn kilobytes(opened: &Opened, producer: &str, seq: u64, count: u64) -> ClientFrame {
    let key = ProducerKey::of(Incarnation(opened.inc), producer);
    let mut builder = BatchBuilder::new(key, Epoch(0), Seq(seq));
    for _ in 0..count {
        let parts = RecordParts { key: None, headers: &Headers::default(), value: &[7; 1_000] };
        builder.push(parts).unwrap();
    }
    ClientFrame::PubBatch { first_seq: Seq(seq), batch: builder.build(Compression::None).unwrap() }
}

/// Offsets that came on each channel, until each of `wanted` has `count`.
async fn delivered(client: &mut Client, wanted: &[u16], count: usize) -> BTreeMap<u16, Vec<u64>> {
    let mut seen = BTreeMap::<u16, Vec<u64>>::new();
    while wanted.iter().any(|ch| seen.get(ch).map_or(0, Vec::len) < count) {
        let (Channel(ch), frame) = client.next().await;
        match frame {
            ServerFrame::Deliveries(frame) => {
                let records = frame.slices.iter().flat_map(|slice| slice.records().unwrap());
                seen.entry(ch).or_default().extend(records.map(|record| record.unwrap().offset.0));
            }
            ServerFrame::Subscribed(_) | ServerFrame::CaughtUp(_) => {}
            other => panic!("{other:?}"),
        }
    }
    seen
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_of_the_subscribers_may_freeze_and_the_others_get_everything() {
    const RECORDS: u64 = 8_000;
    const NOTHING: Limit = Limit { msgs: 0, bytes: 0 };
    const PLENTY: Limit = Limit { msgs: 100_000, bytes: 1 << 30 };
    let (_dir, product) = product();
    let mut publisher = Client::welcomed(&product.address, "weir.v1.bin").await;
    let opened = publisher.open(1, "busy", Some("feed")).await;
    // On one connection every other channel has no credit; of the connections every other one reads nothing at all.
    let (frozen, quick) = ([1, 3, 5], [2, 4, 6]);
    let mut readers = Vec::new();
    for _ in 0..2 {
        let mut reader = Client::welcomed(&product.address, "weir.v1.bin").await;
        for ch in 1..=6 {
            let limit = if frozen.contains(&ch) { NOTHING } else { PLENTY };
            reader.sub(ch, "busy", "earliest", limit).await;
        }
        let mut silent = Client::welcomed(&product.address, "weir.v1.bin").await;
        for ch in 1..=6 {
            silent.sub(ch, "busy", "earliest", PLENTY).await;
        }
        readers.push((reader, silent));
    }
    let publishing = tokio::spawn(async move {
        for seq in (0..RECORDS).step_by(100) {
            publisher.send(1, kilobytes(&opened, "feed", seq, 100)).await;
            publisher.confirmed(seq + 99).await;
        }
    });
    let expected: Vec<u64> = (0..RECORDS).collect();
    for (reader, _) in &mut readers {
        let seen = delivered(reader, &quick, expected.len()).await;
        assert_eq!(seen.keys().copied().collect::<Vec<_>>(), quick, "nothing is sent without credit");
        for ch in quick {
            assert_eq!(seen[&ch], expected, "channel {ch}");
        }
    }
    publishing.await.unwrap();
    // Whoever was frozen has missed nothing.
    let (reader, _silent) = &mut readers[0];
    reader.send(3, ClientFrame::Limit(PLENTY)).await;
    assert_eq!(delivered(reader, &[3], expected.len()).await, BTreeMap::from([(3, expected)]));
}
