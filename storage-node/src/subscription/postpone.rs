//! Records whose publisher does not want them delivered yet.

use std::sync::Arc;

use weir_protocol::ids::{Offset, TimestampMs};

use super::event::Fence;
use super::leases::{Known, Leases, State};

impl Leases {
    /// Gives back a lease of which no byte was sent, as if it had never been, until `due`. No effect on any other lease.
    pub fn postpone(&mut self, offset: Offset, fence: Fence, due: TimestampMs) {
        let Some(known) = self.known.get(&offset).filter(|known| known.fence == fence) else { return };
        let State::Leased(lease) = known.state else { return };
        let (attempts, holder) = (known.attempts - 1, Arc::clone(&known.holder));
        self.remove(offset);
        self.put(offset, Known { fence: lease.previous, attempts, holder, state: State::Waiting(due) });
    }
}
