//! What a client keeps of a confirm, to ask again.

use weir_protocol::error::ErrorCode;
use weir_protocol::ids::{Incarnation, Offset, PartitionId, Term};
use weir_protocol::rpc::Level;

use crate::service::ServiceError;
use crate::service::token::{TokenReader, TokenWriter};

const VERSION: u8 = 1;
const PREFIX: &str = "rcpt_";

/// Names a record as it was answered: position, the term it was staged in, the level reached. Any gateway resolves
/// it. It proves nothing and grants nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Receipt {
    /// The topic's life.
    pub incarnation: Incarnation,
    /// Partition.
    pub partition: PartitionId,
    /// Offset of the first record that was answered.
    pub offset: Offset,
    /// Term in which the offset was given.
    pub term: Term,
    /// Level that was reached when it was written.
    pub level: Level,
}

impl Receipt {
    /// The token: `rcpt_` and base64url.
    #[must_use]
    pub fn encode(&self) -> String {
        let mut writer = TokenWriter::new(VERSION);
        writer.number(self.incarnation.0).number(u64::from(self.partition.0));
        writer.number(self.offset.0).number(self.term.0);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "levels are 0 to 5")]
        writer.byte(self.level as i32 as u8);
        format!("{PREFIX}{}", writer.finish())
    }

    /// Reads a token.
    ///
    /// # Errors
    /// `invalid_cursor` for what no gateway wrote.
    pub fn decode(token: &str) -> Result<Self, ServiceError> {
        let read = || {
            let mut reader = TokenReader::new(VERSION, token.strip_prefix(PREFIX)?)?;
            let receipt = Self {
                incarnation: Incarnation(reader.number()?),
                partition: PartitionId(reader.small()?),
                offset: Offset(reader.number()?),
                term: Term(reader.number()?),
                level: Level::try_from(i32::from(reader.byte()?)).ok()?,
            };
            reader.end()?;
            Some(receipt)
        };
        read()
            .ok_or_else(|| ServiceError::new(ErrorCode::InvalidCursor, "the receipt is none of this service"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receipt_comes_back_from_its_token_and_anything_else_is_refused() {
        let receipt = Receipt {
            incarnation: Incarnation(7 << 40 | 3),
            partition: PartitionId(11),
            offset: Offset(1 << 40),
            term: Term(5),
            level: Level::Memory,
        };
        let token = receipt.encode();
        assert_eq!(Receipt::decode(&token), Ok(receipt));
        for bad in ["", "rcpt_", &token[5..], &token[..token.len() - 1], "rcpt_AAAA"] {
            assert_eq!(Receipt::decode(bad).unwrap_err().code(), ErrorCode::InvalidCursor, "{bad}");
        }
    }
}
