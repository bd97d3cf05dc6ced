//! `weir bench table`: result files as Markdown, one table per workload, the median of runs with their spread.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context as _;

use super::result::{Percentiles, RunResult, shown};
use crate::args::TableArgs;
use crate::output;

/// Prints the tables.
pub(super) fn run(args: &TableArgs) -> anyhow::Result<()> {
    let mut results = Vec::new();
    for file in &args.files {
        results.extend(read(file)?);
    }
    anyhow::ensure!(!results.is_empty(), "there are no results in these files");
    output::line(tables(&results, &args.only).trim_end());
    Ok(())
}

/// The results of a file, a line each.
pub(super) fn read(file: &Path) -> anyhow::Result<Vec<RunResult>> {
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(number, line)| {
            serde_json::from_str(line)
                .with_context(|| format!("{}:{}: not a result", file.display(), number + 1))
        })
        .collect()
}

/// All tables, in the order of the first result of each workload.
fn tables(results: &[RunResult], only: &[String]) -> String {
    let mut workloads: Vec<&str> = Vec::new();
    for result in results {
        if !workloads.contains(&result.workload.as_str()) {
            workloads.push(&result.workload);
        }
    }
    let mut text = String::new();
    for workload in workloads {
        let of: Vec<&RunResult> = results.iter().filter(|result| result.workload == workload).collect();
        text.push_str(&table(workload, &of, only));
        text.push('\n');
    }
    text
}

fn table(workload: &str, results: &[&RunResult], only: &[String]) -> String {
    let mut cases: Vec<&str> = Vec::new();
    for result in results {
        if !cases.contains(&result.case.as_str()) {
            cases.push(&result.case);
        }
    }
    let columns = columns(results, only);
    let headings: Vec<&str> = columns.iter().map(|(heading, _)| heading.as_str()).collect();
    let mut text = format!("### {workload}\n\n| case | runs | {} |\n|---|--:|", headings.join(" | "));
    text.push_str(&"--:|".repeat(columns.len()));
    text.push('\n');
    for case in &cases {
        let runs: Vec<&RunResult> = results.iter().filter(|result| result.case == *case).copied().collect();
        let good: Vec<&RunResult> = runs.iter().filter(|run| run.void.is_empty()).copied().collect();
        let count = if good.len() == runs.len() {
            runs.len().to_string()
        } else {
            format!("{} of {} (the others void)", good.len(), runs.len())
        };
        let cells: Vec<String> = columns.iter().map(|(_, values)| spread(&values(&good))).collect();
        text.push_str(&format!("| {case} | {count} | {} |\n", cells.join(" | ")));
    }
    text.push_str(&notes(results));
    text
}

type Column<'a> = (String, Box<dyn Fn(&[&RunResult]) -> Vec<Vec<f64>> + 'a>);

/// What any run has: latencies as p50 / p99 / p99.9, then figures.
fn columns<'a>(results: &[&'a RunResult], only: &'a [String]) -> Vec<Column<'a>> {
    let mut latencies: Vec<&str> = Vec::new();
    let mut figures: Vec<&str> = Vec::new();
    for result in results {
        for Percentiles { name, count, .. } in &result.latencies {
            if *count > 0 && !latencies.contains(&name.as_str()) {
                latencies.push(name);
            }
        }
        for figure in &result.figures {
            if !figures.contains(&figure.name.as_str()) {
                figures.push(&figure.name);
            }
        }
    }
    let wanted = |found: Vec<&'a str>| -> Vec<&'a str> {
        if only.is_empty() {
            return found;
        }
        only.iter().map(String::as_str).filter(|name| found.contains(name)).collect()
    };
    let latency = |name: &'a str| -> Column<'a> {
        let values = move |runs: &[&RunResult]| {
            let of = runs.iter().filter_map(|run| run.latencies.iter().find(|it| it.name == name));
            let found: Vec<&Percentiles> = of.collect();
            [|it: &Percentiles| it.p50_us, |it: &Percentiles| it.p99_us, |it: &Percentiles| it.p999_us]
                .iter()
                .map(|get| found.iter().map(|it| as_float(get(it))).collect())
                .collect()
        };
        (format!("{name} p50 / p99 / p99.9 us"), Box::new(values))
    };
    let figure = |name: &'a str| -> Column<'a> {
        let values =
            move |runs: &[&RunResult]| vec![runs.iter().filter_map(|run| run.figure(name)).collect()];
        (name.replace('_', " "), Box::new(values))
    };
    wanted(latencies).into_iter().map(latency).chain(wanted(figures).into_iter().map(figure)).collect()
}

