//! Who keeps the journal full, in good time: from 70 % on they are known by name.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use weir_journal::{Journal, StreamId};
use weir_protocol::ids::TimestampMs;

use crate::clock;
use crate::shard::state::{Keeps, Kept, ShardState};

/// Named at most.
pub(crate) const NAMED: usize = 5;
/// How full the journal is, in thousandths, when they are looked for, and below what it is over.
const FROM_PERMILLE: u64 = 700;
const BELOW_PERMILLE: u64 = 650;
/// How often they are looked for, and at most for what part of the time.
const EVERY: Duration = Duration::from_secs(10);
const SHARE: u32 = 20;

/// One who keeps messages in the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// Why.
    pub keeps: Keeps,
    /// Name, with its namespace.
    pub name: String,
    /// How much, and since when.
    pub kept: Kept,
}

/// Those who keep most, as far as they have been looked for. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Holders(Arc<Mutex<Found>>);

#[derive(Debug, Default)]
struct Found {
    /// How full the journal is; `None` if nobody need know.
    used_permille: Option<u64>,
    holders: Vec<Holder>,
    next: Option<Instant>,
}

type States = BTreeMap<StreamId, Arc<RwLock<ShardState>>>;

impl Holders {
    /// Those who keep most, most first; none while there is room.
    #[must_use]
    pub fn named(&self) -> Vec<Holder> {
        self.0.lock().holders.clone()
    }

    /// What whoever looks after the node should know; `None` while there is room.
    #[must_use]
    pub fn warning(&self) -> Option<String> {
        let found = self.0.lock();
        let used = found.used_permille?;
        let now = clock::now();
        let names: Vec<_> = found.holders.iter().map(|holder| holder.sentence(now)).collect();
        Some(format!(
            "the journal is {} % full; at 100 % publishes are refused. Most of it is kept by: {}",
            used / 10,
            names.join(", ")
        ))
    }

    /// Looks how full it is and, if need be, for who keeps most.
    pub(crate) async fn look(&self, journal: &Journal, states: &Arc<States>) {
        let (used, max) = journal.fullness();
        let limit = max.saturating_sub(journal.config().control_reserve_bytes).max(1);
        let permille = used.saturating_mul(1_000) / limit;
        let (was, next) = {
            let found = self.0.lock();
            (found.used_permille, found.next)
        };
        let is_enough = if was.is_some() { BELOW_PERMILLE } else { FROM_PERMILLE };
        if permille < is_enough {
            *self.0.lock() = Found::default();
            if was.is_some() {
                tracing::info!(used_permille = permille, "the journal has room again");
            }
            return;
        }
        self.0.lock().used_permille = Some(permille);
        let began = Instant::now();
        if next.is_some_and(|next| began < next) {
            return;
        }
        let states = Arc::clone(states);
        // Copies stand still and cost little: who applies does not wait.
        let find = move || most(states.values().map(|state| state.read().clone()));
        let Ok(holders) = tokio::task::spawn_blocking(find).await else { return };
        {
            let mut found = self.0.lock();
            found.holders = holders;
            found.next = Some(Instant::now() + EVERY.max(began.elapsed() * SHARE));
        }
        if was.is_none()
            && let Some(warning) = self.warning()
        {
            tracing::warn!("{warning}");
        }
    }
}

impl Holder {
    fn sentence(&self, now: TimestampMs) -> String {
        let hours = now.0.saturating_sub(self.kept.since.0) / 3_600_000;
        let mib = self.kept.bytes.div_ceil(1 << 20);
        format!("{} {} ({mib} MiB, the oldest for {hours} h)", self.keeps.word(), self.name)
    }
}

/// Those who keep most, in all shards together.
fn most(states: impl Iterator<Item = ShardState>) -> Vec<Holder> {
    let mut all: BTreeMap<(Keeps, String), Kept> = BTreeMap::new();
    for (who, more) in states.flat_map(|state| state.holding()) {
        let kept = all.entry(who).or_insert(Kept { bytes: 0, since: more.since });
        (kept.bytes, kept.since) = (kept.bytes + more.bytes, kept.since.min(more.since));
    }
    let mut holders: Vec<_> =
        all.into_iter().map(|((keeps, name), kept)| Holder { keeps, name, kept }).collect();
    holders.sort_by_key(|holder| std::cmp::Reverse(holder.kept.bytes));
    holders.truncate(NAMED);
    holders
}
