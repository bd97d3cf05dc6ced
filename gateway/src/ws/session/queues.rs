//! Consuming subscriptions: from frames to leases and settles, and back.

use weir_protocol::error::ErrorCode;
use weir_protocol::ids::{Name, PartitionId};
use weir_protocol::limits::{
    CLIENT_ID_BYTES_MAX, DELAY_MS_MAX, LEASE_MS_MAX, LEASE_MS_MIN, SETTLE_REASON_BYTES_MAX,
};
use weir_protocol::rpc::{NotDone, SettleAction};
use weir_protocol::ws::{
    Channel, FrameType, PartitionOf, ResumeChannel, ServerFrame, ShareChange, Sub, Subscribed,
};

use super::{Session, State};
use crate::api::Problem;
use crate::auth::{Op, Resource, authorize};
use crate::service::ServiceError;
use crate::service::subscriptions::{Consume, Leased, PartName, ShareShift, SubscriptionPath};
use crate::ws::amount::Amount;
use crate::ws::consuming::{Consuming, NeverDelivered, What, Which};
use crate::ws::effect::{Effect, Use};

/// Longest name of a holder: with what makes it one of its kind it is a client's id.
const HOLDER_BYTES_MAX: usize = 200;
/// Settles that wait to be sent, over all channels; then nothing is read until some are done.
const PENDING_RUNS_MAX: usize = 20_000;

const _: () = assert!(HOLDER_BYTES_MAX + 55 <= CLIENT_ID_BYTES_MAX, "a session, a channel and its use fit");

impl Session {
    pub(super) fn consume(&mut self, of: Use, sub: &Sub, resume: Option<&ResumeChannel>) {
        match self.checked_consume(of, sub, resume.is_some()) {
            Err(problem) => self.end(of, &problem),
            Ok((path, consume)) => {
                let last = resume.and_then(|resume| resume.n).unwrap_or(0);
                let consuming = Consuming::new(sub.limit, last);
                let consume = Consume { limit: consuming.credit(), ..consume };
                self.put(of, State::Consuming(Box::new(consuming)));
                self.effects.push(Effect::Consume { of, path, consume });
            }
        }
    }

    fn checked_consume(
        &self,
        of: Use,
        sub: &Sub,
        is_resumed: bool,
    ) -> Result<(SubscriptionPath, Consume), Problem> {
        let of_topics = [
            ("p", sub.p.is_some()),
            ("inc", sub.inc.is_some()),
            ("from", sub.from.is_some()),
            ("min_level", sub.min_level.is_some()),
            ("filter", sub.filter.is_some()),
        ];
        if let Some((field, _)) = of_topics.iter().find(|(_, is_there)| *is_there) {
            let detail = format!("`{field}` is for topics: a subscription says itself where it is");
            return Err(Problem::new(ErrorCode::Malformed, detail).with_field(*field));
        }
        let path = self.allowed_subscription(sub.ns.as_deref(), sub.sub.as_deref().unwrap_or_default())?;
        if let Some(ms) = sub.lease_ms {
            within("lease_ms", ms.into(), LEASE_MS_MIN.into(), LEASE_MS_MAX.into())?;
        }
        if let Some(ms) = sub.grace_ms {
            within("grace_ms", ms.into(), 0, LEASE_MS_MAX.into())?;
        }
        let name = sub.holder.as_deref().or(self.client.as_deref()).unwrap_or("websocket");
        if name.len() > HOLDER_BYTES_MAX {
            let detail = format!("more than {HOLDER_BYTES_MAX} bytes");
            return Err(Problem::invalid_parameter("holder", detail));
        }
        let consume = Consume {
            limit: weir_protocol::rpc::Credit::default(),
            lease_ms: sub.lease_ms,
            holder: format!("{name} ({}/{}/{})", self.id, of.ch.0, of.generation),
            takes_over: self
                .resumed
                .as_ref()
                .filter(|_| is_resumed)
                .map(|old| format!("{name} ({old}/{}/", of.ch.0)),
            grace_ms: sub.grace_ms,
        };
        Ok((path, consume))
    }

