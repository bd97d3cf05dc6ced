//! One task per socket: reads, runs the session's effects, writes with one flush per wake-up.

use std::collections::HashMap;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{AbortHandle, Abortable, Aborted, BoxFuture, join, pending};
use futures_util::{FutureExt, SinkExt, StreamExt};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::io::AsyncWriteExt as _;
use tokio::sync::{mpsc, watch};
use tokio::task::unconstrained;
use tokio::time::{Sleep, sleep_until, timeout, timeout_at};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::error::ProtocolError;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::{Error, Message};
use weir_protocol::error::ErrorCode;
use weir_protocol::ids::Seq;
use weir_protocol::ws::{Channel, ClientFrame, WsError, binary, json};

use super::deflate::{Broken, Wire};
use super::effect::{Closing, Effect, Use, Violation};
use super::gate::Gated;
use super::output::{Form, Outgoing, Output};
use super::parts::write_parts;
use super::session::{CallPart, Now, Session};
use crate::answers::Client;
use crate::service::ServiceError;
use crate::service::publish::{ChannelPublish, Confirm, Content};
use crate::service::read::{Subscription, SubscriptionCredit, SubscriptionEvent};
use crate::stages::StageSeconds;
use crate::under_way::UnderWay;
use following::{First, Follower, next_of};
use publishers::{Opened, Publishers};
use queues::{QueueEvent, Queues};
use rooms::Rooms;

mod following;
mod publishers;
mod queues;
mod rooms;

/// Records of one subscription taken in at once; the last ones may overshoot.
const TOGETHER_BYTES_MAX: u64 = 64 << 10;
/// Messages and events taken in during one turn, of each kind.
const TURN_MAX: usize = 256;
/// Turns of deliveries alone after which the client is read from all the same.
const UNREAD_MAX: u32 = 16;
/// How long a client may take to answer a close.
const CLOSE_TIME_MAX: Duration = Duration::from_secs(2);

/// A connection after its handshake.
pub(super) type Stream = WebSocketStream<Wire<TokioIo<Upgraded>>>;
/// What came, and what was there right behind it.
type Came = Vec<Result<SubscriptionEvent, ServiceError>>;
type Followed = (Use, Box<Subscription>, Came);
type Subscribed = (Use, Result<Subscription, ServiceError>);

/// A running socket.
pub(super) struct Socket {
    socket: Stream,
    form: Form,
    gated: Arc<Gated>,
    rooms: Rooms,
    stages: StageSeconds,
    session: Session,
    output: Output,
    closing: Option<Closing>,
    /// The client said that it leaves.
    has_left: bool,
    publishers: Publishers,
    followers: HashMap<Use, Follower>,
    subscribing: UnderWay<BoxFuture<'static, Result<Subscribed, Aborted>>>,
    /// What is followed, if it is all that is: most sockets follow one topic, and this one costs no future of its own.
    first: Option<First>,
    following: UnderWay<BoxFuture<'static, Result<Followed, Aborted>>>,
    queues: Queues,
    /// `None` until a channel publishes: it has room for 32 from its start.
    confirms: Option<Confirms>,
}

const _: () = assert!(size_of::<Socket>() <= 1_600, "what each idle socket takes, besides its task");

/// Confirms on their way to the socket.
struct Confirms {
    to: mpsc::UnboundedSender<Confirm>,
    from: mpsc::UnboundedReceiver<Confirm>,
}

impl Default for Confirms {
    fn default() -> Self {
        let (to, from) = mpsc::unbounded_channel();
        Self { to, from }
    }
}

/// The next confirm; waits for ever if nothing publishes.
async fn next_confirm(confirms: Option<&mut Confirms>) -> Confirm {
    match confirms {
        // Its sender is beside it: it does not end.
        Some(confirms) => confirms.from.recv().await.expect("the sender is there"),
        None => pending().await,
    }
}

/// What woke the task.
enum Woken {
    Drained,
    Time,
    Confirmed(Confirm),
    Opened(Opened),
    Subscribed(Result<Subscribed, Aborted>),
    First(Result<SubscriptionEvent, ServiceError>),
    Followed(Result<Followed, Aborted>),
    Queue(QueueEvent),
    Received(Message),
    /// The client broke a rule below our frames; nothing more can be read.
    Violated(Violation, String),
    /// The client is gone.
    Gone,
}

