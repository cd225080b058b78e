/** What user code may throw. Each of these has broken code that inspected it. */
export function strangeErrors(): Readonly<Record<string, unknown>> {
  const refuse = () => {
    throw new Error("do not look at me");
  };
  const revoked = Proxy.revocable({}, {});
  revoked.revoke();
  return {
    nothing: undefined,
    "a text": "no stock",
    "an error without a message": Object.defineProperty(new Error("lost"), "message", { value: undefined }),
    "an error whose code throws": Object.defineProperty(new Error("no stock"), "code", { get: refuse }),
    "an error whose cause throws": Object.defineProperty(new Error("no stock"), "cause", { get: refuse }),
    "an error whose message throws": Object.defineProperty(new Error("lost"), "message", { get: refuse }),
    "a proxy": new Proxy({}, { get: refuse, getPrototypeOf: refuse }),
    "a revoked proxy": revoked.proxy,
  };
}
