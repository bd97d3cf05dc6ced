//! Room for records that are on their way to one client.

use std::sync::Arc;
use std::time::Duration;

use super::parcel::Parcel;
use crate::answers::{Client, Full, Held};

/// Records that take no more than this are on their way without room of their own.
const LITTLE_BYTES: u64 = 64 << 10;
/// Whoever finds no room looks again after this.
const RETRY: Duration = Duration::from_millis(250);

/// How records are held on their way to a client.
#[derive(Debug, Clone)]
pub(crate) struct Room {
    /// Whose they are.
    pub(crate) client: Arc<Client>,
    /// So many bytes are held of what is made of each of their bytes.
    pub(crate) times: u64,
    /// Held besides.
    pub(crate) besides: u64,
}

impl Room {
    /// Room for records of so many bytes, that are kept for this client alone or `shared` with others; none if they are
    /// few.
    pub(super) fn hold(&self, bytes: u64, is_shared: bool) -> Result<Option<Held>, Full> {
        if bytes <= LITTLE_BYTES {
            return Ok(None);
        }
        let own = if is_shared { 0 } else { bytes };
        match own + bytes * self.times + self.besides {
            0 => Ok(None),
            wanted => self.client.hold(wanted).map(Some),
        }
    }

    /// `parcel` with room for it, or as it was.
    pub(super) fn held(room: Option<&Self>, parcel: Parcel, bytes: u64) -> Result<Parcel, Parcel> {
        let Some(room) = room else { return Ok(parcel) };
        match room.hold(bytes, parcel.is_shared()) {
            Ok(None) => Ok(parcel),
            Ok(Some(held)) => Ok(Parcel::Held(Box::new(parcel), Arc::new(held))),
            Err(_) => Err(parcel),
        }
    }

    /// Waits until there is room for records of so many bytes, and holds it.
    ///
    /// # Cancel safety
    /// Nothing is held.
    pub(super) async fn wait(&self, bytes: u64) -> Option<Held> {
        loop {
            tokio::time::sleep(RETRY).await;
            if let Ok(held) = self.hold(bytes, false) {
                return held;
            }
        }
    }

    /// Waits until it is worth looking again.
    pub(super) async fn later() {
        tokio::time::sleep(RETRY).await;
    }
}