impl Woken {
    fn by(received: Option<Result<Message, Error>>) -> Self {
        let error = match received {
            Some(Ok(message)) => return Self::Received(message),
            Some(Err(error)) => error,
            None => return Self::Gone,
        };
        let violation = match &error {
            Error::Protocol(ProtocolError::ResetWithoutClosingHandshake) => return Self::Gone,
            Error::Protocol(_) => Violation::Protocol,
            Error::Utf8(_) => Violation::Text,
            Error::Capacity(_) => Violation::Size,
            Error::Io(broken) => match Broken::of(broken) {
                Some(Broken::Frames | Broken::Deflate) => Violation::Protocol,
                Some(Broken::Size) => Violation::Size,
                None => return Self::Gone,
            },
            _ => return Self::Gone,
        };
        Self::Violated(violation, error.to_string())
    }
}

impl Socket {
    pub(super) fn new(
        socket: Stream,
        form: Form,
        (gated, client): (Arc<Gated>, Arc<Client>),
        stages: StageSeconds,
        session: Session,
    ) -> Self {
        Self {
            socket,
            form,
            gated,
            rooms: Rooms::new(client),
            stages,
            session,
            output: Output::new(form),
            closing: None,
            has_left: false,
            publishers: Publishers::default(),
            followers: HashMap::new(),
            subscribing: UnderWay::default(),
            first: None,
            following: UnderWay::default(),
            queues: Queues::default(),
            confirms: None,
        }
    }

    /// Serves until either side is done; boxed, because its future would hold it several times. Who does not
    /// take what a turn has for it within `write_time_max` is gone.
    pub(super) async fn run(mut self: Box<Self>, mut drain: watch::Receiver<bool>, write_time_max: Duration) {
        let (mut is_told, mut unread) = (false, 0);
        // Made once: a delivery registers neither of them anew.
        let mut drained = pin!(async { drop(drain.wait_for(|drains| *drains).await) });
        let mut timer = pin!(sleep_until(self.session.deadline()));
        loop {
            let woken = self.wait(drained.as_mut(), timer.as_mut(), is_told).await;
            is_told |= matches!(woken, Woken::Drained);
            // Who is only delivered to has mostly said nothing, and is looked at when there is nothing else.
            unread = if matches!(woken, Woken::First(_)) { unread + 1 } else { 0 };
            let reads = unread == 0 || unread > UNREAD_MAX;
            unread = if reads { 0 } else { unread };
            let is_there = self.take(woken) && self.take_more(reads);
            if !is_there {
                self.run_effects();
                return self.answer_close().await;
            }
            let mut now = Now::read();
            // Whatever woke the task: who always has something to say does not stop the clock.
            if now.instant >= self.session.deadline() {
                self.tick(now);
            }
            loop {
                self.session.finish_turn(now);
                self.run_effects();
                // What was refused at once has given its credit back.
                if !self.session.has_more() {
                    break;
                }
                now = Now::read();
            }
            self.rooms.count(self.output.queued_bytes());
            let write_until = now.instant + write_time_max;
            if !timeout_at(write_until, self.write()).await.is_ok_and(|written| written.is_ok()) {
                return;
            }
            self.rooms.written();
            if let Some(closing) = self.closing {
                return self.close(closing).await;
            }
        }
    }

    async fn wait(
        &mut self,
        drained: Pin<&mut impl Future<Output = ()>>,
        mut timer: Pin<&mut Sleep>,
        is_told: bool,
    ) -> Woken {
        let (deadline, is_full) = (self.session.deadline(), self.session.is_full());
        if timer.deadline() != deadline {
            timer.as_mut().reset(deadline);
        }
        tokio::select! {
            // Confirms first: somebody counts the microseconds. The client's frames last: it has credit for what
            // it sends, and everything that is ready is taken in before the turn ends.
            biased;
            // An error means that the gateway is gone: the same.
            () = drained, if !is_told => Woken::Drained,
            confirm = next_confirm(self.confirms.as_mut()) => Woken::Confirmed(confirm),
            Some(opened) = self.publishers.next() => Woken::Opened(opened),
            Some(subscribed) = self.subscribing.next() => Woken::Subscribed(subscribed),
            event = next_of(self.first.as_mut()) => Woken::First(event),
            Some(followed) = self.following.next() => Woken::Followed(followed),
            event = self.queues.next() => Woken::Queue(event),
            received = self.socket.next(), if !is_full => Woken::by(received),
            // Even if reading took all that the task may do in its turn, and nothing came of it.
            () = unconstrained(timer) => Woken::Time,
        }
    }

