import { Link } from '@tanstack/react-router';

/** Asks where a message stands; the page opens the answer. */
export const ExplainLink = ({ id }: { id: string }) => (
  <Link to="." search={(before) => ({ ...before, explain: id })} aria-label={`Explain ${id}`}>
    explain
  </Link>
);
