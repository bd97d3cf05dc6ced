//! The words and the bytes of Weir: what every room agrees on, without doing any I/O.
//!
//! ```text
//!   ids, slots, limits, error      the words: names, positions, sizes, refusals
//!   decimal                        numbers as texts
//!   objects                        JSON in which a struct is an object
//!   filter                         which records are meant: an expression over headers and key
//!   batch                          the record batch: one layout for disk, wire, binary HTTP and WebSocket
//!   prices                         what a day of the object store costs
//!   frame, rpc                     gateway ⇄ storage node and node ⇄ node: 24-byte header + message
//! ```
//!
//! Byte layouts are described once, in a table at the type that encodes them, and pinned by golden files.

pub mod batch;
pub mod checksum;
pub mod decimal;
pub mod error;
pub mod filter;
pub mod frame;
pub mod ids;
pub mod limits;
pub mod objects;
pub mod prices;
pub mod rpc;
pub mod slots;
pub mod start;
pub mod ws;
