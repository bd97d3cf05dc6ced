//! The journal against the disk underneath: `cargo bench -p weir-journal`.
//!
//! * `commit/<n>`: records of 1 KiB with `n` outstanding, beside a bare loop that writes the same bytes into the same
//!   kind of file and syncs. Ratios at the end: bare time per record over the journal's, 1.0 is as fast as the disk.
//! * `recovery`: opening a directory of full files from the page cache, with checksums and index, in bytes per second.
//!
//! `JOURNAL_BENCH_DIR` names a directory on the disk to measure; the target directory by default.

#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a bench prints its table and stops on any error"
)]

use std::hint::black_box;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use bytes::Bytes;
use criterion::{Criterion, Throughput};
use weir_journal::{BareLoop, Class, Entry, EntryKind, Identity, Journal, JournalConfig, RealDisk, StreamId};

const RECORD_BYTES: usize = 1 << 10;
const WIDTHS: [usize; 4] = [1, 16, 256, 1_024];
const STREAM: StreamId = StreamId(1);
/// Bytes of entries that recovery scans.
const RECOVERY_BYTES: usize = 1 << 30;

fn scratch() -> tempfile::TempDir {
    let root = std::env::var_os("JOURNAL_BENCH_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_TARGET_TMPDIR")), PathBuf::from);
    tempfile::tempdir_in(root).unwrap()
}

fn config(dir: &tempfile::TempDir) -> JournalConfig {
    let identity = Identity { cluster_id: 1, node_id: 1 };
    JournalConfig { max_bytes: 64 << 30, ..JournalConfig::new(dir.path().join("data"), identity) }
}

/// Appends with a fixed number outstanding; purges so that files are recycled.
struct Load {
    journal: Journal,
    next: u64,
    payload: Bytes,
    done: mpsc::Receiver<()>,
    tell: mpsc::Sender<()>,
}

impl Load {
    fn open(dir: &tempfile::TempDir) -> Self {
        let (journal, _) = Journal::open(config(dir), Arc::new(RealDisk)).unwrap();
        let (tell, done) = mpsc::channel();
        Self { journal, next: 0, payload: Bytes::from(noise(RECORD_BYTES)), done, tell }
    }

    fn append(&mut self) {
        let entry = Entry {
            kind: EntryKind::Normal,
            term: 1,
            leader: 1,
            index: self.next,
            payload: self.payload.clone(),
        };
        self.next += 1;
        let tell = self.tell.clone();
        let done = Box::new(move |outcome: Result<_, _>| {
            outcome.unwrap();
            tell.send(()).unwrap();
        });
        self.journal.append(STREAM, vec![entry], done).unwrap();
        // What a topic with retention does: old files are there to be written again.
        if self.next.is_multiple_of(16_384) {
            self.purge(self.next - 8_192);
        }
    }

    /// `records` in all, never more than `width` outstanding.
    fn run(&mut self, width: usize, records: u64) -> Duration {
        let start = Instant::now();
        let first = records.min(width as u64);
        (0..first).for_each(|_| self.append());
        for _ in 0..records - first {
            self.done.recv().unwrap();
            self.append();
        }
        (0..first).for_each(|_| self.done.recv().unwrap());
        start.elapsed()
    }

    fn purge(&self, index: u64) {
        let at = weir_journal::LogPosition { term: 1, leader: 1, index };
        self.journal.note_purged(STREAM, at);
    }
}

fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        u8::try_from(state & 0xff).unwrap()
    };
    (0..bytes).map(next).collect()
}

/// Seconds and records of one side.
#[derive(Debug, Default, Clone, Copy)]
struct Spent {
    seconds: f64,
    records: f64,
}

impl Spent {
    fn add(&mut self, took: Duration, records: u64) {
        self.seconds += took.as_secs_f64();
        #[expect(clippy::cast_precision_loss, reason = "counts of a bench")]
        let records = records as f64;
        self.records += records;
    }

    fn per_record(self) -> f64 {
        self.seconds / self.records.max(1.0)
    }
}

