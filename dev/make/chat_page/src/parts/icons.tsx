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
  image: "M4 5h16v14H4zM4 16l5-5 4 4 3-3 4 4M15 9h.01",
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
  class?: string;
}

export function IconButton({ of, label, onClick, disabled, class: kind }: Props) {
  return (
    <button type="button" class={`icon ${kind ?? ""}`} aria-label={label} title={label} onClick={onClick} disabled={disabled}>
      <Icon of={of} />
    </button>
  );
}
