//! Topics that somebody wants to follow before they exist.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use weir_protocol::error::ErrorCode;
use weir_protocol::ids::TopicPath;

use super::reader::Reader;
use crate::service::ServiceError;
use crate::service::topics::Topics;
use crate::storage::Topic;

/// Topics of a gateway that may be waited for at once, whoever waits: for each, storage is asked twice a second.
pub(crate) const AWAITED_MAX: usize = 1_024;
/// How often storage is asked.
const ASK_EVERY: Duration = Duration::from_millis(500);

/// Topics that are waited for, each once, whoever waits.
#[derive(Debug, Clone, Default)]
pub(super) struct AwaitedTopics(Arc<Mutex<HashMap<TopicPath, Weak<Waiting>>>>);

/// One of them. Nobody asks for it any more once all who wait are gone.
#[derive(Debug)]
struct Waiting {
    is_there: watch::Receiver<bool>,
    task: AbortHandle,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A place among those who wait for a topic.
#[derive(Debug)]
pub struct Awaited {
    /// Which.
    pub path: TopicPath,
    waiting: Arc<Waiting>,
}

impl Awaited {
    /// Waits until the topic exists; it may be gone again by then.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub async fn made(&self) {
        // An error means that whoever asked is gone: who waits looks for itself.
        let _ = self.waiting.is_there.clone().wait_for(|is_there| *is_there).await;
    }
}

impl AwaitedTopics {
    /// How many are waited for.
    pub(super) fn len(&self) -> usize {
        self.0.lock().values().filter(|waiting| waiting.strong_count() > 0).count()
    }

    fn join(&self, topics: &Topics, path: &TopicPath) -> Result<Awaited, ServiceError> {
        let mut waiting = self.0.lock();
        let known = waiting.get(path).and_then(Weak::upgrade).filter(|known| !*known.is_there.borrow());
        if let Some(known) = known {
            return Ok(Awaited { path: path.clone(), waiting: known });
        }
        if waiting.len() >= AWAITED_MAX {
            waiting.retain(|_, waiting| waiting.strong_count() > 0);
        }
        if waiting.len() >= AWAITED_MAX {
            let detail =
                format!("{AWAITED_MAX} topics that do not exist are waited for: create the topic first");
            return Err(ServiceError::new(ErrorCode::Busy, detail).with_limit(AWAITED_MAX as u64));
        }
        let (tell, is_there) = watch::channel(false);
        let task = tokio::spawn(ask(topics.clone(), path.clone(), tell)).abort_handle();
        let new = Arc::new(Waiting { is_there, task });
        waiting.insert(path.clone(), Arc::downgrade(&new));
        Ok(Awaited { path: path.clone(), waiting: new })
    }
}

/// Asks until it is there. What else is answered passes, or those who wait have gone.
async fn ask(topics: Topics, path: TopicPath, tell: watch::Sender<bool>) {
    while topics.get(&path).await.is_err() {
        tokio::time::sleep(ASK_EVERY).await;
    }
    let _ = tell.send(true);
}

impl Reader {
    /// A topic as its home shard knows it now; `None` if there is none.
    ///
    /// # Errors
    /// `namespace_not_found`, or what the leader says.
    pub async fn existing(&self, path: &TopicPath) -> Result<Option<Arc<Topic>>, ServiceError> {
        match self.topics.get(path).await {
            Ok(topic) => Ok(Some(topic)),
            Err(failure) if failure.code() == ErrorCode::TopicNotFound => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// Waits for a topic that its first publish will make.
    ///
    /// # Errors
    /// `topic_not_found` where publishes make none, and `busy` beyond `AWAITED_MAX`.
    pub async fn awaits(&self, path: &TopicPath) -> Result<Awaited, ServiceError> {
        if !self.topics.makes_on_first_use(path).await? {
            let detail = format!(
                "there is no topic {}. Where the namespace has auto_create, an event stream waits for it; here, create \
                 the topic first: a browser does not try again after this answer",
                path.topic
            );
            return Err(ServiceError::new(ErrorCode::TopicNotFound, detail));
        }
        self.awaited.join(&self.topics, path)
    }

    /// How many topics are waited for, and how many may be.
    #[must_use]
    pub fn awaited(&self) -> (u64, u64) {
        (self.awaited.len() as u64, AWAITED_MAX as u64)
    }
}