    /// The subscription, if the names are names and the principal may consume it.
    fn allowed_subscription(
        &self,
        namespace: Option<&str>,
        subscription: &str,
    ) -> Result<SubscriptionPath, Problem> {
        let name = |text: &str, field: &'static str| {
            Name::new(text)
                .map_err(|error| Problem::new(ErrorCode::InvalidName, error.to_string()).with_field(field))
        };
        let namespace = namespace.map_or_else(|| Ok(Name::default_name()), |text| name(text, "ns"))?;
        let subscription = name(subscription, "sub")?;
        let resource = Resource::Subscription { namespace: &namespace, subscription: &subscription };
        authorize(&self.principal, Op::Consume, &resource).map_err(|denied| {
            let mut problem = Problem::new(ErrorCode::Forbidden, denied.to_string());
            problem.missing_grant = Some(format!("{} {}", denied.op, denied.resource));
            problem
        })?;
        Ok(SubscriptionPath { tenant: self.principal.tenant.clone(), namespace, subscription })
    }

    /// Something shall become of some leases; `frame` said so.
    pub(super) fn settle(&mut self, ch: Channel, frame: FrameType, which: Which<'_>, what: &What) {
        if let Err(problem) = check(what) {
            return self.refuse(ch, &problem);
        }
        match self.slots.get_mut(&ch).map(|slot| &mut slot.state) {
            Some(State::Consuming(consuming))
                if consuming.is_stream() && what.action != SettleAction::Ack =>
            {
                let detail = format!("{} belongs to queues; a stream is acknowledged", frame.as_str());
                self.refuse(ch, &Problem::new(ErrorCode::NotSupported, detail));
            }
            Some(State::Consuming(consuming)) if !consuming.is_leaving => {
                if let Err(NeverDelivered(n)) = consuming.ask(which, what) {
                    let detail = format!("{} of {n}, which was never delivered", frame.as_str());
                    return self.bad_frame(ch, &detail);
                }
                self.touch(ch);
            }
            Some(State::Following { .. }) => {
                let detail = format!("{} belongs to subscriptions; a topic is followed", frame.as_str());
                self.refuse(ch, &Problem::new(ErrorCode::NotSupported, detail));
            }
            _ => self.wrong_channel(ch, frame),
        }
    }

    /// The subscription was found, or not.
    pub(in crate::ws) fn consuming(
        &mut self,
        of: Use,
        incarnation: Option<u64>,
        parts: &[(Option<Name>, PartitionId)],
        is_stream: bool,
    ) {
        let Some(State::Consuming(consuming)) = self.current(of).map(|slot| &mut slot.state) else { return };
        consuming.started(parts, is_stream);
        self.resume.forget(of.ch);
        // Nothing is ever missing: what was not settled comes again.
        let subscribed =
            Subscribed { inc: incarnation.unwrap_or(0), recovered: true, ..Subscribed::default() };
        self.send(of.ch, ServerFrame::Subscribed(subscribed));
        self.touch(of.ch);
    }

    /// Other partitions of a stream are read than before.
    pub(in crate::ws) fn shared(&mut self, of: Use, shift: &ShareShift) {
        let Some(State::Consuming(consuming)) = self.current(of).map(|slot| &slot.state) else { return };
        if consuming.is_leaving {
            return;
        }
        let partition = |(topic, partition): &PartName| PartitionOf {
            topic: topic.as_ref().map(ToString::to_string),
            p: partition.0,
        };
        let [gained, lost] = [&shift.gained, &shift.lost].map(|parts| parts.iter().map(partition).collect());
        self.send(of.ch, ServerFrame::Share(ShareChange { gained, lost }));
    }

    /// Messages were leased.
    pub(in crate::ws) fn leased(&mut self, of: Use, leased: Leased) {
        let Some(State::Consuming(consuming)) = self.current(of).map(|slot| &mut slot.state) else { return };
        if consuming.is_leaving {
            return;
        }
        let amount = Amount { msgs: leased.count, bytes: leased.bytes };
        let part = (leased.part, (leased.topic.clone(), leased.partition));
        let n = consuming.deliver(part, &leased.runs, amount, || leased.last_bytes());
        self.touch(of.ch);
        match n {
            Some(n) => self.effects.push(Effect::DeliverLeased { of, n, leased: Box::new(leased) }),
            None => {
                let detail = "the gateway was sent more than the client's credit allows";
                self.ended(of, &ServiceError::new(ErrorCode::Internal, detail));
            }
        }
    }

    /// A settle is done but for these, or its partition did not answer: then the channel is over, and what is
    /// not told as settled may be settled again.
    pub(in crate::ws) fn settled(&mut self, of: Use, call: u64, result: Result<Vec<NotDone>, ServiceError>) {
        let Some(State::Consuming(consuming)) = self.current(of).map(|slot| &mut slot.state) else { return };
        match result {
            Ok(not_done) => {
                consuming.answered(call, &not_done);
                self.touch(of.ch);
            }
            Err(failure) => self.ended(of, &failure),
        }
    }

    /// Settles and their results, at the end of a turn.
    pub(super) fn tell_consumer(&mut self, ch: Channel) {
        let Some(slot) = self.slots.get_mut(&ch) else { return };
        let of = Use { ch, generation: slot.generation };
        let State::Consuming(consuming) = &mut slot.state else { return };
        let (sent, frames) = (consuming.take_calls(), consuming.take_frames());
        let is_over = consuming.is_leaving && consuming.is_idle();
        for sent in sent {
            self.effects.push(Effect::Settle { of, sent });
        }
        frames.into_iter().for_each(|frame| self.send(ch, frame));
        if is_over {
            self.slots.remove(&ch);
            self.effects.push(Effect::Leave { of });
        }
    }

    /// Too much waits to be settled: nothing is to be read for now.
    pub(in crate::ws) fn is_full(&self) -> bool {
        let runs = |slot: &super::Slot| match &slot.state {
            State::Consuming(consuming) => consuming.pending_runs(),
            _ => 0,
        };
        self.has_queues && self.slots.values().map(runs).sum::<usize>() > PENDING_RUNS_MAX
    }

    /// Some client works on what it was sent, or its settles are under way.
    pub(super) fn is_consuming(&self) -> bool {
        let is_busy = |slot: &super::Slot| match &slot.state {
            State::Consuming(consuming) => consuming.is_busy(),
            _ => false,
        };
        self.slots.values().any(is_busy)
    }

    /// Nothing more is delivered; what was can be settled.
    pub(super) fn hold_consumers(&mut self) {
        for (ch, slot) in &self.slots {
            if matches!(slot.state, State::Consuming(_)) {
                let of = Use { ch: *ch, generation: slot.generation };
                self.effects.push(Effect::Hold { of, on: true });
            }
        }
    }

    /// The client says that it leaves: what it asked for is done, and what else it holds is others' at once.
    pub(in crate::ws) fn client_left(&mut self) {
        let channels: Vec<Channel> = self.slots.keys().copied().collect();
        channels.into_iter().for_each(|ch| self.tell_consumer(ch));
    }
}

fn check(what: &What) -> Result<(), Problem> {
    if what.reason.len() > SETTLE_REASON_BYTES_MAX {
        let detail = format!("more than {SETTLE_REASON_BYTES_MAX} bytes");
        return Err(Problem::invalid_parameter("reason", detail));
    }
    match (what.action, what.ms) {
        (SettleAction::Nack, Some(ms)) => within("delay_ms", ms, 0, DELAY_MS_MAX),
        (SettleAction::Extend, Some(ms)) => within("ms", ms, LEASE_MS_MIN.into(), LEASE_MS_MAX.into()),
        _ => Ok(()),
    }
}

fn within(field: &str, value: u64, min: u64, max: u64) -> Result<(), Problem> {
    if (min..=max).contains(&value) {
        return Ok(());
    }
    Err(Problem::invalid_parameter(field, format!("{value} is not from {min} to {max}")))
}
