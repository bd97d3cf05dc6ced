//! Pages of names. A page ends where it is full, or where enough names were looked at: whoever asks for one
//! that hardly any name matches holds up nobody.

/// Looks through `names`, which are in order, for at most `limit` items that are meant, and at no more than
/// `looked_max` names.
///
/// What was found, and, where names are left, the last one that was looked at: the next page begins behind
/// it. A page that is full goes on to the next item that is meant, so that one without an end is the last.
pub(super) fn page<'a, T>(
    names: impl Iterator<Item = (&'a str, T)>,
    limit: u32,
    looked_max: usize,
    is_meant: impl Fn(&str, &T) -> bool,
) -> (Vec<T>, Option<String>) {
    let (mut found, mut looked_to) = (Vec::new(), None);
    for (looked, (name, item)) in names.enumerate() {
        let is_wanted = is_meant(name, &item);
        if looked == looked_max || (is_wanted && found.len() == limit as usize) {
            return (found, looked_to.map(str::to_owned));
        }
        if is_wanted {
            found.push(item);
        }
        looked_to = Some(name);
    }
    (found, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 6] = ["a1", "a2", "b1", "b2", "c1", "c2"];

    fn find(text: &str, after: &str, limit: u32, looked_max: usize) -> (Vec<usize>, Option<String>) {
        let names = NAMES.into_iter().zip(0..).filter(|(name, _)| *name > after);
        page(names, limit, looked_max, |name, _| name.contains(text))
    }

    #[test]
    fn a_page_is_filled_and_the_last_one_says_so() {
        assert_eq!(find("1", "", 2, 100), (vec![0, 2], Some("b2".to_owned())));
        assert_eq!(find("1", "b2", 2, 100), (vec![4], None));
        assert_eq!(find("b", "", 2, 100), (vec![2, 3], None), "no other matches");
        assert_eq!(find("", "", 6, 100).1, None);
        assert_eq!(find("x", "", 1, 100), (vec![], None));
    }

    #[test]
    fn no_more_names_are_looked_at_than_may_be() {
        assert_eq!(find("c", "", 5, 4), (vec![], Some("b2".to_owned())));
        assert_eq!(find("c", "b2", 5, 4), (vec![4, 5], None));
        assert_eq!(find("c", "", 5, 6), (vec![4, 5], None), "there are no more");
        assert_eq!(find("1", "", 5, 3), (vec![0, 2], Some("b1".to_owned())));
    }
}
