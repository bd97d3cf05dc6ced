//! Records whose publisher does not want them delivered yet.

use weir_protocol::ids::{Offset, TimestampMs};

use super::event::Fence;
use super::leases::{Leases, State};

impl Leases {
    /// Gives back a lease of which no byte was sent, as if it had never been, until `due`. No effect on any
    /// other lease.
    pub fn postpone(&mut self, offset: Offset, fence: Fence, due: TimestampMs) {
        let Some(known) = self.known.get(&offset).filter(|known| known.fence == fence) else { return };
        let State::Leased(lease) = known.state else { return };
        self.change(offset, |known| {
            (known.fence, known.attempts) = (lease.previous, known.attempts - 1);
            known.state = State::Waiting(due);
        });
        self.sift();
    }
}
