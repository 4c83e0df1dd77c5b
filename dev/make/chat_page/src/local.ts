// Small values that the browser keeps. A browser that keeps nothing still shows the page.

export function load(name: string): string | null {
  try {
    return localStorage.getItem(name);
  } catch {
    return null;
  }
}

/** Keep a value; null removes it. */
export function save(name: string, value: string | null): void {
  try {
    if (value === null) localStorage.removeItem(name);
    else localStorage.setItem(name, value);
  } catch {
    // it is then kept until the page is closed
  }
}
