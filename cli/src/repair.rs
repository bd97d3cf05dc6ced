//! `weir repair`: what is damaged in the journal of a node that does not run, and cutting it off.

use std::sync::Arc;

use weir_journal::{Disk, RealDisk};
use weir_storage_node::{NodeRepair, ShardLoss};

use crate::args::RepairArgs;
use crate::output;

/// Without damage, or once it is cut off, the command succeeds; with damage that stays it fails.
pub(crate) fn run(args: &RepairArgs) -> anyhow::Result<()> {
    let (dir, disk) = (&args.data_dir, Arc::new(RealDisk) as Arc<dyn Disk>);
    let Some(repair) = NodeRepair::look(dir, &disk)? else {
        output::line(format_args!("{}: the journal is whole", dir.display()));
        return Ok(());
    };
    let lost = if args.truncate { "lost" } else { "cutting it off here would lose" };
    say(&repair, lost);
    repair.check()?;
    if !args.truncate {
        anyhow::bail!(
            "nothing was changed. Restore the directory from a copy if there is one; \
             `weir repair --data-dir {} --truncate` cuts, and keeps what it cuts in .damaged files",
            dir.display()
        );
    }
    for copy in repair.truncate()? {
        output::line(format_args!("kept {}", copy.display()));
    }
    Ok(())
}

fn say(repair: &NodeRepair, lost: &str) {
    let cut = repair.cut();
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
