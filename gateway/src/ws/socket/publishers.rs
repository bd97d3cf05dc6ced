//! What a socket publishes with: channels that are open, and those that are being opened.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::{AbortHandle, Abortable, Aborted, BoxFuture};

use crate::service::ServiceError;
use crate::service::publish::{OpenChannel, PublishChannel};
use crate::under_way::UnderWay;
use crate::ws::effect::Use;
use crate::ws::gate::Gated;
use crate::ws::publishing::Found;

/// A channel that was opened, or not, or given up before.
pub(super) type Opened = Result<(Use, Result<PublishChannel, ServiceError>), Aborted>;

/// All that one socket publishes with.
#[derive(Default)]
pub(super) struct Publishers {
    channels: HashMap<Use, Publisher>,
    opening: UnderWay<BoxFuture<'static, Opened>>,
}

enum Publisher {
    /// Ends the future, wherever it waits.
    Opening(AbortHandle),
    Open(Box<PublishChannel>),
}

impl Publishers {
    /// What was opened next; `None` if nothing is being opened.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub(super) async fn next(&mut self) -> Option<Opened> {
        self.opening.next().await
    }

    /// The same of what is there by now.
    pub(super) fn opened_by_now(&mut self) -> Option<Opened> {
        self.opening.next().now_or_never().flatten()
    }

    pub(super) fn open(&mut self, of: Use, gated: Arc<Gated>, open: OpenChannel) {
        let (stop, registration) = AbortHandle::new_pair();
        let opened = async move {
            let opened = async {
                gated.pass(&open.topic.tenant, &open.topic.namespace).await?;
                gated.services.publisher.open(open).await
            };
            (of, opened.await)
        };
        self.opening.push(Box::pin(Abortable::new(opened, registration)));
        self.channels.insert(of, Publisher::Opening(stop));
    }

    /// Keeps a channel that was opened; what was found, for its session. `None` if it was given up.
    pub(super) fn opened(&mut self, opened: Opened) -> Option<(Use, Result<Found, ServiceError>)> {
        let (of, opened) = opened.ok()?;
        let publisher = self.channels.get_mut(&of)?;
        let found = opened.map(|channel| {
            let found = Found {
                last_seq: channel.last_seq.map(|seq| seq.0),
                highest: channel.highest.map(|seq| seq.0),
                incarnation: channel.topic.incarnation.0,
                partitions: channel.topic.partitions(),
                levels: channel.levels(),
                has_producer: false,
            };
            *publisher = Publisher::Open(Box::new(channel));
            found
        });
        Some((of, found))
    }

    /// A channel that is open.
    pub(super) fn get(&self, of: Use) -> Option<&PublishChannel> {
        match self.channels.get(&of)? {
            Publisher::Open(channel) => Some(channel),
            Publisher::Opening(_) => None,
        }
    }

    pub(super) fn forget(&mut self, of: Use) {
        if let Some(Publisher::Opening(stop)) = self.channels.remove(&of) {
            stop.abort();
        }
    }
}
