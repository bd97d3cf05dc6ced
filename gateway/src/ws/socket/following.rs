//! What a socket follows: the first subscription is waited for by the socket's task itself, others by futures.

use futures_util::FutureExt as _;
use futures_util::future::{AbortHandle, Abortable, pending};
use weir_protocol::rpc::Credit;

use super::{Came, Followed, Socket, TOGETHER_BYTES_MAX};
use crate::service::ServiceError;
use crate::service::read::{Subscription, SubscriptionCredit, SubscriptionEvent};
use crate::ws::effect::Use;

/// A subscription, from outside of the future that drives it.
pub(super) struct Follower {
    /// Ends the future, wherever it waits.
    pub(super) stop: AbortHandle,
    /// `None` until the subscription has been made.
    pub(super) credit: Option<SubscriptionCredit>,
    /// Limit that came before that.
    pub(super) limit: Option<Credit>,
    pub(super) is_held: bool,
    /// What came while it was held.
    pub(super) waiting: Option<(Box<Subscription>, Came)>,
}

/// A subscription that the task itself waits for.
pub(super) struct First {
    pub(super) of: Use,
    subscription: Box<Subscription>,
    is_held: bool,
    /// It had nothing more when it was last looked at.
    is_drained: bool,
}

/// What it has next; waits for ever if there is none, or it is held.
pub(super) async fn next_of(first: Option<&mut First>) -> Result<SubscriptionEvent, ServiceError> {
    match first {
        Some(First { subscription, is_held: false, .. }) => subscription.next().await,
        _ => pending().await,
    }
}

impl Socket {
    pub(super) fn subscribed(&mut self, of: Use, subscribed: Result<Subscription, ServiceError>) {
        let Some(follower) = self.followers.get_mut(&of) else { return };
        match subscribed {
            Err(failure) => self.session.ended(of, &failure),
            Ok(subscription) => {
                let credit = subscription.credit();
                if let Some(limit) = follower.limit {
                    credit.raise(limit);
                }
                follower.credit = Some(credit);
                self.follow_on(of, Box::new(subscription));
            }
        }
    }

    /// What the first has, unless it was looked at just now.
    pub(super) fn first_by_now(&mut self) -> Option<Result<SubscriptionEvent, ServiceError>> {
        if self.first.as_ref()?.is_drained {
            return None;
        }
        next_of(self.first.as_mut()).now_or_never()
    }

    /// Takes in what the first has, and what is there right behind it.
    pub(super) fn followed_first(&mut self, event: Result<SubscriptionEvent, ServiceError>) {
        let Some(first) = &mut self.first else { return };
        let incarnation = first.subscription.topics.first().map_or(0, |topic| topic.incarnation.0);
        let (mut next, mut bytes) = (Some(event), 0);
        while let Some(event) = next {
            let event = match event {
                Ok(event) => event,
                Err(failure) => {
                    let of = first.of;
                    self.first = None;
                    return self.session.ended(of, &failure);
                }
            };
            let goes_on = match &event {
                SubscriptionEvent::Records { bytes: more, .. } => {
                    bytes += more;
                    bytes < TOGETHER_BYTES_MAX
                }
                _ => false,
            };
            self.session.happened(first.of, incarnation, event);
            next = if goes_on { first.subscription.next().now_or_never() } else { None };
            first.is_drained = goes_on && next.is_none();
        }
    }

    /// Waits for what the subscription has next, and takes what is there right behind it: what comes together costs one
    /// future, and one write.
    fn follow_on(&mut self, of: Use, mut subscription: Box<Subscription>) {
        let Some(follower) = self.followers.get_mut(&of) else { return };
        if self.first.is_none() {
            let is_held = follower.is_held;
            self.first = Some(First { of, subscription, is_held, is_drained: false });
            return;
        }
        let (stop, registration) = AbortHandle::new_pair();
        follower.stop = stop;
        let next = async move {
            let mut next = Some(subscription.next().await);
            let (mut came, mut bytes) = (Vec::new(), 0);
            while let Some(event) = next {
                let goes_on = matches!(event, Ok(SubscriptionEvent::Records { .. }));
                if let Ok(SubscriptionEvent::Records { bytes: more, .. }) = &event {
                    bytes += more;
                }
                came.push(event);
                let is_enough = !goes_on || bytes >= TOGETHER_BYTES_MAX;
                next = if is_enough { None } else { subscription.next().now_or_never() };
            }
            (of, subscription, came)
        };
        self.following.push(Box::pin(Abortable::new(next, registration)));
    }

    pub(super) fn followed(&mut self, (of, subscription, came): Followed) {
        let Some(follower) = self.followers.get_mut(&of) else { return };
        if follower.is_held {
            follower.waiting = Some((subscription, came));
            return;
        }
        let incarnation = subscription.topics.first().map_or(0, |topic| topic.incarnation.0);
        for event in came {
            match event {
                Err(failure) => return self.session.ended(of, &failure),
                Ok(event) => self.session.happened(of, incarnation, event),
            }
        }
        self.follow_on(of, subscription);
    }

    pub(super) fn hold(&mut self, of: Use, on: bool) {
        let Some(follower) = self.followers.get_mut(&of) else { return };
        follower.is_held = on;
        if let Some(first) = self.first.as_mut().filter(|first| first.of == of) {
            (first.is_held, first.is_drained) = (on, false);
        }
        if !on && let Some((subscription, came)) = follower.waiting.take() {
            self.followed((of, subscription, came));
        }
    }
}
