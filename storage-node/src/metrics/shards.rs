//! What the shards hold and may hold, read at scrape time: nothing is counted twice on the hot path.

use std::sync::{Arc, Weak};

use parking_lot::RwLock;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{IntGauge, IntGaugeVec, Opts};
use weir_protocol::ids::ShardId;

use crate::shard::state::{DEAD_LETTERS_MAX, OUTBOX_ROWS_MAX, OUTPUT_BYTES_MAX, OUTPUT_ROWS_MAX, ShardState};
use crate::subscription::PAST_WEIGHT_MAX;

/// Topics, outboxes, outputs, dead letters and deduplication tables, by shard. Keeps no shard alive.
#[derive(Debug)]
pub struct ShardsCollector {
    shards: Vec<(ShardId, Weak<RwLock<ShardState>>)>,
    dedupe_rows_max: usize,
    names: Vec<Desc>,
}

impl ShardsCollector {
    /// Over shards that remember `dedupe_rows_max` producers, and as many keys, each.
    ///
    /// # Errors
    /// Never: the names are constants (tested).
    pub fn new<'a>(
        shards: impl Iterator<Item = (ShardId, &'a Arc<RwLock<ShardState>>)>,
        dedupe_rows_max: usize,
    ) -> prometheus::Result<Self> {
        let shards = shards.map(|(shard, state)| (shard, Arc::downgrade(state))).collect();
        let mut collector = Self { shards, dedupe_rows_max, names: Vec::new() };
        collector.names = collector.gauges()?.iter().flat_map(|gauge| gauge.desc()).cloned().collect();
        Ok(collector)
    }

    fn gauges(&self) -> prometheus::Result<Vec<Box<dyn Collector>>> {
        let topics = by("weir_node_topics", "Topics at home in the shard.", &["shard"])?;
        let outbox = by("weir_node_outbox_rows", "Changes that wait for other shards.", &["shard"])?;
        let outputs = by("weir_node_outputs", "Outputs of settles on their way.", &["shard"])?;
        let output_bytes =
            by("weir_node_output_bytes", "Bytes of outputs of settles on their way.", &["shard"])?;
        let letters = by("weir_node_dead_letters", "Dead letters on their way to their topics.", &["shard"])?;
        let dedupe =
            by("weir_node_dedupe_rows", "Producers and idempotency keys remembered.", &["shard", "table"])?;
        let past = by(
            "weir_node_subscription_past_bytes",
            "Bytes, about, of the past states that subscriptions keep for as_of and forks.",
            &["shard"],
        )?;
        for (shard, state) in &self.shards {
            let Some(state) = state.upgrade() else { continue };
            // Each count is at hand: apply waits for no walk.
            let (topic_count, outbox_rows, (producers, keys), sent, past_weight, dead) = {
                let state = state.read();
                let sent = (state.outputs().len(), state.outputs().bytes());
                let past = state.parts().past_weight();
                let dead = state.dead_letters().len();
                (state.topics().len(), state.outbox().count(), state.dedupe().rows(), sent, past, dead)
            };
            let shard = shard.to_string();
            topics.with_label_values(&[&shard]).set(signed(topic_count));
            outbox.with_label_values(&[&shard]).set(signed(outbox_rows));
            past.with_label_values(&[&shard]).set(bytes_of_past(past_weight));
            outputs.with_label_values(&[&shard]).set(signed(sent.0));
            output_bytes.with_label_values(&[&shard]).set(i64::try_from(sent.1).unwrap_or(i64::MAX));
            letters.with_label_values(&[&shard]).set(signed(dead));
            dedupe.with_label_values(&[shard.as_str(), "producers"]).set(signed(producers));
            dedupe.with_label_values(&[shard.as_str(), "keys"]).set(signed(keys));
        }
        let mut gauges: Vec<Box<dyn Collector>> = vec![
            Box::new(topics),
            Box::new(outbox),
            Box::new(outputs),
            Box::new(output_bytes),
            Box::new(letters),
            Box::new(dedupe),
            Box::new(past),
        ];
        gauges.extend(self.bounds()?);
        Ok(gauges)
    }

