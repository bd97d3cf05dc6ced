//! Tests of taking states to a store that fails: what a restore would find there.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use tokio::sync::watch;
use weir_protocol::ids::{LogIndex, Term};
use weir_tier::faults::of_a_newer_build;
use weir_tier::snapshot::{Kind, Manifest, ManifestName, Published, ShardSnapshot, wrap};

use super::super::exporter::ExporterError;
use super::super::making::SealError;
use super::*;
use crate::shard::state::ShardState;

impl Play {
    fn tier(&self) -> &Tier {
        self.shards[&ShardId(1)].tier.as_ref().unwrap()
    }

    async fn numbers(&self) -> Vec<u64> {
        self.tier().exports.numbers().await.unwrap()
    }

    /// Every pack that the newest manifest's states name is there.
    async fn check_packs(&self) {
        let tier = self.tier();
        let newest = *self.numbers().await.last().unwrap();
        for named in &tier.exports.manifest(newest).await.unwrap().shards {
            let state = tier.exports.snapshot(named).await.unwrap();
            let state = ShardState::decode(named.shard(), &state).unwrap();
            for (_, pack) in state.packs().live() {
                let pack = pack.name(tier.cluster, named.shard()).to_string();
                tier.cold.store().size(&pack).await.unwrap();
            }
        }
    }

    /// A manifest of another start, whose states are nowhere.
    async fn publish_manifest(&self, number: u64, epoch: u64) {
        let at = |shard| ShardSnapshot {
            shard,
            term: Term(1).0,
            index: LogIndex(1).0,
            attempt: u128::from(shard).into(),
            ..ShardSnapshot::default()
        };
        let writer = 1_u128.into();
        let shards = (0..3).map(at).collect();
        let manifest =
            Manifest { number, epoch, data_shards: 2, dedupe_rows: 1_000, writer, shards, written_ms: 1 };
        assert_eq!(self.tier().exports.publish(&manifest, None).await.unwrap(), Published::Ours);
    }

    /// The same of a build that writes what this one cannot read.
    async fn publish_newer(&self, number: u64) {
        let manifest = Manifest { number, ..Manifest::default() };
        let bytes = wrap(Kind::Manifest, self.tier().cluster, &manifest.encode_to_vec());
        let name = ManifestName { cluster: self.tier().cluster, number }.to_string();
        self.tier().cold.store().create(&name, of_a_newer_build(&bytes)).await.unwrap();
    }

