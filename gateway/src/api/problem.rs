//! The one error body of the API: RFC 9457 `application/problem+json`.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use weir_protocol::error::{ErrorCode, Outcome};
use weir_protocol::rpc::{Refusal, snapshot_name};

/// Why a request was refused or failed, whether it had an effect, and what the client needs to go on.
/// Sent with every error answer, in WebSocket `err` and `reject` frames, and per item of a mixed batch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// URI that identifies the kind: `urn:weir:problem:…`, or an IANA-registered one for 429 and 503.
    #[serde(rename = "type")]
    #[schema(value_type = String, example = "urn:weir:problem:topic-not-found")]
    pub kind: Cow<'static, str>,
    /// One line for people, the same for every occurrence of the code.
    #[schema(value_type = String)]
    pub title: Cow<'static, str>,
    /// The HTTP status.
    #[schema(minimum = 400, maximum = 599)]
    pub status: u16,
    /// The stable text to match on.
    #[schema(value_type = String, example = "topic_not_found")]
    pub code: Cow<'static, str>,
    /// What exactly was wrong this time.
    pub detail: String,
    /// `none`: provably no effect. `applied`: it took effect. `unknown`: ask the receipt or the producer.
    #[schema(value_type = ProblemOutcome)]
    pub outcome: Cow<'static, str>,
    /// True if the same request may succeed later without being changed.
    pub retryable: bool,
    /// When a retry makes sense, in milliseconds from now.
    pub retry_after_ms: Option<u64>,
    /// Identifies the request in logs; also in the header `X-Request-Id`. In WebSocket frames the connection,
    /// as `sid` of its `welcome`. Empty for items of a batch.
    pub request_id: String,
    /// How things stand, where that helps to go on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub current: Option<Box<Current>>,
    /// The field, parameter or header that was refused; a header in lower case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub field: Option<String>,
    /// The limit that was exceeded, in the unit that `detail` names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub limit: Option<u64>,
    /// The grant that is missing, as `operation resource`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub missing_grant: Option<String>,
    /// Of a seek or purge that may have had an effect: what undoes it where it has, as `undo` of a seek.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "snap_6f2c9d1e00a47b35")]
    pub undo: Option<String>,
    /// With 429: what was exceeded. `pub`: the publish budget, as in `RateLimit-Policy`; `concurrency`: how many of a
    /// kind may be open or waiting at once; `dedupe`: memory for producers and idempotency keys.
    #[serde(rename = "violated-policies", default, skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub violated_policies: Vec<String>,
    /// Methods that the resource has, for the header `Allow`.
    #[serde(skip)]
    #[schema(ignore)]
    pub allow: Option<String>,
}

/// Whether a refused or failed request had an effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ProblemOutcome {
    /// Provably no effect.
    None,
    /// It took effect.
    Applied,
    /// Not known.
    Unknown,
}

/// How things stand. Only what belongs to the code is present.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Current {
    /// Partition that the positions below are of.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub partition: Option<u32>,
    /// End of the partition (`beyond_tail`, `tail_mismatch`).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub tail: Option<u64>,
    /// Tail tag for `If-Match` (`tail_mismatch`), or the tag of the configuration (`version_mismatch`).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub etag: Option<String>,
    /// Earliest offset that still exists (`offset_trimmed`).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub earliest: Option<u64>,
    /// No message before it exists; mostly it is the next that does, or the end (`compacted`).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub next: Option<u64>,
    /// Sequence number the producer was expected to send (`producer_gap`).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub expected_seq: Option<u64>,
    /// Highest sequence number accepted (`seq_overlap`, `seq_too_old`).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub last_seq: Option<u64>,
    /// The producer's current epoch (`stale_epoch`).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub epoch: Option<u32>,
    /// Current incarnation of the topic (`incarnation_gone`).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub incarnation: Option<u64>,
    /// Current version of the configuration (`version_mismatch`).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub config_version: Option<u32>,
    /// Delivery that took a lost lease's place, its number among those of the message (`lease_lost`).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub attempt: Option<u32>,
    /// Its fence (`lease_lost`).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub fence: Option<u64>,
}

impl Problem {
    /// A problem that provably had no effect.
    #[must_use]
    pub fn new(code: ErrorCode, detail: impl Into<String>) -> Self {
        Self {
            kind: kind_of(code),
            title: code.title().into(),
            status: code.status(),
            code: code.as_str().into(),
            detail: detail.into(),
            outcome: Outcome::None.as_str().into(),
            retryable: code.retryable(),
            retry_after_ms: retry_after_ms_of(code),
            request_id: String::new(),
            current: None,
            field: None,
            limit: None,
            missing_grant: None,
            undo: None,
            violated_policies: policy_of(code).map(str::to_owned).into_iter().collect(),
            allow: None,
        }
    }

