//! The journal against the disk underneath: `cargo bench -p weir-journal`.
//!
//! * `commit/<n>`: records of 1 KiB with `n` outstanding, appended by whoever answers those before them, one
//!   record an append and, with many outstanding, up to 16, in turns with a bare loop of write and sync on
//!   the same kind of file, which writes the records alone, and as many bytes as the journal writes with its
//!   headers and padding. At the end, over all turns: bare time per record over the journal's; 100 % is as
//!   fast as the disk. Then what the bare loop takes if it rests before each commit.
//! * `recovery`: opening a directory of full files, with checksums and index, in bytes per second: from the disk, with
//!   `BUFFERED=1` from the page cache.
//!
//! `JOURNAL_BENCH_DIR` names a directory on the disk to measure; the target directory by default.

#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a bench prints its table and stops on any error"
)]

use std::hint::black_box;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use bytes::Bytes;
use criterion::{Criterion, Throughput};
use weir_journal::{
    Backend, BareLoop, Class, Entry, EntryKind, Identity, Journal, JournalConfig, RealDisk, StreamId,
};

/// What the product allocates with.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const RECORD_BYTES: usize = 1 << 10;
const WIDTHS: [usize; 4] = [1, 16, 256, 1_024];
const STREAM: StreamId = StreamId(1);
/// Commits of one side before it is the other's turn.
const COMMITS_PER_SLICE: u64 = 256;
/// Bytes of entries that recovery scans.
const RECOVERY_BYTES: usize = 1 << 30;

fn scratch() -> tempfile::TempDir {
    let root = std::env::var_os("JOURNAL_BENCH_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_TARGET_TMPDIR")), PathBuf::from);
    tempfile::tempdir_in(root).unwrap()
}

/// `BUFFERED=1` measures the journal through the page cache.
fn config(dir: &tempfile::TempDir) -> JournalConfig {
    let identity = Identity { cluster_id: 1, node_id: 1 };
    let backend = if std::env::var_os("BUFFERED").is_some() { Backend::Pwrite } else { Backend::Auto };
    JournalConfig { max_bytes: 64 << 30, backend, ..JournalConfig::new(dir.path().join("data"), identity) }
}

