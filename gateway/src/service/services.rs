//! Everything that handlers are given.

use std::sync::Arc;

use super::namespaces::Namespaces;
use super::publish::{PublishConfig, Publisher};
use super::read::{ReadConfig, Reader};
use super::subscriptions::Subscriptions;
use super::topics::Topics;
use crate::storage::Storage;

/// Settings of the services.
#[derive(Debug, Clone, Default)]
pub struct ServiceConfig {
    /// Publishing.
    pub publish: PublishConfig,
    /// Reading.
    pub read: ReadConfig,
}

/// The services of a gateway. Clones share everything.
#[derive(Debug, Clone)]
pub struct Services {
    /// Namespaces.
    pub namespaces: Namespaces,
    /// Topics.
    pub topics: Topics,
    /// Publishing.
    pub publisher: Publisher,
    /// Reading and following.
    pub reader: Reader,
    /// Subscriptions, as configured and as consumed.
    pub subscriptions: Subscriptions,
    /// What they all use.
    pub storage: Storage,
}

impl Services {
    /// Services over `storage`.
    #[must_use]
    pub fn new(storage: Storage, config: ServiceConfig) -> Self {
        let namespaces = Namespaces::new(storage.clone());
        let topics = Topics::new(storage.clone(), namespaces.clone());
        let publisher = Publisher::new(storage.clone(), topics.clone(), config.publish);
        let reader = Reader::new(storage.clone(), topics.clone(), config.read);
        let budget = Arc::clone(&reader.budget);
        let subscriptions = Subscriptions::new(storage.clone(), namespaces.clone(), topics.clone(), budget);
        Self { namespaces, topics, publisher, reader, subscriptions, storage }
    }

    /// Answers at once who waits for messages of a subscription, or for one to be archived: the gateway stops.
    pub fn end_waits(&self) {
        self.subscriptions.end_waits();
        self.publisher.end_waits();
    }
}
