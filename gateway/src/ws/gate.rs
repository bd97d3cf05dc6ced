//! The services as a socket's channels may use them.

use std::sync::Arc;

use weir_protocol::error::ErrorCode;
use weir_protocol::ids::Name;

use crate::service::{ServiceError, Services};

/// Services behind a gate. It is open to all but the pages of origins that only some namespace lists; they
/// pass where the channel's namespace lists theirs. All sockets but those share one.
#[derive(Debug)]
pub(super) struct Gated {
    pub(super) services: Services,
    /// Origin of a page that the gateway itself does not know.
    guest: Option<String>,
}

impl Gated {
    /// For everybody whom the gateway itself lets in.
    pub(super) fn open(services: Services) -> Arc<Self> {
        Arc::new(Self { services, guest: None })
    }

    /// The same for a page of `origin`, which a namespace lists.
    pub(super) fn for_guest(&self, origin: String) -> Arc<Self> {
        Arc::new(Self { services: self.services.clone(), guest: Some(origin) })
    }

    /// Waits until it is known that the namespace may be used. Nothing was done before.
    ///
    /// # Errors
    /// `origin_forbidden`, or what the meta group's leader says.
    pub(super) async fn pass(&self, tenant: &Name, namespace: &Name) -> Result<(), ServiceError> {
        match &self.guest {
            None => Ok(()),
            // Boxed: others' futures would have room for it.
            Some(origin) => Box::pin(self.check(origin, tenant, namespace)).await,
        }
    }

    async fn check(&self, origin: &str, tenant: &Name, namespace: &Name) -> Result<(), ServiceError> {
        if self.services.namespaces.lists(tenant, namespace, origin).await? {
            return Ok(());
        }
        let detail = format!("the namespace {namespace} does not list the origin {origin:?}");
        Err(ServiceError::new(ErrorCode::OriginForbidden, detail))
    }
}