/// Appends with a fixed number outstanding; purges so that files are recycled. What it takes to make the load must not be
/// taken for the journal's: it lives as long as the bench, so that who answers counts no references, and it needs no
/// locked instruction, since the journal gives one answer at a time and everything is done by answers, the first append
/// of a run aside.
#[derive(Clone, Copy)]
struct Load(&'static Shared);

struct Shared {
    journal: Journal,
    payload: Bytes,
    /// Index of the next record.
    index: AtomicU64,
    /// Records of this run that are still to be appended.
    left: AtomicU64,
    /// Appends that the next answer makes besides the one behind its own.
    begins: AtomicU64,
    /// Appends that were made or are about to be, and are not answered.
    under_way: AtomicU64,
    done: Mutex<mpsc::Receiver<()>>,
    tell: mpsc::Sender<()>,
}

impl Load {
    fn open(dir: &tempfile::TempDir) -> Self {
        let (journal, _) = Journal::open(config(dir), Arc::new(RealDisk)).unwrap();
        let (tell, done) = mpsc::channel();
        // Shared from the start, as what came in a frame is.
        let payload = Bytes::from(noise(RECORD_BYTES)).clone();
        let [index, left, begins, under_way] = [0; 4].map(AtomicU64::new);
        let done = Mutex::new(done);
        Self(Box::leak(Box::new(Shared { journal, payload, index, left, begins, under_way, done, tell })))
    }

    /// An append of `many` records is answered: the next is made, at first as many as shall be outstanding. Never waits:
    /// an append may answer before it returns, and then this is called from within it, behind all that it has to do.
    fn answered(&self, many: u64) {
        let Shared { left, begins, under_way, tell, .. } = self.0;
        let begun = begins.load(Ordering::Relaxed);
        if begun > 0 {
            begins.store(0, Ordering::Relaxed);
            under_way.store(under_way.load(Ordering::Relaxed) + begun, Ordering::Relaxed);
        }
        for _ in 0..=begun {
            if let Some(rest) = left.load(Ordering::Relaxed).checked_sub(many) {
                left.store(rest, Ordering::Relaxed);
                self.append(many);
                continue;
            }
            let rest = under_way.load(Ordering::Relaxed) - 1;
            under_way.store(rest, Ordering::Relaxed);
            if rest == 0 {
                tell.send(()).unwrap();
            }
        }
    }

    fn append(&self, many: u64) {
        let first = self.0.index.load(Ordering::Relaxed);
        self.0.index.store(first + many, Ordering::Relaxed);
        self.append_at(first, many);
    }

    fn append_at(&self, first: u64, many: u64) {
        let Shared { journal, payload, .. } = self.0;
        let entry = |index| {
            let payload = payload.clone();
            Entry { kind: EntryKind::Normal, term: 1, leader: 1, index, payload }
        };
        let entries = (first..first + many).map(entry).collect();
        let load = *self;
        let done = move |outcome: Result<_, _>| {
            outcome.unwrap();
            load.answered(many);
        };
        journal.append(STREAM, entries, Box::new(done)).unwrap();
        // What a topic with retention does: old files are there to be written again.
        let index = first + many - 1;
        if index % 16_384 >= 16_384 - many {
            let at = weir_journal::LogPosition { term: 1, leader: 1, index: index.saturating_sub(8_192) };
            journal.note_purged(STREAM, at);
        }
    }

    /// Writes until files are written again: filling new ones with zeros in the background is over then, and the
    /// bare loop writes an old file too.
    fn reach_recycling(&self) {
        while self.0.journal.metrics().recycled < 2 {
            self.run(1_024, 1, 65_536);
        }
    }

    /// Bytes that a commit of `width` records writes, headers and padding included.
    fn bytes_per_commit(&self, width: usize) -> usize {
        let before = self.0.journal.metrics();
        self.run(width, 1, width as u64 * 16);
        let after = self.0.journal.metrics();
        usize::try_from((after.bytes - before.bytes) / (after.blocks - before.blocks)).unwrap()
    }

    /// `records` in all, `width` outstanding, `many` an append. The first comes alone, and its answer makes the others.
    fn run(&self, width: usize, many: u64, records: u64) -> Duration {
        let start = Instant::now();
        let Shared { left, begins, under_way, done, .. } = self.0;
        left.store(records - many, Ordering::Relaxed);
        begins.store(width as u64 / many - 1, Ordering::Relaxed);
        under_way.store(1, Ordering::Relaxed);
        self.append(many);
        done.lock().unwrap().recv().unwrap();
        start.elapsed()
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

/// The share of `took` that `records` of `of` have.
fn scaled(took: Duration, records: u64, of: u64) -> Duration {
    #[expect(clippy::cast_precision_loss, reason = "counts of a bench")]
    let share = records as f64 / of as f64;
    took.mul_f64(share)
}

/// Microseconds per record of one turn each: the records bare, as many bytes as the journal writes, the
/// journal with one record an append, and with several.
type Turn = [f64; 4];
/// How long a bare loop rests before each commit, at last: what checking, copying and answering some hundred records
/// takes. Not counted.
const REST: Duration = Duration::from_micros(100);

/// What was measured with so many outstanding.
struct Row {
    width: usize,
    bytes_per_commit: usize,
    turns: Vec<Turn>,
    rested: f64,
}

/// Records of an append where several come together, as those of a busy shard do.
fn records_per_append(width: usize) -> u64 {
    (width as u64 / 16).clamp(1, 16)
}

fn bare_run(bare: &mut BareLoop, block: &[u8], commits: u64, rest: Duration) -> Duration {
    let commit = |_| {
        let rested = Instant::now();
        while rested.elapsed() < rest {
            std::hint::spin_loop();
        }
        let start = Instant::now();
        bare.commit(block).unwrap();
        start.elapsed()
    };
    (0..commits).map(commit).sum()
}

fn commits(criterion: &mut Criterion) {
    let mut table = Vec::new();
    for width in WIDTHS {
        let dir = scratch();
        let load = Load::open(&dir);
        let mut bare =
            BareLoop::create(&dir.path().join("bare"), u64::from(config(&dir).file_bytes)).unwrap();
        load.reach_recycling();
        let bytes_per_commit = load.bytes_per_commit(width);
        let (records_alone, same_bytes) = (noise(RECORD_BYTES * width), noise(bytes_per_commit));
        let mut turns: Vec<Turn> = Vec::new();
        let mut group = criterion.benchmark_group(format!("commit/{width}"));
        group.throughput(Throughput::Elements(1));
        // In turns, a slice of each: what the disk does changes from second to second.
        group.bench_function("journal", |bencher| {
            bencher.iter_custom(|records| {
                let commits = records.div_ceil(width as u64).max(COMMITS_PER_SLICE);
                let (mut spent, mut left) = (Duration::ZERO, commits);
                while left > 0 {
                    let slice = left.min(COMMITS_PER_SLICE);
                    let many = slice * width as u64;
                    let mut turn = [0.0; 4];
                    for place in (0..4).map(|place| (place + turns.len()) % 4) {
                        let took = match place {
                            0 => bare_run(&mut bare, &records_alone, slice, Duration::ZERO),
                            1 => bare_run(&mut bare, &same_bytes, slice, Duration::ZERO),
                            2 => load.run(width, 1, many),
                            _ => load.run(width, records_per_append(width), many),
                        };
                        spent += if place == 2 { took } else { Duration::ZERO };
                        turn[place] = per_record(took, many);
                    }
                    turns.push(turn);
                    left -= slice;
                }
                scaled(spent, records, commits * width as u64)
            });
        });
        group.finish();
        // Nothing was measured if this width is not among those asked for.
        if !turns.is_empty() {
            let slices = (0..turns.len()).map(|_| {
                let took = bare_run(&mut bare, &same_bytes, COMMITS_PER_SLICE, REST);
                per_record(took, COMMITS_PER_SLICE * width as u64)
            });
            let [_, rested, _] = quartiles(slices);
            table.push(Row { width, bytes_per_commit, turns, rested });
        }
        load.0.journal.close();
    }
    print(&table);
}

fn print(table: &[Row]) {
    println!("medians of turns, in us per record; the records bare over the journal, with quartiles");
    println!(
        "outstanding  bytes/commit  records bare  same bytes bare  after a rest  journal  one an append     journal  several an append"
    );
    for Row { width, bytes_per_commit, turns, rested } in table {
        let column = |of: fn(&Turn) -> f64| quartiles(turns.iter().map(of));
        let times = [column(|t| t[0]), column(|t| t[1]), column(|t| t[2]), column(|t| t[3])];
        let [alone, same, one, several] = times.map(|quartiles| quartiles[1]);
        let [to_one, to_several] = [column(|t| t[0] / t[2] * 100.0), column(|t| t[0] / t[3] * 100.0)]
            .map(|[low, middle, high]| format!("{middle:.0} % ({low:.0} to {high:.0})"));
        println!(
            "{width:>11}  {bytes_per_commit:>12}  {alone:>12.2}  {same:>15.2}  {rested:>12.2}  {one:>7.2}  {to_one:<16}  {several:>7.2}  {to_several}"
        );
    }
}

/// Microseconds.
fn per_record(took: Duration, records: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "counts of a bench")]
    let records = records as f64;
    took.as_secs_f64() * 1e6 / records
}

fn quartiles(of: impl Iterator<Item = f64>) -> [f64; 3] {
    let mut sorted: Vec<f64> = of.collect();
    sorted.sort_by(f64::total_cmp);
    [1, 2, 3].map(|quarter| sorted[(sorted.len() - 1) * quarter / 4])
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
