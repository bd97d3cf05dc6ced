import { useEffect, useRef, useState } from 'react';
import { SearchIcon } from '../ui/icons';

const ID = 'list-search';

interface SearchBoxProps {
  readonly label: string;
  readonly q: string;
  readonly onChange: (q: string) => void;
}

/** Searches by name as it is typed into. */
export function SearchBox({ label, q, onChange }: SearchBoxProps) {
  const [text, setText] = useState(q);
  const sent = useRef(q);
  // The list is rendered anew for many reasons: none of them is to begin the delay again.
  const latest = useRef(onChange);
  latest.current = onChange;
  useEffect(() => {
    // Back and forward change the address without typing.
    if (q !== sent.current) setText(q);
    sent.current = q;
  }, [q]);
  useEffect(() => {
    if (text === sent.current) return;
    const timer = setTimeout(() => {
      sent.current = text;
      latest.current(text);
    }, 180);
    return () => clearTimeout(timer);
  }, [text]);
  return (
    <div className="search">
      <SearchIcon />
      <input
        id={ID}
        type="search"
        aria-label={label}
        placeholder="Search by name"
        autoComplete="off"
        spellCheck={false}
        value={text}
        onChange={(event) => setText(event.target.value)}
      />
      <kbd>/</kbd>
    </div>
  );
}

/** `n` creates, `/` searches: only while no field or dialog has the focus. */
export function useShortcuts(onCreate: () => void) {
  const latest = useRef(onCreate);
  latest.current = onCreate;
  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      const target = event.target as HTMLElement;
      if (event.ctrlKey || event.metaKey || event.altKey || target.closest('input, textarea, [role=dialog]'))
        return;
      if (event.key === 'n') latest.current();
      else if (event.key === '/') document.getElementById(ID)?.focus();
      else return;
      event.preventDefault();
    };
    addEventListener('keydown', onKey);
    return () => removeEventListener('keydown', onKey);
  }, []);
}
