//! Deliveries that may not be the first of their record: in the log before their bytes leave.
//!
//! ```text
//!   this leader:      first delivery ─▶ nothing      second one ─▶ logged, with its fence
//!   an earlier one may have delivered the record, or it was redriven:  first one ─▶ logged, with its fence
//! ```
//!
//! So of all deliveries of a record at most the first is not in the log: any later leader can tell which of two
//! deliveries is the later one.

use weir_protocol::ids::Offset;

use super::event::Redelivered;
use super::leases::{Grant, Leases};
use super::part::Part;

impl Leases {
    /// The same where earlier leaders may have delivered records below `end`: what they gave settles until this one has
    /// delivered the record, and no longer, across restarts too. So these deliveries are logged, also first ones.
    #[must_use]
    pub fn after_leader_of(mut self, end: Offset) -> Self {
        self.earlier_end = end;
        // What is leased is logged: what is not for now is to be found out before that.
        self.sifts = self.next < end;
        self
    }

    /// Whether a delivery is logged before its bytes leave: another of the record may be held.
    pub(super) fn is_logged(&self, part: &Part, offset: Offset, attempt: u32) -> bool {
        let is_of_earlier = offset < self.earlier_end && part.fence_min() < self.fence_base;
        attempt >= 2 || is_of_earlier || part.is_revoked(offset)
    }

    /// Deliveries among these that are to be logged and are not: the pull that has leased them may not have got to it.
    /// The pull that sends them first logs them first.
    #[must_use]
    pub fn unlogged(&self, part: &Part, grants: &[Grant]) -> Vec<Redelivered> {
        let is_unlogged = |grant: &&Grant| {
            self.is_logged(part, grant.offset, grant.attempt)
                && part.retry(grant.offset).is_none_or(|retry| retry.fence < grant.fence)
        };
        grants.iter().filter(is_unlogged).map(Grant::redelivered).collect()
    }
}
