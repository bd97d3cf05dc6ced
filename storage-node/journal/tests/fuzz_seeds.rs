//! The check of the fuzz target `recovery`, on a stable compiler: over the seeds, cut short and with bytes changed.
#![expect(clippy::disallowed_methods, reason = "seeds are read in tests")]
#![expect(clippy::unwrap_used, reason = "a test stops at what it did not expect")]

#[path = "../../../fuzz/recovery.rs"]
#[expect(unreachable_pub, reason = "the fuzz target sees it as a module")]
mod checks;

use proptest::prelude::*;

fn seeds() -> Vec<Vec<u8>> {
    let folder = format!("{}/../../fuzz/seeds/recovery", env!("CARGO_MANIFEST_DIR"));
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.into_iter().map(|path| std::fs::read(path).unwrap()).collect()
}

#[test]
fn seeds_and_all_their_truncations_pass() {
    for seed in seeds() {
        (0..=seed.len()).for_each(|cut| checks::recovery(&seed[..cut]));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn seeds_with_bytes_changed_pass(which in any::<prop::sample::Index>(), at in any::<prop::sample::Index>(), bytes in any::<[u8; 4]>()) {
        let seeds = seeds();
        let mut seed = seeds[which.index(seeds.len())].clone();
        let at = at.index(seed.len());
        seed[at..].iter_mut().zip(bytes).take(1 + usize::from(bytes[0] % 4)).for_each(|(old, new)| *old = new);
        checks::recovery(&seed);
    }

    #[test]
    fn any_changes_and_frames_pass(bytes in proptest::collection::vec(any::<u8>(), 1..96)) {
        checks::recovery(&bytes);
    }
}
