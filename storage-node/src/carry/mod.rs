//! Keeps the journal's files going where no object store takes old messages: what lives in the oldest one is carried
//! out of it, the log is purged above it, and the file goes. What a topic keeps for years then holds up no other topic.
//!
//! ```text
//!   journal files    oldest ─▶ [dead dead LIVE dead] [..] [..] ◀─ written
//!                                   │ the journal is 80 % full, and a checkpoint covers the file
//!                                   ▼
//!   carried files    [LIVE LIVE ..] [LIVE LIVE ..]   ◀─ tidied when much of one has died
//! ```
//!
//! Nothing is copied as long as there is room, nor ever of a file in which nothing lives, nor while nearly all bytes
//! live: then copies free nothing, and take the room that publishes still had. A batch is copied once out of
//! the log, and again only when so much of the carried file that it is in has died that this pays. The work is
//! done on a thread that gives way, at most so many bytes a second, unless publishes are about to be refused.
//! docs/adr/0021

mod living;
mod pace;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use weir_journal::{CarriedUsage, CarryError, Journal, Part, Span, StreamId, SyncMode};
use weir_protocol::ids::{LogIndex, ShardId};
use weir_protocol::rpc::Refusal;

use crate::background::Background;
use crate::raft::group;
use crate::replica::ShardHandle;
pub(crate) use pace::Pace;

/// How often it looks, and how often while there is something to do.
const ROUND: Duration = Duration::from_secs(1);
const SOON: Duration = Duration::from_millis(50);
/// How full the journal must be before anything is carried: the later, the more has died by itself, and the less is
/// copied: from 60 % on, a mix of lives cost half as much again.
const FROM_PERMILLE: u64 = 800;
/// How long something that went wrong is left alone.
const PAUSE: Duration = Duration::from_secs(5);
/// How often it is looked for carried files in which nothing lives while there is room.
const LOOK_AFTER: Duration = Duration::from_secs(60);
/// A look at all that was carried takes at most one part in so many of the time.
const LOOK_SHARE: u32 = 20;
/// A carried file is small below this part of a journal file, and so many small neighbours become one: so there are few
/// files, whatever they hold.
const SMALL_PART: u64 = 16;
const SMALL_MAX: usize = 8;

/// Carries for all shards of a node.
pub(crate) struct Carry {
    journal: Journal,
    shards: Arc<BTreeMap<ShardId, ShardHandle>>,
    background: Arc<Background>,
    pace: Pace,
    /// When a checkpoint was asked for, and what was applied then.
    asked: BTreeMap<ShardId, (Instant, Option<u64>)>,
    not_before: Instant,
    look_at: Instant,
    /// What was applied at the last look.
    looked: BTreeMap<ShardId, Option<u64>>,
    /// When it is next counted what has died in all, and whether that was enough.
    count_at: Instant,
    pays: bool,
}

