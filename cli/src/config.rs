//! Settings from a file. What can be set is what can be typed: keys are the long flags with underscores, in the
//! sections `[client]` (flags of every command), `[dev]`, `[node]` and `[gateway]` (those of the commands of these
//! names). Flags win over the environment, that over the file.
//!
//! The file's values become the defaults of the command line's own definitions, so there is one schema, one parser
//! and one help text.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, CommandFactory as _, FromArgMatches as _};
use serde::Serialize;

use crate::args::{Args, ConfigCommand, Connect};
use crate::output;
use crate::serve::{DevArgs, GatewayArgs, NodeArgs};

/// Read if it is there and no other file is named.
const DEFAULT_FILE: &str = "weir.toml";
/// Names the file, like `--config`.
const ENV: &str = "WEIR_CONFIG";
/// Flags of every command.
const CLIENT: &str = "client";
/// Commands that have a section.
const COMMANDS: [&str; 3] = ["dev", "node", "gateway"];
const SECTIONS: [&str; 4] = [CLIENT, COMMANDS[0], COMMANDS[1], COMMANDS[2]];
/// Flags that say how to run one command rather than how things are set up.
const NOT_SETTINGS: [&str; 5] = ["config", "help", "version", "json", "ready_file"];

/// A file's values by section and key, as they would be typed.
#[derive(Debug, Default)]
pub(crate) struct FileConfig {
    path: Option<PathBuf>,
    values: BTreeMap<(String, String), Typed>,
}

/// What would be typed for a flag.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
enum Typed {
    /// One value; of a flag that can be repeated, a list of it alone.
    One(String),
    /// Values of a flag that can be repeated, in order.
    List(Vec<String>),
}

impl Typed {
    fn values(&self) -> &[String] {
        match self {
            Self::One(value) => std::slice::from_ref(value),
            Self::List(values) => values,
        }
    }

    /// As TOML, such that reading it gives the same.
    fn toml(&self) -> String {
        match self {
            Self::One(value) => quoted(value),
            Self::List(values) => {
                format!("[{}]", values.iter().map(|value| quoted(value)).collect::<Vec<_>>().join(", "))
            }
        }
    }
}

/// A setting as it stands.
#[derive(Debug, Serialize)]
struct Setting {
    section: &'static str,
    key: String,
    value: Option<Typed>,
    /// `default`, `file` or `env`.
    source: &'static str,
    env: Option<String>,
    #[serde(skip)]
    default: Option<Typed>,
    about: String,
}

impl Setting {
    /// As it is where nobody has said anything, in the environment either.
    fn reset(&mut self) {
        (self.value, self.source) = (self.default.clone(), "default");
    }
}

impl FileConfig {
    /// The file that `--config` among `args` names, else the environment, else `weir.toml` if it exists.
    pub(crate) fn find(args: impl Iterator<Item = String>) -> anyhow::Result<Self> {
        let args: Vec<String> = args.collect();
        let flag = args.iter().enumerate().find_map(|(at, arg)| match arg.strip_prefix("--config") {
            Some("") => args.get(at + 1).cloned(),
            Some(rest) => rest.strip_prefix('=').map(str::to_owned),
            None => None,
        });
        match flag.or_else(|| std::env::var(ENV).ok()) {
            Some(path) => Self::read(Path::new(&path)),
            None if Path::new(DEFAULT_FILE).exists() => Self::read(Path::new(DEFAULT_FILE)),
            None => Ok(Self::default()),
        }
    }

