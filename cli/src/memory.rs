//! Memory that was freed, given back to the system.
//!
//! The allocator keeps what is freed for a second, so that whoever needs it again finds it. It looks for what has
//! waited longer only when it needs fresh memory itself: a process that had much to do, and then has nothing, would
//! keep all of it.

use std::time::Duration;

/// Between two looks. No shorter than what the allocator waits for, which is when there is something to be found.
const EVERY: Duration = Duration::from_secs(1);

/// Looks from now on, in a thread of its own.
///
/// # Errors
/// There can be no further thread.
pub(crate) fn give_back() -> std::io::Result<()> {
    let look = || {
        loop {
            std::thread::sleep(EVERY);
            collect();
        }
    };
    std::thread::Builder::new().name("weir-memory".to_owned()).spawn(look).map(drop)
}

/// Gives back what nobody has asked for since it was freed, if that was a second ago. What threads have kept for
/// themselves, and what is used, is not touched.
#[expect(unsafe_code, reason = "the allocator's crate has no safe way to ask for it")]
fn collect() {
    unsafe extern "C" {
        fn mi_collect(force: bool);
    }
    // SAFETY: may be called at any time from any thread, and takes nothing that is in use.
    unsafe { mi_collect(false) }
}
