//! What a socket consumes: consumers, settles under way, and leaving.

use std::collections::HashMap;
use std::future::pending;
use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::{AbortHandle, Abortable, Aborted, BoxFuture, join_all};
use weir_protocol::rpc::{Credit, NotDone};

use crate::service::ServiceError;
use crate::service::subscriptions::{Consume, Consumed, Consumer, ConsumerHandle, SubscriptionPath};
use crate::ws::consuming::Sent;
use crate::ws::effect::Use;
use crate::ws::gate::Gated;
use crate::ws::session::Session;

use crate::under_way::UnderWay;

type Made = (Use, Result<(Box<Consumer>, ConsumerHandle), ServiceError>);
type Came = (Use, Box<Consumer>, Result<Consumed, ServiceError>);

/// What happened.
pub(super) enum QueueEvent {
    Made(Made),
    Came(Came),
    Settled {
        of: Use,
        call: u64,
        result: Result<Vec<NotDone>, ServiceError>,
    },
    /// Nothing that anybody waits for.
    Done,
}

/// All that one socket consumes.
#[derive(Default)]
pub(super) struct Queues {
    consumers: HashMap<Use, Running>,
    making: UnderWay<BoxFuture<'static, Result<Made, Aborted>>>,
    coming: UnderWay<BoxFuture<'static, Result<Came, Aborted>>>,
    settling: UnderWay<BoxFuture<'static, QueueEvent>>,
    leaving: UnderWay<BoxFuture<'static, ()>>,
}

/// A consumer, from outside of the future that drives it.
struct Running {
    /// Ends the future, wherever it waits.
    stop: AbortHandle,
    /// `None` until it was made.
    handle: Option<ConsumerHandle>,
    /// What came before that.
    limit: Option<Credit>,
    is_held: bool,
}

impl Queues {
    /// What happens next; waits for ever if there is nothing to wait for.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub(super) async fn next(&mut self) -> QueueEvent {
        tokio::select! {
            // Settles first: somebody waits for them, and they are few.
            biased;
            Some(event) = self.settling.next() => event,
            Some(()) = self.leaving.next() => QueueEvent::Done,
            Some(made) = self.making.next() => made.map_or(QueueEvent::Done, QueueEvent::Made),
            Some(came) = self.coming.next() => came.map_or(QueueEvent::Done, QueueEvent::Came),
            else => pending().await,
        }
    }

    /// What was made by now; what was given up before goes.
    pub(super) fn made_by_now(&mut self) -> Option<QueueEvent> {
        let made = self.making.next().now_or_never()??;
        Some(made.map_or(QueueEvent::Done, QueueEvent::Made))
    }

    /// Tells the session what happened.
    pub(super) fn happened(&mut self, session: &mut Session, event: QueueEvent) {
        match event {
            QueueEvent::Made((of, Err(failure))) => session.ended(of, &failure),
            QueueEvent::Made((of, Ok((consumer, handle)))) => {
                let Some(running) = self.consumers.get_mut(&of) else { return };
                if let Some(limit) = running.limit {
                    handle.raise(limit);
                }
                handle.hold(running.is_held);
                let life = handle.incarnation().map(|life| life.0);
                session.consuming(of, life, &handle.parts(), handle.is_of_stream());
                running.handle = Some(handle);
                self.go_on(of, consumer);
            }
            QueueEvent::Came((of, _, Err(failure))) => session.ended(of, &failure),
            QueueEvent::Came((of, consumer, Ok(consumed))) => {
                match consumed {
                    Consumed::Leased(leased) => session.leased(of, leased),
                    Consumed::Share(shift) => session.shared(of, &shift),
                }
                self.go_on(of, consumer);
            }
            QueueEvent::Settled { of, call, result } => session.settled(of, call, result),
            QueueEvent::Done => {}
        }
    }

    /// Waits for what comes next.
    fn go_on(&mut self, of: Use, mut consumer: Box<Consumer>) {
        let Some(running) = self.consumers.get_mut(&of) else { return };
        let (stop, registration) = AbortHandle::new_pair();
        running.stop = stop;
        let next = async move {
            let consumed = consumer.next().await;
            (of, consumer, consumed)
        };
        self.coming.push(Box::pin(Abortable::new(next, registration)));
    }

    pub(super) fn consume(&mut self, of: Use, gated: Arc<Gated>, path: SubscriptionPath, consume: Consume) {
        let (stop, registration) = AbortHandle::new_pair();
        let made = async move {
            gated.pass(&path.tenant, &path.namespace).await?;
            gated.services.subscriptions.consume(&path, consume).await
        };
        let made = async move { (of, made.await.map(|(consumer, handle)| (Box::new(consumer), handle))) };
        self.making.push(Box::pin(Abortable::new(made, registration)));
        self.consumers.insert(of, Running { stop, handle: None, limit: None, is_held: false });
    }

    /// Whether that use of a channel consumes.
    pub(super) fn has(&self, of: Use) -> bool {
        self.consumers.contains_key(&of)
    }

    pub(super) fn raise(&mut self, of: Use, limit: Credit) {
        match self.consumers.get_mut(&of) {
            Some(Running { handle: Some(handle), .. }) => handle.raise(limit),
            Some(running) => running.limit = Some(limit),
            None => {}
        }
    }

    pub(super) fn hold(&mut self, of: Use, on: bool) {
        let Some(running) = self.consumers.get_mut(&of) else { return };
        running.is_held = on;
        if let Some(handle) = &running.handle {
            handle.hold(on);
        }
    }

    pub(super) fn settle(&mut self, of: Use, sent: Sent) {
        let Some(handle) = self.consumers.get(&of).and_then(|running| running.handle.clone()) else { return };
        let Sent { call, part, runs } = sent;
        self.settling.push(Box::pin(async move {
            let result = handle.settle(part, runs).await;
            QueueEvent::Settled { of, call, result }
        }));
    }

    /// Ends a consumer; what it holds stays its for the grace.
    pub(super) fn forget(&mut self, of: Use) {
        if let Some(running) = self.consumers.remove(&of) {
            running.stop.abort();
        }
    }

    /// Ends a consumer; what it holds is others' at once.
    pub(super) fn leave(&mut self, of: Use) {
        let Some(running) = self.consumers.remove(&of) else { return };
        running.stop.abort();
        if let Some(handle) = running.handle {
            self.leaving.push(Box::pin(async move { handle.leave().await }));
        }
    }

    /// The socket ends: what was asked for is done, and with `is_left` what else is held is others' at once. What is
    /// under way then is not told to anybody.
    pub(super) fn end(&mut self, is_left: bool) -> impl Future<Output = ()> + use<> {
        let Self { consumers, settling, leaving, .. } = std::mem::take(self);
        let handles: Vec<_> = consumers.into_values().filter_map(|running| running.handle).collect();
        async move {
            settling.all().await;
            leaving.all().await;
            if is_left {
                join_all(handles.iter().map(ConsumerHandle::leave)).await;
            }
        }
    }
}
