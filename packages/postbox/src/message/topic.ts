/** The topic of a type that names none: what stands before its last dot, or the whole type where there is no dot. */
export function topicOfType(type: string): string {
  const dot = type.lastIndexOf(".");
  return dot > 0 ? type.slice(0, dot) : type;
}
