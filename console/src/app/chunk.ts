/** Between two attempts. */
const RETRY_MS = 1_000;

/**
 * Code that is loaded when a screen is first opened. As long as the gateway cannot be reached it is asked for again, and what was
 * seen stays: the router alone would load the page anew, which a gateway that is away turns into the browser's error page.
 * A gateway that answers and does not have the code is of another version: then to load the page anew is right.
 */
export function chunk<T>(load: () => Promise<T>): () => Promise<T> {
  return async () => {
    for (;;) {
      try {
        return await load();
      } catch {
        // It may have come back since: only what fails now fails for good.
        if (await reachable()) return load();
        await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
      }
    }
  };
}

function reachable(): Promise<boolean> {
  return fetch(document.baseURI, { method: 'HEAD', cache: 'no-store' }).then(
    () => true,
    () => false,
  );
}
