//! What a socket has to write, counted among what is held for clients.

use std::sync::Arc;

use crate::answers::{Client, Held};
use crate::service::read::{Parcel, Room};
use crate::ws::output::Form;

/// Output above which neither the log nor the client is read on: what the client has not taken yet waits there.
const OUTPUT_BYTES_MAX: usize = 256 << 10;
/// Output up to which it is not counted; above, it is enough where much is held for others.
const LITTLE_BYTES: usize = 32 << 10;

/// Where what a socket has to write is held.
pub(super) struct Rooms {
    client: Arc<Client>,
    held: Vec<Arc<Held>>,
}

impl Rooms {
    pub(super) fn new(client: Arc<Client>) -> Self {
        Self { client, held: Vec::new() }
    }

    /// How records are held on their way.
    pub(super) fn on_the_way(&self, form: Form) -> Room {
        Room { client: Arc::clone(&self.client), times: form.times(), besides: 0 }
    }

    /// Keeps the room of records until they are written.
    pub(super) fn keep(&mut self, parcel: &Parcel) {
        self.held.extend(parcel.room().cloned());
    }

    /// The same of records that were leased, of so many bytes: they are there.
    pub(super) fn keep_leased(&mut self, bytes: u64, form: Form) {
        if bytes > LITTLE_BYTES as u64 {
            self.held.push(Arc::new(self.client.hold_anyway(bytes * (1 + form.times()))));
        }
    }

    /// Counts what is to be written now, unless the records that it consists of are.
    pub(super) fn count(&mut self, queued: usize) {
        if queued > LITTLE_BYTES && self.held.is_empty() {
            self.held.push(Arc::new(self.client.hold_anyway(queued as u64)));
        }
    }

    /// All of it was written.
    pub(super) fn written(&mut self) {
        self.held.clear();
    }

    /// What is to be written is as much as may wait.
    pub(super) fn is_full(&self, queued: usize) -> bool {
        queued >= OUTPUT_BYTES_MAX || (queued >= LITTLE_BYTES && self.client.is_tight())
    }
}
