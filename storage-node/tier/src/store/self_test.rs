//! What is relied upon, asked for before it is.

use std::time::Duration;

use bytes::Bytes;
use ulid::Ulid;

use super::error::StoreError;
use super::objects::{Created, Store};
use super::open::OpenError;

/// Creates of one name that race.
const RACERS: usize = 4;
/// What the store could not do is asked for this often. The library's own tries may all be over within a second.
const TRIES: usize = 3;
const PAUSE: Duration = Duration::from_millis(500);

impl Store {
    /// Writes, reads and deletes an object with these credentials, and lets several creates of one name race:
    /// exactly one must win, and what is there must be the winner's. A store where a second create overwrites
    /// the first would let two leaders lose each other's manifests.
    ///
    /// # Errors
    /// [`OpenError::SelfTest`]: this store must not be relied upon; [`OpenError::NoAnswer`]: nor yet, and
    /// trying again may help.
    ///
    /// # Cancel safety
    /// An object of a few bytes may stay.
    pub async fn self_test(&self) -> Result<(), OpenError> {
        let name = format!("self-test/{}", Ulid::new());
        let url = || self.url().to_owned();
        let wrong = match self.race(&name).await {
            Ok(()) => {
                let deleted = patiently(|| self.delete(&name)).await;
                return deleted.map_err(|error| Wrong::from(error).told(url()));
            }
            Err(wrong) => wrong,
        };
        // One that did not answer is not waited for once more; should it have written the object after all, that stays.
        let left = if matches!(wrong, Wrong::NoAnswer(_)) { Ok(()) } else { self.delete(&name).await };
        if let Err(error) = left {
            tracing::debug!(%error, "an object of the self-test stays");
        }
        Err(wrong.told(url()))
    }

    async fn race(&self, name: &str) -> Result<(), Wrong> {
        let racer = |n: usize| Bytes::from(format!("racer {n}"));
        let creates = (0..RACERS).map(|n| patiently(move || self.create(name, racer(n))));
        let mut winners = Vec::new();
        for (n, created) in futures_util::future::join_all(creates).await.into_iter().enumerate() {
            match created {
                Ok(Created::Ours) => winners.push(n),
                Ok(Created::Theirs) => {}
                Err(StoreError::Missing { .. }) => {
                    return Err(Wrong::Does("there is no such bucket".to_owned()));
                }
                Err(error) => return Err(error.into()),
            }
        }
        let [winner] = winners[..] else {
            let count = winners.len();
            let why = format!("{count} of {RACERS} creates of one object succeeded; it must be one");
            return Err(Wrong::Does(why));
        };
        let there = self.get(name, 0..racer(winner).len() as u64).await?;
        if there != racer(winner) {
            return Err(Wrong::Does("a create that lost has overwritten the one that won".to_owned()));
        }
        match patiently(|| self.create(name, racer(RACERS))).await? {
            Created::Theirs => Ok(()),
            Created::Ours => Err(Wrong::Does("a create overwrote an object that was there".to_owned())),
        }
    }
}

/// Why the test was not passed.
enum Wrong {
    /// What the store does, or does not let us do.
    Does(String),
    /// It could not be asked.
    NoAnswer(StoreError),
}

impl From<StoreError> for Wrong {
    fn from(error: StoreError) -> Self {
        if error.is_passing() { Self::NoAnswer(error) } else { Self::Does(error.to_string()) }
    }
}

impl Wrong {
    fn told(self, url: String) -> OpenError {
        match self {
            Self::Does(why) => OpenError::SelfTest { url, why },
            Self::NoAnswer(source) => OpenError::NoAnswer { url, source },
        }
    }
}

/// Asks again, a little later, where the store says that it cannot now. Nothing but this test writes one name
/// several times within a second, and Google's store takes one write a second of a name.
async fn patiently<T, F>(ask: impl Fn() -> F) -> Result<T, StoreError>
where
    F: Future<Output = Result<T, StoreError>>,
{
    for _ in 1..TRIES {
        match ask().await {
            Err(StoreError::Failed { .. }) => tokio::time::sleep(PAUSE).await,
            done => return done,
        }
    }
    ask().await
}
