//! Names of hosts, as requests carry them.

use std::net::Ipv6Addr;

/// A host without its port, as it is compared: in lower case, and without the dot of the root.
pub(crate) fn host_name(authority: &str) -> String {
    let (name, _) = split(authority);
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}

/// Whether that is a host as it stands in a URL, perhaps with a port. Others can be in no request, nor in a
/// certificate.
pub(crate) fn is_authority(authority: &str) -> bool {
    let (host, port) = split(authority);
    is_host(host) && port.is_none_or(|port| port.parse::<u16>().is_ok())
}

/// Whether that is a host's name in ASCII, or its address.
pub(crate) fn is_host(host: &str) -> bool {
    match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(address) => address.parse::<Ipv6Addr>().is_ok(),
        None => {
            !host.is_empty()
                && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
        }
    }
}

/// Host, and what stands for its port.
pub(crate) fn split(authority: &str) -> (&str, Option<&str>) {
    match authority.rfind(':') {
        Some(colon) if !authority[colon..].contains(']') => {
            (&authority[..colon], Some(&authority[colon + 1..]))
        }
        _ => (authority, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_a_name_in_ascii_or_an_address() {
        for authority in
            ["weir.example", "Weir.example.:8080", "mq_1", "10.0.0.7:80", "[::1]:9", "xn--bcher-kva.example"]
        {
            assert!(is_authority(authority), "{authority}");
        }
        for authority in [
            "",
            ":80",
            "bücher.example",
            "*.example",
            "https://weir.example",
            "a b",
            "[::x]",
            "fd00::1",
            "a:b",
            "a:",
        ] {
            assert!(!is_authority(authority), "{authority}");
        }
    }
}
