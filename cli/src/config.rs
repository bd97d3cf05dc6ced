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
    /// `default`, `file`, `env` or `flag`.
    source: &'static str,
    env: Option<String>,
    default: Option<Typed>,
    /// Meaning, unit and range.
    about: String,
    /// Where there is a choice: what may be chosen.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    choices: Vec<String>,
}

impl Setting {
    /// As it is where nobody has said anything, in the environment either.
    fn reset(&mut self) {
        (self.value, self.source) = (self.default.clone(), "default");
    }

    /// All there is to say of it, as `--help` does.
    fn manual(&self) -> String {
        let mut manual = self.about.clone();
        if !self.choices.is_empty() {
            manual += &format!(" [possible values: {}]", self.choices.join(", "));
        }
        if let Some(env) = &self.env {
            manual += &format!(" [env: {env}]");
        }
        if let Some(default) = self.default.as_ref().filter(|_| !manual.contains("[default: ")) {
            manual += &format!(" [default: {}]", default.values().join(", "));
        }
        manual
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
                        "{}: {section}.{key} is not a text, number or boolean, or a list of these",
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

    /// Everything that can be set, as it stands for the commands that have a section.
    ///
    /// # Errors
    /// A value out of its range, or one that does not go with another.
    fn settings(&self) -> anyhow::Result<Vec<Setting>> {
        let mut settings = Vec::new();
        for name in COMMANDS {
            let line = [name.to_owned()];
            settings.extend(self.settings_of(&line)?.into_iter().filter(|setting| {
                // The client's are the same for all.
                setting.section != CLIENT || name == COMMANDS[0]
            }));
        }
        Ok(settings)
    }

    /// The same for one command with the flags behind it.
    fn settings_of(&self, line: &[String]) -> anyhow::Result<Vec<Setting>> {
        let name = line.first().and_then(|first| COMMANDS.into_iter().find(|name| *name == first));
        let Some(name) = name else { bail!("only {} have settings of their own", COMMANDS.join(", ")) };
        let words = std::iter::once("weir").chain(line.iter().map(String::as_str));
        let matches = self.command()?.try_get_matches_from(words).map_err(|error| {
            if !error.use_stderr() {
                error.exit();
            }
            // What follows tells how to type it, and what is wrong may stand in a file.
            let text = error.to_string();
            let what = text.split("\n\n").next().unwrap_or_default();
            anyhow::anyhow!("{}", what.trim_start_matches("error: ").to_owned())
        })?;
        let matches = matches.subcommand_matches(name).context("a command with a section")?;
        match name {
            "dev" => DevArgs::from_arg_matches(matches)?.check()?,
            "node" => NodeArgs::from_arg_matches(matches)?.check()?,
            _ => GatewayArgs::from_arg_matches(matches)?.check()?,
        }
        // In the order in which they are declared, which values from a file would change.
        let declared = Args::command();
        let is_setting = |arg: &&Arg| !NOT_SETTINGS.contains(&arg.get_id().as_str());
        let client = declared.get_arguments().filter(is_setting);
        let mut settings: Vec<_> = client.map(|arg| self.setting(CLIENT, arg, matches)).collect();
        let command = declared.find_subcommand(name).context("a command with a section")?;
        let own = command.get_arguments().filter(is_setting).filter(|arg| !arg.is_global_set());
        settings.extend(own.map(|arg| self.setting(name, arg, matches)));
        Ok(settings)
    }

    fn setting(&self, section: &'static str, arg: &Arg, matches: &ArgMatches) -> Setting {
        let key = arg.get_id().as_str();
        let is_in_file = self.values.contains_key(&(section.to_owned(), key.to_owned()));
        let source = match matches.value_source(key) {
            Some(ValueSource::CommandLine) => "flag",
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
            choices: match arg.get_action() {
                ArgAction::SetTrue => Vec::new(),
                _ => arg.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect(),
            },
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
        // With its point, so that it is no integer either.
        toml::Value::Float(number) if number.is_finite() => Some(format!("{number:?}")),
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
        ConfigCommand::Print { defaults, command } => {
            let settings = match (defaults, command.is_empty()) {
                (true, _) => {
                    let mut settings = FileConfig::default().settings()?;
                    settings.iter_mut().for_each(Setting::reset);
                    settings
                }
                (false, true) => file.settings()?,
                (false, false) => file.settings_of(command)?,
            };
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
        let mut own = settings.iter().filter(|setting| setting.section == section).peekable();
        if own.peek().is_none() {
            continue;
        }
        out += &format!("[{section}]\n");
        for setting in own {
            out += &format!("# {}\n", setting.manual());
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
mod tests;
