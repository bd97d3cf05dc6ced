//! `weir namespace`: create, list, show, change and delete namespaces.

use anyhow::bail;
use bytes::Bytes;
use http::header::{ETAG, IF_MATCH};
use http::{HeaderMap, Method, StatusCode};
use serde_json::{Map, Value, json};

use crate::args::{Connect, NamespaceCommand, NamespaceFields};
use crate::client::{Api, Reply, encoded};
use crate::{listing, output};

/// Carries out one namespace command. `--ns` has no bearing on it.
pub(crate) async fn run(connect: &Connect, command: NamespaceCommand) -> anyhow::Result<()> {
    let api = Api::new(connect)?;
    match command {
        NamespaceCommand::List { query, limit } => {
            let columns: listing::Columns<'_> = (&["NAMESPACE", "AUTO-CREATE", "ORIGINS"], row);
            listing::print(&api, connect.json, "/v1/ns", query.as_deref(), limit, columns).await
        }
        NamespaceCommand::Create { name, settings } => create(&api, connect.json, &name, &settings).await,
        NamespaceCommand::Get { name } => {
            let namespace = api.get(&path(&name)).await?.json()?;
            if connect.json {
                output::line(&namespace);
            } else {
                describe(&namespace);
            }
            Ok(())
        }
        NamespaceCommand::Set { name, settings } => set(&api, connect.json, &name, &settings).await,
        NamespaceCommand::Delete { name, yes } => delete(&api, connect.json, &name, yes).await,
    }
}

fn path(name: &str) -> String {
    format!("/v1/ns/{}", encoded(name))
}

fn origins(namespace: &Value) -> Vec<&str> {
    let origins = namespace["cors_origins"].as_array().map(Vec::as_slice).unwrap_or_default();
    origins.iter().filter_map(Value::as_str).collect()
}

fn row(namespace: &Value) -> Vec<String> {
    let name = namespace["name"].as_str().unwrap_or("?").to_owned();
    let origins = origins(namespace).join(" ");
    let origins = if origins.is_empty() { "-".to_owned() } else { origins };
    vec![name, namespace["auto_create"].to_string(), origins]
}

fn describe(namespace: &Value) {
    output::line(format_args!("version {}", namespace["version"]));
    output::line(format_args!("auto_create = {}", namespace["auto_create"]));
    output::line(format_args!("cors_origins = {}", namespace["cors_origins"]));
}

fn shown(as_json: bool, namespace: &Value, what: &str) {
    if as_json {
        output::line(namespace);
    } else {
        output::line(format_args!("{} {what}", namespace["name"].as_str().unwrap_or("namespace")));
    }
}

/// Looks first whether one is there with other settings, to say what changes them; if it comes to be
/// meanwhile, the gateway refuses.
async fn create(api: &Api, as_json: bool, name: &str, settings: &NamespaceFields) -> anyhow::Result<()> {
    let fields = fields(settings);
    if let Some(there) = api.get_if_any(&path(name)).await? {
        let there = there.json()?;
        let wanted = |field: &str, default: Value| fields.get(field).cloned().unwrap_or(default);
        let same = there["auto_create"] == wanted("auto_create", json!(false))
            && there["cors_origins"] == wanted("cors_origins", json!([]));
        if !same {
            let weir = api.weir();
            bail!(
                "{name} exists with other settings: `{weir} namespace set {name}` changes them, `{weir} namespace get {name}` shows them"
            );
        }
    }
    let reply = api.send(Method::PUT, &path(name), HeaderMap::new(), body(fields)).await?;
    shown(as_json, &reply.json()?, if reply.status == StatusCode::OK { "exists" } else { "created" });
    Ok(())
}

/// Changes settings of what was read, and only if nobody changed it meanwhile.
async fn set(api: &Api, as_json: bool, name: &str, settings: &NamespaceFields) -> anyhow::Result<()> {
    let fields = fields(settings);
    if fields.is_empty() {
        bail!("nothing to change: name at least one setting, see `weir namespace set --help`");
    }
    let current = api.get(&path(name)).await?;
    let reply = api.send(Method::PATCH, &path(name), only_if_so(&current), body(fields)).await?;
    shown(as_json, &reply.json()?, "changed");
    Ok(())
}

/// Deletes what was read and asked about: not what somebody else has made of it since.
async fn delete(api: &Api, as_json: bool, name: &str, yes: bool) -> anyhow::Result<()> {
    let current = api.get(&path(name)).await?;
    for (kind, command) in [("topics", "topic"), ("subscriptions", "subscription")] {
        let page = api.get(&format!("{}/{kind}?limit=1", path(name))).await?.json()?;
        if page["items"].as_array().is_some_and(|items| !items.is_empty()) {
            let weir = api.weir_in(name);
            bail!("{name} has {kind}: `{weir} {command} list` shows them, delete them first");
        }
    }
    if !yes && !output::confirmed(&format!("Delete the namespace {name}? This cannot be undone.")) {
        bail!("not deleted: confirm it, or pass --yes");
    }
    api.send(Method::DELETE, &path(name), only_if_so(&current), Bytes::new()).await?;
    if as_json {
        output::line(json!({ "deleted": name }));
    } else {
        output::line(format_args!("deleted {name}"));
    }
    Ok(())
}

fn only_if_so(read: &Reply) -> HeaderMap {
    read.headers.get(ETAG).map(|tag| (IF_MATCH, tag.clone())).into_iter().collect()
}

fn body(fields: Map<String, Value>) -> Bytes {
    Value::Object(fields).to_string().into()
}

/// The settings that were given, as the API names them.
fn fields(settings: &NamespaceFields) -> Map<String, Value> {
    let names_origins = settings.no_origins || !settings.origins.is_empty();
    [
        ("auto_create", settings.auto_create.map(|is_so| json!(is_so))),
        ("cors_origins", names_origins.then(|| json!(settings.origins))),
    ]
    .into_iter()
    .filter_map(|(field, value)| Some((field.to_owned(), value?)))
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_given_settings_are_sent_and_no_origins_is_an_empty_list() {
        assert_eq!(Value::Object(fields(&NamespaceFields::default())), json!({}));
        let none = NamespaceFields { no_origins: true, ..NamespaceFields::default() };
        assert_eq!(Value::Object(fields(&none)), json!({"cors_origins": []}));
        let origins = vec!["https://shop.example".to_owned()];
        let both = NamespaceFields { auto_create: Some(false), origins, no_origins: false };
        assert_eq!(
            Value::Object(fields(&both)),
            json!({"auto_create": false, "cors_origins": ["https://shop.example"]})
        );
    }
}
