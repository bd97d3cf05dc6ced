use super::*;

fn file(text: &str) -> (tempfile::TempDir, FileConfig) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("w.toml");
    std::fs::write(&path, text).unwrap();
    let read = FileConfig::read(&path);
    (dir, read)
}

#[test]
fn flags_win_over_the_file_and_the_file_over_defaults() {
    let (_dir, read) = file("[client]\nns = \"shop\"\n[dev]\ndata_shards = 7\ninsecure_public = true\n");
    let command = read.command().unwrap();
    let matches = command.clone().try_get_matches_from(["weir", "dev"]).unwrap();
    let dev = matches.subcommand_matches("dev").unwrap();
    assert_eq!(dev.get_one::<u32>("data_shards"), Some(&7));
    assert!(dev.get_flag("insecure_public"));
    assert_eq!(dev.get_one::<String>("ns").map(String::as_str), Some("shop"));
    let flags = command.try_get_matches_from(["weir", "dev", "--data-shards", "9"]).unwrap();
    assert_eq!(flags.subcommand_matches("dev").unwrap().get_one::<u32>("data_shards"), Some(&9));
}

#[test]
fn a_price_is_a_number() {
    let (_dir, read) = file(
        "[dev]\nprice_stored_gib_month = 0.023\nprice_thousand_puts = 2\nprice_thousand_gets = \"0.5\"\n",
    );
    let matches = read.command().unwrap().try_get_matches_from(["weir", "dev"]).unwrap();
    let dev = matches.subcommand_matches("dev").unwrap();
    let names = ["price_stored_gib_month", "price_thousand_puts", "price_thousand_gets"];
    assert_eq!(names.map(|name| dev.get_one::<f64>(name).copied()), [Some(0.023), Some(2.0), Some(0.5)]);
}

#[test]
fn what_cannot_be_set_is_named() {
    for (text, expected) in [
        ("[dev]\nlissten = \"x\"", "dev.lissten is unknown"),
        ("[server]\nlisten = \"x\"", "server.listen is unknown; the sections are client, dev, node, gateway"),
        ("[gatway]\nlisten = \"x\"", "gatway.listen is unknown; did you mean [gateway]?"),
        ("[gatway]", "[gatway] is no section; did you mean [gateway]?"),
        ("[dev]\nready_file = \"x\"", "dev.ready_file is unknown"),
        ("listen = \"x\"", "listen stands outside"),
        ("[dev]\nlisten = 1.5", "1.5"),
        ("[dev]\ndata_shards = 3.0", "3.0"),
        ("[dev]\nprice_stored_gib_month = inf", "dev.price_stored_gib_month is not a text, number"),
        ("[dev]\nprice_stored_gib_month = -0.5", "a price is not negative"),
        ("[dev]\nlisten = 2026-01-31", "dev.listen is not a text"),
        ("[dev]\nlisten = [\"127.0.0.1:1\"]", "dev.listen takes one value"),
        ("[dev]\nhost_name = [[]]", "dev.host_name is not a text"),
        ("[client]\nns = [\"a\"]", "client.ns takes one value"),
        ("[dev", "is not TOML"),
        ("[dev]\nlisten = \"nowhere\"", "'nowhere' for '--listen <ADDR>': expected an IP address and a port"),
        ("[gateway]\nnode = \"10.0.0.1\"", "'10.0.0.1' for '--node <ADDR>': expected a host and a port"),
        ("[gateway]\nnode = \"::1\"", "expected a host and a port"),
        ("[gateway]\nnode = \"n:70700\"", "expected a host and a port"),
        ("[dev]\ndata_shards = 999", "999"),
        ("[dev]\ntls_cert = \"c.pem\"", "belong together"),
        ("[gateway]\ntls_key = \"c.pem\"", "belong together"),
        ("[dev]\njournal_max = \"100MiB\"\njournal_file = \"64MiB\"", "at least two journal files"),
        ("[dev]\nrecord_max = \"4MiB\"", "'4MiB' for '--record-max <SIZE>': 1B to 3MiB are allowed"),
        ("[dev]\nsync = \"never\"", "never"),
        ("[gateway]\ndata_dir = \"x\"", "gateway.data_dir is unknown"),
        ("[node]\nlisten = \"10.0.0.1:7070\"", "--cluster-secret"),
        ("[node]\nlisten = \"0.0.0.0:7070\"\ncluster_secret = \"s\"", "name one that they can reach"),
    ] {
        let (_dir, read) = file(text);
        let error = read.settings().map(|_| ()).unwrap_err();
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
        "[client]\nca_cert = 'C:\\a \"b\" # c'\n[dev]\ndata_dir = \"it's # b\"\nhost_name = [\"a.example\", \"b\"]\n",
        "[dev]\nallow_origin = \"https://one.example\"\njournal_max = \"1GiB\"\n",
        "[dev]\nprice_stored_gib_month = 0.023\nprice_thousand_puts = 1\nprice_thousand_gets = 1e-7\n",
        "[node]\nlisten = \"10.0.0.1:7070\"\ncluster_secret = \"/s\"\n[gateway]\nnode = \"10.0.0.1:7070\"\n",
    ] {
        let (_dir, read) = file(text);
        let printed = printed(&read.settings().unwrap());
        let (_dir, again) = file(&printed);
        assert_eq!(known(&again), known(&read), "{text}\nis printed\n{printed}");
    }
}