/// Why a round did not come to its end.
#[derive(Debug, thiserror::Error)]
enum Stopped {
    #[error(transparent)]
    Journal(#[from] CarryError),
    #[error("{0}")]
    Sync(#[from] std::io::Error),
    #[error("{}", .0.detail)]
    Background(Refusal),
}

impl Carry {
    /// For `shards`, at most `bytes_per_s` as long as there is room.
    ///
    /// # Errors
    /// If the system gives no thread.
    pub(crate) fn new(
        journal: &Journal,
        shards: &Arc<BTreeMap<ShardId, ShardHandle>>,
        bytes_per_s: u64,
        stop: watch::Receiver<bool>,
    ) -> std::io::Result<Self> {
        let (journal, shards) = (journal.clone(), Arc::clone(shards));
        let background = Arc::new(Background::start("weir-carry")?);
        let pace = Pace::new(journal.clone(), bytes_per_s, stop);
        let now = Instant::now();
        let (asked, looked) = (BTreeMap::new(), BTreeMap::new());
        let (not_before, look_at, count_at, pays) = (now, now, now, false);
        Ok(Self { journal, shards, background, pace, asked, not_before, look_at, looked, count_at, pays })
    }

    /// Runs until the node stops.
    pub(crate) async fn run(mut self, mut stop: watch::Receiver<bool>) {
        let mut wait = ROUND;
        loop {
            tokio::select! {
                _ = stop.wait_for(|stopping| *stopping) => return,
                () = tokio::time::sleep(wait) => {}
            }
            wait = ROUND;
            if self.journal.failure().is_some() || Instant::now() < self.not_before {
                continue;
            }
            match self.round().await {
                Ok(true) => wait = SOON,
                Ok(false) => {}
                Err(Stopped::Journal(CarryError::Failed(_))) => {}
                // Nothing is lost by it: the files stay that it was about, and publishes are refused if that goes on.
                Err(why) => {
                    tracing::warn!(%why, "could not carry messages out of the oldest journal file; it is tried again");
                    self.not_before = Instant::now() + PAUSE;
                }
            }
        }
    }

    /// Does what is to be done; true if there may be more at once.
    async fn round(&mut self) -> Result<bool, Stopped> {
        let permille = self.pace.used_permille();
        if self.look_is_due(permille) {
            self.tidy(permille).await?;
        }
        if permille < FROM_PERMILLE && !self.is_short_of_files() {
            return Ok(false);
        }
        let Some((_, spans)) = self.journal.oldest_file() else { return Ok(false) };
        if !self.pays().await? {
            return Ok(false);
        }
        if !self.are_covered(&spans).await {
            return Ok(true);
        }
        self.carry(&spans).await?;
        for (stream, span) in &spans {
            let Some(shard) = self.shards.get(&ShardId(stream.0)) else { continue };
            if let Err(error) = shard.raft.trigger().purge_log(span.end - 1).await {
                tracing::warn!(shard = %shard.shard, %error, "the log was not freed");
            }
        }
        // The purge is lazy: it is stated with the next commit, which nobody else may cause.
        let purged = || {
            let first = |stream: &StreamId| self.journal.entries(*stream).start;
            spans.iter().all(|(stream, span)| first(stream) >= span.end)
        };
        for _ in 0..20 {
            if purged() {
                break;
            }
            tokio::time::sleep(SOON).await;
        }
        let told = self.journal.flush(StreamId(0), Box::new(|_| {}));
        told.unwrap_or_else(|error| tracing::debug!(%error, "the purge waits for the next commit"));
        Ok(!spans.is_empty())
    }

    /// Fewer than two files would still fit: with few large files that is so before the journal is as full as that.
    fn is_short_of_files(&self) -> bool {
        let (config, (used, _)) = (self.journal.config(), self.journal.fullness());
        used + 2 * u64::from(config.file_bytes) > config.max_bytes - config.control_reserve_bytes
    }

    /// Whether so much has died in all that carrying frees at least half a file. A copy stands beside the original
    /// until that file goes: where nearly all bytes live, publishes would only be refused sooner.
    async fn pays(&mut self) -> Result<bool, Stopped> {
        let began = Instant::now();
        if began < self.count_at {
            return Ok(self.pays);
        }
        let states = self.states();
        let lives = self.background.run(move || living::bytes_at_least(&states)).await;
        let (used, _) = self.journal.fullness();
        let dead = used.saturating_sub(lives.map_err(Stopped::Background)?);
        self.pays = dead >= u64::from(self.journal.config().file_bytes) / 2;
        self.count_at = Instant::now() + ROUND.max(began.elapsed() * LOOK_SHARE);
        Ok(self.pays)
    }

    /// Whether checkpoints cover these entries; asks for those that do not.
    async fn are_covered(&mut self, spans: &[Span]) -> bool {
        let mut all = true;
        for (stream, span) in spans {
            let Some(shard) = self.shards.get(&ShardId(stream.0)) else { continue };
            let covered = group::snapshot_index(&shard.raft);
            if covered.is_some_and(|covered| covered + 1 >= span.end) {
                continue;
            }
            all = false;
            // Each writes the whole state: one that did not come is not asked for again at once.
            let waits = |(at, before): &(Instant, Option<u64>)| *before == covered && at.elapsed() < PAUSE;
            if self.asked.get(&shard.shard).is_some_and(waits) {
                continue;
            }
            self.asked.insert(shard.shard, (Instant::now(), covered));
            if let Err(error) = shard.raft.trigger().snapshot().await {
                tracing::warn!(shard = %shard.shard, %error, "no checkpoint");
            }
        }
        all
    }

    /// Carries what lives of these entries.
    ///
    /// The state that says what lives has applied at least what the checkpoint covers, so every batch of these entries
    /// that was ever accepted is known to it, and none that has died comes to life again.
    async fn carry(&self, spans: &[Span]) -> Result<(), Stopped> {
        let (journal, mut pace) = (self.journal.clone(), self.pace.clone());
        let states = self.states();
        let spans = spans.to_vec();
        let work = move || {
            let parts = living::parts(&states, &spans);
            drop(states);
            if parts.is_empty() { Ok(0) } else { journal.carry(&parts, &mut |bytes| pace.wrote(bytes)) }
        };
        self.background.run(work).await.map_err(Stopped::Background)??;
        Ok(())
    }

    /// Copies of the states, which are cheap and stand still.
    fn states(&self) -> living::States {
        self.shards.values().map(|shard| (shard.stream(), shard.state.read().clone())).collect()
    }

    fn look_is_due(&self, permille: u64) -> bool {
        let now = Instant::now();
        if self.journal.usage().carried_bytes == 0 || now < self.look_at {
            return false;
        }
        permille >= FROM_PERMILLE
            || self
                .shards
                .values()
                .any(|shard| self.looked.get(&shard.shard) != Some(&group::applied_index(&shard.raft)))
    }

    /// Looks what has died of what was carried: files without anything that lives go, those with little are written
    /// anew. How little pays depends on how much room there is.
    async fn tidy(&mut self, permille: u64) -> Result<(), Stopped> {
        let began = Instant::now();
        let applied = |shard: &ShardHandle| (shard.shard, group::applied_index(&shard.raft));
        self.looked = self.shards.values().map(applied).collect();
        let (files, states) = (self.journal.carried(), self.states());
        // What made it die is durable before it goes: where commits are not synced, a power cut could bring it back.
        if self.journal.config().sync == SyncMode::Os {
            let (tell, told) = tokio::sync::oneshot::channel();
            let queued = self.journal.flush(StreamId(0), Box::new(move |done| drop(tell.send(done))));
            queued.map_err(std::io::Error::other)?;
            told.await.map_err(std::io::Error::other)?.map_err(std::io::Error::other)?;
        }
        let (journal, mut pace) = (self.journal.clone(), self.pace.clone());
        let small = u64::from(self.journal.config().file_bytes) / SMALL_PART;
        let whole = u64::from(self.journal.config().file_bytes);
        let work = move || -> Result<(), CarryError> {
            let lives = living::bytes_of(&states, &files);
            for run in runs(&files, &lives, (whole, small), dead_permille(permille)) {
                let ids: Vec<u64> = run.iter().map(|file| file.id).collect();
                let spans: Vec<_> = run.iter().flat_map(|file| file.spans.clone()).collect();
                let live: Vec<Part> = living::parts(&states, &spans);
                journal.tidy_carried(&ids, &live, &mut |bytes| pace.wrote(bytes))?;
            }
            Ok(())
        };
        let done = self.background.run(work).await.map_err(Stopped::Background)?;
        let rest = if permille < FROM_PERMILLE { LOOK_AFTER } else { ROUND };
        self.look_at = Instant::now() + rest.max(began.elapsed() * LOOK_SHARE);
        Ok(done?)
    }
}

/// How much of a carried file must have died before it is written anew, in thousandths: more copies as room gets short.
fn dead_permille(used: u64) -> u64 {
    match used {
        ..FROM_PERMILLE => 1_000,
        FROM_PERMILLE..850 => 500,
        850..900 => 250,
        _ => 100,
    }
}

/// Neighbours that become one file each: those of which so much has died, and small ones if there are many. `lives` has
/// the bytes that live in each file.
fn runs<'a>(
    files: &'a [CarriedUsage],
    lives: &[u64],
    (whole, small): (u64, u64),
    dead_permille: u64,
) -> Vec<&'a [CarriedUsage]> {
    let (mut runs, mut from) = (Vec::new(), 0);
    while from < files.len() {
        let (mut to, mut bytes, mut has_dead, mut is_small) = (from, 0, false, true);
        while let Some(file) = files.get(to) {
            let dead = file.data_bytes.saturating_sub(lives[to]);
            let pays = dead > 0 && dead * 1_000 >= file.data_bytes * dead_permille;
            let is_little = lives[to] < small;
            let fits = to == from || bytes + lives[to] <= whole;
            if !(pays || is_little) || !fits || to - from >= RUN_MAX {
                break;
            }
            bytes += lives[to];
            has_dead |= pays;
            is_small &= is_little;
            to += 1;
        }
        let run = &files[from..to];
        if has_dead || (is_small && run.len() >= SMALL_MAX) {
            runs.push(run);
        }
        from = to.max(from + 1);
    }
    runs
}

