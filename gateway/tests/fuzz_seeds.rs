//! The checks of the fuzz targets `deflate` and `tokens`, on a stable compiler: over the seeds, cut short and
//! with bytes changed.
#![expect(clippy::disallowed_methods, reason = "seeds are read in tests")]
#![expect(clippy::unwrap_used, reason = "a test stops at what it did not expect")]

#[path = "../../fuzz/deflate.rs"]
#[expect(unreachable_pub, reason = "the fuzz target sees it as a module")]
mod deflate;
#[path = "../../fuzz/tokens.rs"]
#[expect(unreachable_pub, reason = "the fuzz target sees it as a module")]
mod tokens;

use proptest::prelude::*;

type Check = fn(&[u8]);

const CHECKS: [(&str, Check); 2] = [("deflate", deflate::deflate), ("tokens", tokens::tokens)];

fn seeds(target: &str) -> Vec<Vec<u8>> {
    let folder = format!("{}/../fuzz/seeds/{target}", env!("CARGO_MANIFEST_DIR"));
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.into_iter().map(|path| std::fs::read(path).unwrap()).collect()
}

#[test]
fn seeds_and_all_their_truncations_pass() {
    for (target, check) in CHECKS {
        for seed in seeds(target) {
            (0..=seed.len()).for_each(|cut| check(&seed[..cut]));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn seeds_with_bytes_changed_pass(which in any::<prop::sample::Index>(), at in any::<prop::sample::Index>(), bytes in any::<[u8; 4]>()) {
        for (target, check) in CHECKS {
            let seeds = seeds(target);
            let mut seed = seeds[which.index(seeds.len())].clone();
            let at = at.index(seed.len());
            seed[at..].iter_mut().zip(bytes).take(1 + usize::from(bytes[0] % 4)).for_each(|(old, new)| *old = new);
            check(&seed);
        }
    }

    #[test]
    fn any_bytes_pass(bytes in proptest::collection::vec(any::<u8>(), 0..256)) {
        CHECKS.iter().for_each(|(_, check)| check(&bytes));
    }
}
