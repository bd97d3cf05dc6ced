import type { ReactNode } from 'react';

function Icon({ children, size = 16 }: { children: ReactNode; size?: number }) {
  return (
    <svg
      width={size}
      height={size}
      viewBox="0 0 16 16"
      fill="none"
      stroke="currentColor"
      strokeWidth="1.4"
      strokeLinecap="round"
      strokeLinejoin="round"
      aria-hidden="true"
    >
      {children}
    </svg>
  );
}

export function WeirMark() {
  return (
    <svg className="mark" width="22" height="22" viewBox="0 0 20 20" fill="none" aria-hidden="true">
      <rect width="20" height="20" rx="4.5" className="mark-ground" />
      <path
        d="M3 6.5h6.2c1 0 1.6.5 1.9 1.4l1.3 4.2c.3.9.9 1.4 1.9 1.4H17"
        className="mark-crest"
        strokeWidth="1.9"
        strokeLinecap="round"
      />
      <path d="M3 10h4.2M3 13.5h5.4" className="mark-pool" strokeWidth="1.9" strokeLinecap="round" />
    </svg>
  );
}

export const TopicsIcon = () => (
  <Icon>
    <path d="M2.5 4h11M2.5 8h11M2.5 12h7" />
  </Icon>
);
export const QueuesIcon = () => (
  <Icon>
    <path d="M2.5 3.5h4v4h-4zM9.5 3.5h4M9.5 7.5h4M2.5 12h11" />
  </Icon>
);
export const StartIcon = () => (
  <Icon>
    <path d="M4.5 3.2v9.6l8-4.8z" />
  </Icon>
);
export const SunIcon = () => (
  <Icon>
    <circle cx="8" cy="8" r="2.8" />
    <path d="M8 1.5v1.3M8 13.2v1.3M1.5 8h1.3M13.2 8h1.3M3.4 3.4l.9.9M11.7 11.7l.9.9M12.6 3.4l-.9.9M4.3 11.7l-.9.9" />
  </Icon>
);
export const MoonIcon = () => (
  <Icon>
    <path d="M13.3 9.6A5.8 5.8 0 0 1 6.4 2.7a5.8 5.8 0 1 0 6.9 6.9z" />
  </Icon>
);
export const SearchIcon = () => (
  <Icon>
    <circle cx="7" cy="7" r="4.2" />
    <path d="m10.2 10.2 3.3 3.3" />
  </Icon>
);
export const CopyIcon = () => (
  <Icon size={14}>
    <rect x="5.5" y="5.5" width="8" height="8" rx="1.5" />
    <path d="M10.5 3.5a1 1 0 0 0-1-1h-6a1 1 0 0 0-1 1v6a1 1 0 0 0 1 1" />
  </Icon>
);
export const CheckIcon = () => (
  <Icon size={14}>
    <path d="m3 8.5 3.2 3.2L13 4.8" />
  </Icon>
);
export const CloseIcon = () => (
  <Icon>
    <path d="m4 4 8 8M12 4l-8 8" />
  </Icon>
);
export const ChevronIcon = () => (
  <Icon size={12}>
    <path d="m4 6 4 4 4-4" />
  </Icon>
);
