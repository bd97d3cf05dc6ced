//! The schemas of the JSON types, as clients and their generators can take them.

use std::collections::BTreeMap;

use serde_json::Value;
use utoipa::ToSchema;
use utoipa::openapi::extensions::ExtensionsBuilder;
use utoipa::openapi::schema::{
    AdditionalProperties, AllOfBuilder, AnyOfBuilder, ArrayItems, KnownFormat, Object, ObjectBuilder,
    OneOfBuilder, SchemaFormat, SchemaType, Type,
};
use utoipa::openapi::{Components, ComponentsBuilder, Ref, RefOr, Schema};
use weir_protocol::limits::{INTEGER_MAX, RECORD_HEADERS_MAX};

use super::{json_integer, say, text_schema};
use crate::api::forms::{self, Form};
use crate::api::{
    BatchLine, BatchPublished, CloudEvent, Explained, ForkSubscription, LeasePage, NamespaceConfig,
    NamespacePage, NamespacePatch, OutputMessage, Problem, ProblemOutcome, Producer, Published, Pull, Pulled,
    Purge, Purged, ReadPage, Readiness, Receipt, Record, Redrive, Redriven, Seek, Seeked, Service, Settle,
    Settled, SubscriptionConfig, SubscriptionPage, SubscriptionPatch, TopicConfig, TopicPage, TopicPatch,
    Trim, Trimmed,
};

pub(super) fn components() -> Components {
    let mut found = Vec::new();
    collect::<Problem>(&mut found);
    collect::<ProblemOutcome>(&mut found);
    collect::<CloudEvent>(&mut found);
    collect::<Readiness>(&mut found);
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
    found.values_mut().for_each(|schema| each(schema, &mut widen));
    extend_event(&mut found);
    for name in ["BatchLine", "OutputMessage"] {
        let RefOr::T(Schema::Object(headers)) = field_of(&mut found, name, "headers") else {
            unreachable!("the headers of a message are an object")
        };
        headers.property_names = Some(Box::new(text_schema(&forms::HEADER_NAME).into()));
        headers.max_properties = Some(RECORD_HEADERS_MAX);
    }
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
    for name in ["TopicConfig", "SubscriptionConfig"] {
        complete(&mut found, name);
    }
    // Answers show a namespace's settings beside its name.
    found.remove("NamespaceConfig");
    for (name, schema) in &mut found {
        each(schema, &mut mend);
        name_values(name, schema);
    }
    found.into_iter().fold(ComponentsBuilder::new(), |all, (name, schema)| all.schema(name, schema)).build()
}

