//! What is printed of a run.

use serde::Serialize;

use super::tally::{Latencies, Tally};
use super::target::Usage;
use crate::output;

const UNKNOWN: &str = "unknown";

/// Percentiles in microseconds.
#[derive(Debug, Serialize)]
pub(super) struct Percentiles {
    pub(super) count: u64,
    pub(super) p50_us: u64,
    pub(super) p99_us: u64,
    pub(super) p999_us: u64,
    pub(super) max_us: u64,
}

impl Percentiles {
    pub(super) fn of(latencies: &Latencies) -> Self {
        Self {
            count: latencies.count(),
            p50_us: latencies.at(0.5),
            p99_us: latencies.at(0.99),
            p999_us: latencies.at(0.999),
            max_us: latencies.max(),
        }
    }

    fn row(&self, name: &str) -> Vec<String> {
        let cells = [self.p50_us, self.p99_us, self.p999_us, self.max_us].map(|us| us.to_string());
        std::iter::once(name.to_owned()).chain(cells).collect()
    }
}

/// A run of writers and readers.
#[derive(Debug, Serialize)]
pub(super) struct StreamReport {
    /// Messages per second that were asked for; absent: as many as go.
    pub(super) asked_per_s: Option<u64>,
    pub(super) seconds: f64,
    pub(super) sent: u64,
    pub(super) confirmed: u64,
    pub(super) delivered: u64,
    pub(super) confirmed_per_s: f64,
    pub(super) batches_per_s: f64,
    pub(super) late: Percentiles,
    pub(super) confirm: Percentiles,
    pub(super) deliver: Percentiles,
    pub(super) missing: u64,
    pub(super) duplicates: u64,
    /// Topics that nobody read: what was confirmed there is not proven to be delivered.
    pub(super) topics_without_reader: u32,
    /// Absent if it is not known which process serves.
    pub(super) server_cpu_us_per_message: Option<f64>,
    pub(super) client_cpu_us_per_message: f64,
    pub(super) syncs_per_s: f64,
    pub(super) messages_per_sync: f64,
    pub(super) server_rss_bytes: Option<u64>,
    pub(super) server_rss_max_bytes: Option<u64>,
}

impl StreamReport {
    pub(super) fn of(tally: &Tally, usage: Usage, seconds: f64, asked_per_s: Option<u64>) -> Self {
        // Unconfirmed publishes are counted where they arrive.
        let messages = if tally.confirmed > 0 { tally.confirmed_in_window } else { tally.deliver.count() };
        #[expect(clippy::cast_precision_loss, reason = "a rate is shown to three digits")]
        let confirmed = messages.max(1) as f64;
        #[expect(clippy::cast_precision_loss, reason = "a rate is shown to three digits")]
        let batches = tally.batches as f64;
        Self {
            asked_per_s,
            seconds,
            sent: tally.sent,
            confirmed: tally.confirmed,
            delivered: tally.delivered,
            confirmed_per_s: confirmed / seconds,
            batches_per_s: batches / seconds,
            late: Percentiles::of(&tally.late),
            confirm: Percentiles::of(&tally.confirm),
            deliver: Percentiles::of(&tally.deliver),
            missing: tally.missing,
            duplicates: tally.duplicates,
            topics_without_reader: 0,
            server_cpu_us_per_message: usage.server.map(|server| server.cpu_s * 1e6 / confirmed),
            client_cpu_us_per_message: usage.client_cpu_s * 1e6 / confirmed,
            syncs_per_s: usage.syncs / seconds,
            messages_per_sync: confirmed / usage.syncs.max(1.0),
            server_rss_bytes: usage.server.map(|server| server.rss_bytes),
            server_rss_max_bytes: usage.server.map(|server| server.rss_max_bytes),
        }
    }

    /// Prints it, for people or as JSON.
    pub(super) fn print(&self, as_json: bool) -> anyhow::Result<()> {
        if as_json {
            output::line(serde_json::to_string(self)?);
            return Ok(());
        }
        let asked = self.asked_per_s.map_or("as fast as possible".to_owned(), |rate| format!("{rate}/s"));
        output::line(format_args!(
            "asked {asked}, confirmed {:.0}/s over {:.1} s in {:.0} batches/s",
            self.confirmed_per_s, self.seconds, self.batches_per_s
        ));
        let rows = [
            self.late.row("due to sent"),
            self.confirm.row("due to confirmed"),
            self.deliver.row("due to delivered"),
        ];
        output::table(&["microseconds", "p50", "p99", "p99.9", "max"], &rows);
        output::line(format_args!(
            "server {} CPU-us per message, client {:.2}; {:.0} syncs/s, {:.1} messages per sync; \
             server memory {} now, {} at most",
            self.server_cpu_us_per_message.map_or(UNKNOWN.to_owned(), |us| format!("{us:.2}")),
            self.client_cpu_us_per_message,
            self.syncs_per_s,
            self.messages_per_sync,
            self.server_rss_bytes.map_or(UNKNOWN.to_owned(), output::bytes),
            self.server_rss_max_bytes.map_or(UNKNOWN.to_owned(), output::bytes),
        ));
        output::line(format_args!(
            "identity: {} sent, {} confirmed, {} delivered, {} missing, {} twice",
            self.sent, self.confirmed, self.delivered, self.missing, self.duplicates
        ));
        if self.topics_without_reader > 0 {
            output::line(format_args!(
                "{} topics had no reader: that their messages can be delivered is not proven",
                self.topics_without_reader
            ));
        }
        Ok(())
    }
}
