//! What credit accounting costs per message: `cargo bench -p weir-gateway --bench credit`.
//!
//! A publishing channel counts a batch in, numbers it, confirms it and raises its limit; a following channel counts a
//! batch out and is raised by its client; and streams share what storage nodes may owe them. No sockets, no JSON.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use weir_gateway::measured::{FollowCredit, PublishCredit, ReadCredit};

const WINDOW: u64 = 1_024;

fn channels(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("credit");
    for count in [1, 64] {
        group.throughput(Throughput::Elements(u64::from(count)));
        let mut channel = PublishCredit::new(WINDOW);
        group.bench_function(format!("publish, batches of {count}"), |bench| {
            bench.iter(|| channel.batch(black_box(count)));
        });
        let mut channel = FollowCredit::new(WINDOW);
        group.bench_function(format!("follow, batches of {count}"), |bench| {
            bench.iter(|| channel.batch(black_box(count)));
        });
    }
    for streams in [1_u32, 1_000] {
        // A batch of 16 messages of a KiB for each stream.
        group.throughput(Throughput::Elements(16 * u64::from(streams)));
        let mut credit = ReadCredit::new(streams as usize);
        group.bench_function(format!("budget, {streams} streams, batches of 16"), |bench| {
            bench.iter(|| credit.turn(black_box(16 << 10)));
        });
    }
    group.finish();
}

criterion_group!(benches, channels);
criterion_main!(benches);
