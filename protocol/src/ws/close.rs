//! Why a WebSocket was closed, and whether to come back.

macro_rules! close_codes {
    ($($(#[$doc:meta])* $variant:ident = $number:literal, $text:literal;)+) => {
        /// A close code: 4000–4499 reconnect with jittered backoff, 4500–4999 do not.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u16)]
        pub enum CloseCode {
            $($(#[$doc])* $variant = $number,)+
        }

        impl CloseCode {
            /// All codes, ascending.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The reason text sent with it.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }

            /// The code a peer sent; `None` for one that is not Weir's or from a newer peer.
            #[must_use]
            pub const fn from_number(number: u16) -> Option<Self> {
                match number { $($number => Some(Self::$variant),)+ _ => None }
            }
        }
    };
}

close_codes! {
    /// The gateway is shutting down.
    GoingAway = 4000, "going-away";
    /// The resume token is no longer known; start anew.
    ResumeExpired = 4001, "resume-expired";
    /// Nothing was heard from the client in time.
    HeartbeatTimeout = 4002, "heartbeat-timeout";
    /// A defect in Weir.
    Internal = 4003, "internal";
    /// Another gateway serves this now.
    Moved = 4004, "moved";
    /// The token's time ran out.
    TokenExpired = 4005, "token-expired";
    /// More was sent than the policy allows.
    RateLimited = 4006, "rate-limited";
    /// A publish crossed a limit that had just been lowered by a reconnect.
    CreditViolationSoft = 4007, "credit-violation-soft";
    /// A frame could not be understood.
    BadFrame = 4500, "bad-frame";
    /// No credential, or one that does not verify.
    Unauthorized = 4501, "unauthorized";
    /// The principal may not do this.
    Forbidden = 4502, "forbidden";
    /// The client speaks another version.
    UnsupportedVersion = 4503, "unsupported-version";
    /// Too many connections of this client.
    ConnectionLimit = 4504, "connection-limit";
    /// What the connection is about does not exist.
    NotFound = 4505, "not-found";
    /// An exclusive consumer took over.
    Replaced = 4506, "replaced";
    /// The client published past its limit.
    CreditViolation = 4507, "credit-violation";
}

impl CloseCode {
    /// The number sent.
    #[must_use]
    pub const fn number(self) -> u16 {
        self as u16
    }

    /// True if a client that was closed with `number` shall reconnect, whether it knows the code or not. Codes
    /// outside Weir's range come from the network or a proxy: reconnect.
    #[must_use]
    pub const fn number_reconnects(number: u16) -> bool {
        !matches!(number, 4500..=4999)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_round_trip_and_split_into_reconnecting_and_terminal() {
        for &code in CloseCode::ALL {
            assert_eq!(CloseCode::from_number(code.number()), Some(code));
            let number = code.number();
            assert_eq!(CloseCode::number_reconnects(number), number < 4500, "{code:?}");
        }
        assert!(CloseCode::ALL.is_sorted_by_key(|code| code.number()));
        assert_eq!(CloseCode::from_number(1006), None);
        assert!(CloseCode::number_reconnects(1006) && !CloseCode::number_reconnects(4999));
    }
}
