//! What is printed. Results go to standard output, everything else to standard error.

use std::io::{IsTerminal as _, Write as _};

/// Prints why a command failed, cause by cause.
pub(crate) fn failure(error: &anyhow::Error) {
    note(format_args!("error: {}", because(error)));
}

/// An error and its causes. Many errors end with their cause already: that is not said again.
pub(crate) fn because(error: &anyhow::Error) -> String {
    let mut causes = error.chain().map(ToString::to_string);
    let first = causes.next().unwrap_or_default();
    causes.fold(first, |text, cause| if text.ends_with(&cause) { text } else { format!("{text}: {cause}") })
}

/// Prints a line of results.
pub(crate) fn line(text: impl std::fmt::Display) {
    let mut out = std::io::stdout().lock();
    if let Err(error) = writeln!(out, "{text}") {
        cannot_write(&error);
    }
}

/// Ends the command: quietly if the reader went away (`| head`), with an error if what was printed is not whole.
pub(crate) fn cannot_write(error: &std::io::Error) -> ! {
    if error.kind() == std::io::ErrorKind::BrokenPipe {
        std::process::exit(0);
    }
    note(format_args!("error: cannot write to standard output: {error}"));
    std::process::exit(1)
}

/// Prints a remark that is not a result. That nobody reads it any more ends nothing: a server goes on, and a
/// command's results count.
pub(crate) fn note(text: impl std::fmt::Display) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

/// Prints a remark that somebody should act on.
pub(crate) fn warning(text: impl std::fmt::Display) {
    note(format_args!("warning: {text}"));
}

/// What somebody else has chosen, say the name of a consumer, as it may stand in a line: what would move the cursor or
/// command the terminal is escaped.
pub(crate) fn inert(text: &str) -> String {
    let escaped = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(escaped).collect()
}

/// Prints rows below their headings, columns aligned; the last column is not padded.
pub(crate) fn table(headings: &[&str], rows: &[Vec<String>]) {
    let rows: Vec<Vec<String>> =
        rows.iter().map(|row| row.iter().map(|cell| inert(cell)).collect()).collect();
    let widths: Vec<usize> = (0..headings.len())
        .map(|column| {
            let cells = rows.iter().map(|row| row[column].chars().count());
            cells.chain([headings[column].len()]).max().unwrap_or(0)
        })
        .collect();
    let print = |cells: Vec<&str>| {
        let padded = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        line(padded.collect::<Vec<_>>().join("  ").trim_end());
    };
    print(headings.to_vec());
    for row in &rows {
        print(row.iter().map(String::as_str).collect());
    }
}

/// Text as a shell takes it for one word: as it is if that is safe, else in quotes. What is printed to be
/// pasted goes through this.
pub(crate) fn word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._~/:@%+=,".contains(c);
    // What begins so is somebody's home.
    if !text.is_empty() && text.chars().all(is_plain) && !text.starts_with('~') {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// Asks a yes/no question; no without a terminal to ask on.
pub(crate) fn confirmed(question: &str) -> bool {
    if !std::io::stdin().is_terminal() {
        return false;
    }
    let _ = write!(std::io::stderr().lock(), "{question} [y/N] ");
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer).is_ok() && matches!(answer.trim(), "y" | "Y" | "yes")
}

/// Bytes with a binary unit, e.g. `1.5 GiB`.
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
    let mut value = count as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{count} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

/// A sign of life on standard error while something takes long; nothing without a terminal.
pub(crate) fn spinner(message: &'static str) -> indicatif::ProgressBar {
    let bar = indicatif::ProgressBar::new_spinner().with_message(message);
    bar.enable_steady_tick(std::time::Duration::from_millis(200));
    bar
}

/// A bar on standard error for input of `bytes`; a count alone if that is unknown. Nothing without a terminal.
pub(crate) fn progress(bytes: Option<u64>) -> indicatif::ProgressBar {
    use indicatif::{ProgressBar, ProgressStyle};
    let (bar, template) = match bytes {
        Some(bytes) => {
            (ProgressBar::new(bytes), "{bar:30} {bytes}/{total_bytes} {bytes_per_sec} {msg} eta {eta}")
        }
        None => (ProgressBar::new_spinner(), "{spinner} {msg}"),
    };
    bar.with_style(ProgressStyle::with_template(template).expect("the template is a constant"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_somebody_else_has_chosen_does_nothing_to_the_terminal() {
        assert_eq!(inert("w-1 \u{1b}[2J\u{7}\n\u{9b}é漢"), "w-1 \\u{1b}[2J\\u{7}\\n\\u{9b}é漢");
    }

    #[test]
    fn what_is_printed_to_be_pasted_is_one_word() {
        for (text, expected) in [
            ("/var/lib/weir-1.0/a_b", "/var/lib/weir-1.0/a_b"),
            ("s3://bucket/weir", "s3://bucket/weir"),
            ("/tmp/my data", "'/tmp/my data'"),
            ("it's $HOME", "'it'\\''s $HOME'"),
            ("~", "'~'"),
            ("", "''"),
        ] {
            assert_eq!(word(text), expected);
        }
    }
}
