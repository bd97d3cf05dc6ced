//! Where messages are, all shards together, read at scrape time.

use std::sync::{Arc, Weak};

use parking_lot::RwLock;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{Gauge, GaugeVec, IntCounter, IntGauge, IntGaugeVec, Opts};
use ulid::Ulid;
use weir_protocol::prices::Prices;
use weir_tier::store::requests_of;

use crate::clock;
use crate::shard::state::{Pack, ShardState};

/// Requests are counted over this long.
const DAY_MS: u64 = 24 * 3600 * 1000;

/// Bytes in the journal alone and in the object store, objects, how far uploads are behind, what could not be
/// read, and what a day of it costs. Keeps no shard alive.
pub struct StorageCollector {
    states: Vec<Weak<RwLock<ShardState>>>,
    store: Option<ToldByStore>,
    prices: Prices,
    currency: String,
    names: Vec<Desc>,
}

/// Tells what is known of the object store.
pub type ToldByStore = Box<dyn Fn() -> StoreNow + Send + Sync>;

/// What is known of the object store.
#[derive(Debug, Clone, Copy, Default)]
pub struct StoreNow {
    /// Bytes of messages that are on their way there.
    pub uploading_bytes: u64,
    /// Requests within about a day that are charged like a PUT …
    pub puts_per_day: f64,
    /// … and like a GET.
    pub gets_per_day: f64,
    /// Objects that could not be read because they are gone or damaged.
    pub damaged_objects: usize,
    /// Most of them that are remembered.
    pub damaged_objects_max: usize,
    /// Reads that failed because of that.
    pub damaged_reads: u64,
}

/// Sums over all shards.
#[derive(Default)]
struct Sums {
    unsealed_bytes: u64,
    packed_bytes: u64,
    objects: u64,
    object_bytes: u64,
    dead_bytes: u64,
    unneeded: u64,
    lag_ms: u64,
    /// Requests that made those objects that were made within the last day.
    puts: f64,
    gets: f64,
}

impl Sums {
    fn add(&mut self, pack: &Pack, now_ms: u64) {
        self.objects += 1;
        self.object_bytes += pack.bytes;
        self.dead_bytes += pack.batch_bytes.saturating_sub(pack.living_bytes);
        if now_ms.saturating_sub(Ulid(pack.attempt).timestamp_ms()) < DAY_MS {
            let (puts, gets) = requests_of(pack.bytes);
            self.puts += f64::from(puts);
            self.gets += f64::from(gets);
        }
    }
}

