//! `weir repair`: what is damaged in the journal of a node that does not run, and cutting it off.

use std::sync::Arc;

use serde_json::{Value, json};
use weir_journal::{Disk, RealDisk};
use weir_storage_node::{NodeRepair, RepairError, ShardLoss};

use crate::args::RepairArgs;
use crate::output;

const UNFINISHED: &str =
    "the damage was cut off by a repair that was interrupted: shards are not at their checkpoints yet";

/// Without damage, or once it is cut off, the command succeeds; with damage that stays it fails.
pub(crate) fn run(args: &RepairArgs, as_json: bool) -> anyhow::Result<()> {
    let (dir, disk) = (&args.data_dir, Arc::new(RealDisk) as Arc<dyn Disk>);
    anyhow::ensure!(
        dir.exists(),
        "{} does not exist; --data-dir names the directory that the node was given",
        dir.display()
    );
    let Some(repair) = NodeRepair::look(dir, &disk)? else {
        if as_json {
            output::line(json!({"data_dir": dir, "whole": true}));
        } else {
            output::line(format_args!("{}: the journal is whole", dir.display()));
        }
        return Ok(());
    };
    let can_cut = repair.check();
    let mut said = as_json.then(|| told(&repair, args, can_cut.as_ref().err()));
    if said.is_none() {
        say(&repair, if args.truncate { "lost" } else { "cutting it off here would lose" });
    }
    if let (Some(said), true) = (&said, can_cut.is_err() || !args.truncate) {
        output::line(said);
    }
    can_cut?;
    if !args.truncate && repair.cut().is_none() {
        anyhow::bail!(
            "nothing was changed. `weir repair --data-dir {} --truncate` finishes it",
            output::word(&dir.to_string_lossy())
        );
    }
    if !args.truncate {
        anyhow::bail!(
            "nothing was changed. Restore the directory from a copy if there is one; \
             `weir repair --data-dir {} --truncate` cuts, and keeps what it cuts in .damaged files",
            output::word(&dir.to_string_lossy())
        );
    }
    let kept = repair.truncate()?;
    match &mut said {
        Some(said) => {
            said["truncated"] = json!(true);
            said["kept"] = json!(kept);
            output::line(said);
        }
        None => kept.iter().for_each(|copy| output::line(format_args!("kept {}", copy.display()))),
    }
    Ok(())
}

/// The damage as JSON: one object, however it ends.
fn told(repair: &NodeRepair, args: &RepairArgs, hopeless: Option<&RepairError>) -> Value {
    let cut = repair.cut();
    let losses = repair.losses().iter().map(|ShardLoss { shard, entries, covered }| {
        json!({"shard": shard.0, "from": entries.start, "to": entries.end, "covered": covered})
    });
    json!({
        "data_dir": args.data_dir,
        "whole": false,
        "file": cut.map(|cut| &cut.path),
        "byte": cut.map(|cut| cut.pos),
        "what": cut.map_or(UNFINISHED, |cut| &cut.what),
        "bytes": cut.map_or(0, |cut| cut.bytes),
        "later_files": cut.map_or(0, |cut| cut.later.len()),
        "losses": losses.collect::<Vec<_>>(),
        "can_truncate": hopeless.is_none(),
        "why_not": hopeless.map(ToString::to_string),
        "truncated": false,
        "kept": [],
    })
}

fn say(repair: &NodeRepair, lost: &str) {
    let Some(cut) = repair.cut() else { return output::line(UNFINISHED) };
    output::line(format_args!("{} is damaged from byte {} on: {}", cut.path.display(), cut.pos, cut.what));
    output::line(format_args!(
        "{lost}: {} there and in {} files behind it",
        output::bytes(cut.bytes),
        cut.later.len()
    ));
    for ShardLoss { shard, entries, covered } in repair.losses() {
        let count = entries.end - entries.start;
        let gone = count - covered;
        output::line(format_args!(
            "{lost}: {count} entries of shard {shard}, {} to {}: {covered} were applied before the last checkpoint, their \
             messages keep their offsets and read as `corrupt`; {gone} are gone as if they had never been",
            entries.start,
            entries.end - 1,
        ));
    }
}
