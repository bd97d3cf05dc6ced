//! Subscriptions at home in a shard: their configuration and where their parts are.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use weir_protocol::error::ErrorCode;
use weir_protocol::ids::{Incarnation, Name, TimestampMs};
use weir_protocol::limits::LIST_NAMES_MAX;
use weir_protocol::rpc::{
    ListSubscriptionsRequest, Refusal, SubscriptionConfig, SubscriptionCreated, SubscriptionDescription,
    SubscriptionList, SubscriptionName,
};

use super::super::command::{CreateSubscription, DeleteSubscription, UpdateSubscription};
use super::cow_map::CowMap;
use super::listing::page;

/// Subscriptions by name. Every one is in `lives`; `by_name` follows from it, so checkpoints do not hold it.
#[derive(Debug, Clone, Default)]
pub struct Subscriptions {
    pub(super) lives: CowMap<Incarnation, Arc<SubscriptionDescription>>,
    by_name: BTreeMap<NameKey, Incarnation>,
}

/// Tenant, namespace and subscription with a zero byte after each of the first two, as topics have it.
type NameKey = Box<str>;

fn key(name: &SubscriptionName) -> NameKey {
    format!("{}\0{}\0{}", name.tenant, name.namespace, name.subscription).into()
}

fn label(name: &SubscriptionName) -> String {
    format!("{}/{}", name.namespace, name.subscription)
}

/// What is to be made, without a life.
pub(super) fn described(create: &CreateSubscription) -> SubscriptionDescription {
    SubscriptionDescription {
        name: create.name.clone(),
        id: 0,
        version: 1,
        config: create.config.clone(),
        topic_incarnation: create.topic_incarnation,
        shards: create.shards.clone(),
        created_ms: 0,
        more: create.more.clone(),
        fork: create.fork.clone(),
    }
}

impl Subscriptions {
    /// Those of a checkpoint; `None` if two have one name or life.
    pub(super) fn restored(subscriptions: Vec<SubscriptionDescription>) -> Option<Self> {
        let mut restored = Self::default();
        for subscription in subscriptions {
            restored.insert(Arc::new(subscription))?;
        }
        Some(restored)
    }

    /// `None` if the name or the life was there.
    fn insert(&mut self, subscription: Arc<SubscriptionDescription>) -> Option<()> {
        let life = Incarnation(subscription.id);
        let is_new_name = self.by_name.insert(key(&subscription.name), life).is_none();
        let is_new_life = self.lives.insert(life, subscription).is_none();
        (is_new_name && is_new_life).then_some(())
    }

    /// A subscription by name.
    ///
    /// # Errors
    /// `subscription_not_found`.
    pub fn describe(&self, name: &SubscriptionName) -> Result<&Arc<SubscriptionDescription>, Refusal> {
        let life = self.by_name.get(&key(name)).ok_or_else(|| {
            let detail = format!("there is no subscription {}", label(name));
            Refusal::new(ErrorCode::SubscriptionNotFound, detail)
        })?;
        Ok(self.lives.get(life).expect("names and lives change together"))
    }

    /// A subscription that lives.
    #[must_use]
    pub fn life(&self, life: Incarnation) -> Option<&Arc<SubscriptionDescription>> {
        self.lives.get(&life)
    }