#[expect(clippy::cast_precision_loss, reason = "microseconds below a minute")]
fn as_float(us: u64) -> f64 {
    us as f64
}

/// Medians, with lowest and highest where there is more than one run.
fn spread(parts: &[Vec<f64>]) -> String {
    let parts = parts.iter().map(|values| {
        let mut values = values.clone();
        values.sort_by(f64::total_cmp);
        match &values[..] {
            [] => "–".to_owned(),
            [one] => shown(*one),
            [low, .., high] => {
                let (low, high) = (shown(*low), shown(*high));
                format!("{} ({low}–{high})", shown(median(&values)))
            }
        }
    });
    parts.collect::<Vec<_>>().join(" / ")
}

/// Of sorted values; of an even number the lower middle.
pub(super) fn median(sorted: &[f64]) -> f64 {
    sorted.get(sorted.len().saturating_sub(1) / 2).copied().unwrap_or(0.0)
}

/// Commands, remarks and why runs are void, each once.
fn notes(results: &[&RunResult]) -> String {
    let mut counted: BTreeMap<String, usize> = BTreeMap::new();
    let mut commands: Vec<&str> = Vec::new();
    for result in results {
        if !commands.contains(&result.command.as_str()) {
            commands.push(&result.command);
        }
        for reason in &result.void {
            *counted.entry(format!("void ({}): {reason}", result.case)).or_default() += 1;
        }
        for remark in &result.remarks {
            *counted.entry(format!("{}: {remark}", result.case)).or_default() += 1;
        }
    }
    let mut text = String::from("\n");
    for command in commands.iter().filter(|command| !command.is_empty()) {
        text.push_str(&format!("`{command}`\n"));
    }
    for (note, times) in counted {
        let times = if times > 1 { format!(" ({times} times)") } else { String::new() };
        text.push_str(&format!("- {note}{times}\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::check::Faults;
    use crate::bench::result::Figure;

    fn result(case: &str, per_s: f64) -> RunResult {
        let mut result = RunResult::new("steady", case.to_owned());
        result.command = "weir bench steady".to_owned();
        result.figures = vec![Figure::new("confirmed_per_s", per_s)];
        let confirm = Percentiles {
            name: "confirm".to_owned(),
            count: 1,
            p50_us: 9,
            p99_us: 20,
            ..Percentiles::default()
        };
        result.latencies = vec![confirm];
        result
    }

    #[test]
    fn runs_of_a_case_are_one_row_with_their_spread() {
        let text =
            tables(&[result("a", 100.0), result("a", 300.0), result("a", 200.0), result("b", 5.0)], &[]);
        assert!(
            text.contains(
                "| a | 3 | 9.00 (9.00–9.00) / 20.0 (20.0–20.0) / 0.00 (0.00–0.00) | 200 (100–300) |"
            ),
            "{text}"
        );
        assert!(text.contains("| b | 1 | 9.00 / 20.0 / 0.00 | 5.00 |"), "{text}");
        assert_eq!(text.matches("`weir bench steady`").count(), 1, "{text}");
    }

    #[test]
    fn a_void_run_is_shown_and_its_figures_are_not() {
        let mut lost = result("a", 900.0);
        lost.identify(3, 3, 2, Faults { missing: 1, ..Faults::default() });
        let text = tables(&[result("a", 100.0), lost], &["confirmed_per_s".to_owned()]);
        assert!(text.contains("| a | 1 of 2 (the others void) | 100 |"), "{text}");
        assert!(text.contains("- void (a): 1 messages lost") && !text.contains("900"), "{text}");
    }

    #[test]
    fn a_file_that_holds_something_else_is_refused_with_its_line() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("r.json");
        std::fs::write(&file, format!("{}\n{{}}\n", serde_json::to_string(&result("a", 1.0)).unwrap()))
            .unwrap();
        let error = format!("{:#}", read(&file).unwrap_err());
        assert!(error.contains("r.json:2"), "{error}");
    }
}