    /// Takes in what woke the task; false if the client is gone.
    fn take(&mut self, woken: Woken) -> bool {
        match woken {
            Woken::Drained => self.session.drain(Now::read()),
            // Each turn looks at the clock.
            Woken::Time => {}
            Woken::Confirmed(confirm) => self.confirmed(confirm),
            Woken::Opened(opened) => self.opened(opened),
            Woken::Subscribed(Ok((of, subscribed))) => self.subscribed(of, subscribed),
            Woken::First(event) => self.followed_first(event),
            Woken::Followed(Ok(followed)) => self.followed(followed),
            // Forgotten while it was under way.
            Woken::Subscribed(Err(Aborted)) | Woken::Followed(Err(Aborted)) => {}
            Woken::Queue(event) => self.queues.happened(&mut self.session, event),
            Woken::Received(message) => return self.received(message),
            Woken::Violated(violation, detail) => self.session.violated(violation, &detail),
            Woken::Gone => return false,
        }
        true
    }

    fn tick(&mut self, now: Now) {
        let throttled =
            |follower: &Follower| follower.credit.as_ref().is_some_and(SubscriptionCredit::is_throttled);
        let is_throttled = self.followers.values().any(throttled);
        self.session.tick(now, is_throttled);
    }

    fn confirmed(&mut self, confirm: Confirm) {
        if let Some(took) = self.session.confirmed(Now::read(), confirm) {
            self.stages.observe(&took);
        }
    }

    /// Takes in what else is ready, of the client too if it `reads`, so that one flush serves all of it; false if the
    /// client is gone.
    fn take_more(&mut self, reads: bool) -> bool {
        for _ in 0..TURN_MAX {
            let next = self.confirms.as_mut().and_then(|confirms| confirms.from.try_recv().ok());
            let Some(confirm) = next else { break };
            self.confirmed(confirm);
        }
        for _ in 0..if reads { TURN_MAX } else { 0 } {
            let is_full = self.session.is_full() || self.rooms.is_full(self.output.queued_bytes());
            if self.session.is_closed() || is_full {
                break;
            }
            let Some(received) = self.socket.next().now_or_never() else { break };
            if !self.take(Woken::by(received)) {
                return false;
            }
        }
        for _ in 0..TURN_MAX {
            // Encoded at once: so it is known when the output is full and the log is not to be read on.
            self.run_effects();
            if self.rooms.is_full(self.output.queued_bytes()) {
                break;
            }
            let leased = self.queues.next().now_or_never();
            let mut is_quiet = leased.is_none();
            if let Some(event) = leased {
                self.queues.happened(&mut self.session, event);
            }
            if let Some(event) = self.first_by_now() {
                is_quiet = false;
                self.followed_first(event);
            }
            match self.following.next().now_or_never() {
                Some(Some(Ok(followed))) => self.followed(followed),
                Some(Some(Err(Aborted))) => {}
                Some(None) | None if is_quiet => break,
                Some(None) | None => {}
            }
        }
        true
    }

    /// A message of the client; false if it was its last.
    fn received(&mut self, message: Message) -> bool {
        match (message, self.form) {
            (Message::Text(text), Form::Json) => {
                for frame in json::client_frames(text.as_str()) {
                    if !self.receive(frame) {
                        break;
                    }
                }
            }
            (Message::Binary(mut bytes), Form::Binary) => {
                while let Some(frame) = binary::take_client_frame(&mut bytes).transpose() {
                    if !self.receive(frame) {
                        break;
                    }
                }
            }
            (Message::Text(_) | Message::Binary(_), _) => {
                let detail = "a message of the other form of the subprotocol";
                self.session.malformed(&WsError::Object(detail.into()));
            }
            (Message::Ping(_) | Message::Pong(_), _) => self.session.heard(Now::read()),
            // Frames of their own are written only, never read.
            (Message::Close(_) | Message::Frame(_), _) => {
                self.session.client_left();
                self.has_left = true;
                return false;
            }
        }
        true
    }

