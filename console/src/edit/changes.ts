/** One value that differs. */
export interface Change {
  /** Path in the API, e.g. `retention.age_ms`. */
  readonly field: string;
  readonly before: unknown;
  readonly after: unknown;
}

/** Changes in the form that `PATCH` takes. */
export type Patch = Record<string, unknown>;

/** What differs between two configurations, field by field, in the order of the API. A list is one value. */
export function changes(before: object, after: object): Change[] {
  const found: Change[] = [];
  const compare = (path: string, a: unknown, b: unknown) => {
    if (isObject(a) && isObject(b)) {
      for (const name of new Set([...Object.keys(a), ...Object.keys(b)])) {
        compare(path ? `${path}.${name}` : name, a[name], b[name]);
      }
    } else if (!same(a, b)) found.push({ field: path, before: a ?? null, after: b ?? null });
  };
  compare('', before, after);
  return found;
}

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

const same = (a: unknown, b: unknown) =>
  Array.isArray(a) && Array.isArray(b)
    ? JSON.stringify(a) === JSON.stringify(b)
    : (a ?? null) === (b ?? null);

/** The changes in the form that `PATCH` takes. */
export function patchOf(list: readonly Change[]): Patch {
  const patch: Patch = {};
  for (const { field, after } of list) put(patch, field, after);
  return patch;
}

/** `mine` as made on `base`, made on `theirs` instead: fields I did not touch take their value. */
export function rebase<C extends object>(base: C, mine: C, theirs: C): C {
  const result = structuredClone(theirs) as Record<string, unknown>;
  for (const { field, after } of changes(base, mine)) put(result, field, after);
  return result as C;
}

function put(target: Record<string, unknown>, field: string, value: unknown) {
  const [outer, inner] = field.split('.') as [string, string?];
  if (inner === undefined) target[outer] = value;
  else target[outer] = { ...(target[outer] as object | undefined), [inner]: value };
}
