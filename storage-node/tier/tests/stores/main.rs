//! Stores: one suite for every kind, real faults against a real MinIO, and planned ones.
#![expect(clippy::disallowed_methods, reason = "tests make folders and wait for processes")]
#![expect(clippy::unwrap_used, reason = "a test stops at what it did not expect")]

#[path = "../clouds/mod.rs"]
mod clouds;
mod faults;
mod killed;
#[path = "../minio/mod.rs"]
mod minio;
#[path = "../ports/mod.rs"]
mod ports;
mod suite;
mod tls;
