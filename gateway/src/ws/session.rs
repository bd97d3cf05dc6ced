//! What one socket means. Pure: frames, confirms, events and time in, effects out.

mod opening;
mod publishes;
mod queues;
mod resuming;
mod subscriptions;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod under_load;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;
use weir_protocol::error::ErrorCode;
use weir_protocol::limits::{
    BATCH_RECORDS_MAX, INTEGER_MAX, PARTITIONS_MAX, RECORD_BYTES_MAX, WS_CHANNELS_MAX, WS_MESSAGE_BYTES_MAX,
};
use weir_protocol::rpc::SettleAction;
use weir_protocol::ws::{
    Channel, ClientFrame, CloseCode, FrameType, Goaway, Limits, Pong, RawJson, ServerFrame, ServerPing, Tail,
    Welcome, WsError,
};

use super::consuming::{Consuming, What, Which};
use super::effect::{Closing, Effect, Use, Violation};
use super::following::Following;
use super::pool::Pool;
use super::publishing::Publishing;
use super::window::Window;
use crate::api::Problem;
use crate::auth::{AuthError, Op, Principal, Resource, authorize};

use resuming::Resuming;

pub(super) use publishes::CallPart;

/// `hello` is due within this.
const HELLO_TIME_MAX: Duration = Duration::from_secs(5);
/// A ping comes at least this often; a client silent for twice as long is gone.
const HEARTBEAT: Duration = Duration::from_secs(20);
/// How long a session can be continued. Positions are the client's and leases the partitions', so it costs
/// nothing here.
const GRACE: Duration = Duration::from_secs(30);
/// How long a client may stay after it was told to go.
const DRAIN_TIME: Duration = Duration::from_secs(2);
/// Effects that may be left to be done together.
const EFFECTS_MAX: usize = 1_024;
/// Effects whose room is kept: what an idle session holds.
const EFFECTS_REUSED_MAX: usize = 4;
const RESUME_PREFIX: &str = "rt_";

/// What a session is told.
#[derive(Debug, Clone)]
pub(super) struct SessionConfig {
    /// Largest payload of a record, in bytes.
    pub(super) record_bytes_max: usize,
    /// What the channels that publish have their credit from, over all sockets.
    pub(super) pool: Arc<Pool>,
}

/// Checks a token.
pub(super) type Authenticate = Arc<dyn Fn(&str) -> Result<Principal, AuthError> + Send + Sync>;

/// The time, as a session needs it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Now {
    pub(super) instant: Instant,
    /// Milliseconds since the epoch.
    pub(super) epoch_ms: u64,
}

impl Now {
    /// Reads the clocks.
    pub(super) fn read() -> Self {
        let epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { instant: Instant::now(), epoch_ms: u64::try_from(epoch.as_millis()).unwrap_or(u64::MAX) }
    }
}

/// What is known of a channel.
#[derive(Debug)]
enum State {
    /// `open` is under way.
    Opening {
        has_producer: bool,
    },
    Publishing(Box<Publishing>),
    Following {
        following: Box<Following>,
        path: subscriptions::Followed,
    },
    Consuming(Box<Consuming>),
    /// Refused or ended by the gateway. What the client sent before it knew is ignored.
    Ended,
}

#[derive(Debug)]
struct Slot {
    generation: u64,
    state: State,
}

/// One socket's session.
pub(super) struct Session {
    config: SessionConfig,
    id: Box<str>,
    /// The session that this one continues.
    resumed: Option<Box<str>>,
    /// Name of the client, as it said.
    client: Option<Box<str>>,
    principal: Principal,
    authenticate: Authenticate,
    /// Some channel consumed a subscription.
    has_queues: bool,
    is_welcome: bool,
    is_closed: bool,
    /// Told to go; closed at the latest then.
    drains_until: Option<Instant>,
    started: Instant,
    last_heard: Instant,
    next_ping: Instant,
    ping_id: u64,
    /// When to look at channels that may have stopped publishing; `None`: all rest, or only wait.
    next_round: Option<Instant>,
    slots: HashMap<Channel, Slot>,
    next_generation: u64,
    resume: Resuming,
    calls: Window<publishes::Call>,
    tickets: Window<publishes::TicketOf>,
    /// Publishing and consuming channels to look at, at the end of the turn.
    touched: Vec<Channel>,
    effects: Vec<Effect>,
}

impl Session {
    pub(super) fn new(
        now: Now,
        id: String,
        config: SessionConfig,
        principal: Principal,
        authenticate: Authenticate,
    ) -> Self {
        Self {
            config,
            id: id.into_boxed_str(),
            resumed: None,
            client: None,
            principal,
            authenticate,
            has_queues: false,
            is_welcome: false,
            is_closed: false,
            drains_until: None,
            started: now.instant,
            last_heard: now.instant,
            next_ping: now.instant + HEARTBEAT,
            ping_id: 0,
            next_round: None,
            slots: HashMap::new(),
            next_generation: 0,
            resume: Resuming::default(),
            calls: Window::default(),
            tickets: Window::default(),
            touched: Vec::new(),
            effects: Vec::new(),
        }
    }

