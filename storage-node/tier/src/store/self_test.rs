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
    /// Writes, reads and deletes an object with these credentials, and lets several creates of one name race: exactly one
    /// must win, and what is there must be the winner's. A store where a second create overwrites the first would let two
    /// leaders lose each other's manifests.
    ///
    /// # Errors
    /// [`OpenError::SelfTest`]: the node must not start with this store.
    pub async fn self_test(&self) -> Result<(), OpenError> {
        let name = format!("self-test/{}", Ulid::new());
        let result = self.race(&name).await;
        let deleted = match result {
            Ok(()) => patiently(|| self.delete(&name)).await,
            Err(_) => self.delete(&name).await,
        };
        let deleted = deleted.map_err(|error| error.to_string());
        result.and(deleted).map_err(|why| OpenError::SelfTest { url: self.url().to_owned(), why })
    }

    async fn race(&self, name: &str) -> Result<(), String> {
        let racer = |n: usize| Bytes::from(format!("racer {n}"));
        let creates = (0..RACERS).map(|n| patiently(move || self.create(name, racer(n))));
        let mut winners = Vec::new();
        for (n, created) in futures_util::future::join_all(creates).await.into_iter().enumerate() {
            match created {
                Ok(Created::Ours) => winners.push(n),
                Ok(Created::Theirs) => {}
                Err(StoreError::Missing { .. }) => return Err("there is no such bucket".to_owned()),
                Err(error) => return Err(error.to_string()),
            }
        }
        let [winner] = winners[..] else {
            let count = winners.len();
            return Err(format!("{count} of {RACERS} creates of one object succeeded; it must be one"));
        };
        let length = racer(winner).len() as u64;
        let there = self.get(name, 0..length).await.map_err(|error| error.to_string())?;
        if there != racer(winner) {
            return Err("a create that lost has overwritten the one that won".to_owned());
        }
        match patiently(|| self.create(name, racer(RACERS))).await {
            Ok(Created::Theirs) => Ok(()),
            Ok(Created::Ours) => Err("a create overwrote an object that was there".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// Asks again, a little later, where the store says that it cannot now. Nothing but this test writes one name several times within a
/// second, and Google's store takes one write a second of a name.
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