impl StorageCollector {
    /// Over these shards, of a node with an object store, of which `store` tells, or without one; what that
    /// takes a day is told at `prices`, which are in `currency`.
    ///
    /// # Errors
    /// Never: the names are constants (tested).
    pub fn new<'a>(
        states: impl Iterator<Item = &'a Arc<RwLock<ShardState>>>,
        store: Option<ToldByStore>,
        (prices, currency): (Prices, String),
    ) -> prometheus::Result<Self> {
        let states = states.map(Arc::downgrade).collect();
        let mut collector = Self { states, store, prices, currency, names: Vec::new() };
        collector.names = collector.gauges()?.iter().flat_map(|gauge| gauge.desc()).cloned().collect();
        Ok(collector)
    }

    fn sums(&self) -> Sums {
        let mut sums = Sums::default();
        let now = clock::now().0;
        for state in self.states.iter().filter_map(Weak::upgrade) {
            // Each of these is at hand: apply waits for no walk. The packs are shared, and looked through afterwards.
            let ((bytes, unsealed), oldest, packs) = {
                let state = state.read();
                (state.batch_bytes(), state.oldest_unsealed(), state.shared_packs())
            };
            sums.unsealed_bytes += unsealed;
            sums.packed_bytes += bytes - unsealed;
            sums.lag_ms = sums.lag_ms.max(oldest.map_or(0, |row| now.saturating_sub(row.ts.0)));
            for (_, pack) in packs.live() {
                sums.add(pack, now);
            }
            sums.unneeded += packs.unneeded().count() as u64;
        }
        sums
    }

    fn gauges(&self) -> prometheus::Result<Vec<Box<dyn Collector>>> {
        let sums = self.sums();
        let store = self.store.as_ref().map_or_else(StoreNow::default, |store| store());
        let uploading = store.uploading_bytes.min(sums.unsealed_bytes);
        let help = "Bytes of messages: only in the journal, on their way to the object store, and there.";
        let bytes = IntGaugeVec::new(Opts::new("weir_storage_bytes", help), &["place"])?;
        for (place, value) in [
            ("local", sums.unsealed_bytes - uploading),
            ("uploading", uploading),
            ("archived", sums.packed_bytes),
        ] {
            bytes.with_label_values(&[place]).set(signed(value));
        }
        let gauge = |name: &str, help: &str, value: u64| {
            let gauge = IntGauge::new(name, help)?;
            gauge.set(signed(value));
            Ok::<_, prometheus::Error>(Box::new(gauge) as Box<dyn Collector>)
        };
        let lag = Gauge::new(
            "weir_storage_upload_lag_seconds",
            "Age of the oldest committed message that is not in the object store; 0 without a store.",
        )?;
        #[expect(clippy::cast_precision_loss, reason = "milliseconds")]
        let seconds = sums.lag_ms as f64 / 1_000.0;
        lag.set(if self.store.is_some() { seconds } else { 0.0 });
        Ok(vec![
            Box::new(bytes),
            Box::new(lag),
            gauge("weir_storage_objects", "Objects that hold messages.", sums.objects)?,
            gauge("weir_storage_object_bytes", "Bytes of these objects.", sums.object_bytes)?,
            gauge(
                "weir_storage_dead_bytes",
                "Bytes of messages in these objects, before compression, that no topic needs any more.",
                sums.dead_bytes,
            )?,
            gauge("weir_storage_unneeded_objects", "Objects that are about to be deleted.", sums.unneeded)?,
            gauge(
                "weir_storage_damaged_objects",
                "Objects that could not be read because they are gone or not what was written.",
                store.damaged_objects as u64,
            )?,
            gauge(
                "weir_storage_damaged_objects_max",
                "Such objects that are remembered at most.",
                store.damaged_objects_max as u64,
            )?,
            damaged_reads(store.damaged_reads)?,
            self.cost(&sums, &store)?,
        ])
    }

    /// What a day like the last one costs. What was counted since the start may be less than what the objects
    /// of the day took.
    fn cost(&self, sums: &Sums, store: &StoreNow) -> prometheus::Result<Box<dyn Collector>> {
        let (puts, gets) = (store.puts_per_day.max(sums.puts), store.gets_per_day.max(sums.gets));
        let cost = self.prices.per_day(sums.object_bytes, puts, gets);
        let help = "What a day like the last one costs in the object store, estimated at the prices that the node was given: \
            keeping what there is, writing, and reading.";
        let costs = GaugeVec::new(Opts::new("weir_storage_cost_per_day", help), &["currency", "of"])?;
        for (of, cost) in [("stored", cost.stored), ("puts", cost.puts), ("gets", cost.gets)] {
            costs.with_label_values(&[self.currency.as_str(), of]).set(cost);
        }
        Ok(Box::new(costs))
    }
}

impl Collector for StorageCollector {
    fn desc(&self) -> Vec<&Desc> {
        self.names.iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let gauges = self.gauges().unwrap_or_default();
        gauges.iter().flat_map(|gauge| gauge.collect()).collect()
    }
}

fn damaged_reads(reads: u64) -> prometheus::Result<Box<dyn Collector>> {
    let help = "Reads that failed because an object is gone or not what was written.";
    let counter = IntCounter::new("weir_storage_damaged_reads_total", help)?;
    counter.inc_by(reads);
    Ok(Box::new(counter))
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
