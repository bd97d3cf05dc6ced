//! Subscriptions: from frames to streams, from events to frames.

use std::sync::Arc;

use weir_protocol::error::ErrorCode;
use weir_protocol::filter::Filter;
use weir_protocol::ids::{Incarnation, Offset, PartitionId, Term, TopicPath};
use weir_protocol::rpc::Level;
use weir_protocol::start::Start;
use weir_protocol::ws::{
    CaughtUp, Channel, Firm, FrameType, Gap, Limit, Looked, ResumeChannel, Retract, Seek, ServerFrame, Sub,
};

use super::{Session, State};
use crate::api::Problem;
use crate::auth::Op;
use crate::service::ServiceError;
use crate::service::read::{Early, RecordSlice, Seen, SeenPartition, StartAt, Subscribe, SubscriptionEvent};
use crate::ws::amount::Amount;
use crate::ws::effect::{Effect, Use};
use crate::ws::following::Following;

/// What a channel follows, to follow it from elsewhere.
#[derive(Debug, Clone)]
pub(super) struct Followed {
    topic: TopicPath,
    partition: Option<PartitionId>,
    life: Option<Incarnation>,
    min_level: Level,
    filter: Option<Arc<str>>,
}

impl Session {
    pub(super) fn sub(&mut self, ch: Channel, sub: Sub) {
        let Some(of) = self.take_channel(ch, FrameType::Sub) else { return };
        let resume = self.resume.take(ch, &sub);
        if sub.sub.is_some() && sub.topic.is_none() {
            self.has_queues = true;
            return self.consume(of, &sub, resume.as_ref());
        }
        let limit = sub.limit;
        let seen = resume.as_ref().map_or(Ok(None), seen_of);
        match self.checked_sub(sub).and_then(|checked| Ok((checked, seen?))) {
            Err(problem) => self.end(of, &problem),
            Ok(((followed, from), seen)) => {
                let following = Following::new(limit, resume.as_ref(), seen.clone());
                self.follow(of, following, followed, from, seen);
            }
        }
    }

    fn follow(&mut self, of: Use, following: Following, path: Followed, from: StartAt, seen: Option<Seen>) {
        let subscribe = Subscribe {
            topics: vec![path.topic.clone()],
            partition: path.partition,
            from,
            seen,
            life: path.life,
            min_level: path.min_level,
            filter: path.filter.clone(),
            limit: following.credit(),
            room: None,
        };
        let is_paused = following.is_paused;
        self.put(of, State::Following { following: Box::new(following), path });
        self.effects.push(Effect::Subscribe { of, subscribe });
        if is_paused {
            self.effects.push(Effect::Hold { of, on: true });
        }
    }

    fn checked_sub(&self, sub: Sub) -> Result<(Followed, StartAt), Problem> {
        let (Some(topic), None) = (&sub.topic, &sub.sub) else {
            return Err(Problem::new(ErrorCode::Malformed, "exactly one of `topic` and `sub` is needed"));
        };
        if let Some(field) = [
            ("lease_ms", sub.lease_ms.is_some()),
            ("grace_ms", sub.grace_ms.is_some()),
            ("holder", sub.holder.is_some()),
        ]
        .iter()
        .find(|it| it.1)
        {
            let detail = format!("`{}` is for subscriptions: a topic is followed", field.0);
            return Err(Problem::new(ErrorCode::Malformed, detail).with_field(field.0));
        }
        let min_level = sub.min_level.unwrap_or(Level::Unset);
        if !matches!(min_level, Level::Unset | Level::Memory | Level::Quorum) {
            let detail = "min_level is memory or quorum";
            return Err(Problem::new(ErrorCode::Malformed, detail).with_field("min_level"));
        }
        let topic = self.allowed_topic(sub.ns.as_deref(), topic, Op::Subscribe)?;
        let from = start_at(sub.from.as_ref())?;
        let filter = sub.filter.map(|text| match Filter::parse(&text) {
            Ok(_) => Ok(text.into()),
            Err(error) => {
                Err(Problem::new(ErrorCode::Malformed, format!("filter: {error}")).with_field("filter"))
            }
        });
        let filter = filter.transpose()?;
        let (partition, life) = (sub.p.map(PartitionId), sub.inc.map(Incarnation));
        Ok((Followed { topic, partition, life, min_level, filter }, from))
    }

    pub(super) fn limit(&mut self, ch: Channel, limit: Limit) {
        let Some(slot) = self.slots.get_mut(&ch) else {
            return self.wrong_channel(ch, FrameType::Limit);
        };
        let of = Use { ch, generation: slot.generation };
        match &mut slot.state {
            State::Following { following, .. } => {
                if following.raise(limit) {
                    let limit = following.credit();
                    self.effects.push(Effect::Raise { of, limit });
                }
            }
            State::Consuming(consuming) => {
                if consuming.raise(limit) {
                    let limit = consuming.credit();
                    self.effects.push(Effect::Raise { of, limit });
                }
            }
            _ => self.wrong_channel(ch, FrameType::Limit),
        }
    }

    /// Follows from elsewhere; numbers, totals and a pause go on.
    pub(super) fn seek(&mut self, ch: Channel, seek: &Seek) {
        let from = match start_at(Some(&seek.from)) {
            Ok(from) => from,
            Err(problem) => return self.refuse(ch, &problem),
        };
        let before = self.slots.remove(&ch);
        match before.map(|slot| (slot.generation, slot.state)) {
            Some((generation, State::Following { mut following, path })) => {
                self.effects.push(Effect::Forget { of: Use { ch, generation } });
                self.resume.forget(ch);
                following.moved();
                let of = Use { ch, generation: self.next_generation };
                self.next_generation += 1;
                self.follow(of, *following, path, from, None);
            }
            Some((generation, state @ State::Consuming(_))) => {
                self.put(Use { ch, generation }, state);
                let detail = "a subscription is moved for all of its workers: POST …/subscriptions/{s}:seek";
                self.refuse(ch, &Problem::new(ErrorCode::NotSupported, detail));
            }
            other => {
                if let Some((generation, state)) = other {
                    self.put(Use { ch, generation }, state);
                }
                self.wrong_channel(ch, FrameType::Seek);
            }
        }
    }

