//! The OpenAPI 3.1 document, made from the operation table and the schemas of the JSON types.

use std::collections::{BTreeMap, BTreeSet};

use utoipa::ToSchema;
use utoipa::openapi::path::{OperationBuilder, Parameter, ParameterBuilder, ParameterIn, PathsBuilder};
use utoipa::openapi::request_body::{RequestBody, RequestBodyBuilder};
use utoipa::openapi::schema::{
    AdditionalProperties, ArrayBuilder, ArrayItems, KnownFormat, Object, ObjectBuilder, OneOfBuilder,
    SchemaFormat, SchemaType, Type,
};
use utoipa::openapi::{
    Components, ComponentsBuilder, ContentBuilder, Header, HeaderBuilder, HttpMethod, InfoBuilder,
    LicenseBuilder, OpenApi, OpenApiBuilder, PathItem, Ref, RefOr, Required, ResponseBuilder, Schema,
};
use weir_protocol::limits::INTEGER_MAX;

use super::forms::{self, Form};
use super::operations::{Answer, Body, Content, Kind, OPERATIONS, Operation, Param, Verb};
use super::{
    BatchLine, BatchPublished, Explained, ForkSubscription, LeasePage, NamespaceConfig, NamespacePage,
    NamespacePatch, OutputMessage, Problem, ProblemOutcome, Producer, Published, Pull, Pulled, Purge, Purged,
    ReadPage, Receipt, Record, Redrive, Redriven, Seek, Seeked, Service, Settle, Settled, SubscriptionConfig,
    SubscriptionPage, SubscriptionPatch, TopicConfig, TopicPage, TopicPatch, Trim, Trimmed,
};

const ABOUT: &str = "Durable messaging over HTTP and WebSocket. Paths with `/v1/ns/{ns}/topics` and \
    `/v1/ns/{ns}/subscriptions` also exist as `/v1/topics` and `/v1/subscriptions` for the namespace `default`. Every error is an RFC 9457 problem with a `code`, and says with \
    `outcome` whether it had an effect. Every answer has an `X-Request-Id`. Unknown JSON fields and query parameters are refused by name; a \
    field that is `null` and has no use for it is as one that is left out. Numbers \
    that Weir itself puts into JSON stay below 2^53.";

/// The document.
#[must_use]
pub fn document() -> OpenApi {
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
    OpenApiBuilder::new().info(info).paths(paths.build()).components(Some(components())).build()
}

/// The document as it is served and checked in: indented, ending in a line feed.
#[must_use]
pub fn document_json() -> String {
    let mut text = document().to_pretty_json().expect("the document has only strings and numbers");
    text.push('\n');
    text
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
        builder = builder.response(answer.status.to_string(), response(answer));
    }
    let problem = ResponseBuilder::new()
        .description("Refused or failed.")
        .content("application/problem+json", content(Some("Problem")))
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
        "receipt" => ("`Confirm-Receipt` of a publish.", kind_schema(Kind::Text)),
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
    for Content { media, schema } in *forms {
        builder = builder.content(*media, content(*schema));
    }
    Some(builder.build())
}

fn response(answer: &Answer) -> utoipa::openapi::Response {
    let mut builder = ResponseBuilder::new().description(answer.about);
    for Content { media, schema } in answer.content {
        builder = builder.content(*media, content(*schema));
    }
    for (name, about) in answer.headers {
        builder = builder.header(*name, header(about));
    }
    builder.build()
}

fn header(about: &str) -> Header {
    HeaderBuilder::new().description(Some(about)).schema(kind_schema(Kind::Text)).build()
}

fn content(schema: Option<&'static str>) -> utoipa::openapi::Content {
    ContentBuilder::new().schema(schema.map(|name| RefOr::<Schema>::Ref(Ref::from_schema_name(name)))).build()
}

