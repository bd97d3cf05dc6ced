//! Letters that arrive one by one, some that cannot be read, and some that a pack takes on their way.

use weir_protocol::ids::Offset;
use weir_protocol::rpc::PartRef;

use super::super::super::command::{Buried, Change, ChangePart};
use super::super::super::entry::SubBatch;
use super::{command, life, seal};
use crate::subscription::{Dead, PartEvent};

pub(super) fn letters() -> Vec<SubBatch> {
    let dead = |offset: u64| Dead { offset: Offset(offset), attempts: 1, reason: "on its way".into() };
    let event = PartEvent { dead: (13..17).map(dead).collect(), ..PartEvent::default() };
    let part = PartRef { subscription: life(6), incarnation: life(2), partition: 0 };
    let event = event.encode().into();
    vec![
        command(Change::ChangePart(ChangePart { part, event, keeps_past: true, ..ChangePart::default() })),
        command(Change::Buried(Buried { upto: 0, arrived: vec![4, 99], unreadable: vec![3, 98] })),
        seal(34, &[(2, 0, 12..16)]),
        command(Change::Buried(Buried { upto: 0, arrived: vec![1], unreadable: Vec::new() })),
    ]
}
