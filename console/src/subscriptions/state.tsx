import type { Subscription } from '../api/client';
import { verdict } from './verdict';

/** How it is, in a word. */
export function State({ subscription }: { subscription: Subscription }) {
  const { tone, word, sentence } = verdict(subscription);
  return (
    <span className="state" data-tone={tone} title={sentence}>
      {word}
    </span>
  );
}
