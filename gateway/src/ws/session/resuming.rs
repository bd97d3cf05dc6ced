//! Where the channels of an earlier connection stood, until they go on. Pure.

use std::collections::HashMap;

use weir_protocol::ws::{Channel, ResumeChannel, Sub};

/// By channel.
#[derive(Debug, Default)]
pub(super) struct Resuming(HashMap<Channel, Stood>);

#[derive(Debug)]
struct Stood {
    at: ResumeChannel,
    /// The `sub` that was refused: no other goes on there.
    asked: Option<Asked>,
}

/// What a `sub` is about: namespace, topic, subscription, partition.
type Asked = (Option<String>, Option<String>, Option<String>, Option<u32>);

fn asked(sub: &Sub) -> Asked {
    (sub.ns.clone(), sub.topic.clone(), sub.sub.clone(), sub.p)
}

impl Resuming {
    /// What `hello` named.
    pub(super) fn new(channels: Vec<ResumeChannel>) -> Self {
        // Which deliveries were settled their partitions know; said again, they are not kept until somebody subscribes.
        let kept = |at: ResumeChannel| {
            (Channel(at.ch), Stood { at: ResumeChannel { acked: Vec::new(), ..at }, asked: None })
        };
        Self(channels.into_iter().map(kept).collect())
    }

    /// Where a `sub` goes on. It is forgotten when that has begun, and not if it is refused.
    pub(super) fn take(&mut self, ch: Channel, sub: &Sub) -> Option<ResumeChannel> {
        let asked = asked(sub);
        let stood = self.0.get_mut(&ch)?;
        if stood.asked.get_or_insert_with(|| asked.clone()) != &asked {
            self.forget(ch);
            return None;
        }
        Some(stood.at.clone())
    }

    /// What is kept of a channel.
    #[cfg(test)]
    pub(super) fn kept(&self, ch: Channel) -> Option<&ResumeChannel> {
        self.0.get(&ch).map(|stood| &stood.at)
    }

    /// What was asked for was refused. If no retry can help, nobody knows whether the place is one of what is there
    /// now: who asks again begins anew, and is told that something may be missing.
    pub(super) fn refused(&mut self, ch: Channel, is_retryable: bool) {
        if let Some(stood) = self.0.get_mut(&ch).filter(|_| !is_retryable) {
            stood.at.inc = None;
            stood.at.seen.clear();
        }
    }

    /// The channel has gone on, or its client wants something else of it.
    pub(super) fn forget(&mut self, ch: Channel) {
        self.0.remove(&ch);
    }
}
