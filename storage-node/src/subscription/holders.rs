//! Holders that come back under another name, and holders that are gone.

use std::sync::Arc;

use weir_protocol::ids::{Offset, TimestampMs};

use super::leases::{Lease, Leases, State, after};

impl Leases {
    /// What holders with names that begin with `old` hold is held by `new`, each for the time of its lease from now on.
    /// Returns how many there are.
    pub fn take_over(&mut self, old: &str, new: &Arc<str>, now: TimestampMs) -> usize {
        let held = self.held_beyond(now, |holder| holder.starts_with(old));
        for offset in &held {
            self.change(*offset, |known| {
                if let State::Leased(lease) = known.state {
                    let deadline = after(now, lease.lease_ms).max(lease.deadline);
                    known.state = State::Leased(Lease { deadline, ..lease });
                    known.holder = Arc::clone(new);
                }
            });
        }
        self.each_settling(|holder, _| {
            if holder.starts_with(old) {
                *holder = Arc::clone(new);
            }
        });
        held.len()
    }

    /// What a holder holds ends at `deadline` at the latest; what it was sent counts as delivered. Returns
    /// how many leases end earlier than they would have.
    pub fn holder_left(&mut self, holder: &str, deadline: TimestampMs) -> usize {
        let held = self.held_beyond(deadline, |other| other == holder);
        for offset in &held {
            self.change(*offset, |known| {
                if let State::Leased(lease) = known.state {
                    known.state = State::Leased(Lease { deadline, ..lease });
                }
            });
        }
        self.each_settling(|other, lease| {
            if **other == *holder {
                lease.deadline = lease.deadline.min(deadline);
            }
        });
        held.len()
    }

    /// The holders of leases of which something was decided, and what they hold should that be refused.
    fn each_settling(&mut self, mut change: impl FnMut(&mut Arc<str>, &mut Lease)) {
        if self.settling == 0 {
            return;
        }
        for known in self.known.values_mut() {
            if let State::Settling(Some(lease)) = &mut known.state {
                change(&mut known.holder, lease);
            }
        }
    }

    /// What some holders hold for longer than until `deadline`.
    fn held_beyond(&self, deadline: TimestampMs, is_its: impl Fn(&str) -> bool) -> Vec<Offset> {
        let later = self.leased.range((after(deadline, 1), Offset(0))..);
        later.map(|(_, offset)| *offset).filter(|offset| is_its(&self.known[offset].holder)).collect()
    }
}
