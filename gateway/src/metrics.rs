//! What the gateway's bounded parts hold and may hold, read at scrape time: nothing is counted twice on the hot path.

use std::sync::Arc;

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{IntCounter, IntGauge};
use tokio::sync::Semaphore;

use crate::answers::Answers;
use crate::edge::BodyBudget;
use crate::service::Services;
use crate::ws::Pool;

/// Where the numbers are.
pub(crate) struct Bounds {
    pub(crate) services: Services,
    /// What is left of `places_max` connections.
    pub(crate) places: Arc<Semaphore>,
    pub(crate) places_max: usize,
    pub(crate) websockets_max: usize,
    /// What publishing WebSockets have their credit from.
    pub(crate) pool: Arc<Pool>,
    pub(crate) bodies: BodyBudget,
    pub(crate) answers: Arc<Answers>,
}

/// Connections, request bodies, answers, publish budget, topic cache, lanes and read credit.
pub(crate) struct BoundsCollector {
    bounds: Bounds,
    names: Vec<Desc>,
}

impl BoundsCollector {
    /// Over `bounds`.
    ///
    /// # Errors
    /// Never: the names are constants (tested).
    pub(crate) fn new(bounds: Bounds) -> prometheus::Result<Self> {
        let names = bounds.metrics()?.iter().flat_map(|metric| metric.desc()).cloned().collect();
        Ok(Self { bounds, names })
    }
}

impl Bounds {
    fn metrics(&self) -> prometheus::Result<Vec<Box<dyn Collector>>> {
        self.requests()
            .into_iter()
            .chain(self.answers())
            .chain(self.publishes())
            .chain(self.windows())
            .chain(self.topics())
            .chain(self.reads())
            .chain(self.feeds())
            .chain(self.queues())
            .collect()
    }

    fn requests(&self) -> [Made; 5] {
        let connections = self.places_max.saturating_sub(self.places.available_permits()) as u64;
        [
            gauge("weir_gateway_connections", "Connections that are open.", connections),
            gauge(
                "weir_gateway_connections_max",
                "Connections beyond which further ones are refused.",
                self.places_max as u64,
            ),
            gauge(
                "weir_gateway_websockets_max",
                "WebSockets beyond which further ones are refused.",
                self.websockets_max as u64,
            ),
            gauge("weir_gateway_request_bytes", "Bytes of request bodies held.", self.bodies.held()),
            gauge(
                "weir_gateway_request_bytes_max",
                "Bytes of request bodies beyond which more are refused.",
                self.bodies.max(),
            ),
        ]
    }

    fn answers(&self) -> [Made; 3] {
        let answers = self.answers.metrics();
        [
            gauge(
                "weir_gateway_answer_bytes",
                "Bytes of answers and messages held for clients that have not taken them.",
                answers.held,
            ),
            gauge(
                "weir_gateway_answer_bytes_max",
                "Bytes held for clients beyond which further answers are refused.",
                answers.max,
            ),
            counter(
                "weir_gateway_answers_refused_total",
                "Answers refused because there was no room to hold them.",
                answers.refused,
            ),
        ]
    }

    fn publishes(&self) -> [Made; 4] {
        let storage = self.services.storage.metrics();
        [
            gauge("weir_gateway_publish_bytes", "Bytes of publishes under way.", storage.publish_bytes),
            gauge(
                "weir_gateway_publish_bytes_max",
                "Bytes of publishes under way beyond which more are refused.",
                storage.publish_bytes_max,
            ),
            counter(
                "weir_gateway_publish_frames_total",
                "Frames of publishes sent to storage.",
                storage.publish_frames,
            ),
            counter(
                "weir_gateway_publish_batches_total",
                "Record batches in these frames.",
                storage.publish_batches,
            ),
        ]
    }

    fn topics(&self) -> [Made; 7] {
        let storage = self.services.storage.metrics();
        [
            gauge("weir_gateway_topics", "Topics whose configuration is in memory.", storage.topics),
            gauge("weir_gateway_topics_max", "Topics kept in memory at most.", storage.topics_max),
            counter(
                "weir_gateway_topic_hits_total",
                "Look-ups of topics that memory answered.",
                storage.topic_hits,
            ),
            counter(
                "weir_gateway_topic_misses_total",
                "Look-ups of topics that storage had to answer.",
                storage.topic_misses,
            ),
            counter(
                "weir_gateway_topic_evictions_total",
                "Topics dropped from memory to make room.",
                storage.topic_evictions,
            ),
            counter("weir_gateway_retries_total", "Calls to storage that were tried again.", storage.retries),
            counter(
                "weir_gateway_map_refreshes_total",
                "Times the map of the cluster was read from storage.",
                storage.map_refreshes,
            ),
        ]
    }

