//! What a client accepts (RFC 9110, section 12.5.1).

use http::HeaderMap;
use http::header::ACCEPT;

use super::input::essence;

/// Media ranges with their weights, those that are liked best first, and in their order where they are liked alike.
#[derive(Debug)]
pub(super) struct Accepted(Vec<(String, f32)>);

impl Accepted {
    /// What all lines of `Accept` say together; anything if there is none. What is no text is passed over.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let lines = headers.get_all(ACCEPT).iter().filter_map(|line| line.to_str().ok());
        let mut ranges: Vec<_> = lines.flat_map(|line| line.split(',')).filter_map(range).collect();
        if ranges.is_empty() {
            ranges.push(("*/*".to_owned(), 1.0));
        }
        ranges.sort_by(|a, b| b.1.total_cmp(&a.1));
        Self(ranges)
    }

    /// The one of these media types that the client likes best: named, or the first that a range admits.
    pub(super) fn best(&self, media: &[&'static str]) -> Option<&'static str> {
        let wanted = self.0.iter().filter(|(_, weight)| *weight > 0.0);
        let mut found = wanted.filter_map(|(range, _)| {
            media.iter().copied().find(|media| admits(range, media) && self.weight(media) > 0.0)
        });
        found.next()
    }

    /// The weight of a media type by its own name; 0 if it is not named.
    pub(super) fn named(&self, media: &str) -> f32 {
        self.0.iter().find(|(range, _)| range == media).map_or(0.0, |(_, weight)| *weight)
    }

    /// The weight of a media type by what names it most exactly.
    pub(super) fn weight(&self, media: &str) -> f32 {
        let admitting = self.0.iter().filter(|(range, _)| admits(range, media));
        // A star is in place of what would be longer.
        admitting.max_by_key(|(range, _)| range.len()).map_or(0.0, |(_, weight)| *weight)
    }
}

/// A range in lower case and its weight; `None` for an empty member.
fn range(member: &str) -> Option<(String, f32)> {
    let range = essence(member);
    (!range.is_empty()).then_some((range, weight(member)))
}

/// The weight of one member of a list (section 12.4.2): 1 if it says none.
pub(super) fn weight(member: &str) -> f32 {
    let weight = member.split(';').skip(1).find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        name.trim().eq_ignore_ascii_case("q").then(|| value.trim().parse().ok())?
    });
    weight.unwrap_or(1.0)
}

fn admits(range: &str, media: &str) -> bool {
    match range.strip_suffix('*') {
        Some("*/") => true,
        Some(group) => group.ends_with('/') && media.starts_with(group),
        None => range == media,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_is_what_is_named_weighed_and_not_excluded() {
        let media = ["application/json", "application/x-ndjson", "text/plain"];
        for (lines, best) in [
            (&[][..], Some("application/json")),
            (&[""], Some("application/json")),
            (&["*/*"], Some("application/json")),
            (&["application/*"], Some("application/json")),
            (&["text/html", "Application/X-NDJSON"], Some("application/x-ndjson")),
            (&["application/x-ndjson, application/json"], Some("application/x-ndjson")),
            (&["application/x-ndjson;q=0.5", "application/json"], Some("application/json")),
            (&["application/json;q=0, */*"], Some("application/x-ndjson")),
            (&["*/*, application/json; Q=0", "application/x-ndjson;q=0.0"], Some("text/plain")),
            (&["application/*;q=0, application/json, */*;q=0.1"], Some("application/json")),
            (&["application/json;q=0"], None),
            (&["*/*;q=0"], None),
            (&["image/png"], None),
        ] {
            let headers: HeaderMap = lines.iter().map(|line| (ACCEPT, line.parse().unwrap())).collect();
            assert_eq!(Accepted::of(&headers).best(&media), best, "{lines:?}");
        }
    }
}
