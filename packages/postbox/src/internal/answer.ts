/**
 * The answer of a user's synchronous function. An untyped one may return a promise, which the caller refuses as a wrong
 * answer. If that promise rejects, it must not end the process.
 */
export function answered<R>(answer: R): R {
  if (answer instanceof Promise) answer.catch(() => {});
  return answer;
}
