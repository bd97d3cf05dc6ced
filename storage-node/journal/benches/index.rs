//! Finding entries of a journal: `cargo bench -p weir-journal --bench index`.
//!
//! 300,000 entries of 1 KiB in ten files, with room in memory for the rows of a third of them. `locate`:
//! where an entry is, whose row is in memory, or has to be read from the sidecar of its file. `read`: 64
//! entries in a row, that are in memory still, from the file through a row, and from the file through the
//! sidecar, all from the page cache.
//!
//! `JOURNAL_BENCH_DIR` names a directory on the disk to measure; the target directory by default.

#![expect(clippy::unwrap_used, reason = "a bench stops on any error")]

use std::hint::black_box;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, mpsc};

use bytes::Bytes;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use weir_journal::{Entry, EntryKind, Identity, Journal, JournalConfig, RealDisk, StreamId};

const STREAM: StreamId = StreamId(1);
const ENTRIES: u64 = 300_000;
const TOGETHER: u64 = 64;

fn filled(dir: &tempfile::TempDir) -> Journal {
    let identity = Identity { cluster_id: 1, node_id: 1 };
    let config = JournalConfig {
        file_bytes: 32 << 20,
        index_bytes_max: 20 << 20,
        recent_bytes_max: 4 << 20,
        ..JournalConfig::new(dir.path().join("data"), identity)
    };
    let (journal, _) = Journal::open(config, Arc::new(RealDisk)).unwrap();
    let payload = Bytes::from(vec![b'x'; 1 << 10]);
    let entry = |index| {
        let payload = payload.clone();
        Entry { kind: EntryKind::Normal, term: 1, leader: 1, index, payload }
    };
    let (tell, done) = mpsc::channel();
    let many = TOGETHER * 16;
    for first in (0..ENTRIES).step_by(usize::try_from(many).unwrap()) {
        let entries = (first..ENTRIES.min(first + many)).map(entry).collect();
        let tell = tell.clone();
        journal.append(STREAM, entries, Box::new(move |outcome| tell.send(outcome).unwrap())).unwrap();
        done.recv().unwrap().unwrap();
    }
    journal
}

fn lookups(criterion: &mut Criterion) {
    let root = std::env::var_os("JOURNAL_BENCH_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_TARGET_TMPDIR")), PathBuf::from);
    let dir = tempfile::tempdir_in(root).unwrap();
    let journal = filled(&dir);
    // Of the newest the payloads are in memory, of those before them the rows, of the oldest neither.
    let recent = ENTRIES - 2 * TOGETHER..ENTRIES - TOGETHER;
    let resident = ENTRIES - 20_000..ENTRIES - 10_000;
    let evicted = 0..100_000;
    // Every 617th: far apart, and none twice in a row.
    let walk = |range: Range<u64>| {
        let mut at = 0;
        let (start, span) = (range.start, range.end - range.start - TOGETHER);
        move || {
            at = (at + 617) % span;
            start + at
        }
    };
    let mut group = criterion.benchmark_group("index");
    for (name, range) in [("row in memory", resident.clone()), ("row in a sidecar", evicted.clone())] {
        let mut next = walk(range);
        group.throughput(Throughput::Elements(1));
        group.bench_function(format!("locate, {name}"), |bench| {
            bench.iter(|| journal.locate(STREAM, black_box(next())).unwrap());
        });
    }
    let mut read = |name: &str, mut next: Box<dyn FnMut() -> u64>| {
        group.throughput(Throughput::Elements(TOGETHER));
        group.bench_function(format!("read {TOGETHER}, {name}"), |bench| {
            bench.iter(|| {
                let from = black_box(next());
                let entries = journal.read_entries(STREAM, from..from + TOGETHER, usize::MAX).unwrap();
                assert_eq!(entries[0].index, from);
                entries
            });
        });
    };
    read("payloads in memory", Box::new(move || recent.start));
    read("rows in memory", Box::new(walk(resident)));
    read("rows in a sidecar", Box::new(walk(evicted)));
    group.finish();
    journal.close();
}

criterion_group!(benches, lookups);
criterion_main!(benches);
