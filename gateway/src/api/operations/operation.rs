//! The shape of an operation.

use crate::api::forms::Form;
use crate::auth::Op;

/// One method on one path.
#[derive(Debug)]
pub struct Operation {
    /// Stable name, camelCase: `publishMessage`.
    pub id: &'static str,
    /// Method.
    pub verb: Verb,
    /// Path template of RFC 6570 level 1. Paths with `{ns}/topics` and `{ns}/subscriptions` also exist as
    /// `/v1/topics…` and `/v1/subscriptions…` for `default`.
    pub path: &'static str,
    /// What is authorised …
    pub op: Op,
    /// … on what.
    pub target: Target,
    /// Group in the document.
    pub tag: &'static str,
    /// One line.
    pub summary: &'static str,
    /// More, in CommonMark; may be empty.
    pub about: &'static str,
    /// Query parameters; any other is refused.
    pub query: &'static [Param],
    /// Request headers with a meaning here.
    pub headers: &'static [Param],
    /// Request body.
    pub body: Body,
    /// Answers other than problems.
    pub answers: &'static [Answer],
}

/// Methods in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// GET; HEAD is answered the same way without a body.
    Get,
    /// PUT.
    Put,
    /// PATCH.
    Patch,
    /// POST.
    Post,
    /// DELETE.
    Delete,
}

/// What the path, or the query, names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// Nothing.
    Gateway,
    /// `{ns}`.
    Namespace,
    /// `{ns}` and `{topic}`.
    Topic,
    /// `{ns}` and `{subscription}`.
    Subscription,
    /// `{ns}` and every `topic=` of the query; each is authorised.
    TopicsOfQuery,
}

/// A query parameter or header.
#[derive(Debug, Clone, Copy)]
pub struct Param {
    /// Its name.
    pub name: &'static str,
    /// Whether the request is refused without it.
    pub required: bool,
    /// What its value looks like.
    pub kind: Kind,
    /// What it means, with unit, default and bounds.
    pub about: &'static str,
}

impl Param {
    /// One that may be left out.
    #[must_use]
    pub const fn optional(name: &'static str, kind: Kind, about: &'static str) -> Self {
        Self { name, required: false, kind, about }
    }
}

/// What a parameter's value looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Text.
    Text,
    /// Text that looks like this. Who reads it refuses any other.
    Form(&'static Form),
    /// An integer in `[min, max]`, below 2^53.
    Integer {
        /// Least.
        min: u64,
        /// Greatest.
        max: u64,
    },
    /// `true` or `false`.
    Boolean,
    /// One of these.
    OneOf(&'static [&'static str]),
    /// Text that looks like this, and may be repeated.
    Forms(&'static Form),
}

/// A request body.
#[derive(Debug)]
pub enum Body {
    /// None; a body is ignored.
    None,
    /// Required, in one of these forms.
    Required(&'static [Content]),
    /// May be empty.
    Optional(&'static [Content]),
}

/// A media type and what it carries.
#[derive(Debug)]
pub struct Content {
    /// Media type.
    pub media: &'static str,
    /// What a body of that type is.
    pub carries: Carries,
}

/// What a body is, for those who generate clients: every media type has a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Carries {
    /// What the component schema of this name describes; of a text of lines, each of them.
    One(&'static str),
    /// An array of it.
    Many(&'static str),
    /// Some JSON value.
    Any,
    /// A JSON object.
    Object,
    /// Text.
    Text,
    /// Bytes that the API does not look into, or that have a form of their own.
    Bytes,
}

/// An answer that is no problem.
#[derive(Debug)]
pub struct Answer {
    /// Status.
    pub status: u16,
    /// When.
    pub about: &'static str,
    /// Bodies it may have; empty: none.
    pub content: &'static [Content],
    /// Headers it carries.
    pub headers: &'static [(&'static str, &'static str)],
}

impl Answer {
    /// An answer without a body and without headers of its own.
    #[must_use]
    pub const fn empty(status: u16, about: &'static str) -> Self {
        Self { status, about, content: &[], headers: &[] }
    }
}