    /// Number of subscriptions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lives.len()
    }

    /// True if there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Creates it with the life that `next_life` gives, unless it exists with this very configuration.
    pub(super) fn create(
        &mut self,
        create: &CreateSubscription,
        ts: TimestampMs,
        next_life: impl FnOnce() -> Incarnation,
        has_room: impl FnOnce(&SubscriptionDescription) -> Result<(), Refusal>,
    ) -> Result<SubscriptionCreated, Refusal> {
        if let Ok(existing) = self.describe(&create.name) {
            // Who says nothing of how it began means any that is so now.
            let is_same = existing.config == create.config
                && existing.topic_incarnation == create.topic_incarnation
                && existing.more == create.more
                && (create.fork.is_none() || existing.fork == create.fork);
            if !is_same {
                let detail =
                    format!("subscription {} exists with another configuration", label(&create.name));
                return Err(Refusal::new(ErrorCode::ConfigMismatch, detail));
            }
            return Ok(SubscriptionCreated { subscription: (**existing).clone(), created: false });
        }
        for name in [&create.name.tenant, &create.name.namespace, &create.name.subscription] {
            Name::new(name).map_err(|error| Refusal::new(ErrorCode::InvalidName, error.to_string()))?;
        }
        let subscription =
            SubscriptionDescription { id: next_life().0, created_ms: ts.0, ..described(create) };
        has_room(&subscription)?;
        self.insert(Arc::new(subscription.clone()))
            .expect("looked up above, and lives are never given twice");
        Ok(SubscriptionCreated { subscription, created: true })
    }

    pub(super) fn update(&mut self, update: &UpdateSubscription) -> Result<SubscriptionDescription, Refusal> {
        let current = self.describe(&update.name)?;
        expect_version(current, update.expected_version)?;
        if current.id != update.id {
            let detail = "the subscription was deleted and created again";
            return Err(Refusal::new(ErrorCode::VersionMismatch, detail));
        }
        let (old, new) = (&current.config, &update.config);
        let fixed = |config: &SubscriptionConfig| {
            (
                config.topic.clone(),
                config.more_topics.clone(),
                config.start,
                config.is_by_key,
                config.is_stream,
            )
        };
        if fixed(old) != fixed(new) {
            let detail = "mode, topics, start and order of a subscription cannot be changed";
            return Err(Refusal::new(ErrorCode::NotSupported, detail));
        }
        let mut subscription = (**current).clone();
        if subscription.config != update.config {
            subscription.config = update.config.clone();
            subscription.version += 1;
            self.lives.insert(Incarnation(subscription.id), Arc::new(subscription.clone()));
        }
        Ok(subscription)
    }

    pub(super) fn delete(&mut self, delete: &DeleteSubscription) -> Result<SubscriptionDescription, Refusal> {
        let current = self.describe(&delete.name)?;
        if delete.id.is_some_and(|id| id != current.id) {
            let detail = "the subscription that is meant was deleted, and created again";
            return Err(Refusal::new(ErrorCode::IncarnationGone, detail));
        }
        if let Some(version) = delete.expected_version {
            expect_version(current, version)?;
        }
        let life = self.by_name.remove(&key(&delete.name)).expect("described above");
        let subscription = self.lives.remove(&life).expect("names and lives change together");
        Ok(Arc::unwrap_or_clone(subscription))
    }

    /// Subscriptions in name order.
    #[must_use]
    pub fn list(&self, request: &ListSubscriptionsRequest) -> SubscriptionList {
        let prefix = format!("{}\0{}\0", request.tenant, request.namespace);
        let from: NameKey = format!("{prefix}{}", request.after.as_deref().unwrap_or_default()).into();
        let names = self
            .by_name
            .range((Bound::Excluded(from), Bound::Unbounded))
            .map_while(|(key, life)| Some((key.strip_prefix(&prefix)?, life)))
            .map(|(name, life)| (name, self.lives.get(life).expect("names and lives change together")));
        let (found, looked_to) = page(names, request.limit, LIST_NAMES_MAX, |name, found| {
            request.contains.as_ref().is_none_or(|text| name.contains(text.as_str()))
                && request.topic.as_ref().is_none_or(|topic| found.config.consumes(topic))
        });
        SubscriptionList {
            subscriptions: found.into_iter().map(|found| (**found).clone()).collect(),
            looked_to,
        }
    }
}

fn expect_version(subscription: &SubscriptionDescription, version: u32) -> Result<(), Refusal> {
    if subscription.version == version {
        return Ok(());
    }
    let detail = format!("the configuration is at version {}", subscription.version);
    let refusal = Refusal::new(ErrorCode::VersionMismatch, detail);
    Err(Refusal { config_version: Some(subscription.version), ..refusal })
}
