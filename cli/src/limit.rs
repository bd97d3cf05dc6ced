//! Limits as they are typed.

/// A limit that may be lifted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Limit {
    /// No limit.
    Unlimited,
    /// At most this; the flag names the unit.
    At(u64),
}

/// An age with its unit, in milliseconds.
pub(crate) fn parse_age(text: &str) -> Result<Limit, String> {
    scaled(text, &[("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)])
}

/// A time with its unit, in milliseconds; there is no lifting it.
pub(crate) fn parse_ms(text: &str) -> Result<u64, String> {
    match parse_age(text) {
        Ok(Limit::At(ms)) => Ok(ms),
        _ => Err("expected a number with one of the units ms, s, m, h, d".to_owned()),
    }
}

/// A size with its unit, in bytes.
pub(crate) fn parse_size(text: &str) -> Result<Limit, String> {
    const K: u64 = 1024;
    scaled(text, &[("KiB", K), ("MiB", K * K), ("GiB", K * K * K), ("TiB", K * K * K * K), ("B", 1), ("", 1)])
}

/// A size with its unit, in bytes; there is no lifting it.
pub(crate) fn parse_bytes(text: &str) -> Result<u64, String> {
    match parse_size(text)? {
        Limit::At(bytes) => Ok(bytes),
        Limit::Unlimited => Err("expected a number with one of the units KiB, MiB, GiB, TiB, B".to_owned()),
    }
}

/// A count.
pub(crate) fn parse_count(text: &str) -> Result<Limit, String> {
    scaled(text, &[("", 1)])
}

/// `<digits><unit>` in the smallest unit, or `unlimited`.
fn scaled(text: &str, units: &[(&str, u64)]) -> Result<Limit, String> {
    if text == "unlimited" {
        return Ok(Limit::Unlimited);
    }
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(split);
    let names =
        || units.iter().map(|(name, _)| *name).filter(|name| !name.is_empty()).collect::<Vec<_>>().join(", ");
    let factor = units.iter().find(|(name, _)| *name == unit.trim()).map(|(_, factor)| *factor);
    let number = digits.parse::<u64>().ok();
    match (number, factor) {
        (Some(number), Some(factor)) => {
            number.checked_mul(factor).map(Limit::At).ok_or_else(|| "too large".to_owned())
        }
        _ if names().is_empty() => Err("expected a number or `unlimited`".to_owned()),
        _ => Err(format!("expected a number with one of the units {}, or `unlimited`", names())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_take_units_and_can_be_lifted() {
        assert_eq!(parse_age("90s"), Ok(Limit::At(90_000)));
        assert_eq!(parse_age("7d"), Ok(Limit::At(604_800_000)));
        assert_eq!(parse_size("20GiB"), Ok(Limit::At(20 << 30)));
        assert_eq!(parse_size("4096"), Ok(Limit::At(4096)));
        assert_eq!(parse_count("unlimited"), Ok(Limit::Unlimited));
        assert_eq!(parse_ms("2m"), Ok(120_000));
        assert!(parse_ms("unlimited").is_err());
        assert!(parse_age("7").is_err(), "an age without a unit is ambiguous");
        assert!(parse_size("1GB").is_err(), "decimal units are not offered");
        assert!(parse_size("99999999999TiB").is_err());
        assert!(parse_count("ten").is_err());
    }
}
