//! Settings from a file. What can be set is what can be typed: keys are the long flags with underscores, in the
//! sections `[client]` (flags of every command), `[dev]`, `[node]` and `[gateway]` (those of the commands of these
//! names). Flags win over the environment, that over the file.
//!
//! The file's values become the defaults of the command line's own definitions, so there is one schema, one parser
//! and one help text.

mod faults;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::builder::Resettable;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, CommandFactory as _};
use serde::Serialize;

use self::faults::{
    Fault, checked, sections, text_of as text_of_faults, unknown_key, unknown_variables, what,
};
use crate::args::{Args, ConfigCommand, Connect};
use crate::output;

/// Read if it is there and no other file is named.
const DEFAULT_FILE: &str = "weir.toml";
/// Names the file, like `--config`.
const ENV: &str = "WEIR_CONFIG";
/// Flags of every command.
const CLIENT: &str = "client";
/// Commands that have a section.
const COMMANDS: [&str; 3] = ["dev", "node", "gateway"];
const SECTIONS: [&str; 4] = [CLIENT, COMMANDS[0], COMMANDS[1], COMMANDS[2]];
/// Flags of every command that do nothing for these.
const IDLE_OPTIONS: &[(&[&str], &[&str])] = &[
    (&COMMANDS, &["url", "ns", "ca_cert", "json"]),
    (&["repair", "restore", "config"], &["url", "ns", "ca_cert"]),
    (&["namespace"], &["ns"]),
];
/// Flags that say how to run one command rather than how things are set up.
const NOT_SETTINGS: [&str; 5] = ["config", "help", "version", "json", "ready_file"];

/// A file's values by section and key, as they would be typed.
#[derive(Debug, Default)]
pub(crate) struct FileConfig {
    path: Option<PathBuf>,
    values: BTreeMap<(String, String), Typed>,
    /// What is wrong with what else is in it.
    faults: Vec<Fault>,
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
    /// Behind `--` there are no flags.
    pub(crate) fn find(args: impl Iterator<Item = OsString>) -> Self {
        let args: Vec<OsString> = args.take_while(|arg| arg != "--").collect();
        let flag =
            args.iter().enumerate().find_map(|(at, arg)| match arg.as_bytes().strip_prefix(b"--config")? {
                [] => args.get(at + 1).cloned(),
                [b'=', path @ ..] => Some(OsStr::from_bytes(path).to_owned()),
                _ => None,
            });
        match flag.or_else(|| variable(ENV)) {
            Some(path) => Self::read(Path::new(&path)),
            None if Path::new(DEFAULT_FILE).exists() => Self::read(Path::new(DEFAULT_FILE)),
            None => Self::default(),
        }
    }

    /// Reads a file. What is wrong with it is kept, to be told with all the rest.
    pub(crate) fn read(path: &Path) -> Self {
        let mut file = Self { path: Some(path.to_owned()), ..Self::default() };
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) => {
                file.add_fault(None, None, format!("cannot read {}: {error}", path.display()));
                return file;
            }
        };
        match toml::from_str(&text) {
            Ok(table) => file.take(table),
            Err(error) => {
                let why = error.to_string();
                file.add_fault(None, None, format!("{} is not TOML: {}", path.display(), why.trim_end()));
            }
        }
        file
    }

    fn take(&mut self, table: toml::Table) {
        for (section, content) in table {
            let toml::Value::Table(content) = content else {
                let why = format!("{section} stands outside of [client], [dev], [node] and [gateway]");
                self.add_fault(None, Some(&section), format!("{}: {why}", self.named()));
                continue;
            };
            // Keys of a section that is none are each refused by name.
            if content.is_empty() && !SECTIONS.contains(&section.as_str()) {
                let why = format!("[{section}] is no section; {}", sections(&section));
                self.add_fault(Some(&section), None, format!("{}: {why}", self.named()));
            }
            for (key, value) in content {
                let typed = match value {
                    toml::Value::Array(list) => {
                        list.into_iter().map(text_of).collect::<Option<_>>().map(Typed::List)
                    }
                    value => text_of(value).map(Typed::One),
                };
                match typed {
                    Some(typed) => drop(self.values.insert((section.clone(), key), typed)),
                    None => {
                        let why =
                            format!("{section}.{key} is not a text, number or boolean, or a list of these");
                        self.add_fault(Some(&section), Some(&key), format!("{}: {why}", self.named()));
                    }
                }
            }
        }
    }

    fn add_fault(&mut self, section: Option<&str>, key: Option<&str>, message: String) {
        let (section, key) = (section.map(str::to_owned), key.map(str::to_owned));
        self.faults.push(Fault { section, key, variable: None, message });
    }

    /// The file, as errors name it.
    fn named(&self) -> String {
        self.path.as_deref().unwrap_or(Path::new(DEFAULT_FILE)).display().to_string()
    }

    /// The command line with the file's values as its defaults. Options are shown where they do something.
    ///
    /// # Errors
    /// What is wrong with the file: unknown sections or keys, lists where one value is needed, all by name.
    pub(crate) fn command(&self) -> anyhow::Result<Command> {
        let (command, faults) = self.filled();
        anyhow::ensure!(faults.is_empty(), text_of_faults(&faults));
        Ok(without_idle_options(command))
    }

    /// The same with all values that some argument can take, and what is wrong with the others.
    fn filled(&self) -> (Command, Vec<Fault>) {
        let (declared, mut faults) = (Args::command(), self.faults.clone());
        let mut command = without_empty_variables(declared.clone());
        for ((section, key), typed) in &self.values {
            let is_known = SECTIONS.contains(&section.as_str()) && !NOT_SETTINGS.contains(&key.as_str());
            let place = if section == CLIENT { Some(&declared) } else { declared.find_subcommand(section) };
            let arg = place.and_then(|place| place.get_arguments().find(|arg| arg.get_id() == key.as_str()));
            let why = match arg.filter(|_| is_known) {
                None => unknown_key(&declared, section, key),
                Some(arg) if matches!(typed, Typed::List(_)) && !is_list(arg) => {
                    format!("{section}.{key} takes one value, not a list")
                }
                Some(_) => {
                    command = with_default(command, section, key, typed);
                    continue;
                }
            };
            let (section, key) = (Some(section.clone()), Some(key.clone()));
            faults.push(Fault { section, key, variable: None, message: format!("{}: {why}", self.named()) });
        }
        (command, faults)
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
            anyhow::anyhow!(what(&error))
        })?;
        let matches = matches.subcommand_matches(name).context("a command with a section")?;
        checked(name, matches).into_iter().next().map_or(Ok(()), Err)?;
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

