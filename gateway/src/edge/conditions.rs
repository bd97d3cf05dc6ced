//! `If-Match` and `If-None-Match` (RFC 9110, section 13.1): what a request asks of the tags of what it is about.
//!
//! Versions and tails only grow. So a list of them is asked for in their order, and whoever is told a later
//! one of the list asks for that: at the moment of the last refusal none of the list was there, or the one
//! that matched was.

use std::collections::BTreeSet;

use weir_protocol::decimal::decimal;
use weir_protocol::error::ErrorCode;
use weir_protocol::ids::{Incarnation, Offset, PartitionId};

use super::call::Call;
use crate::api::Problem;

const IF_MATCH: &str = "If-Match";
const IF_NONE_MATCH: &str = "If-None-Match";

/// What a condition names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Condition<T> {
    /// `*`: anything that is there.
    Any,
    /// Any of these.
    Of(T),
}

/// Versions of one life of a configuration, in their order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Versions {
    life: u64,
    versions: BTreeSet<u32>,
}

/// Ends of one partition of one life of a topic, in their order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Tails {
    pub(super) incarnation: Incarnation,
    pub(super) partition: PartitionId,
    ends: BTreeSet<Offset>,
}

impl Versions {
    /// Those of the latest life: of an earlier one nothing can match any more.
    fn of(tags: &[(u64, u32)]) -> Option<Self> {
        let life = tags.iter().map(|(life, _)| *life).max()?;
        Some(Self::of_life(life, tags))
    }

    fn of_life(life: u64, tags: &[(u64, u32)]) -> Self {
        let versions = tags.iter().filter(|(of, _)| *of == life).map(|(_, version)| *version);
        Self { life, versions: versions.collect() }
    }

    fn first(&self) -> Option<(u64, u32)> {
        Some((self.life, *self.versions.first()?))
    }

    /// The version to ask for after `asked` was refused: the one that is there, if it is named.
    fn after(&self, asked: u32, refused: &Problem) -> Option<(u64, u32)> {
        let there = refused.current.as_ref()?.config_version?;
        let is_next =
            refused.is(ErrorCode::VersionMismatch) && there > asked && self.versions.contains(&there);
        is_next.then_some((self.life, there))
    }
}

impl Tails {
    /// The first to ask for.
    pub(super) fn first(&self) -> Offset {
        *self.ends.first().expect("at least one is named")
    }

    pub(super) fn are_several(&self) -> bool {
        self.ends.len() > 1
    }

    /// Whether to ask for `there`, which is the end, after `asked` was refused.
    pub(super) fn has_after(&self, asked: Offset, there: Offset) -> bool {
        there > asked && self.ends.contains(&there)
    }
}

/// What `If-Match` asks of a configuration, if it is given.
pub(super) fn if_match(call: &Call) -> Result<Option<Condition<Versions>>, Problem> {
    let Some(named) = condition(call, IF_MATCH)? else { return Ok(None) };
    if call.headers.contains_key(IF_NONE_MATCH) {
        return Err(Problem::invalid_header(IF_NONE_MATCH, "given together with If-Match"));
    }
    let Condition::Of(tags) = strong(named)? else { return Ok(Some(Condition::Any)) };
    let ours: Vec<_> = tags.iter().filter_map(|tag| version(tag)).collect();
    Ok(Some(Condition::Of(Versions::of(&ours).ok_or_else(not_ours)?)))
}

/// The same of a namespace, which has one life that its tags call 0.
pub(super) fn if_match_namespace(call: &Call) -> Result<Option<Condition<Versions>>, Problem> {
    Ok(match if_match(call)? {
        Some(Condition::Of(versions)) if versions.life != 0 => {
            let detail = "If-Match names what is no namespace";
            return Err(Problem::new(ErrorCode::VersionMismatch, detail));
        }
        named => named,
    })
}

/// Asks for each version that is named until one is there, or for whatever is there if none is.
///
/// # Errors
/// What the last one was refused with.
pub(super) async fn for_any<T, F: Future<Output = Result<T, Problem>> + Send>(
    named: Option<Condition<Versions>>,
    ask: impl Fn(Option<(u64, u32)>) -> F + Send,
) -> Result<T, Problem> {
    let Some(Condition::Of(versions)) = named else { return ask(None).await };
    let mut next = versions.first();
    loop {
        let answer = ask(next).await;
        let Err(refused) = &answer else { return answer };
        let later = next.and_then(|(_, asked)| versions.after(asked, refused));
        if later.is_none() {
            return answer;
        }
        next = later;
    }
}

/// What `If-None-Match` asks of a configuration that is to be made: `*` that there is none, or that it has
/// none of these tags.
pub(super) fn if_none_match(call: &Call) -> Result<Option<Condition<Vec<String>>>, Problem> {
    let named = condition(call, IF_NONE_MATCH)?;
    Ok(named.map(|named| match named {
        Condition::Any => Condition::Any,
        // Compared weakly: whether a tag is weak does not matter.
        Condition::Of(tags) => {
            Condition::Of(tags.into_iter().map(|tag| format!("\"{}\"", tag.text)).collect())
        }
    }))
}

/// What `If-Match` asks of a partition's tail, if it is given.
pub(super) fn if_match_tail(call: &Call) -> Result<Option<Condition<Tails>>, Problem> {
    let Some(named) = condition(call, IF_MATCH)? else { return Ok(None) };
    let Condition::Of(tags) = strong(named)? else { return Ok(Some(Condition::Any)) };
    let ours: Vec<_> = tags.iter().filter_map(|tag| tail(tag)).collect();
    let life = ours.iter().map(|(life, ..)| *life).max().ok_or_else(not_ours)?;
    let mut of_life = ours.into_iter().filter(|(of, ..)| *of == life);
    let (incarnation, partition, end) = of_life.next().ok_or_else(not_ours)?;
    let mut ends = BTreeSet::from([end]);
    for (_, other, end) in of_life {
        if other != partition {
            let why = format!("tags of the partitions {partition} and {other}: a message goes to one");
            return Err(Problem::invalid_header(IF_MATCH, why));
        }
        ends.insert(end);
    }
    Ok(Some(Condition::Of(Tails { incarnation, partition, ends })))
}

