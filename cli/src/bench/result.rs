//! The result of one run: what is printed, kept in files, and compared in tables.

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::check::Faults;
use super::latencies::Latencies;
use crate::output;

/// A generator that is later than this with one message in a hundred does not make the load that was asked for.
const GENERATOR_LATE_US_MAX: u64 = 50_000;
/// Beyond this share of the processors for others a run says more about them.
const OTHERS_PCT_MAX: f64 = 10.0;

/// One run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct RunResult {
    /// Name of the command, e.g. `steady`.
    pub(super) workload: String,
    /// What tells it from other runs of the workload, e.g. `150k/s`. Runs with the same one are compared.
    pub(super) case: String,
    /// What repeats it.
    #[serde(default)]
    pub(super) command: String,
    /// Which repetition of a set it is, from 1; 0 of a run by itself.
    #[serde(default)]
    pub(super) repetition: u32,
    /// When it ended.
    #[serde(default)]
    pub(super) at: String,
    /// What was built, as `WEIR_BENCH_BUILD` says: a commit.
    #[serde(default)]
    pub(super) build: String,
    /// Version of the client.
    #[serde(default)]
    pub(super) version: String,
    /// Where it ran.
    #[serde(default)]
    pub(super) machine: Machine,
    /// Seconds that warmed up, that count, and from the last confirm to the last delivery.
    pub(super) warmup_s: f64,
    pub(super) seconds: f64,
    #[serde(default)]
    pub(super) drain_s: Option<f64>,
    /// Times, by what they are from and to.
    pub(super) latencies: Vec<Percentiles>,
    /// Everything else; the unit is the end of the name.
    pub(super) figures: Vec<Figure>,
    /// Whether each message arrived; absent where nobody read.
    #[serde(default)]
    pub(super) identity: Option<IdentityCounts>,
    /// Why the figures are of no worth; empty if they are.
    #[serde(default)]
    pub(super) void: Vec<String>,
    /// What has to be said beside the figures.
    #[serde(default)]
    pub(super) remarks: Vec<String>,
}

/// The machine of a run.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Machine {
    cores: usize,
    cpu: String,
    kernel: String,
    memory_gib: u64,
}

/// A figure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Figure {
    /// What it is, with its unit at the end.
    pub(super) name: String,
    pub(super) value: f64,
}

/// Percentiles in microseconds.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Percentiles {
    pub(super) name: String,
    pub(super) count: u64,
    pub(super) p50_us: u64,
    pub(super) p99_us: u64,
    pub(super) p999_us: u64,
    pub(super) max_us: u64,
}

/// How many messages there were, and what is wrong with them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct IdentityCounts {
    pub(super) sent: u64,
    pub(super) confirmed: u64,
    pub(super) delivered: u64,
    pub(super) missing: u64,
    pub(super) duplicates: u64,
    pub(super) out_of_order: u64,
}

impl Figure {
    pub(super) fn new(name: &str, value: f64) -> Self {
        Self { name: name.to_owned(), value }
    }
}

impl Percentiles {
    /// Of what was recorded as `name`.
    pub(super) fn of(name: &str, latencies: &Latencies) -> Self {
        Self {
            name: name.to_owned(),
            count: latencies.count(),
            p50_us: latencies.at(0.5),
            p99_us: latencies.at(0.99),
            p999_us: latencies.at(0.999),
            max_us: latencies.max(),
        }
    }
}

impl Machine {
    fn here() -> Self {
        let field = |file: &str, name: &str| {
            let text = std::fs::read_to_string(file).unwrap_or_default();
            let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
            line.split_once(':').map_or("", |(_, value)| value.trim()).to_owned()
        };
        let memory = field("/proc/meminfo", "MemTotal");
        let memory_kib: u64 = memory.trim_end_matches(" kB").parse().unwrap_or(0);
        Self {
            cores: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            cpu: field("/proc/cpuinfo", "model name"),
            kernel: std::fs::read_to_string("/proc/sys/kernel/osrelease")
                .unwrap_or_default()
                .trim()
                .to_owned(),
            memory_gib: memory_kib >> 20,
        }
    }
}

