import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { scrub } from "./scrub.js";

const spellings: readonly ((secret: string) => string)[] = [
  // URLs.
  (secret) => `connect ECONNREFUSED amqp://user:${secret}@host:5672/vhost`,
  (secret) => `redis://:${secret}@host`,
  (secret) => `first postgres://a:${secret}@h1/db, then postgres://b:${secret}@h2/db`,
  (secret) => `mongodb+srv://user:p@${secret}@host/?w=1`,
  (secret) => `postgres://user:sl/ash${secret}@host/db`,
  (secret) => `see https://host/path?api_key=${secret}&page=2`,
  (secret) => `"url":"amqps://u:${secret}@h","to":"a@b"`,
  (secret) => `https://host/cb?access_token=${secret}#end`,
  (secret) => `body: %22password%22%3A%22${secret}%22`,
  // Keys and values.
  (secret) => `host=h user=u password=${secret} dbname=d`,
  (secret) => `host=h password='${secret} with spaces' dbname=d`,
  (secret) => `Server=h;User Id=u;Pwd=${secret};Database=d`,
  (secret) => `DefaultEndpointsProtocol=https;AccountKey=${secret};EndpointSuffix=x`,
  (secret) => `Endpoint=sb://h/;SharedAccessKeyName=n;SharedAccessKey=${secret}`,
  (secret) => `AWS_SECRET_ACCESS_KEY=${secret}`,
  (secret) => `POSTGRES_PASSWORD2: ${secret}`,
  (secret) => `{ :password => "${secret}" }`,
  (secret) => `PASSWORD = ${secret}`,
  (secret) => `sasl.jaas.config: username="u" password="${secret}";`,
  // JSON, also within a string, and truncated.
  (secret) => `{"user":"u","password":"${secret}","port":1}`,
  (secret) => `{"clientSecret" : "${secret}"}`,
  (secret) => `{"refresh_token":"quoted \\" ${secret}","x":1}`,
  (secret) => `"{\\"apiKey\\":\\"${secret}\\",\\"x\\":1}"`,
  (secret) => `{"password":"back\\\\\\" ${secret}","x":1}`,
  (secret) => `"{\\"password\\":\\"quoted \\\\\\" ${secret}\\",\\"x\\":1}"`,
  (secret) => `{ password: '${secret}', port: 1 }`,
  (secret) => `{"passphrase":"${secret}`,
  (secret) => `{"password":12345,"token":"${secret}"}`,
  // Headers.
  (secret) => `Authorization: Bearer ${secret}`,
  (secret) => `authorization: Basic ${secret}`,
  (secret) => `proxy-authorization=Digest ${secret}`,
  (secret) => `X-Api-Key: ${secret}\r\nHost: h`,
  (secret) => `rawHeaders: [ 'Authorization', 'Bearer ${secret}' ]`,
  (secret) => `["x-auth-token","${secret}"]`,
  (secret) => `the server refused Bearer ${secret} for /x`,
  (secret) => `sent bearer ${secret}`,
];

describe("scrub", () => {
  const characters = [..."abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~"];
  const secret = fc
    .array(fc.constantFrom(...characters), { minLength: 6, maxLength: 40 })
    .map((list) => `canary${list.join("")}`);

  it.each(spellings.map((spelling) => [spelling("…"), spelling] as const))(
    "takes the secret out of %s",
    (_, spelling) => {
      fc.assert(
        fc.property(secret, (canary) => {
          const clean = scrub(spelling(canary));
          expect(clean).not.toContain(canary);
          expect(clean).toContain("***");
          expect(scrub(clean)).toBe(clean);
        }),
        { numRuns: 50 },
      );
    },
  );

  it("takes out what is encoded", () => {
    expect(scrub("Basic dXNlcjpwYXNz was refused")).toBe("Basic *** was refused");
    expect(scrub("got eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl back")).toBe("got *** back");
  });

  it("leaves what says where and why", () => {
    expect(scrub("connect ECONNREFUSED amqp://user:secret@host:5672/vhost?heartbeat=5")).toBe(
      "connect ECONNREFUSED amqp://***@host:5672/vhost?heartbeat=5",
    );
    expect(scrub('{"user":"u","password":"a\\"b","port":1}')).toBe('{"user":"u","password":"***","port":1}');
    expect(scrub('{"password":"ends in \\\\","port":1}')).toBe('{"password":"***","port":1}');
    expect(scrub('"{\\"password\\":\\"x\\",\\"port\\":1}"')).toBe('"{\\"password\\":\\"***\\",\\"port\\":1}"');
    expect(scrub("host=h password=x dbname=d")).toBe("host=h password=*** dbname=d");
    expect(scrub("Authorization: Bearer abc\nHost: h")).toBe("Authorization: ***\nHost: h");
  });

  it.each([
    "",
    "connect ECONNREFUSED 127.0.0.1:5672",
    'password authentication failed for user "postgres"',
    "Unexpected token } in JSON at position 4",
    "SyntaxError: Unexpected token: name",
    "password: must be at least 8 characters",
    "token: expected string, received undefined",
    "Basic authentication is not supported; use Bearer authentication",
    "the bearer token has expired",
    "a basic understanding of tokens, secrets and keys",
    "[publish-failed] 1 of 2 messages were not sent: NO_ROUTE; mail ops@example.com",
    "https://host:8080/path@2x.png and http://[::1]:80/a@b and https://host/a:b@c",
    "key=orders-17 topic=shop.orders partition=3 offset=42",
    'duplicate key value violates unique constraint "user_pkey": Key (email)=(a@b.c) already exists.',
    "tokenizer: broken; secretary: absent; bypass: no; compass=north",
    "exchange 'shop.orders' in vhost '/' not found (404)",
    "ein ganz gewöhnlicher Satz: ohne Geheimnis 🙂",
  ])("leaves alone: %s", (text) => {
    expect(scrub(text)).toBe(text);
  });

  it.each([
    "a",
    "://",
    "://a:b",
    "password",
    "password=",
    'password="',
    "password='\\",
    "password\\\"'",
    "token:  ",
    "bearer ",
    "basic A",
    "eyJ",
    "-eyJaaaaaaaaa.",
    "@",
    '\\"',
    "key: ",
    'secret","',
  ])("takes no longer than the text is long: 1 MB of %s", (piece) => {
    const text = piece.repeat(Math.ceil(1_000_000 / piece.length));
    const startedAt = performance.now();
    scrub(text);
    // Linear time takes milliseconds, quadratic time takes minutes.
    expect(performance.now() - startedAt).toBeLessThan(3_000);
  });
});
