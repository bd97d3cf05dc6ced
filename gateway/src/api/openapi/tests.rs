//! The document holds what tools of others ask of one.

use std::collections::{BTreeMap, BTreeSet};

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

/// Every object of the document that has this field, with its path.
fn having<'a>(value: &'a Value, field: &str, path: &str, found: &mut Vec<(String, &'a Value)>) {
    match value {
        Value::Object(fields) => {
            if fields.contains_key(field) {
                found.push((path.to_owned(), value));
            }
            fields.iter().for_each(|(name, inner)| having(inner, field, &format!("{path}/{name}"), found));
        }
        Value::Array(items) => {
            items
                .iter()
                .enumerate()
                .for_each(|(n, inner)| having(inner, field, &format!("{path}/{n}"), found));
        }
        _ => {}
    }
}

fn all_having(field: &str) -> Vec<(String, Value)> {
    let document: Value = serde_json::from_str(&document_json()).unwrap();
    let mut found = Vec::new();
    having(&document, field, "", &mut found);
    found.into_iter().map(|(path, value)| (path, value.clone())).collect()
}

/// Validators refuse a default that is no value of its own type, and generators crash on it.
#[test]
fn a_default_is_a_value_of_its_own_type() {
    let found = all_having("default");
    let schemas = found.into_iter().filter(|(path, _)| path.contains("/schemas/"));
    let mut seen = 0;
    for (path, told) in schemas.filter(|(_, told)| told.get("description").is_none_or(Value::is_string)) {
        let default = &told["default"];
        let types = match &told["type"] {
            Value::String(one) => vec![one.clone()],
            Value::Array(several) => {
                several.iter().filter_map(|one| one.as_str().map(str::to_owned)).collect()
            }
            // Of a schema of another name, which is an enumeration.
            _ => vec!["string".to_owned()],
        };
        let is_one = types.iter().any(|kind| match kind.as_str() {
            "string" => default.as_str().is_some_and(|text| !text.is_empty()),
            "integer" => default.is_u64(),
            "number" => default.is_number(),
            "boolean" => default.is_boolean(),
            "array" => default.as_array().is_some_and(|list| !list.is_empty()),
            _ => false,
        });
        assert!(is_one, "{path}: {default}");
        seen += 1;
    }
    assert!(seen > 10, "{seen}");
}

/// As `oneOf`, generators make a type of its own of it, or none at all.
#[test]
fn null_is_said_beside_the_type_or_as_any_of() {
    for (path, told) in all_having("oneOf") {
        let several = told["oneOf"].as_array().unwrap();
        assert!(several.len() > 1 && several.iter().all(|one| one["type"] != "null"), "{path}");
    }
    assert!(!all_having("anyOf").is_empty());
}

#[test]
fn every_media_type_has_a_schema() {
    let mut bodies = 0;
    for (path, told) in all_having("content") {
        for (media, content) in told["content"].as_object().unwrap() {
            assert!(content.get("schema").is_some_and(Value::is_object), "{path}: {media}");
            bodies += 1;
        }
    }
    assert!(bodies > OPERATIONS.len(), "{bodies}");
}

/// Generators that take one of several take the first.
#[test]
fn media_types_are_in_the_order_of_the_operation() {
    let text = document_json();
    let body = text.split_once(r#""operationId": "publishMessage""#).unwrap().1;
    let place = |media: &str| body.find(&format!("\"{media}\": {{")).unwrap();
    let places = ["application/json", "application/octet-stream", "text/plain", "*/*"].map(place);
    assert!(places.is_sorted(), "{places:?}");
    assert!(!text.contains("u0001"));
}

/// Constants of Go are all in one place.
#[test]
fn values_of_enumerations_have_names_of_their_own() {
    let mut names = BTreeSet::new();
    let schemas = all_having("enum").into_iter().filter(|(path, _)| path.starts_with("/components/schemas/"));
    for (path, told) in schemas {
        let named = told["x-enum-varnames"].as_array().unwrap_or_else(|| panic!("{path} names no values"));
        assert_eq!(named.len(), told["enum"].as_array().unwrap().len(), "{path}");
        for name in named {
            assert!(names.insert(name.as_str().unwrap().to_owned()), "{path}: {name} has two meanings");
        }
    }
    assert!(names.contains("LEVEL_NONE") && names.contains("PULL_SCOPE_PARTITION"), "{names:?}");
}

#[test]
fn links_lead_from_an_answer_there_is_to_what_an_operation_takes() {
    let by_id = |id: &str| OPERATIONS.iter().find(|operation| operation.id == id);
    let known = |operation: &Operation, name: &str| {
        path_params(operation.path).any(|known| known == name)
            || operation.query.iter().chain(operation.headers).any(|known| known.name == name)
    };
    for lead in links::LEADS {
        let (Some(from), Some(to)) = (by_id(lead.from), by_id(lead.to)) else {
            panic!("{} or {} is no operation", lead.from, lead.to)
        };
        assert!(from.answers.iter().any(|answer| links::of(from.id, answer.status).next().is_some()));
        for (name, source) in lead.parameters {
            assert!(known(to, name), "{} takes no {name}", lead.to);
            if let Some(source) = source.strip_prefix("$request.path.") {
                assert!(known(from, source), "{} has no {source}", lead.from);
            }
            if let Some(source) = source.strip_prefix("$response.header.") {
                assert!(from.answers.iter().all(|a| a.headers.iter().any(|(name, _)| *name == source)));
            }
        }
    }
    let named = all_having("links").iter().map(|(_, told)| told["links"].clone()).collect::<Vec<_>>();
    let targets = named.iter().flat_map(|links| links.as_object().unwrap().values());
    let mut told = 0;
    for link in targets {
        assert!(by_id(link["operationId"].as_str().unwrap()).is_some(), "{link}");
        told += 1;
    }
    assert!(told > links::LEADS.len(), "{told}");
}

#[test]
fn every_tag_is_described_and_used() {
    let described: BTreeSet<_> = TAGS.iter().map(|(name, _)| *name).collect();
    let used: BTreeSet<_> = OPERATIONS.iter().map(|operation| operation.tag).collect();
    assert_eq!(described, used);
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
