//! What the operating system says of a process and of the machine, from `/proc` and `/sys`.
//!
//! What a process wrote is not asked here: the kernel counts a whole folio, of up to megabytes, for each part
//! of it that is written anew, which says many times what reached the disk. The journal counts its own bytes,
//! and the device its sectors.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use serde::Serialize;

/// Clock ticks per second of `/proc`: Linux reports CPU time in hundredths of a second to every program.
const CLOCK_TICKS: f64 = 100.0;

/// What a process has used up to some moment.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(super) struct Process {
    /// User and system time.
    pub(super) cpu_s: f64,
    /// Resident memory now, and at most since it started.
    pub(super) rss_bytes: u64,
    pub(super) rss_max_bytes: u64,
    pub(super) threads: u64,
    /// Times a thread gave up the processor by itself, and was made to; of threads that live.
    pub(super) voluntary_switches: u64,
    pub(super) involuntary_switches: u64,
}

impl Process {
    /// All zero if there is no such process.
    pub(super) fn of(pid: u32) -> Self {
        let status = read(pid, "status");
        let switches = switches(pid);
        Self {
            cpu_s: cpu_seconds(pid),
            rss_bytes: number(&status, "VmRSS:") * 1024,
            rss_max_bytes: number(&status, "VmHWM:") * 1024,
            threads: number(&status, "Threads:"),
            voluntary_switches: switches.0,
            involuntary_switches: switches.1,
        }
    }

    /// What was used since `before`; sizes are those of now.
    pub(super) fn since(self, before: Self) -> Self {
        Self {
            cpu_s: self.cpu_s - before.cpu_s,
            voluntary_switches: self.voluntary_switches.saturating_sub(before.voluntary_switches),
            involuntary_switches: self.involuntary_switches.saturating_sub(before.involuntary_switches),
            ..self
        }
    }
}

/// Resident memory of a process now.
pub(super) fn resident_bytes(pid: u32) -> u64 {
    number(&read(pid, "status"), "VmRSS:") * 1024
}

/// User and system time of a process.
pub(super) fn cpu_seconds(pid: u32) -> f64 {
    let stat = read(pid, "stat");
    // The command's name may hold spaces; it ends with the last parenthesis.
    let after = stat.rsplit_once(')').map_or("", |(_, after)| after);
    let ticks: f64 =
        after.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<f64>().ok()).sum();
    ticks / CLOCK_TICKS
}

/// Time that all processors of the machine had nothing to do, since it started. The system measures this;
/// what they did it looks at a hundred times a second, and a load that is due at those moments seems to be
/// all that there is.
pub(super) fn idle_seconds() -> f64 {
    idle(&std::fs::read_to_string("/proc/stat").unwrap_or_default())
}

/// From `cpu user nice system idle iowait …`, all processors together.
fn idle(stat: &str) -> f64 {
    let first = stat.lines().next().unwrap_or_default();
    let ticks: f64 =
        first.split_whitespace().skip(4).take(2).filter_map(|field| field.parse::<f64>().ok()).sum();
    ticks / CLOCK_TICKS
}

/// Bytes that the device below a directory has written since it started, for whomever; `None` if that is not known.
pub(super) fn device_written_bytes(dir: &Path) -> Option<u64> {
    let device = std::fs::metadata(dir).ok()?.dev();
    // As the C library takes device numbers apart.
    let major = (device >> 32 & 0xffff_f000) | (device >> 8 & 0xfff);
    let minor = (device >> 12 & 0xffff_ff00) | (device & 0xff);
    let stat = std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat")).ok()?;
    written_sectors(&stat).map(|sectors| sectors * SECTOR_BYTES)
}

/// Bytes of a sector in the statistics of devices, whatever theirs are.
const SECTOR_BYTES: u64 = 512;

fn written_sectors(stat: &str) -> Option<u64> {
    stat.split_whitespace().nth(6)?.parse().ok()
}

fn switches(pid: u32) -> (u64, u64) {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return (0, 0) };
    let mut sum = (0, 0);
    for thread in threads.flatten() {
        let status = std::fs::read_to_string(thread.path().join("status")).unwrap_or_default();
        sum.0 += number(&status, "voluntary_ctxt_switches:");
        sum.1 += number(&status, "nonvoluntary_ctxt_switches:");
    }
    sum
}

fn read(pid: u32, file: &str) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default()
}

/// The number behind a line's name, in the unit that stands there.
fn number(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_used_memory_and_time() {
        let pid = std::process::id();
        let before = Process::of(pid);
        assert!(before.rss_bytes > 0 && before.threads > 0 && before.voluntary_switches > 0, "{before:?}");
        let file = tempfile::tempfile().unwrap();
        // It is counted in steps of some milliseconds, of which a busy machine gives as few as it likes.
        let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
        let used = loop {
            (0..100).for_each(|_| std::os::unix::fs::FileExt::write_all_at(&file, &[1; 4096], 0).unwrap());
            let used = Process::of(pid).since(before);
            if used.cpu_s > 0.0 || std::time::Instant::now() > until {
                break used;
            }
        };
        assert!(used.cpu_s > 0.0 && idle_seconds() > 0.0 && resident_bytes(pid) > 0, "{used:?}");
    }

    #[test]
    fn idle_processors_are_those_that_wait_for_the_disk_or_for_nothing() {
        let stat = "cpu  700 20 300 1000 500 7 8 9 0 0\ncpu0 350 10 150 500 250 3 4 5 0 0\n";
        assert!((idle(stat) - 15.0).abs() < 1e-9 && idle("").abs() < 1e-9, "{}", idle(stat));
    }

    #[test]
    fn a_devices_sectors_are_the_seventh_number() {
        let stat = "  944980   178047 160747858   777032 26961686  2309948 5513831608  9533014 0 1 2 3\n";
        assert_eq!((written_sectors(stat), written_sectors("1 2")), (Some(5_513_831_608), None));
        assert_eq!(device_written_bytes(Path::new("/nowhere")), None);
    }

    #[test]
    fn a_process_that_is_not_there_has_used_nothing() {
        assert!(Process::of(u32::MAX).threads == 0);
    }
}
