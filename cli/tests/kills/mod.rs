//! How often a test kills the product, and after how long.

use std::ops::Range;
use std::time::Duration;

/// Random moments, from a seed that is printed.
pub(crate) struct Kills {
    /// How many there are: `TORTURE_ROUNDS`.
    pub(crate) rounds: u64,
    random: u64,
}

impl Kills {
    /// So many rounds if the environment names no other number; `TORTURE_SEED` replays them.
    #[expect(clippy::print_stdout, reason = "a test that fails shows the seed that replays it")]
    pub(crate) fn of(rounds: u64) -> Self {
        let named = |name| std::env::var(name).ok().and_then(|text| text.parse().ok());
        let seed: u64 = named("TORTURE_SEED").unwrap_or_else(|| u64::from(std::process::id()));
        println!("TORTURE_SEED={seed}");
        Self { rounds: named("TORTURE_ROUNDS").unwrap_or(rounds), random: seed | 1 }
    }

    /// The next moment, within so many milliseconds.
    pub(crate) fn after(&mut self, ms: Range<u64>) -> Duration {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        Duration::from_millis(ms.start + self.random % (ms.end - ms.start))
    }
}
