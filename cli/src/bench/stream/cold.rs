//! Readers of what is in the object store alone, beside bare GETs of the same objects; and once more, from the cache.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use weir_tier::store::{Listed, Store, StoreConfig};

use super::{Shared, make, replay};
use crate::bench::result::{Figure, RunResult};
use crate::bench::target::Target;

/// Objects of a run at most.
const OBJECTS_MAX: usize = 100_000;
/// Bare GETs under way at once; the fastest is compared with.
const AT_ONCE: [usize; 2] = [1, 4];
/// Bytes of a bare GET.
const GET_BYTES_MAX: u64 = 16 << 20;
/// What readers did not find in the cache; what the product asked of the store for whatever reason, and how
/// many bytes came.
const COUNTS: [(&str, &str); 2] = [
    ("blocks_missed", "weir_tier_blocks_total{what=\"missed\"}"),
    ("gets", "weir_tier_requests_total{request=\"get\"}"),
];
const GET_BYTES: &str = "weir_tier_request_bytes_total{request=\"get\"}";

/// The results of reading cold in a process that has just begun; of reading cold again, other messages, now
/// that it has all the memory that it will have; and of reading those once more.
pub(super) async fn run(target: &mut Target, shared: &Arc<Shared>) -> anyhow::Result<Vec<RunResult>> {
    let url = shared.shape.object_store.clone().context("cold needs an object store")?;
    let others = Arc::new(others(shared));
    make(target, &others).await?;
    let written = [replay::write(target, &others).await?, replay::write(target, shared).await?];
    let all = written[0].sent + written[1].sent;
    target.restore(&url, all).await?;
    let objects = Objects::find(&url).await?;
    let before = objects.bare_mib_per_s().await?;
    let mut results = Vec::new();
    let passes =
        [("cold, first", &others, &written[0]), ("cold", shared, &written[1]), ("warm", shared, &written[1])];
    for (what, of, written) in passes {
        let names = [COUNTS[0].1, COUNTS[1].1, GET_BYTES];
        let counts = target.metrics(names).await;
        let (read, used) = replay::read(target, of).await?;
        let now = target.metrics(names).await;
        let grown = |at: usize| now[at].zip(counts[at]).map_or(0.0, |(now, before)| now - before);
        let mut result = replay::report(of, written, &read, &used);
        result.case = format!("{}, {what}", result.case);
        result.figures.extend(COUNTS.iter().enumerate().map(|(at, (name, _))| Figure::new(name, grown(at))));
        #[expect(clippy::cast_precision_loss, reason = "figures are shown to three digits")]
        let bytes = objects.bytes() * written.sent as f64 / all as f64;
        result.figures.push(Figure::new("get_bytes_per_object_byte", grown(2) / bytes));
        results.push(result);
    }
    // The store drifts as everything does: the faster of both, so that nothing is flattered.
    let bare = before.max(objects.bare_mib_per_s().await?);
    for cold in &mut results[..2] {
        let read = cold.figure("read_mib_per_s").unwrap_or(0.0);
        cold.figures.push(Figure::new("bare_gets_mib_per_s", bare));
        cold.figures.push(Figure::new("read_per_bare_gets_pct", 100.0 * read / bare));
    }
    Ok(results)
}

/// What is read first: messages of the same kind, more of them than the cache has room for.
fn others(shared: &Shared) -> Shared {
    let mut shape = shared.shape.clone();
    shape.messages = shape.messages.map(|messages| messages * 3 / 2);
    Shared::new(shape, format!("{}-others", shared.run))
}

/// Packs of a run.
struct Objects {
    store: Store,
    packs: Vec<Listed>,
}

impl Objects {
    async fn find(url: &str) -> anyhow::Result<Self> {
        let store = Store::open(StoreConfig::new(url))?;
        let mut packs = Vec::new();
        for cluster in store.folders().await? {
            packs.extend(store.list(&format!("{cluster}/data"), OBJECTS_MAX).await?);
        }
        ensure!(!packs.is_empty(), "no packs in {url}");
        Ok(Self { store, packs })
    }

    #[expect(clippy::cast_precision_loss, reason = "figures are shown to three digits")]
    fn bytes(&self) -> f64 {
        self.packs.iter().map(|pack| pack.bytes).sum::<u64>() as f64
    }

    /// Gets all of them; the best of one after the other and several at once.
    async fn bare_mib_per_s(&self) -> anyhow::Result<f64> {
        let mut best: f64 = 0.0;
        for at_once in AT_ONCE {
            let start = Instant::now();
            let gets = self.packs.iter().flat_map(|pack| {
                let steps = (0..pack.bytes).step_by(GET_BYTES_MAX as usize);
                steps.map(|at| self.store.get(&pack.name, at..pack.bytes.min(at + GET_BYTES_MAX)))
            });
            let gets = stream::iter(gets);
            gets.buffer_unordered(at_once).try_for_each(|_| std::future::ready(Ok(()))).await?;
            best = best.max(self.bytes() / 1_048_576.0 / start.elapsed().as_secs_f64());
        }
        Ok(best)
    }
}
