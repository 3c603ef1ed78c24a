/** Canonical encodings: length-prefixed fields and base64url. See "Encodings" in docs/format.md. */

export type Bytes = Uint8Array<ArrayBuffer>;
export type Field = Uint8Array | string | number | readonly Field[];

/** A value is not in the form that the protocol defines. */
export class Malformed extends Error {}

const encoder = new TextEncoder();
const strict = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

export function concat(...parts: Uint8Array[]): Bytes {
  const joined = new Uint8Array(parts.reduce((size, part) => size + part.length, 0));
  let at = 0;
  for (const part of parts) {
    joined.set(part, at);
    at += part.length;
  }
  return joined;
}

/** Encode text as UTF-8, and refuse lone surrogates, which `TextEncoder` would replace silently. */
export function utf8(text: string): Bytes {
  if (/\p{Surrogate}/u.test(text)) throw new Malformed("a string contains a lone surrogate");
  return encoder.encode(text) as Bytes;
}

export function u64(value: number): Bytes {
  if (!Number.isSafeInteger(value) || value < 0) throw new Malformed("an integer is negative or too large");
  const bytes = new Uint8Array(8);
  new DataView(bytes.buffer).setBigUint64(0, BigInt(value));
  return bytes;
}

/** Encode fields, each as its length in eight big-endian bytes and its content. */
export function lp(...fields: readonly Field[]): Bytes {
  return concat(
    ...fields.flatMap((field) => {
      const content =
        field instanceof Uint8Array ? field
        : typeof field === "string" ? utf8(field.normalize("NFC"))
        : typeof field === "number" ? u64(field)
        : lp(...field);
      return [u64(content.length), content];
    }),
  );
}

/** Reads the fields of one `lp` value in order. */
export class Reader {
  #at = 0;
  constructor(private readonly data: Uint8Array) {}

  bytes(size?: number): Bytes {
    const start = this.#at + 8;
    if (start > this.data.length) throw new Malformed("the value ends inside a length");
    const length = new DataView(this.data.buffer, this.data.byteOffset).getBigUint64(this.#at);
    if (length > BigInt(this.data.length - start)) throw new Malformed("the value ends inside a field");
    if (size !== undefined && length !== BigInt(size)) throw new Malformed("a field has another length");
    this.#at = start + Number(length);
    return this.data.slice(start, this.#at) as Bytes;
  }

  text(): string {
    let value: string;
    try {
      value = strict.decode(this.bytes());
    } catch (error) {
      if (error instanceof Malformed) throw error;
      throw new Malformed("a string is not UTF-8");
    }
    if (value.normalize("NFC") !== value) throw new Malformed("a string is not in NFC");
    return value;
  }

  integer(): number {
    const bytes = this.bytes(8);
    const value = new DataView(bytes.buffer).getBigUint64(0);
    if (value > BigInt(Number.MAX_SAFE_INTEGER)) throw new Malformed("an integer is too large");
    return Number(value);
  }

  end(): void {
    if (this.#at !== this.data.length) throw new Malformed("bytes follow the last field");
  }
}

export function base64(bytes: Uint8Array): string {
  let binary = "";
  for (const byte of bytes) binary += String.fromCharCode(byte);
  return btoa(binary);
}

/** Encode as base64url without padding. */
export function base64url(bytes: Uint8Array): string {
  return base64(bytes).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
}

/** Decode base64url without padding, whose unused bits are zero. */
export function fromBase64url(text: string): Bytes {
  if (!/^[A-Za-z0-9_-]*$/.test(text) || text.length % 4 === 1) throw new Malformed("not base64url");
  const binary = atob(text.replaceAll("-", "+").replaceAll("_", "/"));
  const bytes = Uint8Array.from(binary, (char) => char.charCodeAt(0));
  if (base64url(bytes) !== text) throw new Malformed("not base64url");
  return bytes;
}

export function hex(bytes: Uint8Array): string {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

export function fromHex(text: string): Bytes {
  if (!/^([0-9a-fA-F]{2})*$/.test(text)) throw new Malformed("not hexadecimal");
  return Uint8Array.from(text.match(/../g) ?? [], (pair) => parseInt(pair, 16));
}

/** Compare without revealing by the time taken where two values differ. */
export function equal(a: Uint8Array, b: Uint8Array): boolean {
  if (a.length !== b.length) return false;
  return a.reduce((different, byte, at) => different | (byte ^ b[at]!), 0) === 0;
}