    /// Reads a file; its keys are checked by [`FileConfig::command`].
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        let text =
            std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let table: toml::Table =
            toml::from_str(&text).with_context(|| format!("{} is not TOML", path.display()))?;
        let mut values = BTreeMap::new();
        for (section, content) in table {
            let toml::Value::Table(content) = content else {
                bail!(
                    "{}: {section} stands outside of [client], [dev], [node] and [gateway]",
                    path.display()
                );
            };
            for (key, value) in content {
                let typed = match value {
                    toml::Value::Array(list) => {
                        list.into_iter().map(text_of).collect::<Option<_>>().map(Typed::List)
                    }
                    value => text_of(value).map(Typed::One),
                };
                let Some(typed) = typed else {
                    bail!(
                        "{}: {section}.{key} is not a text, integer or boolean, or a list of these",
                        path.display()
                    );
                };
                values.insert((section.clone(), key), typed);
            }
        }
        Ok(Self { path: Some(path.to_owned()), values })
    }

    /// The command line with the file's values as its defaults.
    ///
    /// # Errors
    /// An unknown section or key, or a list where one value is needed, by name.
    pub(crate) fn command(&self) -> anyhow::Result<Command> {
        let mut command = Args::command();
        for ((section, key), typed) in &self.values {
            let path = self.path.as_deref().unwrap_or(Path::new(DEFAULT_FILE)).display();
            let known = SECTIONS.contains(&section.as_str()) && !NOT_SETTINGS.contains(&key.as_str());
            let place = if section == CLIENT { Some(&command) } else { command.find_subcommand(section) };
            let arg = place.and_then(|place| place.get_arguments().find(|arg| arg.get_id() == key.as_str()));
            let Some(arg) = arg.filter(|_| known) else {
                bail!(
                    "{path}: {section}.{key} is unknown; `weir config print --defaults` lists what can be set"
                );
            };
            if matches!(typed, Typed::List(_)) && !is_list(arg) {
                bail!("{path}: {section}.{key} takes one value, not a list");
            }
            let (id, values) = (key.clone(), typed.values().to_vec());
            let with_default = |arg: Arg| {
                let leaked = values.into_iter().map(|value| value.leak() as &'static str);
                arg.default_values(leaked.map(clap::builder::Str::from))
            };
            command = if section == CLIENT {
                command.mut_arg(id, with_default)
            } else {
                command.mut_subcommand(section, |named| named.mut_arg(id, with_default))
            };
        }
        Ok(command)
    }

    fn settings(&self) -> anyhow::Result<Vec<Setting>> {
        // In the order in which they are declared, which values from a file would change.
        let declared = Args::command();
        let is_setting = |arg: &&Arg| !NOT_SETTINGS.contains(&arg.get_id().as_str());
        let mut settings = Vec::new();
        for name in COMMANDS {
            let matches = self.command()?.try_get_matches_from(["weir", name])?;
            let matches = matches.subcommand_matches(name).context("a command with a section")?;
            match name {
                "dev" => DevArgs::from_arg_matches(matches)?.check()?,
                "node" => NodeArgs::from_arg_matches(matches)?.check()?,
                _ => GatewayArgs::from_arg_matches(matches)?.check()?,
            }
            if settings.is_empty() {
                let client = declared.get_arguments().filter(is_setting);
                settings.extend(client.map(|arg| self.setting(CLIENT, arg, matches)));
            }
            let command = declared.find_subcommand(name).context("a command with a section")?;
            let own = command.get_arguments().filter(is_setting).filter(|arg| !arg.is_global_set());
            settings.extend(own.map(|arg| self.setting(name, arg, matches)));
        }
        Ok(settings)
    }

    fn setting(&self, section: &'static str, arg: &Arg, matches: &ArgMatches) -> Setting {
        let key = arg.get_id().as_str();
        let is_in_file = self.values.contains_key(&(section.to_owned(), key.to_owned()));
        let source = match matches.value_source(key) {
            Some(ValueSource::EnvVariable) => "env",
            Some(ValueSource::DefaultValue) if is_in_file => "file",
            _ => "default",
        };
        let value = match arg.get_action() {
            ArgAction::SetTrue => Some(Typed::One(matches.get_flag(key).to_string())),
            _ => typed(arg, matches.get_raw(key).into_iter().flatten()),
        };
        Setting {
            section,
            key: key.to_owned(),
            value,
            source,
            default: match arg.get_action() {
                ArgAction::SetTrue => Some(Typed::One("false".to_owned())),
                _ => typed(arg, arg.get_default_values().iter().map(|value| value.as_os_str())),
            },
            env: arg.get_env().map(|name| name.to_string_lossy().into_owned()),
            about: arg.get_help().map(ToString::to_string).unwrap_or_default(),
        }
    }
}

