/**
 * The newest `capacity` items of a stream, oldest dropped first. `total` counts all that were ever pushed, so
 * `total - length` have been dropped.
 */
export class Ring<T> {
  private items: T[] = [];
  /** Index of the oldest item once the ring is full. */
  private head = 0;
  private pushed = 0;

  constructor(readonly capacity: number) {
    if (!Number.isInteger(capacity) || capacity < 1) throw new RangeError(`ring of ${capacity}`);
  }

  get length(): number {
    return this.items.length;
  }

  get total(): number {
    return this.pushed;
  }

  push(item: T): void {
    if (this.items.length < this.capacity) this.items.push(item);
    else {
      this.items[this.head] = item;
      this.head = (this.head + 1) % this.capacity;
    }
    this.pushed += 1;
  }

  /** The item `index` places before the newest: 0 is the newest. `undefined` outside. */
  newest(index: number): T | undefined {
    if (index < 0 || index >= this.items.length) return undefined;
    return this.items[(this.head + this.items.length - 1 - index) % this.items.length];
  }

  /** From the newest to the oldest. */
  *[Symbol.iterator](): Generator<T> {
    for (let i = 0; i < this.items.length; i += 1) yield this.newest(i) as T;
  }

  clear(): void {
    this.items = [];
    this.head = 0;
    this.pushed = 0;
  }
}
