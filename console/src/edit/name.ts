const NAME = /^[A-Za-z0-9._~-]{1,255}$/;

/** What is wrong with the name of a topic or subscription; `null` if nothing is. */
export function nameError(name: string): string | null {
  if (name === '') return 'A name is needed.';
  if (name === '.' || name === '..') return 'This name is reserved.';
  if (name.length > 255) return 'At most 255 characters.';
  return NAME.test(name) ? null : 'Letters, digits and . _ ~ - only.';
}
