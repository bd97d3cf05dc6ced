//! Where messages are, all shards together, read at scrape time.

use std::sync::{Arc, Weak};

use parking_lot::RwLock;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{Gauge, IntGauge, IntGaugeVec, Opts};

use crate::clock;
use crate::shard::state::ShardState;

/// Bytes in the journal alone and in the object store, objects, and how far uploads are behind. Keeps no shard alive.
pub struct StorageCollector {
    states: Vec<Weak<RwLock<ShardState>>>,
    uploading: Option<Uploading>,
    names: Vec<Desc>,
}

/// Tells how many bytes of messages are on their way to the object store.
pub type Uploading = Box<dyn Fn() -> u64 + Send + Sync>;

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
}

impl StorageCollector {
    /// Over these shards, of a node with an object store, of which `uploading` tells, or without one.
    ///
    /// # Errors
    /// Never: the names are constants (tested).
    pub fn new<'a>(
        states: impl Iterator<Item = &'a Arc<RwLock<ShardState>>>,
        uploading: Option<Uploading>,
    ) -> prometheus::Result<Self> {
        let states = states.map(Arc::downgrade).collect();
        let mut collector = Self { states, uploading, names: Vec::new() };
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
                sums.objects += 1;
                sums.object_bytes += pack.bytes;
                sums.dead_bytes += pack.batch_bytes.saturating_sub(pack.living_bytes);
            }
            sums.unneeded += packs.unneeded().count() as u64;
        }
        sums
    }

    fn gauges(&self) -> prometheus::Result<Vec<Box<dyn Collector>>> {
        let sums = self.sums();
        let uploading = self.uploading.as_ref().map_or(0, |uploading| uploading()).min(sums.unsealed_bytes);
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
        lag.set(if self.uploading.is_some() { seconds } else { 0.0 });
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
        ])
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

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
