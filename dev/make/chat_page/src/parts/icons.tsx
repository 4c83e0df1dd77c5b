// Drawn here, so that nothing has to be fetched.

const PATHS: Record<string, string> = {
  add: "M12 5v14M5 12h14",
  copy: "M9 9h10v10H9zM5 15V5h10",
  edit: "M4 20h4L19 9l-4-4L4 16z",
  again: "M4 4v6h6M20 20v-6h-6M5.5 15a7 7 0 0 0 12 2.5L20 14M4 10l2.5-3.5A7 7 0 0 1 18.5 9",
  remove: "M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13",
  left: "M15 5l-7 7 7 7",
  right: "M9 5l7 7-7 7",
  send: "M12 19V5M5 12l7-7 7 7",
  stop: "M7 7h10v10H7z",
  attach: "M8 12.5l6-6a3 3 0 0 1 4.5 4.5l-7.5 7.5a5 5 0 0 1-7-7L11 4.5",
  file: "M6 3h8l4 4v14H6zM14 3v4h4M9 12h6M9 16h6",
  close: "M6 6l12 12M18 6L6 18",
  done: "M5 13l4 4L19 7",
  more: "M5 12h.8M11.6 12h.8M18.2 12h.8",
  keys: "M3 7h18v10H3zM7 11h.01M11 11h.01M15 11h.01M8 14h8",
  menu: "M4 7h16M4 12h16M4 17h16",
  tune: "M4 8h10M18 8h2M4 16h2M10 16h10M16 6v4M8 14v4",
};

export function Icon({ of }: { of: string }) {
  return (
    <svg viewBox="0 0 24 24" width="18" height="18" aria-hidden="true">
      <path d={PATHS[of]} fill="none" stroke="currentColor" stroke-width="1.8" stroke-linecap="round" stroke-linejoin="round" />
    </svg>
  );
}

interface Props {
  of: string;
  label: string;
  onClick: () => void;
  disabled?: boolean;
  expanded?: boolean; // of what it shows and hides
  class?: string;
}

export function IconButton({ of, label, onClick, disabled, expanded, class: kind }: Props) {
  return (
    <button type="button" class={`icon ${kind ?? ""}`} aria-label={label} title={label} aria-expanded={expanded} onClick={onClick} disabled={disabled}>
      <Icon of={of} />
    </button>
  );
}
