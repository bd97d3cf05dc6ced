//! What can go wrong with an object.

use std::error::Error as _;
use std::io::ErrorKind;
use std::time::Duration;

use object_store::Error;
use object_store::client::HttpError;

use crate::pack::PackError;

/// Why an object could not be read or written. Every variant names it.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// There is no such object.
    #[error("object {object} is missing")]
    Missing {
        /// Its name.
        object: String,
    },
    /// Another object of that name was there first: nothing was written.
    #[error("object {object} exists already, with other contents")]
    Exists {
        /// Its name.
        object: String,
    },
    /// The store does not let us: somebody has to change credentials, permissions or the bucket's name.
    #[error("object {object}: the store refuses: {source}")]
    Refused {
        /// Its name.
        object: String,
        /// What the store says.
        source: Error,
    },
    /// The store could not do it, now: trying again later may help.
    #[error("object {object}: the store failed: {source}")]
    Failed {
        /// Its name.
        object: String,
        /// What the store says.
        source: Error,
    },
    /// The store did not answer in time. What was asked for may still happen.
    #[error("object {object}: no answer from the store within {} ms", after.as_millis())]
    TimedOut {
        /// Its name.
        object: String,
        /// How long was waited.
        after: Duration,
    },
    /// So many others waited for the store that its turn did not come: nothing was asked.
    #[error("object {object}: it was not its turn within {} ms: the store answers too slowly", after.as_millis())]
    Crowded {
        /// Its name.
        object: String,
        /// How long was waited.
        after: Duration,
    },
    /// Fewer or more bytes came than the object has.
    #[error("object {object}: {have} bytes came where {want} were expected")]
    Length {
        /// Its name.
        object: String,
        /// Bytes that came.
        have: u64,
        /// Bytes expected.
        want: u64,
    },
    /// More objects are there than can be told apart from a part of them.
    #[error("more than {most} objects lie in {object}")]
    TooMany {
        /// The folder.
        object: String,
        /// How many there may be.
        most: usize,
    },
    /// The object's bytes are not those that were written.
    #[error("object {object} is damaged: {source}")]
    Damaged {
        /// Its name.
        object: String,
        /// What is wrong with them.
        source: PackError,
    },
}

impl StoreError {
    /// The error of an answer that came. What waiting does not help is a refusal; of an answer that is
    /// neither that nor one of its own the library does not tell the status, so a request that makes no sense
    /// to the store counts as one that it could not do now.
    pub(crate) fn of(object: &str, source: Error) -> Self {
        let object = object.to_owned();
        match source {
            // A bucket that does not exist reads like an object that does not; only the self-test tells them apart.
            Error::NotFound { .. } => Self::Missing { object },
            Error::AlreadyExists { .. } | Error::Precondition { .. } => Self::Exists { object },
            source @ (Error::PermissionDenied { .. }
            | Error::Unauthenticated { .. }
            | Error::NotSupported { .. }
            | Error::NotImplemented { .. }
            | Error::InvalidPath { .. }
            | Error::UnknownConfigurationKey { .. }) => Self::Refused { object, source },
            source if is_forbidden(&source) => Self::Refused { object, source },
            source => Self::Failed { object, source },
        }
    }

    /// Name of the object.
    #[must_use]
    pub fn object(&self) -> &str {
        match self {
            Self::Missing { object }
            | Self::Exists { object }
            | Self::Refused { object, .. }
            | Self::Failed { object, .. }
            | Self::TimedOut { object, .. }
            | Self::Crowded { object, .. }
            | Self::Length { object, .. }
            | Self::TooMany { object, .. }
            | Self::Damaged { object, .. } => object,
        }
    }

    /// Trying again may help, without anybody changing anything.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Failed { .. } | Self::TimedOut { .. } | Self::Crowded { .. } => true,
            // A body may be cut short on its way; it never grows there.
            Self::Length { have, want, .. } => have < want,
            _ => false,
        }
    }

    /// The store takes too long: asking at once again takes as long.
    #[must_use]
    pub fn is_slowness(&self) -> bool {
        matches!(self, Self::TimedOut { .. } | Self::Crowded { .. })
    }

    /// The object itself is gone or not what was written: no waiting helps.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        matches!(self, Self::Missing { .. } | Self::Damaged { .. })
    }
}

/// A folder whose permissions, or file system, do not let us. Of a connection that was not let through nobody
/// knows whose doing it is.
fn is_forbidden(error: &Error) -> bool {
    let (mut cause, mut is_forbidden) = (error.source(), false);
    while let Some(next) = cause {
        let kind = next.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
        is_forbidden |= matches!(kind, Some(ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem));
        if next.is::<HttpError>() {
            return false;
        }
        cause = next.source();
    }
    is_forbidden
}
