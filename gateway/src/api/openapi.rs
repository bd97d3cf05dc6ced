//! The OpenAPI 3.1 document, made from the operation table and the schemas of the JSON types. Generators of clients
//! read it: what they cannot take is said otherwise (`schemas`), and what creates leads to what uses (`links`).

mod links;
mod schemas;

use std::collections::BTreeSet;

use utoipa::openapi::path::{OperationBuilder, Parameter, ParameterBuilder, ParameterIn, PathsBuilder};
use utoipa::openapi::request_body::{RequestBody, RequestBodyBuilder};
use utoipa::openapi::schema::{
    AdditionalProperties, ArrayBuilder, KnownFormat, Object, ObjectBuilder, SchemaFormat, Type,
};
use utoipa::openapi::server::{Server, ServerBuilder};
use utoipa::openapi::tag::{Tag, TagBuilder};
use utoipa::openapi::{
    ContentBuilder, Header, HeaderBuilder, HttpMethod, InfoBuilder, LicenseBuilder, OpenApi, OpenApiBuilder,
    PathItem, Ref, RefOr, Required, ResponseBuilder, Schema,
};
use weir_protocol::limits::INTEGER_MAX;

use super::forms::{self, Form};
use super::operations::{Answer, Body, Carries, Content, Kind, OPERATIONS, Operation, Param, Verb};

const ABOUT: &str = "Durable messaging over HTTP and WebSocket. Paths with `/v1/ns/{ns}/topics` and \
    `/v1/ns/{ns}/subscriptions` also exist as `/v1/topics` and `/v1/subscriptions` for the namespace `default`. Every error is an RFC 9457 problem with a `code`, and says with \
    `outcome` whether it had an effect. Every answer has an `X-Request-Id`. Unknown JSON fields and query parameters are refused by name; a \
    field that is `null` and has no use for it is as one that is left out. Numbers \
    that Weir itself puts into JSON stay below 2^53. Whole numbers in requests are written without a fraction and without an exponent: `1.0` is refused.";

/// Groups of operations, in the order of the document.
const TAGS: &[(&str, &str)] = &[
    ("gateway", "Whether the gateway works, what it accepts, and what it measures."),
    ("namespaces", "Sets of topics and subscriptions with common settings."),
    ("topics", "Logs of messages: their configuration, and what they take."),
    ("messages", "Publishing messages, reading them, and following them as event streams."),
    ("subscriptions", "What consumes topics: its configuration, and how far it has come."),
    ("queues", "Leasing messages of a subscription, settling them, and looking after them."),
    ("websocket", "Publishing, following and consuming over one connection."),
];

fn document() -> OpenApi {
    let mut paths = PathsBuilder::new();
    for operation in OPERATIONS {
        paths = paths.path(operation.path, PathItem::new(method(operation.verb), describe(operation)));
    }
    let info = InfoBuilder::new()
        .title("Weir")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some(ABOUT))
        .license(Some(LicenseBuilder::new().name("Apache-2.0").identifier(Some("Apache-2.0")).build()))
        .build();
    OpenApiBuilder::new()
        .info(info)
        .servers(Some(servers()))
        // Nobody is asked who they are yet, and the document says so.
        .security(Some(Vec::new()))
        .tags(Some(TAGS.iter().map(|(name, about)| tag(name, about))))
        .paths(paths.build())
        .components(Some(schemas::components()))
        .build()
}

/// Where a client looks unless it is told, and where whoever reads the document got it from.
fn servers() -> [Server; 2] {
    let server = |url: &str, about: &str| ServerBuilder::new().url(url).description(Some(about)).build();
    [
        server("http://127.0.0.1:8080", "`weir dev` on this machine, as it listens by default."),
        server("/", "The gateway that this document came from."),
    ]
}

fn tag(name: &str, about: &str) -> Tag {
    TagBuilder::new().name(name).description(Some(about)).build()
}

