//! `weir pub`: one message, or a message per line, confirmed, and continued after an interruption.
//!
//! ```text
//!   source ── chunks of records ──▶ session ── batches within credit ──▶ gateway
//!                                     └ batches: none larger than was agreed
//!                                     ▲ what is not confirmed is sent again on the next connection
//!   identity   the producer, by which the gateway knows what it has
//! ```

mod batches;
mod identity;
mod session;
mod source;

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use serde::Serialize;

use self::identity::Identity;
use self::session::{Ended, Session};
use crate::args::{Connect, PubArgs};
use crate::client::{Api, Backoff, Stop, WireError, encoded};
use crate::output;

/// Without a confirm for this long, it gives up.
const STUCK_TIME_MAX: Duration = Duration::from_secs(60);

#[derive(Debug, Serialize)]
struct Summary<'a> {
    topic: &'a str,
    /// Messages that are confirmed, those of earlier runs included.
    confirmed: u64,
    /// Of these, messages that an earlier run had confirmed.
    skipped: u64,
    seconds: f64,
    producer: &'a str,
    epoch: u32,
}

/// Publishes until the input ends.
pub(crate) async fn run(connect: &Connect, args: &PubArgs) -> anyhow::Result<()> {
    // First: what cannot be read leaves no topic behind.
    let (input, bytes_total) = source::open(args)?;
    if args.create {
        create(connect, &args.topic).await?;
    }
    let identity = Identity::find(connect, args).await?;
    let progress = output::progress(bytes_total.filter(|_| args.lines && !connect.json));
    let started = Instant::now();
    let mut session = Session::new(connect, args, &identity, input, progress.clone());
    let (mut backoff, mut stop) = (Backoff::new(STUCK_TIME_MAX), Stop::catch()?);
    let ended = loop {
        let before = session.confirmed();
        let ended = tokio::select! {
            biased;
            () = stop.wanted() => Ok(Ended::Interrupted),
            ended = session.run() => ended,
        };
        match ended {
            Ok(ended) => break ended,
            Err(WireError::Final(why)) => {
                progress.finish_and_clear();
                bail!("{why}\n{}", left(&session, args, &identity));
            }
            Err(WireError::Lost(why)) => {
                if session.got_on(before) {
                    backoff.progressed();
                }
                if backoff.is_fresh() {
                    // Without a terminal there is no bar to print above.
                    progress.suspend(|| output::note(format_args!("{why}; trying again")));
                }
                let goes_on = tokio::select! {
                    biased;
                    () = stop.wanted() => break Ended::Interrupted,
                    goes_on = backoff.wait() => goes_on,
                };
                if !goes_on {
                    progress.finish_and_clear();
                    bail!("{why}\n{}", left(&session, args, &identity));
                }
            }
        }
    };
    progress.finish_and_clear();
    match ended {
        Ended::All => report(connect, args, &identity, &session, started.elapsed()),
        Ended::Interrupted => bail!("interrupted\n{}", left(&session, args, &identity)),
        Ended::Changed(line) => bail!(
            "line {line} of the input is another than the one that an earlier run published: it was changed up to there, and is \
             not gone on with; without --resume all of it is sent"
        ),
        Ended::Shorter(read) => bail!(
            "the input has {read} message(s), and the topic has {} of an earlier run: it is not what that run published, \
             and nothing was sent; without --resume all of it is",
            session.skipped()
        ),
    }
}

fn report(
    connect: &Connect,
    args: &PubArgs,
    identity: &Identity,
    session: &Session,
    took: Duration,
) -> anyhow::Result<()> {
    let (confirmed, skipped, seconds) = (session.confirmed(), session.skipped(), took.as_secs_f64());
    if connect.json {
        let summary = Summary {
            topic: &args.topic,
            confirmed,
            skipped,
            seconds,
            producer: &identity.id,
            epoch: identity.epoch,
        };
        output::line(serde_json::to_string(&summary)?);
        return Ok(());
    }
    let verb = if args.confirm.as_deref() == Some("none") { "sent" } else { "confirmed" };
    let before = if skipped > 0 { format!(", {skipped} of them by an earlier run") } else { String::new() };
    #[expect(clippy::cast_precision_loss, reason = "a rate is shown without fractions")]
    let rate = (confirmed - skipped) as f64 / seconds.max(1e-6);
    output::note(format_args!("{confirmed} {verb}{before}, {seconds:.1} s, {rate:.0}/s"));
    Ok(())
}

/// How far it came, and how to go on.
fn left(session: &Session, args: &PubArgs, identity: &Identity) -> String {
    let confirmed = session.confirmed();
    if identity.is_resumable && args.lines {
        format!(
            "{confirmed} messages are confirmed; the same command with --resume sends the rest, each once"
        )
    } else {
        format!("{confirmed} messages are confirmed")
    }
}

/// Makes the topic unless it exists, however it is configured.
async fn create(connect: &Connect, topic: &str) -> anyhow::Result<()> {
    let api = Api::new(connect)?;
    let path = api.path(&format!("topics/{}", encoded(topic)));
    if api.get(&path).await.is_ok() {
        return Ok(());
    }
    let made = api.send(http::Method::PUT, &path, http::HeaderMap::new(), "{}").await;
    made.map(|_| ()).with_context(|| format!("cannot create {topic}"))
}
