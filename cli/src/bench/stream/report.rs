//! What a run with everybody at once came to.

use super::shape::{Consumption, Shape};
use super::{Shared, mebibytes};
use crate::bench::meter::Used;
use crate::bench::result::{Figure, Percentiles, RunResult};
use crate::bench::tally::Tally;

/// The result of a run with everybody at once, whose readers went on for `drained_s` when all was confirmed.
#[expect(clippy::cast_precision_loss, reason = "figures are shown to three digits")]
pub(super) fn report(shared: &Shared, tally: &mut Tally, used: &Used, drained_s: f64) -> RunResult {
    let shape = &shared.shape;
    let seconds = if shape.messages.is_some() { used.seconds } else { shape.measured.as_secs_f64() };
    let is_queue = matches!(shape.consumption, Consumption::Queue { .. });
    // Unconfirmed publishes are counted where they arrive.
    let messages =
        if shape.confirm.is_some() { tally.confirmed_in_window } else { tally.delivered_in_window };
    let messages =
        messages.checked_div(if shape.confirm.is_some() { 1 } else { per_message(shape) }).unwrap_or(0);
    // As much as came while the server's costs were counted: what is late is no faster for it.
    let delivered = tally.delivered_in_window;
    let delivering_s = if shape.messages.is_some() { seconds + drained_s } else { seconds };
    let mut result = RunResult::new(&shape.workload, shape.case.clone());
    result.seconds = seconds;
    result.latencies = vec![
        Percentiles::of("due to sent", &tally.late),
        Percentiles::of("generator late", &tally.generator),
        Percentiles::of("confirm", &tally.confirm),
        Percentiles::of("deliver", &tally.deliver),
        Percentiles::of("settle", &tally.settle),
    ];
    result.latencies.retain(|latency| latency.count > 0);
    let asked = shared.per_writer.map(|rate| rate * u64::from(shape.writers));
    // Whole messages per second of each writer: what was really asked for.
    result.figures.extend(asked.map(|asked| Figure::new("asked_per_s", asked as f64)));
    result.figures.push(Figure::new("confirmed_per_s", messages as f64 / seconds));
    result.figures.push(Figure::new("delivered_per_s", delivered as f64 / delivering_s));
    result
        .figures
        .push(Figure::new("published_mib_per_s", messages as f64 / seconds * mebibytes(shape.payload)));
    result.figures.push(Figure::new("batches_per_s", tally.batches as f64 / seconds));
    if let Some(server) = used.server.filter(|_| shape.readers > shape.topics && !is_queue) {
        let each = server.cpu_s * 1e6 / delivered.max(1) as f64;
        result.figures.push(Figure::new("server_cpu_us_per_delivery", each));
    }
    result.figures.extend(used.figures(messages, shape.payload));
    if is_queue {
        result.figures.push(Figure::new("nacked", tally.nacked as f64));
        result.figures.push(Figure::new("dead", tally.dead as f64));
        for (writer, settled) in &tally.settled {
            tally.faults.missing += settled.missing(shared.sent_by(*writer));
            tally.faults.duplicates += settled.duplicates();
        }
    }
    if shape.confirm.is_none() {
        result.figures.retain(|figure| figure.name != "confirmed_per_s");
        result
            .remarks
            .push("publishes were not confirmed: messages are counted where they arrive".to_owned());
    }
    result.identify(tally.sent, tally.confirmed, tally.delivered, tally.faults);
    result.judge_generator(&tally.generator);
    if shape.topics > shape.readers {
        let unread = shape.topics - shape.readers;
        result.remarks.push(format!("{unread} topics had no reader: that they can be read is not proven"));
    }
    result
}

/// Deliveries of each message.
fn per_message(shape: &Shape) -> u64 {
    match shape.consumption {
        Consumption::Queue { .. } => 1,
        _ => u64::from(((shape.readers - shape.frozen) / shape.topics).max(1)),
    }
}
