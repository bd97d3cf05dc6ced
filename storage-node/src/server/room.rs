//! Why there is no room, and which topics keep it.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::RwLock;
use weir_journal::{Full, Journal, StreamId};
use weir_protocol::error::ErrorCode;
use weir_protocol::ids::ShardId;
use weir_protocol::rpc::Refusal;

use crate::clock;
use crate::replica::ShardHandle;
use crate::shard::state::ShardState;
use crate::tier::Tier;

/// Topics that a refusal names.
const NAMED: usize = 5;

/// The journal that all shards share, and what each of them keeps in it. Cheap to clone.
#[derive(Clone)]
pub struct Room {
    journal: Journal,
    states: Arc<BTreeMap<StreamId, Arc<RwLock<ShardState>>>>,
    /// Where old messages go, if anywhere.
    tier: Option<Arc<Tier>>,
}

impl Room {
    /// The room that `shards` share.
    #[must_use]
    pub fn new(journal: Journal, shards: &BTreeMap<ShardId, ShardHandle>) -> Self {
        let states = shards.values().map(|shard| (shard.stream(), Arc::clone(&shard.state)));
        let tier = shards.values().find_map(|shard| shard.tier.clone());
        Self { journal, states: Arc::new(states.collect()), tier }
    }

    /// Says why there is no room, and who keeps it: whichever shard was asked, a file is freed by all of them.
    pub(super) fn refusal(&self, full: Full) -> Refusal {
        match full {
            Full::Busy { .. } => {
                Refusal { retry_after_ms: Some(100), ..Refusal::new(ErrorCode::Busy, full.to_string()) }
            }
            Full::Journal { .. } | Full::Index { .. } | Full::Disk { .. } => {
                let pinning = self.oldest_topics().join(", ");
                let detail = match (pinning.as_str(), self.waits_for_store()) {
                    ("", None) => full.to_string(),
                    ("", Some(store)) => format!("{full}; {store}"),
                    (_, Some(store)) => format!("{full}; {store}. The oldest messages belong to: {pinning}"),
                    (_, None) => format!(
                        "{full}; the oldest messages belong to: {pinning}. Shorten retention, trim or delete topics"
                    ),
                };
                Refusal { retry_after_ms: Some(1_000), ..Refusal::new(ErrorCode::JournalFull, detail) }
            }
        }
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
