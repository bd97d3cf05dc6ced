//! Why there is no room, and which topics keep it: for those who are refused, and for the log when that
//! begins and ends.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;
use weir_journal::{Class, Full, Journal, StreamId};
use weir_protocol::error::ErrorCode;
use weir_protocol::ids::ShardId;
use weir_protocol::rpc::{Refusal, TopicName};

use crate::clock;
use crate::holders::Holders;
use crate::replica::ShardHandle;
use crate::shard::state::ShardState;
use crate::tier::Tier;

/// Topics that a refusal names.
const NAMED: usize = 5;
/// How often it is looked whether there is room again.
const ROUND: Duration = Duration::from_secs(1);
/// There is room again once nobody was refused for so long: a journal from which as much goes as comes is
/// full every few moments, which is one time to whoever reads the log.
const QUIET: Duration = Duration::from_secs(5);

/// The journal that all shards share, and what each of them keeps in it. Cheap to clone.
#[derive(Clone)]
pub struct Room {
    journal: Journal,
    states: Arc<BTreeMap<StreamId, Arc<RwLock<ShardState>>>>,
    /// Where old messages go, if anywhere.
    tier: Option<Arc<Tier>>,
    /// What the log was told of.
    shortage: Arc<Mutex<Option<Shortage>>>,
    holders: Holders,
}

/// A time in which there is no room.
#[derive(Debug, Clone, Copy)]
struct Shortage {
    began: Instant,
    last: Instant,
    refused: u64,
}

impl Shortage {
    /// Somebody is refused; true if it begins with that.
    fn refused(this: &mut Option<Self>, now: Instant) -> bool {
        let begins = this.is_none();
        let Self { last, refused, .. } = this.get_or_insert(Self { began: now, last: now, refused: 0 });
        (*last, *refused) = (now, *refused + 1);
        begins
    }

    /// Ends it if there `is_room` and nobody was refused for [`QUIET`].
    fn ended(this: &mut Option<Self>, now: Instant, is_room: bool) -> Option<Self> {
        this.take_if(|shortage| is_room && now.saturating_duration_since(shortage.last) >= QUIET)
    }
}

impl Room {
    /// The room that `shards` share.
    #[must_use]
    pub fn new(journal: Journal, shards: &BTreeMap<ShardId, ShardHandle>) -> Self {
        let states = shards.values().map(|shard| (shard.stream(), Arc::clone(&shard.state)));
        let tier = shards.values().find_map(|shard| shard.tier.clone());
        Self {
            journal,
            states: Arc::new(states.collect()),
            tier,
            shortage: Arc::default(),
            holders: Holders::default(),
        }
    }

    /// Who keeps most of it, once it is nearly full.
    #[must_use]
    pub fn holders(&self) -> &Holders {
        &self.holders
    }

    /// Tells the log once publishes are taken again, and in good time before they are refused. Runs until the
    /// node stops.
    pub async fn watch(self, mut stop: watch::Receiver<bool>) {
        loop {
            tokio::select! {
                _ = stop.wait_for(|stopping| *stopping) => return,
                () = tokio::time::sleep(ROUND) => {}
            }
            self.holders.look(&self.journal, &self.states).await;
            if self.shortage.lock().is_none() {
                continue;
            }
            // For whatever may come: beside large messages, which find none, small ones may find what is left
            // of a file.
            let most = u64::from(self.journal.config().max_block_bytes);
            let is_room = self.journal.try_admit(most, Class::Data).is_ok();
            let ended = Shortage::ended(&mut self.shortage.lock(), Instant::now(), is_room);
            if let Some(Shortage { began, last, refused }) = ended {
                let seconds = last.duration_since(began).as_secs();
                tracing::info!(refused, seconds, "there is room again: publishes are taken");
            }
        }
    }

    /// Says why there is no room, and who keeps it: whichever shard was asked, a file is freed by all of them.
    pub(super) fn refusal(&self, full: Full) -> Refusal {
        match full {
            Full::Busy { .. } => {
                Refusal { retry_after_ms: Some(100), ..Refusal::new(ErrorCode::Busy, full.to_string()) }
            }
            Full::Descriptors { .. } => {
                let detail = full.to_string();
                if Shortage::refused(&mut self.shortage.lock(), Instant::now()) {
                    tracing::warn!(why = detail, "there is no room: publishes are refused");
                }
                Refusal { retry_after_ms: Some(1_000), ..Refusal::new(ErrorCode::JournalFull, detail) }
            }
            Full::Journal { .. } | Full::Index { .. } | Full::Disk { .. } => {
                let pinning = self.oldest_topics().join(", ");
                let letters = self.waiting_letters().unwrap_or_default();
                let detail = match (pinning.as_str(), self.waits_for_store()) {
                    ("", None) => full.to_string(),
                    ("", Some(store)) => format!("{full}; {store}"),
                    (_, Some(store)) => format!("{full}; {store}. The oldest messages belong to: {pinning}"),
                    (_, None) => format!(
                        "{full}; {}. Shorten retention, trim or delete topics",
                        self.kept_by(&pinning)
                    ),
                } + &letters;
                if Shortage::refused(&mut self.shortage.lock(), Instant::now()) {
                    tracing::warn!(why = detail, "there is no room: publishes are refused");
                }
                Refusal { retry_after_ms: Some(1_000), ..Refusal::new(ErrorCode::JournalFull, detail) }
            }
        }
    }