fn not_ours() -> Problem {
    Problem::invalid_header(IF_MATCH, "no tag of this gateway")
}

fn version(tag: &Tag<'_>) -> Option<(u64, u32)> {
    let (life, version) = tag.text.split_once(':')?;
    Some((decimal(life)?, decimal(version)?))
}

fn tail(tag: &Tag<'_>) -> Option<(Incarnation, PartitionId, Offset)> {
    let mut parts = tag.text.split(':');
    let tail = (
        Incarnation(decimal(parts.next()?)?),
        PartitionId(decimal(parts.next()?)?),
        Offset(decimal(parts.next()?)?),
    );
    parts.next().is_none().then_some(tail)
}

/// Refuses weak tags by name: under the strong comparison (section 8.8.3.2) none of them matches anything.
fn strong(named: Condition<Vec<Tag<'_>>>) -> Result<Condition<Vec<Tag<'_>>>, Problem> {
    if let Condition::Of(tags) = &named
        && let Some(weak) = tags.iter().find(|tag| tag.is_weak)
    {
        let why = format!("W/\"{}\" is weak, and nothing matches a weak tag here", weak.text);
        return Err(Problem::invalid_header(IF_MATCH, why));
    }
    Ok(named)
}

/// An entity tag (section 8.8.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Tag<'a> {
    is_weak: bool,
    /// What is between the quotes.
    text: &'a str,
}

/// The lines of a header as one list.
fn condition<'a>(call: &'a Call, name: &'static str) -> Result<Option<Condition<Vec<Tag<'a>>>>, Problem> {
    let mut lines = call.headers.get_all(name).iter();
    let Some(first) = lines.next() else { return Ok(None) };
    let text = |line: &'a http::HeaderValue| {
        line.to_str().map_err(|_| Problem::invalid_header(name, "not visible ASCII"))
    };
    let malformed = || Problem::invalid_header(name, "neither * nor a list of tags in double quotes");
    let first = text(first)?;
    let mut tags = tags_of(first);
    let is_any = first.trim_matches([' ', '\t']) == "*";
    for line in lines {
        let more = tags_of(text(line)?).ok_or_else(malformed)?;
        tags.as_mut().ok_or_else(malformed)?.extend(more);
    }
    if is_any {
        return Ok(Some(Condition::Any));
    }
    Ok(Some(Condition::Of(tags.filter(|tags| !tags.is_empty()).ok_or_else(malformed)?)))
}

/// A list of tags, some of which may be empty (section 5.6.1); `None` if it is something else.
fn tags_of(list: &str) -> Option<Vec<Tag<'_>>> {
    let blank = [' ', '\t'];
    let mut tags = Vec::new();
    let mut rest = list.trim_start_matches(blank);
    while !rest.is_empty() {
        if !rest.starts_with(',') {
            let (is_weak, quoted) = rest.strip_prefix("W/").map_or((false, rest), |quoted| (true, quoted));
            let (text, after) = quoted.strip_prefix('"')?.split_once('"')?;
            if text.contains(blank) {
                return None;
            }
            tags.push(Tag { is_weak, text });
            rest = after.trim_start_matches(blank);
        }
        rest = match rest.strip_prefix(',') {
            Some(next) => next.trim_start_matches(blank),
            None if rest.is_empty() => rest,
            None => return None,
        };
    }
    Some(tags)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(list: &str) -> Option<Vec<(bool, &str)>> {
        Some(tags_of(list)?.into_iter().map(|tag| (tag.is_weak, tag.text)).collect())
    }

    #[test]
    fn a_list_has_tags_in_quotes_weak_ones_and_empty_places() {
        assert_eq!(texts(r#""1:2""#), Some(vec![(false, "1:2")]));
        assert_eq!(
            texts(r#" "1:2" ,W/"a,b",, "" , "#),
            Some(vec![(false, "1:2"), (true, "a,b"), (false, "")])
        );
        assert_eq!(texts(" ,\t,"), Some(Vec::new()));
        for none in [
            "1:2",
            "\"1:2",
            "\"1:2\" \"1:3\"",
            "\"1:2\"x",
            "w/\"1:2\"",
            "W/ \"1:2\"",
            "*",
            "\"a b\"",
            "\"1\", *",
        ] {
            assert_eq!(texts(none), None, "{none}");
        }
    }

    #[test]
    fn the_version_that_is_there_is_asked_for_next_if_it_is_named_and_later() {
        let versions = Versions::of(&[(2, 9), (1, 30), (2, 5), (2, 7)]).unwrap();
        assert_eq!(versions.first(), Some((2, 5)), "of an earlier life nothing matches");
        let there = |version: u32| {
            let current =
                crate::api::Current { config_version: Some(version), ..crate::api::Current::default() };
            Problem::new(ErrorCode::VersionMismatch, "").with_current(current)
        };
        assert_eq!(versions.after(5, &there(9)), Some((2, 9)));
        assert_eq!(versions.after(5, &there(8)), None);
        assert_eq!(versions.after(7, &there(5)), None, "versions grow");
        assert_eq!(versions.after(5, &Problem::new(ErrorCode::IncarnationGone, "")), None);
        assert_eq!(Versions::of(&[]), None);
    }
}
