//! The check of the fuzz target `pack`, on a stable compiler: over the golden packs, cut short and with bytes changed.
#![expect(clippy::disallowed_methods, reason = "golden files are read in tests")]
#![expect(clippy::unwrap_used, reason = "a test stops at what it did not expect")]

#[path = "../../../fuzz/pack.rs"]
#[expect(unreachable_pub, reason = "the fuzz target sees it as a module")]
mod checks;

use proptest::prelude::*;

fn packs() -> Vec<Vec<u8>> {
    let path = |codec| format!("{}/tests/golden/pack-{codec}.bin", env!("CARGO_MANIFEST_DIR"));
    ["raw", "lz4", "zstd"].map(|codec| std::fs::read(path(codec)).unwrap()).to_vec()
}

#[test]
fn golden_packs_and_all_their_truncations_pass() {
    for pack in packs() {
        (0..=pack.len()).for_each(|cut| checks::pack(&pack[..cut]));
        (0..=pack.len()).for_each(|cut| checks::pack(&pack[cut..]));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn golden_packs_with_bytes_changed_pass(which in 0usize..3, at in any::<prop::sample::Index>(), bytes in any::<[u8; 4]>()) {
        let mut pack = packs().swap_remove(which);
        let at = at.index(pack.len());
        pack[at..].iter_mut().zip(bytes).take(1 + usize::from(bytes[0] % 4)).for_each(|(old, new)| *old = new);
        checks::pack(&pack);
    }
}