/// What an event has besides what the standard names: attributes with plain names.
fn extend_event(found: &mut BTreeMap<String, RefOr<Schema>>) {
    let Some(RefOr::T(Schema::Object(event))) = found.get_mut("CloudEvent") else {
        unreachable!("an event is an object")
    };
    let name = ObjectBuilder::new().schema_type(Type::String).pattern(Some("^([a-z0-9]+|data_base64)$"));
    event.property_names = Some(Box::new(name.build().into()));
    // A value of one of several types is none that every generator knows.
    event.additional_properties = Some(Box::new(AdditionalProperties::FreeForm(true)));
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
                if !of.items.contains(&RefOr::T(null())) {
                    of.items.push(RefOr::T(null()));
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

/// Says what is true of `u32`, which is described as an `int32`: half of its numbers are not one. No number is
/// beyond what every reader of JSON reads alike.
fn widen(schema: &mut RefOr<Schema>) {
    let RefOr::T(Schema::Object(object)) = schema else { return };
    if object.format == Some(SchemaFormat::KnownFormat(KnownFormat::Int64)) {
        object.maximum.get_or_insert(json_integer(INTEGER_MAX).into());
    }
    if object.format == Some(SchemaFormat::KnownFormat(KnownFormat::Int32)) {
        object.format = Some(SchemaFormat::KnownFormat(KnownFormat::Int64));
        object.maximum.get_or_insert(json_integer(u32::MAX.into()).into());
    }
}

/// Says otherwise what generators cannot take. A default that is no value of its own type, as `null` of a number
/// that may only be left out, says nothing that leaving it out does not. One of one schema is that schema; and that
/// or `null` is any of the two, because what is written as one of them is read as a union of types.
fn mend(schema: &mut RefOr<Schema>) {
    let RefOr::T(told) = schema else { return };
    match told {
        Schema::Object(object) => drop_empty(&mut object.default),
        // Java's would be a list of another type. The text beside it says it.
        Schema::Array(list) => list.default = None,
        Schema::OneOf(of) => {
            drop_empty(&mut of.default);
            let is_null = |item: &RefOr<Schema>| *item == RefOr::T(null());
            let has_null = of.items.iter().any(is_null);
            of.items.retain(|item| !is_null(item));
            let [RefOr::Ref(only)] = of.items.as_mut_slice() else {
                assert!(!has_null, "null, or one of several: say any of them");
                return;
            };
            let about = of.description.take().unwrap_or_else(|| std::mem::take(&mut only.description));
            only.description.clear();
            let default = of.default.take().filter(|default| !default.is_object());
            *schema = match (has_null, default) {
                (true, default) => {
                    let either = AnyOfBuilder::new().item(only.clone()).item(null()).default(default);
                    RefOr::T(either.description(Some(about)).build().into())
                }
                (false, Some(default)) => {
                    let that = AllOfBuilder::new().item(only.clone()).default(Some(default));
                    RefOr::T(that.description(Some(about)).build().into())
                }
                (false, None) => {
                    only.description = about;
                    RefOr::Ref(only.clone())
                }
            };
        }
        _ => {}
    }
}

/// Takes away a default that is nothing: `null`, or an empty text, list or object.
fn drop_empty(default: &mut Option<Value>) {
    let is_empty = default.as_ref().is_some_and(|default| match default {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    });
    if is_empty {
        *default = None;
    }
}

/// What is answered has every field, and no default.
fn complete(found: &mut BTreeMap<String, RefOr<Schema>>, name: &str) {
    let Some(RefOr::T(Schema::Object(object))) = found.get_mut(name) else {
        unreachable!("{name} is no object")
    };
    object.required = object.properties.keys().cloned().collect();
    // It is what somebody may send.
    object.example = None;
    for field in object.properties.values_mut() {
        match field {
            RefOr::T(Schema::Object(value)) => value.default = None,
            RefOr::T(Schema::Array(list)) => list.default = None,
            RefOr::T(Schema::OneOf(of)) => of.default = None,
            _ => {}
        }
    }
}

/// Gives the values of an enumeration names for programs. In several languages all constants are in one
/// place, and `none` is a value of three.
fn name_values(name: &str, schema: &mut RefOr<Schema>) {
    let RefOr::T(Schema::Object(object)) = schema else { return };
    let Some(values) = &object.enum_values else { return };
    let mut before = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !before.is_empty() {
            before.push('_');
        }
        before.push(letter.to_ascii_uppercase());
    }
    let names = values.iter().map(|value| {
        let value = value.as_str().unwrap_or_else(|| unreachable!("{name} is of texts"));
        format!("{before}_{}", value.to_ascii_uppercase())
    });
    let names: Vec<_> = names.collect();
    object.extensions = Some(ExtensionsBuilder::new().add("x-enum-varnames", names).build());
}

/// Calls `change` with every schema in this one, and then with itself.
fn each(schema: &mut RefOr<Schema>, change: &mut impl FnMut(&mut RefOr<Schema>)) {
    if let RefOr::T(told) = schema {
        match told {
            Schema::Object(object) => {
                object.properties.values_mut().for_each(|field| each(field, change));
                let values = object.additional_properties.as_deref_mut();
                if let Some(AdditionalProperties::RefOr(values)) = values {
                    each(values, change);
                }
            }
            Schema::Array(list) => {
                if let ArrayItems::RefOrSchema(items) = &mut list.items {
                    each(items, change);
                }
            }
            Schema::OneOf(of) => of.items.iter_mut().for_each(|item| each(item, change)),
            Schema::AllOf(of) => of.items.iter_mut().for_each(|item| each(item, change)),
            Schema::AnyOf(of) => of.items.iter_mut().for_each(|item| each(item, change)),
            _ => {}
        }
    }
    change(schema);
}

fn null() -> Schema {
    ObjectBuilder::new().schema_type(Type::Null).build().into()
}

/// Whatever JSON can say.
pub(super) fn any(about: &str) -> Object {
    ObjectBuilder::new().schema_type(SchemaType::AnyValue).description(Some(about)).build()
}

/// A type's schema and those of all types in it.
fn collect<T: ToSchema>(found: &mut Vec<(String, RefOr<Schema>)>) {
    found.push((T::name().into_owned(), T::schema()));
    T::schemas(found);
}
