import type { Level } from '../api/client';
import { useService } from '../api/topics';

interface Choosable {
  readonly id: Level;
  readonly label: string;
  readonly about: string;
}

/** The safest first. */
const LEVELS: readonly Choosable[] = [
  { id: 'archived', label: 'archived', about: 'in the object store, for a restore to bring back' },
  { id: 'quorum', label: 'quorum', about: 'synced on a majority of replicas' },
  { id: 'durable', label: 'durable', about: 'synced on the leader’s disk' },
  { id: 'memory', label: 'memory', about: 'the leader gave it an offset' },
  { id: 'none', label: 'none', about: 'a gateway admitted it' },
];

/** What `chosen` may be changed to: itself, and whatever storage can reach. */
export function useLevels(chosen: Level): readonly Choosable[] {
  const reached = useService().data?.levels;
  return LEVELS.filter(({ id }) => id === chosen || (reached ? reached.includes(id) : id !== 'archived'));
}