fn is_list(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::Append)
}

/// What stands for an argument: of a list all of it, otherwise its value, if it has one.
fn typed<'a>(arg: &Arg, values: impl Iterator<Item = &'a OsStr>) -> Option<Typed> {
    let mut values = values.map(|value| value.to_string_lossy().into_owned());
    if is_list(arg) { Some(Typed::List(values.collect())) } else { values.next().map(Typed::One) }
}

fn text_of(value: toml::Value) -> Option<String> {
    match value {
        toml::Value::String(text) => Some(text),
        toml::Value::Integer(number) => Some(number.to_string()),
        toml::Value::Boolean(flag) => Some(flag.to_string()),
        _ => None,
    }
}

/// `weir config`.
pub(crate) fn run(connect: &Connect, file: &FileConfig, command: &ConfigCommand) -> anyhow::Result<()> {
    match command {
        ConfigCommand::Check { file: named } => {
            let read;
            let file = match named {
                Some(path) => {
                    read = FileConfig::read(path)?;
                    &read
                }
                None => file,
            };
            file.settings()?;
            match &file.path {
                Some(path) => output::note(format_args!(
                    "{}: {} settings, all valid",
                    path.display(),
                    file.values.len()
                )),
                None => output::note("there is no file; the defaults and the environment are valid"),
            }
            Ok(())
        }
        ConfigCommand::Print { defaults } => {
            let none = FileConfig::default();
            let settings = if *defaults { none.settings()? } else { file.settings()? };
            let mut settings = settings;
            if *defaults {
                settings.iter_mut().for_each(Setting::reset);
            }
            if connect.json {
                output::line(serde_json::to_string(&settings)?);
                return Ok(());
            }
            output::line(printed(&settings).trim_end());
            Ok(())
        }
    }
}

/// As a file that could be read again.
fn printed(settings: &[Setting]) -> String {
    let mut out = String::new();
    for section in SECTIONS {
        out += &format!("[{section}]\n");
        for setting in settings.iter().filter(|setting| setting.section == section) {
            let env = setting.env.as_ref().map_or(String::new(), |env| format!(" ({env})"));
            out += &format!("# {}{env}\n", setting.about);
            out += &match &setting.value {
                Some(value) => format!("{} = {}  # {}\n", setting.key, value.toml(), setting.source),
                None => format!("# {} =\n", setting.key),
            };
        }
        out.push('\n');
    }
    out
}

