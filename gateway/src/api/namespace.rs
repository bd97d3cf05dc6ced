//! Namespaces, as JSON.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use weir_protocol::rpc;

/// A namespace: a set of topics with common settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Namespace {
    /// Name. `default` always exists.
    pub name: String,
    /// Publishing to a topic that does not exist creates it with the defaults.
    pub auto_create: bool,
    /// Browser origins that may use it, exact (`https://app.example`).
    pub cors_origins: Vec<String>,
    /// From 1, raised by every change. Also in the `ETag`.
    pub version: u32,
}

impl From<&rpc::Namespace> for Namespace {
    fn from(namespace: &rpc::Namespace) -> Self {
        Self {
            name: namespace.name.clone(),
            auto_create: namespace.auto_create,
            cors_origins: namespace.cors_origins.clone(),
            version: namespace.version,
        }
    }
}

/// What an administrator sets. Fields that are left out take their default.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NamespaceConfig {
    /// Publishing to a topic that does not exist creates it with the defaults.
    #[schema(default = false)]
    pub auto_create: bool,
    /// Browser origins that may use it, exact (`https://app.example`).
    #[schema(max_items = 100)]
    pub cors_origins: Vec<String>,
}

/// Changes to a namespace. Fields that are left out stay.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NamespacePatch {
    /// Publishing to a topic that does not exist creates it with the defaults.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub auto_create: Option<bool>,
    /// Browser origins that may use it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub cors_origins: Option<Vec<String>>,
}

impl NamespacePatch {
    /// `config` with these changes.
    #[must_use]
    pub fn apply(self, config: NamespaceConfig) -> NamespaceConfig {
        NamespaceConfig {
            auto_create: self.auto_create.unwrap_or(config.auto_create),
            cors_origins: self.cors_origins.unwrap_or(config.cors_origins),
        }
    }
}

/// A page of namespaces, in name order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NamespacePage {
    /// The namespaces.
    pub items: Vec<Namespace>,
    /// Pass as `cursor` for the next page; `null` on the last.
    pub next: Option<String>,
}
