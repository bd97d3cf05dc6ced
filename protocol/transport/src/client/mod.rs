//! Makes calls.
//!
//! ```text
//!   Link ── watches ── supervisor task: connects, introduces itself, serves, backs off
//!    │ call, open                │ Up(Connection)
//!    └──▶ calls: number → who waits for the answer ◀── reading
//! ```
//!
//! * [`Link`]: cheap handle to one peer, whether it is connected or not.
//! * [`Answers`]: the answers of one call that has several.
//! * [`Connect`]: how a stream to the peer comes to be; [`TcpConnect`] is the usual way.
//! * [`CallError`]: what a caller must tell apart: no effect, refused, unknown.

mod answers;
mod calls;
mod config;
mod connect;
mod connection;
mod error;
mod link;
mod supervisor;

pub use answers::Answers;
pub use config::{LinkConfig, Priority};
pub use connect::{ClientTls, Connect, TcpConnect};
pub use error::{CallError, ConnectError, NotSent};
pub use link::Link;