    pub(super) fn pause(&mut self, ch: Channel, on: bool) {
        match self.slots.get_mut(&ch).map(|slot| (slot.generation, &mut slot.state)) {
            Some((generation, State::Following { following, .. })) => {
                following.is_paused = on;
                self.effects.push(Effect::Hold { of: Use { ch, generation }, on });
            }
            Some((generation, State::Consuming(_))) => {
                // A gateway that goes away leases nothing more, whatever its clients still want.
                let on = on || self.drains_until.is_some();
                self.effects.push(Effect::Hold { of: Use { ch, generation }, on });
            }
            _ => self.wrong_channel(ch, FrameType::Pause),
        }
    }

    pub(super) fn unsub(&mut self, ch: Channel) {
        if let Some(State::Consuming(consuming)) = self.slots.get_mut(&ch).map(|slot| &mut slot.state) {
            consuming.is_leaving = true;
            self.resume.forget(ch);
            // If nothing is to be settled the number is free for the next frame, whenever the turn ends.
            return self.tell_consumer(ch);
        }
        match self.slots.get(&ch) {
            Some(slot) if matches!(slot.state, State::Following { .. }) => {
                self.forget(Use { ch, generation: slot.generation });
            }
            _ => self.wrong_channel(ch, FrameType::Unsub),
        }
    }

    /// Something happened on a subscription. `incarnation` is its topic's.
    pub(in crate::ws) fn happened(&mut self, of: Use, incarnation: u64, event: SubscriptionEvent) {
        let Some(slot) = self.current(of) else { return };
        let State::Following { following, .. } = &mut slot.state else { return };
        let frame = match event {
            SubscriptionEvent::Started(started) => {
                let started = following.started(incarnation, &started);
                self.resume.forget(of.ch);
                ServerFrame::Subscribed(started)
            }
            SubscriptionEvent::Records { parcel, count, bytes, .. } => {
                for slice in parcel.slices() {
                    following.set_tail(slice.partition.0, slice.committed_end.0.max(slice.end().0));
                }
                let amount = Amount { msgs: count, bytes };
                let Some(n) = following.deliver(amount, || last_bytes(parcel.slices())) else {
                    let detail = "the gateway was sent more than the client's credit allows";
                    return self.ended(of, &ServiceError::new(ErrorCode::Internal, detail));
                };
                return self.effects.push(Effect::Deliver { of, n, parcel });
            }
            SubscriptionEvent::Gap { of, from, to, why } => {
                ServerFrame::Gap(Gap { p: of.partition.0, from: from.0, to: to.0, why })
            }
            SubscriptionEvent::CaughtUp { of, end, closed, .. } => {
                following.set_tail(of.partition.0, end.0);
                ServerFrame::CaughtUp(CaughtUp { p: of.partition.0, end: end.0, closed })
            }
            SubscriptionEvent::Looked { of, upto } => {
                ServerFrame::Looked(Looked { p: of.partition.0, upto: upto.0 })
            }
            SubscriptionEvent::Firm { of, upto } => {
                ServerFrame::Firm(Firm { p: of.partition.0, upto: upto.0 })
            }
            SubscriptionEvent::Retract { of, from, to, term } => {
                ServerFrame::Retract(Retract { p: of.partition.0, from: from.0, to: to.0, term: term.0 })
            }
        };
        self.send(of.ch, frame);
    }

    /// A subscription is over.
    pub(in crate::ws) fn ended(&mut self, of: Use, failure: &ServiceError) {
        if self.current(of).is_some() {
            self.end(of, &Problem::from(failure));
        }
    }
}

fn start_at(from: Option<&Start>) -> Result<StartAt, Problem> {
    match from {
        None => Ok(StartAt::Latest),
        Some(start) => StartAt::from_start(start).map_err(|failure| Problem::from(&failure)),
    }
}

/// Where a channel stood; `None` if that is not known, because it does not say in which life of the topic.
fn seen_of(resume: &ResumeChannel) -> Result<Option<Seen>, Problem> {
    let next = |seen: &weir_protocol::ws::Seen| {
        let next = Offset(seen.o.saturating_add(1));
        let early = match (seen.term, seen.firm) {
            (None, _) => None,
            (Some(term), Some(firm)) => Some(Early { term: Term(term), firm_end: Offset(firm).min(next) }),
            (Some(_), None) => {
                let detail = "`seen` with a term needs `firm`: the end of what you know to be committed";
                return Err(Problem::new(ErrorCode::Malformed, detail).with_field("firm"));
            }
        };
        Ok(SeenPartition { partition: PartitionId(seen.p), next, early })
    };
    let partitions = resume.seen.iter().map(next).collect::<Result<Vec<_>, _>>()?;
    Ok(resume.inc.map(|life| Seen { life: Incarnation(life), partitions }))
}

/// Size of the last record; 0 if it cannot be read, which whoever reads it will find out.
fn last_bytes(slices: &[RecordSlice]) -> u64 {
    let last = slices.last().and_then(|slice| slice.records().ok()?.last()?.ok());
    last.map_or(0, |record| record.size as u64)
}