fn components() -> Components {
    let mut found = Vec::new();
    collect::<Problem>(&mut found);
    collect::<ProblemOutcome>(&mut found);
    collect::<Service>(&mut found);
    collect::<NamespaceConfig>(&mut found);
    collect::<NamespacePatch>(&mut found);
    collect::<NamespacePage>(&mut found);
    collect::<TopicConfig>(&mut found);
    collect::<TopicPatch>(&mut found);
    collect::<TopicPage>(&mut found);
    collect::<Trim>(&mut found);
    collect::<Trimmed>(&mut found);
    collect::<Published>(&mut found);
    collect::<BatchLine<'_>>(&mut found);
    collect::<BatchPublished>(&mut found);
    collect::<Receipt>(&mut found);
    collect::<Record>(&mut found);
    collect::<Producer>(&mut found);
    collect::<ReadPage>(&mut found);
    collect::<SubscriptionConfig>(&mut found);
    collect::<SubscriptionPatch>(&mut found);
    collect::<SubscriptionPage>(&mut found);
    collect::<Pull>(&mut found);
    collect::<Pulled>(&mut found);
    collect::<Settle>(&mut found);
    collect::<OutputMessage<'_>>(&mut found);
    collect::<Settled>(&mut found);
    collect::<ForkSubscription>(&mut found);
    collect::<Seek>(&mut found);
    collect::<Seeked>(&mut found);
    collect::<Purge>(&mut found);
    collect::<Purged>(&mut found);
    collect::<LeasePage>(&mut found);
    collect::<Explained>(&mut found);
    collect::<Redrive>(&mut found);
    collect::<Redriven>(&mut found);
    // In name order: the document must not depend on the order above.
    let mut found: BTreeMap<_, _> = found.into_iter().collect();
    found.values_mut().for_each(widen);
    for (name, field, form) in forms::FIELDS {
        say_texts(form, field_of(&mut found, name, field));
    }
    for name in ["Namespace", "Topic", "Subscription"] {
        accept_null(&mut found, &format!("{name}Config"), &format!("{name}Settings"));
        let patch = format!("{name}Patch");
        accept_null(&mut found, &patch, &patch);
    }
    for (name, field, form) in forms::POSITIONS {
        let told = field_of(&mut found, name, field);
        *told = position(form, told);
    }
    found.into_iter().fold(ComponentsBuilder::new(), |all, (name, schema)| all.schema(name, schema)).build()
}

fn field_of<'a>(
    found: &'a mut BTreeMap<String, RefOr<Schema>>,
    name: &str,
    field: &str,
) -> &'a mut RefOr<Schema> {
    match found.get_mut(name) {
        Some(RefOr::T(Schema::Object(object))) => object.properties.get_mut(field),
        _ => None,
    }
    .unwrap_or_else(|| unreachable!("{name} has no field {field}"))
}

/// Puts the schema `from` there as `to`, a body in which a field that is not required may be `null`, which is
/// as if it were left out. So may be fields of the objects in it, which get schemas of such bodies
/// themselves.
fn accept_null(found: &mut BTreeMap<String, RefOr<Schema>>, from: &str, to: &str) {
    let Some(RefOr::T(Schema::Object(object))) = found.get(from) else { unreachable!("{from} is no object") };
    let mut object = object.clone();
    let optional = object.properties.iter_mut().filter(|(name, _)| !object.required.contains(name));
    for (_, field) in optional {
        match field {
            RefOr::T(Schema::Object(value)) => value.schema_type = or_null(&value.schema_type),
            RefOr::T(Schema::Array(list)) => list.schema_type = or_null(&list.schema_type),
            RefOr::T(Schema::OneOf(of)) => {
                for item in &mut of.items {
                    if let RefOr::Ref(target) = item {
                        inner_body(found, target);
                    }
                }
                let null = ObjectBuilder::new().schema_type(Type::Null).build().into();
                if !of.items.contains(&RefOr::T(Schema::clone(&null))) {
                    of.items.insert(0, RefOr::T(null));
                }
            }
            _ => unreachable!("a field of {from} is something else"),
        }
    }
    found.insert(to.to_owned(), RefOr::T(object.into()));
}

/// Lets `target` refer to a body, if it refers to an object of which there are others.
fn inner_body(found: &mut BTreeMap<String, RefOr<Schema>>, target: &mut Ref) {
    let Some(name) = target.ref_location.rsplit('/').next().map(str::to_owned) else { return };
    let is_object =
        matches!(found.get(&name), Some(RefOr::T(Schema::Object(it))) if !it.properties.is_empty());
    if !is_object || name.ends_with("Patch") {
        return;
    }
    let body = format!("{name}Settings");
    if !found.contains_key(&body) {
        accept_null(found, &name, &body);
    }
    target.ref_location = Ref::from_schema_name(&body).ref_location;
}

fn or_null(told: &SchemaType) -> SchemaType {
    match told {
        SchemaType::Type(one) => SchemaType::Array(vec![one.clone(), Type::Null]),
        several => several.clone(),
    }
}

/// What the text looks like, or each text of a list.
fn say_texts(form: &Form, told: &mut RefOr<Schema>) {
    match told {
        RefOr::T(Schema::Object(text)) => say(form, text),
        RefOr::T(Schema::Array(list)) => match &mut list.items {
            ArrayItems::RefOrSchema(items) => say_texts(form, items),
            ArrayItems::False => unreachable!("a list without items"),
        },
        _ => unreachable!("neither a text nor a list"),
    }
}

/// A text, or the number of an offset.
fn position(form: &Form, told: &RefOr<Schema>) -> RefOr<Schema> {
    let RefOr::T(Schema::Object(told)) = told else { unreachable!("a position is declared as a text") };
    let offset = ObjectBuilder::new()
        .schema_type(Type::Integer)
        .format(Some(SchemaFormat::KnownFormat(KnownFormat::Int64)))
        .minimum(Some(0))
        .maximum(Some(json_integer(INTEGER_MAX)));
    let either = OneOfBuilder::new().description(told.description.clone());
    RefOr::T(either.item(text_schema(form)).item(offset).build().into())
}

