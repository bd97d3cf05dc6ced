//! Subscriptions that begin as another one stands or stood, as JSON.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::SubscriptionPatch;

/// Forks a subscription.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(example = json!({"name": "billing-replay", "at": "snap_6f2c9d1e00a47b35", "config": {"paused": true}}))]
pub struct ForkSubscription {
    /// Name of the new subscription, in the same namespace.
    #[schema(required = true)]
    pub name: String,
    /// As it stood when: `now`; the `undo` of a seek: right before that; or `ts:` and RFC 3339 or
    /// milliseconds: then, or at the newest instant before that each partition keeps (`forked_at_ms` of the
    /// answer's `parts`).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(default = "now")]
    pub at: Option<String>,
    /// What is configured otherwise than the subscription that is forked. `mode`, `topics`, `start` and
    /// `order` are its own.
    pub config: SubscriptionPatch,
}

/// What a subscription began as.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ForkedFrom {
    /// The subscription's name then.
    pub name: String,
    /// Its life.
    pub id: u64,
    /// As it was asked for: `now`, when the fork was made, the `undo` of a seek, or a time.
    pub at: String,
}