    /// False after a frame that ends the connection.
    fn receive(&mut self, frame: Result<(Channel, ClientFrame), WsError>) -> bool {
        match frame {
            Ok((ch, frame)) => {
                self.session.receive(Now::read(), ch, frame);
                if self.session.has_enough() {
                    self.run_effects();
                    self.begin();
                }
                !self.session.is_closed()
            }
            Err(error) => {
                self.session.malformed(&error);
                false
            }
        }
    }

    /// Lets begin what was asked for, and go what was given up before it had: a few KiB that were deflated may ask for
    /// tens of thousands of subscriptions, each in place of the one before.
    fn begin(&mut self) {
        while let Some(opened) = self.publishers.opened_by_now() {
            self.opened(opened);
        }
        while let Some(Some(subscribed)) = self.subscribing.next().now_or_never() {
            self.take(Woken::Subscribed(subscribed));
        }
        while let Some(event) = self.queues.made_by_now() {
            self.queues.happened(&mut self.session, event);
        }
    }

    fn opened(&mut self, opened: Opened) {
        if let Some((of, found)) = self.publishers.opened(opened) {
            self.session.opened(Now::read(), of, found);
        }
    }

    /// Runs what the session wants, and what follows from that.
    fn run_effects(&mut self) {
        loop {
            let mut effects = self.session.take_effects();
            if effects.is_empty() || self.closing.is_some() {
                return self.session.reuse(effects);
            }
            for effect in effects.drain(..) {
                self.run_effect(effect);
            }
            self.session.reuse(effects);
        }
    }

    fn run_effect(&mut self, effect: Effect) {
        match effect {
            Effect::Send(ch, frame) => self.output.put(ch, &frame),
            Effect::Batch => self.output.batch(),
            Effect::Ping => self.output.ping(),
            Effect::Deliver { of, n, parcel } => {
                self.rooms.keep(&parcel);
                if let Err(error) = self.output.deliver(of.ch, n, parcel) {
                    let detail = format!("a record batch cannot be read: {error}");
                    self.session.ended(of, &ServiceError::new(ErrorCode::Corrupt, detail));
                }
            }
            Effect::Open { of, open } => self.publishers.open(of, Arc::clone(&self.gated), open),
            Effect::Publish { of, call, seq, content } => self.publish(of, call, seq, content),
            Effect::Subscribe { of, mut subscribe } => {
                subscribe.room = Some(self.rooms.on_the_way(self.form));
                let gated = Arc::clone(&self.gated);
                let (stop, registration) = AbortHandle::new_pair();
                let made = async move {
                    for topic in &subscribe.topics {
                        gated.pass(&topic.tenant, &topic.namespace).await?;
                    }
                    if let Some(room) = &subscribe.room {
                        room.client.check(0)?;
                    }
                    gated.services.reader.subscribe(subscribe).await
                };
                let made = async move { (of, made.await) };
                self.subscribing.push(Box::pin(Abortable::new(made, registration)));
                let follower = Follower { stop, credit: None, limit: None, is_held: false, waiting: None };
                self.followers.insert(of, follower);
            }
            Effect::DeliverLeased { of, n, leased } => {
                self.rooms.keep_leased(leased.bytes, self.form);
                if let Err(error) = self.output.deliver_leased(of.ch, n, *leased) {
                    let detail = format!("a record batch cannot be read: {error}");
                    self.session.ended(of, &ServiceError::new(ErrorCode::Corrupt, detail));
                }
            }
            Effect::Consume { of, path, consume } => {
                self.queues.consume(of, Arc::clone(&self.gated), path, consume);
            }
            Effect::Settle { of, sent } => self.queues.settle(of, sent),
            Effect::Leave { of } => self.queues.leave(of),
            Effect::Raise { of, limit } if self.queues.has(of) => self.queues.raise(of, limit),
            Effect::Hold { of, on } if self.queues.has(of) => self.queues.hold(of, on),
            Effect::Raise { of, limit } => match self.followers.get_mut(&of) {
                Some(Follower { credit: Some(credit), .. }) => credit.raise(limit),
                Some(follower) => follower.limit = Some(limit),
                None => {}
            },
            Effect::Hold { of, on } => self.hold(of, on),
            Effect::Forget { of } => {
                self.publishers.forget(of);
                self.queues.forget(of);
                if let Some(follower) = self.followers.remove(&of) {
                    follower.stop.abort();
                }
                self.first.take_if(|first| first.of == of);
            }
            Effect::Close(closing) => self.closing = Some(closing),
        }
    }