    /// What is to be done, in order.
    pub(super) fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// Takes back the room of effects that were run, so that a turn of few allocates none.
    pub(super) fn reuse(&mut self, run: Vec<Effect>) {
        if run.is_empty() && self.effects.is_empty() && run.capacity() <= EFFECTS_REUSED_MAX {
            self.effects = run;
        }
    }

    /// True if so much is to be done that it is better done before more is received: a few KiB that were
    /// deflated may hold hundreds of thousands of frames, and the answer to each takes ten times its room
    /// until it is encoded.
    pub(super) fn has_enough(&self) -> bool {
        self.effects.len() >= EFFECTS_MAX
    }

    /// True once the socket is to be closed; nothing that comes has an effect any more.
    pub(super) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// When [`Session::tick`] has something to do next.
    pub(super) fn deadline(&self) -> Instant {
        let silent = self.last_heard + 2 * HEARTBEAT;
        let mut deadline = silent.min(self.next_ping);
        if let Some(round) = self.next_round {
            deadline = deadline.min(round);
        }
        if !self.is_welcome {
            deadline = deadline.min(self.started + HELLO_TIME_MAX);
        }
        self.drains_until.map_or(deadline, |until| deadline.min(until))
    }

    /// A frame of the client.
    pub(super) fn receive(&mut self, now: Now, ch: Channel, frame: ClientFrame) {
        if self.is_closed {
            return;
        }
        self.last_heard = now.instant;
        if !self.is_welcome && !matches!(frame, ClientFrame::Hello(_)) {
            return self.bad_frame(ch, &format!("{} before hello", frame.frame_type().as_str()));
        }
        match frame {
            ClientFrame::Hello(hello) => self.hello(now, hello),
            ClientFrame::Open(open) => self.open(ch, open),
            ClientFrame::Pub(publish) => self.publish(now, ch, &publish),
            ClientFrame::PubBatch { first_seq, batch } => self.publish_batch(now, ch, first_seq, batch),
            ClientFrame::Sub(sub) => self.sub(ch, sub),
            ClientFrame::Limit(limit) => self.limit(ch, limit),
            ClientFrame::Seek(seek) => self.seek(ch, &seek),
            ClientFrame::Pause(pause) => self.pause(ch, pause.on),
            ClientFrame::Unsub(_) => self.unsub(ch),
            ClientFrame::ClosePub(_) => self.close_pub(now, ch),
            ClientFrame::Auth(auth) => self.authenticate_again(&auth.token.0),
            ClientFrame::Ping(ping) => {
                self.send(Channel::CONNECTION, ServerFrame::Pong(Pong { id: ping.id }));
            }
            ClientFrame::Pong(_) => {}
            ClientFrame::Bye(_) => {
                self.client_left();
                self.close(Closing::Normal);
            }
            ClientFrame::Ack(ack) => {
                let which = Which { n: &ack.n, cum: ack.cum, leases: &ack.leases };
                self.settle(ch, FrameType::Ack, which, &what(SettleAction::Ack, None, None));
            }
            ClientFrame::Nack(nack) => {
                let which = Which { n: &nack.n, cum: false, leases: &nack.leases };
                let what = what(SettleAction::Nack, nack.delay_ms, nack.reason);
                self.settle(ch, FrameType::Nack, which, &what);
            }
            ClientFrame::Extend(extend) => {
                let which = Which { n: &extend.n, cum: false, leases: &extend.leases };
                self.settle(ch, FrameType::Extend, which, &what(SettleAction::Extend, Some(extend.ms), None));
            }
            ClientFrame::Dead(dead) => {
                let which = Which { n: &dead.n, cum: false, leases: &dead.leases };
                self.settle(ch, FrameType::Dead, which, &what(SettleAction::Dead, None, dead.reason));
            }
        }
    }

    /// A sign of life below the frames.
    pub(super) fn heard(&mut self, now: Now) {
        self.last_heard = now.instant;
    }

    /// A message that holds no frame, or a frame that is malformed.
    pub(super) fn malformed(&mut self, error: &WsError) {
        if self.is_closed {
            return;
        }
        let problem = match error {
            WsError::TooLarge(_) => Problem::new(ErrorCode::TooLarge, error.to_string()),
            WsError::Batch { .. } => Problem::new(ErrorCode::InvalidBatch, error.to_string()),
            WsError::Fields { frame, place, detail } => {
                Problem::malformed_at(&format!("{} frame: ", frame.as_str()), detail, || place.clone())
            }
            _ => Problem::new(ErrorCode::Malformed, error.to_string()),
        };
        self.refuse(Channel::CONNECTION, &problem);
        self.close(Closing::Code(error.close_code()));
    }