/// Files that become one at most.
const RUN_MAX: usize = 256;

/// Entries of a span, as the state counts them.
fn indexes(span: &Range<u64>) -> Range<LogIndex> {
    LogIndex(span.start)..LogIndex(span.end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(id: u64, data_bytes: u64) -> CarriedUsage {
        CarriedUsage { id, bytes: data_bytes + 8192, data_bytes, spans: Vec::new() }
    }

    fn chosen(sizes_and_lives: &[(u64, u64)], dead: u64) -> Vec<Vec<u64>> {
        let files: Vec<_> = (1..).zip(sizes_and_lives).map(|(id, (size, _))| file(id, *size)).collect();
        let lives: Vec<_> = sizes_and_lives.iter().map(|(_, lives)| *lives).collect();
        let runs = runs(&files, &lives, (1_000, 60), dead);
        runs.iter().map(|run| run.iter().map(|file| file.id).collect()).collect()
    }

    #[test]
    fn files_of_which_enough_has_died_become_one_with_their_neighbours() {
        let files = [(900, 900), (900, 400), (900, 450), (900, 460), (900, 800), (500, 0)];
        let none: [Vec<u64>; 0] = [];
        assert_eq!(chosen(&files[..5], 1_000), none, "there is room");
        assert_eq!(chosen(&files, 1_000), [vec![6]], "nothing lives in it");
        assert_eq!(chosen(&files, 500), [vec![2, 3], vec![6]]);
        assert_eq!(
            chosen(&files, 250),
            [vec![2, 3], vec![4], vec![6]],
            "no file is larger than a journal file"
        );
        assert_eq!(chosen(&files, 100), [vec![2, 3], vec![4], vec![5, 6]]);
    }

    #[test]
    fn small_files_become_one_when_there_are_many() {
        let small = vec![(10, 10); 7];
        let none: [Vec<u64>; 0] = [];
        assert_eq!(chosen(&small, 1_000), none);
        assert_eq!(chosen(&[&small[..], &[(10, 10)]].concat(), 1_000), [(1..=8).collect::<Vec<_>>()]);
        assert_eq!(
            chosen(&[&small[..], &[(900, 900), (10, 10)]].concat(), 1_000),
            none,
            "they are not neighbours"
        );
    }
}