    async fn publish_damaged(&self, number: u64) {
        let name = ManifestName { cluster: self.tier().cluster, number }.to_string();
        self.tier().cold.store().create(&name, Bytes::from_static(b"no manifest")).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_manifest_whose_answer_was_lost_keeps_its_packs() {
    let faults = Faults::default();
    let mut play = Play::start(&faults).await;
    let key = play.create(1, "t").await;
    play.publish(1, key).await;
    faults.named(Some((Op::Put, ".manifest", Fault::AnswerLost)));
    play.sealer.round().await.unwrap_err();
    assert_eq!((play.packs(1), play.numbers().await), ((1, 0), vec![1]));
    play.delete(1, "t").await;
    faults.named(Some((Op::Put, ".manifest", Fault::Error)));
    play.sealer.round().await.unwrap_err();
    assert_eq!((play.packs(1), play.numbers().await), ((0, 1), vec![1]));
    play.check_packs().await;
    // The next one that is answered settles it, and once it is too old the pack goes.
    faults.named(None);
    for _ in 0..6 {
        play.sealer.round().await.unwrap();
        play.check_packs().await;
    }
    assert_eq!(play.packs(1), (0, 0));
    play.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn states_that_are_in_the_store_are_not_sent_again_because_the_manifest_is_not() {
    let faults = Faults::default();
    let mut play = Play::start(&faults).await;
    let key = play.create(1, "t").await;
    play.publish(1, key).await;
    faults.named(Some((Op::Put, ".manifest", Fault::Error)));
    play.sealer.round().await.unwrap_err();
    let before = faults.requests(Op::Put);
    for _ in 0..10 {
        play.sealer.round().await.unwrap_err();
    }
    assert_eq!(faults.requests(Op::Put) - before, 10, "one for each manifest");
    faults.named(None);
    play.sealer.round().await.unwrap();
    play.check_packs().await;
    play.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sweep_right_after_a_manifest_needs_no_other() {
    let mut play = Play::start(&Faults::default()).await;
    let key = play.create(1, "t").await;
    play.publish(1, key).await;
    // The first round of a start sweeps.
    play.sealer.round().await.unwrap();
    assert_eq!(play.numbers().await, [1]);
    play.check_packs().await;
    // One without news writes one: nobody who was deposed meanwhile removes anything.
    play.sealer.next_sweep = Instant::now();
    play.sealer.round().await.unwrap();
    assert_eq!(play.numbers().await, [1, 2]);
    play.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_deletes_nothing_gets_no_more_manifests_than_there_is_news() {
    let faults = Faults::default();
    let mut play = Play::start(&faults).await;
    for number in 1..=3 {
        play.publish_manifest(number, 0).await;
    }
    faults.always(Some((Op::Delete, Fault::Error)));
    for _ in 0..20 {
        play.sealer.round().await.unwrap();
    }
    let numbers = play.numbers().await;
    // One for the news of a start, one for the search.
    assert!((4..=6).contains(&numbers.len()), "{numbers:?}");
    what_is_too_old_goes_once_it_can(play, &faults).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_reads_a_few_manifests_however_many_the_store_does_not_delete() {
    let faults = Faults::default();
    let mut play = Play::start(&faults).await;
    let many = 60;
    for number in 1..=many {
        play.publish_manifest(number, 0).await;
    }
    faults.always(Some((Op::Delete, Fault::Error)));
    let before = faults.requests(Op::Get);
    play.sealer.round().await.unwrap();
    let reads = faults.requests(Op::Get) - before;
    assert!(reads < 20, "{reads} requests");
    assert_eq!(play.numbers().await.last(), Some(&(many + 1)));
    what_is_too_old_goes_once_it_can(play, &faults).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_manifest_is_passed_over_at_a_start_and_later() {
    let faults = Faults::default();
    let mut play = Play::start(&faults).await;
    play.publish_damaged(1).await;
    play.sealer.round().await.unwrap();
    let newest = *play.numbers().await.last().unwrap();
    assert!(newest > 1);
    play.publish_damaged(newest + 1).await;
    let key = play.create(1, "t").await;
    play.publish(1, key).await;
    // It may be the way that damaged it, once.
    play.sealer.round().await.unwrap_err();
    play.sealer.round().await.unwrap();
    assert!(*play.numbers().await.last().unwrap() > newest + 1);
    play.check_packs().await;
    play.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_finds_anothers_manifest_under_its_number_is_deposed() {
    let faults = Faults::default();
    let mut play = Play::start(&faults).await;
    play.sealer.round().await.unwrap();
    let newest = *play.numbers().await.last().unwrap();
    play.publish_manifest(newest + 1, 1).await;
    let key = play.create(1, "t").await;
    play.publish(1, key).await;
    let deposed = play.sealer.round().await.unwrap_err();
    assert!(matches!(deposed, SealError::Export(ExporterError::Deposed(_))), "{deposed}");
    assert_eq!(*play.numbers().await.last().unwrap(), newest + 1);
    play.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_manifest_of_a_newer_build_is_anothers_and_no_damage() {
    for has_published in [true, false] {
        let faults = Faults::default();
        let mut play = Play::start(&faults).await;
        if has_published {
            play.sealer.round().await.unwrap();
        }
        let newest = play.numbers().await.last().copied().unwrap_or(0);
        play.publish_newer(newest + 1).await;
        let key = play.create(1, "t").await;
        play.publish(1, key).await;
        for _ in 0..2 {
            let deposed = play.sealer.round().await.unwrap_err();
            let said = deposed.to_string();
            assert!(matches!(deposed, SealError::Export(ExporterError::Deposed(_))), "{said}");
            assert!(said.contains("newer one") && said.contains("Nothing more is sealed"), "{said}");
        }
        assert_eq!(play.numbers().await.last(), Some(&(newest + 1)), "nobody replaces it");
        play.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_deposed_says_why_nothing_leaves_the_journal() {
    let mut play = Play::start(&Faults::default()).await;
    play.sealer.round().await.unwrap();
    let newest = *play.numbers().await.last().unwrap();
    play.publish_manifest(newest + 1, 1).await;
    let key = play.create(1, "t").await;
    play.publish(1, key).await;
    let Play { node, tier, sealer, shards, dir: _dir } = play;
    let (stop, stopping) = watch::channel(false);
    let running = tokio::spawn(sealer.run(stopping));
    let deposed = async {
        while !tier.is_deposed.load(Ordering::Acquire) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), deposed).await.unwrap();
    let why = tier.uploads.failure().expect("publishers are told once the journal is full");
    assert!(why.contains("restored elsewhere"), "{why}");
    stop.send(true).unwrap();
    running.await.unwrap();
    drop((tier, shards));
    node.shutdown(Duration::from_secs(1)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_was_overtaken_so_long_ago_that_its_number_is_free_again_is_deposed() {
    for is_answered in [true, false] {
        let faults = Faults::default();
        let mut play = Play::start(&faults).await;
        let key = play.create(1, "t").await;
        play.publish(1, key).await;
        play.sealer.round().await.unwrap();
        let newest = *play.numbers().await.last().unwrap();
        // The store is away from here alone. The cluster is restored, goes on, and keeps its three newest.
        let others: Vec<u64> = (newest + 1..newest + 7).collect();
        for number in &others {
            play.publish_manifest(*number, 1).await;
        }
        let (gone, kept) = others.split_at(3);
        for number in (1..=newest).chain(gone.iter().copied()) {
            play.tier().exports.delete_manifest(number).await.unwrap();
        }
        play.delete(1, "t").await;
        if !is_answered {
            faults.named(Some((Op::Put, ".manifest", Fault::AnswerLost)));
            play.sealer.round().await.unwrap_err();
            faults.named(None);
        }
        let deposed = play.sealer.round().await.unwrap_err();
        assert!(matches!(deposed, SealError::Export(ExporterError::Deposed(_))), "{deposed}");
        assert!(play.numbers().await.ends_with(kept), "what counts is theirs");
        assert_eq!(play.packs(1), (0, 1), "nothing is deleted that they may need");
        play.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_earlier_start_sent_and_the_store_takes_late_deposes_nobody() {
    let faults = Faults::default();
    let mut play = Play::start(&faults).await;
    let key = play.create(1, "t").await;
    play.publish(1, key).await;
    // It has looked what is there, and has written no manifest yet.
    faults.named(Some((Op::Put, ".manifest", Fault::Error)));
    play.sealer.round().await.unwrap_err();
    assert_eq!(play.numbers().await, [0_u64; 0]);
    faults.named(None);
    play.publish_manifest(1, 0).await;
    play.sealer.round().await.unwrap();
    let newest = *play.numbers().await.last().unwrap();
    assert!(newest > 1);
    play.check_packs().await;
    // From then on nobody else writes for this directory.
    play.publish_manifest(newest + 1, 0).await;
    play.publish(1, key).await;
    let deposed = play.sealer.round().await.unwrap_err();
    assert!(matches!(deposed, SealError::Export(ExporterError::Deposed(_))), "{deposed}");
    play.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_was_restored_elsewhere_before_the_first_manifest_of_a_start_is_deposed() {
    let faults = Faults::default();
    let mut play = Play::start(&faults).await;
    faults.named(Some((Op::Put, ".manifest", Fault::Error)));
    play.sealer.round().await.unwrap_err();
    faults.named(None);
    play.publish_manifest(1, 1).await;
    let deposed = play.sealer.round().await.unwrap_err();
    assert!(matches!(deposed, SealError::Export(ExporterError::Deposed(_))), "{deposed}");
    play.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_snapshot_of_a_shard_that_rests_stays_whatever_lies_between_the_manifests_that_name_it() {
    let mut play = Play::start(&Faults::default()).await;
    play.sealer.round().await.unwrap();
    let newest = *play.numbers().await.last().unwrap();
    let damaged = newest + 1..newest + 4;
    for number in damaged.clone() {
        play.publish_damaged(number).await;
    }
    let key = play.create(1, "t").await;
    play.publish(1, key).await;
    // Each of them is met twice before it is believed.
    for _ in damaged.clone() {
        play.sealer.round().await.unwrap_err();
    }
    play.sealer.round().await.unwrap();
    assert!(*play.numbers().await.last().unwrap() >= damaged.end);
    play.check_packs().await;
    play.stop().await;
}

/// With the next news, of a store that deletes again.
async fn what_is_too_old_goes_once_it_can(mut play: Play, faults: &Faults) {
    faults.always(None);
    let key = play.create(1, "t").await;
    play.publish(1, key).await;
    play.sealer.round().await.unwrap();
    assert_eq!(play.numbers().await.len(), 3, "what is too old goes when the store lets it");
    play.stop().await;
}
