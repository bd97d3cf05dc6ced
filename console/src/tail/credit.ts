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
 * Only taking raises the limit: while nobody takes, the gateway runs out of credit and waits. A repeated grant
 * changes nothing, so totals are simply restated after a reconnect.
 */
export class Credit {
  private received: Amount = { msgs: 0, bytes: 0 };
  private taken: Amount = { msgs: 0, bytes: 0 };
  private limit: Amount;

  constructor(readonly window: Amount) {
    this.limit = window;
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
    const next = { msgs: this.taken.msgs + this.window.msgs, bytes: this.taken.bytes + this.window.bytes };
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
