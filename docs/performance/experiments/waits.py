#!/usr/bin/env python3
"""Who waits for a processor, for how long, and who has it meanwhile: from a trace of the kernel.

As root, while something runs:
    cd /sys/kernel/tracing && echo mono > trace_clock && echo 60000 > buffer_size_kb
    for event in sched/sched_wakeup sched/sched_switch; do echo 1 > events/$event/enable; done
    echo 1 > tracing_on; sleep 2; echo 0 > tracing_on; cat trace > /tmp/trace; echo 0 > events/enable
    python3 waits.py /tmp/trace
"""

import collections
import re
import sys

LINE = re.compile(r"\s*(.+?)-(\d+)\s+\[(\d+)\]\s+\S+\s+([\d.]+): (\w+): (.*)")
WAKEUP = re.compile(r"comm=(.+?) pid=(\d+)")
SWITCH = re.compile(
    r"prev_comm=(.+?) prev_pid=(\d+) prev_prio=\d+ prev_state=(\S+) ==> next_comm=(.+?) next_pid=(\d+)"
)
LONG_US = 1_000
SHOWN = 10


def read(path):
    """Times on a processor as (from, to, thread) of each, and waits as (microseconds, until, processor) of each thread."""
    ready, since = {}, {}
    ran, waits = collections.defaultdict(list), collections.defaultdict(list)
    for line in open(path, encoding="utf-8", errors="replace"):
        found = LINE.match(line)
        if not found:
            continue
        now, processor = float(found[4]) * 1e6, int(found[3])
        if found[5] == "sched_wakeup" and (woken := WAKEUP.match(found[6])):
            ready.setdefault(int(woken[2]), now)
        elif found[5] == "sched_switch" and (switch := SWITCH.match(found[6])):
            before, after = int(switch[2]), int(switch[5])
            if processor in since:
                ran[processor].append((since[processor], now, (switch[1], before)))
            since[processor] = now
            # Who was put aside waits from now on; who sleeps does not.
            if switch[3].startswith("R") and before:
                ready.setdefault(before, now)
            else:
                ready.pop(before, None)
            if after in ready:
                waits[switch[4], after].append((now - ready.pop(after), now, processor))
    return ran, waits


def main():
    for path in sys.argv[1:]:
        ran, waits = read(path)
        spans = [span for spans in ran.values() for span in spans]
        seconds = (max(span[1] for span in spans) - min(span[0] for span in spans)) / 1e6
        busy, holders = collections.Counter(), collections.Counter()
        for begin, end, (name, _) in spans:
            busy[name] += end - begin
        print(f"{path}: {seconds:.1f} s; percent of a processor:")
        for name, time in busy.most_common(SHOWN):
            print(f"  {name:20} {time / seconds / 1e4:6.1f}")
        print("waited for a processor: how often, p99 and longest us, how often more than a ms")
        for (name, thread), times in sorted(waits.items(), key=lambda it: -sum(w[0] for w in it[1]))[:SHOWN]:
            sizes = sorted(wait for wait, _, _ in times)
            over = sum(size > LONG_US for size in sizes)
            print(f"  {name:20} {thread:7} {len(sizes):7} {sizes[len(sizes) * 99 // 100]:7.0f} {sizes[-1]:7.0f} {over:5}")
            for wait, until, processor in times:
                if wait > LONG_US:
                    for begin, end, holder in ran[processor]:
                        holders[holder] += max(0, min(end, until) - max(begin, until - wait))
        print("who had it in waits of more than a ms, ms")
        for (name, thread), time in holders.most_common(SHOWN):
            print(f"  {name:20} {thread:7} {time / 1e3:7.0f}")


if __name__ == "__main__":
    main()