    /// What came broke a rule below the frames; nothing more can be read.
    pub(super) fn violated(&mut self, violation: Violation, detail: &str) {
        if self.is_closed {
            return;
        }
        let problem = match violation {
            Violation::Size => {
                let limit = WS_MESSAGE_BYTES_MAX as u64;
                Problem::new(ErrorCode::TooLarge, format!("a message exceeds {limit} bytes"))
                    .with_limit(limit)
            }
            Violation::Protocol | Violation::Text => Problem::new(ErrorCode::Malformed, detail),
        };
        self.refuse(Channel::CONNECTION, &problem);
        self.close(Closing::Violation(violation));
    }

    /// Looks at the clock. `throttled`: some grant waits for the gateway's budget.
    pub(super) fn tick(&mut self, now: Now, throttled: bool) {
        if self.is_closed {
            return;
        }
        if !self.is_welcome && now.instant >= self.started + HELLO_TIME_MAX {
            let detail = "hello did not come within 5 seconds";
            self.refuse(Channel::CONNECTION, &Problem::new(ErrorCode::RequestTimeout, detail));
            return self.close(Closing::Code(CloseCode::HeartbeatTimeout));
        }
        if now.instant >= self.last_heard + 2 * HEARTBEAT {
            return self.close(Closing::Code(CloseCode::HeartbeatTimeout));
        }
        if self.drains_until.is_some_and(|until| now.instant >= until) {
            return self.close(Closing::Code(CloseCode::GoingAway));
        }
        self.rest_publishers(now);
        if now.instant >= self.next_ping {
            self.next_ping = now.instant + HEARTBEAT;
            if self.is_welcome {
                self.ping(now, throttled);
            }
        }
    }

    fn ping(&mut self, now: Now, throttled: bool) {
        self.ping_id += 1;
        let mut tails = Vec::new();
        for (ch, slot) in &self.slots {
            if let State::Following { following, .. } = &slot.state {
                tails.extend(following.tails().map(|(p, tail)| Tail { ch: ch.0, p, tail }));
            }
        }
        tails.sort_unstable_by_key(|tail| (tail.ch, tail.p));
        let ping = ServerPing { id: self.ping_id, now: now.epoch_ms, tails, throttled };
        self.send(Channel::CONNECTION, ServerFrame::Ping(ping));
        // A client that only listens may know nothing of the one above.
        self.effects.push(Effect::Ping);
    }

    /// The gateway stops: what is under way is still confirmed, nothing new is taken.
    pub(super) fn drain(&mut self, now: Now) {
        if self.is_closed || self.drains_until.is_some() {
            return;
        }
        self.drains_until = Some(now.instant + DRAIN_TIME);
        let deadline_ms = u64::try_from(DRAIN_TIME.as_millis()).expect("two seconds");
        self.send(Channel::CONNECTION, ServerFrame::Goaway(Goaway { deadline_ms, why: "drain".into() }));
        self.hold_consumers();
    }

    /// The end of a turn: everything that was there has been taken in. Says what there is to say of it.
    pub(super) fn finish_turn(&mut self, now: Now) {
        if self.is_closed {
            return;
        }
        for ch in std::mem::take(&mut self.touched) {
            self.publish_waiting(now, ch);
            self.tell_publisher(now, ch);
            self.tell_consumer(ch);
        }
        if self.drains_until.is_some() && self.calls.len() == 0 && !self.is_consuming() {
            self.close(Closing::Code(CloseCode::GoingAway));
        }
    }

    /// True if what the effects of a turn led to wants another end of it, before anybody waits.
    pub(super) fn has_more(&self) -> bool {
        !self.touched.is_empty() && !self.is_closed
    }