#[test]
fn what_can_be_repeated_is_a_list() {
    let (_dir, read) = file("[dev]\nhost_name = [\"a.example\", \"b.example\"]\n");
    let command = read.command().unwrap();
    let names = |matches: ArgMatches| -> Vec<String> {
        let dev = matches.subcommand_matches("dev").unwrap();
        dev.get_many("host_name").unwrap().cloned().collect()
    };
    let matches = command.clone().try_get_matches_from(["weir", "dev"]).unwrap();
    assert_eq!(names(matches), ["a.example", "b.example"]);
    let flags = command.try_get_matches_from(["weir", "dev", "--host-name", "c.example"]).unwrap();
    assert_eq!(names(flags), ["c.example"], "flags win, they do not add");
}

/// Arguments whose value is a text of a form that their meaning names.
const TEXTS: [&str; 8] = ["DIR", "FILE", "ADDR", "HOST:PORT", "URL", "NAME", "ORIGIN", "PATH"];

fn all() -> Vec<(&'static str, Arg)> {
    let command = Args::command();
    let is_setting = |arg: &&Arg| !NOT_SETTINGS.contains(&arg.get_id().as_str());
    let mut all: Vec<_> =
        command.get_arguments().filter(is_setting).map(|arg| (CLIENT, arg.clone())).collect();
    for name in COMMANDS {
        let own = command.find_subcommand(name).unwrap().get_arguments().filter(is_setting);
        all.extend(own.map(|arg| (name, arg.clone())));
    }
    assert!(all.len() > 60, "{} settings: the walk misses some", all.len());
    all
}

/// `LO to HI` of `[range: LO to HI unit]`.
fn range_in(manual: &str) -> Option<(&str, &str, &str)> {
    let (_, range) = manual.split_once("[range: ")?;
    let (range, _) = range.split_once(']')?;
    let (low, rest) = range.split_once(" to ")?;
    let (high, unit) = rest.find([' ', ',']).map_or((rest, ""), |at| rest.split_at(at));
    Some((low, high, unit.trim_start_matches([' ', ','])))
}

