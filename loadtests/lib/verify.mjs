// After a load test: what k6 cannot compare itself. Every confirmed message must have been read back; more may be there
// only if the outcome of some was unknown.
//   node loadtests/lib/verify.mjs SUMMARY.json
import { readFileSync } from "node:fs";

const { metrics } = JSON.parse(readFileSync(process.argv[2], "utf8"));
const count = (name) => metrics[name]?.count ?? 0;
if (metrics.weir_read_back) {
  const [confirmed, read, unknown] = ["weir_confirmed", "weir_read_back", "weir_outcome_unknown"].map(count);
  console.log(`read back: ${confirmed} confirmed, ${read} in the topic, of ${unknown} the outcome is unknown`);
  if (read < confirmed || read > confirmed + unknown) {
    console.error("error: what was confirmed and what is there differ");
    process.exit(1);
  }
}