    fn hello(&mut self, now: Now, hello: weir_protocol::ws::Hello) {
        if self.is_welcome {
            return self.bad_frame(Channel::CONNECTION, "a second hello");
        }
        if let Some(token) = &hello.token {
            match self.connecting(&token.0) {
                Ok(principal) => self.principal = principal,
                Err(error) => return self.unauthorized(&error),
            }
        }
        if let Some(token) = &hello.resume
            && !is_resume_token(token)
        {
            let problem = Problem::new(ErrorCode::InvalidCursor, "the resume token is none of this service");
            self.refuse(Channel::CONNECTION, &problem);
            return self.close(Closing::Code(CloseCode::ResumeExpired));
        }
        if hello.channels.len() > WS_CHANNELS_MAX {
            return self.bad_frame(Channel::CONNECTION, "more channels than a connection may have");
        }
        if hello.channels.iter().any(|channel| channel.seen.len() > PARTITIONS_MAX as usize) {
            return self.bad_frame(Channel::CONNECTION, "more partitions than a topic may have");
        }
        // Delivery numbers go on behind it.
        if hello.channels.iter().filter_map(|channel| channel.n).any(|n| n > INTEGER_MAX) {
            let detail = format!("delivery numbers end at {INTEGER_MAX}");
            return self.bad_frame(Channel::CONNECTION, &detail);
        }
        self.resumed =
            hello.resume.as_ref().and_then(|token| token.strip_prefix(RESUME_PREFIX)).map(Box::from);
        self.client = hello.client.map(String::into_boxed_str);
        if hello.batch {
            self.effects.push(Effect::Batch);
        }
        self.resume = Resuming::new(hello.channels);
        self.is_welcome = true;
        let limits = Limits {
            message_bytes: WS_MESSAGE_BYTES_MAX as u64,
            record_bytes: RECORD_BYTES_MAX.min(self.config.record_bytes_max) as u64,
            batch_records: u64::from(BATCH_RECORDS_MAX),
            channels: WS_CHANNELS_MAX as u64,
        };
        let welcome = Welcome {
            sid: self.id.to_string(),
            resume: format!("{RESUME_PREFIX}{}", self.id),
            grace_ms: millis(GRACE),
            hb_ms: millis(HEARTBEAT),
            now: now.epoch_ms,
            limits,
        };
        self.send(Channel::CONNECTION, ServerFrame::Welcome(welcome));
    }

    /// Whom a token names, if they may have a connection.
    fn connecting(&self, token: &str) -> Result<Principal, AuthError> {
        let principal = (self.authenticate)(token)?;
        authorize(&principal, Op::Connect, &Resource::Gateway).map_err(|_| AuthError::Rejected)?;
        Ok(principal)
    }

    fn authenticate_again(&mut self, token: &str) {
        match self.connecting(token) {
            Ok(principal) if principal.tenant == self.principal.tenant => self.principal = principal,
            // Channels of one tenant never end up with another.
            Ok(_) => self.unauthorized(&AuthError::Rejected),
            Err(error) => self.unauthorized(&error),
        }
    }

    fn unauthorized(&mut self, error: &AuthError) {
        self.refuse(Channel::CONNECTION, &Problem::new(ErrorCode::Unauthorized, error.to_string()));
        self.close(Closing::Code(CloseCode::Unauthorized));
    }

    fn send(&mut self, ch: Channel, frame: ServerFrame) {
        self.effects.push(Effect::Send(ch, frame));
    }

    /// Tells a problem; the channel and the connection stay as they are.
    fn refuse(&mut self, ch: Channel, problem: &Problem) {
        let problem = self.raw(problem);
        self.send(ch, ServerFrame::Err(weir_protocol::ws::Problem { problem }));
    }

    /// A problem as it is sent, by which the connection is found in logs.
    fn raw(&self, problem: &Problem) -> RawJson {
        let problem = Problem { request_id: self.id.to_string(), ..problem.clone() };
        RawJson::of(&problem).expect("a problem has only strings and numbers")
    }

    /// A frame that makes no sense: says why, and closes.
    fn bad_frame(&mut self, ch: Channel, detail: &str) {
        self.refuse(ch, &Problem::new(ErrorCode::Malformed, detail));
        self.close(Closing::Code(CloseCode::BadFrame));
    }

    fn close(&mut self, closing: Closing) {
        self.is_closed = true;
        self.effects.push(Effect::Close(closing));
    }

    fn touch(&mut self, ch: Channel) {
        if self.touched.last() != Some(&ch) && !self.touched.contains(&ch) {
            self.touched.push(ch);
        }
    }

    /// The slot, if that use of the channel is still the current one.
    fn current(&mut self, of: Use) -> Option<&mut Slot> {
        self.slots.get_mut(&of.ch).filter(|slot| slot.generation == of.generation && !self.is_closed)
    }

    /// Nobody uses a channel any more, or it must be a channel's first frame.
    fn wrong_channel(&mut self, ch: Channel, frame: FrameType) {
        match self.slots.get(&ch).map(|slot| &slot.state) {
            // The client could not know yet.
            Some(State::Ended) => {}
            _ => self.bad_frame(ch, &format!("{} on a channel that is not open for it", frame.as_str())),
        }
    }
}

fn what(action: SettleAction, ms: Option<u64>, reason: Option<String>) -> What {
    What { action, ms, reason: reason.unwrap_or_default() }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).expect("seconds")
}

fn is_resume_token(token: &str) -> bool {
    token.strip_prefix(RESUME_PREFIX).is_some_and(|id| ulid::Ulid::from_string(id).is_ok())
}
