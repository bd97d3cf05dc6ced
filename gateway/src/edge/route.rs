//! Finds the operation of a request and checks its parameters against the table.

use std::borrow::Cow;
use std::sync::LazyLock;

use http::{Method, Uri};
use weir_protocol::decimal::decimal;
use weir_protocol::error::ErrorCode;
use weir_protocol::ids::Name;

use super::attribute::percent_decoded;
use crate::api::Problem;
use crate::api::operations::{Kind, OPERATIONS, Operation, Verb};

/// A request's operation and what its path and query name.
#[derive(Debug)]
pub(super) struct Route {
    pub(super) operation: &'static Operation,
    path: Vec<(&'static str, String)>,
    query: Vec<(String, String)>,
}

/// The operations with their paths divided, once: every request is compared with many of them.
///
/// Paths with a verb come first: what one of them is, no path without a verb is.
static TEMPLATES: LazyLock<Vec<Template>> = LazyLock::new(|| {
    let mut templates: Vec<_> = OPERATIONS.iter().map(Template::of).collect();
    templates.sort_by_key(|template| !template.has_verb());
    templates
});

struct Template {
    operation: &'static Operation,
    full: Vec<Part>,
    /// Without `ns/{ns}`, for the namespace `default`.
    short: Option<Vec<Part>>,
}

enum Part {
    Text(&'static str),
    Param(&'static str),
    /// `{subscription}`, or with a verb behind it as in `{subscription}:pull` and `{topic}:trim`. Names hold
    /// no colon, so that what stands behind one is the verb, and a path with a verb that does not exist is
    /// not found.
    Verb(&'static str, &'static str),
}

impl Template {
    fn of(operation: &&'static Operation) -> Self {
        let divided = |path: &'static str| path.trim_start_matches('/').split('/').map(Part::of);
        let has_short = |rest: &&str| rest.starts_with("topics") || rest.starts_with("subscriptions");
        let rest = operation.path.strip_prefix("/v1/ns/{ns}/").filter(has_short);
        let short = rest.map(|rest| std::iter::once(Part::Text("v1")).chain(divided(rest)).collect());
        Self { operation, full: divided(operation.path).collect(), short }
    }

    fn has_verb(&self) -> bool {
        self.full.iter().any(|part| matches!(part, Part::Verb(_, verb) if !verb.is_empty()))
    }
}

impl Part {
    fn of(segment: &'static str) -> Self {
        match segment.strip_prefix('{').and_then(|segment| segment.split_once('}')) {
            None => Self::Text(segment),
            Some((name, verb)) if name == "subscription" || !verb.is_empty() => Self::Verb(name, verb),
            Some((name, _)) => Self::Param(name),
        }
    }
}

impl Route {
    /// # Errors
    /// `route_not_found`, `method_not_allowed` (with the methods that are), `invalid_parameter`, `malformed`.
    pub(super) fn find(method: &Method, uri: &Uri) -> Result<Self, Problem> {
        let segments = segments(uri.path())?;
        let (mut allowed, mut is_of_verb) = (Vec::new(), false);
        for template in &*TEMPLATES {
            if is_of_verb && !template.has_verb() {
                break;
            }
            let Template { operation, full, short } = template;
            let forms = [Some(full), short.as_ref()];
            let Some(parts) = forms.into_iter().flatten().find(|parts| matches(parts, &segments)) else {
                continue;
            };
            if verb_of(method) == Some(operation.verb) {
                let query = query(operation, uri.query().unwrap_or_default())?;
                return Ok(Self { operation, path: bind(parts, segments), query });
            }
            allowed.push(format!("{:?}", operation.verb).to_uppercase());
            if operation.verb == Verb::Get {
                allowed.push(Method::HEAD.to_string());
            }
            is_of_verb = template.has_verb();
        }
        if allowed.is_empty() {
            return Err(Problem::new(ErrorCode::RouteNotFound, format!("there is no {}", uri.path())));
        }
        // Answered for every path.
        allowed.push(Method::OPTIONS.to_string());
        let allowed = allowed.join(", ");
        let detail = format!("{method} is not among the methods of this resource: {allowed}");
        let problem = Problem::new(ErrorCode::MethodNotAllowed, detail);
        Err(Problem { allow: Some(allowed), ..problem })
    }

    /// A path parameter of the operation's template.
    pub(super) fn path(&self, name: &'static str) -> &str {
        self.path.iter().find(|(found, _)| *found == name).map_or("", |(_, value)| value.as_str())
    }

    /// A path parameter that is a name.
    pub(super) fn name(&self, name: &'static str) -> Result<Name, Problem> {
        // Only the short form of a path names no namespace: a name that is there but empty is no name.
        let is_named = self.path.iter().any(|(found, _)| *found == name);
        let text = if name == "ns" && !is_named { "default" } else { self.path(name) };
        Name::new(text)
            .map_err(|error| Problem::new(ErrorCode::InvalidName, error.to_string()).with_field(name))
    }

    pub(super) fn query(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    pub(super) fn query_all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.query.iter().filter(move |(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    /// An integer parameter; its range was checked.
    pub(super) fn integer(&self, name: &str) -> Option<u64> {
        self.query(name).and_then(|text| text.parse().ok())
    }
}

fn verb_of(method: &Method) -> Option<Verb> {
    match *method {
        Method::GET | Method::HEAD => Some(Verb::Get),
        Method::PUT => Some(Verb::Put),
        Method::PATCH => Some(Verb::Patch),
        Method::POST => Some(Verb::Post),
        Method::DELETE => Some(Verb::Delete),
        _ => None,
    }
}

fn segments(path: &str) -> Result<Vec<Cow<'_, str>>, Problem> {
    path.trim_start_matches('/').split('/').map(decode).collect()
}

/// Percent-decoding; `+` stays a plus sign.
fn decode(text: &str) -> Result<Cow<'_, str>, Problem> {
    if !text.contains('%') {
        return Ok(Cow::Borrowed(text));
    }
    let malformed = || Problem::new(ErrorCode::Malformed, format!("{text:?} is not percent-encoded UTF-8"));
    let bytes = percent_decoded(text.as_bytes()).map_err(|_| malformed())?;
    String::from_utf8(bytes).map(Cow::Owned).map_err(|_| malformed())
}

fn matches(parts: &[Part], segments: &[Cow<'_, str>]) -> bool {
    parts.len() == segments.len()
        && parts.iter().zip(segments).all(|(part, segment)| match part {
            Part::Text(text) => text == segment,
            Part::Param(_) => true,
            Part::Verb(_, verb) => name_before(verb, segment).is_some(),
        })
}

fn bind(parts: &[Part], segments: Vec<Cow<'_, str>>) -> Vec<(&'static str, String)> {
    let bound = parts.iter().zip(segments).filter_map(|(part, segment)| match part {
        Part::Text(_) => None,
        Part::Param(name) => Some((*name, segment.into_owned())),
        Part::Verb(name, verb) => Some((*name, name_before(verb, &segment)?.to_owned())),
    });
    bound.collect()
}

/// What stands before `verb`, which is empty or begins with a colon.
fn name_before<'a>(verb: &str, segment: &'a str) -> Option<&'a str> {
    segment.strip_suffix(verb).filter(|name| !name.contains(':'))
}

fn query(operation: &Operation, query: &str) -> Result<Vec<(String, String)>, Problem> {
    let mut found: Vec<(String, String)> = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        // Forms write a space so, and with them curl, browsers and most libraries. Elsewhere it may be what
        // it is: in a time, say.
        let plain = if name == "filter" { value.replace('+', "%20") } else { value.to_owned() };
        let (name, value) = (decode(name)?, decode(&plain)?);
        let known = operation.query.iter().find(|param| param.name == name);
        let Some(param) = known else { return Err(unknown(operation, &name)) };
        if !matches!(param.kind, Kind::Forms(_)) && found.iter().any(|(earlier, _)| *earlier == name) {
            return Err(Problem::invalid_parameter(&name, "given twice"));
        }
        check(param.name, param.kind, &value)?;
        found.push((name.into_owned(), value.into_owned()));
    }
    let missing = operation
        .query
        .iter()
        .find(|param| param.required && !found.iter().any(|(name, _)| name == param.name));
    match missing {
        Some(param) => Err(Problem::invalid_parameter(param.name, "required")),
        None => Ok(found),
    }
}

/// True if a pair of a query, as it came, is of this parameter: names may be percent-encoded too.
pub(super) fn is_of(pair: &str, name: &str) -> bool {
    decode(pair.split('=').next().unwrap_or_default()).is_ok_and(|found| found == name)
}

/// The refusal of a parameter that an operation does not take, with those that it does.
fn unknown(operation: &Operation, name: &str) -> Problem {
    let taken: Vec<&str> = operation.query.iter().map(|param| param.name).collect();
    match taken.as_slice() {
        [] => Problem::invalid_parameter(name, "unknown here, where no parameter is taken"),
        taken => Problem::invalid_parameter(name, format!("unknown here; there are {}", taken.join(", "))),
    }
}

fn check(name: &str, kind: Kind, value: &str) -> Result<(), Problem> {
    let why = match kind {
        Kind::Text | Kind::Form(_) | Kind::Forms(_) => return Ok(()),
        Kind::Boolean if matches!(value, "true" | "false") => return Ok(()),
        Kind::Boolean => "true or false".to_owned(),
        Kind::OneOf(values) if values.contains(&value) => return Ok(()),
        Kind::OneOf(values) => format!("one of {}", values.join(", ")),
        Kind::Integer { min, max } => match decimal::<u64>(value) {
            Some(number) if (min..=max).contains(&number) => return Ok(()),
            _ => format!("an integer from {min} to {max}"),
        },
    };
    Err(Problem::invalid_parameter(name, format!("{value:?} is not {why}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(method: Method, uri: &str) -> Result<Route, String> {
        Route::find(&method, &uri.parse().unwrap()).map_err(|problem| problem.code.into_owned())
    }

    #[test]
    fn a_plus_is_a_space_in_a_filter_as_forms_are_written_and_a_plus_in_a_time() {
        let of = |query: &str, name: &str| {
            let route = find(Method::GET, &format!("/v1/topics/t/messages?{query}")).unwrap();
            route.query(name).map(str::to_owned)
        };
        let filter = of("filter=key+%3D%3D+%27a%2Bb%27", "filter");
        assert_eq!(filter.as_deref(), Some("key == 'a+b'"));
        let from = of("from=ts:2026-01-31T12:00:00+01:00", "from");
        assert_eq!(from.as_deref(), Some("ts:2026-01-31T12:00:00+01:00"));
    }

    #[test]
    fn long_and_short_paths_name_the_same_operation() {
        let long = find(Method::POST, "/v1/ns/default/topics/a%2Db/messages").unwrap();
        let short = find(Method::POST, "/v1/topics/a-b/messages").unwrap();
        assert_eq!((long.operation.id, short.operation.id), ("publishMessage", "publishMessage"));
        assert_eq!(long.name("topic").unwrap(), short.name("topic").unwrap());
        assert_eq!(short.name("ns").unwrap().as_str(), "default");
    }

    #[test]
    fn every_operation_is_found_at_its_own_path_with_its_parameters() {
        for operation in OPERATIONS {
            let method = format!("{:?}", operation.verb).to_uppercase().parse().unwrap();
            let path = operation.path.replace('{', "of-").replace('}', "");
            let query: Vec<_> = operation.query.iter().filter(|param| param.required).collect();
            let query: String = query.iter().map(|param| format!("{}=x&", param.name)).collect();
            let route = find(method, &format!("{path}?{query}")).unwrap();
            assert_eq!(route.operation.id, operation.id, "{path}");
            for name in crate::api::openapi::path_params(operation.path) {
                assert_eq!(route.path(name), format!("of-{name}"), "{path}");
            }
        }
    }

    #[test]
    fn a_verb_behind_a_subscriptions_name_is_an_operation_of_its_own() {
        let pull = find(Method::POST, "/v1/subscriptions/billing:pull").unwrap();
        assert_eq!((pull.operation.id, pull.path("subscription")), ("pullMessages", "billing"));
        assert_eq!(pull.name("ns").unwrap().as_str(), "default");
        let escaped = find(Method::POST, "/v1/ns/shop/subscriptions/billing%3Asettle").unwrap();
        assert_eq!((escaped.operation.id, escaped.path("ns")), ("settleMessages", "shop"));
        let read = find(Method::GET, "/v1/subscriptions/billing").unwrap();
        assert_eq!((read.operation.id, read.path("subscription")), ("readSubscription", "billing"));
        assert_eq!(find(Method::GET, "/v1/subscriptions/billing:pull").unwrap_err(), "method_not_allowed");
        for unknown in ["billing:eat", "a:b:pull", "billing:pull:pull", "billing:"] {
            let found = find(Method::POST, &format!("/v1/subscriptions/{unknown}"));
            assert_eq!(found.unwrap_err(), "route_not_found", "{unknown}");
        }
        let nameless = find(Method::POST, "/v1/subscriptions/:pull").unwrap();
        assert_eq!(nameless.name("subscription").unwrap_err().code, "invalid_name");
    }

    #[test]
    fn a_verb_may_stand_behind_a_topics_name() {
        let trim = find(Method::POST, "/v1/topics/orders:trim").unwrap();
        assert_eq!((trim.operation.id, trim.path("topic")), ("trimTopic", "orders"));
        for method in [Method::GET, Method::PUT, Method::PATCH, Method::DELETE] {
            let uri = "/v1/ns/shop/topics/orders:trim?dry_run=true".parse().unwrap();
            let refused = Route::find(&method, &uri).unwrap_err();
            assert_eq!((refused.status, refused.allow.as_deref()), (405, Some("POST, OPTIONS")), "{method}");
        }
        let refused = Route::find(&Method::POST, &"/v1/topics/orders".parse().unwrap()).unwrap_err();
        let mut allowed: Vec<_> = refused.allow.as_deref().unwrap().split(", ").collect();
        allowed.sort_unstable();
        assert_eq!(allowed, ["DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "PUT"]);
        let read = find(Method::GET, "/v1/ns/shop/topics/orders:eat").unwrap();
        assert_eq!(read.name("topic").unwrap_err().code, "invalid_name", "no topic has such a name");
        assert_eq!(find(Method::POST, "/v1/topics/orders:eat").unwrap_err(), "method_not_allowed");
    }

    #[test]
    fn what_the_table_does_not_hold_is_refused_by_name() {
        assert_eq!(find(Method::GET, "/v1/topics/a/messages?form=1").unwrap_err(), "invalid_parameter");
        assert_eq!(find(Method::GET, "/v1/topics/a/messages?limit=0").unwrap_err(), "invalid_parameter");
        assert_eq!(
            find(Method::GET, "/v1/topics/a/messages?limit=1&limit=2").unwrap_err(),
            "invalid_parameter"
        );
        assert_eq!(find(Method::GET, "/v1/ns/a/events").unwrap_err(), "invalid_parameter");
        assert_eq!(find(Method::DELETE, "/v1/topics/a/messages").unwrap_err(), "method_not_allowed");
        assert_eq!(find(Method::GET, "/v1/nothing").unwrap_err(), "route_not_found");
        for malformed in ["%ff", "%", "%4", "%zz", "%+4", "%-4"] {
            let found = find(Method::GET, &format!("/v1/topics/{malformed}"));
            assert_eq!(found.unwrap_err(), "malformed", "{malformed}");
        }
        assert_eq!(
            find(Method::POST, "/v1/ns//topics/a/messages").unwrap().name("ns").unwrap_err().code,
            "invalid_name"
        );
        let route = find(Method::GET, "/v1/topics/a%2Fb").unwrap();
        assert_eq!(route.name("topic").unwrap_err().code, "invalid_name");
    }
}
