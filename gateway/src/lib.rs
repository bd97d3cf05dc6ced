//! The gateway speaks HTTP and WebSocket to the world and frames to storage nodes. It holds no truth.
//!
//! ```text
//!   auth       who may do what: one `authorize`
//! ```

pub mod auth;
