//! The identity check of one reader: every message says who it is, and each is expected once and in order.

use std::collections::BTreeMap;

use anyhow::bail;
use serde::{Deserialize, Serialize};

use super::arrived::Arrived;
use super::identity::Identity;
use super::latencies::Latencies;
use super::schedule::Window;

/// What one reader has got of the writers that it follows.
#[derive(Debug)]
pub(super) struct Check {
    arrived: BTreeMap<u32, Arrived>,
    window: Window,
    deliver: Latencies,
    delivered: u64,
    delivered_in_window: u64,
    /// Messages that were due together are counted together: since when, and how many.
    group: (u64, u64),
}

impl Check {
    /// Of a reader that follows `writers`.
    pub(super) fn new(writers: impl Iterator<Item = u32>, window: Window) -> Self {
        let arrived = writers.map(|writer| (writer, Arrived::default())).collect();
        let (deliver, group) = (Latencies::new(), (0, 0));
        Self { arrived, window, deliver, delivered: 0, delivered_in_window: 0, group }
    }

    /// Takes a message that arrived at `now_ns`. [`Check::end_of_group`] follows before the time is another.
    ///
    /// # Errors
    /// If it is not of this run, or of a writer that is not followed.
    pub(super) fn take(&mut self, payload: &[u8], now_ns: u64) -> anyhow::Result<Identity> {
        let Some(identity) = Identity::read(payload) else { bail!("a message that is not of a run arrived") };
        self.take_one(identity, now_ns)?;
        Ok(identity)
    }

    /// The same of a message whose identity was read.
    pub(super) fn take_one(&mut self, identity: Identity, now_ns: u64) -> anyhow::Result<()> {
        let Some(arrived) = self.arrived.get_mut(&identity.writer) else {
            bail!("a message of writer {} arrived, which is not of this topic", identity.writer);
        };
        anyhow::ensure!(arrived.take(identity.seq), "a message with the impossible number {}", identity.seq);
        self.delivered += 1;
        if identity.due_ns != self.group.0 {
            self.end_of_group(now_ns);
            self.group.0 = identity.due_ns;
        }
        self.group.1 += 1;
        Ok(())
    }

    /// Counts the latency of what was taken so far.
    pub(super) fn end_of_group(&mut self, now_ns: u64) {
        let (due_ns, count) = std::mem::take(&mut self.group);
        if self.window.counts(now_ns) {
            self.delivered_in_window += count;
        }
        if count > 0 && self.window.counts(due_ns) {
            self.deliver.record(now_ns.saturating_sub(due_ns) / 1_000, count);
        }
    }

    /// True once all of what each writer has sent is there; `sent` is `u64::MAX` while that is unknown.
    pub(super) fn has_all(&self, sent: impl Fn(u32) -> u64) -> bool {
        self.arrived.iter().all(|(writer, arrived)| arrived.distinct() >= sent(*writer))
    }

    /// From due to delivered.
    pub(super) fn deliver(&self) -> &Latencies {
        &self.deliver
    }

    /// Messages that came, repeats included.
    pub(super) fn delivered(&self) -> u64 {
        self.delivered
    }

    /// Those of them that came while it counted, whenever they were due.
    pub(super) fn delivered_in_window(&self) -> u64 {
        self.delivered_in_window
    }

    /// What is wrong: missing, twice, out of order.
    pub(super) fn faults(&self, sent: impl Fn(u32) -> u64) -> Faults {
        let mut faults = Faults::default();
        for (writer, arrived) in &self.arrived {
            faults.missing += arrived.missing(sent(*writer));
            faults.duplicates += arrived.duplicates();
            faults.out_of_order += arrived.out_of_order();
        }
        faults
    }

    /// The same of a queue, whose workers share the messages: adds what this one has got to `all`.
    pub(super) fn add_to(&self, all: &mut BTreeMap<u32, Arrived>) {
        for (writer, arrived) in &self.arrived {
            all.entry(*writer).or_default().merge(arrived);
        }
    }
}

/// Messages that were not delivered as they should have been.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Faults {
    pub(super) missing: u64,
    pub(super) duplicates: u64,
    pub(super) out_of_order: u64,
}

impl Faults {
    /// Both together.
    pub(super) fn add(&mut self, other: Self) {
        self.missing += other.missing;
        self.duplicates += other.duplicates;
        self.out_of_order += other.out_of_order;
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    fn payload(writer: u32, seq: u64) -> Vec<u8> {
        let mut payload = vec![0; 40];
        Identity { writer, seq, due_ns: seq * 1_000_000 }.stamp(&mut payload);
        payload
    }

    fn check() -> Check {
        Check::new(
            [1, 4].into_iter(),
            Window::new(Instant::now(), Duration::from_millis(10), Duration::from_secs(1)),
        )
    }

    fn faults(check: &Check, missing: u64, duplicates: u64, out_of_order: u64) {
        assert_eq!(check.faults(|_| 100), Faults { missing, duplicates, out_of_order });
    }

    /// Feeds all of both writers, as `tamper` lets them through.
    fn fed(tamper: impl Fn(&mut Vec<(u32, u64)>)) -> Check {
        let mut messages: Vec<_> = (0..100).flat_map(|seq| [(1, seq), (4, seq)]).collect();
        tamper(&mut messages);
        let mut check = check();
        for (writer, seq) in messages {
            check.take(&payload(writer, seq), seq * 1_000_000 + 5_000).unwrap();
        }
        check.end_of_group(0);
        check
    }

    #[test]
    fn what_comes_once_and_in_order_has_no_fault() {
        let check = fed(|_| {});
        faults(&check, 0, 0, 0);
        assert!(check.has_all(|_| 100) && !check.has_all(|writer| 100 + u64::from(writer == 4)));
        assert_eq!((check.delivered(), check.deliver().count()), (200, 180), "what warms up is not timed");
    }

    #[test]
    fn what_was_due_in_time_and_comes_late_is_timed_and_makes_no_rate() {
        let mut check = check();
        for (seq, now_ns) in
            [(500, 600_000_000), (600, 1_009_999_999), (700, 1_010_000_000), (800, 2_000_000_000)]
        {
            check.take(&payload(1, seq), now_ns).unwrap();
            check.end_of_group(now_ns);
        }
        assert_eq!((check.deliver().count(), check.delivered(), check.delivered_in_window()), (4, 4, 2));
    }

    #[test]
    fn each_fault_is_found_as_what_it_is() {
        faults(
            &fed(|messages| {
                messages.remove(20);
            }),
            1,
            0,
            0,
        );
        faults(&fed(|messages| messages.truncate(150)), 50, 0, 0);
        faults(&fed(|messages| messages.insert(90, messages[10])), 0, 1, 0);
        faults(&fed(|messages| messages.swap(20, 22)), 0, 0, 1);
        faults(&fed(|messages| messages.swap(20, 21)), 0, 0, 0);
    }

    #[test]
    fn a_stranger_ends_the_run() {
        assert!(check().take(&[0; 40], 0).is_err());
        assert!(check().take(&payload(2, 0), 0).is_err());
        assert!(check().take(&payload(1, 1 << 40), 0).is_err());
    }
}
