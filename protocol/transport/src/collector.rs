//! [`Metrics`] in a Prometheus registry, read when somebody scrapes.

use std::collections::HashMap;
use std::sync::Arc;

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{IntCounter, IntGauge, Opts};

use crate::metrics::Metrics;

/// Which end of its connections an endpoint is: the label `side`, so that one process may be both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// It opens them: links.
    Client,
    /// It accepts them.
    Server,
}

/// Shows an endpoint's [`Metrics`] as `weir_transport_…`.
#[derive(Debug)]
pub struct MetricsCollector {
    metrics: Arc<Metrics>,
    side: Side,
    names: Vec<Desc>,
}

impl MetricsCollector {
    /// For the endpoint that counts in `metrics`. One of each side fits a registry.
    ///
    /// # Errors
    /// Never: the names are constants (tested).
    pub fn new(metrics: Arc<Metrics>, side: Side) -> prometheus::Result<Self> {
        let numbers = numbers(&metrics, side)?;
        let names = numbers.iter().flat_map(|number| number.desc()).cloned().collect();
        Ok(Self { metrics, side, names })
    }
}

type Made = prometheus::Result<Box<dyn Collector>>;

fn numbers(metrics: &Metrics, side: Side) -> prometheus::Result<Vec<Box<dyn Collector>>> {
    let side = match side {
        Side::Client => "client",
        Side::Server => "server",
    };
    let options = |name: &str, help: &str| {
        let labels = HashMap::from([("side".to_owned(), side.to_owned())]);
        Opts::new(name, help).namespace("weir").subsystem("transport").const_labels(labels)
    };
    let gauge = |name, help, value: u64| -> Made {
        let gauge = IntGauge::with_opts(options(name, help))?;
        gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
        Ok(Box::new(gauge))
    };
    let counter = |name, help, value: u64| -> Made {
        let counter = IntCounter::with_opts(options(name, help))?;
        counter.inc_by(value);
        Ok(Box::new(counter))
    };
    let now = metrics.snapshot();
    [
        gauge("connections", "Connections past their handshake.", now.connections),
        counter(
            "connections_opened_total",
            "Connections that passed their handshake.",
            now.connections_opened,
        ),
        counter(
            "handshakes_failed_total",
            "Connections whose handshake failed or was refused.",
            now.handshakes_failed,
        ),
        counter("received_frames_total", "Frames received.", now.frames_in),
        counter("sent_frames_total", "Frames written.", now.frames_out),
        counter("received_bytes_total", "Bytes received.", now.bytes_in),
        counter("sent_bytes_total", "Bytes written, headers included.", now.bytes_out),
        counter("writes_total", "Vectored writes; each may hold many frames.", now.writes),
        gauge("calls_in_flight", "Calls admitted and not completely answered.", now.calls_in_flight),
        gauge("queued_bytes", "Bytes queued for writing.", now.queued_bytes),
        counter(
            "backpressure_waits_total",
            "Waits of a stream because its peer reads more slowly than it is sent to.",
            now.backpressure_waits,
        ),
        counter(
            "refused_calls_total",
            "Calls refused by the transport itself: limits, draining, unknown method.",
            now.refused,
        ),
        counter(
            "overruns_total",
            "Streams ended because the caller granted more than its buffer holds.",
            now.overruns,
        ),
    ]
    .into_iter()
    .collect()
}

impl Collector for MetricsCollector {
    fn desc(&self) -> Vec<&Desc> {
        self.names.iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let numbers = numbers(&self.metrics, self.side).unwrap_or_default();
        numbers.iter().flat_map(|number| number.collect()).collect()
    }
}

#[cfg(test)]
mod tests {
    use prometheus::{Registry, TextEncoder};

    use super::*;
    use crate::metrics::add;

    #[test]
    fn both_sides_fit_one_registry_and_are_told_apart() {
        let registry = Registry::new();
        let (client, server) = (Arc::new(Metrics::default()), Arc::new(Metrics::default()));
        add(&client.bytes_out, 7);
        add(&server.calls_in_flight, 3);
        registry.register(Box::new(MetricsCollector::new(client, Side::Client).unwrap())).unwrap();
        registry.register(Box::new(MetricsCollector::new(server, Side::Server).unwrap())).unwrap();
        let text = TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
        for line in [
            "weir_transport_sent_bytes_total{side=\"client\"} 7",
            "weir_transport_sent_bytes_total{side=\"server\"} 0",
            "weir_transport_calls_in_flight{side=\"server\"} 3",
            "# TYPE weir_transport_calls_in_flight gauge",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}: {text}");
        }
    }
}
