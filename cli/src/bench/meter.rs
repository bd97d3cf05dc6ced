//! What a run costs: the server's processor time, memory, switches, writes and syncs, the client's time, and how much
//! of the machine somebody else took meanwhile.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::process::{self, Process};
use super::result::Figure;
use super::target::Target;

/// How often memory is looked at.
const SAMPLE_EVERY: Duration = Duration::from_millis(50);
/// What the journal says of itself.
const JOURNAL: [&str; 3] =
    ["weir_journal_syncs_total", "weir_journal_written_bytes_total", "weir_journal_prepared_bytes_total"];

/// Counts from when it was started.
pub(super) struct Meter {
    start: Instant,
    /// Processes that make the load, besides this one.
    clients: Vec<u32>,
    before: Reading,
    memory: Option<Sampler>,
}

/// What was used from start to stop.
#[derive(Debug, Clone, Default)]
pub(super) struct Used {
    pub(super) seconds: f64,
    /// `None` if it is not known which process serves.
    pub(super) server: Option<Process>,
    /// Resident memory of the server at the start.
    rss_before_bytes: u64,
    rss_avg_bytes: u64,
    rss_peak_bytes: u64,
    /// Of this process, and of each that it started.
    pub(super) client_cpu_s: Vec<f64>,
    pub(super) syncs: f64,
    /// Blocks of the journal, padding included, and what it wrote to make files ready.
    journal_bytes: Option<f64>,
    /// What the device below the data wrote, for whomever.
    device_bytes: Option<f64>,
    /// Of all the machine's processor time.
    pub(super) others_share: f64,
}

struct Reading {
    server: Option<Process>,
    client_cpu_s: Vec<f64>,
    idle_s: f64,
    syncs: f64,
    journal_bytes: Option<f64>,
    device_bytes: Option<u64>,
}

impl Reading {
    async fn take(target: Option<&Target>, clients: &[u32]) -> Self {
        let [syncs, written, prepared] = match target {
            Some(target) => target.metrics(JOURNAL).await,
            None => [None; 3],
        };
        let clients = std::iter::once(std::process::id()).chain(clients.iter().copied());
        Self {
            server: target.and_then(Target::pid).map(Process::of),
            client_cpu_s: clients.map(process::cpu_seconds).collect(),
            idle_s: process::idle_seconds(),
            syncs: syncs.unwrap_or(0.0),
            journal_bytes: written.zip(prepared).map(|(written, prepared)| written + prepared),
            device_bytes: target.and_then(|target| process::device_written_bytes(&target.dir)),
        }
    }
}

impl Meter {
    /// Starts counting; without a target, the client's costs alone. `clients` make load besides this process.
    pub(super) async fn start(target: Option<&Target>, clients: Vec<u32>) -> Self {
        let before = Reading::take(target, &clients).await;
        let memory = target.and_then(Target::pid).map(Sampler::start);
        Self { start: Instant::now(), clients, before, memory }
    }

    /// What was used until now.
    pub(super) async fn stop(self, target: Option<&Target>) -> Used {
        let seconds = self.start.elapsed().as_secs_f64();
        let (before, now) = (self.before, Reading::take(target, &self.clients).await);
        let (rss_avg_bytes, rss_peak_bytes) = self.memory.map(Sampler::stop).unwrap_or_default();
        let rss_before_bytes = before.server.map_or(0, |server| server.rss_bytes);
        let server = now.server.zip(before.server).map(|(now, before)| now.since(before));
        let client_cpu_s: Vec<f64> =
            now.client_cpu_s.iter().zip(&before.client_cpu_s).map(|(now, before)| now - before).collect();
        let ours = client_cpu_s.iter().sum::<f64>() + server.map_or(0.0, |server| server.cpu_s);
        let all_s = seconds * processors();
        let others_s = (all_s - (now.idle_s - before.idle_s) - ours).max(0.0);
        let grown = |(now, before): (f64, f64)| now - before;
        #[expect(clippy::cast_precision_loss, reason = "figures are shown to three digits")]
        let device = |bytes: Option<u64>| bytes.map(|bytes| bytes as f64);
        Used {
            seconds,
            server,
            rss_before_bytes,
            rss_avg_bytes,
            rss_peak_bytes,
            client_cpu_s,
            syncs: now.syncs - before.syncs,
            journal_bytes: now.journal_bytes.zip(before.journal_bytes).map(grown),
            device_bytes: device(now.device_bytes).zip(device(before.device_bytes)).map(grown),
            others_share: if server.is_some() { others_s / all_s } else { 0.0 },
        }
    }
}

/// Processors of the machine.
pub(super) fn processors() -> f64 {
    let count = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    u32::try_from(count).map_or(1.0, f64::from)
}

