//! Reading a shard of a real node: what memory still has, and what is said where an entry is gone.

use std::time::Duration;

use bytes::Bytes;
use weir_journal::{Class, LogPosition};
use weir_protocol::batch::{BatchBuilder, Compression, Headers, RecordParts};
use weir_protocol::error::ErrorCode;
use weir_protocol::ids::{Offset, ShardId};

use super::{Allowance, Reader, keep_returning};
use crate::node::tests::{published, start, start_with};
use crate::shard::entry::{Kind, SubBatch};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_whose_entry_is_gone_is_damaged_and_not_trimmed() {
    let dir = tempfile::tempdir().unwrap();
    let node = start(dir.path()).await;
    let shard = node.shard(ShardId(1));
    // Three, since the newest entry stays in memory.
    let key = published(&shard, &[vec![1], vec![2], vec![3]]).await;
    let end = shard.journal.entries(shard.stream()).end;
    shard.journal.note_purged(shard.stream(), LogPosition { term: 1, leader: 0, index: end - 2 });
    let reader = Reader::new(shard.clone(), key);
    let some = Allowance { records: 1, bytes: 1 };
    let refused = reader.read(Offset(0), Offset(3), some).await.expect_err("it cannot be read");
    assert_eq!(refused.error_code(), ErrorCode::Corrupt, "a reader told to begin anew would do so for ever");
    drop((reader, shard));
    node.shutdown(Duration::from_secs(1)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_comes_again_soon_is_kept_without_the_rest_of_its_batch() {
    let dir = tempfile::tempdir().unwrap();
    let node = start_with(dir.path(), 256 << 10).await;
    let shard = node.shard(ShardId(1));
    let key = published(&shard, &[vec![9; 100]]).await;
    let publish = async |values: &[&[u8]]| {
        let mut batch = BatchBuilder::anonymous();
        for value in values {
            batch.push(RecordParts { key: None, headers: &Headers::default(), value }).unwrap();
        }
        let body = batch.build(Compression::None).unwrap().unplaced().bytes().clone();
        let publish = SubBatch { kind: Kind::Publish, ..SubBatch::command(body) };
        let publish = SubBatch { incarnation: key.0, partition: key.1, ..publish };
        let permit = shard.journal.try_admit(64 << 10, Class::Control).unwrap();
        shard.change(vec![publish], permit).await.unwrap();
    };
    let values = [b"one", b"two", b"3rd", b"4th", b"5th", b"6th"].map(|value| &value[..]);
    publish(&[values, values].concat()).await;
    let reader = Reader::new(shard.clone(), key);
    keep_returning(&shard, key, &[2, 3, 5].map(Offset));
    let some = Allowance { records: 9, bytes: 1 << 10 };
    let kept = |from: u64| {
        let read = reader.read_returning(Offset(from), Offset(13), some)?;
        let (_, batch) = &read.batches[0];
        let skip = usize::try_from(from - read.slices[0].first).unwrap();
        let values = batch.records().unwrap().skip(skip).map(|record| record.unwrap().value.to_vec());
        Some((read.slices[0].first, read.next.0, values.collect::<Vec<_>>()))
    };
    assert_eq!(kept(2), Some((2, 4, vec![b"two".to_vec(), b"3rd".to_vec()])));
    assert_eq!(kept(5), Some((5, 6, vec![b"5th".to_vec()])));
    assert_eq!((kept(1), kept(4), kept(6)), (None, None, None), "nobody gave these back");
    // More than a quarter of a batch is not worth a copy.
    publish(&values[..4]).await;
    keep_returning(&shard, key, &[13, 14].map(Offset));
    assert!(reader.read_returning(Offset(13), Offset(17), some).is_none());
    // What was removed meanwhile is not read, whoever still has it.
    let trim = SubBatch { kind: Kind::Trim, ..SubBatch::command(Bytes::new()) };
    let trim = SubBatch { incarnation: key.0, partition: key.1, expected_end: Some(Offset(4)), ..trim };
    let permit = shard.journal.try_admit(4 << 10, Class::Control).unwrap();
    shard.change(vec![trim], permit).await.unwrap();
    assert_eq!((kept(2), kept(5).is_some()), (None, true));
    drop((reader, shard));
    node.shutdown(Duration::from_secs(1)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_read_from_the_journal_is_read_again_from_memory() {
    let dir = tempfile::tempdir().unwrap();
    // 40 KiB of the newest entries of both shards, and of each 8 KiB of those that are read again.
    let node = start_with(dir.path(), 64 << 10).await;
    let shard = node.shard(ShardId(1));
    let values: Vec<_> = (0..20).map(|n| vec![n; 4 << 10]).collect();
    let key = published(&shard, &values).await;
    let reader = Reader::new(shard.clone(), key);
    let some = Allowance { records: 1, bytes: 1 };
    let first = reader.read(Offset(0), Offset(20), some).await.unwrap();
    let end = shard.journal.entries(shard.stream()).end;
    shard.journal.note_purged(shard.stream(), LogPosition { term: 1, leader: 0, index: end - 1 });
    let again = reader.read(Offset(0), Offset(20), some).await.expect("it is in memory");
    assert_eq!(again.payload, first.payload);
    reader.read(Offset(1), Offset(20), some).await.expect_err("that was not read before, and is gone");
    drop((reader, shard));
    node.shutdown(Duration::from_secs(1)).await;
}
