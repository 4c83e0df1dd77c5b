// Numbers as people read them.

const grouped = new Intl.NumberFormat("en");

export const count = (n) => grouped.format(n);

export const plural = (n, one, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`;

export function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  while (n >= 1024 && i < units.length - 1) [n, i] = [n / 1024, i + 1];
  return `${i ? short(n) : n} ${units[i]}`;
}

/** Microseconds. */
export function time(us) {
  if (us >= 1e6) return `${short(us / 1e6)} s`;
  return us >= 1000 ? `${short(us / 1000)} ms` : `${short(us)} µs`;
}

/** Three digits, or as many as there are before the point. */
export function short(n) {
  if (n === 0 || !Number.isFinite(n)) return String(n);
  const size = Math.abs(n);
  if (size < 1e-3 || size >= 1e6) return n.toExponential(2);
  return size >= 100 ? String(Math.round(n)) : String(Number(n.toPrecision(3)));
}

export const percent = (part) => `${part < 0.0995 ? (100 * part).toFixed(1) : Math.round(100 * part)} %`;

/** ne without the ones at its end: [1024, 14]. */
export function shape(ne) {
  let n = ne.length;
  while (n > 1 && ne[n - 1] === 1) n--;
  return `[${ne.slice(0, n).join(", ")}]`;
}

export const hex = (n) => `0x${n.toString(16)}`;
