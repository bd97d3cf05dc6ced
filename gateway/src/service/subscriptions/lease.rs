//! What a lease token says.

use weir_protocol::error::ErrorCode;
use weir_protocol::ids::{Incarnation, Offset, PartitionId};

use crate::service::ServiceError;
use crate::service::token::{TokenReader, TokenWriter};

const VERSION: u8 = 1;
const PREFIX: &str = "l_";

/// One delivery of one message. Any gateway can read its token; it proves and grants nothing: the partition checks
/// the fence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Lease {
    /// Life of the subscription.
    pub subscription: u64,
    /// Life of the topic.
    pub incarnation: Incarnation,
    /// Partition.
    pub partition: PartitionId,
    /// The message.
    pub offset: Offset,
    /// The delivery.
    pub fence: u64,
}

impl Lease {
    /// The token: `l_` and base64url.
    #[must_use]
    pub fn encode(&self) -> String {
        let token = TokenWriter::new(VERSION)
            .number(self.subscription)
            .number(self.incarnation.0)
            .number(self.partition.0.into())
            .number(self.offset.0)
            .number(self.fence)
            .finish();
        format!("{PREFIX}{token}")
    }

    /// Reads a token.
    ///
    /// # Errors
    /// `invalid_cursor` for what no gateway wrote.
    pub fn decode(text: &str) -> Result<Self, ServiceError> {
        read(text).ok_or_else(|| {
            let start: String = text.chars().take(64).collect();
            ServiceError::new(ErrorCode::InvalidCursor, format!("{start:?} is no lease of this service"))
        })
    }
}

fn read(text: &str) -> Option<Lease> {
    let mut reader = TokenReader::new(VERSION, text.strip_prefix(PREFIX)?)?;
    let lease = Lease {
        subscription: reader.number()?,
        incarnation: Incarnation(reader.number()?),
        partition: PartitionId(reader.small()?),
        offset: Offset(reader.number()?),
        fence: reader.number()?,
    };
    reader.end()?;
    Some(lease)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_lease_comes_back_and_nothing_else_is_one(
            (subscription, incarnation, offset, fence) in any::<(u64, u64, u64, u64)>(),
            partition in any::<u32>(),
            noise in "[A-Za-z0-9_-]{0,40}",
        ) {
            let lease = Lease {
                subscription,
                incarnation: Incarnation(incarnation),
                partition: PartitionId(partition),
                offset: Offset(offset),
                fence,
            };
            let token = lease.encode();
            prop_assert_eq!(Lease::decode(&token).unwrap(), lease);
            for bad in [&token[2..], &token[..token.len() - 1], &format!("{token}A"), &noise, &format!("l_{noise}")] {
                prop_assert_eq!(Lease::decode(bad).unwrap_err().code(), ErrorCode::InvalidCursor);
            }
        }
    }

    #[test]
    fn a_token_of_another_kind_is_no_lease() {
        let other = TokenWriter::new(VERSION + 1).number(1).number(2).number(3).number(4).number(5).finish();
        assert!(Lease::decode(&format!("l_{other}")).is_err());
        let longer =
            TokenWriter::new(VERSION).number(1).number(2).number(3).number(4).number(5).number(6).finish();
        assert!(Lease::decode(&format!("l_{longer}")).is_err());
    }
}
