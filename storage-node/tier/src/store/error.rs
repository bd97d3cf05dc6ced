//! What can go wrong with an object.

use std::time::Duration;

use object_store::Error;

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
    /// The error of an answer that came.
    pub(crate) fn of(object: &str, source: Error) -> Self {
        let object = object.to_owned();
        match source {
            // A bucket that does not exist reads like an object that does not; only the self-test tells them apart.
            Error::NotFound { .. } => Self::Missing { object },
            Error::AlreadyExists { .. } | Error::Precondition { .. } => Self::Exists { object },
            source @ (Error::PermissionDenied { .. } | Error::Unauthenticated { .. }) => {
                Self::Refused { object, source }
            }
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
            | Self::Length { object, .. }
            | Self::TooMany { object, .. }
            | Self::Damaged { object, .. } => object,
        }
    }

    /// Trying again may help, without anybody changing anything.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Failed { .. } | Self::TimedOut { .. } => true,
            // A body may be cut short on its way; it never grows there.
            Self::Length { have, want, .. } => have < want,
            _ => false,
        }
    }

    /// The object itself is gone or not what was written: no waiting helps.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        matches!(self, Self::Missing { .. } | Self::Damaged { .. })
    }
}
