//! What names a message of a subscription.

use std::fmt;

use weir_protocol::decimal::{decimal, integer};
use weir_protocol::ids::{Name, Offset, PartitionId};

/// `0:76531`, partition and offset; of a subscription to several topics `orders:0:76531`. No name contains a colon.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct MessageId {
    /// The topic, where there are several.
    pub topic: Option<Name>,
    /// The partition.
    pub partition: PartitionId,
    /// The offset.
    pub offset: Offset,
}

impl MessageId {
    /// Reads one; `None` for what is none.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (rest, offset) = text.rsplit_once(':')?;
        let (topic, partition) = match rest.split_once(':') {
            Some((topic, partition)) => (Some(Name::new(topic).ok()?), partition),
            None => (None, rest),
        };
        let (partition, offset) = (PartitionId(decimal(partition)?), Offset(integer(offset)?));
        Some(Self { topic, partition, offset })
    }
}

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(topic) = &self.topic {
            write!(f, "{topic}:")?;
        }
        write!(f, "{}:{}", self.partition, self.offset.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_comes_back_and_nothing_else_is_one() {
        for text in ["0:0", "7:9007199254740991", "orders:0:76531", "a.b~-_:1023:5"] {
            assert_eq!(MessageId::parse(text).unwrap().to_string(), text);
        }
        for bad in [
            "",
            ":",
            "7",
            "0:",
            "7:9007199254740992",
            ":0",
            "x:0",
            "orders:0",
            "a:b:0:1",
            ":0:1",
            "..:0:1",
            "a*:0:1",
            "0:-1",
            "0:+1",
            "+0:1",
            "orders:+0:1",
        ] {
            assert_eq!(MessageId::parse(bad), None, "{bad}");
        }
    }
}