#[test]
fn every_setting_says_its_meaning_unit_range_and_default_and_has_a_variable() {
    for (section, arg) in all() {
        let (key, manual) = (arg.get_id(), arg.get_help().map(ToString::to_string).unwrap_or_default());
        let place = format!("{section}.{key}: {manual}");
        assert!(manual.len() > 10, "{place}: no meaning");
        let env = arg.get_env().map(|env| env.to_string_lossy().into_owned());
        assert!(env.is_some_and(|env| env.starts_with("WEIR_")), "{place}: no variable");
        let has_default = !arg.get_default_values().is_empty() || manual.contains("[default: ");
        assert!(has_default, "{place}: no default");
        if matches!(arg.get_action(), ArgAction::SetTrue) {
            continue;
        }
        let name = arg.get_value_names().unwrap_or_default().first().map(ToString::to_string);
        let name = name.unwrap_or_default();
        let has_range = match name.as_str() {
            "SIZE" => {
                range_in(&manual).is_some_and(|(low, high, _)| low.ends_with('B') && high.ends_with('B'))
            }
            "N" | "US" | "MS" => range_in(&manual).is_some_and(|(.., unit)| !unit.is_empty()),
            "PRICE" => manual.contains("0 or more"),
            _ => !arg.get_possible_values().is_empty() || TEXTS.contains(&name.as_str()),
        };
        assert!(has_range, "{place}: no range with its unit");
    }
}

#[test]
fn the_range_that_a_setting_names_is_the_one_that_is_checked() {
    let bound = |text: &str| match crate::limit::parse_size(text).unwrap() {
        crate::limit::Limit::At(number) => number,
        crate::limit::Limit::Unlimited => panic!("{text} is no bound"),
    };
    let mut checked = 0;
    for (section, arg) in all() {
        let manual = arg.get_help().map(ToString::to_string).unwrap_or_default();
        let Some((low, high, _)) = range_in(&manual) else { continue };
        let (low, high) = (bound(low), bound(high));
        let outcome = |number: u64| {
            // Two of the smallest files fit the smallest journal.
            let small = if arg.get_id() == "journal_max" { "journal_file = \"16MiB\"\n" } else { "" };
            let (_dir, read) = file(&format!("[{section}]\n{small}{} = {number}\n", arg.get_id()));
            read.settings().map(drop).map_err(|error| format!("{error:#}"))
        };
        for inside in [low, high] {
            assert_eq!(outcome(inside), Ok(()), "{section}.{} = {inside}", arg.get_id());
        }
        for outside in low.checked_sub(1).into_iter().chain([high + 1]) {
            let refused = outcome(outside).expect_err(&format!("{section}.{} = {outside}", arg.get_id()));
            let flag = format!("--{}", arg.get_long().unwrap());
            assert!(refused.contains(&flag) && refused.contains(&outside.to_string()), "{refused}");
        }
        checked += 1;
    }
    assert!(checked >= 22, "{checked} ranges");
}

#[test]
fn a_command_is_printed_as_it_would_run() {
    let (_dir, read) = file("[dev]\ndata_shards = 3\ncheckpoint = \"1MiB\"\n");
    let line = ["dev", "--data-shards", "5", "--host-name", "a,b", "--ns", "shop"].map(str::to_owned);
    let settings = read.settings_of(&line).unwrap();
    assert!(settings.iter().all(|setting| [CLIENT, "dev"].contains(&setting.section)));
    let found = |key: &str| {
        let setting = settings.iter().find(|setting| setting.key == key).unwrap();
        (setting.value.clone().unwrap(), setting.source)
    };
    assert_eq!(found("data_shards"), (Typed::One("5".into()), "flag"));
    assert_eq!(found("checkpoint"), (Typed::One("1MiB".into()), "file"));
    assert_eq!(found("tail_ring"), (Typed::One("64MiB".into()), "default"));
    assert_eq!(found("ns"), (Typed::One("shop".into()), "flag"));
    assert_eq!(found("host_name"), (Typed::List(vec!["a".into(), "b".into()]), "flag"));
    for line in [&["topic"][..], &["dev", "--data-shards", "0"], &["dev", "--lissten", "x"], &[]] {
        let line: Vec<_> = line.iter().map(|word| (*word).to_owned()).collect();
        assert!(FileConfig::default().settings_of(&line).is_err(), "{line:?}");
    }
}