    /// Who keeps it: those who keep most, as far as they are known, and who keeps the oldest messages.
    fn kept_by(&self, oldest: &str) -> String {
        let most = self.holders.named();
        if most.is_empty() {
            return format!("the oldest messages belong to: {oldest}");
        }
        let names = most.iter().map(|holder| format!("{} {}", holder.keeps.word(), holder.name));
        let names = names.collect::<Vec<_>>().join(", ");
        format!("most of it is kept by: {names}; the oldest messages belong to: {oldest}")
    }

    /// What is to be done about dead letters that keep a shard's oldest entries, if any do.
    fn waiting_letters(&self) -> Option<String> {
        let topic = self.states.values().find_map(|state| state.read().pinned_for_letters().cloned())?;
        let TopicName { namespace, topic, .. } = topic;
        Some(format!(
            ". Dead letters wait for their topic {namespace}/{topic}: create or open it, and they leave"
        ))
    }

    /// What is to be done about messages that have not left for the object store, if there is one and some have not.
    fn waits_for_store(&self) -> Option<String> {
        let tier = self.tier.as_ref()?;
        let oldest = self
            .states
            .values()
            .filter_map(|state| state.read().oldest_unsealed())
            .map(|row| row.ts)
            .min()?;
        let age = clock::now().0.saturating_sub(oldest.0) / 1_000;
        let store = tier.uploads.failure().map(|why| {
            format!(
                "messages do not leave it for the object store, for {age} s: {why}. Publishes go on by themselves once the \
                 store takes them"
            )
        });
        Some(match (tier.uploads.unreadable(), store) {
            // That one stays until somebody does something, whatever the store does.
            (Some(what), Some(store)) => format!("{what}. Also, {store}"),
            (Some(what), None) => what,
            (None, Some(store)) => store,
            (None, None) => format!(
                "messages leave it for the object store more slowly than they come, the oldest has waited for {age} s. \
                 Publishes go on by themselves; if this lasts, publish less or give the journal more room"
            ),
        })
    }

    /// Topics with the oldest messages in turns of the shards that keep journal files, the oldest file's first.
    fn oldest_topics(&self) -> Vec<String> {
        let mut shards = Vec::new();
        for (stream, _) in self.journal.usage().files.iter().flat_map(|file| &file.pinned_by) {
            if !shards.contains(stream) {
                shards.push(*stream);
            }
        }
        let states = shards.iter().filter_map(|stream| self.states.get(stream));
        let topics: Vec<_> = states.map(|state| state.read().oldest_topics(NAMED)).collect();
        let in_turns = (0..NAMED).flat_map(|turn| topics.iter().filter_map(move |of| of.get(turn)));
        let mut named: Vec<String> = Vec::new();
        for topic in in_turns {
            if named.len() < NAMED && !named.contains(topic) {
                named.push(topic.clone());
            }
        }
        named
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shortage_is_told_once_however_many_are_refused_and_ends_when_nobody_is_any_more() {
        let (begun, mut shortage) = (Instant::now(), None);
        let at = |ms: u64| begun + Duration::from_millis(ms);
        let quiet = u64::try_from(QUIET.as_millis()).unwrap();
        assert!(Shortage::ended(&mut shortage, at(0), true).is_none(), "there was none");
        assert!(Shortage::refused(&mut shortage, at(0)));
        assert!(!Shortage::refused(&mut shortage, at(10)));
        assert!(
            Shortage::ended(&mut shortage, at(9 + quiet), true).is_none(),
            "one was refused a moment ago"
        );
        assert!(
            Shortage::ended(&mut shortage, at(10 + quiet), false).is_none(),
            "nobody asked, and it is full"
        );
        let ended = Shortage::ended(&mut shortage, at(10 + quiet), true).unwrap();
        assert_eq!((ended.began, ended.last, ended.refused), (at(0), at(10), 2));
        assert!(Shortage::refused(&mut shortage, at(20 + quiet)), "another one");
    }
}
