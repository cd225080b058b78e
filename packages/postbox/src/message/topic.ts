/** The default topic of a type: the part before its last dot, or the whole type without a dot. */
export function topicOfType(type: string): string {
  const dot = type.lastIndexOf(".");
  return dot > 0 ? type.slice(0, dot) : type;
}
