//! Which browser origins the namespaces list.

use std::collections::HashSet;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;
use weir_protocol::error::ErrorCode;
use weir_protocol::ids::Name;

use super::ServiceError;
use super::namespaces::Namespaces;

/// How long what was read of all namespaces counts: pages that nobody knows make storage read them no more often.
const FRESH: Duration = Duration::from_secs(1);
/// Namespaces read at once: each is as long as a configuration may be, and together they fit an answer of a node.
const PAGE: u32 = 50;

impl Namespaces {
    /// True if the namespace lists `origin` now; one that does not exist lists nothing.
    ///
    /// # Errors
    /// What the meta group's leader says.
    pub async fn lists(&self, tenant: &Name, namespace: &Name, origin: &str) -> Result<bool, ServiceError> {
        match self.get(tenant, namespace).await {
            Ok(found) => Ok(found.cors_origins.iter().any(|listed| listed == origin)),
            Err(failure) if failure.code() == ErrorCode::NamespaceNotFound => Ok(false),
            Err(failure) => Err(failure),
        }
    }
}

/// What the namespaces list all together.
#[derive(Debug)]
pub struct ListedOrigins {
    namespaces: Namespaces,
    /// Held while storage is asked: who comes meanwhile waits for the same answer.
    seen: Mutex<Option<Seen>>,
}

/// What was read of a tenant.
#[derive(Debug)]
struct Seen {
    tenant: Name,
    at: Instant,
    origins: HashSet<String>,
}

impl ListedOrigins {
    /// What `namespaces` list.
    #[must_use]
    pub fn new(namespaces: Namespaces) -> Self {
        Self { namespaces, seen: Mutex::default() }
    }

    /// True if any namespace of the tenant lists `origin`, as of at most a second ago.
    ///
    /// # Errors
    /// What the meta group's leader says.
    pub async fn has(&self, tenant: &Name, origin: &str) -> Result<bool, ServiceError> {
        let mut seen = self.seen.lock().await;
        if let Some(seen) = seen.as_ref().filter(|seen| seen.tenant == *tenant && seen.at.elapsed() < FRESH) {
            return Ok(seen.origins.contains(origin));
        }
        // Before it is read: what changes meanwhile may be missing.
        let at = Instant::now();
        let (mut origins, mut cursor) = (HashSet::new(), None);
        loop {
            let page = self.namespaces.list(tenant, None, PAGE, cursor.as_deref()).await?;
            origins.extend(page.items.into_iter().flat_map(|namespace| namespace.cors_origins));
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        let is_listed = origins.contains(origin);
        *seen = Some(Seen { tenant: tenant.clone(), at, origins });
        Ok(is_listed)
    }
}