/// The document as it is served and checked in: indented, ending in a line feed.
#[must_use]
pub fn document_json() -> String {
    let text = document().to_pretty_json().expect("the document has only strings and numbers");
    // utoipa writes this field of links as Rust does.
    let mut text = text.replace(r#""operation_id":"#, r#""operationId":"#);
    for place in 0..MEDIA_TYPES_MAX {
        text = text.replace(&format!(r"\u0001{place}\u0001"), "");
    }
    text.push('\n');
    text
}

/// Most media types of a body.
const MEDIA_TYPES_MAX: usize = 10;

/// A media type under a name that keeps its place: utoipa sorts them, and generators that take one of several take
/// the first. [`document_json`] takes the place away again.
fn in_place(place: usize, media: &str) -> String {
    assert!(place < MEDIA_TYPES_MAX, "places have one digit");
    format!("\u{1}{place}\u{1}{media}")
}

const fn method(verb: Verb) -> HttpMethod {
    match verb {
        Verb::Get => HttpMethod::Get,
        Verb::Put => HttpMethod::Put,
        Verb::Patch => HttpMethod::Patch,
        Verb::Post => HttpMethod::Post,
        Verb::Delete => HttpMethod::Delete,
    }
}

fn describe(operation: &Operation) -> utoipa::openapi::path::Operation {
    let mut builder = OperationBuilder::new()
        .operation_id(Some(operation.id))
        .tag(operation.tag)
        .summary(Some(operation.summary))
        .request_body(request_body(&operation.body));
    let grant = format!("Needs the grant `{}`.", operation.op);
    builder = builder.description(Some(if operation.about.is_empty() {
        grant
    } else {
        format!("{}\n\n{grant}", operation.about)
    }));
    for name in path_params(operation.path) {
        builder = builder.parameter(path_param(name));
    }
    for param in operation.query {
        builder = builder.parameter(parameter(param, ParameterIn::Query));
    }
    for param in operation.headers {
        builder = builder.parameter(parameter(param, ParameterIn::Header));
    }
    for answer in operation.answers {
        builder = builder.response(answer.status.to_string(), response(operation, answer));
    }
    let problem = ResponseBuilder::new()
        .description("Refused or failed.")
        .content("application/problem+json", content(Carries::One("Problem")))
        .header("Retry-After", header("Seconds after which to try again, if that may help."))
        .build();
    builder.response("default", problem).build()
}

/// Names in braces, in order.
pub(crate) fn path_params(path: &'static str) -> impl Iterator<Item = &'static str> {
    // Behind the brace a verb may follow.
    path.split('/').filter_map(|segment| Some(segment.strip_prefix('{')?.split_once('}')?.0))
}

fn path_param(name: &'static str) -> Parameter {
    let (about, schema) = match name {
        "ns" => ("Namespace.", kind_schema(Kind::Form(&forms::NAME))),
        "topic" => ("Topic.", kind_schema(Kind::Form(&forms::NAME))),
        "subscription" => ("Subscription.", kind_schema(Kind::Form(&forms::NAME))),
        "partition" => {
            ("Partition, from 0.", kind_schema(Kind::Integer { min: 0, max: u64::from(u32::MAX) }))
        }
        "offset" => ("Offset.", kind_schema(Kind::Integer { min: 0, max: INTEGER_MAX })),
        "receipt" => (
            "`Confirm-Receipt` of a publish; any other text is `invalid_cursor`.",
            kind_schema(Kind::Form(&forms::RECEIPT)),
        ),
        "producer" => ("`Producer-Id`.", kind_schema(Kind::Form(&forms::PRODUCER))),
        other => unreachable!("the path parameter {other} has no description"),
    };
    ParameterBuilder::new()
        .name(name)
        .parameter_in(ParameterIn::Path)
        .required(Required::True)
        .description(Some(about))
        .schema(Some(schema))
        .build()
}

fn parameter(param: &Param, place: ParameterIn) -> Parameter {
    ParameterBuilder::new()
        .name(param.name)
        .parameter_in(place)
        .required(if param.required { Required::True } else { Required::False })
        .description(Some(param.about))
        .schema(Some(kind_schema(param.kind)))
        .build()
}

fn kind_schema(kind: Kind) -> Schema {
    match kind {
        Kind::Text => ObjectBuilder::new().schema_type(Type::String).build().into(),
        Kind::Integer { min, max } => ObjectBuilder::new()
            .schema_type(Type::Integer)
            .format(Some(SchemaFormat::KnownFormat(KnownFormat::Int64)))
            .minimum(Some(json_integer(min)))
            .maximum(Some(json_integer(max)))
            .build()
            .into(),
        Kind::Boolean => ObjectBuilder::new().schema_type(Type::Boolean).build().into(),
        Kind::OneOf(values) => ObjectBuilder::new()
            .schema_type(Type::String)
            .enum_values(Some(values.iter().copied()))
            .build()
            .into(),
        Kind::Form(form) => text_schema(form).into(),
        Kind::Forms(form) => ArrayBuilder::new().items(text_schema(form)).build().into(),
    }
}

fn text_schema(form: &Form) -> Object {
    let mut text = ObjectBuilder::new().schema_type(Type::String).build();
    say(form, &mut text);
    text
}

fn say(form: &Form, text: &mut Object) {
    text.pattern = form.pattern.map(str::to_owned);
    (text.min_length, text.max_length) = (form.min, form.max);
}

fn json_integer(value: u64) -> i64 {
    i64::try_from(value).expect("published bounds are below 2^53")
}

fn request_body(body: &Body) -> Option<RequestBody> {
    let (forms, required) = match body {
        Body::None => return None,
        Body::Required(forms) => (forms, Required::True),
        Body::Optional(forms) => (forms, Required::False),
    };
    let mut builder = RequestBodyBuilder::new().required(Some(required));
    for (place, Content { media, carries }) in forms.iter().enumerate() {
        builder = builder.content(in_place(place, media), content(*carries));
    }
    Some(builder.build())
}

fn response(operation: &Operation, answer: &Answer) -> utoipa::openapi::Response {
    let mut builder = ResponseBuilder::new().description(answer.about);
    for (place, Content { media, carries }) in answer.content.iter().enumerate() {
        builder = builder.content(in_place(place, media), content(*carries));
    }
    for (name, about) in answer.headers {
        builder = builder.header(*name, header(about));
    }
    for (name, link) in links::of(operation.id, answer.status) {
        builder = builder.link(name, link);
    }
    builder.build()
}

fn header(about: &str) -> Header {
    HeaderBuilder::new().description(Some(about)).schema(kind_schema(Kind::Text)).build()
}

fn content(carries: Carries) -> utoipa::openapi::Content {
    let named = |name: &str| RefOr::<Schema>::Ref(Ref::from_schema_name(name));
    let of_type = |kind: Type| ObjectBuilder::new().schema_type(kind);
    let schema = match carries {
        Carries::One(name) => named(name),
        Carries::Many(name) => RefOr::T(ArrayBuilder::new().items(named(name)).build().into()),
        Carries::Any => RefOr::T(schemas::any("Any JSON value.").into()),
        // Without that, a type of Go has no fields.
        Carries::Object => {
            let fields = Some(AdditionalProperties::FreeForm(true));
            RefOr::T(of_type(Type::Object).additional_properties(fields).build().into())
        }
        Carries::Text => RefOr::T(of_type(Type::String).build().into()),
        Carries::Bytes => {
            let binary = SchemaFormat::KnownFormat(KnownFormat::Binary);
            RefOr::T(of_type(Type::String).format(Some(binary)).build().into())
        }
    };
    ContentBuilder::new().schema(Some(schema)).build()
}

/// Component schemas that `text` refers to but that do not exist. Empty in a sound document.
#[must_use]
pub fn dangling_references(document: &serde_json::Value) -> BTreeSet<String> {
    fn walk(value: &serde_json::Value, found: &mut BTreeSet<String>) {
        match value {
            serde_json::Value::Object(fields) => {
                if let Some(serde_json::Value::String(target)) = fields.get("$ref") {
                    found.insert(target.clone());
                }
                fields.values().for_each(|field| walk(field, found));
            }
            serde_json::Value::Array(items) => items.iter().for_each(|item| walk(item, found)),
            _ => {}
        }
    }
    let mut found = BTreeSet::new();
    walk(document, &mut found);
    found.retain(|target| target.strip_prefix('#').is_none_or(|pointer| document.pointer(pointer).is_none()));
    found
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the document is compared with the file")]
mod tests;