/// The share of `took` that `records` of `of` have.
fn scaled(took: Duration, records: u64, of: u64) -> Duration {
    #[expect(clippy::cast_precision_loss, reason = "counts of a bench")]
    let share = records as f64 / of as f64;
    took.mul_f64(share)
}

fn commits(criterion: &mut Criterion) {
    let mut ratios = Vec::new();
    for width in WIDTHS {
        let dir = scratch();
        let mut load = Load::open(&dir);
        let mut bare =
            BareLoop::create(&dir.path().join("bare"), u64::from(config(&dir).file_bytes)).unwrap();
        let block = noise(RECORD_BYTES * width);
        let spent = Mutex::new([Spent::default(); 2]);
        let mut group = criterion.benchmark_group(format!("commit/{width}"));
        group.throughput(Throughput::Elements(1));
        group.bench_function("bare", |bencher| {
            bencher.iter_custom(|records| {
                let start = Instant::now();
                for _ in 0..records.div_ceil(width as u64) {
                    bare.commit(&block).unwrap();
                }
                let took = start.elapsed();
                let written = records.div_ceil(width as u64) * width as u64;
                spent.lock().unwrap()[0].add(took, written);
                scaled(took, records, written)
            });
        });
        group.bench_function("journal", |bencher| {
            bencher.iter_custom(|records| {
                // Below the width it would not be that many outstanding.
                let records_run = records.max(width as u64 * 4);
                let took = load.run(width, records_run);
                spent.lock().unwrap()[1].add(took, records_run);
                scaled(took, records, records_run)
            });
        });
        group.finish();
        let [bare, journal] = *spent.lock().unwrap();
        let metrics = load.journal.metrics();
        println!(
            "{width} outstanding: {} frames in {} syncs, {} waits for a file",
            metrics.frames, metrics.syncs, metrics.file_waits
        );
        ratios.push((width, bare.per_record() * 1e6, journal.per_record() * 1e6));
        load.journal.close();
    }
    println!("outstanding  bare us/record  journal us/record  journal as fast as the disk");
    for (width, bare, journal) in ratios {
        println!("{width:>11}  {bare:>14.2}  {journal:>17.2}  {:>26.0} %", bare / journal * 100.0);
    }
}

fn recovery(criterion: &mut Criterion) {
    let dir = scratch();
    let (journal, _) = Journal::open(config(&dir), Arc::new(RealDisk)).unwrap();
    let (tell, done) = mpsc::channel();
    let payload = Bytes::from(noise(16 << 10));
    let entries = RECOVERY_BYTES / payload.len();
    for index in 0..entries as u64 {
        let _permit = journal.try_admit(payload.len() as u64, Class::Data);
        let entry = Entry { kind: EntryKind::Normal, term: 1, leader: 1, index, payload: payload.clone() };
        let tell = tell.clone();
        journal.append(STREAM, vec![entry], Box::new(move |_| tell.send(()).unwrap())).unwrap();
        if index % 64 == 63 {
            (0..64).for_each(|_| done.recv().unwrap());
        }
    }
    journal.close();
    let mut group = criterion.benchmark_group("recovery");
    group.sample_size(10).throughput(Throughput::Bytes(RECOVERY_BYTES as u64));
    let whole = noise(RECOVERY_BYTES / 8);
    group.bench_function("open", |bencher| {
        bencher.iter_custom(|times| {
            (0..times)
                .map(|_| {
                    let start = Instant::now();
                    let (journal, _) = Journal::open(config(&dir), Arc::new(RealDisk)).unwrap();
                    let took = start.elapsed();
                    journal.close();
                    took
                })
                .sum()
        });
    });
    group.bench_function("bare checksum", |bencher| {
        bencher.iter(|| {
            (0..8)
                .map(|_| crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, black_box(&whole)))
                .sum::<u64>()
        });
    });
    group.finish();
}

fn main() {
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_secs(1))
        .measurement_time(Duration::from_secs(4))
        .sample_size(20);
    criterion = criterion.configure_from_args();
    commits(&mut criterion);
    recovery(&mut criterion);
    criterion.final_summary();
}