    /// True if that is its code.
    #[must_use]
    pub fn is(&self, code: ErrorCode) -> bool {
        self.code == code.as_str()
    }

    /// The same with another outcome.
    #[must_use]
    pub fn with_outcome(mut self, outcome: Outcome) -> Self {
        self.outcome = outcome.as_str().into();
        self
    }

    /// The same, naming what was refused.
    #[must_use]
    pub fn with_field(mut self, field: impl Into<String>) -> Self {
        self.field = Some(field.into());
        self
    }

    /// The same, naming the limit that was exceeded.
    #[must_use]
    pub fn with_limit(mut self, limit: u64) -> Self {
        self.limit = Some(limit);
        self
    }

    /// The same, naming what undoes the effect, if it may have had one; 0: nothing does.
    #[must_use]
    pub fn with_undo(mut self, name: u64) -> Self {
        let may_be_done = self.outcome != Outcome::None.as_str();
        self.undo = (may_be_done && name != 0).then(|| snapshot_name(name));
        self
    }

    /// The same with a time after which a retry makes sense, in milliseconds.
    #[must_use]
    pub fn with_retry_after_ms(mut self, retry_after_ms: u64) -> Self {
        self.retry_after_ms = Some(retry_after_ms);
        self
    }

    /// The same, saying how things stand.
    #[must_use]
    pub fn with_current(mut self, current: Current) -> Self {
        self.current = (current != Current::default()).then(|| Box::new(current));
        self
    }

    /// JSON that cannot be read as what it should be, where, and what its reader says of it. A field that is
    /// unknown or occurs twice is named.
    #[must_use]
    pub fn malformed(place: impl std::fmt::Display, why: &str) -> Self {
        let named = |before: &str| why.strip_prefix(before).and_then(|rest| rest.split('`').next());
        let (unknown, twice) = (named("unknown field `"), named("duplicate field `"));
        let code = if unknown.is_some() { ErrorCode::UnknownField } else { ErrorCode::Malformed };
        let problem = Self::new(code, format!("{place}{why}"));
        match unknown.or(twice) {
            Some(field) => problem.with_field(field),
            None => problem,
        }
    }

    /// The same where a value may be of another type than it should be, or a field may be missing: `find` knows at
    /// which place.
    #[must_use]
    pub fn malformed_at(before: &str, why: &str, find: impl FnOnce() -> Option<String>) -> Self {
        let problem = Self::malformed(before, why);
        if problem.field.is_some() {
            return problem;
        }
        let missing = why.strip_prefix("missing field `").and_then(|rest| rest.split('`').next());
        let place = find();
        let problem = match &place {
            Some(place) => Self::malformed(format_args!("{before}{place}: "), why),
            None => problem,
        };
        match (place, missing) {
            (Some(place), Some(missing)) => problem.with_field(format!("{place}.{missing}")),
            (Some(field), None) => problem.with_field(field),
            (None, Some(missing)) => problem.with_field(missing),
            (None, None) => problem,
        }
    }

    /// A header with a value outside its grammar. Its name may be in any case, and is told in lower case.
    #[must_use]
    pub fn invalid_header(name: &str, why: impl std::fmt::Display) -> Self {
        Self::new(ErrorCode::InvalidHeader, format!("{name}: {why}")).with_field(name.to_ascii_lowercase())
    }

    /// A query parameter that is unknown or has a value outside its grammar.
    #[must_use]
    pub fn invalid_parameter(name: &str, why: impl std::fmt::Display) -> Self {
        Self::new(ErrorCode::InvalidParameter, format!("{name}: {why}")).with_field(name)
    }

    /// The body as it is sent.
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a problem has only strings and numbers")
    }
}

impl From<&Refusal> for Problem {
    /// A node's refusal with all its numbers. Codes that are never shown to clients become `unavailable`:
    /// the router retries them itself, and what is left of them is that the leader was not reached.
    fn from(refusal: &Refusal) -> Self {
        let code = match refusal.error_code() {
            ErrorCode::NotLeader | ErrorCode::ConfigBehind | ErrorCode::ConfigStale => ErrorCode::Unavailable,
            code => code,
        };
        let mut problem = Self::new(code, refusal.detail.clone()).with_outcome(refusal.effect());
        problem.retry_after_ms = refusal.retry_after_ms.or(problem.retry_after_ms);
        problem.with_current(Current {
            tail: refusal.tail,
            earliest: refusal.earliest,
            expected_seq: refusal.expected_seq,
            last_seq: refusal.last_seq,
            epoch: refusal.epoch,
            incarnation: refusal.incarnation,
            config_version: refusal.config_version,
            attempt: refusal.lease.map(|grant| grant.attempt),
            fence: refusal.lease.map(|grant| grant.fence),
            partition: None,
            next: None,
            etag: None,
        })
    }
}

