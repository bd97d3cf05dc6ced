import { bytes, counted, grouped } from '../format/number';
import { LIVE_STARTS, type LiveStart } from '../tail/start';
import { RING_ROWS, type Tail } from '../tail/useTail';
import { Choice } from '../ui/field';

interface LiveBarProps {
  readonly tail: Tail;
  readonly start: LiveStart;
  readonly filter: string;
  /** Messages that the filter hides. */
  readonly hidden: number;
  readonly onStart: (start: LiveStart) => void;
  readonly onFilter: (text: string) => void;
  readonly onResume: () => void;
  readonly onSkip: () => void;
}

/** What the tail is doing, and the credit that lets it: how much the gateway may still send before it must wait. */
export function LiveBar({ tail, start, filter, hidden, onStart, onFilter, ...on }: LiveBarProps) {
  const { status, held, paused } = tail;
  if (!status) return null;
  const { phase, credit, why } = status;
  const share = Math.min(credit.left.msgs / credit.window.msgs, credit.left.bytes / credit.window.bytes);
  const used = credit.left.msgs === 0 || credit.left.bytes === 0;
  const dropped = tail.rows.total - tail.rows.length;
  const word = paused && phase === 'live' ? 'Paused' : WORDS[phase];
  return (
    <div className="live" data-phase={paused ? 'paused' : phase}>
      <span className="live-state" role="status">
        <span className="dot" data-phase={paused ? 'paused' : phase} />
        {word}
        {why && `: ${why}`}
      </span>
      <span className="live-closed" role="status">
        {status.closed && 'Closed: nothing follows'}
      </span>
      <span className="faint live-count">
        {dropped > 0
          ? `newest ${grouped(RING_ROWS)} of ${grouped(tail.rows.total)}`
          : `${grouped(tail.received)} received`}
        {status.reconnects > 0 && ` · ${grouped(status.reconnects)}× reconnected`}
        {status.failures > 1 && ` · ${counted(status.failures - 1, 'attempt')} failed`}
      </span>
      <span className="spacer" />
      <span className="credit">
        <span id="credit-label">Credit</span>
        <meter min={0} max={1} low={0.25} value={share} aria-labelledby="credit-label credit-text" />
        <span id="credit-text" className="credit-text">
          {grouped(credit.left.msgs)} of {grouped(credit.window.msgs)} messages · {bytes(credit.left.bytes)}
          {used && ' · the gateway waits'}
        </span>
      </span>
      {paused && (
        <button
          type="button"
          onClick={on.onSkip}
          title="Continue at the end of the topic; what lies between is not shown"
        >
          Skip to newest
        </button>
      )}
      <button
        type="button"
        className={paused ? 'primary' : ''}
        onClick={() => (paused ? on.onResume() : tail.pause(true))}
      >
        {paused ? (held > 0 ? `Resume, +${grouped(held)} new` : 'Resume') : 'Pause'}
      </button>
      <div className="live-tools">
        <Choice label="Start from" hideLabel value={start} options={LIVE_STARTS} onChange={onStart} />
        <input
          type="search"
          aria-label="Filter by key, headers and start of body"
          aria-describedby="live-hidden"
          placeholder="Filter by key, headers, start of body"
          autoComplete="off"
          spellCheck={false}
          value={filter}
          onChange={(event) => onFilter(event.target.value)}
        />
        <span id="live-hidden" className="faint live-hidden">
          {filter.trim() !== '' && `${counted(hidden, 'message')} hidden`}
        </span>
      </div>
    </div>
  );
}

const WORDS = { connecting: 'Connecting', live: 'Live', waiting: 'Reconnecting', ended: 'Ended' } as const;
