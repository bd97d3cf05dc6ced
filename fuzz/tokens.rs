//! What must hold for any text taken for a token of a gateway: nothing panics, and what is accepted is the
//! same after it was written again.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use weir_gateway::fuzzed::cursor_of_a_list;
use weir_gateway::service::publish::Receipt;
use weir_gateway::service::read::Cursor;
use weir_gateway::service::subscriptions::Lease;
use weir_protocol::checksum::crc32c;

/// Cursors of readers and of lists, receipts and leases: the text as it comes, and the bytes as what stands
/// in one, with its checksum.
pub fn tokens(data: &[u8]) {
    if let Ok(text) = std::str::from_utf8(data) {
        token(text);
    }
    let sealed = URL_SAFE_NO_PAD.encode([data, &crc32c(data).to_le_bytes()].concat());
    for prefix in ["", "rcpt_", "l_"] {
        token(&format!("{prefix}{sealed}"));
    }
}

fn token(text: &str) {
    if let Ok(cursor) = Cursor::decode(text) {
        assert_eq!(Cursor::decode(&cursor.encode()), Ok(cursor));
    }
    if let Ok(receipt) = Receipt::decode(text) {
        assert_eq!(Receipt::decode(&receipt.encode()), Ok(receipt));
    }
    if let Ok(lease) = Lease::decode(text) {
        assert_eq!(Lease::decode(&lease.encode()), Ok(lease));
    }
    if let Some(again) = cursor_of_a_list(text) {
        assert_eq!(cursor_of_a_list(&again), Some(again));
    }
}
