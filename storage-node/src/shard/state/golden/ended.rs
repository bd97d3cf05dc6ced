//! Leases that ended, with whatever leader: replaced by later ones, redriven, of a stream that another reads.

use weir_protocol::ids::Offset;
use weir_protocol::rpc::PartRef;

use super::super::super::command::{Change, ChangePart};
use super::super::super::entry::SubBatch;
use super::{command, life};
use crate::subscription::{Dead, Fence, PartEvent, Redelivered};

pub(super) fn ended() -> Vec<SubBatch> {
    let delivered = |offset: u64, attempts: u32, n: u64| Redelivered {
        offset: Offset(offset),
        attempts,
        fence: Fence(4 << 32 | n),
    };
    let dead = |offset: u64| Dead { offset: Offset(offset), attempts: 1, reason: "for a while".into() };
    let revived = || vec![Offset(0)..Offset(20)];
    let events = [
        PartEvent {
            delivered: vec![delivered(13, 1, 1), delivered(15, 2, 2), delivered(14, 1, 3)],
            dead: vec![dead(16), dead(17), dead(18)],
            ..PartEvent::default()
        },
        PartEvent { revived: revived(), ..PartEvent::default() },
        // One of them is delivered again, another settled.
        PartEvent {
            delivered: vec![delivered(17, 1, 4)],
            settled: vec![Offset(18)..Offset(19)],
            ..PartEvent::default()
        },
        PartEvent { voided: Fence(4 << 32), ..PartEvent::default() },
    ];
    let part = PartRef { subscription: life(6), incarnation: life(2), partition: 0 };
    let change = |event: &PartEvent| {
        let event = event.encode().into();
        command(Change::ChangePart(ChangePart { part, event, keeps_past: true, ..ChangePart::default() }))
    };
    events.iter().map(change).collect()
}