/// The command line with a value of the file as a default.
fn with_default(command: Command, section: &str, key: &str, typed: &Typed) -> Command {
    let values = typed.values().to_vec();
    let set = |arg: Arg| {
        let leaked = values.into_iter().map(|value| value.leak() as &'static str);
        arg.default_values(leaked.map(clap::builder::Str::from))
    };
    if section == CLIENT {
        command.mut_arg(key, set)
    } else {
        command.mut_subcommand(section, |named| named.mut_arg(key, set))
    }
}

/// A variable that says something. One that is empty is none: that is how those are passed on that nobody has set.
fn variable(name: impl AsRef<OsStr>) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// The command line without those of its variables that are empty.
fn without_empty_variables(command: Command) -> Command {
    let own = command.mut_args(|arg| match arg.get_env() {
        Some(name) if std::env::var_os(name).is_some_and(|value| value.is_empty()) => {
            arg.env(Resettable::Reset)
        }
        _ => arg,
    });
    own.mut_subcommands(without_empty_variables)
}

/// Hides flags of every command from the help of those for which they do nothing. They are still taken: a
/// script need not know.
fn without_idle_options(mut command: Command) -> Command {
    for (names, idle) in IDLE_OPTIONS {
        let hidden = command.get_arguments().filter(|arg| idle.contains(&arg.get_id().as_str()));
        let hidden: Vec<_> = hidden.map(|arg| arg.clone().hide(true)).collect();
        for name in *names {
            command = command.mut_subcommand(name, |named| named.args(hidden.clone()));
        }
    }
    command
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
            let read = named.as_deref().map(FileConfig::read);
            check(connect, read.as_ref().unwrap_or(file))
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

/// What `weir config check` found, for programs.
#[derive(Debug, Serialize)]
struct Checked<'a> {
    /// The file, if there is one.
    file: Option<String>,
    /// How many values it has.
    settings: usize,
    errors: &'a [Fault],
    warnings: &'a [Fault],
}

fn check(connect: &Connect, file: &FileConfig) -> anyhow::Result<()> {
    let (errors, warnings) = (file.all_faults(), unknown_variables());
    let (settings, path) = (file.values.len(), file.path.as_ref().map(|path| path.display().to_string()));
    if connect.json {
        let checked = Checked { file: path, settings, errors: &errors, warnings: &warnings };
        output::line(serde_json::to_string(&checked)?);
        anyhow::ensure!(errors.is_empty(), "{} setting(s) are wrong", errors.len());
        return Ok(());
    }
    for warning in &warnings {
        output::warning(&warning.message);
    }
    anyhow::ensure!(errors.is_empty(), text_of_faults(&errors));
    match path {
        Some(path) => output::note(format_args!("{path}: {settings} settings, all valid")),
        None => output::note("there is no file; the defaults and the environment are valid"),
    }
    Ok(())
}

/// Tells servers' operators of variables that nothing reads. It is no reason not to start: they may be meant
/// for others.
pub(crate) fn warn_of_variables() {
    for unknown in unknown_variables() {
        output::warning(&unknown.message);
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
