//! Who is calling. Providers implement [`Authenticator`]; tokens will be one of them.

use std::fmt;
use std::net::IpAddr;

use http::HeaderMap;
use weir_protocol::ids::Name;

use super::Principal;

/// What a caller shows.
#[derive(Debug, Clone, Copy)]
pub struct Credentials<'a> {
    /// Address of the peer of the connection (not of any proxy header).
    pub peer: IpAddr,
    /// Headers of the request, or of the WebSocket's handshake.
    pub headers: &'a HeaderMap,
    /// Token of a WebSocket's `hello`, if there was one.
    pub token: Option<&'a str>,
}

/// Why a caller is nobody. Answered 401 with `WWW-Authenticate`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    /// Neither a credential nor an address that needs none.
    #[error("no credential was given")]
    Missing,
    /// A credential that this gateway cannot verify.
    #[error("the credential is not accepted")]
    Rejected,
}

/// Turns credentials into a principal. Called once per request and once per WebSocket; must not block.
pub trait Authenticator: Send + Sync + fmt::Debug {
    /// The caller.
    ///
    /// # Errors
    /// [`AuthError`]: it is nobody, and gets nothing but that answer.
    fn authenticate(&self, credentials: &Credentials<'_>) -> Result<Principal, AuthError>;

    /// True if a caller from another machine must show a credential. A public listener needs this.
    fn demands_credentials(&self) -> bool;
}

/// Development: callers on this machine may do everything in the tenant `default`, others nothing.
#[derive(Debug)]
pub struct LoopbackAuthenticator {
    everyone: Principal,
}

impl Default for LoopbackAuthenticator {
    fn default() -> Self {
        Self { everyone: Principal::all(Name::default_name()) }
    }
}

impl Authenticator for LoopbackAuthenticator {
    fn authenticate(&self, credentials: &Credentials<'_>) -> Result<Principal, AuthError> {
        if credentials.peer.to_canonical().is_loopback() {
            Ok(self.everyone.clone())
        } else {
            Err(AuthError::Missing)
        }
    }

    fn demands_credentials(&self) -> bool {
        false
    }
}

/// `insecure_public`: everybody may do everything. Asked for by name or not at all.
#[derive(Debug)]
pub struct OpenAuthenticator {
    everyone: Principal,
}

impl Default for OpenAuthenticator {
    fn default() -> Self {
        Self { everyone: Principal::all(Name::default_name()) }
    }
}

impl Authenticator for OpenAuthenticator {
    fn authenticate(&self, _: &Credentials<'_>) -> Result<Principal, AuthError> {
        Ok(self.everyone.clone())
    }

    fn demands_credentials(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_needs_no_credential_in_development() {
        let headers = HeaderMap::new();
        let auth = LoopbackAuthenticator::default();
        for (peer, known) in [
            ("127.0.0.1", true),
            ("127.9.9.9", true),
            ("::1", true),
            ("::ffff:127.0.0.1", true),
            ("192.168.0.7", false),
            ("::ffff:192.168.0.7", false),
            ("2001:db8::1", false),
        ] {
            let credentials = Credentials { peer: peer.parse().unwrap(), headers: &headers, token: None };
            assert_eq!(auth.authenticate(&credentials).is_ok(), known, "{peer}");
        }
    }
}
