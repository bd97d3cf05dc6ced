//! Who keeps the journal full, and the clock, read at scrape time.

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{IntGauge, IntGaugeVec, Opts};

use crate::clock;
use crate::holders::{Holders, NAMED};

/// Always as many series, so that what names topics is bounded, and is there before it is needed.
#[derive(Debug)]
pub struct HoldersCollector {
    holders: Holders,
    names: Vec<Desc>,
}

impl HoldersCollector {
    /// Of those who are found.
    ///
    /// # Errors
    /// Never: the names are constants (tested).
    pub fn new(holders: Holders) -> prometheus::Result<Self> {
        let mut collector = Self { holders, names: Vec::new() };
        collector.names = collector.gauges()?.iter().flat_map(|gauge| gauge.desc()).cloned().collect();
        Ok(collector)
    }

    fn gauges(&self) -> prometheus::Result<Vec<Box<dyn Collector>>> {
        let labels = &["rank", "keeps", "name"];
        let bytes = Opts::new(
            "weir_journal_kept_by_bytes",
            "Bytes that those who keep most of the journal keep, most first; named once it is 70 % full.",
        );
        let oldest = Opts::new(
            "weir_journal_kept_by_oldest_seconds",
            "Age of the oldest message that each of them keeps.",
        );
        let (bytes, oldest) = (IntGaugeVec::new(bytes, labels)?, IntGaugeVec::new(oldest, labels)?);
        let (named, now) = (self.holders.named(), clock::now());
        for at in 0..NAMED {
            let holder = named.get(at);
            let rank = (at + 1).to_string();
            let keeps = holder.map_or("", |holder| holder.keeps.word());
            let labels = [rank.as_str(), keeps, holder.map_or("", |holder| holder.name.as_str())];
            let set = |gauge: &IntGaugeVec, value: u64| {
                gauge.with_label_values(&labels).set(i64::try_from(value).unwrap_or(i64::MAX));
            };
            set(&bytes, holder.map_or(0, |holder| holder.kept.bytes));
            set(&oldest, holder.map_or(0, |holder| now.0.saturating_sub(holder.kept.since.0) / 1_000));
        }
        let step = IntGauge::new(
            "weir_node_clock_step_seconds",
            "How far the machine's clock has jumped ahead and is not followed, behind if negative; 0 if it is.",
        )?;
        step.set(clock::step_ms() / 1_000);
        Ok(vec![Box::new(bytes), Box::new(oldest), Box::new(step)])
    }
}

impl Collector for HoldersCollector {
    fn desc(&self) -> Vec<&Desc> {
        self.names.iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        self.gauges().unwrap_or_default().iter().flat_map(|gauge| gauge.collect()).collect()
    }
}