/// A number or a truth value as such, where it reads the same; anything else as a string.
fn quoted(value: &str) -> String {
    let is_number = value.parse::<i64>().is_ok_and(|number| number.to_string() == value);
    if is_number || matches!(value, "true" | "false") {
        value.to_owned()
    } else {
        toml::Value::String(value.to_owned()).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> (tempfile::TempDir, anyhow::Result<FileConfig>) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("w.toml");
        std::fs::write(&path, text).unwrap();
        let read = FileConfig::read(&path);
        (dir, read)
    }

    #[test]
    fn flags_win_over_the_file_and_the_file_over_defaults() {
        let (_dir, read) = file("[client]\nns = \"shop\"\n[dev]\ndata_shards = 7\ninsecure_public = true\n");
        let command = read.unwrap().command().unwrap();
        let matches = command.clone().try_get_matches_from(["weir", "dev"]).unwrap();
        let dev = matches.subcommand_matches("dev").unwrap();
        assert_eq!(dev.get_one::<u32>("data_shards"), Some(&7));
        assert!(dev.get_flag("insecure_public"));
        assert_eq!(dev.get_one::<String>("ns").map(String::as_str), Some("shop"));
        let flags = command.try_get_matches_from(["weir", "dev", "--data-shards", "9"]).unwrap();
        assert_eq!(flags.subcommand_matches("dev").unwrap().get_one::<u32>("data_shards"), Some(&9));
    }

    #[test]
    fn what_cannot_be_set_is_named() {
        for (text, expected) in [
            ("[dev]\nlissten = \"x\"", "dev.lissten is unknown"),
            ("[server]\nlisten = \"x\"", "server.listen is unknown"),
            ("[dev]\nready_file = \"x\"", "dev.ready_file is unknown"),
            ("listen = \"x\"", "listen stands outside"),
            ("[dev]\nlisten = 1.5", "dev.listen is not a text"),
            ("[dev]\nlisten = [\"127.0.0.1:1\"]", "dev.listen takes one value"),
            ("[dev]\nhost_name = [[]]", "dev.host_name is not a text"),
            ("[client]\nns = [\"a\"]", "client.ns takes one value"),
            ("[dev", "is not TOML"),
            ("[dev]\nlisten = \"nowhere\"", "nowhere"),
            ("[dev]\ndata_shards = 999", "999"),
            ("[dev]\ntls_cert = \"c.pem\"", "belong together"),
            ("[gateway]\ntls_key = \"c.pem\"", "belong together"),
            ("[dev]\njournal_max = \"100MiB\"", "at least two journal files"),
            ("[dev]\nrecord_max = \"4MiB\"", "record_max is 4194304"),
            ("[dev]\nsync = \"never\"", "never"),
            ("[gateway]\ndata_dir = \"x\"", "gateway.data_dir is unknown"),
            ("[node]\nlisten = \"10.0.0.1:7070\"", "--cluster-secret"),
            ("[node]\nlisten = \"0.0.0.0:7070\"\ncluster_secret = \"s\"", "name one that they can reach"),
        ] {
            let (_dir, read) = file(text);
            let error = read.and_then(|file| file.settings().map(|_| ())).unwrap_err();
            assert!(format!("{error:#}").contains(expected), "{text}: {error:#}");
        }
    }

    fn known(file: &FileConfig) -> Vec<(&'static str, String, Option<Typed>)> {
        let settings = file.settings().unwrap();
        settings.into_iter().map(|setting| (setting.section, setting.key, setting.value)).collect()
    }

    #[test]
    fn what_is_printed_can_be_read_again() {
        for text in [
            "",
            "[client]\nns = \"007\"\n[dev]\ndata_shards = 7\ninsecure_public = true\nhost_name = []\n",
            "[client]\nca_cert = 'C:\\a \"b\" # c'\n[dev]\nhost_name = [\"a.example\", \"it's # b\"]\n",
            "[dev]\nallow_origin = \"https://one.example\"\njournal_max = \"1GiB\"\n",
            "[node]\nlisten = \"10.0.0.1:7070\"\ncluster_secret = \"/s\"\n[gateway]\nnode = \"10.0.0.1:7070\"\n",
        ] {
            let (_dir, read) = file(text);
            let read = read.unwrap();
            let printed = printed(&read.settings().unwrap());
            let (_dir, again) = file(&printed);
            assert_eq!(known(&again.unwrap()), known(&read), "{text}\nis printed\n{printed}");
        }
    }

    #[test]
    fn what_can_be_repeated_is_a_list() {
        let (_dir, read) = file("[dev]\nhost_name = [\"a.example\", \"b.example\"]\n");
        let command = read.unwrap().command().unwrap();
        let names = |matches: ArgMatches| -> Vec<String> {
            let dev = matches.subcommand_matches("dev").unwrap();
            dev.get_many("host_name").unwrap().cloned().collect()
        };
        let matches = command.clone().try_get_matches_from(["weir", "dev"]).unwrap();
        assert_eq!(names(matches), ["a.example", "b.example"]);
        let flags = command.try_get_matches_from(["weir", "dev", "--host-name", "c.example"]).unwrap();
        assert_eq!(names(flags), ["c.example"], "flags win, they do not add");
    }
}
