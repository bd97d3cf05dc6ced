//! The checks of the fuzz targets, on a stable compiler: over every golden file, over the seeds that once were
//! trouble, and over what is left of each when it is cut short or a bit is flipped.
#![expect(clippy::disallowed_methods, reason = "golden files and seeds are read in tests")]
#![expect(clippy::unwrap_used, reason = "a test stops at what it did not expect")]

#[path = "../../fuzz/checks.rs"]
#[expect(unreachable_pub, reason = "the fuzz targets see it as a crate")]
mod checks;

use std::path::{Path, PathBuf};

use proptest::prelude::*;

type Check = fn(&[u8]);

const CHECKS: [(&str, Check); 5] = [
    ("batch", checks::batch),
    ("filter", checks::filter),
    ("node_frame", checks::node_frame),
    ("ws_binary", checks::ws_binary),
    ("ws_json", checks::ws_json),
];

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    entries.map(|entry| entry.unwrap().path()).collect()
}

/// Golden files go to every check, seeds to their own.
fn inputs(target: &str) -> Vec<Vec<u8>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let seeds = files(&root.join("../fuzz/seeds").join(target));
    assert!(!seeds.is_empty(), "no seeds for {target}");
    let all = files(&root.join("tests/golden")).into_iter().chain(seeds);
    all.map(|path| std::fs::read(path).unwrap()).collect()
}

#[test]
fn seeds_and_all_their_truncations_pass() {
    for (target, check) in CHECKS {
        for input in inputs(target) {
            (0..=input.len()).for_each(|cut| check(&input[..cut]));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn seeds_with_bytes_changed_pass(which in any::<prop::sample::Index>(), at in any::<prop::sample::Index>(), bytes in any::<[u8; 4]>()) {
        for (target, check) in CHECKS {
            let inputs = inputs(target);
            let mut input = inputs[which.index(inputs.len())].clone();
            let at = at.index(input.len());
            input[at..].iter_mut().zip(bytes).take(1 + usize::from(bytes[0] % 4)).for_each(|(old, new)| *old = new);
            check(&input);
        }
    }

    #[test]
    fn any_bytes_pass(bytes in proptest::collection::vec(any::<u8>(), 0..256)) {
        CHECKS.iter().for_each(|(_, check)| check(&bytes));
    }

    #[test]
    fn any_lines_of_json_pass(line in r#"\{"t":"(pub|ack|sub|hello|msg|confirm)","ch":[0-9]{1,2},("(seq|n|data|from|limit|v|h)":([0-9]{1,20}|null|\[\[1,2\]\]|\{"msgs":1,"bytes":2\}|"[a-z:0-9]{0,9}"),?){0,3}\}"#) {
        checks::ws_json(line.as_bytes());
    }
}
