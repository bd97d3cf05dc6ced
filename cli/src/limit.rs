//! Limits as they are typed.

use std::ops::RangeInclusive;

const KIB: u64 = 1024;
/// Units of sizes, in bytes.
const SIZES: [(&str, u64); 6] =
    [("KiB", KIB), ("MiB", KIB << 10), ("GiB", KIB << 20), ("TiB", KIB << 30), ("B", 1), ("", 1)];

/// Units of times, in milliseconds.
const AGES: [(&str, u64); 5] = [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

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
    scaled(text, &AGES)
}

/// A time with its unit, in milliseconds; there is no lifting it.
pub(crate) fn parse_ms(text: &str) -> Result<u64, String> {
    match parse_age(text) {
        Ok(Limit::At(ms)) => Ok(ms),
        _ => Err("expected a number with one of the units ms, s, m, h, d".to_owned()),
    }
}

/// A time with its unit, in milliseconds, within `range`.
pub(crate) fn ms_in(
    range: RangeInclusive<u64>,
) -> impl Fn(&str) -> Result<u64, String> + Clone + Send + Sync + 'static {
    move |text| match parse_ms(text)? {
        ms if range.contains(&ms) => Ok(ms),
        _ => Err(format!("{} to {} are allowed", shown(*range.start(), &AGES), shown(*range.end(), &AGES))),
    }
}

/// A size with its unit, in bytes.
pub(crate) fn parse_size(text: &str) -> Result<Limit, String> {
    scaled(text, &SIZES)
}

/// A size with its unit, in bytes, within `range`; there is no lifting it.
pub(crate) fn bytes_in(
    range: RangeInclusive<u64>,
) -> impl Fn(&str) -> Result<u64, String> + Clone + Send + Sync + 'static {
    move |text| {
        let bytes = match parse_size(text)? {
            Limit::At(bytes) => bytes,
            Limit::Unlimited => {
                return Err("expected a number with one of the units KiB, MiB, GiB, TiB, B".to_owned());
            }
        };
        if range.contains(&bytes) {
            return Ok(bytes);
        }
        Err(format!("{} to {} are allowed", size(*range.start()), size(*range.end())))
    }
}

/// A size as it would be typed, in the largest unit that leaves no remainder.
pub(crate) fn size(bytes: u64) -> String {
    shown(bytes, &SIZES[..5])
}

/// A number in the largest of `units` that leaves no remainder; 0 in the smallest.
fn shown(number: u64, units: &[(&str, u64)]) -> String {
    let whole =
        units.iter().filter(|(_, factor)| *factor == 1 || (number > 0 && number.is_multiple_of(*factor)));
    let (unit, factor) = whole.max_by_key(|(_, factor)| *factor).copied().unwrap_or(("", 1));
    format!("{}{unit}", number / factor)
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
        let minute = ms_in(0..=60_000);
        assert_eq!((minute("60s"), minute("0s")), (Ok(60_000), Ok(0)));
        assert_eq!(minute("61s"), Err("0ms to 1m are allowed".to_owned()));
        assert_eq!(ms_in(1_000..=43_200_000)("1ms"), Err("1s to 12h are allowed".to_owned()));
        let few = bytes_in(1 << 10..=1 << 20);
        assert_eq!((few("1KiB"), few("1MiB")), (Ok(1 << 10), Ok(1 << 20)));
        assert_eq!(few("1023"), Err("1KiB to 1MiB are allowed".to_owned()));
        assert!(few("1048577B").is_err() && few("unlimited").is_err());
        for text in ["0B", "1B", "1023B", "1KiB", "1536B", "10MiB", "3TiB", "1025GiB"] {
            assert_eq!(
                parse_size(text).map(|limit| match limit {
                    Limit::At(bytes) => size(bytes),
                    Limit::Unlimited => String::new(),
                }),
                Ok(text.to_owned())
            );
        }
        assert!(parse_count("ten").is_err());
    }
}
