import type { Stage } from './serverTiming';

/** Milliseconds as the gateway wrote them, at least two decimals. */
const ms = (value: number) => (value >= 100 ? value.toFixed(0) : value.toFixed(2));

/** Where the time of a confirm went: one bar in the order of the stages, and the figures below it. */
export function StageStrip({ stages, total }: { stages: readonly Stage[]; total: number | null }) {
  if (stages.length === 0) return <p className="note">The gateway sent no stage times for this confirm.</p>;
  const sum = stages.reduce((all, { dur }) => all + dur, 0) || 1;
  return (
    <div className="stages">
      <div className="strip" aria-hidden="true">
        {stages.map(({ name, dur }) => (
          <span key={name} data-stage={name} style={{ flexGrow: dur / sum, minWidth: dur > 0 ? 2 : 0 }} />
        ))}
      </div>
      <table className="stage-table">
        <caption className="visually-hidden">Stages of the confirm, in milliseconds</caption>
        <tbody>
          {stages.map(({ name, label, about, dur }) => (
            <tr key={name}>
              <th scope="row">
                <span className="swatch" data-stage={name} />
                {label}
              </th>
              <td className="stage-about">{about}</td>
              <td className="numeric">{ms(dur)} ms</td>
              <td className="numeric faint">{((dur / sum) * 100).toFixed(0)} %</td>
            </tr>
          ))}
          {total !== null && (
            <tr className="stage-total">
              <th scope="row">Total</th>
              <td className="stage-about">inside Weir, measured by the gateway</td>
              <td className="numeric">{ms(total)} ms</td>
              <td />
            </tr>
          )}
        </tbody>
      </table>
    </div>
  );
}
