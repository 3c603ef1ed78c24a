/** The errors of this client. Their messages name fields, limits and fixes, and never contain a secret or a text of a memory. */

/** The base class of all errors that this package throws deliberately. */
export class MemrelayError extends Error {
  constructor(message: string) {
    super(message);
    this.name = new.target.name;
  }
}

/** An argument is invalid. The call had no effect. */
export class InvalidInput extends MemrelayError {
  constructor(
    /** The argument, with the place in it. */
    readonly field: string,
    /** The rule that it breaks, without the value. */
    readonly problem: string,
  ) {
    super(`${field}: ${problem}`);
  }
}

/** The address of the relayer, or another setting, is invalid. */
export class SettingsError extends MemrelayError {}

/** There is no usable secret, or no namespace for the agent. */
export class IdentityError extends MemrelayError {}

/** No relayer responded: retry later. */
export class RelayerUnreachable extends MemrelayError {}

/** The service that responded did not prove to be the relayer: send nothing, and tell the operator. */
export class RelayerUntrusted extends MemrelayError {}

/** The time for the call was up. A write may have been stored. */
export class DeadlineExceeded extends MemrelayError {
  constructor(readonly step: string) {
    super(`the deadline passed during ${step}`);
  }
}

/** The relayer returned an error. */
export class RelayerRefused extends MemrelayError {
  constructor(
    /** The stable name of the error, e.g. `not_found`. */
    readonly code: string,
    readonly detail: string,
    readonly status: number,
    /** The id to quote to the operator of the relayer. */
    readonly requestId = "",
    /** Whether the relayer proved that it refuses this request, and not a copy that a proxy changed. */
    readonly accepted = true,
    /** The invalid fields of the request, and the rules that they break. */
    readonly fields: readonly { field: string; rule: string }[] = [],
  ) {
    super(`the relayer refused with ${status} ${code}: ${detail}${requestId ? ` (request ${requestId})` : ""}`);
  }
}
