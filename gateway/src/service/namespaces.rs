//! Namespaces: kept by the meta group.

use prost::Message;
use tokio::time::Instant;
use weir_protocol::error::ErrorCode;
use weir_protocol::ids::{Name, ShardId};
use weir_protocol::rpc::{
    DeleteNamespaceRequest, ListNamespacesRequest, ListSubscriptionsRequest, ListTopicsRequest, Method,
    Namespace, NamespaceList, NamespacePut, PutNamespaceRequest, Refusal, SubscriptionList, TopicList,
};

use super::ServiceError;
use super::page::{Page, merged, name_of};
use crate::storage::{CallFor, Safety, Storage};

/// Manages namespaces. `default` always exists, whether the meta group was told of it or not.
#[derive(Debug, Clone)]
pub struct Namespaces {
    storage: Storage,
}

impl Namespaces {
    pub(super) fn new(storage: Storage) -> Self {
        Self { storage }
    }

    /// One namespace.
    ///
    /// # Errors
    /// `namespace_not_found`, or what the meta group's leader says.
    pub async fn get(&self, tenant: &Name, name: &Name) -> Result<Namespace, ServiceError> {
        self.find(tenant, name, self.storage.deadline()).await
    }

    pub(super) async fn find(
        &self,
        tenant: &Name,
        name: &Name,
        deadline: Instant,
    ) -> Result<Namespace, ServiceError> {
        let request = ListNamespacesRequest {
            tenant: tenant.to_string(),
            name: Some(name.to_string()),
            limit: 1,
            ..ListNamespacesRequest::default()
        };
        let list: NamespaceList =
            self.storage.ask(meta(Method::ListNamespaces, Safety::Repeatable, deadline), &request).await?;
        if let Some(namespace) = list.namespaces.into_iter().next() {
            return Ok(namespace);
        }
        if *name == Name::default_name() {
            return Ok(self.unwritten_default(tenant));
        }
        Err(ServiceError::new(ErrorCode::NamespaceNotFound, format!("there is no namespace {name}")))
    }

    /// Creates a namespace or replaces its settings, unconditionally or only at `expected_version` (0: only if it
    /// does not exist).
    ///
    /// # Errors
    /// `version_mismatch`; `outcome_unknown` if the answer was lost: asking again tells.
    pub async fn put(
        &self,
        namespace: Namespace,
        expected_version: Option<u32>,
    ) -> Result<NamespacePut, ServiceError> {
        let safety = if expected_version.is_some() { Safety::Once } else { Safety::Repeatable };
        let call = meta(Method::PutNamespace, safety, self.storage.deadline());
        self.storage.ask(call, &PutNamespaceRequest { namespace: Some(namespace), expected_version }).await
    }

    /// Deletes a namespace without topics and subscriptions: any, or only this version of it.
    ///
    /// # Errors
    /// `namespace_not_empty`, `namespace_not_found`, `version_mismatch`, `not_supported` for `default`.
    pub async fn delete(
        &self,
        tenant: &Name,
        name: &Name,
        expected_version: Option<u32>,
    ) -> Result<(), ServiceError> {
        if *name == Name::default_name() {
            return Err(ServiceError::new(ErrorCode::NotSupported, "the namespace default always exists"));
        }
        let deadline = self.storage.deadline();
        let version = self.find(tenant, name, deadline).await?.version;
        if expected_version.is_some_and(|expected| expected != version) {
            let detail = format!("namespace {name} is at version {version}");
            let refusal = Refusal::new(ErrorCode::VersionMismatch, detail);
            return Err(Refusal { config_version: Some(version), ..refusal }.into());
        }
        for shard in self.storage.data_shards(deadline).await? {
            let request = ListTopicsRequest {
                tenant: tenant.to_string(),
                namespace: name.to_string(),
                contains: None,
                after: None,
                limit: 1,
            };
            let call = CallFor { shard, method: Method::ListTopics, safety: Safety::Repeatable, deadline };
            let list: TopicList = self.storage.ask(call, &request).await?;
            let subscriptions = ListSubscriptionsRequest {
                tenant: tenant.to_string(),
                namespace: name.to_string(),
                contains: None,
                topic: None,
                after: None,
                limit: 1,
            };
            let call = CallFor { method: Method::ListSubscriptions, ..call };
            let subscriptions: SubscriptionList = self.storage.ask(call, &subscriptions).await?;
            let what = match (list.topics.is_empty(), subscriptions.subscriptions.is_empty()) {
                (true, true) => continue,
                (false, _) => "topics",
                (true, false) => "subscriptions",
            };
            let detail = format!("the namespace {name} has {what}");
            return Err(ServiceError::new(ErrorCode::NamespaceNotEmpty, detail));
        }
        let (tenant, name) = (tenant.to_string(), name.to_string());
        let request = DeleteNamespaceRequest { tenant, name, expected_version };
        let call = meta(Method::DeleteNamespace, Safety::Once, deadline);
        self.storage.send(call, vec![request.encode_to_vec().into()]).await.map(|_| ())
    }

    /// A page of at most `limit` namespaces in name order, of those whose names contain a text, if one is given.
    ///
    /// # Errors
    /// `invalid_cursor`, or what the meta group's leader says.
    pub async fn list(
        &self,
        tenant: &Name,
        contains: Option<&str>,
        limit: u32,
        cursor: Option<&str>,
    ) -> Result<Page<Namespace>, ServiceError> {
        let after = cursor.map(name_of).transpose()?;
        let request = ListNamespacesRequest {
            tenant: tenant.to_string(),
            name: None,
            after: after.clone(),
            limit,
            contains: contains.map(str::to_owned),
        };
        let call = meta(Method::ListNamespaces, Safety::Repeatable, self.storage.deadline());
        let list: NamespaceList = self.storage.ask(call, &request).await?;
        let named = |namespace: Namespace| (namespace.name.clone(), namespace);
        let mut found: Vec<_> = list.namespaces.into_iter().map(named).collect();
        // The meta group may never have been told of it.
        let default = named(self.unwritten_default(tenant));
        let is_meant = contains.is_none_or(|text| default.0.contains(text))
            && after.is_none_or(|after| default.0 > after)
            && found.iter().all(|(name, _)| *name != default.0);
        found.extend(is_meant.then_some(default));
        Ok(merged([(found, list.looked_to)], limit))
    }

    fn unwritten_default(&self, tenant: &Name) -> Namespace {
        Namespace {
            tenant: tenant.to_string(),
            name: Name::default_name().to_string(),
            auto_create: false,
            cors_origins: Vec::new(),
            cache_public: false,
            version: 0,
        }
    }
}

fn meta(method: Method, safety: Safety, deadline: Instant) -> CallFor {
    CallFor { shard: ShardId::META, method, safety, deadline }
}
