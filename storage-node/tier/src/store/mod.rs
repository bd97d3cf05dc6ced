//! Objects by name, wherever they are kept.
//!
//! ```text
//!   open       a URL becomes a store: s3://, gs://, az://, file://
//!   client     how requests get there: large bodies at a pace
//!   pacer      when the next bytes of them may go
//!   objects    create, read, delete, list: with time limits, few retries, and errors that name the object
//!   chunks     what a request brought, put together or cut into pieces
//!   upload     an object of any size in parts, within a budget of bytes
//!   staged     what interrupted writes leave in a folder
//!   self_test  two creates of one name, and only one may win: asked before anything relies on it
//!   names      how objects are called
//! ```

mod chunks;
mod client;
mod error;
mod folder;
mod names;
mod objects;
mod open;
mod pacer;
mod self_test;
mod staged;
mod upload;

pub use error::StoreError;
pub use names::{NameError, PackName};
pub(crate) use objects::VERIFY_BYTES;
pub use objects::{Created, Listed, Store, StoreConfig, StoreMetrics};
pub(crate) use open::make_folder;
pub use open::{OpenError, check_url};
pub use pacer::Hurried;
pub use upload::{PART_BYTES, Upload, Uploaded, requests_of};
