//! What the gateway's bounded parts hold and may hold, read at scrape time: nothing is counted twice on the hot path.

use std::sync::Arc;

use prometheus::core::{Collector, Desc};
use prometheus::proto::{Counter, Gauge, Metric, MetricFamily, MetricType};
use tokio::sync::Semaphore;

use crate::service::Services;

/// Connections, publish budget, topic cache, lanes and read credit.
pub(crate) struct BoundsCollector {
    services: Services,
    places: Arc<Semaphore>,
    places_max: usize,
    names: Vec<Desc>,
}

impl BoundsCollector {
    /// Over `services`; `places` are what is left of `places_max` connections.
    ///
    /// # Errors
    /// Never: the names are constants (tested).
    pub(crate) fn new(
        services: Services,
        places: Arc<Semaphore>,
        places_max: usize,
    ) -> prometheus::Result<Self> {
        let mut collector = Self { services, places, places_max, names: Vec::new() };
        let describe = |number: &Number| {
            Desc::new(number.name.to_owned(), number.help.to_owned(), Vec::new(), Default::default())
        };
        collector.names = collector.numbers().iter().map(describe).collect::<prometheus::Result<_>>()?;
        Ok(collector)
    }

    fn numbers(&self) -> Vec<Number> {
        let (storage, credit) = (self.services.storage.metrics(), self.services.reader.budget().metrics());
        let connections = self.places_max.saturating_sub(self.places.available_permits()) as u64;
        let gauge = |name, help, value| Number { name, help, value, is_counter: false };
        let counter = |name, help, value| Number { name, help, value, is_counter: true };
        vec![
            gauge("weir_gateway_connections", "Connections that are open.", connections),
            gauge(
                "weir_gateway_connections_max",
                "Connections beyond which further ones wait.",
                self.places_max as u64,
            ),
            gauge("weir_gateway_publish_bytes", "Bytes of publishes under way.", storage.publish_bytes),
            gauge(
                "weir_gateway_publish_bytes_max",
                "Bytes of publishes under way beyond which more are refused.",
                storage.publish_bytes_max,
            ),
            counter("weir_gateway_publish_frames_total", "Frames of publishes sent.", storage.publish_frames),
            counter("weir_gateway_publish_batches_total", "Record batches in them.", storage.publish_batches),
            gauge("weir_gateway_topics", "Topics remembered.", storage.topics),
            gauge("weir_gateway_topics_max", "Topics remembered at most.", storage.topics_max),
            counter("weir_gateway_topic_hits_total", "Topics found in memory.", storage.topic_hits),
            counter("weir_gateway_topic_misses_total", "Topics asked for.", storage.topic_misses),
            counter(
                "weir_gateway_topic_evictions_total",
                "Topics forgotten for room.",
                storage.topic_evictions,
            ),
            counter("weir_gateway_retries_total", "Attempts on storage that were repeated.", storage.retries),
            counter("weir_gateway_map_refreshes_total", "Cluster maps read.", storage.map_refreshes),
            gauge(
                "weir_gateway_read_credit_bytes",
                "Bytes granted to storage for readers.",
                credit.granted_bytes,
            ),
            gauge(
                "weir_gateway_read_credit_bytes_max",
                "Bytes beyond which a reader's grant waits.",
                credit.granted_bytes_max,
            ),
            gauge("weir_gateway_feeds", "Partitions that are followed.", credit.feeds),
            counter("weir_gateway_feeds_throttled_total", "Grants that had to wait.", credit.throttled),
        ]
    }
}

struct Number {
    name: &'static str,
    help: &'static str,
    value: u64,
    is_counter: bool,
}

impl Number {
    fn family(&self) -> MetricFamily {
        #[expect(clippy::cast_precision_loss, reason = "Prometheus knows only floating point")]
        let value = self.value as f64;
        let mut metric = Metric::default();
        let kind = if self.is_counter {
            let mut counter = Counter::default();
            counter.set_value(value);
            metric.set_counter(counter);
            MetricType::COUNTER
        } else {
            let mut gauge = Gauge::default();
            gauge.set_value(value);
            metric.set_gauge(gauge);
            MetricType::GAUGE
        };
        let mut family = MetricFamily::default();
        family.set_name(self.name.to_owned());
        family.set_help(self.help.to_owned());
        family.set_field_type(kind);
        family.set_metric(vec![metric]);
        family
    }
}

impl Collector for BoundsCollector {
    fn desc(&self) -> Vec<&Desc> {
        self.names.iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        self.numbers().iter().map(Number::family).collect()
    }
}
