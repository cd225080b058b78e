import type { Outcome } from "../../transport.js";

/** One message of a chain. */
export interface Link {
  /** The partition that it goes to; undefined if its outcome is known already. */
  readonly lane: string | undefined;
  /** Sends it, or sets its outcome, and calls back with that. */
  start(finished: (outcome: Outcome) => void): void;
  /** It is held back, since an earlier one of its key was not sent. */
  hold(): void;
}

/**
 * The messages of one key in one call, which may go to several topics. Within a partition they follow one another; a
 * message for another partition waits until all before it are stored. After a failure, all later ones are held back.
 */
export class KeyChain {
  readonly #waiting: Link[] = [];
  #lane: string | undefined;
  #open = 0;
  #failed = false;

  add(link: Link): void {
    if (this.#failed && this.#waiting.length === 0) link.hold();
    else if (this.#waiting.length === 0 && this.#fits(link)) this.#start(link);
    else this.#waiting.push(link);
  }

  #fits({ lane }: Link): boolean {
    return this.#open === 0 || (lane !== undefined && lane === this.#lane);
  }

  #start(link: Link): void {
    this.#lane = link.lane;
    this.#open++;
    link.start(({ status }) => {
      this.#open--;
      if (status !== "sent") this.#failed = true;
      while (this.#waiting.length > 0 && (this.#failed || this.#fits(this.#waiting[0] as Link))) {
        const next = this.#waiting.shift() as Link;
        if (this.#failed) next.hold();
        else this.#start(next);
      }
    });
  }
}
