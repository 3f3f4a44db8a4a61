// What the TypeScript clients share.

declare const process: { env: Record<string, string | undefined> };
/** The second key has 3 requests a minute. */
export const { TENANTDESK_URL: url = "", TENANTDESK_KEY: key = "", SLOW_KEY: slowKey = "" } = process.env;

export function check(holds: unknown, what: string): asserts holds {
  if (!holds) throw new Error(what);
}

/** Sends a request several times, and each again after 429. The last answer. */
export async function untilAdmitted<Answer extends { response: { status: number; headers: Headers } }>(send: () => Promise<Answer>, times: number) {
  let refusals = 0;
  for (let sent = 0; ; ) {
    const answer = await send();
    if (answer.response.status === 429) {
      refusals += 1;
      await new Promise((done) => setTimeout(done, Number(answer.response.headers.get("Retry-After")) * 1000));
    } else if (++sent === times) {
      check(refusals > 0, "the limit was met");
      return answer;
    }
  }
}
