//! Channels come and go.

use std::sync::Arc;

use weir_protocol::error::ErrorCode;
use weir_protocol::ids::{Epoch, Name, TopicPath};
use weir_protocol::limits::{CLIENT_ID_BYTES_MAX, PRODUCER_WINDOW, WS_CHANNELS_MAX};
use weir_protocol::ws::{Channel, FrameType, Open, Opened, ServerFrame};

use super::{Now, Session, Slot, State};
use crate::api::Problem;
use crate::auth::{Op, Resource, authorize};
use crate::service::ServiceError;
use crate::service::publish::OpenChannel;
use crate::ws::effect::{Effect, Use};
use crate::ws::granting::Granting;
use crate::ws::publishing::{Found, Publishing};

impl Session {
    pub(super) fn open(&mut self, ch: Channel, open: Open) {
        let Some(of) = self.take_channel(ch, FrameType::Open) else { return };
        self.resume.forget(ch);
        match self.checked_open(open) {
            Err(problem) => self.end(of, &problem),
            Ok(open) => {
                let has_producer = open.producer.is_some();
                self.put(of, State::Opening { has_producer });
                self.effects.push(Effect::Open { of, open });
            }
        }
    }

    fn checked_open(&self, open: Open) -> Result<OpenChannel, Problem> {
        let topic = self.allowed_topic(open.ns.as_deref(), &open.topic, Op::Publish)?;
        if let Some(producer) = &open.producer
            && (producer.id.is_empty() || producer.id.len() > CLIENT_ID_BYTES_MAX)
        {
            let detail = format!("a producer id has 1 to {CLIENT_ID_BYTES_MAX} bytes");
            return Err(Problem::new(ErrorCode::Malformed, detail).with_field("producer"));
        }
        let producer = open.producer.map(|producer| (producer.id, Epoch(producer.epoch)));
        Ok(OpenChannel { topic, producer, confirm: open.confirm })
    }

    /// The topic, if the names are names and the principal may do `op` to it.
    pub(super) fn allowed_topic(
        &self,
        namespace: Option<&str>,
        topic: &str,
        op: Op,
    ) -> Result<TopicPath, Problem> {
        let name = |text: &str, field: &'static str| {
            Name::new(text)
                .map_err(|error| Problem::new(ErrorCode::InvalidName, error.to_string()).with_field(field))
        };
        let namespace = namespace.map_or_else(|| Ok(Name::default_name()), |text| name(text, "ns"))?;
        let topic = name(topic, "topic")?;
        let resource = Resource::Topic { namespace: &namespace, topic: &topic };
        authorize(&self.principal, op, &resource).map_err(|denied| {
            let mut problem = Problem::new(ErrorCode::Forbidden, denied.to_string());
            problem.missing_grant = Some(format!("{} {}", denied.op, denied.resource));
            problem
        })?;
        Ok(TopicPath { tenant: self.principal.tenant.clone(), namespace, topic })
    }

    /// Takes a channel number that is free; `None` if that was refused.
    pub(super) fn take_channel(&mut self, ch: Channel, frame: FrameType) -> Option<Use> {
        let is_free = self.slots.get(&ch).is_none_or(|slot| matches!(slot.state, State::Ended));
        if !is_free {
            self.bad_frame(ch, &format!("{} on a channel that is in use", frame.as_str()));
            return None;
        }
        let is_new = !self.slots.contains_key(&ch);
        if is_new && self.slots.len() >= WS_CHANNELS_MAX {
            self.forget_ended();
        }
        let problem = if self.drains_until.is_some() {
            Problem::new(ErrorCode::Draining, "the gateway is going away")
        } else if is_new && self.slots.len() >= WS_CHANNELS_MAX {
            let detail = format!("a connection has at most {WS_CHANNELS_MAX} channels");
            Problem::new(ErrorCode::TooManyRequests, detail).with_limit(WS_CHANNELS_MAX as u64)
        } else {
            let generation = self.next_generation;
            self.next_generation += 1;
            return Some(Use { ch, generation });
        };
        self.refuse(ch, &problem);
        // What follows on it was sent before the client knew.
        let generation = self.next_generation;
        self.next_generation += 1;
        self.put(Use { ch, generation }, State::Ended);
        None
    }

    /// Gives up the memory of the channel that was ended first, if there is one.
    fn forget_ended(&mut self) {
        let ended = self.slots.iter().filter(|(_, slot)| matches!(slot.state, State::Ended));
        if let Some(ch) = ended.min_by_key(|(_, slot)| slot.generation).map(|(ch, _)| *ch) {
            self.slots.remove(&ch);
        }
    }

    pub(super) fn put(&mut self, of: Use, state: State) {
        self.slots.insert(of.ch, Slot { generation: of.generation, state });
    }

    /// The gateway ends a channel.
    pub(super) fn end(&mut self, of: Use, problem: &Problem) {
        self.refuse(of.ch, problem);
        self.resume.refused(of.ch, problem.retryable);
        self.put(of, State::Ended);
        self.effects.push(Effect::Forget { of });
    }

    /// The channel was opened, or not.
    pub(in crate::ws) fn opened(&mut self, now: Now, of: Use, found: Result<Found, ServiceError>) {
        let pool = Arc::clone(&self.config.pool);
        let Some(slot) = self.current(of) else { return };
        let State::Opening { has_producer } = slot.state else { return };
        let found = match found {
            Err(failure) => return self.end(of, &Problem::from(&failure)),
            Ok(found) => Found { has_producer, ..found },
        };
        // On several partitions repeats are recognised within a window below the highest number only, so no more
        // than that may be under way.
        let msgs_max = if found.partitions > 1 && has_producer {
            PRODUCER_WINDOW - PRODUCER_WINDOW / 8
        } else {
            u64::MAX
        };
        let granting = Granting::new(now.instant, pool.open(), msgs_max);
        let opened = Opened {
            last_seq: found.last_seq,
            inc: found.incarnation,
            partitions: found.partitions,
            pub_limit: granting.limit().into(),
        };
        slot.state = State::Publishing(Box::new(Publishing::new(found, granting)));
        self.send(of.ch, ServerFrame::Opened(opened));
    }

    /// If nothing is under way the number is free for the next frame, whenever the turn ends: nobody is told when.
    pub(super) fn close_pub(&mut self, now: Now, ch: Channel) {
        match self.slots.get_mut(&ch).map(|slot| (slot.generation, &mut slot.state)) {
            Some((generation, State::Opening { .. })) => self.forget(Use { ch, generation }),
            Some((_, State::Publishing(publishing))) => {
                publishing.is_closing = true;
                self.publish_waiting(now, ch);
                self.tell_publisher(now, ch);
            }
            _ => self.wrong_channel(ch, FrameType::ClosePub),
        }
    }

    /// The client is done with a channel.
    pub(super) fn forget(&mut self, of: Use) {
        self.slots.remove(&of.ch);
        self.resume.forget(of.ch);
        self.effects.push(Effect::Forget { of });
    }
}
