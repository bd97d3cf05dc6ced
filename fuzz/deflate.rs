//! What must hold for any bytes that a client sends where permessage-deflate was agreed: nothing panics, and
//! what comes of them does not depend on how they were cut.

use weir_gateway::fuzzed::{inflated, messages};

/// Bytes as they come, and as a message that is deflated, masked with zeros.
pub fn deflate(data: &[u8]) {
    same_however_cut(data);
    let Ok(length) = u16::try_from(data.len()) else { return };
    let mut message = vec![0xc1, 0x80 | 126];
    message.extend(length.to_be_bytes());
    message.extend([0; 4]);
    message.extend(data);
    same_however_cut(&message);
}

fn same_however_cut(bytes: &[u8]) {
    let (whole, is_broken) = inflated(bytes, usize::MAX);
    for piece in [1, 7] {
        let (pieces, is_broken_too) = inflated(bytes, piece);
        assert_eq!(is_broken_too, is_broken, "{piece} at a time");
        if is_broken {
            // Of the message that is broken more may be made before the byte comes that breaks it. Nobody sees it.
            assert_eq!(messages(&pieces), messages(&whole), "{piece} at a time");
        } else {
            assert_eq!(pieces, whole, "{piece} at a time");
        }
    }
}
