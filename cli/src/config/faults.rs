//! All that is wrong with settings, at once: with the file's keys and values, and with the environment's.

use clap::builder::Resettable;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command, CommandFactory as _, FromArgMatches as _};
use serde::Serialize;

use super::{CLIENT, COMMANDS, ENV, FileConfig, NOT_SETTINGS, SECTIONS, variable};
use crate::args::Args;
use crate::output::because;
use crate::serve::{DevArgs, GatewayArgs, NodeArgs};

/// Variables that are no flag's.
const OTHER_VARIABLES: [&str; 3] = [ENV, "WEIR_LOG", "WEIR_BENCH_BUILD"];
const PREFIX: &str = "WEIR_";
/// Names that are less alike than this are no misspellings of each other (Jaro; 1: the same).
const ALIKE_MIN: f64 = 0.75;

/// One thing that is wrong, and where.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Fault {
    /// Section of the file, or command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) section: Option<String>,
    /// Key of the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) key: Option<String>,
    /// Variable of the environment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) variable: Option<String>,
    /// What is wrong with it.
    pub(super) message: String,
}

/// All of them, a line each, as errors are printed.
pub(super) fn text_of(faults: &[Fault]) -> String {
    faults.iter().map(|fault| fault.message.as_str()).collect::<Vec<_>>().join("\nerror: ")
}

/// Variables that look like settings and are none, with the nearest that is one. Not an error: whoever runs
/// containers may be given variables that begin with the name of a service.
pub(crate) fn unknown_variables() -> Vec<Fault> {
    let declared = Args::command();
    let mut known: Vec<String> = OTHER_VARIABLES.map(str::to_owned).to_vec();
    add_variables(&declared, &mut known);
    let set = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let mut unknown: Vec<_> = set.filter(|name| name.starts_with(PREFIX) && !known.contains(name)).collect();
    unknown.sort_unstable();
    let fault = |name: String| {
        let nearest = nearest(&name, known.iter().map(String::as_str));
        let hint = nearest.map_or_else(String::new, |nearest| format!("; did you mean {nearest}?"));
        Fault {
            message: format!("{name} is set, and no setting has that variable{hint}"),
            variable: Some(name),
            ..Fault::default()
        }
    };
    unknown.into_iter().map(fault).collect()
}

fn add_variables(command: &Command, known: &mut Vec<String>) {
    let variables = command.get_arguments().filter_map(Arg::get_env);
    known.extend(variables.map(|name| name.to_string_lossy().into_owned()));
    command.get_subcommands().for_each(|below| add_variables(below, known));
}

/// What is most like `name`, if anything is.
fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    // What all of them begin with makes none of them more alike.
    let bare = |name: &str| name.trim_start_matches(PREFIX).replace('-', "_").to_lowercase();
    let wanted = bare(name);
    let likeness = known.map(|known| (strsim::jaro(&wanted, &bare(known)), known));
    let (likeness, found) = likeness.max_by(|(a, _), (b, _)| a.total_cmp(b))?;
    (likeness >= ALIKE_MIN).then_some(found)
}

/// What is said of a key that is none.
pub(super) fn unknown_key(declared: &Command, section: &str, key: &str) -> String {
    let settings = |section: &str| {
        let place = if section == CLIENT { Some(declared) } else { declared.find_subcommand(section) };
        let args = place
            .into_iter()
            .flat_map(Command::get_arguments)
            .filter(|arg| !arg.is_global_set() || section == CLIENT);
        let keys =
            args.map(|arg| arg.get_id().to_string()).filter(|key| !NOT_SETTINGS.contains(&key.as_str()));
        keys.collect::<Vec<_>>()
    };
    let here = SECTIONS.into_iter().find(|name| *name == section);
    let elsewhere = || SECTIONS.into_iter().find(|other| settings(other).iter().any(|name| name == key));
    let near = here.and_then(|here| {
        let keys = settings(here);
        Some((here, nearest(key, keys.iter().map(String::as_str))?.to_owned()))
    });
    let hint = match (near, elsewhere()) {
        _ if here.is_none() => sections(section),
        (_, Some(other)) => format!("did you mean {other}.{key}?"),
        (Some((section, key)), None) => format!("did you mean {section}.{key}?"),
        (None, None) => "`weir config print --defaults` lists what can be set".to_owned(),
    };
    format!("{section}.{key} is unknown; {hint}")
}

/// What is said where a section is none.
pub(super) fn sections(section: &str) -> String {
    match nearest(section, SECTIONS.into_iter()) {
        Some(nearest) => format!("did you mean [{nearest}]?"),
        None => format!("the sections are {}", SECTIONS.join(", ")),
    }
}

impl FileConfig {
    /// All that is wrong with the file and the environment, for the commands that have a section.
    pub(super) fn all_faults(&self) -> Vec<Fault> {
        let (command, mut all) = self.filled();
        for name in COMMANDS {
            for fault in self.faults_for(name, command.clone()) {
                // Variables, and what clients are told, are the same for all.
                if !all.contains(&fault) {
                    all.push(fault);
                }
            }
        }
        all
    }