    /// What each of them may be.
    fn bounds(&self) -> prometheus::Result<Vec<Box<dyn Collector>>> {
        let outbox_max = max(
            "weir_node_outbox_rows_max",
            "Changes of one shard that wait, beyond which more are refused.",
            OUTBOX_ROWS_MAX,
        )?;
        let outputs_max = max(
            "weir_node_outputs_max",
            "Outputs of one shard on their way, beyond which settles that publish are refused.",
            OUTPUT_ROWS_MAX,
        )?;
        let output_bytes_max = max(
            "weir_node_output_bytes_max",
            "Bytes of one shard's outputs on their way, beyond which settles that publish are refused.",
            usize::try_from(OUTPUT_BYTES_MAX).unwrap_or(usize::MAX),
        )?;
        let letters_max = max(
            "weir_node_dead_letters_max",
            "Dead letters of one shard on their way at most; no topic may have more of them than it leaves free.",
            DEAD_LETTERS_MAX,
        )?;
        let dedupe_max = max(
            "weir_node_dedupe_rows_max",
            "Rows of one table of one shard, beyond which new ones are refused.",
            self.dedupe_rows_max,
        )?;
        let past_max = IntGauge::new(
            "weir_node_subscription_past_bytes_max",
            "Bytes of such states in one shard, beyond which the oldest makes room, or none is kept.",
        )?;
        past_max.set(bytes_of_past(PAST_WEIGHT_MAX));
        Ok(vec![
            Box::new(outbox_max),
            Box::new(outputs_max),
            Box::new(output_bytes_max),
            Box::new(letters_max),
            Box::new(dedupe_max),
            Box::new(past_max),
        ])
    }
}

impl Collector for ShardsCollector {
    fn desc(&self) -> Vec<&Desc> {
        self.names.iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let gauges = self.gauges().unwrap_or_default();
        gauges.iter().flat_map(|gauge| gauge.collect()).collect()
    }
}

fn by(name: &str, help: &str, labels: &[&str]) -> prometheus::Result<IntGaugeVec> {
    IntGaugeVec::new(Opts::new(name, help), labels)
}

fn max(name: &str, help: &str, value: usize) -> prometheus::Result<IntGauge> {
    let gauge = IntGauge::new(name, help)?;
    gauge.set(signed(value));
    Ok(gauge)
}

/// What a weight of snapshots takes.
fn bytes_of_past(weight: u64) -> i64 {
    i64::try_from(2 * weight).unwrap_or(i64::MAX)
}

fn signed(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use prometheus::{Registry, TextEncoder};

    use super::*;

    #[test]
    fn shards_show_what_they_hold_and_may_hold_until_they_are_gone() {
        let state = Arc::new(RwLock::new(ShardState::with_dedupe_rows(ShardId(3), 2_000)));
        let registry = Registry::new();
        let shards = ShardsCollector::new([(ShardId(3), &state)].into_iter(), 2_000).unwrap();
        registry.register(Box::new(shards)).unwrap();
        let text = || TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
        let shown = text();
        for line in [
            "weir_node_topics{shard=\"3\"} 0",
            "weir_node_outbox_rows{shard=\"3\"} 0",
            "weir_node_outbox_rows_max 10000",
            "weir_node_outputs{shard=\"3\"} 0",
            "weir_node_outputs_max 10000",
            "weir_node_output_bytes{shard=\"3\"} 0",
            "weir_node_output_bytes_max 8388608",
            "weir_node_dead_letters{shard=\"3\"} 0",
            "weir_node_dead_letters_max 100000",
            "weir_node_dedupe_rows{shard=\"3\",table=\"keys\"} 0",
            "weir_node_dedupe_rows{shard=\"3\",table=\"producers\"} 0",
            "weir_node_dedupe_rows_max 2000",
        ] {
            assert!(shown.contains(&format!("\n{line}\n")), "{line} in {shown}");
        }
        drop(state);
        assert!(!text().contains("shard="), "whoever scrapes keeps no shard alive");
    }
}
