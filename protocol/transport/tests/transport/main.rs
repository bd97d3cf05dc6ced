//! The transport as its two users see it: over memory, TCP and TLS, with good and bad peers.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod harness;
mod hostile;

/// Over bytes.
#[path = "."]
mod bytes {
    pub(crate) use crate::harness::bytes_link as memory_link;

    #[path = "calls.rs"]
    mod calls;
    #[path = "links.rs"]
    mod links;
    #[path = "streams.rs"]
    mod streams;
}

/// The same within a process, where frames never become bytes.
#[expect(clippy::duplicate_mod, reason = "one behaviour, two ways to carry frames")]
#[path = "."]
mod frames {
    pub(crate) use crate::harness::frames_link as memory_link;

    #[path = "calls.rs"]
    mod calls;
    #[path = "handing_over.rs"]
    mod handing_over;
    #[path = "links.rs"]
    mod links;
    #[path = "streams.rs"]
    mod streams;
}