impl RunResult {
    /// Of `workload`, nothing measured yet.
    pub(super) fn new(workload: &str, case: String) -> Self {
        let at =
            OffsetDateTime::now_utc().replace_nanosecond(0).ok().and_then(|now| now.format(&Rfc3339).ok());
        Self {
            workload: workload.to_owned(),
            case,
            command: String::new(),
            repetition: 0,
            build: build(),
            at: at.unwrap_or_default(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            machine: Machine::here(),
            warmup_s: 0.0,
            seconds: 0.0,
            drain_s: None,
            latencies: Vec::new(),
            figures: Vec::new(),
            identity: None,
            void: Vec::new(),
            remarks: Vec::new(),
        }
    }

    /// Adds what became of the messages; a fault makes the run void.
    pub(super) fn identify(&mut self, sent: u64, confirmed: u64, delivered: u64, faults: Faults) {
        let Faults { missing, duplicates, out_of_order } = faults;
        for (count, what) in
            [(missing, "lost"), (duplicates, "delivered twice"), (out_of_order, "out of order")]
        {
            if count > 0 {
                self.void.push(format!("{count} messages {what}"));
            }
        }
        self.identity =
            Some(IdentityCounts { sent, confirmed, delivered, missing, duplicates, out_of_order });
    }

    /// Marks the run void if its generator was late.
    pub(super) fn judge_generator(&mut self, late: &Latencies) {
        let p99 = late.at(0.99);
        if p99 > GENERATOR_LATE_US_MAX {
            self.void
                .push(format!("the generator was late: p99 {p99} us of at most {GENERATOR_LATE_US_MAX}"));
        }
    }

    /// Says so if the machine had other work.
    pub(super) fn judge_machine(&mut self) {
        let others = self.figure("others_cpu_pct").unwrap_or(0.0);
        if others > OTHERS_PCT_MAX {
            self.remarks
                .push(format!("the machine was busy: {others:.0} % of its processors did other work"));
        }
    }

    /// Whether messages are not what they should be.
    pub(super) fn is_faulty(&self) -> bool {
        let counts = |it: &IdentityCounts| it.missing + it.duplicates + it.out_of_order;
        self.identity.as_ref().is_some_and(|identity| counts(identity) > 0)
    }

    /// The value of a figure, if there is one of that name.
    pub(super) fn figure(&self, name: &str) -> Option<f64> {
        self.figures.iter().find(|figure| figure.name == name).map(|figure| figure.value)
    }

    /// Prints it for people.
    pub(super) fn print(&self) {
        output::line(format_args!(
            "{} {}: {:.1} s after {:.1} s of warm-up{}",
            self.workload,
            self.case,
            self.seconds,
            self.warmup_s,
            self.drain_s.map_or(String::new(), |drain_s| format!(", drained in {drain_s:.2} s"))
        ));
        if !self.latencies.is_empty() {
            let rows: Vec<Vec<String>> = self.latencies.iter().map(Percentiles::row).collect();
            output::table(&["microseconds", "p50", "p99", "p99.9", "max"], &rows);
        }
        for figure in &self.figures {
            output::line(format_args!("  {:<34} {}", figure.name, shown(figure.value)));
        }
        if let Some(it) = &self.identity {
            output::line(format_args!(
                "identity: {} sent, {} confirmed, {} delivered, {} missing, {} twice, {} out of order",
                it.sent, it.confirmed, it.delivered, it.missing, it.duplicates, it.out_of_order
            ));
        }
        self.remarks.iter().for_each(|remark| output::line(format_args!("note: {remark}")));
        self.void.iter().for_each(|reason| output::line(format_args!("VOID: {reason}")));
    }
}

impl Percentiles {
    fn row(&self) -> Vec<String> {
        let cells = [self.p50_us, self.p99_us, self.p999_us, self.max_us].map(|us| us.to_string());
        std::iter::once(self.name.clone()).chain(cells).collect()
    }
}

/// What was built, if whoever measures says so.
pub(super) fn build() -> String {
    std::env::var("WEIR_BENCH_BUILD").unwrap_or_default()
}

/// A figure to three digits or so.
pub(super) fn shown(value: f64) -> String {
    let digits = match value.abs() {
        size if size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        _ => 2,
    };
    let plain = format!("{value:.digits$}");
    let (whole, rest) = plain.split_once('.').map_or((&plain[..], None), |(whole, rest)| (whole, Some(rest)));
    let (sign, whole) = whole.strip_prefix('-').map_or(("", whole), |whole| ("-", whole));
    let mut text = String::from(sign);
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    rest.map_or(text.clone(), |rest| format!("{text}.{rest}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_makes_a_run_void_and_says_which() {
        for (faults, text) in [
            (Faults { missing: 2, ..Faults::default() }, "2 messages lost"),
            (Faults { duplicates: 1, ..Faults::default() }, "1 messages delivered twice"),
            (Faults { out_of_order: 3, ..Faults::default() }, "3 messages out of order"),
        ] {
            let mut result = RunResult::new("steady", "x".to_owned());
            result.identify(10, 10, 10, faults);
            assert!(result.is_faulty() && result.void == [text], "{:?}", result.void);
        }
        let mut result = RunResult::new("steady", "x".to_owned());
        result.identify(10, 10, 10, Faults::default());
        assert!(!result.is_faulty() && result.void.is_empty());
    }

    #[test]
    fn a_late_generator_makes_a_run_void_and_a_busy_machine_is_told() {
        let mut result = RunResult::new("steady", "x".to_owned());
        let mut late = Latencies::new();
        late.record(1_000, 1_000);
        result.judge_generator(&late);
        assert!(result.void.is_empty());
        late.record(GENERATOR_LATE_US_MAX * 2, 50);
        result.judge_generator(&late);
        assert!(!result.is_faulty() && result.void.len() == 1);
        result.figures.push(Figure::new("others_cpu_pct", 40.0));
        result.judge_machine();
        assert_eq!(result.remarks.len(), 1);
    }

    #[test]
    fn a_result_comes_back_from_its_line() {
        let mut result = RunResult::new("http", "64 connections".to_owned());
        result.figures.push(Figure::new("post_per_s", 41_000.5));
        result.latencies.push(Percentiles {
            name: "confirm".to_owned(),
            p50_us: 7,
            ..Percentiles::default()
        });
        let line = serde_json::to_string(&result).unwrap();
        let back: RunResult = serde_json::from_str(&line).unwrap();
        assert_eq!((back.figure("post_per_s"), back.latencies[0].p50_us), (Some(41_000.5), 7));
    }

    #[test]
    fn figures_are_short() {
        for (value, text) in
            [(1_234_567.8, "1,234,568"), (12.34, "12.3"), (0.5, "0.50"), (-1_000.0, "-1,000")]
        {
            assert_eq!(shown(value), text);
        }
    }
}