    /// The same for one of the commands. The parser stops at the first value that is wrong; it is asked again
    /// as if nobody had said that one.
    fn faults_for(&self, name: &str, mut command: Command) -> Vec<Fault> {
        let (declared, mut faults) = (Args::command(), Vec::new());
        loop {
            let error = match command.clone().try_get_matches_from(["weir", name]) {
                // What values mean together can be told once each means something.
                Ok(_) if !faults.is_empty() => return faults,
                Ok(matches) => {
                    let failed = matches.subcommand_matches(name).map(|matches| checked(name, matches));
                    let fault = |error: anyhow::Error| Fault {
                        section: Some(name.to_owned()),
                        message: format!("{name}: {}", because(&error)),
                        ..Fault::default()
                    };
                    return failed.into_iter().flatten().map(fault).collect();
                }
                Err(error) => error,
            };
            let Some((section, arg)) = refused(&declared, name, &error) else {
                let section = Some(name.to_owned());
                faults.push(Fault { section, message: what(&error), ..Fault::default() });
                return faults;
            };
            let id = arg.get_id().to_string();
            faults.push(self.value_fault(section, arg, &what(&error)));
            let unsaid = arg.clone().env(Resettable::Reset);
            command = if section == CLIENT {
                command.mut_arg(id, |_| unsaid)
            } else {
                command.mut_subcommand(section, |named| named.mut_arg(id, |_| unsaid))
            };
        }
    }

    /// What is said of a value that a server's command refused and nobody typed: where it stands as well.
    pub(crate) fn refusal(&self, error: &clap::Error) -> Option<String> {
        let words = std::env::args_os().skip(1);
        let words: Vec<String> = words.map(|word| word.to_string_lossy().into_owned()).collect();
        let name = words.iter().find_map(|word| COMMANDS.into_iter().find(|name| name == word))?;
        let declared = Args::command();
        let (section, arg) = refused(&declared, name, error)?;
        let flag = format!("--{}", arg.get_long()?);
        let is_typed = |word: &String| *word == flag || word.starts_with(&format!("{flag}="));
        (!words.iter().any(is_typed)).then(|| self.value_fault(section, arg, &what(error)).message)
    }

    fn value_fault(&self, section: &str, arg: &Arg, why: &str) -> Fault {
        let variable = arg.get_env().filter(|name| variable(name).is_some());
        if let Some(variable) = variable {
            let variable = variable.to_string_lossy().into_owned();
            let message = format!("{variable}: {why}");
            return Fault { variable: Some(variable), message, ..Fault::default() };
        }
        let key = arg.get_id().to_string();
        let message = format!("{}: {section}.{key}: {why}", self.named());
        Fault { section: Some(section.to_owned()), key: Some(key), variable: None, message }
    }
}

/// What does not belong together or excludes each other, and what means nothing.
pub(super) fn checked(name: &str, matches: &clap::ArgMatches) -> Vec<anyhow::Error> {
    let faults = match name {
        "dev" => DevArgs::from_arg_matches(matches).map(|args| args.faults()),
        "node" => NodeArgs::from_arg_matches(matches).map(|args| args.faults()),
        _ => GatewayArgs::from_arg_matches(matches).map(|args| args.faults()),
    };
    faults.unwrap_or_else(|error| vec![error.into()])
}

/// What the parser says, without how to type it: what is wrong may stand in a file.
pub(super) fn what(error: &clap::Error) -> String {
    let text = error.to_string();
    text.split("\n\n").next().unwrap_or_default().trim_start_matches("error: ").to_owned()
}

/// The argument whose value was refused, and its section.
fn refused<'a>(declared: &'a Command, name: &'a str, error: &clap::Error) -> Option<(&'a str, &'a Arg)> {
    if !matches!(error.kind(), ErrorKind::InvalidValue | ErrorKind::ValueValidation) {
        return None;
    }
    let Some(ContextValue::String(shown)) = error.get(ContextKind::InvalidArg) else { return None };
    let long = shown.split([' ', '=']).next()?.strip_prefix("--")?;
    let is_meant = |arg: &&Arg| arg.get_long() == Some(long);
    let own = declared.find_subcommand(name)?.get_arguments().find(is_meant).map(|arg| (name, arg));
    own.or_else(|| declared.get_arguments().find(is_meant).map(|arg| (CLIENT, arg)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_misspelt_is_recognised_and_nothing_else() {
        let known = ["WEIR_LISTEN", "WEIR_NODE_LISTEN", "WEIR_JOURNAL_MAX", "WEIR_JOURNAL_FILE", "WEIR_URL"];
        for (name, found) in [
            ("WEIR_LISTN", Some("WEIR_LISTEN")),
            ("WEIR_JOURNALMAX", Some("WEIR_JOURNAL_MAX")),
            ("WEIR_JOURNAL-MAX", Some("WEIR_JOURNAL_MAX")),
            ("WEIR_listen", Some("WEIR_LISTEN")),
            ("WEIR_PORT_8080_TCP", None),
            ("WEIR_", None),
        ] {
            assert_eq!(nearest(name, known.into_iter()), found, "{name}");
        }
    }
}
