//! Where the messages of a partition are, and what the object store did for it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use weir_protocol::ids::{LogIndex, Offset};
use weir_protocol::limits::DAMAGED_OBJECTS_MAX;
use weir_protocol::rpc::{DamagedObject, PartitionStorage};
use weir_tier::store::requests_of;

use crate::clock;
use crate::replica::ShardHandle;
use crate::shard::state::{Pack, Packs, Partition, PartitionKey};
use crate::tier::{Damage, Tier};

/// Requests are counted over this long.
const DAY_MS: u64 = 24 * 3600 * 1000;

/// What is looked at once for all partitions of a shard that are asked for.
pub(crate) struct Whereabouts {
    tier: Arc<Tier>,
    packs: Arc<Packs>,
    /// First entry that the journal still has.
    in_log: LogIndex,
    now_ms: u64,
}

impl Whereabouts {
    /// `None` if the node has no object store.
    pub(crate) fn new(shard: &ShardHandle, packs: Arc<Packs>) -> Option<Self> {
        let tier = Arc::clone(shard.tier.as_ref()?);
        let in_log = LogIndex(shard.journal.entries(shard.stream()).start);
        Some(Self { tier, packs, in_log, now_ms: clock::now().0 })
    }

    /// Where the messages of this partition are.
    pub(crate) fn of(&self, key: PartitionKey, partition: &Partition) -> PartitionStorage {
        let archived_to = partition.unsealed_from();
        let (in_log_from, before) = partition.split_at_entry(self.in_log);
        // What is in no pack is in the journal: it pins its entries.
        let cold_to = in_log_from.min(archived_to);
        let packed_bytes = partition.bytes - partition.unsealed_bytes();
        let cold_bytes = before.min(packed_bytes);
        let under_way = self.tier.uploads.of(key).filter(|upload| upload.end > archived_to);
        let (uploading_to, uploading_bytes) =
            under_way.map_or((archived_to, 0), |upload| (upload.end.min(partition.end), upload.bytes));
        let uploading_bytes = uploading_bytes.min(partition.unsealed_bytes());
        let requests = self.requests(key, partition);
        let read = self.tier.cold.metrics().read_within_a_day(key);
        PartitionStorage {
            cold_to: cold_to.0,
            archived_to: archived_to.0,
            uploading_to: uploading_to.0,
            cold_bytes,
            archived_bytes: packed_bytes - cold_bytes,
            uploading_bytes,
            local_bytes: partition.unsealed_bytes() - uploading_bytes,
            upload_lag_ms: partition.oldest_unsealed().map_or(0, |row| self.now_ms.saturating_sub(row.ts.0)),
            object_bytes: requests.object_bytes,
            puts_per_day: requests.puts,
            gets_per_day: requests.gets + read.gets,
            blocks_asked_per_day: read.asked,
            blocks_missed_per_day: read.missed,
            read_bytes_per_day: read.get_bytes,
        }
    }

    /// Objects that its messages could not be read from, and still would be, newest failure first, no more than
    /// [`DAMAGED_OBJECTS_MAX`].
    pub(crate) fn damaged(&self, key: PartitionKey, partition: &Partition) -> Vec<DamagedObject> {
        let damages = self.tier.damaged.of(key);
        if damages.is_empty() {
            return Vec::new();
        }
        let is_damaged = |pack: &Pack| damages.iter().any(|damage| damage.lost.object.id() == pack.attempt);
        let mut in_object = BTreeMap::<u128, Range<Offset>>::new();
        for (no, records, _) in partition.packed_runs() {
            let Some(pack) = self.packs.get(no).filter(|pack| is_damaged(pack)) else { continue };
            let known = in_object.entry(pack.attempt).or_insert_with(|| records.clone());
            *known = known.start.min(records.start)..known.end.max(records.end);
        }
        let still = |Damage { lost, times, first, last }: Damage| {
            let all = in_object.get(&lost.object.id())?;
            let (from, to) = match lost.end {
                None => (all.start, all.end),
                Some(end) => (lost.from.max(all.start), end.min(all.end)),
            };
            let told = DamagedObject {
                object: lost.object.to_string(),
                why: lost.why,
                from: from.0,
                to: to.0,
                times,
                first_ms: first.0,
                last_ms: last.0,
            };
            (from < to).then_some(told)
        };
        damages.into_iter().filter_map(still).take(DAMAGED_OBJECTS_MAX).collect()
    }

    /// The partition's share, by bytes, of its packs and of the requests that made those of the last day.
    /// What was trimmed or rewritten since is counted as it was made, but for no longer than the node runs:
    /// more than either is not known.
    fn requests(&self, key: PartitionKey, partition: &Partition) -> Requests {
        let mut requests = Requests::default();
        for (no, _, bytes) in partition.packed_runs() {
            let Some(pack) = self.packs.get(no) else { continue };
            let share = share(bytes, pack);
            #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            let object_bytes = (pack.bytes as f64 * share).round() as u64;
            requests.object_bytes += object_bytes;
            let made_ms = ulid::Ulid(pack.attempt).timestamp_ms();
            if self.now_ms.saturating_sub(made_ms) < DAY_MS {
                let (puts, gets) = requests_of(pack.bytes);
                requests.puts += f64::from(puts) * share;
                requests.gets += f64::from(gets) * share;
            }
        }
        let (puts, gets) = self.tier.cold.metrics().written_within_a_day(key);
        (requests.puts, requests.gets) = (requests.puts.max(puts), requests.gets.max(gets));
        requests
    }
}

#[derive(Default)]
struct Requests {
    object_bytes: u64,
    puts: f64,
    gets: f64,
}

/// Which part of a pack so many bytes of its batches are. What nothing refers to any more is everybody's: the
/// object is paid for as long as it is there.
fn share(bytes: u64, pack: &Pack) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "an estimate for people")]
    let share = bytes as f64 / pack.living_bytes.max(1) as f64;
    share.min(1.0)
}