/// Says what is true of `u32`, which is described as an `int32`: half of its numbers are not one.
fn widen(schema: &mut RefOr<Schema>) {
    let RefOr::T(schema) = schema else { return };
    match schema {
        Schema::Object(object) => {
            if object.format == Some(SchemaFormat::KnownFormat(KnownFormat::Int32)) {
                object.format = Some(SchemaFormat::KnownFormat(KnownFormat::Int64));
                object.maximum.get_or_insert(json_integer(u32::MAX.into()).into());
            }
            object.properties.values_mut().for_each(widen);
            if let Some(AdditionalProperties::RefOr(values)) = object.additional_properties.as_deref_mut() {
                widen(values);
            }
        }
        Schema::Array(list) => {
            if let ArrayItems::RefOrSchema(items) = &mut list.items {
                widen(items);
            }
        }
        Schema::OneOf(of) => of.items.iter_mut().for_each(widen),
        Schema::AllOf(of) => of.items.iter_mut().for_each(widen),
        Schema::AnyOf(of) => of.items.iter_mut().for_each(widen),
        _ => {}
    }
}

/// A type's schema and those of all types in it.
fn collect<T: ToSchema>(found: &mut Vec<(String, RefOr<Schema>)>) {
    found.push((T::name().into_owned(), T::schema()));
    T::schemas(found);
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
mod tests {
    use serde_json::{Map, Value};

    use super::*;

    #[test]
    fn the_document_refers_to_nothing_that_it_does_not_hold() {
        let document = serde_json::from_str(&document_json()).unwrap();
        assert_eq!(dangling_references(&document), BTreeSet::new());
    }

    #[test]
    fn examples_have_every_field_that_is_always_there_and_none_that_is_not() {
        let document: Value = serde_json::from_str(&document_json()).unwrap();
        let schemas = document["components"]["schemas"].as_object().unwrap();
        let mut wrong = Vec::new();
        for (name, schema) in schemas {
            if let Some(example) = schema.get("example") {
                compare(schemas, &[schema], example, name, &mut wrong);
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    /// Notes the fields in which an example differs from what all of `parts` say of it together.
    fn compare(
        schemas: &Map<String, Value>,
        parts: &[&Value],
        example: &Value,
        place: &str,
        wrong: &mut Vec<String>,
    ) {
        let named = |part: &Value| part["$ref"].as_str().map(|to| &schemas[to.rsplit('/').next().unwrap()]);
        let (mut known, mut required) = (BTreeMap::<&str, &Value>::new(), BTreeSet::new());
        let mut left: Vec<&Value> = parts.to_vec();
        while let Some(part) = left.pop() {
            left.extend(named(part));
            left.extend(part["allOf"].as_array().into_iter().flatten());
            if let (Some(items), Some(list)) = (part.get("items"), example.as_array()) {
                for (index, item) in list.iter().enumerate() {
                    compare(schemas, &[items], item, &format!("{place}[{index}]"), wrong);
                }
            }
            known.extend(part["properties"].as_object().into_iter().flatten().map(|(k, v)| (k.as_str(), v)));
            required.extend(part["required"].as_array().into_iter().flatten().filter_map(Value::as_str));
        }
        let Some(fields) = example.as_object().filter(|_| !known.is_empty()) else { return };
        for missing in required.iter().filter(|field| !fields.contains_key(**field)) {
            wrong.push(format!("{place} has no {missing}"));
        }
        for (field, value) in fields {
            match known.get(field.as_str()) {
                Some(part) => compare(schemas, &[part], value, &format!("{place}.{field}"), wrong),
                None => wrong.push(format!("{place} has a {field}, which is unknown")),
            }
        }
    }

    #[test]
    fn operation_ids_are_unique_and_no_method_of_a_path_is_declared_twice() {
        let ids: BTreeSet<_> = OPERATIONS.iter().map(|operation| operation.id).collect();
        assert_eq!(ids.len(), OPERATIONS.len());
        let places: BTreeSet<_> =
            OPERATIONS.iter().map(|operation| (operation.path, format!("{:?}", operation.verb))).collect();
        assert_eq!(places.len(), OPERATIONS.len());
    }

    /// `WEIR_WRITE_OPENAPI=1` writes the file instead.
    #[test]
    fn the_checked_in_document_is_current() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../openapi/openapi.json");
        if std::env::var_os("WEIR_WRITE_OPENAPI").is_some() {
            std::fs::write(path, document_json()).unwrap();
        }
        let file = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            file == document_json(),
            "openapi/openapi.json is not current: cargo run -p weir-gateway --bin weir-openapi > openapi/openapi.json"
        );
    }
}