    fn publish(&mut self, of: Use, call: u64, seq: Seq, content: Content) {
        let Some(channel) = self.publishers.get(of) else {
            let gone = ServiceError::new(ErrorCode::Internal, "the channel is gone");
            return self.session.refused(call, &gone);
        };
        let confirm_to = &self.confirms.get_or_insert_default().to;
        let ticket = self.session.next_ticket();
        let publish = ChannelPublish { content, seq, ticket };
        match (channel.publish(&publish, confirm_to), publish.content) {
            (Ok(parts), _) => {
                let parts = parts.into_iter().map(|part| CallPart::new(part, 0)).collect();
                self.session.sent(call, parts, &[]);
            }
            // One of them is to blame: each gets its own verdict.
            (Err(failure), Content::Records(records))
                if records.len() > 1 && failure.code() != ErrorCode::Busy =>
            {
                let (mut parts, mut refused) = (Vec::new(), Vec::new());
                for (place, record) in (0u32..).zip(records) {
                    let publish = ChannelPublish {
                        content: Content::Records(vec![record]),
                        seq: Seq(seq.0 + u64::from(place)),
                        ticket: ticket + parts.len() as u64,
                    };
                    match channel.publish(&publish, confirm_to) {
                        Ok(sent) => parts.extend(sent.into_iter().map(|part| CallPart::new(part, place))),
                        Err(failure) => refused.push((place, failure)),
                    }
                }
                self.session.sent(call, parts, &refused);
            }
            (Err(failure), _) => self.session.refused(call, &failure),
        }
    }

    /// Writes what the turn left, with one flush.
    async fn write(&mut self) -> Result<(), Error> {
        let deflate = self.socket.get_ref().deflate();
        let mut messages = self.output.take();
        for message in messages.drain(..) {
            let message = match &deflate {
                // Boxed: every idle task would have room for it.
                Some(deflate) if message.is_worth_deflating() => Box::pin(deflate.outgoing(message)).await,
                _ => message,
            };
            match message {
                Outgoing::Message(message) => self.socket.feed(message).await?,
                Outgoing::Parts(parts) => {
                    // What the library holds, pongs among it, goes first; nothing comes between before the next read.
                    self.socket.flush().await?;
                    write_parts(self.socket.get_mut(), parts).await?;
                }
            }
        }
        self.output.reuse(messages);
        self.socket.flush().await
    }

    /// A client that closes is owed a close frame; one that is gone is not there to take it.
    async fn answer_close(mut self: Box<Self>) {
        let answered = async { while let Some(Ok(_)) = self.socket.next().await {} };
        let _ = timeout(CLOSE_TIME_MAX, join(answered, self.queues.end(self.has_left))).await;
    }

    /// Says why, and reads and drops what the client still sends: closing at once would reset the connection under
    /// the close frame.
    async fn close(mut self: Box<Self>, closing: Closing) {
        let (code, reason) = closing.frame();
        let ended = self.queues.end(closing == Closing::Normal);
        let frame = CloseFrame { code: code.into(), reason: reason.into() };
        let closed = async {
            self.socket.send(Message::Close(Some(frame))).await?;
            if matches!(closing, Closing::Violation(_)) {
                // What follows are no frames any more: their end is the client's answer.
                let stream = self.socket.get_mut().stream_mut();
                stream.shutdown().await?;
                tokio::io::copy(stream, &mut tokio::io::sink()).await?;
            } else {
                while let Some(Ok(_)) = self.socket.next().await {}
            }
            Ok::<_, Error>(())
        };
        let _ = timeout(CLOSE_TIME_MAX, join(closed, ended)).await;
    }
}
