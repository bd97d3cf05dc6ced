//! A lease between its pull and its end: when its bytes leave, and when its time begins.

use weir_protocol::ids::{Offset, TimestampMs};

use super::event::Fence;
use super::leases::{Lease, Leases, State, after};
use super::part::Part;

impl Leases {
    /// The bytes of a lease leave now, and its time begins. Returns its deadline; `None` if it ended meanwhile.
    pub fn started(&mut self, offset: Offset, fence: Fence, now: TimestampMs) -> Option<TimestampMs> {
        self.alter(offset, fence, |lease| Lease { has_left: true, ..anew(lease, now) })
    }

    /// The time of a lease begins anew, and its bytes have not left yet if they had not before. Returns its deadline;
    /// `None` if it ended meanwhile.
    pub fn renew(&mut self, offset: Offset, fence: Fence, now: TimestampMs) -> Option<TimestampMs> {
        self.alter(offset, fence, |lease| anew(lease, now))
    }

    /// The bytes of a lease leave now, in the time that it has already. Returns its deadline; `None` if it ended
    /// meanwhile.
    pub fn leaves(&mut self, offset: Offset, fence: Fence) -> Option<TimestampMs> {
        self.alter(offset, fence, |lease| Lease { has_left: true, ..lease })
    }

    /// Who leased a record goes without having been sent it, which then is [released](Leases::release):
    /// unless another call repeated the one that leased it, and was sent it.
    pub fn give_back(&mut self, part: &Part, offset: Offset, fence: Fence) {
        let known = self.known.get(&offset).filter(|known| known.fence == fence);
        if matches!(known.map(|known| known.state), Some(State::Leased(lease)) if !lease.has_left) {
            self.release(part, offset, fence);
        }
    }

    /// Changes a lease that stays one of its pull. Nothing moves unless its deadline does: most are sent in the
    /// millisecond that they were taken in.
    fn alter(
        &mut self,
        offset: Offset,
        fence: Fence,
        change: impl FnOnce(Lease) -> Lease,
    ) -> Option<TimestampMs> {
        let known = self.known.get_mut(&offset).filter(|known| known.fence == fence)?;
        let State::Leased(before) = known.state else { return None };
        let lease = change(before);
        known.state = State::Leased(lease);
        if lease.deadline != before.deadline {
            self.leased.remove(&(before.deadline, offset));
            self.leased.insert((lease.deadline, offset));
        }
        Some(lease.deadline)
    }
}

fn anew(lease: Lease, now: TimestampMs) -> Lease {
    Lease { deadline: after(now, lease.lease_ms), ..lease }
}