impl Used {
    /// The costs of `messages` with `payload` bytes each.
    #[expect(clippy::cast_precision_loss, reason = "figures are shown to three digits")]
    pub(super) fn figures(&self, messages: u64, payload: usize) -> Vec<Figure> {
        let (count, seconds) = (messages.max(1) as f64, self.seconds.max(1e-9));
        let published = count * payload.max(1) as f64;
        let mut figures = Vec::new();
        if let Some(server) = self.server {
            figures.push(Figure::new("server_cpu_us_per_message", server.cpu_s * 1e6 / count));
        }
        let client_cpu_s: f64 = self.client_cpu_s.iter().sum();
        figures.push(Figure::new("client_cpu_us_per_message", client_cpu_s * 1e6 / count));
        if self.client_cpu_s.len() > 1 {
            let most = self.client_cpu_s.iter().copied().fold(0.0, f64::max);
            figures.push(Figure::new("busiest_client_core_pct", 100.0 * most / seconds));
        }
        figures.extend([
            Figure::new("syncs_per_s", self.syncs / seconds),
            Figure::new("messages_per_sync", count / self.syncs.max(1.0)),
        ]);
        let written = self.journal_bytes.map(|bytes| ("written_bytes_per_published_byte", bytes));
        let device = self.device_bytes.map(|bytes| ("device_bytes_per_published_byte", bytes));
        figures.extend(
            written.into_iter().chain(device).map(|(name, bytes)| Figure::new(name, bytes / published)),
        );
        if let Some(server) = self.server {
            let mebibytes = |bytes: u64| bytes as f64 / 1_048_576.0;
            let grown = mebibytes(server.rss_bytes) - mebibytes(self.rss_before_bytes);
            figures.extend([
                Figure::new("server_rss_avg_mib", mebibytes(self.rss_avg_bytes)),
                Figure::new("server_rss_peak_mib", mebibytes(self.rss_peak_bytes)),
                Figure::new("server_rss_grown_mib", grown),
                Figure::new("voluntary_switches_per_s", server.voluntary_switches as f64 / seconds),
                Figure::new("involuntary_switches_per_s", server.involuntary_switches as f64 / seconds),
                Figure::new("others_cpu_pct", self.others_share * 100.0),
            ]);
        }
        figures
    }
}

/// Looks at a process's memory until it is stopped.
struct Sampler {
    stop: Sender<()>,
    thread: JoinHandle<(u64, u64)>,
}

impl Sampler {
    fn start(pid: u32) -> Self {
        let (stop, stopped) = channel();
        let thread = std::thread::spawn(move || {
            let (mut sum, mut count, mut peak) = (0, 0, 0);
            loop {
                let now = process::resident_bytes(pid);
                (sum, count, peak) = (sum + now, count + 1, now.max(peak));
                match stopped.recv_timeout(SAMPLE_EVERY) {
                    Err(RecvTimeoutError::Timeout) => {}
                    Ok(()) | Err(RecvTimeoutError::Disconnected) => return (sum / count, peak),
                }
            }
        });
        Self { stop, thread }
    }

    /// Average and peak.
    fn stop(self) -> (u64, u64) {
        drop(self.stop);
        self.thread.join().expect("the sampler only reads and adds")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_has_an_average_and_a_peak() {
        let (average, peak) = Sampler::start(std::process::id()).stop();
        assert!(average > 0 && peak >= average);
    }

    #[test]
    fn costs_are_per_message_second_and_byte() {
        let server = Process { cpu_s: 2.0, voluntary_switches: 50, ..Process::default() };
        let used = Used {
            seconds: 2.0,
            server: Some(server),
            syncs: 10.0,
            client_cpu_s: vec![0.5, 1.5],
            journal_bytes: Some(3_000_000.0),
            device_bytes: Some(4_000_000.0),
            ..Used::default()
        };
        let figures = used.figures(1_000, 1_000);
        let value = |name| figures.iter().find(|figure| figure.name == name).unwrap().value;
        let close = |a: f64, b: f64| (a - b).abs() < 1e-9;
        assert!(close(value("server_cpu_us_per_message"), 2_000.0));
        assert!(close(value("client_cpu_us_per_message"), 2_000.0));
        assert!(close(value("busiest_client_core_pct"), 75.0));
        assert!(close(value("messages_per_sync"), 100.0) && close(value("syncs_per_s"), 5.0));
        assert!(close(value("written_bytes_per_published_byte"), 3.0));
        assert!(close(value("device_bytes_per_published_byte"), 4.0));
        assert!(close(value("voluntary_switches_per_s"), 25.0));
        let unknown = Used { journal_bytes: None, ..used }.figures(1_000, 1_000);
        assert!(!unknown.iter().any(|figure| figure.name == "written_bytes_per_published_byte"));
    }
}
