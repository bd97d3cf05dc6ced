/** Messages and encoded bytes. */
export interface Amount {
  readonly msgs: number;
  readonly bytes: number;
}

export interface CreditView {
  /** What the gateway may still send before it must wait. */
  readonly left: Amount;
  /** The most it is ever granted ahead of what was taken. */
  readonly window: Amount;
}

/**
 * Delivery credit of one subscription, as absolute totals since it began.
 *
 *     taken ≤ received ≤ limit ≤ taken + window     (bytes: one message may overshoot the limit)
 *
 * Only taking raises the limit: while nobody takes, the gateway runs out of credit and waits. What an earlier
 * subscription left untaken narrows the limit until it is taken, so that never more than a window waits.
 */
export class Credit {
  private received: Amount = { msgs: 0, bytes: 0 };
  /** Below zero while something of an earlier subscription waits. */
  private taken: Amount;
  private limit: Amount;

  constructor(
    readonly window: Amount,
    untaken: Amount = { msgs: 0, bytes: 0 },
  ) {
    this.taken = { msgs: -untaken.msgs, bytes: -untaken.bytes };
    this.limit = {
      msgs: Math.max(0, window.msgs - untaken.msgs),
      bytes: Math.max(0, window.bytes - untaken.bytes),
    };
  }

  /** For the next subscription, which starts its totals anew. */
  renewed(): Credit {
    return new Credit(this.window, {
      msgs: this.received.msgs - this.taken.msgs,
      bytes: this.received.bytes - this.taken.bytes,
    });
  }

  /** The limit to subscribe with. */
  get granted(): Amount {
    return this.limit;
  }

  /** A message has arrived. */
  receive(bytes: number): void {
    this.received = { msgs: this.received.msgs + 1, bytes: this.received.bytes + bytes };
  }

  /**
   * The reader has taken messages. Answers the new limit if it is worth telling: after a quarter of a window,
   * so that fast streams do not cost a grant per message.
   */
  take(amount: Amount): Amount | null {
    this.taken = { msgs: this.taken.msgs + amount.msgs, bytes: this.taken.bytes + amount.bytes };
    // What an earlier subscription overshot by may still keep it where it is: it never falls.
    const next = {
      msgs: Math.max(this.limit.msgs, this.taken.msgs + this.window.msgs),
      bytes: Math.max(this.limit.bytes, this.taken.bytes + this.window.bytes),
    };
    const due =
      next.msgs - this.limit.msgs >= this.window.msgs / 4 ||
      next.bytes - this.limit.bytes >= this.window.bytes / 4;
    if (!due) return null;
    this.limit = next;
    return next;
  }

  view(): CreditView {
    return {
      left: {
        msgs: Math.max(0, this.limit.msgs - this.received.msgs),
        bytes: Math.max(0, this.limit.bytes - this.received.bytes),
      },
      window: this.window,
    };
  }
}