    fn reads(&self) -> [Made; 4] {
        let credit = self.services.reader.budget().metrics();
        [
            gauge(
                "weir_gateway_read_credit_bytes",
                "Bytes that storage may still send for readers.",
                credit.granted_bytes,
            ),
            gauge(
                "weir_gateway_read_credit_bytes_max",
                "Bytes granted for readers beyond which further grants wait.",
                credit.granted_bytes_max,
            ),
            gauge("weir_gateway_read_streams", "Streams of records from storage.", credit.streams),
            counter(
                "weir_gateway_read_throttled_total",
                "Grants for readers that had to wait.",
                credit.throttled,
            ),
        ]
    }

    fn queues(&self) -> [Made; 6] {
        let queues = self.services.subscriptions.metrics();
        [
            gauge(
                "weir_gateway_subscriptions",
                "Subscriptions whose configuration is in memory.",
                queues.known,
            ),
            gauge(
                "weir_gateway_subscriptions_max",
                "Subscriptions kept in memory at most.",
                queues.known_max,
            ),
            gauge(
                "weir_gateway_lease_streams",
                "Partitions that consumers on WebSockets lease from.",
                queues.streams,
            ),
            gauge(
                "weir_gateway_lease_streams_max",
                "Partitions leased from, beyond which a further consumer is refused.",
                queues.streams_max,
            ),
            gauge("weir_gateway_pull_waits", "Partitions that pulls wait for.", queues.waits),
            gauge(
                "weir_gateway_pull_waits_max",
                "Partitions waited for, beyond which pulls ask again from time to time instead.",
                queues.waits_max,
            ),
        ]
    }

    fn windows(&self) -> [Made; 4] {
        let pool = self.pool.metrics();
        [
            gauge(
                "weir_gateway_publish_credit_bytes",
                "Bytes that WebSocket channels which publish may have under way.",
                pool.counted,
            ),
            gauge(
                "weir_gateway_publish_credit_bytes_max",
                "Bytes beyond which such a channel gets its smallest window only.",
                pool.counted_max,
            ),
            counter(
                "weir_gateway_publish_throttled_total",
                "Times a channel would have used a larger window than its share.",
                pool.held_back,
            ),
            counter(
                "weir_gateway_publish_halved_total",
                "Windows halved because storage was busy.",
                pool.halved,
            ),
        ]
    }

    fn feeds(&self) -> [Made; 11] {
        let feeds = self.services.reader.feed_metrics();
        let (awaited, awaited_max) = self.services.reader.awaited();
        [
            gauge(
                "weir_gateway_awaited_topics",
                "Topics that event streams wait for until they exist.",
                awaited,
            ),
            gauge("weir_gateway_awaited_topics_max", "How many may be waited for at once.", awaited_max),
            gauge("weir_gateway_feeds", "Streams that several readers share.", feeds.feeds),
            gauge("weir_gateway_feed_readers", "Readers that share them.", feeds.readers),
            gauge("weir_gateway_feed_bytes", "Bytes that feeds hold.", feeds.bytes),
            gauge(
                "weir_gateway_feed_bytes_max",
                "Bytes beyond which feeds hold nothing for slower readers.",
                feeds.bytes_max,
            ),
            gauge(
                "weir_gateway_feed_text_bytes",
                "Bytes of JSON that feeds hold for all readers.",
                feeds.text_bytes.0,
            ),
            gauge(
                "weir_gateway_feed_text_bytes_max",
                "Bytes of JSON beyond which each reader makes its own.",
                feeds.text_bytes.1,
            ),
            counter(
                "weir_gateway_feed_batches_total",
                "Answers of storage that feeds received.",
                feeds.batches,
            ),
            counter("weir_gateway_feed_joins_total", "Times a reader joined a feed.", feeds.joined),
            counter(
                "weir_gateway_feed_falls_total",
                "Times a reader was too slow for a feed and left it.",
                feeds.fell_behind,
            ),
        ]
    }
}

type Made = prometheus::Result<Box<dyn Collector>>;

fn gauge(name: &str, help: &str, value: u64) -> Made {
    let gauge = IntGauge::new(name, help)?;
    gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
    Ok(Box::new(gauge))
}

fn counter(name: &str, help: &str, value: u64) -> Made {
    let counter = IntCounter::new(name, help)?;
    counter.inc_by(value);
    Ok(Box::new(counter))
}

impl Collector for BoundsCollector {
    fn desc(&self) -> Vec<&Desc> {
        self.names.iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let metrics = self.bounds.metrics().unwrap_or_default();
        metrics.iter().flat_map(|metric| metric.collect()).collect()
    }
}
