//! Who may do what. One function decides, for every HTTP handler and every WebSocket `open` and `sub`.
//!
//! ```text
//!   request ─▶ Authenticator ─▶ Principal ─┐
//!   operation table ───────────▶ Op ───────┼─▶ authorize ─▶ Ok | Denied (names the missing grant)
//!   path, query or frame ──────▶ Resource ─┘
//! ```

mod authenticate;
mod authorize;
mod kept_headers;
mod principal;

pub use authenticate::{AuthError, Authenticator, Credentials, LoopbackAuthenticator, OpenAuthenticator};
pub use authorize::{Denied, authorize};
pub(crate) use kept_headers::KeptHeaders;
pub use principal::{Grant, Grants, Op, OpSet, Pattern, Principal, Resource};