/// `type` of a code. 429 and 503 have registered problem types; all others are ours.
fn kind_of(code: ErrorCode) -> Cow<'static, str> {
    match code.status() {
        429 => "https://iana.org/assignments/http-problem-types#quota-exceeded".into(),
        503 => "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity".into(),
        _ => format!("urn:weir:problem:{}", code.as_str().replace('_', "-")).into(),
    }
}

/// The policy that a 429 says was violated.
fn policy_of(code: ErrorCode) -> Option<&'static str> {
    match code {
        ErrorCode::Busy => Some("pub"),
        ErrorCode::TooManyRequests => Some("concurrency"),
        ErrorCode::DedupeFull => Some("dedupe"),
        _ => None,
    }
}

/// When a retry makes sense where whoever refused did not say: what waits is committed within milliseconds,
/// connections end, leaders and gateways are there again and journals are let go of within seconds, and what
/// deduplication remembers is forgotten after minutes. `None` where a retry does not help, or where only the
/// client kept itself waiting.
fn retry_after_ms_of(code: ErrorCode) -> Option<u64> {
    match code {
        ErrorCode::Busy => Some(100),
        ErrorCode::TooManyRequests
        | ErrorCode::JournalFull
        | ErrorCode::Draining
        | ErrorCode::Unavailable
        | ErrorCode::AnswersFull
        | ErrorCode::NotLeader
        | ErrorCode::ConfigBehind
        | ErrorCode::ConfigStale
        // The same request, with its producer's number or its idempotency key, finds out what became of it.
        | ErrorCode::OutcomeUnknown => Some(1_000),
        ErrorCode::DedupeFull => Some(10_000),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_keeps_its_numbers_and_its_outcome() {
        let refusal = Refusal { expected_seq: Some(7), ..Refusal::new(ErrorCode::ProducerGap, "seq 9") }
            .with_outcome(Outcome::Unknown);
        let json: serde_json::Value = serde_json::from_slice(&Problem::from(&refusal).to_json()).unwrap();
        assert_eq!(
            json,
            serde_json::json!({
                "type": "urn:weir:problem:producer-gap", "title": "Producer sequence has a gap", "status": 409,
                "code": "producer_gap", "detail": "seq 9", "outcome": "unknown", "retryable": false,
                "retry_after_ms": null, "request_id": "", "current": {"expected_seq": 7}
            })
        );
    }

    #[test]
    fn a_field_that_is_unknown_or_comes_twice_is_named() {
        for (why, code, field) in [
            ("unknown field `a`, expected `b` at line 1", "unknown_field", Some("a")),
            ("duplicate field `b` at line 1", "malformed", Some("b")),
            ("missing field `c`", "malformed", None),
        ] {
            let problem = Problem::malformed("line 2: ", why);
            assert_eq!((problem.code.as_ref(), problem.field.as_deref()), (code, field));
            assert_eq!(problem.detail, format!("line 2: {why}"));
        }
    }

    #[test]
    fn every_429_names_its_policy_and_when_to_come_again() {
        let codes = ErrorCode::ALL.iter().copied().filter(|code| code.status() == 429);
        let told: Vec<_> = codes
            .map(|code| {
                let problem = Problem::new(code, "");
                assert!(problem.retry_after_ms.is_some(), "{code:?}");
                problem.violated_policies.join(",")
            })
            .collect();
        assert_eq!(told, ["pub", "concurrency", "dedupe"]);
        let sooner = Refusal { retry_after_ms: Some(7), ..Refusal::new(ErrorCode::DedupeFull, "") };
        assert_eq!(Problem::from(&sooner).retry_after_ms, Some(7), "who refused knows better");
    }

    #[test]
    fn what_may_succeed_later_says_when() {
        for &code in ErrorCode::ALL {
            let is_told = Problem::new(code, "").retry_after_ms.is_some();
            let is_the_servers = matches!(code.status(), 429 | 503 | 504);
            assert_eq!(is_told, is_the_servers && code.retryable(), "{code:?}");
            let refused = Problem::from(&Refusal::new(code, ""));
            assert_eq!(refused.retry_after_ms.is_some(), is_told, "{code:?} of a node");
        }
    }

    #[test]
    fn only_what_may_have_had_an_effect_can_be_undone() {
        let undo = |outcome, name| {
            Problem::new(ErrorCode::Unavailable, "").with_outcome(outcome).with_undo(name).undo
        };
        for outcome in [Outcome::Unknown, Outcome::Applied] {
            assert_eq!((undo(outcome, 1), undo(outcome, 0)), (Some(snapshot_name(1)), None));
        }
        assert_eq!(undo(Outcome::None, 1), None);
    }

    #[test]
    fn codes_between_rooms_never_reach_clients() {
        for code in [ErrorCode::NotLeader, ErrorCode::ConfigBehind, ErrorCode::ConfigStale] {
            assert_eq!(Problem::from(&Refusal::new(code, "")).code, "unavailable");
        }
    }
}
